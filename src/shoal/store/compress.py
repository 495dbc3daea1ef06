"""Files that are compressed by their names: FILE.gz with gzip, FILE.zst with Zstandard, others not at all."""

from __future__ import annotations

import gzip
import sys
import zlib
from pathlib import Path
from typing import IO, cast

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SUFFIXES = (".gz", ".zst")


def reading(path: str, content: IO[bytes] | None = None) -> IO[bytes]:
    """The bytes of a file, or of its content. Raises FAILURES if it is not what its name says."""
    match path.lower().rpartition(".")[2]:
        case "gz":
            return cast("IO[bytes]", gzip.open(content or path, "rb"))
        case "zst":
            return cast("IO[bytes]", zstd.open(content or path, "rb"))
    return content or Path(path).open("rb")


def packed(content: bytes, path: str) -> bytes:
    """The content as the name says; joined to others of its kind, it is one content with them."""
    match path.lower().rpartition(".")[2]:
        case "gz":
            return gzip.compress(content, mtime=0)
        case "zst":
            return zstd.compress(content)
    return content


def writing(path: str, target: IO[bytes]) -> IO[bytes]:
    """What is written goes to `target`, compressed as the name says; closing it leaves `target` open."""
    match path.lower().rpartition(".")[2]:
        case "gz":
            return cast("IO[bytes]", gzip.GzipFile("", "wb", fileobj=target, mtime=0))
        case "zst":
            return cast("IO[bytes]", zstd.open(target, "wb"))
    return open(target.fileno(), "wb", closefd=False)


FAILURES = (OSError, EOFError, zlib.error, zstd.ZstdError)
