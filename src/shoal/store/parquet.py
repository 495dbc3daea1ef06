"""Parquet: typed columns, in many files (`shoal.store.parts`), by the day on which rows were stored.

A column has the type of its values:

    true and false                 boolean
    whole numbers of 64 bits       int64
    other numbers                  double
    text                           string
    datetime, date                 timestamp in microseconds (UTC if it has a zone), date
    lists of one of these          list
    mappings, lists of others, values of several sorts     string: text as it is, the others as JSON

A field that is missing is null. A column gets a wider type when its values need one (int64 becomes double,
what does not fit together becomes string); earlier parts keep the narrower type until they are put together
with later ones, so let readers unite the schemas (`union_by_name` of DuckDB).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.model import Item, Outcome
from shoal.store.encode import to_item, to_json
from shoal.store.parts import PartStore

ROW_GROUP = 122_880  # rows; what DuckDB works on at once
ROW_GROUP_BYTES = 64_000_000  # not more than this in memory, before it is compressed

_UTC = pa.timestamp("us", "UTC")


class ParquetStore(PartStore[list[dict[str, object]]]):
    """Rows with typed columns."""

    suffix = "parquet"
    _schema = pa.schema([])
    """Wide enough for all that this writer has written."""

    def _batch(self, outcomes: Sequence[Outcome]) -> tuple[int, list[dict[str, object]]]:
        rows = [to_row(item) for outcome in outcomes for item in outcome.rows()]
        return len(rows), rows

    def _encode(self, batch: list[dict[str, object]]) -> bytes:
        table = to_table(batch)
        self._schema = united([self._schema, table.schema])
        return _written(self._schema, [table])

    def _joined(self, contents: Iterable[bytes]) -> bytes:
        files = [BytesIO(content) for content in contents]
        schema = united(pq.read_schema(file) for file in files)
        return _written(schema, (pq.read_table(file) for file in files))

    def _head(self, content: bytes, rows: int) -> bytes:
        table = pq.read_table(BytesIO(content)).slice(0, rows)
        return _written(table.schema, [table])


def to_row(item: Item) -> dict[str, object]:
    """As `to_item`, but moments and days stay what they are."""
    row = to_item(item)
    if isinstance(item, Mapping):
        row.update({name: value for name, value in item.items() if isinstance(value, date) and name in row})
    return row


def to_table(rows: Sequence[Mapping[str, object]]) -> pa.Table:
    """Rows (from `to_row`) as a table, with the columns in the order in which they appear."""
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def united(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The schema that holds what each of these does."""
    types: dict[str, pa.DataType] = {}
    for schema in schemas:
        for field in schema:
            types[field.name] = _wider(types.get(field.name, pa.null()), field.type)
    return pa.schema(list(types.items()))


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns of a schema that is as wide (see `united`)."""
    columns = [
        _cast(table[field.name].combine_chunks(), field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of tables with one schema, in pieces that are fit to be row groups."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(each.num_rows for each in waiting) >= ROW_GROUP or (
            sum(each.nbytes for each in waiting) >= ROW_GROUP_BYTES
        ):
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _written(schema: pa.Schema, tables: Iterable[pa.Table]) -> bytes:
    target = BytesIO()
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for group in row_groups(fitted(table, schema) for table in tables):
            writer.write_table(group, row_group_size=ROW_GROUP)
    return target.getvalue()


# --- types ---------------------------------------------------------------------------------------


def _column(values: Sequence[object]) -> pa.Array:
    try:
        column = pa.array(values)
    except (pa.ArrowException, OverflowError):  # of several sorts, or too large
        return _texts(values)
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(_UTC if kind.tz else pa.timestamp("us"))
    if pa.types.is_list(kind):
        return column if _is_plain(kind.value_type) else _texts(values)
    return column if _is_plain(kind) else _texts(values)


def _is_plain(kind: pa.DataType) -> bool:
    return kind in _PLAIN


_PLAIN = (pa.null(), pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.date32(), pa.timestamp("us"), _UTC)


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_wider(one.value_type, other.value_type))
    return pa.string()


def _cast(column: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind) and not pa.types.is_null(column.type):
        return column if column.type == kind else _texts(column.to_pylist())
    if pa.types.is_list(kind) and pa.types.is_string(kind.value_type) and column.type != kind:
        return pa.array([each and [_text(part) for part in each] for each in column.to_pylist()], kind)
    return column.cast(kind, safe=False)


def _texts(values: Sequence[object]) -> pa.Array:
    return pa.array([_text(value) for value in values], pa.string())


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    text = to_json(value).decode()
    return text[1:-1] if isinstance(value, date | datetime) else text
