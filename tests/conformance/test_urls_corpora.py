"""URLs against the data of web-platform-tests and the recorded answers of w3lib."""

import json
import re
from pathlib import Path
from urllib.parse import urlunparse

from shoal.urls import Base, Spelling, normalize

CORPORA = Path(__file__).parent.parent / "corpora"

EMPTY_QUERY = "no server tells an empty query from none, so they are one page"
ESCAPES = "RFC 3986 6.2.2: escapes of unreserved characters and the case of their digits mean nothing"

SUBSET = {
    33: ("http://example.org/foo/bar", EMPTY_QUERY),
    100: ("http://example.org/a%2Fc", ESCAPES),
    101: ("http://example.org/a/%2F/c", ESCAPES),
    118: ("http://example.com/foo/.%2", ESCAPES),
    119: ("http://example.com/..bar", ESCAPES),
    129: ("http://example.com/fooAz", ESCAPES),
    131: ("http://example.com/foo%00Q", ESCAPES),
    133: ("http://example.com/%3A%3A%3C%3C", ESCAPES),
    146: ("http://www/foo.html", ESCAPES),
    416: ("http://example.org/test", EMPTY_QUERY),
    462: ("https://x/", EMPTY_QUERY),
    466: ("https://x/", EMPTY_QUERY),
}

URLTESTDATA = {
    37: ("http://example.org/foo/bar", EMPTY_QUERY),
    109: ("http://example.org/a%2Fc", ESCAPES),
    110: ("http://example.org/a/%2F/c", ESCAPES),
    154: ("http://example.com/foo/.%2", ESCAPES),
    155: ("http://example.com/..bar", ESCAPES),
    165: ("http://example.com/fooAz", ESCAPES),
    167: ("http://example.com/foo%00Q", ESCAPES),
    169: ("http://example.com/%3A%3A%3C%3C", ESCAPES),
    184: ("http://www/foo.html", ESCAPES),
    797: ("http://example.org/test", EMPTY_QUERY),
    899: ("https://x/", EMPTY_QUERY),
    903: ("https://x/", EMPTY_QUERY),
}

UNASSIGNED = "the parser lets an unassigned character pass; no such host exists, so a failed look-up drops it"
IDNA = {
    41: ("https://x/", "an empty host: the next part of the URL moves up, as the URL standard says"),
    2494: ("https://xn--t92s.xn--znb.xn--5-y88f/x", UNASSIGNED),
    2495: ("https://xn--t92s.xn--znb.xn--5-y88f/x", UNASSIGNED),
}

CODEC = "control and private-use characters are as Python's codecs have them; no page links with such"
PERCENT_ENCODING = {
    ("iso-2022-jp", "\x0eA"): ("%0EA", CODEC),
    ("gb18030", "\ue5e5"): ("%A3%A0", CODEC),
}

NOT_SORTED_BY_VALUE = "a=2&a=1 and a=1&a=2 may be two pages"
QUERY_AS_WRITTEN = "blank parameters, '+' or %20, '=' or none, ';' may matter to the server"
RESERVED = "RFC 3986 2.2: an escaped reserved character may differ from a bare one"
NO_FRAGMENT = "a fragment is never part of what is fetched"
NOT_HTTP = "not an http(s) URL"
BROWSERS = (
    "browsers write what the page's encoding lacks as a character reference, and so will the site's visitors"
)
LEAVES_ASCII = "browsers escape only what the query may not hold"
IDN = "a host goes to DNS in its ASCII form"

RESUME = "http://www.example.com/r%C3%A9sum%C3%A9"
BAR = "http://www.example.com/path/to/%23/foo/bar"
W3LIB = {
    5: ("http://www.example.com/do?&a=1", QUERY_AS_WRITTEN),
    6: ("http://www.example.com/do?c=1;b=2;a=3", QUERY_AS_WRITTEN),
    9: ("http://www.example.com/do?a=50&b=5&b=2&c=3", NOT_SORTED_BY_VALUE),
    10: ("http://www.example.com/do?a=2&b=", QUERY_AS_WRITTEN),
    12: ("http://www.example.com/do?a=2&b=&c", QUERY_AS_WRITTEN),
    13: ("http://www.example.com/do?a=2&b=&c", QUERY_AS_WRITTEN),
    14: ("http://www.example.com/do?1750,4", QUERY_AS_WRITTEN),
    15: ("http://www.example.com/do?a=1&q=a%20space", QUERY_AS_WRITTEN),
    17: ("http://www.example.com/do?a=1&q=a%20space", QUERY_AS_WRITTEN),
    22: (f"{RESUME}?currency=%26%238364%3B", BROWSERS),
    23: (
        f"{RESUME}?country=%26%231056%3B%26%231086%3B%26%231089%3B%26%231089%3B%26%231080%3B%26%231103%3B",
        BROWSERS,
    ),
    30: ("https://example.com/a%23b%2Cc", RESERVED),
    40: ("http://www.example.com/do?a=1&price(%C2%A3)=500", RESERVED),
    43: ("http://www.example.com/do?a=1", "no fragment, and no user: neither is part of what is fetched"),
    45: ("http://[::1]/do?a=1", NO_FRAGMENT),
    46: (None, NOT_HTTP),
    47: (None, NOT_HTTP),
    48: (None, NOT_HTTP),
    49: (None, NOT_HTTP),
    53: (None, NOT_HTTP),
    64: (None, NOT_HTTP),
    65: (None, NOT_HTTP),
    81: ("http://foo.com/%0A%3BpE%7C", "browsers leave both %7C and | as they are"),
    100: ("http://xn--p8j9a0d9c9a.xn--q9jyb4c/?maxResults=5&query=%1B$B%5%1B(B", LEAVES_ASCII),
    103: ("http://.xn--xampl-9raf.com/r%C3%A9sum%C3%A9?q=r%C3%A9sum%C3%A9", IDN),
    104: (
        f"http://www.xn--{11 * 'xampl'}-91efafafafafafafafafafaf.com/r%C3%A9sum%C3%A9?q=r%C3%A9sum%C3%A9",
        IDN,
    ),
    107: (BAR, NO_FRAGMENT),
    110: (
        f"{BAR}?url=http%3A%2F%2Fwww.example.com%2F%2Fpath%2Fto%2F%23%2Fbar%2Ffoo",
        NO_FRAGMENT,
    ),
}


def test_crawler_subset_of_the_url_standard():
    """The crawler's 480 cases come out as the URL standard says without user, but for the listed ones."""
    cases = _load("url-crawler-subset.json")["cases"]
    answers = [(normalize(case["href"], case["base"]), _anonymous(case["expect"])) for case in cases]
    assert len(cases) == 480
    assert _differences(enumerate(answers)) == _ours(SUBSET)


def test_url_standard():
    """All 891 cases of the URL standard: http(s) as it says without user and fragment, None for the rest."""
    cases = _numbered(_load("wpt-urltestdata.json"))
    answers = {n: (normalize(case["input"], case["base"]), _http_href(case)) for n, case in cases.items()}
    assert len(cases) == 891
    assert _differences(answers.items()) == _ours(URLTESTDATA)


def test_hosts_outside_ascii():
    """Hosts become ASCII, or make the URL invalid, as UTS 46 says."""
    assert _host_differences(_load("wpt-toascii.json")) == {}
    assert _host_differences(_load("wpt-IdnaTestV2.json")) == _ours(IDNA)


def test_queries_in_the_encoding_of_the_page():
    """The query of a link is escaped from the page's encoding, as browsers do."""
    answers = {
        (charset, case["input"]): (Base("https://h/", charset=charset).join("?" + case["input"]), expect)
        for case in _numbered(_load("wpt-percent-encoding.json")).values()
        for charset, expect in case["output"].items()
    }
    found = {key: (got and got.removeprefix("https://h/?"), expect) for key, (got, expect) in answers.items()}
    assert len(answers) == 16
    assert _differences(found.items()) == _ours(PERCENT_ENCODING)


def test_w3lib():
    """With the query sorted and no user, w3lib's canonical URLs come out, but for the listed ones."""
    cases = _load("w3lib-canonicalize.json")["cases"]
    answers = [(_w3lib_spelling(case), _anonymous(case["expect"])) for case in cases]
    assert len(cases) == 118
    assert _differences(enumerate(answers)) == _ours(W3LIB)


def _load(name):
    return json.loads((CORPORA / name).read_text())


def _numbered(entries):
    """The cases by their place in a file that also holds remarks."""
    return {n: entry for n, entry in enumerate(entries) if isinstance(entry, dict)}


def _differences(answers):
    return {case: got for case, (got, expect) in answers if got != expect}


def _ours(listed):
    return {case: answer for case, (answer, _reason) in listed.items()}


def _http_href(case):
    if case.get("failure") or case["protocol"] not in ("http:", "https:"):
        return None
    return _anonymous(case["href"].partition("#")[0])


def _anonymous(url):
    """The URL without user and password, which are dropped from what pages say."""
    return url and re.sub(r"^(https?://)[^/]*@", r"\1", url)


def _host_differences(entries):
    return _differences(
        (n, (normalize(f"https://{case['input']}/x"), case["output"] and f"https://{case['output']}/x"))
        for n, case in _numbered(entries).items()
    )


def _w3lib_spelling(case):
    url, charset = case["input"], case["kwargs"].get("encoding", "utf-8")
    if isinstance(url, dict):
        url = url["latin1_bytes"].encode("latin-1").decode()
    elif isinstance(url, list):
        url = urlunparse(url)
    spelling = Spelling(sort_query=True)
    return normalize(url, None, spelling) if charset == "utf-8" else Base(url, spelling, charset).join(url)
