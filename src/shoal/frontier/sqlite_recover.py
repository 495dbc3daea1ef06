"""Save what can be read of a damaged state file into a new one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from shoal.errors import ConfigError, FrontierError
from shoal.frontier.history import GAINS, read_minute
from shoal.frontier.snapshot import CrawlState, HostState, Snapshot
from shoal.frontier.sqlite import SqliteFrontier
from shoal.frontier.sqlite_file import APPLICATION_ID
from shoal.frontier.sqlite_move import dumped_host, dumped_page, dumped_survey
from shoal.model import Limits

FURTHEST = 1 << 40  # no row has a higher number
_HISTORY = f"SELECT minute, {', '.join(GAINS)} FROM history WHERE crawl = ? ORDER BY minute"


def recover(damaged: str, target: str) -> tuple[int, int]:
    """Make the state file `target` of all that can be read; returns the numbers of URLs and rows saved.

    What was leased is queued, and what is lost is found again if a page that links to it is fetched again.
    Raises ConfigError if `target` exists or `damaged` does not, FrontierError if nothing can be read.
    """
    if not Path(damaged).exists():
        raise ConfigError(f"there is no state file {damaged}")
    if Path(target).exists():
        raise ConfigError(f"{target} exists already: name a new file")
    db = sqlite3.connect(damaged)
    db.row_factory = sqlite3.Row
    try:
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise FrontierError(f"{damaged} is not a state file of shoal")
        saved = [_recover_crawl(db, crawl, target) for crawl in _rows(db, "crawls")]
    except sqlite3.DatabaseError as error:
        raise FrontierError(f"nothing can be read of {damaged}: {error}") from error
    finally:
        db.close()
    return sum(pages for pages, _ in saved), sum(items for _, items in saved)


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
        hosts=(_host(db, host) for host in _rows(db, "hosts") if host["crawl"] == belongs),
        pages=(dumped_page(page) for page in _rows(db, "pages") if page["crawl"] == belongs),
        contents=iter(_read(db, "SELECT digest, url FROM contents WHERE crawl = ?", belongs)),
        surveys=(dumped_survey(survey) for survey in _rows(db, "surveys") if survey["crawl"] == belongs),
    )
    with SqliteFrontier(target, row["name"]) as frontier:
        frontier.load(snapshot)
        frontier.load_items(items)
        return frontier.stats().seen, len(items)


def _host(db: sqlite3.Connection, row: sqlite3.Row) -> HostState:
    where = f"WHERE crawl = ? AND host = {row['id']}"
    cuts = _read(db, f"SELECT rule, count FROM cuts {where}", row["crawl"])
    shapes = _read(db, f"SELECT shape, count FROM shapes {where}", row["crawl"])
    return dumped_host(row, dict(cuts), dict(shapes))


def _read(db: sqlite3.Connection, query: str, crawl: int) -> list[Any]:
    """What a crawl has in a small table, as far as it can be read."""
    rows: list[tuple[Any, ...]] = []
    with suppress(sqlite3.DatabaseError):
        rows.extend(map(tuple, db.execute(query, (crawl,))))
    return rows


def _rows(db: sqlite3.Connection, table: str) -> Iterator[sqlite3.Row]:
    """All rows that can be read, in order. What cannot is stepped over, in steps that double."""
    last, step = 0, 1
    while last < FURTHEST:
        try:
            row = db.execute(f"SELECT * FROM {table} WHERE id > ? ORDER BY id LIMIT 1", (last,)).fetchone()
        except sqlite3.DatabaseError:
            last, step = last + step, step * 2
            continue
        if row is None:
            return
        yield row
        last, step = row["id"], 1
