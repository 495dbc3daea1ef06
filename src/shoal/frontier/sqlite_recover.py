"""Save what can be read of a damaged state file into a new one."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from shoal.errors import ConfigError, FrontierError
from shoal.frontier.history import GAINS, read_minute
from shoal.frontier.snapshot import CrawlState, HostState, PageState, Snapshot
from shoal.frontier.sqlite import SqliteFrontier
from shoal.frontier.sqlite_file import APPLICATION_ID, UNREADABLE, said_of
from shoal.frontier.sqlite_move import dumped_host, dumped_page, dumped_survey
from shoal.model import Limits, State
from shoal.urls import fingerprint

T = TypeVar("T")

FURTHEST = 1 << 40  # no row has a higher number
STATES = frozenset(get_args(State))
NONSENSE = (*UNREADABLE, msgspec.MsgspecError, LookupError, TypeError, ValueError, OverflowError)
"""What reading a damaged file raises, and reading what was in it."""
_HISTORY = f"SELECT minute, {', '.join(GAINS)} FROM history WHERE crawl = ? ORDER BY minute"


def recover(damaged: str, target: str) -> tuple[int, int]:
    """Make the state file `target` of all that can be read; returns the numbers of URLs and rows saved.

    What was leased is queued, and what is lost is found again if a page that links to it is fetched again.
    Raises ConfigError if `target` exists or `damaged` does not, FrontierError if no URL can be read; then
    `target` is not made.
    """
    if not Path(damaged).exists():
        raise ConfigError(f"there is no state file {damaged}")
    if Path(target).exists():
        raise ConfigError(f"{target} exists already: name a new file")
    db = sqlite3.connect(damaged)
    db.row_factory = sqlite3.Row
    pages = 0
    try:
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise FrontierError(f"{damaged} is not a state file of shoal")
        saved = [_recover_crawl(db, crawl, target) for crawl in _rows(db, "crawls")]
        pages, items = sum(pages for pages, _ in saved), sum(items for _, items in saved)
    except NONSENSE as error:
        raise FrontierError(f"nothing can be read of {damaged}: {said_of(error)}") from error
    finally:
        db.close()
        if not pages:
            for file in (target, f"{target}-wal", f"{target}-shm"):
                Path(file).unlink(missing_ok=True)
    if not pages:
        raise FrontierError(f"no URL can be read of {damaged}: start the crawl again")
    return pages, items


def _recover_crawl(db: sqlite3.Connection, row: sqlite3.Row, target: str) -> tuple[int, int]:
    belongs = row["id"]
    items = [item["data"] for item in _rows(db, "items") if item["crawl"] == belongs]
    crawl = CrawlState(
        description=msgspec.json.decode(row["description"]),
        limits=msgspec.json.decode(row["limits"], type=Limits),
        paused=bool(row["paused"]),
        positions=dict(_read(db, "SELECT store, length FROM positions WHERE crawl = ?", belongs)),
        items=max(row["items"], len(items)),
        size_bytes=row["size_bytes"],
        fetches=row["fetches"],
        losses=row["losses"],
        retries=row["retries"],
        elapsed_s=row["elapsed_ms"] / 1000,
        history=tuple(read_minute(*minute) for minute in _read(db, _HISTORY, belongs)),
        token=row["token"],
    )
    snapshot = Snapshot(
        crawl,
        names=iter(_read(db, "SELECT name, host FROM names WHERE crawl = ?", belongs)),
        hosts=_sound(partial(_host, db), _rows(db, "hosts"), belongs),
        pages=_sound(_page, _rows(db, "pages"), belongs),
        contents=iter(_read(db, "SELECT digest, url FROM contents WHERE crawl = ?", belongs)),
        surveys=_sound(dumped_survey, _rows(db, "surveys"), belongs),
    )
    with SqliteFrontier(target, row["name"]) as frontier:
        frontier.load(snapshot)
        frontier.load_items(items)
        return frontier.stats().seen, len(items)


def _page(row: sqlite3.Row) -> PageState:
    """Raises ValueError if the state is none, or the fingerprint not that of the URL: one is damaged."""
    page = dumped_page(row)
    is_itself = page.link is not None and fingerprint(page.link.url, page.link.key) == page.fingerprint
    if not is_itself or page.state not in STATES:
        raise ValueError(row["url"])
    return page


def _host(db: sqlite3.Connection, row: sqlite3.Row) -> HostState:
    where = f"WHERE crawl = ? AND host = {row['id']}"
    cuts = _read(db, f"SELECT rule, count FROM cuts {where}", row["crawl"])
    shapes = _read(db, f"SELECT shape, count FROM shapes {where}", row["crawl"])
    return dumped_host(row, dict(cuts), dict(shapes))


def _read(db: sqlite3.Connection, query: str, crawl: int) -> list[Any]:
    """What a crawl has in a small table, as far as it can be read."""
    rows: list[tuple[Any, ...]] = []
    with suppress(*UNREADABLE):
        rows.extend(map(tuple, db.execute(query, (crawl,))))
    return rows


def _sound(read: Callable[[sqlite3.Row], T], rows: Iterator[sqlite3.Row], crawl: int) -> Iterator[T]:
    """The rows of a crawl that still make sense."""
    for row in rows:
        if row["crawl"] == crawl:
            with suppress(*NONSENSE):
                yield read(row)


def _rows(db: sqlite3.Connection, table: str) -> Iterator[sqlite3.Row]:
    """All rows that can be read, in order. What cannot is stepped over, in steps that double."""
    last, step = 0, 1
    while last < FURTHEST:
        row = None
        with suppress(*UNREADABLE):
            row = db.execute(f"SELECT * FROM {table} WHERE id > ? ORDER BY id LIMIT 1", (last,)).fetchone()
            if row is None:
                return
        if row is None or row["id"] <= last:  # it cannot be read, or the order is lost
            last, step = last + step, step * 2
        else:
            yield row
            last, step = row["id"], 1
