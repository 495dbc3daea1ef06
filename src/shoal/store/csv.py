r"""CSV (RFC 4180): a header, then one line per row; the same columns from beginning to end.

Lines end in "\r\n", as the RFC has it and spreadsheets write it. UTF-8 without a byte order mark, which
most programs would take for a part of the first column's name; Excel is told the encoding when it
imports the file (Data > From Text/CSV). Missing fields and None are empty, true and false are in small
letters, lists and mappings are JSON text.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence

from shoal.errors import StoreError
from shoal.model import Outcome
from shoal.store.encode import to_cell, to_item
from shoal.store.file import FileStore

_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""What makes a spreadsheet run a cell, by OWASP ("CSV Injection"); the last four are full-width forms."""


class CsvStore(FileStore):
    """Rows with the same fields.

    fields: the columns, in their order; without them the first row's fields.
    safe: text that a spreadsheet would run as a formula is defused, names of columns too (see `to_csv`).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        fields: Sequence[str] = (),
        *,
        safe: bool = False,
        sync: bool = True,
    ) -> None:
        super().__init__(path, sync=sync)
        self._safe = safe
        self._fields = tuple(map(self._spelled, fields))
        self._header: tuple[str, ...] = ()
        """As read from the file, where it is committed and stays; empty: not read yet."""

    def _start(self, position: int | None, fresh: bool) -> int:
        start = super()._start(position, fresh)
        if start > 0:
            self._require(self._fields, self._read_header())
        return start

    def _require(self, fields: Iterable[str], columns: Sequence[str]) -> None:
        for field in fields:
            if field not in columns:
                raise StoreError(
                    f'the columns of {self.path} do not fit: it has no "{field}", only {", ".join(columns)}; '
                    "give every row the same fields, or choose another file (a .jsonl takes any fields)"
                )

    def _render(self, outcomes: Sequence[Outcome], start: int) -> bytes:
        rows = [self._row(item) for outcome in outcomes for item in outcome.rows()]
        if not rows:
            return b""
        columns = self._columns(start, rows[0])
        known = frozenset(columns)
        for row in rows:
            if not known.issuperset(row):
                self._require(row, columns)
        lines = [] if start else [to_csv(columns)]
        lines += [to_csv(map(row.get, columns), safe=self._safe) for row in rows]
        return b"".join(lines)

    def _row(self, item: Mapping[str, object]) -> dict[str, object]:
        row = to_item(item)
        return {self._spelled(field): value for field, value in row.items()} if self._safe else row

    def _spelled(self, field: str) -> str:
        return _defused(field) if self._safe else field

    def _columns(self, start: int, row: Mapping[str, object]) -> tuple[str, ...]:
        if start:
            return self._read_header()
        self._header = ()
        return self._fields or tuple(row)

    def _read_header(self) -> tuple[str, ...]:
        if not self._header:
            with open(self._fd, encoding="utf-8", errors="replace", newline="", closefd=False) as file:
                file.seek(0)
                self._header = tuple(next(csv.reader(file)))
        return self._header


class _Echo:
    @staticmethod
    def write(line: str) -> str:
        return line


_line = csv.writer(_Echo(), lineterminator="\r\n").writerow  # returns what `write` returned


def to_csv(values: Iterable[object], *, safe: bool = False) -> bytes:
    """One line of the values of a row (from `to_item`), with its end, in UTF-8.

    safe: text that starts like a formula (= + - @, their full-width forms, tab, CR, LF) gets an apostrophe in
    front, so that no spreadsheet runs it. It is no longer the text that was scraped.
    """
    line: str = _line([_cell(value, safe) for value in values])
    return line.encode()


def _cell(value: object, safe: bool) -> str | int | float:
    if isinstance(value, str):
        return _defused(value) if safe else value
    if isinstance(value, bool):
        return "true" if value else "false"
    cell = to_cell(value)
    return "" if cell is None else cell


def _defused(text: str) -> str:
    return "'" + text if text.startswith(_FORMULA) else text
