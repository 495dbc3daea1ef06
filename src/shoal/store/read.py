"""Rows out of the stores, one after the other: what `shoal export` reads.

Only committed rows are read where the frontier that knows how far they reach is given; without it, all that
are there. Fields that a table or a part has and a row has not are left out of the row.
"""

from __future__ import annotations

import csv
import io
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path, PurePath
from typing import IO, TypeAlias
from urllib.parse import quote

import msgspec

from shoal.errors import ConfigError, StoreError
from shoal.model import Item
from shoal.place import shown
from shoal.store import BUCKETS, folder_of, form_of_parts, missing
from shoal.store.base import Committed, absolute
from shoal.store.compress import FAILURES, SUFFIXES, reading
from shoal.store.parts import Folder, Part, place_name, writer_name

Rows: TypeAlias = Callable[[], Iterable[Item]]
"""Rows that can be gone through several times."""

KINDS = (
    "FILE.jsonl, FILE.ndjson, FILE.csv, sqlite:FILE, parquet:DIR, postgresql://...,"
    " s3://BUCKET/NAME.jsonl, .jsonl.gz, .jsonl.zst or .parquet (or gs://, az://)"
)


def stored_rows(place: str, *, crawl: str | None, committed: Committed) -> tuple[Rows, bool]:
    """The rows in a place, named as `open_store` names it; and whether earlier rows of a page are among them.

    Those are the rows of earlier visits, which files keep and tables replace.
    crawl: whose rows, where several crawls may have some; None: those of the only one.
    Raises ConfigError for a place that cannot be read or is not there, and, as the rows do, StoreError.
    """
    kind, colon, path = place.partition(":")
    if kind in ("postgresql", "postgres") and path.startswith("//"):
        try:
            from shoal.store.postgres_read import postgres_rows
        except ImportError:
            raise missing("PostgreSQL", "postgres") from None
        return postgres_rows(place, crawl), False
    if colon and kind == "sqlite" and path:
        return _sqlite_rows(path, crawl, committed), False
    if (colon and kind == "parquet" and path) or (kind in BUCKETS and path.startswith("//")):
        parts = Parts(place, committed)
        if not parts.found():
            raise ConfigError(f"there are no rows in {shown(place)}")
        return parts, True
    whole = PurePath(place.lower())
    plain = whole.with_suffix("") if whole.suffix in SUFFIXES else whole
    match plain.suffix if "://" not in place else "":
        case ".jsonl" | ".ndjson":
            return _File(place, committed, _json_lines), True
        case ".csv":
            return _File(place, committed, _csv_lines), True
    raise ConfigError(f"cannot read rows from '{shown(place)}': there are {KINDS}")


# --- files ----------------------------------------------------------------------------------


class _File:
    """The rows of a file, as far as they are committed now."""

    def __init__(
        self, path: str, committed: Committed, read: Callable[[Iterator[bytes], str], Iterator[Item]]
    ) -> None:
        if not Path(path).is_file():
            raise ConfigError(f"there is no file {path}")
        self._path = path
        self._read = read
        end = committed(absolute(path))
        self._end_bytes = Path(path).stat().st_size if end is None else end

    def __call__(self) -> Iterator[Item]:
        with ExitStack() as opened:
            try:
                file = opened.enter_context(reading(self._path))
                yield from self._read(_lines(file, self._end_bytes, self._path), self._path)
            except FAILURES as error:
                raise StoreError(f"cannot read {self._path}: {error}") from error


def _lines(file: IO[bytes], end_bytes: int, path: str) -> Iterator[bytes]:
    """Whole lines; one that does not end is being written, and may yet be taken back."""
    compressed = path.lower().endswith(SUFFIXES)
    at = 0
    for line in file:
        at += len(line)
        if not line.endswith(b"\n") or (at > end_bytes and not compressed):
            return
        yield line


def _json_lines(lines: Iterator[bytes], path: str) -> Iterator[Item]:
    decode = msgspec.json.Decoder(dict[str, object]).decode
    for number, line in enumerate(lines, 1):
        try:
            yield decode(line)
        except msgspec.DecodeError as error:
            raise StoreError(f"line {number} of {path} is no row: {error}") from error


def _csv_lines(lines: Iterator[bytes], path: str) -> Iterator[Item]:
    """All values are text there; empty ones are missing."""
    csv.field_size_limit(2**31 - 1)
    table = csv.reader(line.decode("utf-8", "replace") for line in lines)
    names = next(table, [])
    for values in table:
        if len(values) != len(names):
            raise StoreError(f"row {table.line_num} of {path} has {len(values)} values, not {len(names)}")
        yield {name: value for name, value in zip(names, values, strict=True) if value}


def chosen_crawl(crawl: str | None, crawls: Collection[str], place: str) -> str:
    """The crawl whose rows are to be read; None: the only one. Raises ConfigError if it cannot be told."""
    if crawl is None and len(crawls) > 1:
        known = ", ".join(sorted(crawls))
        raise ConfigError(f"{place} has rows of several crawls, name one with --crawl: {known}")
    found = next(iter(crawls), None) if crawl is None else crawl
    if found is None or found not in crawls:
        raise ConfigError(
            f"{place} has no rows of " + ("any crawl" if crawl is None else f"a crawl '{crawl}'")
        )
    return found


# --- SQLite ---------------------------------------------------------------------------------


def _sqlite_rows(path: str, crawl: str | None, committed: Committed) -> Rows:
    if not Path(path).is_file():
        raise ConfigError(f"there is no file {path}")
    with closing(_connected(path)) as db:
        crawls = _crawls(db, path)
        whose = chosen_crawl(crawl, crawls, path)
        end = committed(f"sqlite:{absolute(path)}")
        if end is None:
            end = crawls[whose]

    def rows() -> Iterator[Item]:
        with closing(_connected(path)) as db:
            try:
                cursor = db.execute(
                    "SELECT * FROM items WHERE _crawl = ? AND _position <= ? ORDER BY _position", (whose, end)
                )
                names = [each[0] for each in cursor.description]
                own = sum(name.startswith("_") for name in names[:5])
                for values in cursor:
                    pairs = zip(names[own:], values[own:], strict=True)
                    yield {name: value for name, value in pairs if value is not None}
            except sqlite3.Error as error:
                raise StoreError(f"cannot read {path}: {error}") from error

    return rows


def _connected(path: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(os.path.realpath(path))}?mode=ro", uri=True, timeout=30)


def _crawls(db: sqlite3.Connection, path: str) -> dict[str, int]:
    """The crawls that have rows there, and where these end."""
    try:
        db.execute("SELECT _position, _crawl, _fingerprint, _idx, _token FROM items LIMIT 0")
        return dict(db.execute("SELECT crawl, position FROM shoal_positions ORDER BY crawl"))
    except sqlite3.Error as error:
        raise ConfigError(f"{path} is no database of rows that shoal wrote: {error}") from error


# --- parts ----------------------------------------------------------------------------------


_Wanted: TypeAlias = tuple[Part, int, int]
"""A part, and from which number on and up to which its rows are wanted."""


class Parts:
    """The rows of many files: parquet:DIR, or below a URL of a bucket. Raises ConfigError for others."""

    def __init__(self, target: str, committed: Committed = lambda name: None) -> None:
        suffix = form_of_parts(target)
        if suffix is None:
            raise ConfigError(f"cannot read rows from '{shown(target)}': there are {KINDS}")
        self._suffix = suffix
        self._place = target.removeprefix("parquet:")
        self._committed = committed
        self._kept: dict[_Wanted, list[Item]] = {}  # what was the latest: a part does not change
        self._read = _parquet_rows if suffix == "parquet" else partial(_jsonl_rows, suffix)

    def found(self) -> bool:
        """Whether there are any."""
        with suppress(StoreError), self._opened() as folder:
            return bool(self._among(folder.names()))
        return False

    def __call__(self) -> Iterator[Item]:
        with self._opened() as folder:
            parts = self._among(folder.names())
            for part, start, end in _wanted(parts, _known(folder, self._suffix, self._committed)):
                content = folder.get(part.name(self._suffix))
                if content is None:
                    raise StoreError(f"parts of {folder.shown} were put together meanwhile: export again")
                yield from self._read(content, start - part.start, end - part.start)

    def latest(self, limit: int) -> list[Item]:
        """So many rows of the latest parts, those that are not committed yet included, the latest first.

        While a crawl runs, its latest rows are in small parts, by the order of their leases. Of rows in parts
        that were put together no more is known than the day.
        """
        rows: list[Item] = []
        kept: dict[_Wanted, list[Item]] = {}
        with self._opened() as folder:
            wanted = _wanted(self._among(folder.names()), lambda writer: None)
            for part, start, end in sorted(wanted, key=_age, reverse=True):
                if len(rows) >= limit:
                    break
                last = part, max(start, end - limit + len(rows)), end
                kept[last] = self._kept[last] if last in self._kept else self._rows_of(folder, last)
                rows += reversed(kept[last])
        self._kept = kept
        return rows

    def _rows_of(self, folder: Folder, wanted: _Wanted) -> list[Item]:
        """Empty if others have just put the part together with more."""
        part, start, end = wanted
        content = folder.get(part.name(self._suffix))
        return [] if content is None else [*self._read(content, start - part.start, end - part.start)]

    @contextmanager
    def _opened(self) -> Iterator[Folder]:
        with closing(folder_of(self._place)) as folder:
            folder.open(create=False)
            yield folder

    def _among(self, names: Iterable[str]) -> list[Part]:
        return [part for name in names if (part := Part.of(name, self._suffix))]


def _age(wanted: _Wanted) -> tuple[str, int, int]:
    """Larger for what is later."""
    part, _, end = wanted
    return part.day, part.token, end


def _known(folder: Folder, suffix: str, committed: Committed) -> Callable[[str], int | None]:
    """How far the rows of a writer are committed; None: nobody knows."""
    place = place_name(folder, suffix)
    if committed(place) is None:
        return lambda writer: None
    return lambda writer: committed(writer_name(place, writer)) or 0


def _wanted(parts: Iterable[Part], position: Callable[[str], int | None]) -> Iterator[_Wanted]:
    """Each committed row once, by writer: which part has it, from which number up to which."""
    writer, at = "", 0
    for part in sorted(parts, key=lambda part: (part.day, part.writer, part.start, -part.end)):
        if part.writer != writer:
            writer, at, known = part.writer, 0, position(part.writer)
        end = part.end if known is None else min(part.end, known)
        start = max(part.start, at)
        if start < end:
            yield part, start, end
            at = end


def _jsonl_rows(suffix: str, content: bytes, start: int, end: int) -> Iterator[Item]:
    try:
        with reading(suffix, io.BytesIO(content)) as lines:
            yield from _json_lines(islice(lines, start, end), "a part")
    except FAILURES as error:
        raise StoreError(f"a part cannot be read: {error}") from error


def _parquet_rows(content: bytes, start: int, end: int) -> Iterator[Item]:
    try:
        from shoal.store.parquet_read import parquet_rows
    except ImportError:
        raise missing("Parquet", "parquet") from None
    return parquet_rows(content, start, end)
