"""The documented form of values in rows."""

from __future__ import annotations

import json
from collections import OrderedDict, UserDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from types import MappingProxyType
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import StoreError
from shoal.store.encode import to_cell, to_item, to_json


class Colour(Enum):
    RED = "red"


class Size(IntEnum):
    LARGE = 3


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "not the text"


class Whole(int):
    pass


class Real(float):
    pass


class Raw(bytes):
    pass


class Money(Decimal):
    pass


class Moment(datetime):
    pass


@dataclass
class Price:
    amount: Decimal
    tags: set[str] = field(default_factory=set)


class Book(msgspec.Struct):
    title: str
    price: object = None


class Author(pydantic.BaseModel):
    name: str
    born: date | None = None
    prices: list[Price] = []
    photo: bytes = b""


ZONE = timezone(timedelta(hours=5, minutes=30))


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 6), "2026-01-02T03:04:05.000006"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05Z"),
        (datetime(2026, 1, 2, tzinfo=ZONE), "2026-01-02T00:00:00+05:30"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(1, 2), "01:02:00"),
        (timedelta(minutes=1, seconds=30), "PT90S"),
        (Decimal("12.340"), "12.340"),
        (Decimal("1e400"), "1E+400"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\xff\x00", "/wA="),
        (bytearray(b"x"), "eA=="),
        (Colour.RED, "red"),
        (Size.LARGE, 3),
        ((1, (2,)), [1, [2]]),
        ({1}, [1]),
        (frozenset({"a"}), ["a"]),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (UserDict(a=UserDict(b=1)), {"a": {"b": 1}}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        ({1: "a", Colour.RED: "b", date(2026, 1, 2): "c"}, {"1": "a", "red": "b", "2026-01-02": "c"}),
        ({True: 1, None: 2, 1.5: 3}, {"true": 1, "null": 2, "1.5": 3}),
        (Price(Decimal("1.50"), {"x"}), {"amount": "1.50", "tags": ["x"]}),
        (Book("A", Price(Decimal(2))), {"title": "A", "price": {"amount": "2", "tags": []}}),
        (Author(name="B", photo=b"x"), {"name": "B", "born": None, "prices": [], "photo": "eA=="}),
        (float("nan"), None),
        (float("inf"), None),
        (float("-inf"), None),
        (-0.0, -0.0),
        (2**64, 2**64),
        (-(2**200), -(2**200)),
        ([10**4299], [10**4299]),
        (True, True),
        (None, None),
        (Text("text"), "text"),
        (Whole(7), 7),
        (Real(1.5), 1.5),
        (Raw(b"x"), "eA=="),
        (Money("1.0"), "1.0"),
        (Moment(2026, 1, 2), "2026-01-02T00:00:00"),
    ],
)
def test_every_value_has_one_form(value: object, form: object):
    """As a field, nested, and as JSON: the same form, of builtins only."""
    item = to_item({"field": value, "nested": [{"deep": value}]})
    assert item == {"field": form, "nested": [{"deep": form}]}
    assert type(item["field"]) is type(form)
    assert json.loads(to_json({"field": value})) == {"field": form}


@pytest.mark.parametrize(
    ("text", "mended"),
    [
        ("\ud800", "\ufffd"),
        ("a\udfffb", "a\ufffdb"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud83d\ude00", "😀"),
        ("\ud83dx😀\ufeff", "\ufffdx😀\ufeff"),
    ],
)
def test_halves_of_surrogate_pairs_are_replaced(text: str, mended: str):
    """Text that UTF-8 cannot hold never raises; a proper pair becomes its character, also in names."""
    value = {text: [text, Text(text), {text}, {"a": text, "b": 1.5, "c": float("nan"), "d": 2**70}]}
    rest = {"b": 1.5, "c": None, "d": 2**70}
    assert to_item(value) == {mended: [mended, mended, [mended], {"a": mended, **rest}]}
    assert to_item(Author.model_construct(name=text))["name"] == mended
    assert to_item(Book(text))["title"] == mended


@pytest.mark.parametrize(
    ("row", "item"),
    [
        ({"title": "A"}, {"title": "A"}),
        (Book("A", 1), {"title": "A", "price": 1}),
        (Price(Decimal(1)), {"amount": "1", "tags": []}),
        (
            Author(name="B", born=date(2026, 1, 2), prices=[Price(Decimal("1.50"), {"x"})]),
            {
                "name": "B",
                "born": "2026-01-02",
                "prices": [{"amount": "1.50", "tags": ["x"]}],
                "photo": "",
            },
        ),
        (UserDict(a=1), {"a": 1}),
        ({}, {}),
    ],
)
def test_a_row_may_be_a_mapping_or_a_model(row: object, item: object):
    """Dicts, dataclasses, Structs and pydantic models give rows, with their fields in order."""
    assert to_item(row) == item
    assert list(to_item(row)) == list(item)


@pytest.mark.parametrize("value", [["a"], "text", 5, None, {1, 2}, ("a", 1), Colour.RED, b"x"])
def test_what_has_no_named_fields_is_no_row(value: object):
    """The error says what it is and what is needed."""
    with pytest.raises(StoreError, match=f"named fields.* this is a .*{type(value).__qualname__}$"):
        to_item(value)


def cyclic() -> object:
    """A list that holds itself."""
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Fraction(1, 2), "fractions.Fraction"),
        (1j, "complex"),
        ((n for n in [1]), "generator"),
        (Author, "ModelMetaclass"),
        (object(), "object"),
        ([{"x": Fraction(1, 2)}], "Fraction"),
        ({(1, 2): 1}, "tuple .*not as a key"),
        (cyclic(), "recursion"),
        ([10**5000], "4300"),
    ],
)
def test_what_has_no_form_is_refused(value: object, words: str):
    """The error names the field, and its type or what else is wrong, on one line; in models too."""
    for row in ({"title": "A", "price": value}, Book("A", value)):
        for encode in (to_item, to_json):
            with pytest.raises(StoreError, match=f'the field "price" cannot be stored: .*{words}') as caught:
                encode(row)
            assert "\n" not in str(caught.value)


def test_what_has_no_form_is_refused_beside_broken_text():
    """Text that has to be mended does not hide the field that is wrong."""
    with pytest.raises(StoreError, match=r'field "price" cannot be stored: a fractions\.Fraction'):
        to_item({"title": "\ud800", "price": Fraction(1, 2)})


def test_a_row_as_a_whole_without_a_form_is_refused():
    """An object that is not a row of any kind is named."""
    for value in (object(), Author):
        with pytest.raises(StoreError, match=r"a row cannot be stored: a .*(object|Metaclass) has no form"):
            to_item(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_json_values_are_left_as_they_are(row: dict[str, object]):
    """What JSON can hold comes back unchanged, and takes one line."""
    assert to_item(row) == row
    line = to_json(row)
    assert json.loads(line) == row
    assert not {b"\n"[0], b"\r"[0]} & set(line)


@given(st.dictionaries(st.text(st.characters()), st.text(st.characters()), max_size=3))
def test_any_text_at_all_is_stored(row: dict[str, str]):
    """Surrogates included, the result is always valid UTF-8 and encodes to itself."""
    item = to_item(row)
    assert to_item(item) == item
    assert json.loads(to_json(row).decode()) == item


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("a", "a"),
        (1, 1),
        (1.5, 1.5),
        (True, True),
        (None, None),
        (["é", None], '["é",null]'),
        ({"a": {}}, '{"a":{}}'),
    ],
)
def test_cells_hold_single_values(value: object, cell: object):
    """Lists and dicts become JSON text, the rest stays."""
    assert to_cell(value) == cell
    assert type(to_cell(value)) is type(cell)
