"""shoal with a fault built in, run by tests as a program: faulty.py STEP KIND NTH ARGUMENT...

At the NTH time that it comes to the step, the process kills itself. KIND is where the rows go; the arguments
are those of `shoal`.
"""

from __future__ import annotations

import functools
import os
import signal
import sqlite3
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal import handle, worker
from shoal.cli import main
from shoal.fetch import Fetcher
from shoal.frontier.sqlite import SqliteFrontier
from shoal.store import file, parts
from shoal.store.file import FileStore
from shoal.store.folder import LocalFolder
from shoal.store.objects import Bucket
from shoal.store.sqlite import SqliteStore

Die = Callable[[], None]
"""Called each time the step is reached; the last time it does not return."""


def countdown(nth: int) -> Die:
    """Kills this process at the nth call."""
    left = nth

    def passing() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return passing


# --- ways to be in a step -----------------------------------------------------------------


def before(owner: Any, name: str, die: Die) -> None:
    """When it is called."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        die()
        return original(*args, **kwargs)

    setattr(owner, name, wrapped)


def after(owner: Any, name: str, die: Die) -> None:
    """When it has returned."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        die()
        return result

    setattr(owner, name, wrapped)


def after_awaiting(owner: Any, name: str, die: Die) -> None:
    """When it has been awaited."""
    original = getattr(owner, name)

    @functools.wraps(original)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = await original(*args, **kwargs)
        die()
        return result

    setattr(owner, name, wrapped)


def inside(owner: Any, name: str, die: Die, *, first: bool) -> None:
    """In the context: at its beginning, or at its end."""
    original = getattr(owner, name)

    @contextmanager
    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with original(*args, **kwargs) as value:
            if first:
                die()
            yield value
            if not first:
                die()

    setattr(owner, name, wrapped)


def after_context(owner: Any, name: str, die: Die) -> None:
    """When the context has ended."""
    original = getattr(owner, name)

    @contextmanager
    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Iterator[Any]:
        with original(*args, **kwargs) as value:
            yield value
        die()

    setattr(owner, name, wrapped)


def between_statements(owner: Any, name: str, die: Die) -> None:
    """Between any two SQL statements that the method runs; `owner` has the connection as `_db`."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        connection: sqlite3.Connection = self._db
        connection.set_trace_callback(lambda _: die())
        try:
            return original(self, *args, **kwargs)
        finally:
            connection.set_trace_callback(None)

    setattr(owner, name, wrapped)


def half_a_write(die: Die) -> None:
    """Half of what was to be appended to a file is in it."""
    write = os.pwrite

    def wrapped(file: int, data: Any, at: int) -> int:
        write(file, data[: len(data) // 2], at)
        die()
        return write(file, data, at)

    os.pwrite = wrapped


def half_a_part(die: Die) -> None:
    """Half of a part is written, beside its place."""
    sync = os.fsync

    def wrapped(file: int) -> None:
        if stat.S_ISREG(os.fstat(file).st_mode):
            content = Path(f"/proc/self/fd/{file}").read_bytes()
            os.ftruncate(file, len(content) // 2)
            die()
            os.pwrite(file, content, 0)
        sync(file)

    os.fsync = wrapped


# --- the steps ----------------------------------------------------------------------------

STEPS: dict[str, Callable[[Any, Die], None]] = {
    "store opened": lambda store, die: inside(store, "open", die, first=True),
    "start recorded": lambda store, die: inside(store, "open", die, first=False),
    "before the description": lambda _, die: before(SqliteFrontier, "describe", die),
    "before the seeds": lambda _, die: before(SqliteFrontier, "add", die),
    "after the seeds": lambda _, die: after(SqliteFrontier, "add", die),
    "before a lease": lambda _, die: before(SqliteFrontier, "lease", die),
    "in a lease": lambda _, die: between_statements(SqliteFrontier, "lease", die),
    "after a lease": lambda _, die: after(SqliteFrontier, "lease", die),
    "before a fetch": lambda _, die: before(Fetcher, "fetch", die),
    "after a fetch": lambda _, die: after_awaiting(Fetcher, "fetch", die),
    "before the handler": lambda _, die: before(handle, "run", die),
    "after the handler": lambda _, die: after_awaiting(handle, "run", die),
    "after the visit": lambda _, die: after_awaiting(worker.Worker, "_visit", die),
    "before the write": lambda store, die: before(store, "write", die),
    "in the middle of the write": lambda _, die: half_a_write(die),
    "before the rows are on disk": lambda _, die: before(file, "_sync", die),
    "between the rows": lambda store, die: between_statements(store, "_append", die),
    "after the write": lambda store, die: inside(store, "write", die, first=True),
    "before the commit": lambda _, die: before(SqliteFrontier, "commit", die),
    "in the commit": lambda _, die: between_statements(SqliteFrontier, "commit", die),
    "after the commit": lambda _, die: after(SqliteFrontier, "commit", die),
    "before the rows are let go": lambda store, die: inside(store, "write", die, first=False),
    "after the rows are let go": lambda store, die: after_context(store, "write", die),
    "a part half written": lambda _, die: half_a_part(die),
    "before a part is put": lambda _, die: before(LocalFolder, "put", die),
    "after a part is put": lambda _, die: after(LocalFolder, "put", die),
    "before an object is put": lambda _, die: before(Bucket, "put", die),
    "after an object is put": lambda _, die: after(Bucket, "put", die),
    "before a part is removed": lambda _, die: before(parts.PartStore, "_remove_doomed", die),
    "before parts are put together": lambda _, die: before(parts.PartStore, "_join_to", die),
    "after parts are put together": lambda _, die: after(parts.PartStore, "_join_to", die),
    "before tidying": lambda _, die: before(parts.PartStore, "tidy", die),
    "before the end": lambda _, die: before(SqliteFrontier, "release", die),
    "after the end": lambda _, die: after(SqliteFrontier, "release", die),
}
"""The steps on the path of a page, in order: each builds its fault into a class of stores, or elsewhere."""


if __name__ == "__main__":
    step, kind, nth, *arguments = sys.argv[1:]
    parts.FAN = 3  # so that parts are put together in a short crawl
    store = {"sqlite": SqliteStore, "jsonl": FileStore, "csv": FileStore}.get(kind, parts.PartStore)
    STEPS[step](store, countdown(int(nth)))
    main(arguments)
