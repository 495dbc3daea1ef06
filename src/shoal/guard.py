"""The user's code: what it raises, or how long it takes, ends its page and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Bare(Exception):  # noqa: N818 - what it stands for is none
    """The user's code raised what is no Exception, as `sys.exit`, `pytest.fail` and panics of Rust do."""


class TooSlow(TimeoutError):  # noqa: N818 - said of a handler
    """It had its time. What runs in a thread cannot be stopped, and goes on in vain."""


async def guarded(work: Awaitable[T], timeout_s: float | None = None) -> T:
    """What comes of the user's code. Raises what it raises, TooSlow, or Bare.

    What is no Exception would end the task that runs all this, or the process, and leave its page in the air.
    """
    try:
        return await within(timeout_s, work)
    except Exception:
        raise
    except BaseException as error:
        if _is_from_outside(error):
            raise
        raise Bare(type(error).__name__) from error


def _is_from_outside(error: BaseException) -> bool:
    """Whether the task itself was cancelled, or its coroutine closed."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError):
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit) and task is None


def raised(error: Exception) -> BaseException:
    """What the user's code raised, of what came from `guarded`."""
    return error.__cause__ if isinstance(error, Bare) and error.__cause__ is not None else error


async def within(seconds: float | None, work: Awaitable[T]) -> T:
    """What comes of it; None: however long it takes. Raises TooSlow if it takes longer."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise  # its own
        raise TooSlow(f"not done within {seconds:g} s") from None
