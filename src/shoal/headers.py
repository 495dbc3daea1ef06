"""Headers of requests: which can be sent, and how some replace others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

Headers = tuple[tuple[str, str], ...]
"""Names and values, in the order in which they are sent."""

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


def is_sendable(name: str, value: str) -> bool:
    """Whether it is a header, and no more than one (RFC 9110 sections 5.1 and 5.5)."""
    return bool(_NAME.fullmatch(name) and _VALUE.fullmatch(value))


def replaced(headers: Iterable[tuple[str, str]], others: Headers) -> Headers:
    """The headers, with `others` in place of those of the same names."""
    names = {name.lower() for name, _ in others}
    return (*((name, value) for name, value in headers if name.lower() not in names), *others)
