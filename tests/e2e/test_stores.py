"""Where rows go: into several places at once, and into stores of one's own."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow.dataset
from tests.e2e.shell import Shell
from tests.servers import NOT_FOUND, ScriptedServer, page
from tests.site import Site

from shoal import words
from shoal.frontier import open_frontier
from shoal.model import Beat

SELECT = ("--select", "id=article::attr(data-id)", "--select", "title=h1")

OWN = """\
import json
from contextlib import contextmanager
import shoal
from shoal.store.base import Store

class Lines(Store):
    name = "lines"

    def __init__(self, crawl):
        self.crawl = crawl

    @contextmanager
    def open(self, *, committed, fresh):
        yield self.name, 0

    @contextmanager
    def write(self, outcomes, *, committed):
        with open("lines.txt", "a") as file:
            for outcome in outcomes:
                for row in outcome.rows():
                    print(self.crawl, row["n"], file=file)
        yield self.name, 0

    def close(self):
        pass

class Buggy(Lines):
    def __init__(self, crawl):
        super().__init__(crawl + 1)

made = Lines("made")
nothing = 7
"""
SCRAPER = """\
import shoal
from stores import {store}

crawl = shoal.Crawl("own", seeds=["{url}"], stores=[{store}])

@crawl.page()
def row(page):
    yield {{"n": page.url.rpartition("/")[2]}}
    yield from page.links()
"""
PAGES = {"/robots.txt": NOT_FOUND, "/": page(b"<a href='/1'>1</a>"), "/1": page(b"one")}


def test_rows_go_to_several_places_at_once(s3, shoal: Shell) -> None:
    """Each of them has every row once, whatever program reads it."""
    bucket = f"s3://{s3.BUCKET}/several"
    places = [
        "rows.jsonl",
        "rows.csv",
        "sqlite:rows.db",
        "parquet:rows",
        f"{bucket}/a.jsonl",
        f"{bucket}/a.parquet",
    ]
    with Site(pages=60, hosts=2) as site:
        options = [option for place in places for option in ("-o", place)]
        shoal.alone("crawl", site.url, "--scope", "any", *SELECT, *options)
        urls = sorted(site.urls)
    folder, objects = shoal.folder, s3.data / s3.BUCKET / "several"
    tables = [
        f"'{folder}/rows.jsonl'",
        f"'{folder}/rows/**/*.parquet'",
        f"'{objects}/a.jsonl/**/*.jsonl'",
        f"'{objects}/a.parquet/**/*.parquet'",
    ]
    for table in tables:
        found = duckdb.sql(f"SELECT url FROM {table} ORDER BY url")
        assert [url for (url,) in found.fetchall()] == urls
    with (folder / "rows.csv").open(newline="") as file:
        assert sorted(row["url"] for row in csv.DictReader(file)) == urls
    dataset = pyarrow.dataset.dataset(folder / "rows", partitioning="hive").to_table()
    assert sorted(dataset["url"].to_pylist()) == urls
    assert shoal("status", "--json").objects[0]["items"] == 60


def test_the_same_places_are_needed_to_resume(shoal: Shell) -> None:
    """Rows never miss in one of them because it was forgotten."""
    with ScriptedServer(PAGES) as server:
        shoal("crawl", server.url(), "-o", "a.jsonl", "-o", "parquet:rows")
        line = shoal.refused("crawl", server.url(), "-o", "a.jsonl")
        assert 'output "a.jsonl, parquet:rows", not "a.jsonl"' in line
        assert "archive" in shoal.refused(
            "crawl", server.url(), "-o", "a.jsonl", "-o", "parquet:rows", "--archive", "x"
        )


def test_a_place_given_twice_is_refused(shoal: Shell) -> None:
    """It would get each row twice."""
    for places in (("a.jsonl", "./a.jsonl"), ("parquet:rows", "parquet:./rows")):
        options = [option for place in places for option in ("-o", place)]
        line = shoal.refused("crawl", "http://127.0.0.1:9/", *options)
        assert line == "a place for the rows is given twice: give each --output once"


def test_several_processes_write_to_a_bucket(s3, shoal: Shell) -> None:
    """Each makes connections of its own; and what cannot work is said as by one process."""
    target = f"s3://{s3.BUCKET}/processes/a.jsonl"
    with Site(pages=60, hosts=4, latency_s=0.01) as site:
        command = ("crawl", site.url, "--scope", "any", *SELECT, "--processes", "3", "-q", "-o")
        line = shoal.refused(*command, "s3://nowhere/a.jsonl", wrapper=("env",))
        assert line == "cannot write to s3://nowhere/a.jsonl: there is no such bucket"
        shoal.alone(*command, target)
        urls = sorted(site.urls)
    found = duckdb.sql(f"SELECT url FROM '{s3.data}/{target[5:]}/**/*.jsonl' ORDER BY url").fetchall()
    assert [url for (url,) in found] == urls


def test_a_bucket_that_cannot_be_reached(s3, shoal: Shell) -> None:
    """One line says what is wrong, before anything is fetched."""
    with ScriptedServer(PAGES) as server:
        line = shoal.refused("crawl", server.url(), "-o", "s3://nowhere/rows.jsonl", wrapper=("env",))
        assert line == "cannot write to s3://nowhere/rows.jsonl: there is no such bucket"
        assert server.requests == []


def test_a_store_of_ones_own_on_the_command_line(shoal: Shell) -> None:
    """MODULE:CLASS is imported from the current folder, and made for the crawl."""
    (shoal.folder / "stores.py").write_text(OWN)
    with ScriptedServer(PAGES) as server:
        (shoal.folder / "scraper.py").write_text(
            f'import shoal\ncrawl = shoal.Crawl("x", seeds=["{server.url()}"])\n'
            "@crawl.page()\ndef row(page):\n    yield {'n': len(page.body)}\n"
        )
        ended = shoal("run", "scraper.py", "-o", "stores:Lines", "-o", "rows.jsonl")
    assert (shoal.folder / "lines.txt").read_text() == "x 18\n"
    assert json.loads((shoal.folder / "rows.jsonl").read_text()) == {"n": 18}
    assert "the rows are in stores:Lines, rows.jsonl" in ended.err


def test_a_store_of_ones_own_in_the_scraper(shoal: Shell) -> None:
    """A class or an object, next to what the command line names; several processes make their own."""
    (shoal.folder / "stores.py").write_text(OWN)
    for store, crawl in (("Lines", "own"), ("made", "made")):
        (shoal.folder / "lines.txt").unlink(missing_ok=True)
        with ScriptedServer(PAGES) as server:
            (shoal.folder / "scraper.py").write_text(SCRAPER.format(store=store, url=server.url()))
            shoal("run", "scraper.py", "--processes", "2", "--fresh")
        lines = (shoal.folder / "lines.txt").read_text().splitlines()
        assert sorted(lines) == [f"{crawl} ", f"{crawl} 1"]


def test_what_is_no_store_is_refused(shoal: Shell) -> None:
    """The message says what is wrong with it."""
    (shoal.folder / "stores.py").write_text(OWN)
    refusals = {
        "nowhere:Store": "cannot import the store nowhere:Store: No module named 'nowhere'",
        "stores:Missing": "cannot import the store stores:Missing: stores has no 'Missing'",
        "stores:nothing": "is no store: derive it from shoal.store.base.Store",
    }
    for target, message in refusals.items():
        assert message in shoal.refused("crawl", "http://127.0.0.1:9/", "-o", target)


def test_an_error_in_a_store_of_ones_own_keeps_its_traceback(shoal: Shell) -> None:
    """It is in its code and not on the command line, so one line would hide where."""
    (shoal.folder / "stores.py").write_text(OWN)
    ended = shoal("crawl", "http://127.0.0.1:9/", "-o", "stores:Buggy", code=1)
    assert "super().__init__(crawl + 1)" in ended.err
    assert ended.err.splitlines()[-1].startswith("TypeError: ")


def test_the_status_says_what_workers_wait_for(tmp_path: Path) -> None:
    """In the place of numbers that mean nothing meanwhile; what others wrote is shown as text."""
    trouble = "cannot write to s3://bucket/a.jsonl: \x1b[31mConnection refused"
    with open_frontier(f"sqlite:{tmp_path}/state.shoal", crawl="books") as frontier:
        frontier.beat(Beat("ann", 8, 0.0, 0.0, trouble=trouble), 30)
        told = words.status(frontier, as_json=False).splitlines()[-1]
    assert told.startswith("worker    ann: 0 leases, waits: cannot write to s3://bucket/a.jsonl: ")
    assert "\x1b" not in told


def test_nothing_is_loaded_for_stores_that_are_not_used() -> None:
    """The command line, and a crawl into a file, start without the libraries of the others."""
    code = (
        "import sys, shoal.cli, shoal.local; from shoal.store import open_store;"
        "open_store('a.jsonl', crawl='x');"
        "print(sorted({'pyarrow', 'obstore', 'warcio', 'psycopg'} & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
