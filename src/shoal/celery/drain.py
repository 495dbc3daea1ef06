"""One byte that all processes of a worker share: end what you do, and begin nothing.

It is in a file, so that children that were spawned see it as well as those that were forked.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from pathlib import Path

VARIABLE = "SHOAL_DRAIN"
"""The environment variable that tells children where the file is."""

_byte: mmap.mmap | None = None


def make() -> None:
    """In the worker's parent, before it has children."""
    global _byte
    with tempfile.NamedTemporaryFile(prefix="shoal-drain-", delete=False) as file:
        file.write(b"\0")
    os.environ[VARIABLE] = file.name
    _byte = _mapped(file.name)


def set_() -> None:
    """From now on."""
    if _byte is not None:
        _byte[0] = 1


def is_set() -> bool:
    """Whether the worker is about to stop. False outside of one."""
    global _byte
    if _byte is None:
        path = os.environ.get(VARIABLE)
        if path is None:
            return False
        _byte = _mapped(path)
    return _byte[0] == 1


def remove() -> None:
    """In the parent, at its end: the byte stays for those who have it."""
    with suppress(OSError):
        Path(os.environ.pop(VARIABLE, "")).unlink()


def _mapped(path: str) -> mmap.mmap:
    with Path(path).open("r+b") as file:
        return mmap.mmap(file.fileno(), 1)
