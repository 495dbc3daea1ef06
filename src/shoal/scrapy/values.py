"""Values of the user's, in a form that JSON can hold and that comes back as it was. Decisions only.

What JSON has stays as it is; everything else is `{"$": [KIND, FORM]}`. Nothing is run when values come back:
of classes there are only those of items, and only if the process has imported them for itself.
"""

from __future__ import annotations

import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

from itemadapter import ItemAdapter

from shoal.errors import ShoalError

MARK = "$"
PAGE_METHOD = "scrapy_playwright.page", "PageMethod"
MOST_INT = 2**63


class NotStorable(ShoalError):  # noqa: N818 - named for the state
    """A request cannot be kept in the frontier, or not be made of what is kept there; says why."""


def pack(value: Any, where: str) -> Any:
    """The form of a value that JSON can hold. where: what to call it in the error.

    Raises NotStorable for a value that would not come back as it was.
    """
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -MOST_INT <= value < MOST_INT else {MARK: ["int", str(value)]}
    if kind is dict:
        return _mapping(value, where)
    if kind is list:
        return [pack(each, where) for each in value]
    if kind is float:
        return value if isfinite(value) else {MARK: ["float", repr(value)]}
    return _marked(value, where)


def unpack(form: Any) -> Any:
    """The value of a form. Raises NotStorable if there is none."""
    kind = type(form)
    if kind is list:
        return [unpack(each) for each in form]
    if kind is not dict:
        return form
    if MARK not in form:
        return {name: unpack(each) for name, each in form.items()}
    try:
        name, inner = form[MARK]
        return _READ[name](inner)
    except NotStorable:
        raise
    except Exception as error:
        raise NotStorable(f"not a value: {str(form)[:100]}") from error


def _text(value: str) -> Any:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return {MARK: ["str", _base64(value.encode("utf-8", "surrogatepass"))]}
    return value


def _mapping(value: Mapping[Any, Any], where: str) -> Any:
    if all(type(name) is str for name in value) and MARK not in value:
        return {_text(name): pack(each, f"{where}['{name}']") for name, each in value.items()}
    return {MARK: ["dict", [[pack(name, where), pack(each, where)] for name, each in value.items()]]}


def _marked(value: Any, where: str) -> Any:
    for kind, (name, write) in _WRITE.items():
        if isinstance(value, kind):
            return {MARK: [name, write(value, where)]} if name else pack(write(value, where), where)
    if (type(value).__module__, type(value).__qualname__) == PAGE_METHOD:
        return {MARK: ["page_method", pack([value.method, list(value.args), dict(value.kwargs)], where)]}
    if ItemAdapter.is_item(value):
        fields = {name: pack(each, f"{where}['{name}']") for name, each in ItemAdapter(value).items()}
        return {MARK: ["item", [f"{type(value).__module__}:{type(value).__qualname__}", fields]]}
    raise NotStorable(f"{where} is a {type(value).__qualname__}, which cannot be kept")


def _sequence(value: Any, where: str) -> Any:
    return [pack(each, where) for each in value]


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


# Subclasses come before their classes; without a name the value is taken for one of the plain class.
_WRITE: dict[type, tuple[str, Callable[[Any, str], Any]]] = {
    bytes: ("bytes", lambda value, _: _base64(value)),
    tuple: ("tuple", _sequence),
    set: ("set", _sequence),
    frozenset: ("frozenset", _sequence),
    datetime: ("datetime", lambda value, _: value.isoformat()),
    date: ("date", lambda value, _: value.isoformat()),
    time: ("time", lambda value, _: value.isoformat()),
    timedelta: ("timedelta", lambda value, _: [value.days, value.seconds, value.microseconds]),
    Decimal: ("decimal", lambda value, _: str(value)),
    UUID: ("uuid", lambda value, _: str(value)),
    str: ("", lambda value, _: str.__str__(value)),
    int: ("", lambda value, _: int(value)),
    float: ("", lambda value, _: float(value)),
    dict: ("", lambda value, _: dict(value)),
    list: ("", lambda value, _: list(value)),
}


def _item(form: Any) -> Any:
    place, fields = form
    return item_class(place, _is_item_class)(**unpack(fields))


def _is_item_class(kind: type) -> bool:
    return ItemAdapter.is_item_class(kind) and not issubclass(kind, dict)


def item_class(place: str, allowed: Callable[[type], bool]) -> Any:
    """The class at "MODULE:NAME", if the process has imported it and it is allowed. Raises NotStorable."""
    module, _, name = place.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not allowed(found):
        raise NotStorable(f"there is no class {place} here: import its module where the spider is")
    return found


def _page_method(form: Any) -> Any:
    from scrapy_playwright.page import PageMethod

    method, args, kwargs = unpack(form)
    return PageMethod(method, *args, **kwargs)


_READ: dict[str, Callable[[Any], Any]] = {
    "str": lambda form: b64decode(form, validate=True).decode("utf-8", "surrogatepass"),
    "int": int,
    "float": float,
    "bytes": lambda form: b64decode(form, validate=True),
    "tuple": lambda form: tuple(unpack(form)),
    "set": lambda form: set(unpack(form)),
    "frozenset": lambda form: frozenset(unpack(form)),
    "dict": lambda form: {unpack(name): unpack(each) for name, each in form},
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda form: timedelta(*form),
    "decimal": Decimal,
    "uuid": UUID,
    "item": _item,
    "page_method": _page_method,
}
