"""The form of values in rows: what JSON can hold as it is, and one form for everything else.

    datetime, date, time        ISO 8601 text; in UTC with a Z at the end
    timedelta                   ISO 8601 duration, as in "PT90S"
    Decimal, UUID               text, with all digits
    bytes                       base64 text (RFC 4648 section 4)
    Enum                        its value
    tuple, set, frozenset       list; a set in no particular order
    mapping, dataclass, attrs class, msgspec Struct, pydantic model     mapping with text as keys
    NaN, Infinity               null
    half of a surrogate pair    U+FFFD, the replacement character

Integers may have up to 4,300 digits (Python's own limit). Anything else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any, cast

import msgspec

from shoal.errors import StoreError


def to_item(value: object) -> dict[str, object]:
    """Turn what a handler yields into a row: fields to str, int, float, bool, None, list or dict.

    value: a mapping, dataclass, msgspec Struct or pydantic model. Raises StoreError, naming the field
    and its type, if it holds something without a form, or if it is something else altogether.
    """
    item = _decode(to_json(value))
    if type(item) is not dict:
        raise StoreError(f"a row needs named fields, as in a dict or a dataclass; this is a {_type(value)}")
    return cast("dict[str, object]", item)


def to_json(value: object) -> bytes:
    """The value as JSON (RFC 8259) in UTF-8 on one line, without its end. Raises StoreError as `to_item`."""
    try:
        return _dump(value)
    except (TypeError, ValueError, RecursionError) as exc:
        raise StoreError(_blame(value, exc)) from exc


def to_cell(value: object) -> str | int | float | None:
    """A field of a row (from `to_item`) for where only single values fit: lists and dicts as JSON text."""
    if isinstance(value, (list, dict)):
        return to_json(value).decode()
    return cast("str | int | float | None", value)


def _foreign(value: object) -> object:
    """What msgspec does not know by itself, in terms of what it knows."""
    match value:
        case None | bool():  # as a key, where the json module spells them like this too
            return _encode(value).decode()
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case bytes():
            return bytes(value)
        case Decimal():
            return str(value)
        case date() | time():
            return value.isoformat()
        case Mapping():
            return dict(value)
    if _is_model(value):
        return _model_fields(value)
    raise TypeError(f"a {_type(value)} has no form in a row, or not as a key; convert it first")


_encode = msgspec.json.Encoder(enc_hook=_foreign).encode
_decode = msgspec.json.Decoder().decode


def _dump(value: object) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_mended(msgspec.to_builtins(value, str_keys=True, enc_hook=_foreign)))


def _mended(value: object) -> object:
    """Builtins without halves of surrogate pairs, which UTF-8 cannot hold; two that fit become one."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(part) for part in value]
    if isinstance(value, dict):
        return {_mended(name): _mended(part) for name, part in value.items()}
    return value


def _blame(value: object, error: Exception) -> str:
    """One line for people: which field it was, if it can be told."""
    for name, part in _fields(value).items():
        try:
            _dump(part)
        except (TypeError, ValueError, RecursionError) as exc:
            return f'the field "{name}" cannot be stored: {exc}'
    return f"a row cannot be stored: {error}"


def _fields(value: object) -> Mapping[object, object]:
    if isinstance(value, Mapping):
        return value
    if _is_model(value):
        return _model_fields(value)
    names = getattr(value, "__struct_fields__", ()) or getattr(value, "__dataclass_fields__", ())
    return {name: getattr(value, name) for name in names}


def _is_model(value: object) -> bool:
    """Whether it is a model of pydantic, which need not be installed."""
    return hasattr(value, "model_dump") and not isinstance(value, type)


def _model_fields(value: Any) -> Mapping[object, object]:
    return cast("Mapping[object, object]", value.model_dump())


def _type(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
