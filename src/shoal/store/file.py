"""A file of rows, crash-exact: what JSONL and CSV have in common. The position is the length in bytes.

Kept by an exclusive lock on the file, held from before the position is read until the commit
is through; so processes on one machine may share the file, on a local file system. A store must not
be carried into a fork, which would share the lock: each process makes its own.

Two crawls must not share it: each would cut off the rows of the other. A file that holds rows shows whose
it is by its length. As long as it is empty the position is minus a number that was drawn for the crawl, its
mark, and whoever has the file open holds a lock on the byte of his mark; a crawl that finds another mark
there is refused.

With `sync` rows are on the disk itself before their commit, and a power cut costs what a crash costs:
pages that were not committed are done again. That takes about 0.2 ms of CPU and 0.2 to 2 ms of waiting
for each batch on an SSD, whatever its size. Without it a power cut may take rows that the frontier
remembers as committed (those of the last half minute or so); opening the file then says that rows are
missing. The end of a process, however sudden, costs nothing either way.
"""

from __future__ import annotations

import errno
import os
import stat
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from shoal.errors import StoreError, StoreUnavailable
from shoal.model import Outcome
from shoal.store import lock
from shoal.store.base import BUSY_S, Committed, Position, Store, absolute, drawn_mark

_FOR_NOW = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

_sync = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class FileStore(Store):
    """Rows of bytes, each ended by a newline, one after the other in a regular file."""

    def __init__(self, path: str | os.PathLike[str], *, sync: bool = True) -> None:
        self.path = os.fspath(path)
        self.name = absolute(path)
        self._sync = sync
        self._fd = -1

    @abstractmethod
    def _render(self, outcomes: Sequence[Outcome], start: int) -> bytes:
        """The rows of `outcomes` as they go into the file at `start`."""

    @contextmanager
    def open(self, *, committed: Committed, fresh: bool) -> Iterator[Position]:
        """See `Store.open`."""
        try:
            self._open(create=fresh or (committed(self.name) or 0) <= 0)
            with self._locked():
                yield self.name, self._start(None if fresh else committed(self.name), fresh)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def write(self, outcomes: Sequence[Outcome], *, committed: Committed) -> Iterator[Position]:
        """See `Store.write`."""
        with self._locked():
            position = self._cut(committed(self.name))
            start = max(position, 0)
            end = self._append(start, self._render(outcomes, start))
            try:
                yield self.name, end or position
            finally:
                self._cut(committed(self.name))

    def close(self) -> None:
        """See `Store.close`."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self, *, create: bool) -> None:
        self.close()
        try:
            self._fd = os.open(self.path, os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
        except FileNotFoundError as exc:
            raise (self._error(exc) if create else self._rows_missing()) from exc
        except OSError as exc:
            raise self._error(exc) from exc
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise StoreError(f"cannot write {self.path}: it is not a regular file")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with ExitStack() as held:
            try:
                held.enter_context(lock.alone(self._fd, busy_s=BUSY_S))
            except TimeoutError:
                raise StoreUnavailable(
                    f"{self.path} has been locked by another process for {BUSY_S:g} s, which may be stopped"
                ) from None
            except OSError as exc:
                raise self._error(exc) from exc
            yield

    def _start(self, position: int | None, fresh: bool) -> int:
        """Where this crawl goes on, whose position is `position`; None: it has none yet."""
        if position is not None and position > 0:
            self._join(0)  # whoever has rows there needs no mark any more
            self._check_row_end(position)
            return self._cut(position)
        self._refuse_others(None if position is None else -position)
        if fresh:
            with self._translated():
                os.ftruncate(self._fd, 0)
        elif position is None and os.fstat(self._fd).st_size:
            raise StoreError(
                f"{self.path} holds something that this crawl did not write: "
                "name another file, or replace it with --fresh"
            )
        if position is None:
            position = -drawn_mark()
        self._join(-position)
        return self._cut(position)

    def _join(self, mark: int) -> None:
        with self._translated():
            lock.join(self._fd, mark)

    def _refuse_others(self, mark: int | None) -> None:
        with self._translated():
            if lock.has_others(self._fd, mark):
                raise StoreError(
                    f"another crawl is writing to {self.path} at this moment: "
                    "name another file, or stop that one first"
                )

    def _cut(self, position: int | None) -> int:
        """Drop what nobody committed; returns the position."""
        if position is None:
            raise StoreError(f"the crawl that wrote {self.path} was removed meanwhile: start it again")
        end = max(position, 0)
        with self._translated():
            status = os.fstat(self._fd)
            if status.st_size > end:
                os.ftruncate(self._fd, end)
        if status.st_size < end or not status.st_nlink:
            raise self._rows_missing()
        return position

    def _check_row_end(self, position: int) -> None:
        if os.pread(self._fd, 1, position - 1) not in (b"\n", b""):
            raise StoreError(
                f"{self.path} was changed by another program: "
                "put it back as it was, or start over with --fresh"
            )

    def _append(self, start: int, rows: bytes) -> int:
        """Write all rows or nothing; returns where they end."""
        try:
            rest, end = memoryview(rows), start
            while rest:
                written = os.pwrite(self._fd, rest, end)
                rest, end = rest[written:], end + written
            if rows and self._sync:
                _sync(self._fd)
        except OSError as exc:
            with suppress(OSError):
                os.ftruncate(self._fd, start)
            raise self._error(exc) from exc
        return end

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise self._error(exc) from exc

    def _error(self, exc: OSError) -> StoreError | StoreUnavailable:
        return os_error(exc, self.path)

    def _rows_missing(self) -> StoreError:
        return StoreError(
            f"rows are missing from {self.path} that this crawl had written: "
            "it was cut, replaced or deleted; put it back, or start over with --fresh"
        )


def os_error(exc: OSError, path: str) -> StoreError | StoreUnavailable:
    """What the system says against writing there, as an error of ours."""
    kind = StoreUnavailable if exc.errno in _FOR_NOW else StoreError
    return kind(f"cannot write {path}: {exc.strerror}")
