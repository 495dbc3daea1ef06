"""The latest rows of a store, as it is now: read only, and no more of it than is shown."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path, PurePath

from shoal.errors import ConfigError, StoreUnavailable
from shoal.model import Item
from shoal.place import shown
from shoal.store import BUCKETS, form_of_parts
from shoal.store.read import Parts

TAIL_BYTES = 256_000
WAIT_S = 5
PARTS = ("parquet:", *(f"{kind}://" for kind in BUCKETS))

Latest = Callable[[str, int], list[Item]]
"""Reads so many rows of a crawl, the latest first. Raises StoreError and StoreUnavailable."""


def latest_rows(target: str) -> Latest:
    """What reads the rows of a target as `shoal.store.open_store` takes it. Raises ConfigError for others."""
    if target.startswith(("postgresql://", "postgres://")):
        return lambda crawl, limit: _postgres(target, crawl, limit)
    if target.startswith("sqlite:"):
        return lambda crawl, limit: _sqlite(target.removeprefix("sqlite:"), crawl, limit)
    if form_of_parts(target) and target.startswith(PARTS):
        parts = Parts(target)
        return lambda crawl, limit: parts.latest(limit)
    match PurePath(target).suffix.lower() if "://" not in target else "":
        case ".jsonl" | ".ndjson":
            return lambda crawl, limit: _jsonl(target, limit)
        case ".csv":
            return lambda crawl, limit: _csv(target, limit)
    raise ConfigError(
        f"the dashboard cannot show rows of {shown(target)}: it reads FILE.jsonl, FILE.csv, sqlite:FILE,"
        " postgresql://..., parquet:DIR and s3://BUCKET/NAME.jsonl or .parquet (or gs://, az://)"
    )


def _tail(file: str) -> tuple[bytes, bytes]:
    """The first line of a file, and its last whole lines."""
    try:
        with Path(file).open("rb") as opened:
            head = opened.readline(TAIL_BYTES)
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - TAIL_BYTES))
            tail = opened.read(TAIL_BYTES)
    except OSError as error:
        raise StoreUnavailable(f"cannot read {file}: {error.strerror}") from error
    if size > TAIL_BYTES:
        tail = tail.partition(b"\n")[2]
    return head, tail.rpartition(b"\n")[0]


def _jsonl(file: str, limit: int) -> list[Item]:
    rows: list[Item] = []
    for line in reversed(_tail(file)[1].split(b"\n")):
        if line and len(rows) < limit:
            try:
                row = json.loads(line)
            except ValueError:  # it is being written
                continue
            rows.append(row if isinstance(row, dict) else {"": row})
    return rows


def _csv(file: str, limit: int) -> list[Item]:
    """If a value has line breaks, the first row of what is read may be a part of one, and is left out."""
    head, tail = _tail(file)
    (names,) = [*csv.reader([head.decode(errors="replace")])] or [[]]
    rows = list(csv.reader(io.StringIO(tail.decode(errors="replace"), newline="")))
    found: list[Item] = [
        dict(zip(names, row, strict=True)) for row in rows if len(row) == len(names) and row != names
    ]
    return list(reversed(found))[:limit]


def _sqlite(file: str, crawl: str, limit: int) -> list[Item]:
    try:
        with closing(sqlite3.connect(f"file:{Path(file).resolve()}?mode=ro", uri=True, timeout=WAIT_S)) as db:
            db.row_factory = sqlite3.Row
            found = db.execute(
                "SELECT * FROM items WHERE _crawl = ? ORDER BY _position DESC LIMIT ?", (crawl, limit)
            )
            return [{name: row[name] for name in row.keys() if name[0] != "_"} for row in found]  # noqa: SIM118
    except sqlite3.Error as error:
        raise StoreUnavailable(f"cannot read {file}: {error}") from error


def _postgres(target: str, crawl: str, limit: int) -> list[Item]:
    try:
        from shoal.store.postgres_read import latest_rows as read
    except ImportError:
        raise ConfigError("PostgreSQL needs another package: pip install 'shoal[postgres]'") from None
    return read(target, crawl, limit)
