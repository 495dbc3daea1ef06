"""`normalize`, `Base.join`, fingerprints and the parts of URLs."""

import re
from urllib.parse import unquote_plus, unquote_to_bytes

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.urls import (
    DEFAULT,
    MAX_URL_LENGTH,
    NORMALIZER_VERSION,
    TRACKING_PARAMS,
    Base,
    Spelling,
    Wildcard,
    fingerprint,
    has_credentials,
    host_key,
    normalize,
    origin,
    path_query,
    respell_escapes,
    without_credentials,
)

SITE = "http://127.0.0.1:8820"

SAME = {
    "percent-encoding case": ("/pc/caf%C3%A9", "/pc/caf%c3%a9"),
    "raw or escaped": ("/pc/café", "/pc/caf%C3%A9"),
    "needless percent-encoding": ("/pe/~a-b", "/pe/%7Ea%2Db"),
    "dot segments": ("/dots/a", "/dots/x/../a"),
    "escaped dot segments": ("/dots/a", "/dots/x/%2E%2e/a"),
    "fragment": ("/frag/a", "/frag/a#part"),
    "scheme case and empty query": ("/scheme/a", f"HTTP{SITE[4:]}/scheme/a?"),
    "empty query mark": ("/mark/a", "/mark/a?"),
    "default port": ("http://a.example/", "http://A.EXAMPLE:80"),
    "IPv4 forms": ("http://127.0.0.1/", "http://0x7f.1/"),
    "IPv6 forms": ("http://[::1]/", "http://[0:0:0:0:0:0:0:1]/"),
    "IDN": ("http://bücher.example/", "http://xn--bcher-kva.example/"),
    "backslashes": ("/a/b", "\\a\\b"),
    "blanks and line ends in an attribute": ("/a/b", " /a/\n\tb\r\n"),
    "no scheme": ("http://other.example/x", "//other.example/x"),
}

APART = {
    "case of the path": ("/case/Abc", "/case/abc"),
    "case of a query value": ("/qcase?v=Abc", "/qcase?v=abc"),
    "trailing slash": ("/slash/a", "/slash/a/"),
    "encoded slash": ("/es/a/b", "/es/a%2Fb"),
    "order of a repeated parameter": ("/rep?a=2&a=1", "/rep?a=1&a=2"),
    "empty value or none": ("/ev?a=", "/ev?a"),
    "order of query parameters": ("/order?a=1&b=2", "/order?b=2&a=1"),
    "plus or %20 in a query": ("/plus?q=a+b", "/plus?q=a%20b"),
    "utm_ parameter": ("/utm/a", "/utm/a?utm_source=x"),
    "session parameter": ("/sid/a", "/sid/a?jsessionid=1"),
    "double slash in the path": ("/sl/a/b", "/sl/a//b"),
    "index.html": ("/ix/", "/ix/index.html"),
    "escaped percent sign": ("/cmp/Dia%25", "/cmp/Dia%2541"),
    "escaped question mark": ("/a%3Fb", "/a?b"),
    "escaped ampersand": ("/q?a=1%26b", "/q?a=1&b"),
    "question marks": ("/a??", "/a"),
    "scheme": ("http://a.example/", "https://a.example/"),
    "port": ("http://a.example/", "http://a.example:8080/"),
    "www": ("http://a.example/", "http://www.a.example/"),
    "final dot of a host": ("http://a.example/", "http://a.example./"),
}

SPELLINGS = {
    "http://EXAMPLE.com": "http://example.com/",
    "https://example.com:443/a?": "https://example.com/a",
    "https://example.com:80/": "https://example.com:80/",
    "http://example.com/a/../../b/./c/..": "http://example.com/b/",
    "http://example.com/%7euser/%2fx%2Fy/%e9": "http://example.com/~user/%2Fx%2Fy/%E9",
    "http://example.com/a b?c d#e f": "http://example.com/a%20b?c%20d",
    "http://example.com/ü?ü='": "http://example.com/%C3%BC?%C3%BC=%27",
    "http://example.com/a^b|c{d}": "http://example.com/a%5Eb|c%7Bd%7D",
    "http://example.com/search?tags[]=a": "http://example.com/search?tags[]=a",
    "http://example.com/a[b]/": "http://example.com/a[b]/",
    "http://example.com/100%": "http://example.com/100%",
    "http://example.com/%zz%4%61%%61": "http://example.com/%zz%4%61%%61",
    "http://example.com/?%41=%5A%2B+&&x": "http://example.com/?A=Z%2B+&&x",
    "http://example.com?a?": "http://example.com/?a?",
    "http://user:p%40ss@example.com/": "http://example.com/",
    "http://info@example.com:81/@x?a@b": "http://example.com:81/@x?a@b",
    "http:\\\\u:p@p@example.com": "http://example.com/",
    "http:u:p@example.com": "http://example.com/",
    "http://:@example.com/@/@": "http://example.com/@/@",
    "http://münchen.example/": "http://xn--mnchen-3ya.example/",
    "http://faß.example/": "http://xn--fa-hia.example/",
    "http://ＥＸＡＭＰＬＥ.com/": "http://example.com/",
    "http://%65xample.com/": "http://example.com/",
    "http://2130706433/": "http://127.0.0.1/",
    "http://[::ffff:1.2.3.4]:8000/": "http://[::ffff:102:304]:8000/",
    "http://a..b/": "http://a..b/",
    "http:example.com/": "http://example.com/",
    "http:////example.com/r": "http://example.com/r",
    "http:/feeds/latest.xml": "http://feeds/latest.xml",
    "\x00http://example.com/\x1f": "http://example.com/",
    "http://example.com/\x00\ud800": "http://example.com/%00%EF%BF%BD",
}

NOT_PAGES = [
    "",
    "a",
    "/a",
    "?a",
    "//x",
    "http:",
    "http://",
    "http://:80/",
    "http://?",
    "http://[::1",
    "http://h:99999/",
    "http://h:a/",
    "http://exa mple.com/",
    "http://a%00b/",
    "http://1.2.3.256/",
    "http://xn--ü/",
    "httpx://example.com/",
    "ftp://example.com/",
    "mailto:a@example.com",
    "javascript:void(0)",
    "data:text/html,x",
    "file:///etc/passwd",
    "about:blank",
    "blob:http://example.com/x",
    "\ud800",
    "http://\ud800/",
]

PIECES = [
    "http://", "https:", "//", "/", "\\", "?", "#", "&", "=", ":", "@", "[", "]", ".", "..", "+", ";",
    "|", "~", "2", "5", "e", "a", "Z", "example.com", "127.1", "::1", ":80", "xn--", " ", "\t", "\n", "\x00",
    "%", "%%", "%2", "%3", "%2e", "%2F", "%25", "%41", "%c3%A9", "%F0",
    "é", "ß", "\u0301", "\ud800", "\udc00", "\U0001f4a9",
]  # fmt: skip
tokens = st.sampled_from(PIECES)
texts = st.one_of(st.text(), st.lists(tokens, max_size=12).map("".join))
urls = st.one_of(texts, texts.map("http://h/".__add__), texts.map("https://u@h:81/a/b?c".__add__))
spellings = st.builds(
    Spelling,
    sort_query=st.booleans(),
    drop_params=st.sampled_from([(), TRACKING_PARAMS, ("a",), ("*",), ("*e*", "Z*")]),
)


@pytest.mark.parametrize("pair", SAME.values(), ids=SAME)
def test_equivalent_spellings_merge(pair):
    """Spellings that are equivalent for every server become one URL with one fingerprint."""
    one, other = (normalize(url, SITE) for url in pair)
    assert one == other is not None
    assert fingerprint(one) == fingerprint(other)


@pytest.mark.parametrize("pair", APART.values(), ids=APART)
def test_pages_that_may_differ_stay_apart(pair):
    """Spellings that may mean two pages stay two URLs with two fingerprints."""
    one, other = (normalize(url, SITE) for url in pair)
    assert None is not one != other is not None
    assert fingerprint(one) != fingerprint(other)


@pytest.mark.parametrize(("url", "spelling"), SPELLINGS.items())
def test_spelling_of_this_version(url, spelling):
    """The spellings of normalizer version 1: if one has to change, so must the version."""
    assert NORMALIZER_VERSION == 1
    assert normalize(url) == spelling


@pytest.mark.parametrize("url", NOT_PAGES)
def test_what_is_not_an_http_url_is_none(url):
    """Relative, unparsable and other schemes' URLs are None."""
    assert normalize(url) is None


def test_a_base_that_is_no_url_gives_none():
    """Nothing can be joined to a broken base, as the URL standard says."""
    assert normalize("http://example.com/", "no base") is None
    assert Base("no base").join("http://example.com/") is None


def test_longest_url():
    """A URL may have MAX_URL_LENGTH characters once it is spelled out, and not one more."""
    room = MAX_URL_LENGTH - len("http://h/")
    assert len(normalize("http://h/" + "a" * room)) == MAX_URL_LENGTH
    assert normalize("http://h/" + "a" * (room + 1)) is None
    assert normalize("http://h/" + "é" * (room // 6 + 1)) is None


def test_length_is_that_of_what_counts():
    """A long fragment, blanks and line ends do not make a URL too long."""
    assert normalize(" " * 10_000 + "http://h/\n" + "\n" * 10_000 + "a#" + "b" * 10_000) == "http://h/a"
    assert Base("http://h/dir/page").join("#" + "b" * 10_000) == "http://h/dir/page"


@pytest.mark.parametrize(
    "url",
    [
        "http://" + "a\u0301\u0323" * 400_000,
        "http://" + "é" * 2000,
        "HTTPS:" + "é" * 2000,
        "\\\\" + "é" * 2000,
        "http://h/" + "../a/" * 400_000,
        "http://" + "@" * 1_000_000 + "h/",
        "data:image/png;base64," + "A" * 5_000_000,
        "%" * 1_000_000,
        "\ud800" * 1_000_000,
    ],
    ids=lambda url: url[:8].encode("ascii", "backslashreplace").decode(),
)
@pytest.mark.timeout(5)
def test_megabytes_are_dropped_at_once(url):
    """Huge input, and a long host outside ASCII (whose conversion takes quadratic time), is None at once."""
    assert normalize(url, SITE) is None


@given(urls)
@example("http://h/%%32%35")
@example("http://h/%2%35")
@example("http://h/.%2%65/x")
def test_normalizing_again_changes_nothing(url):
    """`normalize` takes any text, and its result is ASCII and its own normal form."""
    once = normalize(url)
    if once is not None:
        assert once.isascii()
        assert normalize(once) == once


@given(urls, spellings)
def test_options_are_idempotent_too(url, spelling):
    """A URL spelled with options is its own normal form under the same options."""
    once = normalize(url, SITE, spelling)
    if once is not None:
        assert normalize(once, None, spelling) == once


@given(urls, texts)
def test_base_joins_as_normalize_does(base, href):
    """`Base.join` is `normalize` with a base, and normalizing the base first makes no difference."""
    joined = Base(base).join(href)
    assert joined == normalize(href, base)
    normal = normalize(base)
    if normal is not None:
        assert Base(normal).join(href) == joined


@given(urls, texts)
def test_a_joined_url_is_absolute(base, href):
    """What was joined once stays what it is, whatever it is joined to."""
    joined = normalize(href, base)
    if joined is not None:
        assert normalize(joined, base) == joined
        assert normalize(joined, "https://other.example/a/b?c") == joined


@given(
    texts,
    st.sampled_from(["utf-8", "utf-16", "windows-1252", "shift_jis", "iso-2022-jp", "hex", "idna", "?"]),
)
def test_any_charset_is_survived(href, charset):
    """A page may claim any encoding: the links are joined all the same."""
    joined = Base("http://h/a", charset=charset).join(href)
    assert joined is None or normalize(joined) == joined


@given(st.lists(tokens).map("".join).filter(str.isascii))
def test_escapes_keep_their_meaning(text):
    """Respelling escapes changes neither the bytes that they stand for nor the delimiters around them."""
    respelled = respell_escapes(text)
    assert unquote_to_bytes(respelled) == unquote_to_bytes(text)
    assert re.sub(r"[^/?#&=:@;+]", "", respelled) == re.sub(r"[^/?#&=:@;+]", "", text)
    assert respell_escapes(respelled) == respelled


def test_every_escape():
    """Of all 484 escapes those of unreserved characters are decoded, the others get upper-case digits."""
    unreserved = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
    digits = "0123456789abcdefABCDEF"
    escapes = [a + b for a in digits for b in digits]
    expected = {e: chr(int(e, 16)) if chr(int(e, 16)) in unreserved else f"%{e.upper()}" for e in escapes}
    assert {e: respell_escapes(f"%{e}") for e in escapes} == expected


def test_query_in_the_encoding_of_the_page():
    """The path of a link is UTF-8, its query is in the encoding of its page."""
    base = Base("http://h/dir/", charset="windows-1251")
    assert base.join("мир?q=мир&c=ü#мир") == "http://h/dir/%D0%BC%D0%B8%D1%80?q=%EC%E8%F0&c=%26%23252%3B"


def test_sorted_query():
    """Sorting goes by the decoded name alone, so that a repeated parameter keeps its order."""
    spelling = Spelling(sort_query=True)
    assert normalize("http://h/?b=1&a=2&a=1&b", None, spelling) == "http://h/?a=2&a=1&b=1&b"
    assert normalize("http://h/?b&a+c=2&a%20c=1", None, spelling) == "http://h/?a+c=2&a%20c=1&b"
    assert normalize("http://h/", None, spelling) == "http://h/"


def test_dropped_parameters():
    """Parameters are dropped by name or pattern, and with the last one the question mark."""
    spelling = Spelling(drop_params=("utm_*", "sid"))
    assert normalize("http://h/?utm_source=x&a=1&sid=2&side=3", None, spelling) == "http://h/?a=1&side=3"
    assert normalize("http://h/?%75tm_=&sid", None, spelling) == "http://h/"
    assert normalize("http://h/utm_x?UTM_x", None, spelling) == "http://h/utm_x?UTM_x"


def test_tracking_parameters():
    """The list of tracking parameters takes campaign tags and click ids, and leaves what names a page."""
    spelling = Spelling(drop_params=TRACKING_PARAMS)
    url = "http://h/?id=1&utm_source=a&utm_medium=b&fbclid=c&gclid=d&page=2&ref=e&msclkid=f"
    assert normalize(url, None, spelling) == "http://h/?id=1&page=2&ref=e"


params = st.lists(
    st.sampled_from(["a=1", "a=2", "b", "b=", "%62", "", "c+d=1", "c%20d=2"]),
    unique_by=lambda param: unquote_plus(param.partition("=")[0]),
    min_size=1,
)


@given(params.flatmap(lambda params: st.tuples(st.just(params), st.permutations(params))))
def test_sorting_merges_all_orders(orders):
    """Any order of parameters with different names gives one URL, and no parameter is lost."""
    one, other = (normalize("http://h/?x&" + "&".join(p), None, Spelling(sort_query=True)) for p in orders)
    assert one == other
    assert one.count("&") == len(orders[0])


def test_no_option_is_the_default():
    """By default nothing is sorted or dropped."""
    url = "http://h/?b=1&a=2&utm_source=x"
    assert Spelling() == DEFAULT
    assert normalize(url, None, Spelling()) == normalize(url) == url


def test_fingerprints_are_for_ever():
    """Fingerprints are stored, so these may never change: signed 64 bits of XXH3."""
    assert fingerprint("http://example.com/") == -5081748069831205333
    assert fingerprint("http://example.com/", "k") == 2425960597626958077
    assert all(-(2**63) <= fingerprint(f"http://h/{n}") < 2**63 for n in range(100))
    assert {fingerprint(f"http://h/{n}") < 0 for n in range(100)} == {True, False}


def test_a_key_sets_links_apart():
    """The key is part of the identity and does not run into the URL."""
    prints = [fingerprint("http://h/a"), fingerprint("http://h/", "a"), fingerprint("http://h/a", "\ud800")]
    assert len({*prints, fingerprint("http://h/")}) == 4


CREDENTIALS = {
    "http://user:secret@h/x": "http://***@h/x",
    "http://user:se/cr?et#@h/x": "http://***@h/x",
    "HTTP:user:secret@h": "HTTP:***@h",
    "//user:secret@h": "//***@h",
    "http:\\\\user:secret@[h": "http:\\\\***@[h",
    "htp://secret@h": "htp://***@h",
    " h\ttp://us\ner:secret@h": " h\ttp://***@h",
    "http://h/x": "http://h/x",
    "/path/@x": "/path/@x",
    "info@example.com": "info@example.com",
}


@pytest.mark.parametrize(("text", "masked"), CREDENTIALS.items())
def test_what_may_be_a_password_is_masked(text, masked):
    """Whatever the text is: a URL, a broken one, none at all."""
    assert without_credentials(text) == masked
    if normalize(text) is not None:
        assert has_credentials(text) == ("*" in masked)


@pytest.mark.timeout(5)
@pytest.mark.parametrize("piece", ["/", "//a", "http:", "@", "//@", "https://u@"])
def test_masking_takes_no_time(piece):
    """It is linear, whatever a Location header holds."""
    assert without_credentials(piece * 100_000).count("***") == ("@" in piece and "/" in piece)


@given(urls)
def test_no_user_survives(url):
    """A normalized URL has neither user nor password."""
    normal = normalize(url)
    assert normal is None or not has_credentials(normal)


PARTS = {
    "http://example.com/": ("example.com", "http://example.com", "/"),
    "https://example.com/a?b=/c@d": ("example.com", "https://example.com", "/a?b=/c@d"),
    "http://example.com:8080/a": ("example.com:8080", "http://example.com:8080", "/a"),
    "http://[::1]:8000/": ("[::1]:8000", "http://[::1]:8000", "/"),
    "https://[::1]/": ("[::1]", "https://[::1]", "/"),
    "http://h/?a": ("h", "http://h", "/?a"),
    "http://h:81/@": ("h:81", "http://h:81", "/@"),
}


@pytest.mark.parametrize(("url", "parts"), PARTS.items())
def test_parts_of_a_url(url, parts):
    """Host key, origin, path and query of a normalized URL."""
    assert (host_key(url), origin(url), path_query(url)) == parts
    assert normalize(url) == url


@given(urls)
def test_parts_make_up_the_url(url):
    """Origin and path with query are the URL again, and the host key is the origin without its scheme."""
    normal = normalize(url)
    if normal is not None:
        assert origin(normal) + path_query(normal) == normal
        assert origin(normal).partition("//")[2] == host_key(normal)


@given(st.text("ab*", max_size=8), st.text("ab*\n", max_size=12))
@example("a*a", "a")
@example("", "")
def test_wildcard_means_any_characters(pattern, text):
    """A wildcard pattern matches what the regular expression with `.*` for `*` matches."""
    regex = ".*".join(map(re.escape, pattern.split("*")))
    assert Wildcard.of(pattern).matches(text) == bool(re.fullmatch(regex, text, re.DOTALL))


@pytest.mark.timeout(5)
def test_wildcards_do_not_blow_up():
    """Many `*` against a long text that does not match take linear time."""
    assert not Wildcard.of("*a" * 500 + "b").matches("a" * 1_000_000)
