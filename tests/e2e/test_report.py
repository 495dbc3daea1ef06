"""`shoal report`: what it says of a crawl is what there is, and what strangers wrote stays text."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.broken_site import CROWD, HOSTILE, broken_site, truth
from tests.e2e.shell import Shell
from tests.servers import ScriptedServer, page
from tests.services import RedisServer
from tests.site import Site
from tests.waiting import until

from shoal.frontier import open_frontier
from shoal.model import Limits, Link, Outcome, Survey


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    """A Redis for these tests."""
    with RedisServer(appendonly=True) as server:
        yield server.url


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Options that say where the URLs and rows are: on either back end."""
    if request.param == "sqlite":
        return ("--state", "crawl.shoal")
    url = request.getfixturevalue("redis_url")
    return ("--frontier", f"{url}?prefix=p{time.monotonic_ns()}")


def _to_rows(place: tuple[str, ...]) -> tuple[str, ...]:
    return () if place[0] == "--state" else ("-o", "rows.jsonl")


def _report(shoal: Shell, *args: str) -> dict[str, Any]:
    [found] = shoal("report", "--json", *args).objects
    return dict(found)


class Document(HTMLParser):
    """The elements of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


# --- what it says ---------------------------------------------------------------------------


def test_it_says_exactly_what_is_broken(shoal: Shell, place: tuple[str, ...]) -> None:
    """Each broken link with all pages that link there, through redirects too; on both back ends."""
    with broken_site() as (site, other):
        shoal(
            *("crawl", site.url("/"), *place, *_to_rows(place), "--processes", 2),
            *("--report", "links.html", "--external", "--retries", 0),
        )
        found, expected = _report(shoal, *place), truth(site, other, external=True)
        told = {
            each["url"]: (each["reason"], each["linked_from"]["count"], each["through"])
            for each in found["broken"]
        }
        assert told == {
            url: (reason, len(pages), through) for url, (reason, pages, through) in expected.items()
        }
        for each in found["broken"]:
            pages = sorted(expected[each["url"]][1])
            assert each["linked_from"]["pages"] == pages[: len(each["linked_from"]["pages"])]
        assert len(found["broken"][0]["linked_from"]["pages"]) < CROWD
        assert "/not-looked-at" not in [request.target for request in other.requests]
        text = Document(shoal.read("links.html")).text
        assert f"{len(expected)} broken links" in text
        assert all(url in text for url in expected)


def test_it_says_what_redirects_is_slow_and_is_skipped(shoal: Shell, place: tuple[str, ...]) -> None:
    """Chains with their statuses and ends, the slowest page first, and rules."""
    with broken_site() as (site, _):
        shoal(*("crawl", site.url("/"), *place, *_to_rows(place), "--survey", "--retries", 0))
        found = _report(shoal, *place)
        chains = {
            tuple((hop["url"], hop["status"]) for hop in each["hops"]): (each["target"], each["end"])
            for each in found["redirects"]
        }
        url = site.url
        assert chains == {
            ((url("/old"), 301),): (url("/new"), "HTTP 200"),
            ((url("/hop1"), 302), (url("/hop2"), 307)): (url("/end"), "HTTP 404"),
            ((url("/hop2"), 307),): (url("/end"), "HTTP 404"),
            ((url("/loop1"), 302),): (url("/loop2"), "redirect loop"),
        }
        assert found["slowest"][0]["url"] == url("/slow")
        assert found["slowest"][0]["elapsed_s"] >= 0.5
        assert [(each["rule"], each["pages"]) for each in found["skipped"]] == [
            ("robots.txt", 1),
            ("trap: repeated segments", 1),
        ]
        statuses = dict(found["statuses"])
        assert statuses == {0: 1, 200: CROWD + 5, 301: 1, 302: 3, 307: 1, 404: 2, 410: 1, 500: 1}
        assert found["surveyed"] == sum(statuses.values()) == sum(found["latencies"])
        assert {reason: number for reason, number, _ in found["reasons"]} == {
            "HTTP 404": 2,
            "HTTP 410": 1,
            "HTTP 500": 1,
            "redirect loop": 1,
            "connection reset": 1,
        }
        [host] = found["hosts"]
        assert (host["done"], host["dead"]) == (found["stats"]["done"], 6)


def test_a_crawl_that_was_killed_knows_as_much(shoal: Shell, tmp_path: Path) -> None:
    """What it keeps for the report comes with the commits of the pages."""
    with Site(150, latency_s=0.02, extras=["/status/410"]) as site:
        command = ("crawl", site.url, "--survey", "--state", "crawl.shoal")
        process = shoal.start(*command)
        until(lambda: len(site.log) > 60)
        process.kill()
        process.communicate()
        shoal(*command)
        found = _report(shoal)
        assert found["surveyed"] == 151
        assert [(each["url"], each["linked_from"]["pages"]) for each in found["broken"]] == [
            (f"{site.url}status/410", [site.url])
        ]


def test_links_that_a_handler_does_not_follow_count_as_well(shoal: Shell) -> None:
    """What a page links to does not depend on what the scraper makes of it; nor does a failing handler."""
    shoal.write(
        "scraper.py",
        """\
        import shoal

        crawl = shoal.Crawl("site")

        @crawl.page("/a")
        def a(page):
            raise ValueError("oh")
        """,
    )
    with ScriptedServer(
        {"/": page(b'<a href="/a">a</a><a href="/gone">x</a>'), "/a": page(b'<a href="/gone">x</a>')}
    ) as server:
        path = shoal.folder / "scraper.py"
        path.write_text(path.read_text().replace('"site"', f'"site", seeds=["{server.url("/")}"]'))
        shoal("run", "scraper.py", "--survey", "--retries", 0)
        [broken] = _report(shoal)["broken"]
        assert broken["url"] == server.url("/gone")
        assert broken["linked_from"]["pages"] == [server.url("/"), server.url("/a")]


def test_without_surveys_it_says_what_is_known(shoal: Shell) -> None:
    """The first page that had the link, and that there is more to be had."""
    with broken_site() as (site, _):
        shoal("crawl", site.url("/"), "--retries", 0)
        told = shoal("report")
        assert "report.html: 6 broken links" in told.out
        found = _report(shoal)
        gone = next(each for each in found["broken"] if each["url"] == site.url("/gone"))
        assert (gone["linked_from"]["count"], gone["found_on"], found["surveyed"]) == (0, site.url("/"), 0)
        assert "it is not known to which they link" in Document(shoal.read("report.html")).text


def test_it_can_be_asked_for_at_any_time(shoal: Shell) -> None:
    """Before the end it says how much there is to go, and a finished crawl gives it without fetching."""
    with Site(30) as site:
        shoal("crawl", site.url, "--max-pages", 10, "--survey")
        shoal("report")
        assert "ended at its limit of pages" in Document(shoal.read("report.html")).text
        shoal("crawl", site.url)
        fetched = len(site.log)
        again = shoal("crawl", site.url, "--report", "again.html")
        assert len(site.log) == fetched
        assert "again.html: no broken links" in again.err


def test_broken_links_can_fail_a_build(shoal: Shell) -> None:
    """Exit code 1 if there are any, and they are listed where the log of a build shows them."""
    with Site(5, extras=["/status/410"]) as site:
        ended = shoal("crawl", site.url, "--fail-on-broken", code=1)
        assert f"HTTP 410: {site.url}status/410, linked from {site.url}" in ended.err
        shoal("report", "--fail-on-broken", code=1)
        shoal("report")
    with Site(5) as site:
        assert "no broken links" in shoal("crawl", site.url, "--fail-on-broken", "--state", "b.shoal").err


def test_what_cannot_be_written_is_said_before_anything_is_fetched(shoal: Shell) -> None:
    """One line, and no state file."""
    assert "there is no folder" in shoal.refused("crawl", "http://127.0.0.1:9/", "--report", "no/r.html")


MEASURED = """
import sys, tracemalloc
from shoal.frontier import open_frontier
from shoal.report.findings import gather
with open_frontier(sys.argv[1], crawl="site", create=False) as frontier:
    tracemalloc.start()
    found = gather(frontier, at=0.0)
    print(found.surveyed, found.stats.done, tracemalloc.get_traced_memory()[1])
"""


def test_its_memory_does_not_grow_with_the_pages(tmp_path: Path) -> None:
    """Ten times as many pages, which all link to one that is broken, take no more than a little more."""
    peaks = []
    for pages in (1_000, 10_000):
        with open_frontier(f"sqlite:{tmp_path / str(pages)}", crawl="site") as frontier:
            frontier.configure(Limits(per_host=1_000))
            frontier.add([Link(f"http://a.test/{number}") for number in range(pages)])
            while leases := frontier.lease(1_000, 60, worker="ann").leases:
                gone = min(leases, key=lambda lease: lease.link.url).fingerprint
                frontier.commit([_surveyed(lease, gone) for lease in leases])
        ended = subprocess.run(
            [sys.executable, "-c", MEASURED, f"sqlite:{tmp_path / str(pages)}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        surveyed, done, peak = map(int, ended.stdout.split())
        assert (surveyed, done) == (pages, pages)
        peaks.append(peak)
    assert peaks[1] < 2 * peaks[0]


def _surveyed(lease: Any, gone: int) -> Outcome:
    survey = Survey(lease.fingerprint, lease.link.url, 200, 0.1, 1_000, links=(gone, *range(50)))
    return Outcome(lease, "done", survey=survey)


# --- strangers' text ------------------------------------------------------------------------


@pytest.fixture
def hostile(shoal: Shell) -> Iterator[str]:
    """A crawl that is done, whose errors and reasons are full of markup and escape codes; its URL."""
    no_escapes = "<img src=x onerror=alert(1)>\"'&"
    routes = {
        "/": page(b"".join(b'<a href="%s">x</a>' % link for link in (b"/type", b"/to", b"/raises"))),
        "/type": page(b"x", "200 OK", f"Content-Type: x/{no_escapes}"),
        "/to": page(b"", "302 Found", f"Location: http://[{no_escapes}"),
        "/raises": page(f"<title>{HOSTILE.replace('<', '&lt;')}</title>".encode()),
    }
    with ScriptedServer(routes) as server:
        shoal.write(
            "scraper.py",
            f"""\
            import shoal

            crawl = shoal.Crawl("<b>x</b>", seeds=["{server.url("/")}"], retries=0, survey=True)

            @crawl.page("/raises")
            def raises(page):
                raise ValueError(page.title)
            """,
        )
        shoal("run", "scraper.py", "--state", "crawl.shoal", "--report", "report.html")
        yield server.url("/")


def test_markup_stays_text_in_the_report(shoal: Shell, hostile: str) -> None:
    """No element and no attribute comes from the crawl, and the page's own policy would allow none to act."""
    html = shoal.read("report.html")
    document = Document(html)
    tags = {tag for tag, _ in document.elements}
    assert not tags & {"script", "img", "iframe", "object", "link", "base", "form", "b"}
    names = {name for _, attributes in document.elements for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in ("style", "src", "srcset")}
    hrefs = [attributes["href"] or "" for attributes in document.named("a")]
    assert all(href.startswith(("http://", "https://", "#")) for href in hrefs)
    assert document.text.count("<img src=x onerror=alert(1)>") >= 2
    assert "<b>x</b>" in document.text
    policy = next(each["content"] for each in document.named("meta") if each.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert not _control_characters(html)


@pytest.mark.parametrize(
    "command",
    [
        ["status"],
        ["status", "--json"],
        ["dead", "--errors"],
        ["dead", "--json"],
        ["skipped"],
        ["skipped", "--summary"],
        ["why", "{url}raises"],
        ["why", "{url}raises", "--json"],
        ["why", "{url}type"],
        ["hosts"],
        ["report", "--json"],
        ["report"],
    ],
)
def test_escape_codes_stay_text_on_a_terminal(shoal: Shell, hostile: str, command: list[str]) -> None:
    """No command prints a control character that came from a site; JSON stays JSON."""
    ended = shoal(*(part.format(url=hostile) for part in command))
    assert ended.out
    assert not _control_characters(ended.out + ended.err)
    if "--json" in command:
        text = json.dumps(ended.objects)
        assert "raises" not in " ".join(command) or "\\u009b" in text


def test_a_handler_that_is_tried_out_prints_no_escape_codes(shoal: Shell, hostile: str) -> None:
    """Nor does its traceback."""
    ended = shoal("test", "scraper.py", f"{hostile}raises", code=1)
    assert "\\x1b[31m" in ended.err
    assert not _control_characters(ended.out + ended.err)


def _control_characters(text: str) -> list[str]:
    return [each for each in text if unicodedata.category(each) in ("Cc", "Cf") and each != "\n"]
