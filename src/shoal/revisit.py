"""Pages that are visited again: what to ask for, whether the answer is the same, and what to remember of it.

Decisions only; time is an argument. What is remembered is a `Visit`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from shoal.model import Item, Lease, Response, Visit
from shoal.urls import digest

GONE = frozenset({404, 410})
"""Statuses that say of a page that was there once: it is gone."""

_VALIDATOR = re.compile(r"[\x21-\x7e][\x20-\x7e]{0,255}")  # longer ones are not worth their place


def before(lease: Lease) -> Visit | None:
    """The last visit, as far as the answer may be compared with it.

    Not after a lease was lost: its rows may have been written, in the place of those before, though its visit
    was never recorded.
    """
    return None if lease.losses else lease.visit


def conditions(visit: Visit | None) -> tuple[tuple[str, str], ...]:
    """The headers that ask for a page only if it has changed since (RFC 9110 section 13.1)."""
    if visit is None:
        return ()
    headers = ("If-None-Match", visit.etag), ("If-Modified-Since", visit.last_modified)
    return tuple((name, value) for name, value in headers if value)


def is_unchanged(visit: Visit | None, answer: Response) -> bool:
    """Whether the page is as it was: the server says so, or its body is the same."""
    if visit is None:
        return False
    if answer.status == 304:
        return bool(conditions(visit))
    return 200 <= answer.status < 300 and digest(answer.body) == visit.digest


def seen_again(visit: Visit, answer: Response, now: float) -> Visit:
    """The page has not changed. Its validators may have."""
    etag, last_modified = _validators(answer)
    return replace(
        visit,
        last_seen=now,
        etag=etag or visit.etag,
        last_modified=last_modified or visit.last_modified,
    )


def read_anew(visit: Visit | None, answer: Response, items: Sequence[Item], now: float) -> Visit:
    """The page was read. It has changed if its rows have; if it has none, if its content has.

    So what is new with every answer, such as a token in a form, does not make a page look changed.
    """
    etag, last_modified = _validators(answer)
    read = Visit(
        first_seen=visit.first_seen if visit else now,
        last_seen=now,
        last_changed=now,
        etag=etag,
        last_modified=last_modified,
        digest=digest(_content(answer)),
        rows_digest=digest(msgspec.json.encode(items)),
        rows=len(items),
    )
    if visit is None or _what_counts(visit) != _what_counts(read):
        return read
    return replace(read, last_changed=visit.last_changed)


def gone(visit: Visit, now: float) -> Visit:
    """The page is not there any more. If it comes back it is read, even if it is the same as before."""
    return Visit(visit.first_seen, visit.last_seen, last_changed=now if visit.digest else visit.last_changed)


def _content(answer: Response) -> bytes:
    """Of a redirect, where it leads."""
    return answer.body if answer.status < 300 else (answer.header("location") or "").encode()


def _what_counts(visit: Visit) -> tuple[int, int]:
    return visit.rows, visit.rows_digest if visit.rows else visit.digest


def _validators(answer: Response) -> tuple[str, str]:
    etag, last_modified = answer.header("etag") or "", answer.header("last-modified") or ""
    return _usable(etag), _usable(last_modified)


def _usable(value: str) -> str:
    """A validator that can be sent back as it came, or none."""
    return value if _VALIDATOR.fullmatch(value) else ""
