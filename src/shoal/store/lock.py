"""Who may write to a file, and which crawl it belongs to at this moment.

Linux has locks that belong to an open file and not to a process (F_OFD_SETLK, fcntl(2)): they end with it,
however the process ends, and may be on bytes far behind the end of the file. Elsewhere there is flock for
`alone`, and no crawl is told from another.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from shoal.store.base import MARKS

ALONE = 2**62
"""The byte of those who write."""

LEAST_PAUSE_S, MOST_PAUSE_S = 0.000_5, 0.005
"""Between two tries to be alone: a batch of rows takes some milliseconds."""

_HAS_OFD = hasattr(fcntl, "F_OFD_SETLK")
_FLOCK = "hhqqi0q"  # struct flock: type, whence, start, length, pid
_TYPE_BYTES = 2
_USERS = 2**61  # the first byte of those who have the file open; there is one for each mark


@contextmanager
def alone(fd: int, *, busy_s: float) -> Iterator[None]:
    """Wait until nobody else is in such a context for this file, and keep all others out.

    Raises TimeoutError if that takes longer than `busy_s`, and OSError.
    """
    until, pause_s = time.monotonic() + busy_s, LEAST_PAUSE_S
    while not _excluded(fd):
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(pause_s)
        pause_s = min(MOST_PAUSE_S, 2 * pause_s)
    try:
        yield
    finally:
        _include(fd)


def join(fd: int, mark: int) -> None:
    """Count among those who have the file open with this mark, until `fd` is closed. Raises OSError."""
    if _HAS_OFD:
        _lock(fd, fcntl.F_OFD_SETLK, fcntl.F_RDLCK, _USERS + mark)


def has_others(fd: int, mark: int | None) -> bool:
    """Whether anybody else has the file open with another mark; None: with any. Raises OSError."""
    if not _HAS_OFD:
        return False
    if mark is None:
        return _is_used(fd, 0, MARKS)
    return _is_used(fd, 0, mark) or _is_used(fd, mark + 1, MARKS)


def _is_used(fd: int, first: int, end: int) -> bool:
    if first >= end:  # a length of 0 would mean all that follows
        return False
    answer = _lock(fd, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, _USERS + first, end - first)
    return struct.unpack("h", answer[:_TYPE_BYTES]) != (fcntl.F_UNLCK,)


def _excluded(fd: int) -> bool:
    try:
        if _HAS_OFD:
            _lock(fd, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, ALONE)
        else:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # fcntl(2): EAGAIN or EACCES
        return False
    return True


def _include(fd: int) -> None:
    if _HAS_OFD:
        _lock(fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, ALONE)
    else:
        fcntl.flock(fd, fcntl.LOCK_UN)


def _lock(fd: int, command: int, kind: int, start: int, length: int = 1) -> bytes:
    return fcntl.fcntl(fd, command, struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0))
