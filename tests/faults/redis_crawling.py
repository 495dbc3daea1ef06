"""A crawl with its frontier on Redis, by several workers that can be killed, and what must come of it."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import redis
from msgspec import Struct
from redis.backoff import NoBackoff
from redis.retry import Retry
from tests.contract.invariants import assert_nothing_lost
from tests.faults.crawling import HERE, POLL_S, SCRAPER, SHOAL, Running, read_part
from tests.names import pid_of
from tests.services import PostgresServer, RedisServer, S3Server
from tests.site import Site

from shoal.frontier import open_frontier

NAME = "site"
"""Of the crawl."""

KINDS = ("jsonl", "postgresql", "s3")
"""Where the rows may go."""

END_S = 100.0
"""A crawl that has not ended by itself so long after the last fault is stuck."""


class Crew:
    """Workers of one crawl, each a process of its own; those that are killed may be replaced.

    kind: where the rows go, one of KINDS. options: of `shoal worker`. frontier: what workers are told of.
    """

    def __init__(
        self,
        site: Site,
        server: RedisServer,
        kind: str,
        *options: object,
        folder: Path,
        frontier: str,
        postgres: PostgresServer | None = None,
        s3: S3Server | None = None,
    ) -> None:
        self.site, self.server, self.kind, self.folder = site, server, kind, folder
        self.client: Any = redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0))
        self._postgres = postgres
        self._table = folder.name
        self._objects: Path | None = None
        self._runs: list[Running] = []
        folder.mkdir()
        (folder / "scraper.py").write_text(
            SCRAPER.format(url=site.url, fault="").replace('"crawl"', f'"{NAME}"')
        )
        output = f"{postgres.url}?table={self._table}" if postgres else folder / "rows.jsonl"
        if s3 is not None:
            output = f"s3://{s3.BUCKET}/{folder.parent.name}/{folder.name}/rows.parquet"
            self._objects = s3.data / output.removeprefix("s3://")
        place = ["--frontier", frontier, "-o", output, "--drain"]
        self._command = ["worker", "scraper.py", *place, "--scope", "any", *options]

    # --- running it -----------------------------------------------------------------------

    def start(self, program: str = "", *options: object) -> Running:
        """One more worker, as a user starts it, or with another program of this folder."""
        shoal = [sys.executable, HERE / program, *options] if program else [SHOAL]
        log = self.folder / f"run-{len(self._runs)}.log"
        self._runs.append(Running([*shoal, *self._command], self.folder, log))
        return self._runs[-1]

    def running(self) -> list[Running]:
        return [run for run in self._runs if not run.ended()]

    def end(self) -> None:
        for run in self._runs:
            run.end()
        self.client.close()

    # --- looking at it --------------------------------------------------------------------

    def counter(self, name: str) -> int:
        """One of the counters of the crawl; 0 while Redis is away."""
        try:
            return int(self.client.hget(f"shoal:{{{NAME}}}:crawl", name) or 0)
        except redis.RedisError:
            return 0

    def done(self) -> int:
        return self.counter("done")

    def has_begun(self, run: Running) -> bool:
        """Whether this worker has announced itself, or come to its end already."""
        names = self.client.hkeys(f"shoal:{{{NAME}}}:workers")
        return run.ended() or run.pid in map(pid_of, names)

    def leases(self, run: Running) -> int:
        """How many pages this worker holds."""
        with open_frontier(self.server.url, crawl=NAME, create=False) as frontier:
            return sum(each.leases for each in frontier.workers() if pid_of(each.name) == run.pid)

    def until(self, true: Callable[[], object], seconds: float = 60.0) -> bool:
        """Wait until it is true; returns False if all workers have ended before."""
        deadline = time.monotonic() + seconds
        while not true():
            if not self.running():
                return False
            assert time.monotonic() < deadline, f"not within {seconds} s: {self.said()}"
            time.sleep(POLL_S)
        return True

    def until_done(self, pages: int) -> bool:
        """Wait until so many pages are done."""
        return self.until(lambda: self.done() >= pages)

    def said(self) -> str:
        """What all workers have said."""
        return "\n".join(f"[{run.log.name}] {run.said()}" for run in self._runs)

    # --- what must be true ----------------------------------------------------------------

    def finish(self) -> None:
        """All that are running come to the end by themselves, and it is the right one."""
        running = self.running()
        deadline = time.monotonic() + END_S
        assert [run.wait(max(1.0, deadline - time.monotonic())) for run in running] == [0] * len(running)
        self.assert_finished()

    def assert_finished(self) -> None:
        """All pages are done, their rows are there once and right, and every counter says so."""
        with open_frontier(self.server.url, crawl=NAME, create=False) as frontier:
            stats = frontier.stats()
            pages = self.site.pages
            assert (stats.finished, stats.done, stats.items, stats.queued) == (True, pages, pages, 0)
            assert_nothing_lost(frontier, [(url, "") for url in self.site.urls])
        self.assert_rows(self.site.urls)
        assert self.leftovers() == set()

    def assert_rows(self, urls: Iterable[str]) -> None:
        """There is one row for each of these pages, with what the page shows, and no other."""
        truth, rows = self.site.rows(), self.rows()
        assert Counter(row["url"] for row in rows) == Counter(urls)
        assert [row for row in rows if row != {"url": row["url"], **truth[str(row["url"])]}] == []

    def rows(self) -> list[Mapping[str, object]]:
        if self._objects is not None:
            return [row for part in sorted(self._objects.glob("date=*/*")) for row in read_part(part)]
        if self._postgres is None:
            return [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]
        with self._postgres.connect() as db:
            found = db.execute(f"SELECT url, id, title, price FROM {self._table}").fetchall()  # type: ignore[arg-type]
        return [dict(zip(("url", "id", "title", "price"), row, strict=True)) for row in found]

    def leftovers(self) -> set[str]:
        """Keys that a finished crawl should not have any more."""
        base = f"shoal:{{{NAME}}}:"
        names = {
            key.decode().removeprefix(base).partition(":")[0] for key in self.client.scan_iter(f"{base}*")
        }
        return names & {"q", "leases", "deadlines", "delayed", "ready", "waiting", "inbox", "producers"}


class Fault(Struct, frozen=True):
    """Something that happens to Redis, and ends."""

    begin: Callable[[Any], object]
    """Takes a client of it."""
    end: Callable[[Any], object]
    seconds: float


def _nothing(client: Any) -> None:
    """It ends by itself."""


FAULTS = {
    "out of memory": Fault(
        lambda client: client.config_set("maxmemory", 1),
        lambda client: client.config_set("maxmemory", 0),
        1.0,
    ),
    "a replica": Fault(
        lambda client: client.replicaof("127.0.0.1", 1), lambda client: client.replicaof("NO", "ONE"), 1.0
    ),
    "slow": Fault(lambda client: client.client_pause(1_000, all=True), _nothing, 1.0),
    "without scripts": Fault(lambda client: client.script_flush(), _nothing, 0.1),
    "connections dropped": Fault(
        lambda client: client.client_kill_filter(_type="normal", skipme=True), _nothing, 0.1
    ),
}
"""Troubles that Redis may have without being killed."""
