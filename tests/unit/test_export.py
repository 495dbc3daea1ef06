"""Exporting rows."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections.abc import Iterator
from datetime import date

import pytest

from shoal.errors import StoreError
from shoal.export import export

ROWS = [
    {"url": "https://shop.example/1", "title": 'Näh"maschine\r\nrot', "price": 12.5},
    {"url": "https://shop.example/2", "tags": ["a", {"b": None}], "price": None},
]


def exported(rows: list[dict[str, object]], kind: str, *, safe: bool = False) -> tuple[int, bytes]:
    """The number of rows and the text of the file."""
    target = io.BytesIO()
    count = export(lambda: iter(rows), target, kind, safe=safe)
    assert not target.closed
    return count, target.getvalue()


def test_jsonl_has_one_row_per_line():
    """Each row is one JSON object on one line; the number of rows is returned."""
    count, text = exported(ROWS, "jsonl")
    assert count == 2
    assert text.endswith(b"\n")
    assert [json.loads(line) for line in text.decode().split("\n")[:-1]] == ROWS


def test_csv_has_the_fields_of_all_rows():
    """The columns are the fields of all rows, in the order in which they appear."""
    count, text = exported(ROWS, "csv")
    assert count == 2
    assert list(csv.reader(io.StringIO(text.decode(), newline=""))) == [
        ["url", "title", "price", "tags"],
        ["https://shop.example/1", 'Näh"maschine\r\nrot', "12.5", ""],
        ["https://shop.example/2", "", "", '["a",{"b":null}]'],
    ]


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_no_rows_give_an_empty_file(kind: str):
    """Nothing to export: nothing is written."""
    assert exported([], kind) == (0, b"")


def test_csv_is_safe_on_request():
    """Formulas are defused in names and values if asked for, and only then."""
    rows: list[dict[str, object]] = [{"=a": "@b", "n": -1}]
    assert exported(rows, "csv", safe=True)[1] == b"'=a,n\r\n'@b,-1\r\n"
    assert exported(rows, "csv")[1] == b"=a,n\r\n@b,-1\r\n"
    assert exported(rows, "jsonl", safe=True)[1] == b'{"=a":"@b","n":-1}\n'


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_values_have_their_documented_form(kind: str):
    """Dates and halves of surrogate pairs are written as in any store."""
    _, text = exported([{"day": date(2026, 1, 2), "text\ud800": "\ud800"}], kind)
    assert "2026-01-02" in text.decode()
    assert text.decode().count("\ufffd") == 2


def test_csv_refuses_fields_that_come_meanwhile():
    """Rows that were added between the two passes never lose a field silently."""
    passes = iter([[{"a": 1}], [{"a": 1}, {"a": 2, "b": 3}]])
    with pytest.raises(StoreError, match='new field "b"'):
        export(lambda: next(passes), io.BytesIO(), "csv")


class Sink(io.RawIOBase):
    """Takes everything, keeps nothing."""

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        return len(data)


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_memory_stays_constant(kind: str):
    """Rows pass one by one: 20 MB of them take less than 1 MB."""

    def rows() -> Iterator[dict[str, object]]:
        for number in range(4_000):
            yield {"n": number, "text": f"{number:05}" * 1_000}

    tracemalloc.start()
    assert export(rows, Sink(), kind) == 4_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000
