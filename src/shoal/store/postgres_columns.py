"""Columns for the rows of a PostgreSQL table: the name that a field gets, and the type that its values need.

A column has the first of these types that holds all its values exactly, as long as they are of one sort:

    boolean             true and false
    bigint              whole numbers of up to 64 bits
    double precision    fractions, and whole numbers of up to 53 bits
    numeric             any numbers
    text                text
    jsonb               lists and mappings, and values of several sorts

A column of moments (first_seen, last_seen, last_changed) is a timestamp with time zone.

Nothing is lost when a column is widened later: numbers become numeric, anything else jsonb. A column of any
other type was made by somebody else and is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import TypeAlias

OWN = {"crawl": "text", "fingerprint": "bigint", "idx": "integer", "token": "bigint"}
"""The columns that tell which row it is."""

STORED_AT = "stored_at"

MOMENT = "timestamp with time zone"
"""For columns of moments. It is not ours alone: such a column may have been made for text that says when."""

NAME_BYTES = 63
"""PostgreSQL cuts longer names."""

Kinds: TypeAlias = dict[str, set[str]]
"""For each column the kinds of its values: `_KINDS`, and for whole numbers one of `_WHOLE`."""

_TAKEN = {*OWN, STORED_AT, "tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", ""}
_KINDS = {bool: "boolean", float: "float", str: "text", datetime: "time", list: "json", dict: "json"}
_WHOLE = {"int53", "int64", "int"}
_HOLDS = {
    "boolean": {"boolean"},
    "bigint": {"int53", "int64"},
    "double precision": {"int53", "float"},
    "numeric": {"float", *_WHOLE},
    "text": {"text"},
    "jsonb": {*_KINDS.values(), *_WHOLE},
}


@lru_cache(4096)
def column_name(field: str) -> str:
    """The column for a field: its own name, if it can have it.

    A name that is taken (`token`), or is made like this (`token_`), gets an underscore at its end. One of
    more than 63 bytes in UTF-8 keeps its beginning and ends in a tilde and a hash of the whole. U+0000, for
    which PostgreSQL has no place, becomes U+FFFD, the replacement character.
    """
    name = field.replace("\x00", "\ufffd")
    if name.rstrip("_") in _TAKEN:
        name += "_"
    encoded = name.encode()
    if len(encoded) <= NAME_BYTES:
        return name
    end = "~" + blake2b(encoded, digest_size=4).hexdigest()
    return encoded[: NAME_BYTES - len(end)].decode(errors="ignore") + end


def kinds_of(rows: Iterable[Mapping[str, object]]) -> Kinds:
    """Which kinds of values the rows have, by column; None is of no kind, and may stand in any column."""
    kinds: Kinds = {}
    for row in rows:
        for name, value in row.items():
            if value is not None:
                kinds.setdefault(name, set()).add(_kind(value))
    return kinds


def changes(columns: Mapping[str, str], kinds: Kinds) -> dict[str, str]:
    """The columns that have to be added or widened, with their new types.

    columns: those that are there, with their types.
    """
    needed = {}
    for name, found in kinds.items():
        before = columns.get(name)
        if before is None:
            needed[name] = _type_for(found)
        elif before in _HOLDS and not found <= _HOLDS[before]:
            needed[name] = _type_for(found | _HOLDS[before])
    return needed


def is_foreign(column_type: str) -> bool:
    """Whether a column of this type was made by somebody else."""
    return column_type not in _HOLDS


def without_nul(value: object) -> object:
    """The value (builtins) with U+FFFD for each U+0000, which PostgreSQL cannot hold, keys included."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, list):
        return [without_nul(part) for part in value]
    if isinstance(value, dict):
        return {without_nul(name): without_nul(part) for name, part in value.items()}
    return value


def _kind(value: object) -> str:
    if type(value) is not int:
        return _KINDS[type(value)]
    if -(2**53) <= value <= 2**53:
        return "int53"
    return "int64" if -(2**63) <= value < 2**63 else "int"


def _type_for(kinds: set[str]) -> str:
    if kinds == {"time"}:
        return MOMENT
    return next(name for name, held in _HOLDS.items() if kinds <= held)
