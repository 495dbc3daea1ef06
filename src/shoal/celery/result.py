"""What `delay` returns: whether the URL was new, and what the frontier says of it later."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from celery import Celery, states
from celery.exceptions import TimeoutError as CeleryTimeoutError
from celery.result import AsyncResult

from shoal.errors import ShoalError
from shoal.frontier import Frontier
from shoal.model import Link, PageRecord
from shoal.urls import fingerprint

_STATES: dict[str, str] = {
    "queued": states.PENDING,
    "overflow": states.PENDING,
    "leased": states.STARTED,
    "done": states.SUCCESS,
    "dead": states.FAILURE,
    "skipped": states.IGNORED,
}


class Scrape(AsyncResult):  # type: ignore[misc]
    """One URL that was put into the frontier. Its id is the URL's fingerprint; no result backend is asked."""

    def __init__(self, link: Link, new: bool, app: Celery, frontier: Callable[[], Frontier]) -> None:
        super().__init__(str(fingerprint(link.url, link.key)), app=app)
        self.url = link.url
        """Normalized, as it will be fetched."""
        self.new = new
        """False if the frontier knew it already: then nothing has changed."""
        self._key = link.key
        self._frontier = frontier

    def __repr__(self) -> str:
        return f"<Scrape {self.url} {'new' if self.new else 'known'}>"

    def record(self) -> PageRecord | None:
        """All that the frontier knows of it. Looks through the queue: for people, not for loops."""
        return self._frontier().why(self.url, self._key)

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE (a dead letter) or IGNORED (skipped)."""
        record = self.record()
        again = record is not None and record.state == "queued" and record.attempts > 0
        return "RETRY" if again else _STATES[record.state if record else "queued"]

    status = state

    def ready(self) -> bool:
        """Whether it has come to an end."""
        return self.state in {states.SUCCESS, states.FAILURE, states.IGNORED}

    def get(
        self, timeout: float | None = None, propagate: bool = True, interval: float = 0.5, **_: Any
    ) -> None:
        """Wait for its end. Returns nothing, since rows are in the store.

        Raises ShoalError for a dead letter if `propagate`, and Celery's TimeoutError.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.ready():
            if deadline is not None and time.monotonic() > deadline:
                raise CeleryTimeoutError(f"{self.url} has not come to its end")
            time.sleep(interval)
        record = self.record()
        if propagate and record is not None and record.state == "dead":
            raise ShoalError(f"{self.url}: {record.reason} {record.error}".rstrip())

    def then(self, callback: Any, on_error: Any = None, weak: bool = False) -> Any:
        """As AsyncResult has it, without a result backend; for groups."""
        return self.on_ready.then(callback, on_error)

    def forget(self) -> None:
        """Nothing is kept anywhere for this object."""

    def revoke(self, *args: Any, **kwargs: Any) -> None:
        """Not possible: say `Frontier.forget` instead."""
        raise NotImplementedError("a URL cannot be revoked: `shoal forget URL` takes it out of the frontier")
