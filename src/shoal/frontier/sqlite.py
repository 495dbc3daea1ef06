"""The embedded frontier: one SQLite file (WAL), several crawls in it, several processes on it.

Every verb is one transaction, a `Step` (sqlite_step.py); sqlite.sql has the tables.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from math import inf
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from shoal.errors import ConfigError
from shoal.frontier.base import Frontier, Sift, check_priority, worker_records
from shoal.frontier.host_keys import ByAddress
from shoal.frontier.seen import SeenCache
from shoal.frontier.snapshot import Snapshot, chunked
from shoal.frontier.sqlite_file import connect, crawl_names, translated
from shoal.frontier.sqlite_move import (
    dump_crawl,
    dumped_host,
    dumped_page,
    dumped_survey,
    introduce,
    load_crawl,
    load_hosts,
    load_pages,
)
from shoal.frontier.sqlite_rows import HOST_COLUMNS, CrawlRow, HostRow
from shoal.frontier.sqlite_step import Step, read_visit, to_json
from shoal.lookup import Lookups
from shoal.model import (
    Beat,
    Grant,
    HostOrder,
    HostRecord,
    Item,
    Limits,
    Link,
    Minute,
    Outcome,
    PageRecord,
    Politeness,
    Stats,
    Survey,
    Visit,
    WorkerRecord,
)
from shoal.scope import HOST_KEYS
from shoal.urls import fingerprint

POLL_S = 0.02  # how often an idle worker looks whether another process has written: 7 us a look
CHUNK = 500  # items read at once

Dumped = TypeVar("Dumped")
_HOST = ", ".join(HOST_COLUMNS)
_TABLES = (
    *("hosts", "pages", "leases", "items", "positions", "producers", "ages", "workers"),
    *("cuts", "shapes", "contents", "names", "history", "surveys"),
)
_MATCHES = {
    "url": "p.url = ?",
    "host": "p.host = (SELECT id FROM hosts WHERE crawl = {crawl} AND host = ?)",
    "reason": "p.reason = ?",
}
_ORDERS: dict[HostOrder, str] = {  # what is not a column
    "delay_s": "max(coalesce(set_delay_s, :delay_s), crawl_delay_s,"
    " :adapt * coalesce(json_extract(troubles, '$[1]'), 0))",
    "failures": "coalesce(json_extract(troubles, '$[0]'), 0)",
    "paused_until": "max(paused_until, :now)",
}
_RECORD = """
    SELECT p.url, p.state, p.priority, p.depth, p.attempts, p.losses, coalesce(h.host, ''),
           p.reason, p.error, p.status, coalesce(parent.url, ''), p.added_at, p.finished_at, p.not_before,
           coalesce(l.worker, ''), l.deadline, p.visit
    FROM pages p LEFT JOIN hosts h ON h.id = p.host
    LEFT JOIN pages parent ON parent.id = p.parent
    LEFT JOIN leases l ON p.state = 'leased' AND l.crawl = p.crawl AND l.page = p.id
"""


class SqliteFrontier(Frontier):
    """See `shoal.frontier.base.Frontier`. Made in one thread, it may then be used by another one."""

    def __init__(self, path: str, crawl: str, *, create: bool = True, keep_items: bool = True) -> None:
        """Raises ConfigError (no such crawl), FrontierError (not usable), FrontierUnavailable."""
        self.path = path
        self.crawl = crawl
        self.keeps_items = keep_items
        self._seen = SeenCache()
        self._epoch = -1
        self._version = -1
        self._wake = threading.Event()
        self._politeness: Politeness | None = None  # not looked up yet
        self.lookups = Lookups()
        self._by_address = ByAddress(self._recall, self._introduce, self.lookups)
        self._db = connect(path, create=create)
        with translated(path):
            row = self._db.execute("SELECT id FROM crawls WHERE name = ?", (crawl,)).fetchone()
            if row is None and create:
                self._db.execute(
                    "INSERT OR IGNORE INTO crawls (name, limits) VALUES (?, ?)", (crawl, to_json(Limits()))
                )
                row = self._db.execute("SELECT id FROM crawls WHERE name = ?", (crawl,)).fetchone()
        if row is None:
            self._db.close()
            known = ", ".join(f"'{name}'" for name in crawl_names(path)) or "none"
            raise ConfigError(f"{path} has no crawl '{crawl}': it has {known}")
        self._id: int = row[0]

    @contextmanager
    def _step(self, now: float | None = None) -> Iterator[Step]:
        """One transaction: all of it is written, or, if anything is raised, nothing."""
        with translated(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                step = Step(
                    self._db,
                    self._id,
                    self.crawl,
                    time.time() if now is None else now,
                    self._by_address.of,
                )
                self._keep_up(step)
                yield step
                step.save()
                self._version = self._data_version()
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        self._seen.learn(step.seen)
        self._keep_up(step)

    @contextmanager
    def _look(self) -> Iterator[Step]:
        """What is there now. It keeps no writer waiting, and changes nothing."""
        with translated(self.path):
            self._db.execute("BEGIN")
            try:
                yield Step(self._db, self._id, self.crawl, time.time(), self._by_address.of)
            finally:
                self._db.execute("ROLLBACK")

    def _keep_up(self, step: Step) -> None:
        """Trust the seen cache no longer than nothing was forgotten."""
        self._politeness = step.limits.politeness
        if step.crawl.epoch != self._epoch:
            self._seen.clear()
            self._by_address.forget()
            self._epoch = step.crawl.epoch

    # --- what a worker needs -------------------------------------------------------------

    def add(self, links: Iterable[Link], *, now: float | None = None) -> int:
        links = self._met(links)
        with self._step(now) as step:
            return step.add([(links, None)], self._seen)

    def lease(self, limit: int, seconds: float, *, worker: str, now: float | None = None) -> Grant:
        with self._step(now) as step:
            step.take_back("deadline < ?", step.now)
            step.promote()
            step.bury_given_up()
            leases = step.lease(limit, seconds, worker)
            finished = step.finished()
            more = len(leases) == limit and step.crawl.ready_hosts > 0 and step.crawl.room(step.limits) > 0
            again_s = 0.0 if more else None if finished else step.again_s()
        return Grant(leases=tuple(leases), again_s=again_s, finished=finished)

    def commit(
        self,
        outcomes: Sequence[Outcome],
        *,
        positions: Sequence[tuple[str, int]] = (),
        sift: Sift | None = None,
        now: float | None = None,
    ) -> frozenset[int]:
        self._met(link for outcome in outcomes for link in outcome.links)
        with self._step(now) as step:
            held = step.held([outcome.lease.token for outcome in outcomes])
            lost = frozenset(outcome.lease.token for outcome in outcomes) - held.keys()
            if not lost:
                if step.limits.max_queued is not None:
                    step.promote()  # a host has what is due
                step.finish(outcomes, held)
                step.keep_surveys(each.survey for each in outcomes if each.survey is not None)
                found = ((each.links, held[each.lease.token].page) for each in outcomes if each.links)
                step.add(found, self._seen, sift)
                if self.keeps_items:
                    step.keep_items(outcomes, held)
                else:
                    step.crawl.items += sum(outcome.rows_more for outcome in outcomes)
                for position in positions:
                    step.record_position(*position)
        return lost

    def _met(self, links: Iterable[Link]) -> Iterable[Link]:
        """These links, after their hosts have been looked up, if politeness is by address."""
        if (self._politeness or self.limits.politeness) == "address":
            links = list(links)
            self._by_address.meet(link.url for link in links)
        return links

    def _recall(self, names: Set[str]) -> Mapping[str, str]:
        query = "SELECT name, host FROM names WHERE crawl = ? AND name = ?"
        with translated(self.path):
            rows = (self._db.execute(query, (self._id, name)).fetchone() for name in names)
            return dict(row for row in rows if row is not None)

    def _introduce(self, keys: Mapping[str, str]) -> Mapping[str, str]:
        with self._step() as step:
            introduce(step, keys)
        return self._recall(keys.keys())

    def revisit(self, seconds: float, *, now: float | None = None) -> int:
        with self._step(now) as step:
            return step.revisit(seconds)

    def extend(self, tokens: Collection[int], seconds: float, *, now: float | None = None) -> frozenset[int]:
        with self._step(now) as step:
            held = step.held(tokens)
            step.db.executemany(
                "UPDATE leases SET deadline = ? WHERE crawl = ? AND token = ?",
                [(step.now + seconds, self._id, token) for token in held],
            )
        return frozenset(tokens) - held.keys()

    def release(self, tokens: Collection[int], *, now: float | None = None) -> None:
        with self._step(now) as step:
            step.give_back(step.held(tokens))

    def reap(self, worker: str, *, now: float | None = None) -> int:
        with self._step(now) as step:
            return step.take_back("worker = ?", worker)

    def pause_host(self, host: str, seconds: float, *, now: float | None = None) -> None:
        with self._step(now) as step:
            row = step.host_named(host)
            row.paused_until = max(row.paused_until, step.now + seconds) if seconds > 0 else 0.0

    def set_delay(self, host: str, delay_s: float | None) -> None:
        with self._step() as step:
            step.host_named(host).set_delay_s = delay_s

    def stats(self, *, now: float | None = None) -> Stats:
        with self._step(now) as step:
            step.promote()
            return step.crawl.stats(
                oldest_s=step.oldest_s(), producers=step.producers(), finished=step.finished()
            )

    def wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        with translated(self.path):
            while (left_s := deadline - time.monotonic()) > 0 and self._data_version() == self._version:
                if self._wake.wait(min(POLL_S, left_s)):
                    break
        self._wake.clear()

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._db.close()
        self.lookups.close()

    def _data_version(self) -> int:
        """Moves when another connection has written."""
        return int(self._db.execute("PRAGMA data_version").fetchone()[0])

    # --- the crawl ------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        with self._step() as step:
            return step.limits

    def configure(self, limits: Limits) -> None:
        with self._step() as step:
            if limits == step.limits:
                return
            step.load_all_hosts()
            step.limits = limits
            self._db.execute("UPDATE crawls SET limits = ? WHERE id = ?", (to_json(limits), self._id))

    def describe(self, description: Mapping[str, object] | None = None) -> Mapping[str, object]:
        with self._step():
            if description is not None:
                self._db.execute(
                    "UPDATE crawls SET description = ? WHERE id = ?", (to_json(description), self._id)
                )
            row = self._db.execute("SELECT description FROM crawls WHERE id = ?", (self._id,)).fetchone()
        return msgspec.json.decode(row[0], type=dict[str, object])

    def position(self, store: str) -> int | None:
        with translated(self.path):
            row = self._db.execute(
                "SELECT length FROM positions WHERE crawl = ? AND store = ?", (self._id, store)
            ).fetchone()
        return None if row is None else int(row[0])

    def open_producer(self, name: str, seconds: float, *, now: float | None = None) -> bool:
        with self._step(now) as step:
            self._db.execute(
                "INSERT OR REPLACE INTO producers VALUES (?, ?, ?)", (self._id, name, step.now + seconds)
            )
            return step.crawl.space(step.limits) > step.crawl.overflow

    def close_producer(self, name: str) -> None:
        with self._step():
            self._db.execute("DELETE FROM producers WHERE crawl = ? AND name = ?", (self._id, name))

    def pause(self) -> None:
        with self._step() as step:
            step.crawl.paused = 1

    def resume(self) -> None:
        with self._step() as step:
            step.crawl.paused = 0

    def purge(self) -> None:
        with self._step() as step:
            for table in _TABLES:
                self._db.execute(f"DELETE FROM {table} WHERE crawl = ?", (self._id,))
            self._db.execute(
                "UPDATE crawls SET limits = ?, description = '{}' WHERE id = ?", (to_json(Limits()), self._id)
            )
            step.crawl = CrawlRow.empty(epoch=step.crawl.epoch + 1, token=step.crawl.token)

    # --- for people -----------------------------------------------------------------------

    def why(self, url: str, key: str = "") -> PageRecord | None:
        found = self._records("p.crawl = ? AND p.fingerprint = ?", (self._id, fingerprint(url, key)))
        if found and not found[0].url:  # it came from a back end that keeps no more than that it is done
            self._by_address.recall([url])
            return replace(
                found[0], url=url, host=HOST_KEYS.get(self.limits.politeness, self._by_address.of)(url)
            )
        return found[0] if found else None

    def dead(
        self, *, host: str | None = None, reason: str | None = None, limit: int | None = None
    ) -> list[PageRecord]:
        return self._records(*self._matching("dead", host=host, reason=reason), limit)

    def redrive(
        self,
        *,
        url: str | None = None,
        host: str | None = None,
        reason: str | None = None,
        now: float | None = None,
    ) -> int:
        where, values = self._matching("dead", url=url, host=host, reason=reason)
        with self._step(now) as step:
            rows = self._db.execute(
                f"SELECT p.id, p.host, p.priority, p.added_at FROM pages p JOIN hosts h ON h.id = p.host"
                f" WHERE {where}",
                values,
            ).fetchall()
            step.redrive(rows)
        return len(rows)

    def skipped(
        self, *, host: str | None = None, reason: str | None = None, limit: int | None = None
    ) -> list[PageRecord]:
        return self._records(*self._matching("skipped", host=host, reason=reason), limit)

    def cuts(self) -> dict[tuple[str, str], int]:
        with self._step() as step:
            return step.cuts.counts()

    def surveys(self) -> Iterator[Survey]:
        return self._dump("surveys", dumped_survey)

    def history(self, since: float, *, now: float | None = None) -> list[Minute]:
        with self._step(now) as step:
            return step.history(since)

    def claim(self, contents: Sequence[tuple[int, str]]) -> list[str]:
        with self._step() as step:
            return step.cuts.claim(contents)

    def forget(self, url: str, key: str = "") -> bool:
        with self._step() as step:
            return step.forget(fingerprint(url, key))

    def set_priority(self, url: str, priority: int, key: str = "") -> bool:
        check_priority(priority, url)
        with self._step() as step:
            return step.set_priority(fingerprint(url, key), priority)

    def tally(
        self, state: Literal["dead", "skipped"], *, reason: str | None = None, limit: int | None = None
    ) -> dict[str, int]:
        column, which = ("reason", "") if reason is None else ("host", " AND reason = :reason")
        name = "reason" if reason is None else "(SELECT host FROM hosts WHERE hosts.id = counts.host)"
        with translated(self.path):
            rows = self._db.execute(
                f"WITH counts AS (SELECT {column}, count(*) AS pages FROM pages"
                f" WHERE crawl = :crawl AND state = '{state}'{which} GROUP BY {column}"
                f" ORDER BY pages DESC, {column} LIMIT :limit)"
                f" SELECT coalesce({name}, ''), pages FROM counts",
                {"crawl": self._id, "reason": reason, "limit": -1 if limit is None else limit},
            )
            return dict(rows.fetchall())

    def hosts(
        self, *, limit: int = 20, by: HostOrder = "latency_s", ascending: bool = False, having: str = ""
    ) -> list[HostRecord]:
        with self._look() as step:
            rows = self._db.execute(
                f"SELECT {_HOST} FROM hosts WHERE crawl = :crawl AND instr(host, :having)"
                f" ORDER BY {_ORDERS.get(by, by)} {'' if ascending else 'DESC'}, id LIMIT :limit",
                {
                    "crawl": self._id,
                    "having": having,
                    "limit": limit,
                    "now": step.now,
                    "delay_s": step.limits.delay_s,
                    "adapt": step.limits.adapt,
                },
            ).fetchall()
            return [step.host_record(HostRow(*row)) for row in rows]

    def hosts_named(self, names: Sequence[str]) -> list[HostRecord]:
        query = f"SELECT {_HOST} FROM hosts WHERE crawl = ? AND host = ?"
        with self._look() as step:
            rows = [self._db.execute(query, (self._id, name)).fetchone() for name in names]
            return [step.host_record(HostRow(*row)) for row in rows if row is not None]

    def beat(self, worker: Beat, seconds: float, *, now: float | None = None) -> None:
        with self._step(now) as step:
            self._db.execute("DELETE FROM workers WHERE crawl = ? AND deadline < ?", (self._id, step.now))
            self._db.execute(
                "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (self._id, worker.name, step.now + seconds, *astuple(worker)[1:]),
            )

    def workers(self, *, now: float | None = None) -> list[WorkerRecord]:
        with self._step(now) as step:
            held = dict(
                self._db.execute(
                    "SELECT worker, count(*) FROM leases WHERE crawl = ? GROUP BY worker", (self._id,)
                )
            )
            beats = self._db.execute(
                "SELECT deadline, name, concurrency, since, pages_per_s, bytes_in_flight, lag_s, settle_s,"
                " trouble FROM workers WHERE crawl = ? AND deadline >= ?",
                (self._id, step.now),
            )
            return worker_records([(until, Beat(*beat)) for until, *beat in beats], held)

    def items(self) -> Iterator[Item]:
        last = 0
        while True:
            with translated(self.path):
                rows = self._db.execute(
                    "SELECT i.id, i.data, p.visit FROM items i LEFT JOIN pages p ON p.id = i.page"
                    " WHERE i.crawl = ? AND i.id > ? ORDER BY i.id LIMIT ?",
                    (self._id, last, CHUNK),
                ).fetchall()
                items = [_row(data, read_visit(visit)) for _, data, visit in rows]
            if not rows:
                return
            last = rows[-1][0]
            yield from items

    def last_items(self, limit: int) -> list[Item]:
        with translated(self.path):
            rows = self._db.execute(
                "SELECT i.data, p.visit FROM items i LEFT JOIN pages p ON p.id = i.page"
                " WHERE i.crawl = ? ORDER BY i.id DESC LIMIT ?",
                (self._id, limit),
            ).fetchall()
            return [_row(data, read_visit(visit)) for data, visit in rows]

    # --- moving to another back end -----------------------------------------------------------

    def dump(self) -> Snapshot:
        with self._step() as step:
            crawl, cuts = dump_crawl(step), step.cuts
        return Snapshot(
            crawl,
            names=self._dump_pairs("names", "name", "host", first=""),
            hosts=self._dump("hosts", lambda row: dumped_host(row, *cuts.of(row["id"]))),
            pages=self._dump("pages", dumped_page),
            contents=self._dump_pairs("contents", "digest", "url", first=-inf),
            surveys=self.surveys(),
        )

    def _dump_pairs(self, table: str, key: str, value: str, first: Any) -> Iterator[tuple[Any, str]]:
        """All pairs of a table that has no more columns, beyond the first one."""
        query = f"SELECT {key}, {value} FROM {table} WHERE crawl = ? AND {key} > ? ORDER BY {key} LIMIT ?"
        last = first
        while True:
            with translated(self.path):
                pairs = self._db.execute(query, (self._id, last, CHUNK)).fetchall()
            if not pairs:
                return
            last = pairs[-1][0]
            yield from pairs

    def _dump(self, table: str, read: Callable[[sqlite3.Row], Dumped]) -> Iterator[Dumped]:
        last = 0
        while True:
            with translated(self.path):
                cursor = self._db.execute(
                    f"SELECT * FROM {table} WHERE crawl = ? AND id > ? ORDER BY id LIMIT ?",
                    (self._id, last, CHUNK),
                )
                cursor.row_factory = sqlite3.Row
                rows = cursor.fetchall()
            if not rows:
                return
            last = rows[-1]["id"]
            yield from map(read, rows)

    def load(self, snapshot: Snapshot) -> None:
        crawl, names, hosts, pages, contents, surveys = snapshot
        with self._step() as step:
            load_crawl(step, crawl)
            self._db.execute(
                "UPDATE crawls SET limits = ?, description = ? WHERE id = ?",
                (to_json(crawl.limits), to_json(crawl.description), self._id),
            )
        for some_names in chunked(names, CHUNK):
            with self._step() as step:
                introduce(step, dict(some_names))
        for some_hosts in chunked(hosts, CHUNK):
            with self._step() as step:
                load_hosts(step, some_hosts)
        for some_pages in chunked(pages, CHUNK):
            if crawl.limits.politeness == "address":
                self._by_address.recall(page.link.url for page in some_pages if page.link)
            with self._step() as step:
                load_pages(step, some_pages)
        for some_contents in chunked(contents, CHUNK):
            self.claim(some_contents)
        for some_surveys in chunked(surveys, CHUNK):
            with self._step() as step:
                step.keep_surveys(some_surveys)
        with self._step() as step:
            step.load_history(crawl.history)
        if not crawl.paused:
            self.resume()

    def load_items(self, items: Iterable[str]) -> None:
        """Take over items, as JSON, of which nobody knows the page any more."""
        with self._step():
            self._db.executemany(
                "INSERT INTO items (crawl, page, data) VALUES (?, 0, ?)", [(self._id, item) for item in items]
            )

    def _matching(self, state: str, **columns: str | None) -> tuple[str, tuple[Any, ...]]:
        """A WHERE clause and its values: pages of a state, by url, host or reason if given."""
        given = {
            _MATCHES[column].format(crawl=self._id): value
            for column, value in columns.items()
            if value is not None
        }
        where = " AND ".join([f"p.crawl = {self._id} AND p.state = '{state}'", *given])
        return where, tuple(given.values())

    def _records(self, where: str, values: tuple[Any, ...], limit: int | None = None) -> list[PageRecord]:
        with translated(self.path):
            rows = self._db.execute(
                f"{_RECORD} WHERE {where} ORDER BY p.id LIMIT ?", (*values, -1 if limit is None else limit)
            )
            return [PageRecord(*(*row[:-1], read_visit(row[-1]))) for row in rows]


def _row(data: str, visit: Visit | None) -> Item:
    row = msgspec.json.decode(data, type=dict[str, object])
    return row if visit is None else row | visit.fields()
