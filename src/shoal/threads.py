"""Threads for what may take long: handlers, lookups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")


class HandlerThreads:
    """Threads for handlers. Unlike those of ThreadPoolExecutor they never hold up the end of the process.

    What nobody waits for any more cannot be stopped; but its thread is replaced, so that some that hang
    do not keep others from running.
    """

    def __init__(self, most: int) -> None:
        """most: so many at once, those left out of account of which nobody waits any more."""
        self._most = most
        self._threads = 0
        self._in_vain: set[Future[Any]] = set()
        self._changing = Lock()
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    async def run(self, work: Callable[[], T]) -> T:
        """What it returns, or raises. If the caller is cancelled, what has begun goes on in vain."""
        future = self.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._give_up(future)
            raise

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Run it as soon as a thread is free."""
        future: Future[T] = Future()
        self._waiting.put((future, work))
        with self._changing:
            self._start_one()
        return future

    def shutdown(self) -> None:
        """Let the threads end when they have nothing more to do. It never waits for them."""
        for _ in range(self._threads):
            self._waiting.put(None)

    def _start_one(self) -> None:
        if self._threads < self._most and not self._waiting.empty():
            self._threads += 1
            Thread(target=self._run, name="shoal-handler", daemon=True).start()

    def _give_up(self, future: Future[Any]) -> None:
        with self._changing:
            if future.cancel() or future.done():
                return
            self._in_vain.add(future)
            self._threads -= 1
            self._start_one()

    def _run(self) -> None:
        while (task := self._waiting.get()) is not None:
            future = task[0]
            _do(*task)
            del task  # while the thread waits it must not keep a page in memory
            with self._changing:
                if future in self._in_vain:
                    self._in_vain.remove(future)
                    return
            del future


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(work())
        except (StopIteration, GeneratorExit) as error:  # which mean something else to who waits for it
            future.set_exception(_raised_inside(RuntimeError(f"it raised {type(error).__name__}"), error))
        except BaseException as error:
            future.set_exception(_raised_inside(error, error))


def _raised_inside(error: BaseException, cause: BaseException) -> BaseException:
    """The error with the traceback of its cause, from the handler on."""
    here = cause.__traceback__
    return error.with_traceback(here and here.tb_next)
