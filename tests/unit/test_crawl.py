"""What a user declares, and what is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from shoal.crawl import Crawl, check_url, follow, select, summarize
from shoal.errors import ConfigError
from shoal.model import Limits, Link, Response
from shoal.parse import Page, parse_field

SEED = "http://books.example/"


def _page(body: str, url: str = SEED) -> Page:
    headers = (("content-type", "text/html; charset=utf-8"),)
    return Page(Response(url, 200, headers, body.encode()), Link(url, depth=2))


# --- handlers -------------------------------------------------------------------------------


def test_the_first_pattern_registered_counts() -> None:
    """Of several that match; the handler without a pattern is for all others, wherever it stands."""
    crawl = Crawl("books", seeds=[SEED])

    @crawl.page()
    def other(page: Page) -> None: ...

    @crawl.page("/book/new/*")
    def new(page: Page) -> None: ...

    @crawl.page("/book/*")
    def book(page: Page) -> None: ...

    assert crawl.handler(SEED + "book/1") is book
    assert crawl.handler(SEED + "book/new/1") is new
    assert crawl.handler(SEED + "about") is other


def test_without_a_handler_links_are_followed() -> None:
    """And nothing else is done with the page."""
    crawl = Crawl("books", seeds=[SEED])
    page = _page("<title>T</title><a href=/a>a</a>")
    results = crawl.handler(SEED)(page)
    assert isinstance(results, Iterator)
    assert [result.url for result in results] == [SEED + "a"]
    assert [link.depth for link in follow(page)] == [3]


def test_registering_leaves_the_function_as_it_is() -> None:
    """So that it can be tested, and registered for several patterns."""
    crawl = Crawl("books", seeds=[SEED])

    def handler(page: Page) -> str:
        return page.url

    assert crawl.page("/a")(crawl.page("/b")(handler)) is handler
    assert crawl.handler(SEED + "a") is crawl.handler(SEED + "b") is handler


def test_a_pattern_that_can_match_nothing_is_refused() -> None:
    """When it is registered."""
    register = Crawl("books").page("a/b")
    with pytest.raises(ConfigError, match=r"pattern 'a/b' can match no URL"):
        register(follow)


def test_summarize_gives_a_row_about_the_page_and_its_links() -> None:
    """The fields in the order in which they become columns."""
    before = datetime.now(UTC).replace(microsecond=0)
    row, link = summarize(_page("<title>T</title><a href=/a>a</a>"))
    assert isinstance(row, dict)
    assert isinstance(link, Link)
    fetched_at = row.pop("fetched_at")
    assert row == {"url": SEED, "status": 200, "title": "T", "depth": 2, "text_length": 32}
    assert before <= datetime.fromisoformat(str(fetched_at)) <= datetime.now(UTC)


def test_select_gives_a_row_if_anything_is_found() -> None:
    """And the links in any case."""
    handler = select([parse_field("title=h1"), parse_field("id=article::attr(id)")])
    found = handler(_page("<h1>T</h1><a href=/a>a</a>"))
    nothing = handler(_page("<p>T</p><a href=/a>a</a>"))
    assert isinstance(found, Iterator)
    assert isinstance(nothing, Iterator)
    assert next(found) == {"url": SEED, "title": "T", "id": None}
    assert [link.url for link in found] == [SEED + "a"]
    assert [link.url for link in nothing] == [SEED + "a"]


def test_select_refuses_two_fields_of_one_name() -> None:
    """One would hide the other."""
    with pytest.raises(ConfigError, match="two fields are called 'title'"):
        select([parse_field("title=h1"), parse_field("title=h2")])


# --- settings -------------------------------------------------------------------------------

REFUSED = {
    "unknown": ({"max_page": 3}, "unknown setting 'max_page': did you mean 'max_pages'?"),
    "nothing like it": ({"zzz": 3}, "unknown setting 'zzz': there are seeds, scope, allow, "),
    "another type": ({"max_pages": "3"}, "bad setting max_pages='3': expected int, got str"),
    "half a page": ({"max_pages": 1.5}, "bad setting max_pages=1.5: expected int, got float"),
    "scope": ({"scope": "all"}, "bad setting scope='all': it must be one of host, domain, any"),
    "headers": ({"headers": {"X-A": 1}}, "bad setting headers: expected str, got int"),
    "header lines": ({"headers": ["X-A: 1"]}, "bad setting headers: expected list, got str"),
    "seeds": ({"seeds": SEED}, f"seeds must be a list, not the string '{SEED}'; write ['{SEED}']"),
    "patterns": ({"deny": "/a"}, "deny must be a list, not the string '/a'; write ['/a']"),
    "no list": ({"allow": 3}, "bad setting allow=3: expected list, got int"),
    "no pages": ({"max_pages": 0}, "max_pages must be at least 1, not 0"),
    "depth": ({"max_depth": -1}, "max_depth must be at least 0, not -1"),
    "concurrency": ({"concurrency": 0}, "concurrency must be at least 1, not 0"),
    "delay": ({"delay_s": -0.1}, "delay_s must be at least 0, not -0.1"),
    "not a number": ({"delay_s": math.nan}, "delay_s must be a number, and at least 0, not nan"),
    "no end": (
        {"total_timeout_s": math.inf},
        "total_timeout_s must be a number, and at least 0.001, not inf",
    ),
    "no time": ({"handler_timeout_s": 0}, "handler_timeout_s must be at least 0.001, not 0"),
    "a bad seed": ({"seeds": [SEED, "ftp://a.example/"]}, "not an http(s) URL: 'ftp://a.example/'"),
    "a bad pattern": ({"allow": ["a/b"]}, "pattern 'a/b' can match no URL"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_setting_that_cannot_work_is_refused(case: str) -> None:
    """With its name, and its value unless that may be a secret, when a crawl is declared or changed."""
    settings, message = REFUSED[case]
    with pytest.raises(ConfigError) as declared:
        Crawl("books", **settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as changed:
        Crawl("books", seeds=[SEED]).change(**settings)
    assert str(declared.value).startswith(message)
    assert str(changed.value) == str(declared.value)
    assert "\n" not in str(declared.value)


def test_a_crawl_needs_a_name() -> None:
    """An empty one will not do."""
    with pytest.raises(ConfigError, match="a crawl needs a name"):
        Crawl("")


def test_change_replaces_what_is_given() -> None:
    """None leaves a setting as it is, and a change that is refused changes nothing."""
    crawl = Crawl("books", seeds=[SEED], max_pages=3, headers={"X-A": "1"})
    crawl.change(max_pages=None, max_depth=2)
    with pytest.raises(ConfigError):
        crawl.change(max_pages=5, retries=-1)
    assert (crawl.settings.max_pages, crawl.settings.max_depth) == (3, 2)
    assert crawl.settings.headers == (("X-A", "1"),)
    assert crawl.settings.seeds == (SEED,)


def test_lists_may_be_any_iterable() -> None:
    """A generator, a set, a tuple."""
    crawl = Crawl("books", seeds=(f"{SEED}{n}" for n in range(2)), deny={"/a"}, drop_params=("x",))
    assert crawl.seed_urls() == [SEED + "0", SEED + "1"]
    assert crawl.settings.deny == ("/a",)


def test_seeds_are_spelled_as_the_crawl_spells_urls() -> None:
    """Normalized, with the query sorted and parameters dropped if that is set."""
    crawl = Crawl("books", seeds=["HTTP://Books.example:80/./?b=1&utm_x=2&a=1#top"])
    assert crawl.seed_urls() == [SEED + "?b=1&utm_x=2&a=1"]
    crawl.change(sort_query=True, drop_params=["utm_*"])
    assert crawl.seeds() == [Link(SEED + "?a=1&b=1")]


def test_the_parts_get_what_they_need() -> None:
    """Scope, limits and retries follow from the settings."""
    crawl = Crawl(
        "books",
        seeds=[SEED],
        deny=["/x"],
        max_pages=3,
        max_pages_per_host=2,
        max_depth=4,
        delay_s=0.5,
        per_host=1,
    )
    crawl.change(retries=0)
    assert crawl.limits() == Limits(max_pages=3, max_pages_per_host=2, max_depth=4, delay_s=0.5, per_host=1)
    assert crawl.retries().max_attempts == 1
    assert crawl.scope().reason(SEED + "x") == "scope: denied by /x"
    assert crawl.scope().reason(SEED + "y") is None


def test_what_decides_which_urls_are_the_same_is_the_identity_of_a_crawl() -> None:
    """Spelling counts, speed does not."""
    one, two, three = (Crawl("books", seeds=[SEED]) for _ in range(3))
    two.change(delay_s=1.0, max_pages=1)
    three.change(sort_query=True)
    assert one.identity() == two.identity()
    assert one.identity() != three.identity()


SUGGESTED = {
    "example.com": "did you mean http://example.com ?",
    "example.com/a?b=c": "did you mean http://example.com/a?b=c ?",
    "localhost:8000": "did you mean http://localhost:8000 ?",
    "127.0.0.1:8000/a": "did you mean http://127.0.0.1:8000/a ?",
    "books": "write it like http://example.com/",
    "": "write it like http://example.com/",
    "http://": "write it like http://example.com/",
    "http://a b/": "write it like http://example.com/",
    "mailto:a@b.example": "write it like http://example.com/",
    "file:///etc/passwd": "write it like http://example.com/",
}


@pytest.mark.parametrize("text", SUGGESTED)
def test_what_is_no_url_gets_a_suggestion(text: str) -> None:
    """The scheme, if that is all that is missing."""
    with pytest.raises(ConfigError) as refused:
        check_url(text)
    assert str(refused.value) == f"not an http(s) URL: '{text}'; {SUGGESTED[text]}"


def test_a_url_that_is_too_long_is_told_so() -> None:
    """With the limit, and only its beginning."""
    with pytest.raises(ConfigError) as refused:
        check_url(f"http://books.example/{'x' * 9_000}")
    assert str(refused.value) == f"a URL may have 8,192 characters: http://books.example/{'x' * 39}..."


def test_a_url_is_normalized_when_it_is_checked() -> None:
    """Whatever its spelling."""
    assert check_url("HTTP://Books.example") == SEED


def test_external_links_need_seeds_to_lead_away_from() -> None:
    """Else all pages would be those of strangers."""
    with pytest.raises(ConfigError, match="give some"):
        Crawl("a", external=True)
    assert Crawl("a", seeds=["http://a.example/"], external=True).scope().external
