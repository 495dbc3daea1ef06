"""The history of a crawl: by how much its counters grew in each of the last minutes.

It is written in the step that moves the counters, and what falls out of the window is overwritten or deleted,
so that it stays small however long the crawl is.
"""

from __future__ import annotations

from math import inf

from shoal.model import Minute

MINUTE_S = 60
MINUTES = 3 * 24 * 60
"""So many are kept; lua/lib.lua has the same number."""

_COUNTS = ("done", "dead", "skipped", "fetches", "retries", "losses", "found", "items", "size_bytes")
GAINS = (*_COUNTS, "elapsed_ms")
"""What is kept of each, in this order. None of it is below 0: what is taken back is no gain."""


def minute_of(now: float) -> int:
    """The minute, counted from 1970."""
    return int(now // MINUTE_S)


def window(since: float, now: float) -> range:
    """The minutes that may be told of: from the one of `since` on, as far as they are kept."""
    last = minute_of(now)
    first = last - MINUTES + 1
    return range(first if since == -inf else max(first, minute_of(since)), last + 1)


def read_minute(minute: int, *gains: int) -> Minute:
    """As it is kept: its number, then GAINS."""
    counts = dict(zip(_COUNTS, gains[:-1], strict=True))
    return Minute(at=minute * MINUTE_S, elapsed_s=gains[-1] / 1000, **counts)


def pack_minute(minute: Minute) -> tuple[int, ...]:
    """The other way round."""
    counts = (getattr(minute, name) for name in _COUNTS)
    return minute_of(minute.at), *counts, in_ms(minute.elapsed_s)


def in_ms(seconds: float) -> int:
    """Whole milliseconds, of which sums are exact."""
    return int(seconds * 1000 + 0.5)
