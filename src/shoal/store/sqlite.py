"""A table of rows in an SQLite file of its own. The position is the number of the last row.

    items   _position, _crawl, _fingerprint, _idx, _token, url, and one column for each field

`url` is the page's URL unless the row has a field of that name. A field seen for the first time adds a
column; it has no type, so that numbers stay numbers and text stays text. Lists and mappings are JSON
text, integers beyond 64 bits text, true and false 1 and 0. The columns with an underscore are shoal's own:
`_idx` counts the rows of a page, and (_crawl, _fingerprint, _idx) is unique. A page done again replaces
its rows, all of them; rows with a lower token never replace those with a higher one. A page that was visited
again and is gone loses them; one that has not changed keeps them, with another `last_seen`.

Several processes may write to one file, and several crawls, if their names differ. As long as a crawl has
no rows, its position is minus its mark, which is in the file, too: of two crawls with one name that begin
together the later one goes on.

With `sync` a power cut costs what a crash costs: pages that were not committed are done again. Without it a
power cut may take rows that the frontier remembers as committed; opening the store then says that rows are
missing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from shoal.errors import StoreError, StoreUnavailable
from shoal.model import Lease, Outcome
from shoal.store.base import BUSY_S, Committed, Position, Store, absolute, drawn_mark
from shoal.store.encode import to_cell, to_item

_OWN = ("_position", "_crawl", "_fingerprint", "_idx", "_token")
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS items (
        _position INTEGER PRIMARY KEY, _crawl TEXT, _fingerprint INTEGER, _idx INTEGER, _token INTEGER, url
    )""",
    "CREATE UNIQUE INDEX IF NOT EXISTS items_by_page ON items (_crawl, _fingerprint, _idx)",
    "CREATE TABLE IF NOT EXISTS shoal_positions (crawl TEXT PRIMARY KEY, position INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS shoal_marks (crawl TEXT PRIMARY KEY, mark INTEGER NOT NULL)",
)
_FOR_NOW = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}


class SqliteStore(Store):
    """The rows of one crawl in the table `items`. fields: columns to have from the start, in this order."""

    def __init__(
        self, path: str | os.PathLike[str], crawl: str, fields: Sequence[str] = (), *, sync: bool = True
    ) -> None:
        self.path = Path(path)
        self.name = f"sqlite:{absolute(path)}"
        self._crawl = crawl
        self._fields = tuple(fields)
        self._sync = sync
        self._columns: tuple[str, ...] = ()
        """Of the fields; may lack what other processes have added."""
        self._db: sqlite3.Connection | None = None

    @contextmanager
    def open(self, *, committed: Committed, fresh: bool) -> Iterator[Position]:
        """See `Store.open`."""
        if not fresh and not os.access(self.path, os.F_OK) and (committed(self.name) or 0) > 0:
            raise self._rows_missing()
        try:
            self._connect()
            with self._transaction():
                self._make_room(committed(self.name), fresh)
            with self._transaction():
                yield self.name, self._start(None if fresh else committed(self.name))
        except BaseException:
            self.close()
            raise

    @contextmanager
    def write(self, outcomes: Sequence[Outcome], *, committed: Committed) -> Iterator[Position]:
        """See `Store.write`."""
        end = self._append(outcomes, committed)
        try:
            yield self.name, end
        finally:
            with self._ending():
                self._cut(committed(self.name))

    def close(self) -> None:
        """See `Store.close`."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _connect(self) -> None:
        self.close()
        try:
            self._db = sqlite3.connect(
                self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as exc:
            raise self._error(exc) from exc
        columns = self._table()
        if columns and columns[: len(_OWN)] != _OWN:
            raise StoreError(f'{self.path} has a table "items" already, of something else: name another file')
        self._run("PRAGMA journal_mode = WAL")
        self._run(f"PRAGMA synchronous = {'FULL' if self._sync else 'NORMAL'}")

    def _make_room(self, position: int | None, fresh: bool) -> None:
        """Make the tables, and remove the mark of an earlier crawl with this name that got no further.

        So one that is killed when its own is recorded, but not in the file yet, can be resumed.
        """
        for statement in _SCHEMA:
            self._run(statement)
        self._widen(self._fields)
        if fresh:
            self._run("DELETE FROM items WHERE _crawl = ?", (self._crawl,))
            self._run("DELETE FROM shoal_positions WHERE crawl = ?", (self._crawl,))
        if fresh or position is None:
            self._refuse_rows()
            self._run("DELETE FROM shoal_marks WHERE crawl = ?", (self._crawl,))

    def _start(self, position: int | None) -> int:
        """Where this crawl goes on, whose position is `position`; None: it has none yet."""
        if position is None:
            self._refuse_rows()
            position = -drawn_mark()
        if position < 0:
            self._run("INSERT OR IGNORE INTO shoal_marks VALUES (?, ?)", (self._crawl, -position))
        self._run("INSERT OR IGNORE INTO shoal_positions VALUES (?, 0)", (self._crawl,))
        return self._cut(position)

    def _refuse_rows(self) -> None:
        if self._number("SELECT 1 FROM items WHERE _crawl = ? LIMIT 1", (self._crawl,)):
            raise self._foreign("holds rows")

    def _append(self, outcomes: Sequence[Outcome], committed: Committed) -> int:
        """Add the rows; returns where they end, in a transaction that keeps all others from writing.

        The rows must be on disk before the caller commits, but to put them there is to give up the lock.
        It is taken again at once; if somebody was quicker, who saw rows that are not committed and cut
        them off, they are added again.
        """
        while True:
            with self._transaction():
                end = self._insert(outcomes, self._cut(committed(self.name)))
                version = self._number("PRAGMA data_version")
            self._run("BEGIN IMMEDIATE")
            if self._number("PRAGMA data_version") == version:
                return end
            self._run("ROLLBACK")

    def _cut(self, position: int | None) -> int:
        """Drop what nobody committed; returns the position."""
        if position is None:
            raise StoreError(f"the crawl that wrote {self.path} was removed meanwhile: start it again")
        if position < 0 and position != -self._number(
            "SELECT mark FROM shoal_marks WHERE crawl = ?", (self._crawl,)
        ):
            raise self._foreign("is to hold the rows")
        start = max(position, 0)
        end = self._number("SELECT position FROM shoal_positions WHERE crawl = ?", (self._crawl,))
        if end < start or not os.access(self.path, os.F_OK):
            raise self._rows_missing()
        if end > start:
            self._run("DELETE FROM items WHERE _position > ? AND _crawl = ?", (start, self._crawl))
            self._record(start)
        return position

    def _insert(self, outcomes: Sequence[Outcome], start: int) -> int:
        first = position = max(start, self._number("SELECT max(_position) FROM items"))
        for outcome in outcomes:
            lease = outcome.lease
            if outcome.keeps_rows:
                self._see_again(outcome)
            elif (outcome.items or outcome.state == "done" or lease.visit) and self._supersedes(lease):
                for idx, item in enumerate(outcome.rows()):
                    position += 1
                    own = (position, self._crawl, lease.fingerprint, idx, lease.token)
                    self._add(own, {"url": lease.link.url} | to_item(item))
        if position == first:
            return start
        self._record(position)
        return position

    def _see_again(self, outcome: Outcome) -> None:
        """Nothing of the page has changed, so nothing of an older lease may any more."""
        if outcome.unchanged and outcome.visit is not None:
            if "last_seen" not in self._columns:
                self._widen(("last_seen",))
            lease, row = outcome.lease, to_item(outcome.visit.fields())
            self._run(
                "UPDATE items SET last_seen = ?, _token = ?"
                " WHERE _crawl = ? AND _fingerprint = ? AND _token < ?",
                (row["last_seen"], lease.token, self._crawl, lease.fingerprint, lease.token),
            )

    def _supersedes(self, lease: Lease) -> bool:
        """Remove the page's older rows; returns False if those of this lease, or newer ones, are there."""
        page = (self._crawl, lease.fingerprint)
        self._run(
            "DELETE FROM items WHERE _crawl = ? AND _fingerprint = ? AND _token < ?", (*page, lease.token)
        )
        return not self._number("SELECT 1 FROM items WHERE _crawl = ? AND _fingerprint = ? LIMIT 1", page)

    def _add(self, own: tuple[object, ...], row: Mapping[str, object]) -> None:
        if not row.keys() <= frozenset(self._columns):
            self._widen(row)
        self._run(_insert(self._columns), (*own, *(column_value(row.get(field)) for field in self._columns)))

    def _widen(self, fields: Iterable[str]) -> None:
        """Add the columns that are missing."""
        for field in fields:
            if field not in self._table()[len(_OWN) :]:
                self._add_column(field)
        self._columns = self._table()[len(_OWN) :]

    def _add_column(self, field: str) -> None:
        try:
            self._run(f"ALTER TABLE items ADD COLUMN {quoted(field)}")
        except StoreError as exc:
            raise StoreError(f'the field "{field}" cannot be a column, rename it ({exc.__cause__})') from exc

    def _table(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(name for _, name, *_ in self._run("PRAGMA table_info(items)"))

    def _record(self, position: int) -> None:
        self._run("INSERT OR REPLACE INTO shoal_positions VALUES (?, ?)", (self._crawl, position))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; all others are kept from writing."""
        self._run("BEGIN IMMEDIATE")
        with self._ending():
            yield

    @contextmanager
    def _ending(self) -> Iterator[None]:
        try:
            yield
            self._run("COMMIT")
        except BaseException:
            self._columns = ()  # some may be gone with what is rolled back
            with suppress(StoreError, StoreUnavailable):
                self._run("ROLLBACK")
            raise

    def _number(self, query: str, values: Sequence[object] = ()) -> int:
        """The one number that the query asks for; 0 if there is none."""
        row = self._run(query, values).fetchone()
        return (row and row[0]) or 0

    def _run(self, statement: str, values: Sequence[object] = ()) -> sqlite3.Cursor:
        assert self._db is not None, "open() comes first"
        try:
            return self._db.execute(statement, values)
        except sqlite3.Error as exc:
            raise self._error(exc) from exc

    def _error(self, exc: sqlite3.Error) -> StoreError | StoreUnavailable:
        code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        reason = str(exc)
        if code == sqlite3.SQLITE_CANTOPEN:
            reason = _objection(self.path) or reason
        return (StoreUnavailable if code in _FOR_NOW else StoreError)(f"cannot write {self.path}: {reason}")

    def _foreign(self, rows: str) -> StoreError:
        return StoreError(
            f'{self.path} {rows} of another crawl that is called "{self._crawl}" too: '
            "name another file, or replace them with --fresh"
        )

    def _rows_missing(self) -> StoreError:
        return StoreError(
            f"rows are missing from {self.path} that this crawl had written: "
            "it was replaced or deleted; put it back, or start over with --fresh"
        )


@lru_cache(16)
def _insert(fields: tuple[str, ...]) -> str:
    names = (*_OWN, *map(quoted, fields))
    return f"INSERT INTO items ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


def _objection(path: Path) -> str:
    """What the operating system has against opening the file; SQLite does not tell."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))
    except OSError as exc:
        return exc.strerror or ""
    return ""


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def column_value(value: object) -> str | int | float | None:
    """A field of a row (from `to_item`) as a column holds it."""
    cell = to_cell(value)
    return str(cell) if isinstance(cell, int) and not -(2**63) <= cell < 2**63 else cell
