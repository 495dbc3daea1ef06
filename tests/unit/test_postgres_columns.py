"""Which columns the fields of rows get in PostgreSQL."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.store.postgres_columns import NAME_BYTES, changes, column_name, kinds_of


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("title", "title"),
        ("Größe €", "Größe €"),
        ('a"b', 'a"b'),
        ("url", "url"),
        ("token", "token_"),
        ("token_", "token__"),
        ("stored_at", "stored_at_"),
        ("Token", "Token"),
        ("xmin", "xmin_"),
        ("", "_"),
        ("_", "__"),
        ("a_", "a_"),
        ("a\x00b", "a\ufffdb"),
        ("x" * 63, "x" * 63),
    ],
)
def test_the_names_of_columns(field: str, column: str):
    """A field keeps its name unless that is taken, or was got by evading."""
    assert column_name(field) == column


def test_long_names_are_told_apart():
    """Names that PostgreSQL would cut at the same place stay different, and valid UTF-8."""
    names = [column_name("é" * 40 + end) for end in "ab"]
    assert names[0] != names[1]
    assert all(name.startswith("é" * 27 + "~") and len(name.encode()) <= NAME_BYTES for name in names)


TEXT = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=70)
TRICKY = st.builds("".join, st.lists(st.sampled_from(["token", "xmin", "_", "é" * 20, "a"]), max_size=5))


@given(fields=st.sets(TEXT | TRICKY, max_size=20))
def test_fields_never_share_a_column(fields: set[str]):
    """Different fields have different columns."""
    assert len({column_name(field) for field in fields}) == len(fields)


@pytest.mark.parametrize(
    ("values", "column_type"),
    [
        ([True, False, None], "boolean"),
        ([1, -5], "bigint"),
        ([1, 2**63 - 1, -(2**63)], "bigint"),
        ([2**63], "numeric"),
        ([1.5], "double precision"),
        ([1.5, 2**53], "double precision"),
        ([1.5, 2**53 + 1], "numeric"),
        (["a", ""], "text"),
        ([[1]], "jsonb"),
        ([{}], "jsonb"),
        (["a", 1], "jsonb"),
        ([True, 1], "jsonb"),
    ],
)
def test_the_type_of_a_new_column(values: list[object], column_type: str):
    """The first type that holds all values exactly; None is no value."""
    assert changes({}, kinds_of({"a": value} for value in values)) == {"a": column_type}


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("bigint", 5, None),
        ("bigint", 0.5, "numeric"),
        ("bigint", 2**63, "numeric"),
        ("bigint", True, "jsonb"),
        ("bigint", "n/a", "jsonb"),
        ("double precision", 2**53, None),
        ("double precision", 2**53 + 1, "numeric"),
        ("numeric", 0.5, None),
        ("boolean", 1, "jsonb"),
        ("text", 1, "jsonb"),
        ("text", [1], "jsonb"),
        ("jsonb", "text", None),
        ("timestamp with time zone", "2026-12-02", None),
        ("character varying(3)", 5, None),
    ],
)
def test_widening(before: str, value: object, after: str | None):
    """A column is changed only if it must be, and never if its type is not one of ours."""
    assert changes({"a": before}, kinds_of([{"a": value}])) == ({"a": after} if after else {})


def test_fields_without_values_need_no_column():
    """A field that is None everywhere has no column yet."""
    assert changes({}, kinds_of([{"a": None}, {"b": 1}])) == {"b": "bigint"}
