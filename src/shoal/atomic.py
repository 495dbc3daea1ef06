"""Files that are complete or not there at all."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.errors import StoreError


@contextmanager
def whole_file(output: str) -> Iterator[Path]:
    """A new, empty file beside `output`, which takes its place when the context ends without an exception.

    Otherwise it is removed, and `output` stays as it was. Raises StoreError if it cannot be written.
    """
    place = Path(os.path.realpath(output))
    if place.is_dir():
        raise StoreError(f"cannot write {output}: {os.strerror(errno.EISDIR)}")
    if place.exists() and not place.is_file():
        raise StoreError(f"cannot write {output}: it is not a regular file")
    try:
        number, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        os.close(number)
        beside = Path(name)
        try:
            yield beside
            _sync(beside)
            beside.chmod(0o666 & ~_umask())
            beside.replace(place)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror or error}") from error


def _sync(file: Path) -> None:
    """Bring it to the disk, lest a power cut leaves the name without the content."""
    number = os.open(file, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
