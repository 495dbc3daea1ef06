"""Rows out of a store into a file for other programs, at constant memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Literal, Protocol, TypeAlias

from shoal.atomic import whole_file
from shoal.errors import ConfigError, StoreError
from shoal.log import visible_lines
from shoal.model import Item
from shoal.store import missing
from shoal.store.compress import SUFFIXES, writing
from shoal.store.csv import to_csv
from shoal.store.encode import to_item, to_json
from shoal.store.read import Rows

Format: TypeAlias = Literal["jsonl", "csv", "sqlite", "parquet"]

_FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".db": "sqlite",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".parquet": "parquet",
}


class Target(Protocol):
    """Takes bytes."""

    def write(self, content: bytes, /) -> object:
        """All of them."""


def export(
    rows: Rows,
    target: Target,
    format: Literal["jsonl", "csv"],  # noqa: A002 - the word for it
    *,
    safe: bool = False,
) -> int:
    """Write all rows to `target`, as text; returns how many.

    rows: called once for each pass over the rows. CSV takes two: the first one finds the columns, in
    the order in which their fields appear.
    safe: in CSV, defuse formulas (see `shoal.store.csv.to_csv`).
    Raises StoreError if the second pass finds new fields, OSError if `target` cannot be written.
    """
    to_line: Callable[[Item], bytes] = _json_line
    if format == "csv":
        columns = tuple(dict.fromkeys(field for row in rows() for field in to_item(row)))
        to_line = partial(_csv_line, columns, safe)
        if columns:
            target.write(to_csv(columns, safe=safe))
    count = 0
    for row in rows():
        target.write(to_line(row))
        count += 1
    return count


def _json_line(row: Item) -> bytes:
    return to_json(row) + b"\n"


def _csv_line(columns: Sequence[str], safe: bool, row: Item) -> bytes:
    item = to_item(row)
    check_fields(item, columns)
    return to_csv(map(item.get, columns), safe=safe)


def check_fields(item: Item, columns: Iterable[str]) -> None:
    """Refuse a row that came after its columns were looked for."""
    if new := item.keys() - set(columns):
        raise StoreError(f'rows with a new field "{min(new)}" came while they were exported: export again')


def export_file(
    rows: Rows,
    output: str | None,
    format: Format | None,  # noqa: A002 - the word for it
    *,
    safe: bool = False,
) -> int:
    """Write all rows to the file `output`, or to standard output; returns how many.

    The file is complete or not there at all: it is written beside its place and then put into it. One whose
    name ends in .gz or .zst is compressed.
    format: None goes by the file's name, and is JSON lines on standard output.
    Raises ConfigError for a file of an unknown kind, StoreError if it cannot be written.
    """
    if output is None:
        if format in ("sqlite", "parquet"):
            raise ConfigError(f"{format} needs a file: name it with -o")
        return _export_to_standard_output(rows, "csv" if format == "csv" else "jsonl", safe)
    if not output.removeprefix("sqlite:"):
        named = output or "''"
        raise ConfigError(f"-o {named} names no file: write *.jsonl, *.csv, sqlite:FILE or *.parquet")
    kind = format or _format_of(output)
    output = output.removeprefix("sqlite:")
    if kind in ("sqlite", "parquet") and output.lower().endswith(SUFFIXES):
        raise ConfigError(f"{output}: {kind} is not compressed as a whole: leave out the end of the name")
    with whole_file(output) as file:
        if kind == "sqlite":
            from shoal.export.sqlite import export_sqlite

            return export_sqlite(rows, file)
        if kind == "parquet":
            try:
                from shoal.export.parquet import export_parquet
            except ImportError:
                raise missing("Parquet", "parquet") from None
            return export_parquet(rows, file)
        with file.open("wb") as plain, writing(output, plain) as target:
            return export(rows, target, "csv" if kind == "csv" else "jsonl", safe=safe)


def _export_to_standard_output(rows: Rows, format: Literal["jsonl", "csv"], safe: bool) -> int:  # noqa: A002
    try:
        count = export(rows, _standard_output(), format, safe=safe)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left in its buffer
        raise StoreError(f"cannot write to standard output: {error.strerror}") from error
    return count


def _format_of(output: str) -> Format:
    if output.startswith("sqlite:"):
        return "sqlite"
    whole = PurePath(output.lower())
    kind = _FORMATS.get((whole.with_suffix("") if whole.suffix in SUFFIXES else whole).suffix)
    if kind is None:
        raise ConfigError(
            f"what kind of file is {output}? Name it *.jsonl, *.csv, *.db or *.parquet, or give --format"
        )
    return kind


def _standard_output() -> Target:
    return _Terminal() if sys.stdout.isatty() else sys.stdout.buffer


class _Terminal:
    """A terminal, which is shown escape codes as text."""

    def write(self, content: bytes) -> None:
        sys.stdout.write(visible_lines(content.decode().replace("\r\n", "\n")))
