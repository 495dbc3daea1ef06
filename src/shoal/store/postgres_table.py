"""The tables of a PostgreSQL store over one connection: all SQL is here. Errors are psycopg's own.

    items           crawl, fingerprint, idx, token, url, stored_at, and one column for each field
    items_pages     generation, fingerprint, token: whose rows `items` has, for every page that ended
    items_crawls    crawl, generation: changes when the crawl starts afresh

Each page is looked up by its key. The connection should be told not to read whole tables instead
(enable_seqscan): PostgreSQL keeps the plans that it made while they were small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import lru_cache
from typing import Any, LiteralString, NamedTuple, TypeAlias

import psycopg
from psycopg import sql
from psycopg.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    InsufficientPrivilege,
    TooManyColumns,
    UndefinedColumn,
)

from shoal.errors import StoreError
from shoal.store.encode import to_json
from shoal.store.postgres_columns import OWN, STORED_AT, Kinds, changes, is_foreign, kinds_of, without_nul

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
"""One that commits each statement and takes parameters as $1, $2, ..."""

Columns: TypeAlias = tuple[tuple[str, str], ...]
"""Names and types."""

LONGEST_SUFFIX = "_crawls"

_ALTERING = 0x73686F616C  # "shoal": who changes tables keeps others from changing them at the same time

_DEFINITIONS: dict[str, LiteralString] = {
    "items": """CREATE TABLE {items} (
        crawl text NOT NULL, fingerprint bigint NOT NULL, idx integer NOT NULL, token bigint NOT NULL,
        url text, stored_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (crawl, fingerprint, idx))""",
    "pages": """CREATE TABLE {pages} (
        generation bigint, fingerprint bigint, token bigint NOT NULL,
        PRIMARY KEY (generation, fingerprint))""",
    "crawls": "CREATE TABLE {crawls} (crawl text PRIMARY KEY, generation bigint NOT NULL)",
}

# Every batch takes its pages in the same order, so that no two batches wait for each other.
_CLAIM: LiteralString = """
    INSERT INTO {pages} AS page (generation, fingerprint, token)
    SELECT crawl.generation, ended.fingerprint, ended.token
    FROM {crawls} AS crawl, unnest($1::bigint[], $2::bigint[]) AS ended (fingerprint, token)
    WHERE crawl.crawl = $3 AND crawl.generation = $4
    ORDER BY ended.fingerprint
    FOR SHARE OF crawl
    ON CONFLICT (generation, fingerprint)
        DO UPDATE SET token = excluded.token WHERE page.token <= excluded.token
"""
_REMOVE: LiteralString = """
    DELETE FROM {items} AS item
    USING unnest($1::bigint[], $2::bigint[]) AS ended (fingerprint, token)
    WHERE item.crawl = $3 AND item.fingerprint = ended.fingerprint AND ended.token = (
        SELECT page.token FROM {pages} AS page
        WHERE page.generation = $4 AND page.fingerprint = ended.fingerprint
    )
"""
_SEE_AGAIN: LiteralString = """
    UPDATE {items} AS item SET last_seen = {seen_at}
    FROM unnest($1::bigint[], $2::bigint[], $3::timestamptz[]) AS seen (fingerprint, token, at)
    WHERE item.crawl = $4 AND item.fingerprint = seen.fingerprint AND seen.token = (
        SELECT page.token FROM {pages} AS page
        WHERE page.generation = $5 AND page.fingerprint = seen.fingerprint
    )
"""
_INSERT: LiteralString = """
    INSERT INTO {items} (crawl, {names})
    SELECT $1, {names} FROM json_to_recordset($2) AS item ({columns})
    WHERE item.token = (
        SELECT page.token FROM {pages} AS page
        WHERE page.generation = $3 AND page.fingerprint = item.fingerprint
    )
"""


class Page(NamedTuple):
    """How a page ended."""

    fingerprint: int
    token: int
    rows: Sequence[Mapping[str, object]] | None
    """Values (builtins, or moments) by column; None: the rows that are there stay."""
    seen_at: datetime | None = None
    """When they were seen again."""


class Table:
    """The table of rows, and the two that go with it, for one crawl."""

    def __init__(self, db: Connection, schema: str, name: str, crawl: str) -> None:
        """schema: an empty one means the first of the search path."""
        self._db = db
        self._crawl = crawl
        schema = schema or _current_schema(db)
        self._names = _Names(schema, name)
        self._columns: dict[str, str] = {}
        """With their types; may lack what other processes have changed."""

    @property
    def closed(self) -> bool:
        """Whether the connection is closed, or broken."""
        return self._db.closed

    @property
    def encoding(self) -> str | None:
        """Of the database."""
        return self._db.info.parameter_status("server_encoding")

    def close(self) -> None:
        """Close the connection."""
        self._db.close()

    def transaction(self) -> AbstractContextManager[object]:
        """All that is done inside, or nothing."""
        return self._db.transaction()

    def make(self) -> bool:
        """Make what is missing; returns whether the rows' table is one of ours."""
        with self._db.transaction():
            self._run("SELECT pg_advisory_xact_lock($1)", _ALTERING)
            for table, definition in _DEFINITIONS.items():
                if self._value("SELECT to_regclass($1)", self._quoted(table)) is None:
                    self._run(definition)
        self._columns = self._read_columns()
        return self._columns.items() >= OWN.items() and STORED_AT in self._columns

    def generation(self) -> int | None:
        """The crawl's, locked until the transaction ends; None if the crawl is new."""
        found = self._value("SELECT generation FROM {crawls} WHERE crawl = $1 FOR UPDATE", self._crawl)
        return None if found is None else int(found)

    def in_use(self, generation: int | None) -> bool:
        """Whether any page of the crawl has ended."""
        return bool(self._value("SELECT 1 FROM {pages} WHERE generation = $1 LIMIT 1", generation))

    def begin(self, generation: int) -> int:
        """Give the crawl a generation, unless it has one; returns the one it has."""
        self._run("INSERT INTO {crawls} VALUES ($1, $2) ON CONFLICT DO NOTHING", self._crawl, generation)
        return int(self._value("SELECT generation FROM {crawls} WHERE crawl = $1", self._crawl))

    def clear(self, generation: int | None) -> None:
        """Remove all that belongs to the crawl."""
        self._run("DELETE FROM {crawls} WHERE crawl = $1", self._crawl)
        self._run("DELETE FROM {items} WHERE crawl = $1", self._crawl)
        self._run("DELETE FROM {pages} WHERE generation = $1", generation)

    def fit(self, kinds: Kinds) -> None:
        """Add the columns that are missing, and widen those that cannot hold such values."""
        if not changes(self._columns, kinds):
            return
        with self._db.transaction():
            self._run("SELECT pg_advisory_xact_lock($1)", _ALTERING)
            self._columns = self._read_columns()
            needed = changes(self._columns, kinds)
            if needed:
                self._alter(needed)
        self._columns |= needed

    def replace(self, pages: Sequence[Page], generation: int) -> bool:
        """Put the rows of `pages` in the place of those that lower tokens have brought, in one transaction.

        Returns False, and changes nothing, if the crawl has another generation.
        Without any page it tries whether everything may be done.
        """
        kinds = kinds_of(row for page in pages for row in page.rows or ())
        needed = kinds | {"last_seen": {"time"}} if any(page.seen_at for page in pages) else kinds
        try:
            self.fit(needed)
            return self._replace(pages, generation, self._of_type(kinds))
        except (UndefinedColumn, DatatypeMismatch):
            self._columns = self._read_columns()  # somebody has changed them meanwhile
            self.fit(needed)
            return self._replace(pages, generation, self._of_type(kinds))

    def _replace(self, pages: Sequence[Page], generation: int, columns: Columns) -> bool:
        read = [page for page in pages if page.rows is not None]
        seen = [page for page in pages if page.seen_at is not None]
        rows = _to_json(pages)
        try:
            with self._db.pipeline():  # all is sent at once, and is one transaction
                claimed = self._run(_CLAIM, *_keys(pages), self._crawl, generation)
                self._run(_REMOVE, *_keys(read), self._crawl, generation)
                if seen:
                    times = [page.seen_at for page in seen]
                    statement = _see_again(self._names, self._columns["last_seen"])
                    self._db.execute(statement, [*_keys(seen), times, self._crawl, generation])
                if columns or not pages:
                    self._db.execute(_insert(self._names, columns), [self._crawl, rows, generation])
        except psycopg.DataError:
            self._blame(rows, columns)
            raise
        return claimed.rowcount > 0 or self._is_current(generation)

    def _is_current(self, generation: int) -> bool:
        return bool(
            self._value(
                "SELECT 1 FROM {crawls} WHERE crawl = $1 AND generation = $2", self._crawl, generation
            )
        )

    def _blame(self, rows: str, columns: Columns) -> None:
        """Say which column it is that does not take its values: one whose type others have chosen."""
        for name, kind in columns:
            if is_foreign(kind):
                try:
                    self._db.execute(_only(name, kind), [rows])
                except psycopg.DataError as exc:
                    reason = exc.diag.message_primary
                    raise StoreError(f'the column "{name}" ({kind}) does not take it: {reason}') from exc

    def _alter(self, needed: Mapping[str, str]) -> None:
        steps = [_step(name, kind, self._columns.get(name)) for name, kind in needed.items()]
        try:
            self._db.execute(
                sql.SQL("ALTER TABLE {} ").format(self._names.quoted()["items"]) + sql.SQL(", ").join(steps)
            )
        except (TooManyColumns, FeatureNotSupported, InsufficientPrivilege, DatatypeMismatch) as exc:
            wanted = ", ".join(f'"{name}" ({kind})' for name, kind in needed.items())
            raise StoreError(f"the columns {wanted} cannot be had: {exc.diag.message_primary}") from exc

    def _of_type(self, kinds: Kinds) -> Columns:
        return tuple((name, self._columns[name]) for name in kinds)

    def _read_columns(self) -> dict[str, str]:
        return dict(
            self._run(
                """SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
                   WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped""",
                self._quoted("items"),
            )
        )

    def _quoted(self, table: str) -> str:
        return self._names.quoted()[table].as_string()

    def _value(self, statement: LiteralString, *values: object) -> Any:
        """The one value that is asked for; None if there is none."""
        row = self._run(statement, *values).fetchone()
        return row and row[0]

    def _run(self, statement: LiteralString, *values: object) -> psycopg.Cursor[tuple[Any, ...]]:
        return self._db.execute(_named(statement, self._names), values)


def _current_schema(db: Connection) -> str:
    row = db.execute("SELECT coalesce(current_schema(), 'public')").fetchone()
    assert row is not None
    return str(row[0])


class _Names(NamedTuple):
    schema: str
    table: str

    def quoted(self) -> dict[str, sql.Identifier]:
        """The three tables, by what the statements call them."""
        suffixes = {"items": "", "pages": "_pages", "crawls": LONGEST_SUFFIX}
        return {name: sql.Identifier(self.schema, self.table + end) for name, end in suffixes.items()}


@lru_cache(64)
def _named(statement: LiteralString, names: _Names) -> bytes:
    return sql.SQL(statement).format(**names.quoted()).as_bytes()


@lru_cache(64)
def _insert(names: _Names, columns: Columns) -> bytes:
    """The statement for rows with these columns."""
    own = tuple((name, kind) for name, kind in OWN.items() if name != "crawl")
    listed = [sql.Identifier(name) for name, _ in own + columns]
    typed = [_typed(name, kind) for name, kind in own + columns]
    comma = sql.SQL(", ")
    return (
        sql.SQL(_INSERT)
        .format(**names.quoted(), names=comma.join(listed), columns=comma.join(typed))
        .as_bytes()
    )


@lru_cache(64)
def _see_again(names: _Names, kind: str) -> bytes:
    """The statement for rows that were seen again, in a column of this type."""
    seen_at = sql.SQL("to_jsonb(seen.at)" if kind == "jsonb" else "seen.at")
    return sql.SQL(_SEE_AGAIN).format(**names.quoted(), seen_at=seen_at).as_bytes()


def _keys(pages: Sequence[Page]) -> tuple[list[int], list[int]]:
    """Fingerprints and tokens."""
    return [page.fingerprint for page in pages], [page.token for page in pages]


def _typed(name: str, kind: str) -> sql.Composed:
    """As in a list of columns; `kind` is a type in PostgreSQL's own spelling, or one of ours."""
    return sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))


def _only(name: str, kind: str) -> sql.Composed:
    """Read one column of the rows and nothing else."""
    return sql.SQL("SELECT {} FROM json_to_recordset($1) AS item ({})").format(
        sql.Identifier(name), _typed(name, kind)
    )


def _step(name: str, kind: str, before: str | None) -> sql.Composed:
    """Of ALTER TABLE: a column that is new, or gets a wider type. No digit is lost on the way."""
    if before is None:
        return sql.SQL("ADD COLUMN ") + _typed(name, kind)
    value: LiteralString = "to_jsonb({0})" if kind == "jsonb" else "{0}::text::numeric"
    return sql.SQL("ALTER COLUMN {0} TYPE {1} USING " + value).format(sql.Identifier(name), sql.SQL(kind))


def _to_json(pages: Sequence[Page]) -> str:
    """All rows, each with what tells it apart."""
    rows = [
        {"fingerprint": page.fingerprint, "idx": idx, "token": page.token, **row}
        for page in pages
        for idx, row in enumerate(page.rows or ())
    ]
    encoded = to_json(rows)
    if b"\\u0000" in encoded:
        encoded = to_json(without_nul(rows))
    return encoded.decode()
