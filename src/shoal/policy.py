"""What to do with an answer: read it, follow it, try again later, or give up. Decisions only.

Randomness (`draw`, from 0 up to 1) and time are arguments; nothing here waits or asks a clock.

| answer | verdict | sign |
| --- | --- | --- |
| 2xx | Read; 204 and 205 are pages without content | fine |
| 300 with a Location, 301, 302, 303, 307, 308 | Redirect; Dead if there is no Location | fine |
| 300 without a Location | Read: the body lists the choices | fine |
| 429, and 503 with a Retry-After | Retry | busy |
| 502, 503, 504, 520 to 524 | Retry: the server behind cannot be reached | failing |
| 408, 425, other 5xx but 501 and 505 | Retry | fine |
| any other status, a 304 that nobody asked for among them | Dead | fine |
| dns, refused, reset, timeout | Retry: it may be better in a minute | failing |
| truncated | Retry | none |
| protocol | Retry: seen from servers that are overloaded or restarting | failing |
| tls | Retry | failing |
| certificate | Dead: that stays as it is | none |
| robots | Retry, later: the site is in trouble, and all of it hangs on this file | failing, or busy |
| too_large, decoding | Dead: the answer would be the same | fine |
| blocked | Dead: nothing was asked | none |

The sign is what an answer tells about its host, see `shoal.caution`. How often each cause is tried again can
be set by its name: that of the table, a status, "4xx" or "5xx", or "handler" for what a handler raises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import TypeAlias, get_args, overload

from msgspec import Struct
from msgspec.structs import replace

from shoal.model import Failure, FailureKind, Response, Sign

CAUSES = (*get_args(FailureKind), "certificate", "handler", "4xx", "5xx")
"""The names of what attempts are counted by; besides, there is each HTTP status."""

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TRANSIENT = frozenset({408, 425, 429, *range(500, 600)}) - {501, 505}
_UNREACHED = frozenset({502, 503, 504, *range(520, 525)})
_PERMANENT = frozenset({"blocked", "too_large", "decoding", "certificate"})
_UNANSWERED = frozenset({"dns", "refused", "reset", "timeout", "protocol", "tls", "robots"})
_REASONS = {
    "blocked": "blocked address",
    "dns": "host not found",
    "refused": "connection refused",
    "reset": "connection reset",
    "tls": "TLS",
    "certificate": "TLS certificate",
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
    """In all, the first one included; for causes that may pass."""
    by_cause: Mapping[str, int] = {}
    """The same for single causes."""
    base_s: float = 1.0
    """The backoff after the first attempt is up to this long; it doubles with each attempt."""
    cap_s: float = 300.0
    """No backoff is longer."""
    pause_s: float = 5.0
    """In place of `base_s` where robots.txt is out of reach, which concerns the whole host."""
    max_retry_after_s: float = 3600.0
    """A server that asks for more gets this."""

    def attempts(self, cause: str) -> int:
        """How often a page is tried in all if this is what goes wrong."""
        status_class = f"{cause[0]}xx" if cause.isdigit() else cause
        given = self.by_cause.get(cause) or self.by_cause.get(status_class)
        return given or (1 if is_permanent(cause) else self.max_attempts)


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
    cause = str(answer.status)
    pause_s = asked_pause_s(answer, retries=retries, now=now)
    return retry(f"HTTP {cause}", attempt, cause, retries=retries, draw=draw, pause_s=pause_s)


def retry(
    reason: str, attempt: int, cause: str, *, retries: Retries, draw: float, pause_s: float = 0.0
) -> Retry | Dead:
    """Try again, after a backoff or `pause_s`, whichever is longer; Dead if this was the last attempt."""
    if attempt >= retries.attempts(cause):
        return Dead(reason, pause_s)
    return Retry(reason, max(backoff_s(attempt, retries, draw), pause_s), pause_s)


def is_cause(name: str) -> bool:
    """Whether attempts can be counted by it: see the table above."""
    return name in CAUSES or re.fullmatch("[1-9][0-9]{2}", name) is not None


def is_permanent(cause: str) -> bool:
    """Whether another attempt would bring the same, unless the user knows better."""
    return cause in _PERMANENT or (cause.isdigit() and int(cause) not in _TRANSIENT)


def sign_of(answer: Response | Failure) -> Sign:
    """What an answer tells about its host; see the table above."""
    if isinstance(answer, Failure):
        cause = _cause_of(answer)
        if cause in _UNANSWERED:
            return "busy" if answer.busy else "failing"
        return "fine" if cause in ("too_large", "decoding") else ""
    if answer.status == 200:
        return "fine"
    if is_busy(answer):
        return "busy"
    return "failing" if answer.status in _UNREACHED else "fine"


def is_busy(answer: Response) -> bool:
    """Whether it says that the host is asked too often."""
    return answer.status == 429 or (answer.status == 503 and answer.header("retry-after") is not None)


def backoff_s(attempt: int, retries: Retries, draw: float) -> float:
    """How long to wait after attempt number `attempt`: exponential backoff with full jitter.

    A random share of base_s * 2^(attempt - 1) or cap_s, so that pages which failed together do not
    come back together (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    """
    return max(draw, _LEAST_DRAW) * _doubled(retries.base_s, attempt, retries.cap_s)


def asked_pause_s(answer: Response, *, retries: Retries, now: float) -> float:
    """How long a response asks its whole host to be left alone, in seconds; 0 if it does not.

    429 and 503 do so by Retry-After (RFC 6585, section 4; RFC 9110, section 15.6.4).
    """
    if answer.status not in (429, 503):
        return 0.0
    return min(retry_after_s(answer.header("retry-after") or "", now) or 0.0, retries.max_retry_after_s)


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
    cause = _cause_of(failure)
    if cause == "robots":
        retries = replace(retries, base_s=retries.pause_s)
    return retry(_REASONS[cause], attempt, cause, retries=retries, draw=draw, pause_s=failure.pause_s)


def _cause_of(failure: Failure) -> str:
    is_certificate = failure.kind == "tls" and "certificate" in failure.detail.lower()
    return "certificate" if is_certificate else failure.kind


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
