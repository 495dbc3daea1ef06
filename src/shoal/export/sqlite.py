"""Rows into an SQLite database: the table `items`, with a column for each field."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from itertools import islice
from pathlib import Path

from shoal.errors import StoreError
from shoal.store.encode import to_item
from shoal.store.read import Rows
from shoal.store.sqlite import column_value, quoted

AT_ONCE = 500  # rows in memory


def export_sqlite(rows: Rows, file: Path) -> int:
    """Write all rows to the empty file, in one pass; returns how many. Raises StoreError, and OSError.

    Values are those of `shoal.store.sqlite`; a field that is met for the first time adds a column.
    """
    count, columns = 0, list[str]()
    left = iter(rows())
    try:
        with closing(sqlite3.connect(file, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = OFF")  # what does not come to its end is thrown away
            db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN")
            while some := [to_item(row) for row in islice(left, AT_ONCE)]:
                _widen(db, columns, dict.fromkeys(field for row in some for field in row))
                db.executemany(_insert(tuple(columns)), [_values(row, columns) for row in some])
                count += len(some)
            db.execute("COMMIT")
    except sqlite3.OperationalError as error:  # as when the disk is full
        raise OSError(str(error)) from error
    return count


def _widen(db: sqlite3.Connection, columns: list[str], fields: Iterable[str]) -> None:
    for field in fields:
        if field in columns:
            continue
        try:
            statement = "ALTER TABLE items ADD COLUMN" if columns else "CREATE TABLE items ("
            db.execute(f"{statement} {quoted(field)}{'' if columns else ')'}")
        except sqlite3.Error as error:
            raise StoreError(f'the field "{field}" cannot be a column ({error})') from error
        columns.append(field)


@lru_cache(16)
def _insert(columns: tuple[str, ...]) -> str:
    if not columns:
        raise StoreError("rows without any field cannot be written to a database")
    return f"INSERT INTO items ({', '.join(map(quoted, columns))}) VALUES ({', '.join('?' * len(columns))})"


def _values(row: Mapping[str, object], columns: Sequence[str]) -> list[object]:
    return [column_value(row.get(column)) for column in columns]
