"""What Celery's exceptions say about a URL, and `self.request` for functions that run in a slice."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from celery import Celery, current_app
from celery.app.task import Context
from celery.exceptions import Ignore, MaxRetriesExceededError, Reject, Retry
from celery.utils.time import maybe_make_aware

from shoal.errors import ConfigError
from shoal.handle import Ended
from shoal.model import MOST_DELAY_S, Lease

current_request: ContextVar[Context | None] = ContextVar("current_request", default=None)
"""The request of the function that runs here in a slice. `self.retry` notes on it what it has decided:
"allowed" for another attempt, "postponed" if the function was to go on first, "given_up" after the last."""


def request_for(lease: Lease, task: str) -> Context:
    """What a task's `self.request` says of a leased URL."""
    link = lease.link
    return Context(
        id=str(lease.fingerprint),
        task=task,
        args=(link.url,),
        kwargs=dict(link.meta or {}),
        retries=lease.attempt - 1,
        delivery_info={"priority": link.priority},
        called_directly=False,
        is_eager=False,
    )


def run_decided(work: Callable[[], Any], request: Context, max_attempts: int) -> Any:
    """Run plain code with this request; Celery's exceptions come out as decisions (`Ended`).

    An iterator is read to its end, since its code runs only then; what is awaitable is wrapped.
    """
    with _decided(request, max_attempts):
        result = work()
        if inspect.iscoroutine(result):
            return _await_decided(result, request, max_attempts)
        if inspect.isasyncgen(result):
            return _await_decided(_collected(result), request, max_attempts)
        return list(result) if isinstance(result, Iterator) else result


async def _await_decided(result: Any, request: Context, max_attempts: int) -> Any:
    with _decided(request, max_attempts):
        return await result


async def _collected(results: Any) -> list[object]:
    return [each async for each in results]


@contextmanager
def _decided(request: Context, max_attempts: int) -> Iterator[None]:
    token = current_request.set(request)
    try:
        yield
        if request.get("postponed"):
            raise request.postponed
    except Retry as retry:
        cause = retry.exc if isinstance(retry.exc, BaseException) else None
        reason = f"retried after {type(cause).__name__}" if cause else "retried"
        allowed = request.get("allowed") or request.retries + 1 < max_attempts
        when = retry.when
        countdown, eta = (None, when) if isinstance(when, datetime) else (when, None)
        delay_s = delay_of(countdown, eta, current_app)
        raise Ended("queued" if allowed else "dead", reason, retry_s=delay_s) from cause
    except Ignore as ignored:
        raise Ended("skipped", str(ignored) or "ignored") from None
    except Reject as reject:
        again = reject.requeue and request.retries + 1 < max_attempts
        raise Ended("queued" if again else "dead", str(reject.reason or "rejected")) from None
    except MaxRetriesExceededError as error:
        raise Ended("dead", "too many retries") from error
    except Exception as error:
        if request.get("given_up"):
            raise Ended("dead", f"raised {type(error).__name__}") from error
        raise
    finally:
        current_request.reset(token)


def delay_of(countdown: object, eta: object, app: Celery) -> float:
    """How many seconds from now on they mean; `countdown` comes first, and None of both means now.

    Raises ConfigError for what is no number of seconds, no date, or no time that will come.
    """
    if countdown is None and eta is not None:
        if not isinstance(eta, datetime):
            raise ConfigError(f"eta= takes a datetime, not {eta!r}")
        countdown = (maybe_make_aware(eta, app.timezone) - app.now()).total_seconds()
    if countdown is None:
        return 0.0
    if not isinstance(countdown, int | float) or isinstance(countdown, bool):
        raise ConfigError(f"countdown= takes a number of seconds, not {countdown!r}")
    if not countdown <= MOST_DELAY_S:
        raise ConfigError(f"countdown={countdown:g} is no time that will come")
    return max(0.0, float(countdown))
