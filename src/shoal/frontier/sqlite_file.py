"""The state file: opening it, making its tables, and what can be wrong with it."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import msgspec

from shoal.errors import ConfigError, FrontierError, FrontierUnavailable

APPLICATION_ID = 0x73686F6C  # "shol": tells our files from other SQLite files
SCHEMA_VERSION = 1
BUSY_TIMEOUT_S = 60.0
PAGE_BYTES = 4096
MOST_LOGGED, SHARE_LOGGED = 16_384, 0.1
"""The log beside the state file grows to so many pages, 67 MB, before they are moved into the file: with
SQLite's 1,000 the syncs cost more than the writes. On a small disk it is that share of what is free."""
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
"""What reading a damaged file raises; the latter if the error itself quotes what is damaged."""


def connect(path: str, *, create: bool) -> sqlite3.Connection:
    """Open the file and, if it is new, make the tables. Raises as SqliteFrontier does."""
    if not create and not Path(path).exists():
        raise ConfigError(f"there is no state file {path}")
    try:
        db = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise FrontierError(f"cannot open the state file {path}: {error}") from error
    try:
        with translated(path):
            _check_schema(db, path)
            _write_ahead(db)
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA wal_autocheckpoint = {_most_logged(path)}")
    except BaseException:
        db.close()
        raise
    return db


def _write_ahead(db: sqlite3.Connection) -> None:
    """Switch the log on. While another process does the same, SQLite does not wait by itself."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _most_logged(path: str) -> int:
    free = shutil.disk_usage(Path(path).parent).free
    return max(1, min(MOST_LOGGED, int(free * SHARE_LOGGED / PAGE_BYTES)))


def _check_schema(db: sqlite3.Connection, path: str) -> None:
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        db.execute("BEGIN IMMEDIATE")  # two processes may be making the file at once
        if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in files("shoal.frontier").joinpath("sqlite.sql").read_text().split(";\n"):
                db.execute(statement)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute("COMMIT")
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise FrontierError(f"{path} is a SQLite file, but not a state file of shoal: name another one")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise FrontierError(
            f"{path} was written by a newer shoal (format {version}, this one reads {SCHEMA_VERSION}):"
            " upgrade shoal"
        )


@contextmanager
def translated(path: str) -> Iterator[None]:
    """SQLite's errors in our words."""
    try:
        yield
    except (UnicodeDecodeError, msgspec.DecodeError, OverflowError) as error:
        raise FrontierError(_damaged(path, "something in it cannot be read")) from error
    except sqlite3.OperationalError as error:
        if _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise FrontierError(f"cannot write the state file {path}: {error}") from error
        if str(error).startswith(("no such", "Could not decode")):
            raise FrontierError(_damaged(path, error)) from error
        raise FrontierUnavailable(f"cannot write the state file {path}: {said_of(error)}") from error
    except sqlite3.DatabaseError as error:
        if _code(error) == sqlite3.SQLITE_NOTADB:
            raise FrontierError(f"{path} is not a state file of shoal: name another one") from error
        raise FrontierError(_damaged(path, error)) from error


def said_of(error: BaseException) -> str:
    """What SQLite says; it needs room even to read, and then does not say what is wrong."""
    full = isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_IOERR
    return f"{error} (is its disk full?)" if full else str(error)


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 if Python itself raised the error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _damaged(path: str, error: object) -> str:
    return (
        f"the state file {path} is damaged ({error}): save what can be read with"
        f" `shoal recover {path} saved.shoal`, then go on with --state saved.shoal"
    )


def crawl_names(path: str) -> list[str]:
    """The crawls in a state file, the oldest first. Raises as SqliteFrontier does."""
    db = connect(path, create=False)
    try:
        with translated(path):
            return [row[0] for row in db.execute("SELECT name FROM crawls ORDER BY id")]
    finally:
        db.close()
