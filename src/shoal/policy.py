"""What to do with an answer: read it, follow it, try again later, or give up. Decisions only.

Randomness (`draw`, from 0 up to 1) and time are arguments; nothing here waits or asks a clock.

| answer | verdict |
| --- | --- |
| 2xx | Read; 204 and 205 are pages without content |
| 300 with a Location, 301, 302, 303, 307, 308 | Redirect; Dead if there is no Location |
| 300 without a Location | Read: the body lists the choices |
| 408, 425, 429, 5xx but 501 and 505 | Retry |
| any other status, a 304 that nobody asked for among them | Dead |
| dns, refused, reset, timeout, truncated | Retry: it may be better in a minute |
| protocol | Retry: seen from servers that are overloaded or restarting |
| tls | Retry, but Dead if it is about a certificate: that stays as it is |
| robots | Retry, later than others: the site is in trouble, and all of it hangs on this file |
| blocked, too_large, decoding | Dead: the answer would be the same |
"""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypeAlias, overload

from msgspec import Struct
from msgspec.structs import replace

from shoal.model import Failure, FailureKind, Response

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TRANSIENT = frozenset({408, 425, 429, *range(500, 600)}) - {501, 505}
_PERMANENT: frozenset[FailureKind] = frozenset({"blocked", "too_large", "decoding"})
_REASONS: dict[FailureKind, str] = {
    "blocked": "blocked address",
    "dns": "host not found",
    "refused": "connection refused",
    "reset": "connection reset",
    "tls": "TLS",
    "timeout": "timeout",
    "truncated": "truncated body",
    "protocol": "broken HTTP",
    "decoding": "broken content coding",
    "too_large": "too large",
    "robots": "robots.txt unreachable",
}
_LEAST_DRAW = 0.05  # of the backoff's upper end: never at once
_FOREVER_S = 1e9


class Retries(Struct, frozen=True):
    """How often and how late a page is tried again."""

    max_attempts: int = 4
    """In all, the first one included."""
    base_s: float = 1.0
    """The backoff after the first attempt is up to this long; it doubles with each attempt."""
    cap_s: float = 300.0
    """No backoff is longer, and no pause that the server did not ask for."""
    pause_s: float = 5.0
    """In place of `base_s` where a whole host is concerned: a 429 without a Retry-After, which pauses the
    host, and robots.txt out of reach."""
    max_retry_after_s: float = 3600.0
    """A server that asks for more gets this."""


class Read(Struct, frozen=True, tag=True):
    """The answer is a page."""


class Redirect(Struct, frozen=True, tag=True):
    """The answer points elsewhere."""

    location: str
    """As it stands in the header, in Unicode; to be normalized against the URL of the page."""


class Retry(Struct, frozen=True, tag=True):
    """Another attempt may succeed."""

    reason: str
    delay_s: float
    """Not before this time has passed."""
    pause_s: float = 0.0
    """Leave the whole host alone this long; at most `delay_s`."""


class Dead(Struct, frozen=True, tag=True):
    """No further attempt."""

    reason: str
    pause_s: float = 0.0
    """The host wants to be left alone all the same, though this page was given up."""


Verdict: TypeAlias = Read | Redirect | Retry | Dead


class Hop(Struct, frozen=True, tag=True):
    """A redirect to be followed: what sets its link apart."""

    url: str
    via: tuple[str, ...]
    """The URLs whose redirects led here, first one first."""
    key: str = ""
    """Not empty if the URL must be fetched although it is known: see `shoal.model.Link.key`."""


@overload
def judge(answer: Failure, attempt: int, *, retries: Retries, now: float, draw: float) -> Retry | Dead: ...


@overload
def judge(answer: Response, attempt: int, *, retries: Retries, now: float, draw: float) -> Verdict: ...


def judge(answer: Response | Failure, attempt: int, *, retries: Retries, now: float, draw: float) -> Verdict:
    """What to do with the answer to attempt number `attempt` (from 1); see the table above.

    Reasons are few and without details ("HTTP 503", "timeout"), so that dead letters can be grouped.
    """
    if isinstance(answer, Failure):
        return _judge_failure(answer, attempt, retries, draw)
    if 200 <= answer.status < 300:
        return Read()
    target = location(answer)
    if answer.status == 300:
        return Redirect(target) if target else Read()
    if answer.status in _REDIRECTS:
        return Redirect(target) if target else Dead("redirect without a location")
    reason = f"HTTP {answer.status}"
    if answer.status not in _TRANSIENT:
        return Dead(reason)
    pause_s = asked_pause_s(answer, attempt, retries=retries, now=now)
    return retry(reason, attempt, retries=retries, draw=draw, pause_s=pause_s)


def retry(reason: str, attempt: int, *, retries: Retries, draw: float, pause_s: float = 0.0) -> Retry | Dead:
    """Try again, after a backoff or `pause_s`, whichever is longer; Dead if this was the last attempt."""
    if attempt >= retries.max_attempts:
        return Dead(reason, pause_s)
    return Retry(reason, max(backoff_s(attempt, retries, draw), pause_s), pause_s)


def backoff_s(attempt: int, retries: Retries, draw: float) -> float:
    """How long to wait after attempt number `attempt`: exponential backoff with full jitter.

    A random share of base_s * 2^(attempt - 1) or cap_s, so that pages which failed together do not
    come back together (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    """
    return max(draw, _LEAST_DRAW) * _doubled(retries.base_s, attempt, retries.cap_s)


def asked_pause_s(answer: Response, attempt: int, *, retries: Retries, now: float) -> float:
    """How long a response asks its whole host to be left alone, in seconds; 0 if it does not.

    429 and 503 do so by Retry-After (RFC 6585, section 4; RFC 9110, section 15.6.4). A 429 without a
    usable one is about the host as well, and is met with a pause that grows by attempt.
    """
    if answer.status not in (429, 503):
        return 0.0
    asked_s = retry_after_s(answer.header("retry-after") or "", now)
    if asked_s is not None:
        return min(asked_s, retries.max_retry_after_s)
    return _doubled(retries.pause_s, attempt, retries.cap_s) if answer.status == 429 else 0.0


def retry_after_s(value: str, now: float) -> float | None:
    """The seconds that a Retry-After header asks for (RFC 9110, section 10.2.3), None if it makes no sense.

    value: a number of seconds, or an HTTP date in any of its three forms, a past one meaning 0.
    now: the time in seconds since the epoch. The result may be years; never raises.
    """
    value = value.strip(" \t")
    if re.fullmatch("[0-9]+", value):
        return min(float(value), _FOREVER_S)
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - now)


def follow(
    target: str | None, page_url: str, via: tuple[str, ...], *, set_cookie: bool, limit: int = 10
) -> Hop | Dead:
    """Decide about one redirect, from `page_url` to `target`. The hop becomes a link of its own.

    target: the normalized URL, None if it has none.
    via: how the page itself was reached (`Link.via`); `limit` redirects in a row are followed.
    set_cookie: whether this answer, or one before it in the chain, set a cookie. Then coming back to a
    URL of the chain is no loop: a login or consent page has done its work and sends the visitor back.
    """
    chain = (*via, page_url)
    if target is None:
        return Dead("redirect to an invalid URL")
    if target in chain and not set_cookie:
        return Dead("redirect loop")
    if len(chain) > limit:
        return Dead("too many redirects")
    return Hop(target, chain, key=f"redirect {len(chain)}" if target in chain else "")


def _judge_failure(failure: Failure, attempt: int, retries: Retries, draw: float) -> Retry | Dead:
    if failure.kind == "tls" and "certificate" in failure.detail.lower():
        return Dead("TLS certificate")
    reason = _REASONS[failure.kind]
    if failure.kind in _PERMANENT:
        return Dead(reason)
    if failure.kind == "robots":
        retries = replace(retries, base_s=retries.pause_s)
    return retry(reason, attempt, retries=retries, draw=draw, pause_s=failure.pause_s)


def _doubled(base_s: float, attempt: int, cap_s: float) -> float:
    return min(cap_s, base_s * 2.0 ** min(attempt - 1, 60))


def location(answer: Response) -> str:
    """The Location header as browsers read it: UTF-8 where it is valid, else the octets as they came."""
    value = (answer.header("location") or "").strip(" \t")
    try:
        return value.encode("latin-1").decode()
    except UnicodeEncodeError:
        return value  # not from a wire
    except UnicodeDecodeError:
        return "".join(char if char.isascii() else f"%{ord(char):02X}" for char in value)
