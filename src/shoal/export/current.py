"""Of pages that were visited again, the rows of the last visit that changed something.

Tables replace the rows of such a page, files keep them all: there they are told apart by `last_changed`.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

import xxhash

from shoal.model import Item
from shoal.store.encode import to_item
from shoal.store.read import Rows

CHANGED = "last_changed"
AT_ONCE = 500


def current(rows: Rows) -> Rows:
    """The rows without those that later visits of their pages have replaced.

    Looks through all of them first, if they are of a crawl with revisits, and keeps 30 bytes for each page
    on disk, not in memory. Rows without a `url` all stay, since nobody knows their pages.
    """
    first = next(iter(rows()), None)
    if first is None or CHANGED not in first:
        return rows
    return lambda: _current(rows)


def _current(rows: Rows) -> Iterator[Item]:
    with (
        tempfile.TemporaryDirectory(prefix="shoal-") as folder,
        closing(sqlite3.connect(Path(folder) / "pages", isolation_level=None)) as db,
    ):
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("CREATE TABLE pages (url BLOB PRIMARY KEY, changed) WITHOUT ROWID")
        db.execute("BEGIN")
        _find_latest(db, rows())
        for row in rows():
            page, changed = _visit(row)
            if page is None or changed >= _latest(db, page):
                yield row


def _find_latest(db: sqlite3.Connection, rows: Iterable[Item]) -> None:
    visits = ((page, changed) for page, changed in map(_visit, rows) if page is not None)
    while some := list(islice(visits, AT_ONCE)):
        db.executemany(
            "INSERT INTO pages VALUES (?, ?) ON CONFLICT (url) DO UPDATE SET changed ="
            " max(changed, excluded.changed)",
            some,
        )


def _latest(db: sqlite3.Connection, page: bytes) -> str:
    found = db.execute("SELECT changed FROM pages WHERE url = ?", (page,)).fetchone()
    return str(found[0]) if found else ""


def _visit(row: Item) -> tuple[bytes | None, str]:
    """The page of a row, and when that had changed."""
    url, changed = row.get("url"), row.get(CHANGED)
    page = None if url is None or changed is None else xxhash.xxh3_128_digest(str(url).encode())
    return page, changed if isinstance(changed, str) else str(to_item({"at": changed})["at"])
