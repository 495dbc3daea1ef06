"""A frontier as far as stores are concerned, and a worker that dies on request (run as a program)."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing

from shoal.model import Lease, Link, Outcome, State
from shoal.store import open_store
from shoal.store.base import Position, Store

PARTS = ("parquet", "s3 jsonl", "s3 jsonl.gz", "s3 parquet")
"""Stores of parts."""

TARGETS = {"jsonl": "items.jsonl", "csv": "items.csv", "sqlite": "sqlite:items.db"}


class Ledger:
    """Commits outcomes together with the position of the store, in one step; processes may share it."""

    def __init__(self, path: str = ":memory:") -> None:
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._db.execute("CREATE TABLE IF NOT EXISTS positions (store PRIMARY KEY, length)")
        self._db.execute("CREATE TABLE IF NOT EXISTS done (token PRIMARY KEY)")
        self._db.execute("PRAGMA synchronous = OFF")

    def position(self, store: str) -> int | None:
        row = self._db.execute("SELECT length FROM positions WHERE store = ?", (store,)).fetchone()
        return row and row[0]

    def commit(
        self, outcomes: Sequence[Outcome], *, positions: Sequence[Position], lost: Collection[int] = ()
    ) -> frozenset[int]:
        tokens = {outcome.lease.token for outcome in outcomes}
        if tokens & set(lost):
            return frozenset(tokens & set(lost))
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("INSERT INTO done VALUES (?)", [(token,) for token in tokens])
        for position in positions:
            self.record(position)
        self._db.execute("COMMIT")
        return frozenset()

    def record(self, position: Position) -> None:
        self._db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", position)

    def purge(self) -> None:
        self._db.execute("DELETE FROM positions")

    def done(self) -> set[int]:
        return {token for (token,) in self._db.execute("SELECT token FROM done")}

    def open(self, store: Store, *, fresh: bool = False) -> Store:
        """Open the store as a worker does."""
        with store.open(committed=self.position, fresh=fresh) as position:
            self.commit((), positions=[position])
        return store

    def write(self, store: Store, outcomes: Sequence[Outcome], lost: Collection[int] = ()) -> frozenset[int]:
        """Write and commit as a worker does, once; returns the lost leases."""
        with store.write(outcomes, committed=self.position) as position:
            return self.commit(outcomes, positions=[position], lost=lost)

    def close(self) -> None:
        self._db.close()


def outcome(
    token: int, *items: Mapping[str, object], page: int | None = None, state: State = "done"
) -> Outcome:
    """How a page ended: page `page` (by default one for each token), with these items."""
    number = token if page is None else page
    link = Link(f"https://shop.example/{number}")
    lease = Lease(token=token, fingerprint=number, link=link, host="shop.example", attempt=1)
    return Outcome(lease, state, items=items)


def page(token: int, rows: int = 2) -> Outcome:
    """A page with so many rows, which can be told from those of any other token."""
    return outcome(token, *({"url": f"https://shop.example/{token}", "n": n} for n in range(rows)))


def work(target: str, ledger_path: str, first: int, count: int, die: str) -> None:
    """Do the pages `first` and following; die: kill this process in the first write, "before" or "after"."""
    with closing(Ledger(ledger_path)) as ledger, closing(open_store(target, crawl="shop")) as store:
        ledger.open(store)
        for token in range(first, first + count):
            outcomes = [page(token)]
            with store.write(outcomes, committed=ledger.position) as position:
                if die == "before":
                    os.kill(os.getpid(), signal.SIGKILL)
                ledger.commit(outcomes, positions=[position])
                if die == "after":
                    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
