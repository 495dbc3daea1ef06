"""A table in PostgreSQL, shared by any number of workers on any number of machines.

    items   crawl, fingerprint, idx, token, url, stored_at, and one column for each field

(crawl, fingerprint, idx) is the key: `idx` counts the rows of a page. `url` is the page's URL unless the row
has a field of that name. What else the columns are called and which types they have is said in
`shoal.store.postgres_columns`.

Nobody waits while a worker commits, so rows cannot be cut off as from a file; they are replaced. The end of
a page, with rows or without, removes the rows that lower tokens have brought for this page, and changes
nothing once a higher one was there. So a worker that dies between writing and committing leaves rows until
its page is done again, and a zombie's rows never replace those of the worker that took its page over. The
position is the generation of the crawl in this table, by which a frontier and its rows know each other.

A page that was visited again and has not changed keeps its rows, with another `last_seen`; so does one that
could not be read this time.

This rests on tokens that grow, even if the frontier goes back to an earlier moment. Rows that a lost lease
has left stay if the page never ends again: if it dies of `max_losses`, or the crawl is given up.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from shoal.errors import ConfigError, ShoalError, StoreError, StoreUnavailable
from shoal.model import Outcome
from shoal.store.base import Committed, Position, Store
from shoal.store.encode import to_item
from shoal.store.postgres_columns import NAME_BYTES, column_name
from shoal.store.postgres_table import LONGEST_SUFFIX, Page, Table

CONNECTION = {
    "application_name": "shoal",
    "connect_timeout": "10",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",  # milliseconds
}
"""So that a server that is gone is noticed within half a minute; the URL may say otherwise."""

_WRONG_URL = (
    "this is no PostgreSQL URL: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME, "
    "and in each part %XX for characters like / @ : ?"
)
_OWN_PARAMETERS = {"table", "schema"}

_SESSION = "SET lock_timeout = '30s'; SET enable_seqscan = off"
_GENERATIONS = 2**48  # frontiers may keep numbers as doubles

logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of what it raises as well

_FOR_NOW = ("08", "25006", "40", "42703", "42804", "53", "55", "57", "58")
"""Beginnings of the SQLSTATEs of what passes: no connection, read-only (a failover), conflicts, columns that
others keep changing, no resources, locked, the administrator's doing, the server's disk."""


class PostgresStore(Store):
    """The rows of one crawl in one table.

    target: postgresql://USER:PASSWORD@HOST:PORT/DATABASE?table=NAME&schema=NAME; the query may hold libpq's
    parameters as well, and what is left out is what libpq takes from the environment (PGPASSWORD, ...).
    The table is `items` unless named, in the first schema of the search path unless named.
    fields: columns for text to have from the start.
    sync: whether to leave it to the server when rows are durable, by default before `write` goes on;
    without, a crash of the server may take rows that are committed.
    Raises ConfigError for a target that cannot be read.
    """

    def __init__(self, target: str, crawl: str, fields: Sequence[str] = (), *, sync: bool = True) -> None:
        self._parameters = parameters_of(target)
        self._name = self._parameters.pop("table", "items")
        self._schema = self._parameters.pop("schema", "")
        self._where = shown_database(self._parameters)
        if not 0 < len(self._name.encode()) <= NAME_BYTES - len(LONGEST_SUFFIX):
            raise ConfigError(f'"{self._name}" cannot be the name of a table: it needs 1 to 56 bytes')
        self.name = f"postgresql:{self._schema}.{self._name}"  # whichever way the server is reached
        self._crawl = crawl
        self._fields = tuple(fields)
        self._sync = sync
        self._generation = 0
        self._table: Table | None = None

    @contextmanager
    def open(self, *, committed: Committed, fresh: bool) -> Iterator[Position]:
        """See `Store.open`. A server that cannot be reached is a StoreError if the crawl never was there."""
        new = committed(self.name) is None
        try:
            with self._translated(unreachable=StoreError if new else StoreUnavailable):
                table = self._connect()
                with table.transaction():
                    self._make(table)
                    self._generation = self._start(table, committed, fresh)
                table.replace([], self._generation)  # try whether it may be done
            yield self.name, self._generation
        except BaseException:
            self.close()
            raise

    @contextmanager
    def write(self, outcomes: Sequence[Outcome], *, committed: Committed) -> Iterator[Position]:
        """See `Store.write`. After StoreUnavailable the next write connects anew."""
        pages = _pages(outcomes)
        if pages or not outcomes:
            with self._translated(unreachable=StoreUnavailable):
                self._replace(pages)
        yield self.name, self._generation

    def close(self) -> None:
        """See `Store.close`."""
        if self._table is not None:
            self._table.close()
            self._table = None

    def _connect(self) -> Table:
        self.close()
        conninfo = make_conninfo("", **CONNECTION | self._parameters)
        db = psycopg.connect(conninfo, autocommit=True, cursor_factory=psycopg.RawCursor)
        db.execute(_SESSION if self._sync else f"{_SESSION}; SET synchronous_commit = off")
        self._table = Table(db, self._schema, self._name, self._crawl)
        return self._table

    def _make(self, table: Table) -> None:
        """Make the tables, or see to it that they are ours."""
        if table.encoding != "UTF8":
            raise StoreError(
                f"{self._where} is encoded in {table.encoding}, which lacks letters; take one in UTF8"
            )
        if not table.make():
            raise StoreError(
                f'{self._where} has a table "{self._name}" already, of something else: '
                "name another one with ?table=NAME"
            )
        table.fit({column_name(field): {"text"} for field in self._fields})

    def _start(self, table: Table, committed: Committed, fresh: bool) -> int:
        """Find out whose rows are there; returns the generation of this crawl."""
        generation = table.generation()
        in_use = table.in_use(generation)
        recorded = committed(self.name)  # asked last: a generation is recorded before its first rows
        if fresh:
            table.clear(generation)
        elif recorded is None and in_use:
            raise StoreError(
                f'{self._where} holds rows of another crawl that is called "{self._crawl}" too: '
                "name another table with ?table=NAME, or replace them with --fresh"
            )
        elif recorded not in (None, generation):
            raise StoreError(
                f"rows are missing from {self._where} that this crawl had written: "
                "put its tables back, or start over with --fresh"
            )
        return table.begin(1 + secrets.randbelow(_GENERATIONS))

    def _replace(self, pages: Sequence[Page]) -> None:
        """Write, on a new connection if there is none or the old one turns out to be broken."""
        assert self._generation, "open() comes first"
        if self._table is not None:
            try:
                self._replace_in(self._table, pages)
                return
            except psycopg.OperationalError:
                if not self._table.closed:
                    raise
        self._replace_in(self._connect(), pages)

    def _replace_in(self, table: Table, pages: Sequence[Page]) -> None:
        if not table.replace(pages, self._generation):
            raise StoreError(f'the crawl "{self._crawl}" was started afresh in {self._where} meanwhile')

    @contextmanager
    def _translated(self, unreachable: type[ShoalError]) -> Iterator[None]:
        """Raise errors of psycopg as ours. unreachable: the one for having no connection."""
        try:
            yield
        except psycopg.Error as exc:
            kind = _kind(exc, unreachable)
            if kind is StoreUnavailable:
                self.close()
            raise kind(f"cannot write to {self._where}: {reason_of(exc)}") from exc


def _pages(outcomes: Sequence[Outcome]) -> list[Page]:
    """The pages that have ended; one that a worker had twice counts as its later lease left it."""
    ended = [outcome for outcome in outcomes if outcome.items or outcome.state != "queued"]
    ended.sort(key=lambda outcome: outcome.lease.token)
    latest = {outcome.lease.fingerprint: outcome for outcome in ended}
    return [_page(outcome) for outcome in latest.values()]


def _page(outcome: Outcome) -> Page:
    lease, seen = outcome.lease, outcome.visit.fields() if outcome.visit else {}
    if outcome.keeps_rows:
        return Page(lease.fingerprint, lease.token, None, seen.get("last_seen"))
    url = {"url": lease.link.url}
    rows = [
        url | {column_name(field): value for field, value in to_item(item).items()} | seen
        for item in outcome.items
    ]
    return Page(lease.fingerprint, lease.token, rows)


def _kind(exc: psycopg.Error, unreachable: type[ShoalError]) -> type[ShoalError]:
    if exc.sqlstate is None:
        return unreachable if isinstance(exc, psycopg.OperationalError) else StoreError
    return StoreUnavailable if exc.sqlstate.startswith(_FOR_NOW) else StoreError


def reason_of(exc: psycopg.Error) -> str:
    """In one line; of several attempts to connect, the first."""
    line = exc.diag.message_primary or str(exc).partition("\n")[0]
    return line.rpartition("failed: ")[2].removeprefix("FATAL:").strip()


# --- targets -------------------------------------------------------------------------------------


def parameters_of(target: str) -> dict[str, str]:
    """All parameters of the URL by name, ours too. Errors show nothing of it: it may hold a password."""
    url, _, query = target.partition("?")
    pairs = [part.partition("=")[::2] for part in query.split("&") if part]
    try:
        place = {name: str(value) for name, value in conninfo_to_dict(url).items() if value is not None}
        parameters = place | {unquote(name): unquote(value) for name, value in pairs}
        make_conninfo(" ".join(f"{name}=''" for name in parameters.keys() - _OWN_PARAMETERS))
    except psycopg.ProgrammingError:
        raise ConfigError(_WRONG_URL) from None
    host, port, database = _place(parameters)
    if "@" in host + database or not re.fullmatch(r"[\d,]*", port):
        raise ConfigError(_WRONG_URL)  # a password with "@" or "/" in it went on elsewhere
    return parameters


def shown_database(parameters: Mapping[str, str]) -> str:
    """The database, for people: without user, password and options."""
    host, port, database = _place(parameters)
    return f"postgresql://{host}{port and ':'}{port}/{database}"


def _place(parameters: Mapping[str, str]) -> tuple[str, str, str]:
    """Host, port and database, as far as they are given."""
    return parameters.get("host", ""), parameters.get("port", ""), parameters.get("dbname", "")
