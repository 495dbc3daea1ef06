"""Who may write to a file, and which crawl it belongs to at this moment.

Linux has locks that belong to an open file and not to a process (F_OFD_SETLK, fcntl(2)): they end with it,
however the process ends, and may be on bytes far behind the end of the file. Elsewhere there is flock for
`alone`, and no crawl is told from another.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from shoal.store.base import MARKS

ALONE = 2**62
"""The byte of those who write."""

_HAS_OFD = hasattr(fcntl, "F_OFD_SETLK")
_FLOCK = "hhqqi0q"  # struct flock: type, whence, start, length, pid
_TYPE_BYTES = 2
_USERS = 2**61  # the first byte of those who have the file open; there is one for each mark


@contextmanager
def alone(fd: int) -> Iterator[None]:
    """Wait until nobody else is in such a context for this file, and keep all others out. Raises OSError."""
    _exclude(fd)
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


def _exclude(fd: int) -> None:
    if _HAS_OFD:
        _lock(fd, fcntl.F_OFD_SETLKW, fcntl.F_WRLCK, ALONE)
    else:
        fcntl.flock(fd, fcntl.LOCK_EX)


def _include(fd: int) -> None:
    if _HAS_OFD:
        _lock(fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, ALONE)
    else:
        fcntl.flock(fd, fcntl.LOCK_UN)


def _lock(fd: int, command: int, kind: int, start: int, length: int = 1) -> bytes:
    return fcntl.fcntl(fd, command, struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0))
