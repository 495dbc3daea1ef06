"""robots.txt against RFC 9309 by section, and against the cases of Google, crawler-commons and protego."""

import json
from pathlib import Path

import pytest

from shoal.model import Failure, FailureKind, Response
from shoal.robots import MAX_BYTES, Rules, from_answer, parse
from shoal.urls import normalize, path_query

CORPORA = Path(__file__).parent.parent / "corpora"

ITSELF = "RFC 9309 2.2.2: /robots.txt itself is always allowed"
SPELLINGS = "RFC 9309 2.2.2: spellings that percent-encoding makes equal match; the source leaves that out"
DIGITS = "names with digits are common (MJ12bot): they are read whole, where Google reads MJ"
INDEX = "index.html standing for its directory is a habit of Google's"
SPACES = "a product token has no spaces: what is asked about is the agent Foo"
MISSPELT = "a misspelt key is an unknown line, which RFC 9309 2.2.4 has crawlers pass over"
UNKNOWN_LINE = "RFC 9309 2.2.1: a line that is no rule does not end the list of agents that a group is for"
WHOLE_TOKEN = "RFC 9309 2.2.1: the whole product token is compared; a part of it is another crawler"
MARKUP = "HTML is not robots.txt: <BR> is part of the path that it follows"
WORDS = "the product token is the first word, Mozilla; (compatible; NAME) would name another"
WILD_AGENT = "RFC 9309 2.2.3: * is special in paths, not within the name of an agent"
LITERAL_END = "RFC 9309 2.2.3: a $ that stands for itself is written %24"
ABSOLUTE = "RFC 9309 2.2.2: a path begins with a slash, and is compared from the start"

GOOGLE = {
    40: SPACES,
    **dict.fromkeys((63, 65, 66), SPELLINGS),
    78: INDEX,
    **dict.fromkeys((212, 218, 222, 363), ITSELF),
    **dict.fromkeys((219, 220, 221), DIGITS),
}
CRAWLER_COMMONS = {128: MARKUP, **dict.fromkeys((134, 135, 136), WORDS)}
PROTEGO = {
    **dict.fromkeys((5, 6, 7, 8, 9, 183, 274), MISSPELT),
    **dict.fromkeys((265, 266, 267), UNKNOWN_LINE),
    277: WILD_AGENT,
    305: INDEX,
    **dict.fromkeys((342, 343), LITERAL_END),
    345: ABSOLUTE,
    **dict.fromkeys((364, 370, 371, 373, 374, 378, 379), WHOLE_TOKEN),
}

DISALLOW_X = b"User-agent: *\nDisallow: /x\n"
ELSEWHERE = {
    "301-1..5 hops": "the caller follows redirects",
    "cached": "the caller keeps the rules",
    "expired": "the caller keeps the rules",
    "authority": "the caller chooses the URL",
    "gzip": "the fetch removes content codings",
    "page-before-robots": "the caller waits for the rules",
}


def _load(name: str, key: str) -> list[dict]:
    return json.loads((CORPORA / name).read_text("utf-8"))[key]


def _body(case: dict) -> bytes:
    return case["robots"].encode() if "robots" in case else case["robots_latin1_bytes"].encode("latin-1")


def _allows(case: dict) -> bool:
    url = normalize(case["url"].replace("ftp:", "http:"), "https://www.site.local/")
    assert url is not None
    return parse(_body(case), case["ua"]).allows(path_query(url))


def _differing(cases: list[dict]) -> set[int]:
    return {index for index, case in enumerate(cases) if _allows(case) != case["allowed"]}


def test_rules_are_matched_as_rfc_9309_says() -> None:
    """All cases of the RFC, section by section, are answered as it says."""
    cases = _load("robots-rfc9309.json", "match")
    assert len(cases) == 65
    assert _differing(cases) == set()


@pytest.mark.parametrize(
    ("name", "size", "listed"),
    [
        ("robots-google.json", 419, GOOGLE),
        ("robots-crawler-commons.json", 176, CRAWLER_COMMONS),
        ("robots-protego.json", 435, PROTEGO),
    ],
)
def test_answers_of_others_differ_only_where_a_reason_is_given(
    name: str, size: int, listed: dict[int, str]
) -> None:
    """Every case of another implementation is answered alike, except those listed above."""
    cases = _load(name, "cases")
    assert len(cases) == size
    assert _differing(cases) == set(listed)


def test_strict_cases_of_google_differ_only_in_names_with_digits() -> None:
    """Of Google's cases marked as strictly RFC 9309, only the reading of one agent's name differs."""
    strict = {index for index, case in enumerate(_load("robots-google.json", "cases")) if case["strict_rfc"]}
    assert len(strict) == 342
    assert {GOOGLE[index] for index in strict & set(GOOGLE)} == {DIGITS}


def test_crawl_delays_and_sitemaps_of_protego() -> None:
    """Crawl-delay and Sitemap lines are read as protego reads them."""
    cases = _load("robots-protego.json", "other")
    assert len(cases) == 25
    for case in cases:
        rules = parse(_body(case), case["ua"] or "anybot")
        found = list(rules.sitemaps) if case["kind"] == "sitemaps" else rules.crawl_delay_s
        assert found == case["expect"], case


def _response(status: int, content: bytes = b"") -> Response:
    return Response("https://www.site.local/robots.txt", status, (), content)


def _failure(kind: FailureKind) -> Failure:
    return Failure(kind, "details")


HTML = b"<!doctype html><title>Home</title><p>Disallow: /x</p>"
BIG = DISALLOW_X + b"#" * 99 + b"\n#\n" * 200_000 + b"Disallow: /late\n"

ALLOW: dict[str, tuple[Response, ...]] = {
    "6 hops": (_response(302),),
    "loop": (_response(301),),
    "redirect-to-html": (_response(200, HTML),),
    **{str(status): (_response(status, DISALLOW_X),) for status in (400, 401, 403, 404, 410, 451)},
    "text-plain-utf16": (_response(200, DISALLOW_X.decode().encode("utf-16")),),
}
DEFER: dict[str, tuple[Response | Failure, ...]] = {
    "429": (_response(429, DISALLOW_X),),
    **{str(status): (_response(status, DISALLOW_X),) for status in (500, 502, 503, 504)},
    "dns": (_failure("dns"), _failure("refused"), _failure("reset"), _failure("timeout")),
    "503-retry-after": (_response(503),),
    "slow": (_failure("timeout"),),
}
OBEY: dict[str, tuple[Response, ...]] = {
    "200": (_response(200, DISALLOW_X),),
    "big": (_response(200, BIG), _response(200, BIG[:MAX_BYTES])),
    # The corpus would ignore the rules of a 206; RFC 9309 2.3.1.1 asks to follow whatever can be parsed.
    "non-200-2xx": (_response(206, DISALLOW_X),),
}


def test_every_kind_of_answer_is_covered() -> None:
    """Each case of an answer for /robots.txt is tested here, or decided by the code around it."""
    cases = {case["id"] for case in _load("robots-rfc9309.json", "fetch")}
    assert len(cases) == 27
    assert cases == set(ALLOW) | set(DEFER) | set(OBEY) | set(ELSEWHERE)


@pytest.mark.parametrize("name", ALLOW)
def test_unavailable_files_allow_everything(name: str) -> None:
    """No file, or nothing in it that can be read, means no rules."""
    for answer in ALLOW[name]:
        rules = from_answer(answer, "foobot")
        assert isinstance(rules, Rules)
        assert rules.allows("/x")


@pytest.mark.parametrize("name", DEFER)
def test_unreachable_files_defer_everything(name: str) -> None:
    """As long as nobody knows the rules, there are none to go by: a Failure."""
    for answer in DEFER[name]:
        assert isinstance(from_answer(answer, "foobot"), Failure)


@pytest.mark.parametrize("name", OBEY)
def test_files_that_were_read_are_obeyed(name: str) -> None:
    """Rules that arrived count, up to the limit in size."""
    for answer in OBEY[name]:
        rules = from_answer(answer, "foobot")
        assert isinstance(rules, Rules)
        assert not rules.allows("/x")
        assert rules.allows("/late")


def test_an_empty_success_allows_everything() -> None:
    """A 204 has no rules."""
    rules = from_answer(_response(204), "foobot")
    assert isinstance(rules, Rules)
    assert rules.allows("/x")
