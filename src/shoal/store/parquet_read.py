"""Rows out of a Parquet file, some at a time."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import StoreError
from shoal.model import Item

ROWS = 1_000  # so many are in memory as Python's own values


def parquet_rows(content: bytes, start: int, end: int) -> Iterator[Item]:
    """Those with these numbers, counted from 0 on; null fields are left out. Raises StoreError."""
    try:
        file = pq.ParquetFile(BytesIO(content))
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        begins = [*accumulate(sizes, initial=0)]
        groups = [at for at, (begin, after) in enumerate(pairwise(begins)) if after > start and begin < end]
        at = begins[groups[0]] if groups else 0
        for batch in file.iter_batches(ROWS, row_groups=groups):
            rows = batch.slice(max(0, start - at), max(0, end - max(at, start)))
            at += batch.num_rows
            for row in rows.to_pylist():
                yield {name: value for name, value in row.items() if value is not None}
    except pa.ArrowException as error:
        raise StoreError(f"a part cannot be read: {error}") from error
