"""Threads for what may take long: handlers, lookups."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class HandlerThreads(Executor):
    """Threads for handlers. Unlike those of ThreadPoolExecutor they never hold up the end of the process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads = 0
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        self._waiting.put((future, partial(work, *args, **kwargs)))
        if self._threads < self._most and not self._waiting.empty():
            self._threads += 1
            Thread(target=self._run, name="shoal-handler", daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        """Let the threads end when they have nothing more to do. It never waits for them."""
        for _ in range(self._threads):
            self._waiting.put(None)

    def _run(self) -> None:
        while (task := self._waiting.get()) is not None:
            _do(*task)
            del task  # while the thread waits it must not keep a page in memory


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(work())
        except StopIteration as error:  # which a future cannot carry
            future.set_exception(_raised_inside(RuntimeError("it raised StopIteration"), error))
        except BaseException as error:
            future.set_exception(_raised_inside(error, error))


def _raised_inside(error: BaseException, cause: BaseException) -> BaseException:
    """The error with the traceback of its cause, from the handler on."""
    here = cause.__traceback__
    return error.with_traceback(here and here.tb_next)
