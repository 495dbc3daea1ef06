"""The rows of a crawl out of PostgreSQL: all, through a cursor of the server, or the latest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from shoal.errors import StoreError, StoreUnavailable
from shoal.model import Item
from shoal.store.postgres import CONNECTION, parameters_of, reason_of, shown_database
from shoal.store.postgres_columns import OWN, STORED_AT
from shoal.store.postgres_table import LONGEST_SUFFIX
from shoal.store.read import chosen_crawl

AT_ONCE = 1_000  # rows in memory
_OWN = frozenset({*OWN, STORED_AT})
_LAST_BLOCKS = 64
_LATEST: LiteralString = """
    SELECT * FROM {items} WHERE ctid >= %s::tid AND crawl = %s ORDER BY stored_at DESC, idx DESC LIMIT %s
"""
_HIDDEN = {"crawl", "fingerprint", "idx", "token"}

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]


def postgres_rows(target: str, crawl: str | None) -> Callable[[], Iterator[Item]]:
    """The rows in the order in which they were stored; see `shoal.store.read.stored_rows`."""
    parameters = parameters_of(target)
    name, schema = parameters.pop("table", "items"), parameters.pop("schema", "")
    table, crawls_table = (_table(schema, each) for each in (name, name + LONGEST_SUFFIX))
    with _connected(parameters) as db:
        crawls = [found for (found,) in db.execute(sql.SQL("SELECT crawl FROM {}").format(crawls_table))]
    whose = chosen_crawl(crawl, crawls, shown_database(parameters))

    def rows() -> Iterator[Item]:
        with _connected(parameters) as db, db.cursor("shoal_export") as cursor:
            cursor.itersize = AT_ONCE
            statement = "SELECT * FROM {} WHERE crawl = %s ORDER BY stored_at, fingerprint, idx"
            cursor.execute(sql.SQL(statement).format(table), [whose])
            names = [column.name for column in cursor.description or ()]
            for values in cursor:
                yield {
                    field: _plain(value)
                    for field, value in zip(names, values, strict=True)
                    if value is not None and field not in _OWN
                }

    return rows


def latest_rows(target: str, crawl: str, limit: int) -> list[Item]:
    """The rows stored last, the latest first: as many of them as the last blocks of the table hold.

    So it takes no longer for a longer table. Raises ConfigError and StoreUnavailable.
    """
    parameters = parameters_of(target)
    table, schema = parameters.pop("table", "items"), parameters.pop("schema", "")
    items = _table(schema, table)
    size = "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::int AS blocks"
    try:
        with psycopg.connect(make_conninfo("", **CONNECTION | parameters), row_factory=dict_row) as db:
            (found,) = db.execute(size, [items.as_string(db)]).fetchall()
            first = f"({max(0, found['blocks'] - _LAST_BLOCKS)},0)"
            rows = db.execute(sql.SQL(_LATEST).format(items=items), [first, crawl, limit]).fetchall()
    except psycopg.Error as exc:
        raise StoreUnavailable(
            f"cannot read the rows in {shown_database(parameters)}: {reason_of(exc)}"
        ) from exc
    return [{name: row[name] for name in row if name not in _HIDDEN} for row in rows]


def _table(schema: str, name: str) -> sql.Identifier:
    return sql.Identifier(schema, name) if schema else sql.Identifier(name)


@contextmanager
def _connected(parameters: Mapping[str, str]) -> Iterator[Connection]:
    """A connection that sees everything as it is at one moment, and changes nothing."""
    try:
        with psycopg.connect(make_conninfo("", **CONNECTION | dict(parameters))) as db:
            db.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            db.execute("SET LOCAL timezone = 'UTC'")
            yield db
    except psycopg.Error as error:
        raise StoreError(f"cannot read from {shown_database(parameters)}: {reason_of(error)}") from error


def _plain(value: object) -> object:
    """Numbers of any size as those of Python."""
    if isinstance(value, Decimal):
        whole = value.is_finite() and value == value.to_integral_value()
        return int(value) if whole else float(value)
    return value
