"""What users put into requests comes back as it was, and nothing is run on the way."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import msgspec
import pytest
import scrapy
from hypothesis import given
from hypothesis import strategies as st

from shoal.scrapy.values import NotStorable, pack, unpack

HASHABLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.dates(),
    st.datetimes(timezones=st.sampled_from([None, UTC])),
    st.times(),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.uuids(),
)
VALUES = st.recursive(
    HASHABLE | st.sets(HASHABLE) | st.frozensets(HASHABLE),
    lambda inner: st.one_of(
        st.lists(inner),
        st.dictionaries(st.text() | st.just("$"), inner),
        st.dictionaries(HASHABLE, inner),
        st.lists(inner).map(tuple),
    ),
    max_leaves=12,
)


def through_json(value: object) -> object:
    """What comes back of a value."""
    return unpack(msgspec.json.decode(msgspec.json.encode(pack(value, "meta"))))


@given(VALUES)
def test_values_come_back_as_they_were(value):
    """Of the same types, too."""
    back = through_json(value)
    assert back == value
    assert type(back) is type(value)


class Book(scrapy.Item):
    title = scrapy.Field()
    tags = scrapy.Field()


@dataclass
class Author:
    name: str
    born: date


def test_items_come_back_as_items():
    """Those of Scrapy and dataclasses, with whatever is in them."""
    item = Book(title="Moby", tags=("sea", b"whale"))
    assert through_json({"item": item}) == {"item": item}
    author = Author("Ishmael", date(1819, 8, 1))
    assert through_json([author, {1: author}]) == [author, {1: author}]


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        2**70,
        "\ud800",
        datetime.now(),
        time(1, 2),
        timedelta(-1, 2, 3),
        Decimal("1.10"),
        UUID(int=1),
    ],
)
def test_what_json_lacks_comes_back(value):
    """Unusual numbers, half of a surrogate pair, times."""
    assert through_json(value) == value


def test_subclasses_of_plain_types_become_plain():
    """As the text of a selector may be."""

    class Text(str):
        __slots__ = ()

    back = through_json(defaultdict(list, {"text": Text("x")}))
    assert back == {"text": "x"}
    assert (type(back), type(back["text"])) == (dict, str)


@pytest.mark.parametrize("value", [object(), lambda: None, open, os, Book, [{"deep": {"er": object()}}]])
def test_other_values_are_refused_by_name(value):
    """The error says where it is and what it is."""
    with pytest.raises(NotStorable, match=r"meta.* is a \w+, which cannot be kept"):
        pack(value, "meta")


@pytest.mark.parametrize(
    "form",
    [
        {"$": ["item", ["os:system", {"command": "true"}]]},
        {"$": ["item", ["subprocess:Popen", {"args": "true"}]]},
        {"$": ["item", ["not.imported:Thing", {}]]},
        {"$": ["item", [f"{__name__}:Book.fields", {}]]},
        {"$": ["exec", "1"]},
        {"$": ["bytes", "not base64"]},
        {"$": ["int", "x"]},
        {"$": "whatever"},
        {"$": ["item", ["builtins:dict", {}]]},
    ],
)
def test_what_others_have_written_runs_nothing(form):
    """Only items are made of classes, and only of those that are there already."""
    with pytest.raises(NotStorable):
        unpack({"x": [form]})
