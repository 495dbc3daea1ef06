"""One transaction on one crawl: the rows that it touches, and the changes of state.

It holds the write lock, so what it has read stays true; it works on rows in memory (sqlite_rows.py) and
writes them back once, together with the counters.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import msgspec

from shoal.caution import GIVEN_UP, WELL, given_up_after, is_down
from shoal.errors import FrontierError
from shoal.frontier.base import AT_ONCE, Sift, check_link
from shoal.frontier.history import GAINS, MINUTES, in_ms, minute_of, pack_minute, read_minute, window
from shoal.frontier.host_keys import HostKey
from shoal.frontier.seen import SeenCache
from shoal.frontier.sqlite_cuts import Cuts
from shoal.frontier.sqlite_rows import (
    CRAWL_COLUMNS,
    HOST_COLUMNS,
    CrawlRow,
    HostRow,
    crawl_values,
    host_values,
)
from shoal.model import HostRecord, Lease, Limits, Link, Minute, Outcome, State, Survey, Visit
from shoal.scope import HOST_KEYS
from shoal.urls import fingerprint

CHUNK = 500  # values in one IN (...)
BURIED = 1_000  # links of hosts given up, in one step
AGE_S = 60  # queued links are counted by the minute in which they were found

_Row = tuple[Any, ...]
_HOST = ", ".join(HOST_COLUMNS)
_NEXT = "id, fingerprint, url, priority, depth, attempts, losses, extra, visit, added_at"
_SAVE_CRAWL = f"UPDATE crawls SET {', '.join(f'{name} = ?' for name in CRAWL_COLUMNS)} WHERE id = ?"
_SAVE_GAINS = (
    f"INSERT INTO history VALUES ({', '.join('?' * (2 + len(GAINS)))})"
    f" ON CONFLICT DO UPDATE SET {', '.join(f'{name} = {name} + excluded.{name}' for name in GAINS)}"
)
_SAVE_HOST = f"UPDATE hosts SET {', '.join(f'{name} = ?' for name in HOST_COLUMNS)} WHERE id = ?"


class Held(NamedTuple):
    """A lease as the file has it."""

    page: int
    host: int
    added_at: float


class Step:
    """`save` writes it back; whoever made it begins and ends the transaction."""

    def __init__(
        self, db: sqlite3.Connection, crawl_id: int, name: str, now: float, by_address: HostKey
    ) -> None:
        """by_address: gives URLs their host keys, if politeness is by address."""
        self.db = db
        self.id = crawl_id
        self.now = now
        self.seen: list[Link] = []
        """What the step has found to be known, or made known."""
        self._hosts: dict[int, HostRow] = {}
        self._ages: Counter[int] = Counter()
        self.cuts = Cuts(db, crawl_id)
        row = db.execute(
            f"SELECT limits, {', '.join(CRAWL_COLUMNS)} FROM crawls WHERE id = ?", (crawl_id,)
        ).fetchone()
        if row is None:
            raise FrontierError(f"the crawl '{name}' was removed from its frontier")
        self.limits = msgspec.json.decode(row[0], type=Limits)
        self._by_address = by_address
        self.crawl = CrawlRow(*row[1:])
        self._loaded = row[1:]

    def save(self) -> None:
        """Write back what has changed."""
        self.save_hosts()
        self._save_ages()
        values = crawl_values(self.crawl)
        if values != self._loaded:
            self.db.execute(_SAVE_CRAWL, (*values, self.id))
            self._save_gains(self.crawl.gains(CrawlRow(*self._loaded)))

    def _save_gains(self, gains: list[int]) -> None:
        """Add to the present minute, and drop those that have left the window."""
        if any(gains):
            minute = minute_of(self.now)
            self.db.execute(_SAVE_GAINS, (self.id, minute, *gains))
            self.db.execute(
                "DELETE FROM history WHERE crawl = ? AND minute <= ?", (self.id, minute - MINUTES)
            )

    def history(self, since: float) -> list[Minute]:
        told = window(since, self.now)
        rows = self.db.execute(
            f"SELECT minute, {', '.join(GAINS)} FROM history WHERE crawl = ? AND minute BETWEEN ? AND ?"
            " ORDER BY minute",
            (self.id, told.start, told.stop - 1),
        )
        return [read_minute(*row) for row in rows]

    def load_history(self, minutes: Iterable[Minute]) -> None:
        """Instead of what there is."""
        self.db.execute("DELETE FROM history WHERE crawl = ?", (self.id,))
        self.db.executemany(_SAVE_GAINS, [(self.id, *pack_minute(minute)) for minute in minutes])

    def _save_ages(self) -> None:
        moved = [(self.id, age, by) for age, by in self._ages.items() if by]
        if moved:
            self.db.executemany(
                "INSERT INTO ages VALUES (?, ?, ?)"
                " ON CONFLICT DO UPDATE SET queued = queued + excluded.queued",
                moved,
            )
            self.db.execute("DELETE FROM ages WHERE crawl = ? AND queued = 0", (self.id,))
            self._ages.clear()

    def oldest_s(self) -> float:
        """The age of the oldest queued link, to the minute; 0 if there is none."""
        self._save_ages()
        (oldest,) = self.db.execute("SELECT min(age) FROM ages WHERE crawl = ?", (self.id,)).fetchone()
        return 0.0 if oldest is None else max(0.0, self.now - oldest * AGE_S)

    def save_hosts(self) -> None:
        changed = []
        for host in self._hosts.values():
            host.due_at = host.due(self.limits, self.now)
            count = host.due_at == 0, host.held(self.limits)
            self.crawl.ready_hosts += count[0] - host.counted[0]
            self.crawl.held += count[1] - host.counted[1]
            host.counted = count
            values = host_values(host)
            if values != host.loaded:
                changed.append((*values, host.id))
                host.loaded = values
        self.db.executemany(_SAVE_HOST, changed)

    # --- hosts ----------------------------------------------------------------------------

    def _adopt(self, rows: Iterable[_Row]) -> list[HostRow]:
        """The one object of each host in this step."""
        found = []
        for row in rows:
            host = self._hosts.get(row[0])
            if host is None:
                host = self._hosts[row[0]] = HostRow(*row)
                host.loaded = row
                host.counted = host.due_at == 0, host.held(self.limits)
            found.append(host)
        return found

    def _host(self, host_id: int) -> HostRow:
        known = self._hosts.get(host_id)
        if known is not None:
            return known
        return self._adopt(self.db.execute(f"SELECT {_HOST} FROM hosts WHERE id = ?", (host_id,)))[0]

    @property
    def host_key(self) -> HostKey:
        """Gives URLs their host keys."""
        return HOST_KEYS.get(self.limits.politeness, self._by_address)

    def host_named(self, name: str) -> HostRow:
        """The host of that key; it is made if need be."""
        find = f"SELECT {_HOST} FROM hosts WHERE crawl = ? AND host = ?"
        row = self.db.execute(find, (self.id, name)).fetchone()
        if row is None:
            self.crawl.hosts += 1
            self.db.execute(
                "INSERT INTO hosts (crawl, host, turn) VALUES (?, ?, ?)",
                (self.id, name, self.crawl.next_turn()),
            )
            row = self.db.execute(find, (self.id, name)).fetchone()
        return self._adopt([row])[0]

    def load_all_hosts(self) -> None:
        self._adopt(self.db.execute(f"SELECT {_HOST} FROM hosts WHERE crawl = ?", (self.id,)).fetchall())

    def host_record(self, host: HostRow) -> HostRecord:
        due_at = host.due(self.limits, self.now)
        return HostRecord(
            host=host.host,
            queued=host.queued,
            leased=host.leased,
            done=host.done,
            delay_s=host.present_delay_s(self.limits),
            due_at=due_at if due_at and due_at > 0 else None,
            paused_until=host.paused_until if host.paused_until > self.now else None,
            latency_s=host.latency_s,
            at_once=host.at_once(self.limits),
            failures=host.caution.failures,
            given_up=host.given_up(self.limits, self.now),
            set_delay_s=host.set_delay_s,
            error_rate=host.error_rate,
        )

    def _find_head(self, host: HostRow) -> None:
        row = self.db.execute(
            "SELECT priority FROM pages WHERE host = ? AND state = 'queued' AND not_before IS NULL"
            " ORDER BY priority DESC LIMIT 1",
            (host.id,),
        ).fetchone()
        host.head = -1 if row is None else row[0]
        self._return_links(host)

    def _return_links(self, host: HostRow) -> list[_Row]:
        """Queue links of the overflow if the host has nothing as good left; then they are its next ones."""
        best = self._best_in_overflow(host) if host.overflow else -1
        if best <= host.head:
            return []
        most = min(max(1, self.crawl.space(self.limits)), AT_ONCE)
        rows = self.db.execute(
            f"SELECT {_NEXT} FROM pages WHERE host = ? AND state = 'overflow' AND priority = ?"
            " ORDER BY id LIMIT ?",
            (host.id, best, most),
        ).fetchall()
        self.db.executemany("UPDATE pages SET state = 'queued' WHERE id = ?", [row[:1] for row in rows])
        self._count_overflow(host, -len(rows))
        for row in rows:
            self.queue(host, best, row[-1])
        return rows

    def _best_in_overflow(self, host: HostRow) -> int:
        row = self.db.execute(
            "SELECT priority FROM pages WHERE host = ? AND state = 'overflow' ORDER BY priority DESC LIMIT 1",
            (host.id,),
        ).fetchone()
        return -1 if row is None else int(row[0])

    def put_back(self, host: HostRow, priority: int, added_at: float) -> State:
        """Count a link that was in the overflow elsewhere; it is queued if its host has none as good."""
        if priority <= host.head:
            self._count_overflow(host, 1)
            return "overflow"
        self.queue(host, priority, added_at)
        return "queued"

    def _count_overflow(self, host: HostRow, by: int) -> None:
        host.overflow += by
        self.crawl.overflow += by

    def queue(
        self,
        host: HostRow,
        priority: int,
        added_at: float,
        *,
        delayed: bool = False,
        retrying: bool = False,
    ) -> None:
        self._ages[int(added_at // AGE_S)] += 1
        host.queued += 1
        self.crawl.count_queued(priority, 1, delayed=delayed, retrying=retrying)
        if not delayed:
            host.head = max(host.head, priority)

    def unqueue(
        self,
        host: HostRow,
        priority: int,
        added_at: float,
        *,
        delayed: bool = False,
        retrying: bool = False,
    ) -> None:
        """The other way round; the head of the host is the caller's business."""
        self._ages[int(added_at // AGE_S)] -= 1
        host.queued -= 1
        self.crawl.count_queued(priority, -1, delayed=delayed, retrying=retrying)

    # --- links in -------------------------------------------------------------------------

    def add(
        self, found: Iterable[tuple[Iterable[Link], int | None]], seen: SeenCache, sift: Sift | None = None
    ) -> int:
        """Make the links known that are new; they come with the page that they were found on, if any."""
        deepest = self.limits.max_depth
        asked: dict[int, tuple[Link, int | None]] = {}
        for links, parent in found:
            for link in seen.unknown(links):
                if deepest is None or link.depth <= deepest:
                    asked.setdefault(fingerprint(link.url, link.key), (link, parent))
        known = self._known(list(asked))
        self.seen += [asked[mark][0] for mark in known]
        hosts: dict[str, HostRow] = {}
        new = [
            page
            for mark, (link, parent) in asked.items()
            if mark not in known
            and (page := self._new_page(mark, sift(link) if sift else link, parent, hosts))
        ]
        self.db.executemany(
            "INSERT INTO pages (crawl, fingerprint, host, url, state, priority, depth, not_before, parent,"
            " extra, added_at, finished_at, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            new,
        )
        return len(new)

    def _known(self, fingerprints: Sequence[int]) -> set[int]:
        known: set[int] = set()
        for chunk in _chunks(fingerprints):
            query = f"SELECT fingerprint FROM pages WHERE crawl = ? AND fingerprint IN ({marks(chunk)})"
            known.update(row[0] for row in self.db.execute(query, (self.id, *chunk)))
        return known

    def _new_page(self, mark: int, link: Link, parent: int | None, hosts: dict[str, HostRow]) -> _Row | None:
        """Its row; None if it is cut and not even to be remembered."""
        check_link(link)
        name = self.host_key(link.url)
        host = hosts.get(name) or hosts.setdefault(name, self.host_named(name))
        rule = link.trap or self.cuts.full(host.id, link.quotas)
        if rule and not self.cuts.count(host.id, rule):
            return None
        self.seen.append(link)
        delayed = not rule and link.delay_s > 0
        return (
            self.id,
            mark,
            host.id,
            link.url,
            self._place(host, link, rule, found=parent is not None),
            link.priority,
            link.depth,
            self.now + link.delay_s if delayed else None,
            parent,
            pack_extra(link),
            self.now,
            self.now if rule else None,
            rule,
        )

    def _place(self, host: HostRow, link: Link, rule: str, *, found: bool) -> State:
        """Count a new link, where it belongs."""
        if rule:
            self.crawl.skipped += 1
            return "skipped"
        if found and self._overflows(host, link):
            self._count_overflow(host, 1)
            return "overflow"
        self.queue(host, link.priority, self.now, delayed=link.delay_s > 0)
        return "queued"

    def _overflows(self, host: HostRow, link: Link) -> bool:
        """Whether a link found by a page has to wait outside the queue."""
        full = self.crawl.space(self.limits) <= 0
        if link.delay_s > 0 or host.head < link.priority or not (full or host.overflow):
            return False
        query = "SELECT 1 FROM pages WHERE host = ? AND state = 'overflow' AND priority = ? LIMIT 1"
        return full or self.db.execute(query, (host.id, link.priority)).fetchone() is not None

    # --- leases out -----------------------------------------------------------------------

    def promote(self) -> None:
        """Notice what has become due with time: delayed links, waiting hosts, and hosts given up before."""
        due = self.db.execute(
            "SELECT id, host, priority FROM pages WHERE crawl = ? AND not_before <= ?", (self.id, self.now)
        ).fetchall()
        self.db.executemany("UPDATE pages SET not_before = NULL WHERE id = ?", [row[:1] for row in due])
        self.crawl.delayed -= len(due)
        for _, host_id, priority in due:
            host = self._host(host_id)
            host.head = max(host.head, priority)
        self._adopt(
            self.db.execute(
                f"SELECT {_HOST} FROM hosts WHERE crawl = ? AND due_at > 0 AND due_at <= ?",
                (self.id, self.now),
            ).fetchall()
        )
        self._adopt(
            self.db.execute(
                f"SELECT {_HOST} FROM hosts WHERE crawl = ? AND due_at < 0", (self.id,)
            ).fetchall()
        )
        self.save_hosts()

    def bury_given_up(self) -> None:
        """Make dead letters of what is queued on hosts that were given up (after `promote`): a part of it."""
        left = BURIED
        for host in self._hosts.values():
            while left > 0 and host.due(self.limits, self.now) == -1:
                left -= self._bury_queue(host, left)
        self.save_hosts()

    def _bury_queue(self, host: HostRow, limit: int) -> int:
        rows = self.db.execute(
            "SELECT id, priority, attempts, added_at FROM pages"
            " WHERE host = ? AND state = 'queued' AND not_before IS NULL LIMIT ?",
            (host.id, limit),
        ).fetchall()
        for _, priority, attempts, added_at in rows:
            self.unqueue(host, priority, added_at, retrying=attempts > 0)
        self.crawl.dead += len(rows)
        error = given_up_after(host.caution.failures)
        self.db.executemany(
            "UPDATE pages SET state = 'dead', finished_at = ?, reason = ?, error = ? WHERE id = ?",
            [(self.now, GIVEN_UP, error, row[0]) for row in rows],
        )
        self._find_head(host)
        return len(rows)

    def lease(self, limit: int, seconds: float, worker: str) -> list[Lease]:
        limit = int(min(limit, self.crawl.room(self.limits)))
        if limit <= 0:
            return []
        ready = self._adopt(
            self.db.execute(
                f"SELECT {_HOST} FROM hosts WHERE crawl = ? AND due_at = 0 ORDER BY head DESC, turn LIMIT ?",
                (self.id, limit),
            ).fetchall()
        )
        heads = [(-host.head, host.turn, host.id) for host in ready]
        heapify(heads)
        deadline = self.now + seconds
        queues: dict[int, deque[_Row]] = {}
        leases: list[Lease] = []
        given: list[_Row] = []
        while heads and len(leases) < limit:
            host = self._hosts[heappop(heads)[2]]
            if host.id not in queues:
                queues[host.id] = self._next_pages(host, limit - len(leases))
            queue = queues[host.id]
            page = queue.popleft()
            lease = self._lease_page(host, page)
            leases.append(lease)
            given.append((lease.token, self.id, page[0], host.id, worker, deadline, page[-1]))
            host.head = queue[0][3] if queue else -1
            queue.extendleft(reversed(self._return_links(host)))
            if host.due(self.limits, self.now) == 0:
                heappush(heads, (-host.head, host.turn, host.id))
        self.db.executemany(
            "UPDATE pages SET state = 'leased', fresh = 0 WHERE id = ?", [row[2:3] for row in given]
        )
        self.db.executemany("INSERT INTO leases VALUES (?, ?, ?, ?, ?, ?, ?)", given)
        self.save_hosts()
        return leases

    def _next_pages(self, host: HostRow, limit: int) -> deque[_Row]:
        """What the host may give at most, and one more: its head afterwards."""
        most = min(host.room(self.limits), limit) + 1
        queued = f"SELECT {_NEXT} FROM pages WHERE host = ? AND state = 'queued' AND not_before IS NULL"
        pages = deque(self.db.execute(f"{queued} ORDER BY priority DESC, fresh, id LIMIT ?", (host.id, most)))
        if is_down(host.caution):
            untried = f"{queued} AND priority = ? AND fresh ORDER BY id DESC LIMIT 1"
            for page in self.db.execute(untried, (host.id, host.head)).fetchall():
                pages = deque([page, *(other for other in pages if other != page)])
        return pages

    def _lease_page(self, host: HostRow, page: _Row) -> Lease:
        _, mark, url, priority, depth, attempts, losses, extra, visit, added_at = page
        self.unqueue(host, priority, added_at, retrying=attempts > 0)
        host.leased += 1
        host.turn = self.crawl.next_turn()
        if host.caution is not WELL:
            host.started(self.now)  # several may be on their way, and keep their distance
        self.crawl.leased += 1
        return Lease(
            token=self.crawl.next_token(self.now),
            fingerprint=mark,
            link=read_link(url, priority, depth, extra),
            host=host.host,
            attempt=attempts + 1,
            losses=losses,
            visit=read_visit(visit),
        )

    def again_s(self) -> float | None:
        """Seconds until time alone may change something (after `save_hosts`)."""
        (next_at,) = self.db.execute(
            """
            SELECT min(at) FROM (
                SELECT min(due_at) AS at FROM hosts WHERE crawl = :crawl AND due_at > 0
                UNION ALL SELECT :now FROM hosts WHERE crawl = :crawl AND due_at < 0
                UNION ALL SELECT min(not_before) FROM pages WHERE crawl = :crawl AND not_before IS NOT NULL
                UNION ALL SELECT min(deadline) FROM leases WHERE crawl = :crawl
                UNION ALL SELECT min(deadline) FROM producers WHERE crawl = :crawl AND deadline > :now
            )""",
            {"crawl": self.id, "now": self.now},
        ).fetchone()
        return None if next_at is None else max(0.0, next_at - self.now)

    def producers(self) -> int:
        query = "SELECT count(*) FROM producers WHERE crawl = ? AND deadline > ?"
        return int(self.db.execute(query, (self.id, self.now)).fetchone()[0])

    def finished(self) -> bool:
        self.save_hosts()
        return self.crawl.exhausted(self.limits) and self.producers() == 0

    # --- leases back ----------------------------------------------------------------------

    def held(self, tokens: Collection[int]) -> dict[int, Held]:
        """Of these tokens, those whose lease is held."""
        held: dict[int, Held] = {}
        for chunk in _chunks(list(tokens)):
            query = f"""
                SELECT token, page, host, added_at FROM leases
                WHERE crawl = ? AND token IN ({marks(chunk)})
            """
            held.update((row[0], Held(*row[1:])) for row in self.db.execute(query, (self.id, *chunk)))
        return held

    def _end_leases(self, held: Mapping[int, Held]) -> None:
        self.db.executemany(
            "DELETE FROM leases WHERE crawl = ? AND token = ?", [(self.id, token) for token in held]
        )
        self.crawl.leased -= len(held)
        for lease in held.values():
            self._host(lease.host).leased -= 1

    def give_back(self, held: Mapping[int, Held]) -> None:
        """Queue leased pages again, as if they had never been leased."""
        self._end_leases(held)
        for page, host_id, _ in held.values():
            priority, attempts, added_at = self.db.execute(
                "UPDATE pages SET state = 'queued' WHERE id = ? RETURNING priority, attempts, added_at",
                (page,),
            ).fetchone()
            host = self._host(host_id)
            host.started(self.now)
            self.queue(host, priority, added_at, retrying=attempts > 0)

    def take_back(self, which: str, value: object) -> int:
        """The leases of `which` are lost: queue their pages again, but not for ever."""
        rows = self.db.execute(
            f"SELECT token, page, host, added_at FROM leases WHERE crawl = ? AND {which}", (self.id, value)
        ).fetchall()
        poison: dict[int, Held] = {}
        innocent: dict[int, Held] = {}
        for token, *row in rows:
            lease = Held(*row)
            (losses,) = self.db.execute(
                "UPDATE pages SET losses = losses + 1 WHERE id = ? RETURNING losses", (lease.page,)
            ).fetchone()
            (poison if losses >= self.limits.max_losses else innocent)[token] = lease
        self.crawl.losses += len(rows)
        self.give_back(innocent)
        self._bury(poison)
        return len(rows)

    def _bury(self, held: Mapping[int, Held]) -> None:
        self._end_leases(held)
        self.crawl.dead += len(held)
        for page, host_id, _ in held.values():
            self._host(host_id).started(self.now)
            self.db.execute(
                "UPDATE pages SET state = 'dead', finished_at = ?, reason = 'lease lost',"
                " error = 'its worker died or stalled ' || losses || ' times while it held this page'"
                " WHERE id = ?",
                (self.now, page),
            )

    def finish(self, outcomes: Sequence[Outcome], held: Mapping[int, Held]) -> None:
        """Apply outcomes whose leases are held."""
        self._end_leases(held)
        self.crawl.fetches += len(outcomes)
        self.db.executemany(
            "UPDATE pages SET state = ?, attempts = ?, not_before = ?, finished_at = ?, status = ?,"
            " reason = ?, error = ?, visit = coalesce(?, visit) WHERE id = ?",
            [self._finish_page(outcome, held[outcome.lease.token]) for outcome in outcomes],
        )

    def _finish_page(self, outcome: Outcome, held: Held) -> _Row:
        lease, host = outcome.lease, self._host(held.host)
        host.learn(outcome, self.now, self.limits)
        self.crawl.size_bytes += outcome.size_bytes
        self.crawl.elapsed_ms += in_ms(outcome.elapsed_s)
        again = outcome.state == "queued"
        self.crawl.retries += again
        delayed = again and outcome.retry_s > 0
        if again:
            self.queue(host, lease.link.priority, held.added_at, delayed=delayed, retrying=True)
        else:
            self.crawl.count(outcome.state, 1)
            host.done += outcome.state == "done"
        return (
            outcome.state,
            lease.attempt,
            self.now + outcome.retry_s if delayed else None,
            None if again else self.now,
            outcome.status,
            outcome.reason,
            outcome.error,
            None if outcome.visit is None else to_json(outcome.visit),
            held.page,
        )

    def keep_items(self, outcomes: Sequence[Outcome], held: Mapping[int, Held]) -> None:
        """Keep the items of these pages, instead of any that earlier commits of them brought."""
        read = [
            (held[outcome.lease.token].page, outcome.items) for outcome in outcomes if not outcome.keeps_rows
        ]
        rows = [(self.id, page, to_json(item)) for page, items in read for item in items]
        removed = self.db.executemany("DELETE FROM items WHERE page = ?", [(page,) for page, _ in read])
        self.crawl.items += len(rows) - removed.rowcount
        self.db.executemany("INSERT INTO items (crawl, page, data) VALUES (?, ?, ?)", rows)

    def keep_surveys(self, surveys: Iterable[Survey]) -> None:
        """Keep them instead of any that are there of their pages."""
        self.db.executemany(
            "INSERT OR REPLACE INTO surveys (crawl, fingerprint, data) VALUES (?, ?, ?)",
            [(self.id, survey.fingerprint, msgspec.msgpack.encode(survey)) for survey in surveys],
        )

    def record_position(self, store: str, length: int) -> None:
        self.db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", (self.id, store, length))

    # --- for people -----------------------------------------------------------------------

    def redrive(self, pages: Sequence[_Row]) -> None:
        """Dead pages, each as (page, host, priority, added_at)."""
        self.db.executemany(
            "UPDATE pages SET state = 'queued', attempts = 0, losses = 0, finished_at = NULL, status = 0,"
            " reason = '', error = '' WHERE id = ?",
            [row[:1] for row in pages],
        )
        self.crawl.dead -= len(pages)
        for _, host_id, priority, added_at in pages:
            host = self._host(host_id)
            if host.given_up(self.limits, self.now):
                host.revive()
            self.queue(host, priority, added_at)

    def revisit(self, seconds: float) -> int:
        """Queue a batch of pages again that ended `seconds` ago; returns how many."""
        pages = self.db.execute(
            "SELECT id, host, state, priority FROM pages"
            " WHERE crawl = ? AND visit IS NOT NULL AND finished_at <= ? ORDER BY finished_at LIMIT ?",
            (self.id, self.now - seconds, CHUNK),
        ).fetchall()
        self.db.executemany(
            "UPDATE pages SET state = 'queued', attempts = 0, losses = 0, added_at = ?, finished_at = NULL,"
            " status = 0, reason = '', error = '' WHERE id = ?",
            [(self.now, page) for page, *_ in pages],
        )
        for _, host_id, state, priority in pages:
            host = self._host(host_id)
            self.crawl.count(state, -1)
            host.done -= state == "done"
            self.queue(host, priority, self.now)
        return len(pages)

    def forget(self, mark: int) -> bool:
        row = self.db.execute(
            "DELETE FROM pages WHERE crawl = ? AND fingerprint = ? AND state <> 'leased'"
            " RETURNING id, host, state, priority, attempts, not_before IS NOT NULL, added_at",
            (self.id, mark),
        ).fetchone()
        if row is None:
            return False
        page, host_id, state, priority, attempts, delayed, added_at = row
        host = self._host(host_id)
        if state == "queued":
            self.unqueue(host, priority, added_at, delayed=bool(delayed), retrying=attempts > 0)
            self._find_head(host)
        elif state == "overflow":
            self._count_overflow(host, -1)
        else:
            self.crawl.count(state, -1)
            host.done -= state == "done"
        self.crawl.items -= self.db.execute("DELETE FROM items WHERE page = ?", (page,)).rowcount
        self.db.execute("DELETE FROM surveys WHERE crawl = ? AND fingerprint = ?", (self.id, mark))
        self.crawl.epoch += 1
        return True

    def set_priority(self, mark: int, priority: int) -> bool:
        row = self.db.execute(
            "SELECT id, host, state, priority, attempts, not_before IS NOT NULL, added_at FROM pages"
            " WHERE crawl = ? AND fingerprint = ? AND state IN ('queued', 'overflow')",
            (self.id, mark),
        ).fetchone()
        if row is None:
            return False
        page, host_id, state, before, attempts, delayed, added_at = row
        host = self._host(host_id)
        self.db.execute("UPDATE pages SET state = 'queued', priority = ? WHERE id = ?", (priority, page))
        if state == "overflow":
            self._count_overflow(host, -1)
            self.queue(host, priority, added_at)
        else:
            self.crawl.count_queued(before, -1, delayed=bool(delayed), retrying=attempts > 0)
            self.crawl.count_queued(priority, 1, delayed=bool(delayed), retrying=attempts > 0)
        self._find_head(host)
        return True


def to_json(value: object) -> str:
    """As text, for a column."""
    return msgspec.json.encode(value).decode()


def pack_extra(link: Link) -> str | None:
    """What few links have."""
    if not (link.key or link.via or link.meta):
        return None
    return to_json({"key": link.key, "via": link.via, "cookie": link.cookie, "meta": link.meta})


def read_link(url: str, priority: int, depth: int, extra: str | None) -> Link:
    """The link of a row of pages."""
    more = {} if extra is None else msgspec.json.decode(extra)
    return Link(
        url=url,
        priority=priority,
        depth=depth,
        key=more.get("key", ""),
        via=tuple(more.get("via", ())),
        cookie=more.get("cookie", False),
        meta=more.get("meta"),
    )


def read_visit(visit: str | None) -> Visit | None:
    """The visit in a row of pages."""
    return None if visit is None else msgspec.json.decode(visit, type=Visit)


def _chunks(values: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(values), CHUNK):
        yield values[start : start + CHUNK]


def marks(values: Sequence[object]) -> str:
    """As many question marks."""
    return ", ".join("?" * len(values))
