"""A crawl that is run again with `--revisit`: what has changed is found, and little is transferred."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.shell import Shell
from tests.services import RedisServer
from tests.site import Site
from tests.waiting import until

FIELDS = ("--select", "title=h1", "--select", "id=article::attr(data-id)")
SOON = ("--revisit", "0.05s", "--retries", "0")


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """The URL of an empty Redis."""
    with RedisServer() as server:
        yield server.url


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest) -> list[object]:
    """Options that say where the URLs are and where the rows go: in the state file, or elsewhere."""
    if request.param == "sqlite":
        return []
    url = request.getfixturevalue("redis")
    return ["--frontier", f"{url}?prefix=revisit{time.monotonic_ns()}", "-o", "sqlite:rows.db"]


class Revisited:
    """One crawl, and looks at what it has."""

    def __init__(self, shoal: Shell, site: Site, place: list[object]) -> None:
        self.shoal, self.site, self.place = shoal, site, place

    def run(self) -> list[str]:
        """Crawl again; returns the URLs that were fetched."""
        before = len(self.site.log)
        self.shoal("crawl", self.site.url, *FIELDS, *SOON, *self.place)
        return [fetch.url for fetch in self.site.log[before:] if not fetch.url.endswith("robots.txt")]

    def rows(self) -> dict[str, dict[str, Any]]:
        """By URL; there is one for each page."""
        if self.place:
            import sqlite3

            with sqlite3.connect(self.shoal.folder / "rows.db") as db:
                db.row_factory = sqlite3.Row
                found = [dict(row) for row in db.execute("SELECT * FROM items")]
            db.close()
        else:
            found = self.shoal.rows()
        rows = {row["url"]: row for row in found}
        assert len(rows) == len(found)
        return rows

    def gone(self) -> set[str]:
        """The URLs of pages that are listed as gone."""
        return {
            letter["url"]
            for letter in self.shoal("dead", "--reason", "gone", "--json", *self.place[:2]).objects
        }


def changed_since(rows: dict[str, dict[str, Any]], before: dict[str, dict[str, Any]]) -> set[str]:
    """The URLs of rows that are new, or whose pages have changed."""
    return {
        url
        for url, row in rows.items()
        if url not in before or row["last_changed"] != before[url]["last_changed"]
    }


@pytest.mark.parametrize("pages", [60, pytest.param(2_000, marks=pytest.mark.faults)])
def test_what_changed_is_found_and_nothing_else_is_transferred(
    shoal: Shell, place: list[object], pages: int
) -> None:
    """Under 3 % of the bytes if nothing changed; what changed, is gone or new is found exactly."""
    with Site(pages, validators="etag", more_bytes=20_000) as site:
        crawl = Revisited(shoal, site, place)
        assert sorted(crawl.run()) == sorted(site.urls)
        first_bytes, rows = site.sent_bytes, crawl.rows()
        assert {url: row["title"] for url, row in rows.items()} == {
            url: row["title"] for url, row in site.rows().items()
        }
        assert all(row["first_seen"] == row["last_seen"] == row["last_changed"] for row in rows.values())

        time.sleep(1.0)  # rows tell seconds
        assert sorted(crawl.run()) == sorted(site.urls)
        assert site.sent_bytes - first_bytes < 0.03 * first_bytes
        seen = crawl.rows()
        assert changed_since(seen, rows) == set()
        assert all(row["last_seen"] > rows[url]["last_seen"] for url, row in seen.items())

        time.sleep(1.0)
        tenth = pages // 6 if pages < 100 else 10
        changed = range(1, 1 + 2 * tenth)
        site.editions.update(changed)
        site.gone = set(range(pages - tenth, pages))
        site.added = tenth
        crawl.run()
        found, gone = crawl.rows(), {site.page_url(number) for number in site.gone}
        new = {site.page_url(number) for number in range(pages, pages + tenth)}
        assert crawl.gone() == gone
        assert found.keys() == rows.keys() - gone | new
        assert changed_since(found, seen) == {site.page_url(number) for number in changed} | new
        assert all(found[site.page_url(number)]["title"].endswith("edition 1") for number in changed)
        assert all(row["first_seen"] == rows[url]["first_seen"] for url, row in found.items() if url in rows)


@pytest.mark.faults
def test_a_revisit_that_is_killed_loses_and_doubles_nothing(shoal: Shell, place: list[object]) -> None:
    """Killed again and again: in the end every row is the new one, but for those of pages that are gone."""
    with Site(600, validators="etag", latency_s=0.01) as site:
        crawl = Revisited(shoal, site, place)
        crawl.run()
        site.editions.update(range(1, 500))
        site.gone = set(range(500, 600))
        first = len(site.log)
        command = ("crawl", site.url, *FIELDS, "--revisit", "2s", *place)
        time.sleep(2.0)
        for wanted in (100, 200, 300):
            process = shoal.start(*command)
            until(lambda wanted=wanted: len(site.log) - first > wanted)
            process.kill()
            process.communicate()
        shoal(*command)
        rows = crawl.rows()
    assert {url: row["title"] for url, row in rows.items()} == {
        url: row["title"] for url, row in site.rows().items() if int(row["id"][1:]) < 500
    }
    assert len(crawl.gone()) == 100


def test_a_page_that_was_gone_comes_back(shoal: Shell, place: list[object]) -> None:
    """Also if it is what it was: its row is there again, first seen when it was seen first."""
    with Site(5, validators="etag") as site:
        crawl = Revisited(shoal, site, place)
        crawl.run()
        before = crawl.rows()[site.page_url(3)]
        site.gone = {3}
        crawl.run()
        assert site.page_url(3) not in crawl.rows()
        site.gone = set()
        crawl.run()
        after = crawl.rows()[site.page_url(3)]
        assert (after["title"], after["first_seen"]) == (before["title"], before["first_seen"])
        assert crawl.gone() == set()


@pytest.mark.parametrize("validators", ["last-modified", None])
def test_without_an_etag_too(shoal: Shell, place: list[object], validators: Any) -> None:
    """Last-Modified does the same; without either the content itself tells whether a page has changed."""
    with Site(10, validators=validators) as site:
        crawl = Revisited(shoal, site, place)
        crawl.run()
        before = crawl.rows()
        time.sleep(1.0)
        site.editions.update([4])
        crawl.run()
        assert changed_since(crawl.rows(), before) == {site.page_url(4)}


def test_a_page_that_fails_keeps_its_row_and_is_visited_again(shoal: Shell, place: list[object]) -> None:
    """It becomes a dead letter for now, and comes back with all others."""
    with Site(5) as site:
        crawl = Revisited(shoal, site, place)
        crawl.run()
        before = crawl.rows()
        site.failing = {2}
        crawl.run()
        assert crawl.rows().keys() == before.keys()
        assert [letter["reason"] for letter in shoal("dead", "--json", *place[:2]).objects] == ["HTTP 503"]
        site.failing = set()
        site.editions.update([2])
        crawl.run()
        assert crawl.rows()[site.page_url(2)]["title"] == "Page 2, edition 1"
        assert shoal("dead", "--json", *place[:2]).objects == []


def test_what_is_younger_waits(shoal: Shell, site: Site) -> None:
    """Run again before the time has come, the crawl is finished."""
    shoal("crawl", site.url, "--revisit", "1h")
    before = len(site.log)
    assert "already finished" in shoal("crawl", site.url, "--revisit", "1h").err
    assert len(site.log) == before


def test_a_worker_goes_on_visiting(shoal: Shell) -> None:
    """Without --drain it comes back to each page as long as it runs."""
    with Site(3) as site:
        shoal.write("s.py", f"import shoal\ncrawl = shoal.Crawl('s', seeds=[{site.url!r}], revisit_s=0.5)\n")
        worker = shoal.start("worker", "s.py")
        until(lambda: min(site.fetches()[url] for url in site.urls) >= 2)
        worker.terminate()
        worker.communicate()


def test_files_get_new_versions(shoal: Shell) -> None:
    """A changed page adds its rows again; one that has not changed adds nothing."""
    with Site(4, validators="etag") as site:
        for _ in range(2):
            shoal("crawl", site.url, *FIELDS, *SOON, "-o", "rows.csv")
        site.editions.update([1])
        shoal("crawl", site.url, *FIELDS, *SOON, "-o", "rows.csv")
    header, *lines = shoal.read("rows.csv").splitlines()
    assert header == "url,title,id,first_seen,last_seen,last_changed"
    assert len(lines) == 5
    assert lines[-1].startswith(f'{site.page_url(1)},"Page 1, edition 1",P1,20')


def test_why_tells_when_a_page_was_seen(shoal: Shell, place: list[object], site: Site) -> None:
    """On any back end."""
    shoal("crawl", site.url, *SOON, *place)
    told = shoal("why", site.url, *place[:2]).out
    for name in ("first seen", "last seen", "last changed"):
        assert f"\n{name} " in told


def test_a_crawl_is_revisited_from_its_start(shoal: Shell, site: Site) -> None:
    """What was crawled without --revisit cannot be taken up with it; the message says what can be done."""
    shoal("crawl", site.url)
    refused = shoal.refused("crawl", site.url, "--revisit", "1d")
    assert refused.startswith(f"the crawl '127.0.0.1:{site.port}' was started without --revisit")
    assert "--fresh and --revisit, or go on without" in refused
    shoal("crawl", site.url)
    shoal("crawl", site.url, "--fresh", "--revisit", "1d")


@pytest.mark.parametrize("output", ["", "rows.csv"])
def test_revisits_may_be_left_out_and_taken_up_again(shoal: Shell, place: list[object], output: str) -> None:
    """Meanwhile nothing is visited again, but what is new is kept so that it can be."""
    options = (*place[:2], "-o", output) if output else place
    run = (*FIELDS, "--retries", "0", *options)
    with Site(6, validators="etag") as site:
        shoal("crawl", site.url, *run, "--revisit", "0.05s", "--max-pages", "3")
        done = len(site.fetches())
        shoal("crawl", site.url, *run)
        assert site.fetches() == Counter(site.urls)
        assert done < 6
        asked = len(site.log)
        time.sleep(0.1)  # then all of them are due
        shoal("crawl", site.url, *run, "--revisit", "0.05s")
        again = [fetch for fetch in site.log[asked:] if not fetch.url.endswith("robots.txt")]
        assert sorted(fetch.url for fetch in again) == sorted(site.urls)
        assert all("if-none-match" in fetch.headers for fetch in again)
    if output:
        header, *lines = shoal.read(output).splitlines()
        assert header.endswith(",first_seen,last_seen,last_changed")
        assert len(lines) == 6
        assert all(line.count(",20") == 3 for line in lines)


@pytest.mark.parametrize("text", ["1", "d", "0d", "-1d", "1y", "1 d", "infd"])
def test_a_time_has_a_unit(shoal: Shell, text: str) -> None:
    """Anything else is refused."""
    refused = shoal.refused("crawl", "http://127.0.0.1/", f"--revisit={text}")
    assert f"'{text}' is not a time: write it like 30m, 6h or 1d" in refused


def test_rows_may_not_say_themselves_when_they_were_seen(shoal: Shell, site: Site) -> None:
    """The page becomes a dead letter that names the field."""
    shoal("crawl", site.url, "--select", "last_seen=h1", *SOON, code=1)
    [letter] = shoal("dead", "--json").objects
    assert "a field 'last_seen', which revisits fill in" in letter["error"]
