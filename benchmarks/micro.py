"""What the steps of a page cost, each beside something fixed that is done by others, in the same run.

    python -m benchmarks.micro           # publish the table
    python -m benchmarks.micro --gate    # fail if a step has become dearer than micro.json says
    python -m benchmarks.micro --keep    # write what was measured to micro.json

Steps and references take turns, many times and for a few milliseconds each; the best of each counts, so that
neither other programs nor the speed of the machine matter much.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin

import lxml.html
import redis

from benchmarks import pages
from benchmarks.frontier import Place, redis_place, sqlite_place
from benchmarks.report import machine, publish, table, versions
from shoal.model import Limits, Link, Outcome
from shoal.parse import Page
from shoal.urls import Base, fingerprint

KEPT = Path(__file__).with_name("micro.json")
WORSE = 1.4
"""A ratio may be so many times what is kept."""
REPEATS = 60
SOME = 32
"""Pages that are read."""
BATCH = 16
"""Pages that a worker leases or commits at once."""
LINKS, NEW = 50, 1
"""Of a page of the site, and those that are not known yet, over the whole site."""

Meter = Callable[[], float]
"""Does something for some milliseconds; returns the CPU seconds of doing it once."""


class Step(NamedTuple):
    """Something that shoal does for a page or a link."""

    run: Meter
    reference: str
    reference_run: Meter


class Figure(NamedTuple):
    """What was measured of a step."""

    step_us: float
    reference: str
    reference_us: float

    @property
    def ratio(self) -> float:
        return self.step_us / self.reference_us


def each(work: Callable[[Any], object], things: list[Any]) -> Meter:
    """Does it to each of them."""

    def run() -> float:
        before = time.process_time()
        for thing in things:
            work(thing)
        return (time.process_time() - before) / len(things)

    return run


# --- URLs and pages ---------------------------------------------------------------------------------


def pure_steps() -> dict[str, Step]:
    """Those without a frontier."""
    answers = pages.answers(SOME)
    hrefs = [href for answer in answers[:8] for href in Page(answer).css("a::attr(href)").getall()]
    base = Base(answers[0].url, pages.SPELLING)
    urls = [url for href in hrefs if (url := base.join(href))]
    by_lxml = ("lxml, and its hrefs", each(_read_with_lxml, [answer.body for answer in answers]))
    return {
        "normalize a link": Step(
            each(base.join, hrefs),
            "urllib's urljoin",
            each(lambda href: urljoin(answers[0].url, href), hrefs),
        ),
        "fingerprint a URL": Step(each(fingerprint, urls), "BLAKE2 of it", each(_blake, urls)),
        "parse a page, and its links": Step(each(pages.links, answers), *by_lxml),
        "parse a page, and its row": Step(each(pages.row, answers), *by_lxml),
    }


def _read_with_lxml(body: bytes) -> list[str]:
    return lxml.html.fromstring(body).xpath("//a/@href")


def _blake(url: str) -> int:
    return int.from_bytes(hashlib.blake2b(url.encode(), digest_size=8).digest(), "big", signed=True)


# --- frontiers --------------------------------------------------------------------------------------


class Queue:
    """A frontier with enough to do; leases and commits some pages at a time."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._frontier = place.open()
        self._frontier.configure(Limits(per_host=10**6))
        self._numbers = count()
        self._known = list(islice(self._links(), 2_000))
        self._frontier.add(self._known)
        for lease in self._frontier.lease(
            16, 600, worker="bench"
        ).leases:  # a host gives one until it answers
            self._frontier.commit([Outcome(lease, "done")])

    def close(self) -> None:
        self._frontier.close()

    def lease(self) -> float:
        """For one page."""
        before, leases = self._place.busy_s(), list[Any]()
        for _ in range(4):
            leases += self._frontier.lease(BATCH, 600, worker="bench").leases
        cost_s = self._place.busy_s() - before
        self._frontier.release([lease.token for lease in leases])
        return cost_s / len(leases)

    def commit(self) -> float:
        """For one page, of which most links are known to this process."""
        batches = [self._frontier.lease(BATCH, 600, worker="bench").leases for _ in range(4)]
        outcomes = [[Outcome(lease, "done", links=self._found()) for lease in leases] for leases in batches]
        before = self._place.busy_s()
        for batch in outcomes:
            self._frontier.commit(batch)
        return (self._place.busy_s() - before) / (4 * BATCH)

    def _found(self) -> tuple[Link, ...]:
        at = next(self._numbers) * 7 % (len(self._known) - LINKS)
        return (*self._known[at : at + LINKS - NEW], *islice(self._links(), NEW))

    def _links(self) -> Iterator[Link]:
        return (Link(pages.SITE.url(number), depth=1) for number in self._numbers)


@contextmanager
def queued(place: Place) -> Iterator[Queue]:
    queue = Queue(place)
    try:
        yield queue
    finally:
        queue.close()


def on_sqlite(opened: ExitStack) -> dict[str, Step]:
    """Beside rows that are written to a file in transactions of as many pages."""
    queue = opened.enter_context(queued(opened.enter_context(sqlite_place())))
    folder = opened.enter_context(tempfile.TemporaryDirectory())
    db = sqlite3.connect(Path(folder) / "reference.db", isolation_level=None)
    opened.callback(db.close)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE seen (id INTEGER PRIMARY KEY, mark INTEGER UNIQUE, url TEXT)")
    marks = ((fingerprint(url), url) for url in map(pages.SITE.url, count()))

    def insert() -> float:
        before = time.process_time()
        for _ in range(20):
            db.execute("BEGIN")
            db.executemany("INSERT INTO seen (mark, url) VALUES (?, ?)", islice(marks, BATCH))
            db.execute("COMMIT")
        return (time.process_time() - before) / (20 * BATCH)

    name = "a row, and an index of it"
    return {
        "lease a page, SQLite": Step(queue.lease, name, insert),
        "commit a page, SQLite": Step(queue.commit, name, insert),
    }


def on_redis(opened: ExitStack) -> dict[str, Step]:
    """Beside members that are added to a set, in pipelines of as many links."""
    place = opened.enter_context(redis_place())
    queue = opened.enter_context(queued(place))
    client = opened.enter_context(redis.Redis.from_url(place.url, db=1))

    def add() -> float:
        before = place.busy_s()
        for _ in range(10):
            pipe = client.pipeline(transaction=False)
            for number in range(LINKS):
                pipe.sadd("seen", number)
            pipe.execute()
        return (place.busy_s() - before) / 10

    name = "SADD of 50 links, in a pipeline"
    return {
        "lease a page, Redis": Step(queue.lease, name, add),
        "commit a page, Redis": Step(queue.commit, name, add),
    }


# --- the run ----------------------------------------------------------------------------------------


def measure(repeats: int = REPEATS) -> dict[str, Figure]:
    """The best of each step and of each reference."""
    with ExitStack() as opened:
        steps = pure_steps() | on_sqlite(opened) | on_redis(opened)
        return {name: _best(step, repeats) for name, step in steps.items()}


def _best(step: Step, repeats: int) -> Figure:
    taken = [(step.run(), step.reference_run()) for _ in range(repeats)]
    step_s, reference_s = map(min, zip(*taken, strict=True))
    return Figure(1e6 * step_s, step.reference, 1e6 * reference_s)


def dearer(figures: Mapping[str, Figure], kept: Mapping[str, float]) -> list[str]:
    """What has become dearer than is allowed, in words."""
    return [
        f"{name}: {figure.ratio:.2f} times {figure.reference}, and not {kept[name]:.2f}"
        for name, figure in figures.items()
        if figure.ratio > WORSE * kept[name]
    ]


def figures_table(figures: Mapping[str, Figure]) -> str:
    rows = [
        [name, f"{each.step_us:.2f}", f"{each.ratio:.2f}", f"{each.reference}: {each.reference_us:.2f}"]
        for name, each in figures.items()
    ]
    return table(["step", "CPU µs", "times the reference", "reference, µs"], rows)


def main() -> None:
    """Publish the table."""
    used = versions("shoal", "turbohtml", "upa-url", "xxhash", "lxml", "redis", "hiredis")
    text = f"Best of {REPEATS}. {machine()}Versions: {used}; SQLite {sqlite3.sqlite_version}.\n"
    publish("micro", f"{figures_table(measure())}\n{text}")


def keep(figures: Mapping[str, Figure]) -> None:
    """Write down the ratios."""
    KEPT.write_text(
        json.dumps({name: round(each.ratio, 3) for name, each in figures.items()}, indent=2) + "\n"
    )


def gate() -> None:
    """Exit with what has become dearer, if anything has; it is measured again before that."""
    kept, figures = json.loads(KEPT.read_text()), measure()
    if dearer(figures, kept):
        again = measure()
        figures = {name: min(figures[name], again[name], key=lambda each: each.ratio) for name in figures}
    print(figures_table(figures))
    if faults := dearer(figures, kept):
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gate", action="store_true")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    if given.gate:
        gate()
    elif given.keep:
        keep(measure())
    else:
        main()
