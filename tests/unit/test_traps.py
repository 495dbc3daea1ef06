"""Which URLs are cut, and which shape they have."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.model import Link
from shoal.traps import (
    CALENDAR,
    QUERIES,
    REPEATS,
    SHAPE,
    TOO_LONG,
    Rules,
    calendar_year,
    repeats,
    shape,
)
from shoal.urls import Spelling, normalize

YEAR = 2026


def _cut(path: str, rules: Rules | None = None) -> str:
    return (rules or Rules()).cut(f"http://a.test{path}", YEAR)


@pytest.mark.parametrize(
    "path",
    [
        "/a/b/a/b/a/b",
        "/a/b/a/b/a/b/",
        "/x/about/about/about",
        "/a/x/a/y/a/z/a",
        "/1/1/1/1/1/1/1",
        "/s?a=1&b=2&a=1&a=1&a=1",
    ],
)
def test_what_repeats_itself_is_cut(path: str) -> None:
    """The same segments three times in a row, or one of them a fourth time; a parameter a fourth time."""
    assert _cut(path) == REPEATS


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/a/b/a/b/a",
        "/scrapy/scrapy/tree/master/scrapy",
        "/2022/02/02/02/title",
        "/tiles/0/0/0.png",
        "/tiles/1/1/1/1",
        "//a//b//c//d",
        "/s?a=1&a=2&a=3&a=4&a=5",
        "/s?f=1&f=1&f=1",
    ],
)
def test_what_a_real_site_may_have_is_not(path: str) -> None:
    """Names come twice or thrice in paths, and numbers more often; a parameter has several values."""
    assert _cut(path) == ""


def test_a_url_that_is_absurdly_long_is_cut() -> None:
    """From 2,049 characters on, if nothing else is said."""
    base = "http://a.test/"
    assert Rules().cut(base + "x" * (2048 - len(base)), YEAR) == ""
    assert Rules().cut(base + "x" * (2049 - len(base)), YEAR) == TOO_LONG
    assert Rules(max_url_length=None).cut(base + "x" * 5000, YEAR) == ""


@pytest.mark.parametrize(
    ("path", "year"),
    [
        ("/calendar/2045/7", 2045),
        ("/calendar/month/2045/07/", 2045),
        ("/en/agenda/2045/12/31", 2045),
        ("/events/2045-07", 2045),
        ("/events/2045-07-03?view=list", 2045),
        ("/events/2045/07/03", 2045),
        ("/index.php?month=2045-07", 2045),
        ("/cal?year=2045&month=7", 2045),
        ("/Calendar?Date=2045-07-03", 2045),
        ("/thread/2045/7", None),
        ("/events/2512-10-things-to-do", None),
        ("/events/2512/10", None),
        ("/update/2512/10", None),
        ("/birthday/2512/10", None),
        ("/2045/07/03/news", None),
        ("/product/calendar-2045", None),
        ("/calendar/20450", None),
    ],
)
def test_a_page_of_a_calendar_is_known_by_a_word_and_a_date(path: str, year: int | None) -> None:
    """Numbers that might be a year are not enough."""
    assert calendar_year(f"http://a.test{path}") == year


def test_calendars_are_cut_that_are_too_far_away() -> None:
    """Later than five years from now; earlier only if it is said how much."""
    assert _cut("/calendar/2031/7") == ""
    assert _cut("/calendar/2032/7") == CALENDAR
    assert _cut("/calendar/1850/7") == ""
    assert _cut("/calendar/2024/7", Rules(years_back=1)) == CALENDAR
    assert _cut("/calendar/2032/7", Rules(years_ahead=None)) == ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/17/x-9?p=1&q", "/a/#/*?p&q"),
        ("/product/100", "/product/#"),
        ("/product/red-shirt-3.html", "/product/*"),
        ("/about/team", None),
        ("/search?q=x", "/search?q"),
        ("/", None),
    ],
)
def test_urls_of_one_kind_have_one_shape(path: str, expected: str | None) -> None:
    """What varies is left out; a URL in which nothing does has none."""
    assert shape(f"http://a.test{path}") == expected


def test_quotas_are_asked_for_only_where_there_is_a_rule() -> None:
    """One for the shape, one for queries of the path; the same for all that are alike, not for others."""
    assert Rules().quotas("http://a.test/x/1?p=1") == ()
    rules = Rules(max_per_shape=10, max_per_path=20)
    first, other = (rules.quotas(f"http://a.test/x/{n}?p={n}") for n in (1, 2))
    assert [(quota.rule, quota.most) for quota in first] == [(SHAPE, 10), (QUERIES, 20)]
    assert first[0] == other[0]
    assert first[1] != other[1]
    assert rules.quotas("http://a.test/about") == ()


def test_links_are_marked_and_others_left_as_they_are() -> None:
    """So that the frontier knows what to do with each link."""
    plain, bad = Link("http://a.test/x"), Link("http://a.test/a/a/a", priority=3)
    assert Rules().marked(plain, YEAR) is plain
    assert Rules().marked(bad, YEAR) == replace(bad, trap=REPEATS)


@given(st.lists(st.sampled_from(["a", "b", "", "7", "x-1", "2045", "07", "date", "?", "&y=1"]), max_size=60))
def test_any_url_gets_an_answer(parts: list[str]) -> None:
    """Nothing is raised, whatever a URL is made of."""
    url = normalize("http://a.test/" + "/".join(parts)) or "http://a.test/"
    rules = Rules(max_per_shape=1, max_per_path=1, years_back=0)
    assert rules.cut(url, YEAR) in {"", REPEATS, CALENDAR, TOO_LONG}
    assert len(rules.quotas(url)) <= 2


@pytest.mark.parametrize("unit", ["day/", "a/b/", "date/2045/", "x1/", "month-2045-", "year=1&", "1/"])
def test_urls_made_to_be_slow_are_not(unit: str) -> None:
    """The longest URL that there may be is judged in a moment."""
    target = ("/" + unit * 8192)[:8000]
    began = time.process_time()
    repeats(f"http://a.test{target}", 3)
    calendar_year(f"http://a.test{target}")
    shape(f"http://a.test{target}")
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/a;jsessionid=0AB1.node1?x=1&PHPSESSID=33", "/a?x=1"),
        ("/a.do;JSESSIONID=0AB1", "/a.do"),
        ("/(S(lit3py55t21z5v55vlm25s55))/b/c", "/b/c"),
        ("/a?ASPSESSIONIDQQ=1&y=2", "/a?y=2"),
        ("/a?sid=0123456789abcdef0&s=hello", "/a?s=hello"),
        ("/a?sid=12", "/a?sid=12"),
        ("/a;v=1/b", "/a;v=1/b"),
        ("/a", "/a"),
    ],
)
def test_session_ids_are_dropped_if_that_is_wanted(url: str, expected: str) -> None:
    """In the query and in the path, in any case of letters; nothing else is."""
    spelling = Spelling(drop_sessions=True)
    assert normalize(f"http://a.test{url}", None, spelling) == f"http://a.test{expected}"
