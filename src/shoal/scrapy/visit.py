"""One leased request on its way through Scrapy, and how that ends.

What its callback yields is found by context: what runs for a request runs with `current` set to its visit.
"""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar
from typing import Any

from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response as Answer
from twisted.python.failure import Failure as Raised

from shoal.model import Failure, FailureKind, Item, Lease, Link, Outcome, Response, Sign
from shoal.policy import Retries, asked_pause_s, judge, sign_of
from shoal.scrapy.requests import Codec, is_plain_retry
from shoal.scrapy.values import NotStorable
from shoal.visit import REDIRECTED, REPLAYED_S, traceback_of

REPLACED = "replaced"
NOT_KEPT = "request cannot be kept"
UNANSWERED = "no response"
MOST_REASON_CHARS = 100

current: ContextVar[Visit | None] = ContextVar("shoal_visit", default=None)
"""The visit that runs here."""


class Visit:
    """What is known so far of one request."""

    def __init__(self, lease: Lease, request: Request, codec: Codec) -> None:
        """Made in the event loop."""
        self.lease = lease
        self.request = request
        self.items: list[Item] = []
        self.result: Answer | Raised | Request | None = None
        self.ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._codec = codec
        self._links: dict[tuple[str, str], Link] = {}
        self._again = 0
        self._answer: Answer | None = None
        self._trouble: tuple[str, str] | None = None
        self._answered_at = time.monotonic()
        self._retried = False

    # --- what happens to it -------------------------------------------------------------------

    def answered(self, answer: Answer) -> None:
        """A server has answered; middlewares may still make something else of that."""
        self._answer, self._answered_at = answer, time.monotonic()

    def downloaded(self, result: Answer | Raised | Request) -> None:
        """The downloader and its middlewares are done with it."""
        self.result = result

    def found(self, request: Request) -> bool:
        """Its callback has yielded a request, or a middleware replaces it; False if that one is dropped."""
        if request is self.result and is_plain_retry(self.request, request):
            self._retried = True
            return True
        again = ""
        if request.dont_filter:
            self._again += 1
            again = f"again {self.lease.token}.{self._again}"
        try:
            link = self._codec.link(request, again)
        except NotStorable as error:
            self.failed(NOT_KEPT, str(error))
            raise
        known = len(self._links)
        self._links.setdefault((link.url, link.key), link)
        return len(self._links) > known

    def raised(self, error: BaseException) -> None:
        """Its callback, or errback, has raised something."""
        self.failed(f"callback raised {type(error).__name__}", traceback_of(error))

    def failed(self, reason: str, error: str) -> None:
        """It becomes a dead letter; the first reason counts."""
        self._trouble = self._trouble or (reason, error)

    def end(self, *, ignored: bool) -> None:
        """All is done. ignored: the response got to no callback for its status."""
        if not self.ended.done():  # it is if the lease was lost
            self.ended.set_result(self._outcome(ignored))

    # --- how it ends --------------------------------------------------------------------------

    def _outcome(self, ignored: bool) -> Outcome:
        result, links, items = self.result, tuple(self._links.values()), tuple(self.items)
        if self._trouble is not None:
            return self._make("dead", *self._trouble, links=links)
        if self._retried:
            return self._make("queued", self._cause())
        if isinstance(result, Request):
            moved = REDIRECTED if result.url != self.request.url else REPLACED
            return self._make("done", moved, f"to {result.url}", links=links)
        has_output = bool(links or items)
        if isinstance(result, Raised) and not has_output:
            return self._fallen(result)
        if ignored and not has_output:
            return self._make("dead", self._cause(), links=links)
        reason = self._cause() if ignored or isinstance(result, Raised) else ""
        return self._make("done", reason, links=links, items=items)

    def _fallen(self, raised: Raised) -> Outcome:
        """No response, and no errback that has made something of it."""
        error = raised.value
        if isinstance(error, IgnoreRequest):
            return self._make("skipped", (str(error) or type(error).__name__)[:MOST_REASON_CHARS])
        return self._make("dead", self._cause(), f"{type(error).__name__}: {error}".rstrip(": "))

    def _make(
        self,
        state: Any,
        reason: str = "",
        error: str = "",
        *,
        links: tuple[Link, ...] = (),
        items: tuple[Item, ...] = (),
    ) -> Outcome:
        sign, pause_s = self._told()
        answer, elapsed_s = self._answer, self._elapsed_s()
        age_s = time.monotonic() - self._answered_at + elapsed_s
        if answer is None and isinstance(self.result, Answer):
            age_s += REPLAYED_S  # it comes from a cache
        return Outcome(
            lease=self.lease,
            state=state,
            reason=reason,
            error=error,
            status=answer.status if answer is not None else 0,
            size_bytes=len(answer.body) if answer is not None else 0,
            elapsed_s=elapsed_s,
            age_s=age_s,
            crawl_delay_s=0.0,  # robots.txt is Scrapy's business
            sign=sign,
            pause_s=pause_s,
            links=links,
            items=items,
        )

    def _elapsed_s(self) -> float:
        latency_s = self.request.meta.get("download_latency", 0.0)
        return float(latency_s) if isinstance(latency_s, int | float) else 0.0

    def _cause(self) -> str:
        """Why it failed, in a few words that can be grouped."""
        if isinstance(self.result, Raised):
            return cause_of(self.result.value)
        answer = self.result if isinstance(self.result, Answer) else self._answer
        return UNANSWERED if answer is None else f"HTTP {answer.status}"

    def _told(self) -> tuple[Sign, float]:
        """What the answer tells about its host, and how long it asks to be left alone."""
        if self._answer is None:
            return _sign_without(self.result), 0.0
        if self._answer.status == 200:
            return "fine", 0.0
        answer = _as_response(self._answer)
        return sign_of(answer), asked_pause_s(answer, retries=Retries(), now=time.time())


# --- what went wrong ------------------------------------------------------------------------------

KINDS: dict[str, FailureKind] = {
    "CannotResolveHostError": "dns",
    "DNSLookupError": "dns",
    "DownloadConnectionRefusedError": "refused",
    "ConnectionRefusedError": "refused",
    "DownloadTimeoutError": "timeout",
    "TimeoutError": "timeout",
    "TCPTimedOutError": "timeout",
    "ResponseDataLossError": "truncated",
    "ResponseNeverReceived": "reset",
    "ConnectionLost": "reset",
    "ConnectionDone": "reset",
    "DownloadFailedError": "reset",
    "ResponseFailed": "reset",
}
"""By the name of the exception or of a class that it comes from: they are other ones in each Scrapy."""


def kind_of(error: BaseException | None) -> FailureKind | None:
    """What kind of failure an exception of the downloader is; None: it is none of the network's."""
    return next((KINDS[each.__name__] for each in type(error).__mro__ if each.__name__ in KINDS), None)


def cause_of(error: BaseException | None) -> str:
    """Why a request failed: as the worker says it, or the name of the exception."""
    kind = kind_of(error)
    if kind is None:
        return type(error).__name__
    return judge(Failure(kind, ""), 1, retries=Retries(max_attempts=1), now=0.0, draw=0.0).reason


def _sign_without(result: Answer | Raised | Request | None) -> Sign:
    """What it tells of a host that there was no answer."""
    if isinstance(result, Request):
        return "failing"
    kind = kind_of(result.value) if isinstance(result, Raised) else None
    return "" if kind is None else sign_of(Failure(kind, ""))


def _as_response(answer: Answer) -> Response:
    headers = [
        (name.decode("latin-1").lower(), value.decode("latin-1"))
        for name, values in dict.items(answer.headers)
        for value in values
    ]
    return Response(answer.url, answer.status, tuple(headers), b"")
