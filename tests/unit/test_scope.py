"""Which links belong to a crawl, and the patterns for URLs."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ConfigError
from shoal.scope import Scope, compile_glob, registrable_domain
from shoal.urls import normalize

HOST = "scope: other host"
DOMAIN = "scope: other domain"


@pytest.mark.parametrize(
    ("url", "reason"),
    {
        "http://example.com/": None,
        "https://example.com/a/b?c": None,
        "http://www.example.com/": HOST,
        "http://example.com:8080/": HOST,
        "http://example.com.evil.example/": HOST,
        "http://evil.example/http://example.com/": HOST,
        "http://127.0.0.2:8820/": None,
        "http://127.0.0.2/": HOST,
        "http://127.0.0.3:8820/": HOST,
    }.items(),
)
def test_host_scope(url, reason):
    """By default a URL belongs if its host and port are a seed's, with http or https."""
    scope = Scope.of(["http://EXAMPLE.com/start", "http://127.0.0.2:8820"])
    assert scope.reason(url) == reason


@pytest.mark.parametrize(
    ("url", "reason"),
    {
        "https://example.co.uk/": None,
        "http://a.b.example.co.uk:8080/": None,
        "http://other.co.uk/": DOMAIN,
        "http://notexample.co.uk/": DOMAIN,
        "http://me.github.io/": None,
        "http://a.me.github.io/": None,
        "http://you.github.io/": DOMAIN,
        "http://127.0.0.2/": None,
        "http://127.0.0.3:8820/": DOMAIN,
        "http://0.0.2/": DOMAIN,
        "http://[::1]:81/": None,
        "http://[::2]/": DOMAIN,
        "http://localhost:1/": None,
        "http://a.localhost/": DOMAIN,
    }.items(),
)
def test_domain_scope(url, reason):
    """In domain scope a URL belongs if its registrable domain is a seed's, whatever the port."""
    seeds = ["http://www.example.co.uk/", "http://me.github.io/", "http://127.0.0.2:8820/", "http://[::1]/"]
    scope = Scope.of([*seeds, "http://localhost:8000/"], "domain")
    assert scope.reason(normalize(url)) == reason


@pytest.mark.parametrize(
    ("key", "domain"),
    {
        "www.example.com:8080": "example.com",
        "books.example": "books.example",
        "a.b.c.kobe.jp": "b.c.kobe.jp",
        "www.city.kobe.jp": "city.kobe.jp",
        "www.xn--85x722f.xn--55qx5d.cn": "xn--85x722f.xn--55qx5d.cn",
        "bucket.s3.amazonaws.com": "bucket.s3.amazonaws.com",
        "co.uk": "co.uk",
        "a..b.example": "a..b.example",
        "localhost:80": "localhost",
        "127.0.0.1:80": "127.0.0.1",
        "[::1]:80": "[::1]",
        "[::1]": "[::1]",
    }.items(),
)
def test_registrable_domain(key, domain):
    """The registrable domain goes by the public suffix list; a host that has none stands for itself."""
    assert registrable_domain(key) == domain


def test_any_scope():
    """In scope "any" every host belongs, unless a pattern says otherwise."""
    scope = Scope.of(["http://example.com/"], "any", deny=["*/login*"])
    assert scope.reason("http://other.example/") is None
    assert scope.reason("http://other.example/login?next=/") == "scope: denied by */login*"


def test_allow_and_deny():
    """With allow patterns a URL must match one; a matching deny pattern always wins."""
    scope = Scope.of(["http://h/"], allow=["/a/*", "*.pdf"], deny=["*/private/*"])
    assert scope.reason("http://h/a/b") is None
    assert scope.reason("http://h/x.pdf") is None
    assert scope.reason("http://h/x") == "scope: not allowed"
    assert scope.reason("http://h/a/private/x.pdf") == "scope: denied by */private/*"
    assert scope.reason("http://i/a/b") == HOST


def test_scope_without_seeds():
    """Without seeds no host belongs, except in scope "any"."""
    assert Scope.of([]).reason("http://h/") == HOST
    assert Scope.of([], "any").reason("http://h/") is None


@pytest.mark.parametrize("seed", ["example.com", "ftp://example.com/", "http://", "/a", ""])
@pytest.mark.parametrize("mode", ["host", "domain", "any"])
def test_bad_seed(seed, mode):
    """A seed that is not an http(s) URL is refused by name."""
    with pytest.raises(ConfigError, match=r"seed .* is not an http"):
        Scope.of([seed], mode)


def test_bad_mode():
    """An unknown mode is refused with the list of those that exist."""
    with pytest.raises(ConfigError, match="unknown scope 'site': choose host, domain or any"):
        Scope.of(["http://h/"], "site")


MATCHES = [
    ("/catalogue/*", "http://h/catalogue/a/b?c"),
    ("/catalogue/*", "http://h/catalogue/"),
    ("/", "http://h/"),
    ("/a?b=*", "http://h/a?b=c"),
    ("/*/b/*.html", "http://h/x/y/b/z.html"),
    ("/~me/*", "http://h/~me/x"),
    ("/%7eme/%c3%a9/*", "http://h/~me/%C3%A9/x"),
    ("/straße/a b", "http://h/stra%C3%9Fe/a%20b"),
    ("https://h/*", "https://h/x"),
    ("http*://h/*", "https://h/x"),
    ("http*", "http://h/"),
    ("*", "http://h/"),
    ("*/private/*", "http://h/a/private/b"),
    ("*.pdf", "http://h/a.pdf"),
    ("*.example.com", "http://a.example.com:81/x"),
    ("example.com", "http://example.com:81/x"),
    ("example.com:81", "http://example.com:81/x"),
    ("[::1]", "http://[::1]:81/x"),
    ("**a**", "http://h/a"),
]
MISSES = [
    ("/catalogue/*", "http://h/catalogue"),
    ("/catalogue/*", "http://h/x/catalogue/y"),
    ("/Catalogue/*", "http://h/catalogue/y"),
    ("/", "http://h/?a"),
    ("/a?b", "http://h/axb"),
    ("/a.b", "http://h/axb"),
    ("/aa*aa", "http://h/aaa"),
    ("/h/*", "http://h/h"),
    ("https://h/*", "http://h/x"),
    ("*.example.com", "http://example.com/"),
    ("example.com", "http://www.example.com/"),
    ("example.com:80", "http://example.com/"),
]


@pytest.mark.parametrize(("pattern", "url"), MATCHES)
def test_glob_matches(pattern, url):
    """A pattern is matched with path and query, the whole URL or the host, as it starts."""
    assert compile_glob(pattern).matches(url)


@pytest.mark.parametrize(("pattern", "url"), MISSES)
def test_glob_misses(pattern, url):
    """Only `*` stands for other characters, case counts, and the whole must match."""
    assert not compile_glob(pattern).matches(url)


@pytest.mark.parametrize("pattern", ["", "catalogue/*", "example.com/*", "ftp://h/*", "/a#b", "*#*"])
def test_bad_pattern(pattern):
    """A pattern that can match nothing is refused by name."""
    with pytest.raises(ConfigError, match=r"pattern '.*' can match no URL: "):
        compile_glob(pattern)


@pytest.mark.timeout(5)
def test_globs_do_not_blow_up():
    """A pattern with many `*` takes linear time on a URL that nearly matches."""
    assert not compile_glob("*a" * 200 + "b").matches("http://h/" + "a" * 1_000_000)


@given(st.text())
def test_any_pattern_compiles_or_is_refused(pattern):
    """Whatever the user writes is a pattern or a ConfigError; what he writes is what a reason shows."""
    try:
        glob = compile_glob(pattern)
    except ConfigError:
        return
    assert glob.pattern == pattern
    assert glob.matches("http://example.com/a?b") in (True, False)


def test_the_public_suffix_list_is_read_only_for_domains(monkeypatch):
    """A crawl of hosts does not pay for the public suffix list."""
    monkeypatch.setitem(sys.modules, "publicsuffixlist", None)
    assert Scope.of(["http://h/"]).reason("http://h/") is None


@pytest.mark.parametrize(
    ("url", "belongs", "elsewhere"),
    [
        ("http://a.example/page", True, False),
        ("http://b.example/page", False, True),
        ("http://denied.example/", False, False),
        ("http://a.example/private", False, False),
    ],
)
def test_external_links_are_followed_on_request(url, belongs, elsewhere):
    """Those to other hosts, unless a pattern denies them; what does not belong here stays out."""
    deny = ["denied.example", "/private"]
    scope = Scope.of(["http://a.example/"], deny=deny)
    assert scope.follows(url) == belongs
    scope = Scope.of(["http://a.example/"], deny=deny, external=True)
    assert (scope.is_elsewhere(url), scope.follows(url)) == (elsewhere, belongs or elsewhere)


def test_without_seeds_nothing_is_elsewhere():
    """Nor if every host belongs."""
    assert not Scope.of([], external=True).is_elsewhere("http://a.example/")
    assert not Scope.of(["http://a.example/"], "any", external=True).is_elsewhere("http://b.example/")
