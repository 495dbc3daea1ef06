"""Rows into one Parquet file, with the types that `shoal.store.parquet` gives to columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import StoreError
from shoal.store.parquet import ROW_GROUP, fitted, row_groups, to_row, to_table, united
from shoal.store.read import Rows

AT_ONCE = 1_000  # rows in memory as Python's own values


def export_parquet(rows: Rows, file: Path) -> int:
    """Write all rows to the file, in two passes: the first one finds the columns; returns how many.

    Raises StoreError if the second pass finds others.
    """
    schema = pa.schema([])
    for table in _tables(rows):
        schema = united([schema, table.schema])
    count = 0
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for group in row_groups(_fitting(rows, schema)):
            writer.write_table(group, row_group_size=ROW_GROUP)
            count += group.num_rows
    return count


def _tables(rows: Rows) -> Iterator[pa.Table]:
    left = iter(rows())
    while some := [to_row(row) for row in islice(left, AT_ONCE)]:
        yield to_table(some)


def _fitting(rows: Rows, schema: pa.Schema) -> Iterator[pa.Table]:
    for table in _tables(rows):
        if united([schema, table.schema]) != schema:
            raise StoreError("rows with other columns came while they were exported: export again")
        yield fitted(table, schema)
