"""Sitemaps and feeds against documents written for this, and the cases of Scrapy and crawler-commons."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

from shoal.decode import Body
from shoal.robots import parse as parse_robots
from shoal.sitemap import MAX_BYTES, Sitemap, parse
from shoal.urls import MAX_URL_LENGTH, normalize

CORPORA = Path(__file__).parent.parent / "corpora"
SITE = "http://site.test/"

STATUS = "the caller asks only for the entries of answers with status 200"
ENTITY = "&eacute; is known from HTML, so this URL can be read too; the corpus asks only for the other"
TRUNCATED = "what came before the cut is listed; the corpus allows it"
LONG = f"servers accept 5,000 characters, and all URLs here may have {MAX_URL_LENGTH}; the corpus allows both"
RECIPE = "the corpus says how to make it, and asks for at least 50,000"
OWN = {
    "status-404": ({SITE + "a"}, STATUS),
    "status-500": ({SITE + "a"}, STATUS),
    "html-entity": ({SITE + "a?q=caf%C3%A9", SITE + "b"}, ENTITY),
    "gz-truncated": ({f"{SITE}p{number}" for number in range(190)}, TRUNCATED),
    "very-long-loc": ({SITE + "x" * 5000, SITE + "a"}, LONG),
    "50001-urls": (
        {f"{SITE}p{number}" for number in range(50_001)},
        RECIPE,
    ),
}
"""Where the answer differs from that of the corpus: the pages that are listed, and why."""

SCRAPY = {
    "test_xml_entity_expansion": ([], "without the entity it would be another URL, which nobody listed"),
}
SCRAPY_ROBOTS = {
    "TestSitemapSpider::test_get_sitemap_urls_from_robotstxt_skips_invalid_utf8_urls": (
        ["http://example.com/%EF%BF%BD.xml", "http://example.com/ok.xml"],
        "lines are handed on with U+FFFD for broken bytes; asking for what is not there does no harm",
    ),
}
UNCOUNTED = {
    "sitemaps/sitemap.txt": 2,
    "sitemaps/sitemap-with-bom.txt": 2,
    "sitemaps/extension/sitemap-mobile.xml": 3,
}
"""Cases of crawler-commons without an answer: the URLs in them, counted by eye."""


def test_documents_written_for_this() -> None:
    """Malformed, packed, misnamed, hostile: each document gives its URLs, but for the listed ones."""
    cases = _load("sitemaps.json", "own")
    answers = {case["id"]: parse(_body(case), case["url"]) for case in cases}
    children = {case["id"] for case in cases if list(answers[case["id"]].children) != case["children"]}
    assert len(answers) == 48
    assert children == set()
    assert _differences({case["id"]: (_pages(answers[case["id"]]), set(case["urls"])) for case in cases}) == {
        name: pages for name, (pages, _) in OWN.items()
    }


def test_a_bomb_stays_small() -> None:
    """1 GiB of zeros in a megabyte lists nothing, and takes no more memory than a sitemap may."""
    bomb = _bomb()
    tracemalloc.start()
    assert parse(bomb, SITE) == Sitemap()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * MAX_BYTES


def test_cases_of_scrapy() -> None:
    """URLs, order, dates and priorities are those that Scrapy reads, but for the listed case."""
    cases = _load("sitemaps.json", "scrapy")
    assert len(cases) == 17
    answers = {case["test"]: (_entries(case), _wanted(case)) for case in cases}
    assert _differences(answers) == {name: answer for name, (answer, _) in SCRAPY.items()}


def test_sitemap_lines_of_robots_txt() -> None:
    """The sitemaps that a robots.txt names are those that Scrapy finds, but for the listed case."""
    cases = _load("sitemaps.json", "scrapy_from_robots")
    assert len(cases) == 4
    answers = {case["test"]: (_named_by_robots(case), case["sitemaps"]) for case in cases}
    assert _differences(answers) == {name: answer for name, (answer, _) in SCRAPY_ROBOTS.items()}


def test_files_of_crawler_commons() -> None:
    """Each file lists as many pages and sitemaps as crawler-commons counts in it, and those that it names."""
    cases = _load("sitemaps-crawler-commons.json", "cases")
    assert len(cases) == 19
    for case in cases:
        listed = parse(_body(case), case["url"])
        pages, children = case.get("url_count", UNCOUNTED.get(case["id"], 0)), case.get("child_count", 0)
        assert (len(listed.links), len(listed.children)) == (pages, children), case["id"]
        assert set(case.get("must_include", ())) <= _pages(listed) | set(listed.children), case["id"]


def _load(name: str, key: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((CORPORA / name).read_bytes())[key]
    return cases


def _body(case: dict[str, Any]) -> bytes:
    """The body as a fetch hands it on: content codings removed."""
    if "body" not in case and "body_base64" not in case:
        return {"50001-urls": _many, "gzip-bomb": _bomb}[case["id"]]()
    body = base64.b64decode(case["body_base64"]) if "body_base64" in case else _bytes(case["body"])
    coded = Body(case.get("headers", {}).get("Content-Encoding", ""), limit_bytes=MAX_BYTES)
    coded.feed(body)
    return coded.finish()


def _bytes(value: str | dict[str, str]) -> bytes:
    return value.encode() if isinstance(value, str) else value["latin1_bytes"].encode("latin-1")


def _many() -> bytes:
    return b"<urlset>%s</urlset>" % b"".join(
        b"<url><loc>http://site.test/p%d</loc></url>" % number for number in range(50_001)
    )


@cache
def _bomb() -> bytes:
    """1 GiB of zeros as gzip, in 16 members because that is quicker to make."""
    return gzip.compress(bytes(1 << 26)) * 16


def _pages(listed: Sitemap) -> set[str]:
    return {entry.url for entry in listed.links}


def _entries(case: dict[str, Any]) -> list[tuple[Any, ...]]:
    """What is found in a case of Scrapy's, as `_wanted` gives it."""
    listed = parse(_bytes(case["body"]), "http://www.example.com/sitemap.xml")
    if case["type"] == "sitemapindex":
        return [(url,) for url in listed.children]
    return [(entry.url, entry.lastmod, entry.priority) for entry in listed.links]


def _wanted(case: dict[str, Any]) -> list[tuple[Any, ...]]:
    if case["type"] == "sitemapindex":
        return [(entry["loc"],) for entry in case["entries"]]
    return [(entry["loc"], entry.get("lastmod") or None, _number(entry)) for entry in case["entries"]]


def _number(entry: dict[str, str]) -> float | None:
    return float(entry["priority"]) if "priority" in entry else None


def _named_by_robots(case: dict[str, Any]) -> list[str | None]:
    rules = parse_robots(_bytes(case["robots"]), "shoal")
    return [normalize(value, case["base"]) for value in rules.sitemaps]


def _differences(answers: dict[str, tuple[Any, Any]]) -> dict[str, Any]:
    return {name: got for name, (got, wanted) in answers.items() if got != wanted}
