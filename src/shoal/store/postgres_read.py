"""The rows of a crawl out of PostgreSQL, through a cursor of the server: it does not matter how many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, TypeAlias

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from shoal.errors import StoreError
from shoal.model import Item
from shoal.store.postgres import CONNECTION, parameters_of, reason_of, shown_database
from shoal.store.postgres_columns import OWN, STORED_AT
from shoal.store.postgres_table import LONGEST_SUFFIX
from shoal.store.read import chosen_crawl

AT_ONCE = 1_000  # rows in memory
_OWN = frozenset({*OWN, STORED_AT})

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
