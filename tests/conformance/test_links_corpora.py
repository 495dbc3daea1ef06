"""Links against what Chromium found on the same bytes, and against recorded answers of Scrapy."""

import json
import re
from pathlib import Path

from shoal.model import Response
from shoal.parse import Page
from shoal.urls import Spelling, normalize

CORPORA = Path(__file__).parent.parent / "corpora"

NO_USER = "a user and a password in a link are dropped"
TOO_LONG = "a URL longer than MAX_URL_LENGTH comes from a trap"
CHROMIUM = {
    "path/query-empty": (["http://site.test/dir/page.html"], "an empty query means none"),
    "host/userinfo-at": (["http://site.test/x"], NO_USER),
    "host/userinfo-trick": (["http://evil.test/x"], NO_USER),
    "page/userinfo": (["http://site.test/dir/x"], NO_USER),
    "path/long-9k": ([], TOO_LONG),
    "path/long-70k": ([], TOO_LONG),
}
RECIPES = {
    "tag/deep-nesting": "<!doctype html><title>t</title>" + "<div>" * 3000 + '<a href="deep">d</a>',
    "tag/huge-attr": f'<!doctype html><title>t</title><p title="{"b" * 1_500_000}"></p><a href="x">x</a>',
}

LINKED_ATTRIBUTES = "[href]::attr(href), [data-url]::attr(data-url)"
SELECTORS = {
    12: "#subwrapper",
    13: ".links",
    14: "p",
    15: "div",
    16: "#subwrapper a",
    17: "#subwrapper, #subwrapper + a",
    20: "div",
    24: "p",
    26: "a::attr(href), area::attr(href), img::attr(src)",
    30: "area",
    31: "a",
    32: "a::attr(href), img::attr(src)",
    33: "div::attr(data-url)",
    34: "div::attr(data-url)",
    36: "[href]",
    37: LINKED_ATTRIBUTES,
    38: "[href]::attr(href), [data-url]:not(div)::attr(data-url)",
    39: "[href]",
    40: "a",
    41: "a",
    45: "div",
    46: "div",
    47: "div",
    48: "div",
}
"""The arguments of Scrapy's extractor as a selector; where there is none, all links are asked for."""

EXAMPLE = "http://example.com/"
SAMPLES = [
    f"{EXAMPLE}sample1.html",
    f"{EXAMPLE}sample2.html",
    f"{EXAMPLE}sample3.html",
    "http://www.google.com/something",
    f"{EXAMPLE}innertag.html",
    f"{EXAMPLE}page%204.html",
]
ORDER = "attributes asked for one after the other come one after the other"
EXTENSIONS = "a page is known by its Content-Type, not by its name; scope can deny extensions"
NO_SUCH_SWITCH = "links that nobody wants need not be asked for"
SCRAPY = {
    21: (["http://example.org/page.html", "http://example.org/photo.jpg"], EXTENSIONS),
    22: (["http://example.org/page.html", "http://example.org/photo.jpg"], EXTENSIONS),
    23: (["http://example.org/about.html"], "scripts are not read; a handler can make links of its own"),
    26: ([*SAMPLES, f"{EXAMPLE}sample2.jpg"], ORDER),
    27: (SAMPLES, NO_SUCH_SWITCH),
    28: (SAMPLES[:2], NO_SUCH_SWITCH),
    37: ([EXAMPLE + name for name in ("a.html", "span.html", "div.html", "p.html")], ORDER),
    44: ([], "only http(s) is fetched"),
}


def test_links_of_chromium():
    """The links of a page are those that a browser without scripting finds, but for the listed cases."""
    cases = _load("links-chromium.json")["cases"]
    found = {case["id"]: [link.url for link in _chromium(case).links()] for case in cases}
    expected = {case["id"]: case["links"] for case in cases}
    assert len(cases) == 194
    assert {key: urls for key, urls in found.items() if urls != expected[key]} == _ours(CHROMIUM)


def test_encodings_of_chromium():
    """A page's encoding is the one that the browser used."""
    cases = _load("links-chromium.json")["cases"]
    assert {case["id"]: _chromium(case).encoding for case in cases} == {
        case["id"]: case["chrome"]["charset"].lower() for case in cases
    }


def test_links_marked_nofollow():
    """Only a link with the token nofollow, in any case, is left out when nofollow is obeyed."""
    (case,) = (case for case in _load("links-chromium.json")["cases"] if "rels" in case)
    kept = [url for url, rel in case["rels"] if "nofollow" not in (rel or "").lower().split()]
    assert len(kept) == 4
    assert [link.url for link in _chromium(case).links(obey_nofollow=True)] == kept


def test_links_of_scrapy():
    """The links are those of Scrapy's extractor, asked for in shoal's way, but for the listed cases."""
    cases = _load("scrapy-linkextract.json")["cases"]
    found = {n: _asked(n, case) for n, case in enumerate(cases)}
    expected = {n: _once(link["url"] for link in case["links"]) for n, case in enumerate(cases)}
    assert len(cases) == 54
    assert {n: urls for n, urls in found.items() if urls != expected[n]} == _ours(SCRAPY)


def _chromium(case):
    html = case.get("html") or RECIPES[case["id"]]
    return _page(case["url"], case["content_type"], html)


def _asked(number, case):
    (_, wishes), text = case["extractor_args"], case["body"]["latin1_bytes"]
    spelling = Spelling(sort_query=bool(wishes.get("canonicalize")))
    page = _page(case["url"], f"text/html; charset={case['encoding']}", text, spelling)
    selector = SELECTORS.get(number) or _with_text(page, wishes)
    return [link.url for link in page.links(selector) if _belongs(link.url, wishes)]


def _with_text(page, wishes):
    """Scrapy's restrict_text as a selector."""
    patterns = _listed(wishes.get("restrict_text"))
    if not patterns:
        return None
    wanted = [a for a in page.css("a") if any(re.search(pattern, a.text) for pattern in patterns)]
    return ", ".join(f'a[href="{a.attrib["href"]}"]' for a in wanted)


def _belongs(url, wishes):
    """Scrapy's filters by URL, which are the scope's business here."""
    allow, deny = _listed(wishes.get("allow")), _listed(wishes.get("deny"))
    domains, denied = _listed(wishes.get("allow_domains")), _listed(wishes.get("deny_domains"))
    return (
        (not allow or any(re.search(pattern, url) for pattern in allow))
        and not any(re.search(pattern, url) for pattern in deny)
        and (not domains or any(domain in url for domain in domains))
        and not any(domain in url for domain in denied)
    )


def _page(url, content_type, latin1, spelling=Spelling()):  # noqa: B008 - frozen
    headers = (("content-type", content_type),)
    response = Response(url=normalize(url), status=200, headers=headers, body=latin1.encode("latin-1"))
    return Page(response, spelling=spelling)


def _once(urls):
    return list(dict.fromkeys(url.partition("#")[0] for url in urls))


def _listed(value):
    return [value] if isinstance(value, str) else value or []


def _ours(listed):
    return {key: answer for key, (answer, _) in listed.items()}


def _load(name):
    return json.loads((CORPORA / name).read_bytes())
