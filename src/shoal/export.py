"""Rows out of a store into a file for other programs, at constant memory."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Literal, TypeAlias

from shoal.errors import ConfigError, StoreError
from shoal.model import Item
from shoal.store.csv import to_csv
from shoal.store.encode import to_item, to_json

Format: TypeAlias = Literal["jsonl", "csv"]


def export(
    rows: Callable[[], Iterable[Item]],
    target: IO[bytes],
    format: Format,  # noqa: A002 - the word for it
    *,
    safe: bool = False,
) -> int:
    """Write all rows to `target`; returns how many.

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
    if new := item.keys() - set(columns):
        raise StoreError(f'rows with a new field "{min(new)}" came while they were exported: export again')
    return to_csv(map(item.get, columns), safe=safe)


def export_file(
    rows: Callable[[], Iterable[Item]],
    output: str | None,
    format: Format | None,  # noqa: A002 - the word for it
    *,
    safe: bool = False,
) -> int:
    """Write all rows to the file `output`, or to standard output; returns how many.

    The file is complete or not there at all: it is written beside its place and then put into it.
    format: None goes by the file's name, and is JSON lines on standard output.
    Raises ConfigError for a file of an unknown kind, StoreError if it cannot be written.
    """
    if output is None:
        return export(rows, sys.stdout.buffer, format or "jsonl", safe=safe)
    kind = format or _FORMATS.get(Path(output).suffix.lower())
    if kind is None:
        raise ConfigError(f"what kind of file is {output}? Name it *.jsonl or *.csv, or give --format")
    place = Path(output)
    try:
        with tempfile.NamedTemporaryFile(dir=place.parent, prefix=place.name, delete=False) as target:
            beside = Path(target.name)
            try:
                count = export(rows, target, kind, safe=safe)
                target.flush()
                beside.chmod(0o666 & ~_umask())
                beside.replace(place)
            except BaseException:
                beside.unlink()
                raise
    except OSError as error:
        raise StoreError(f"cannot write {output}: {error.strerror}") from error
    return count


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_FORMATS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
