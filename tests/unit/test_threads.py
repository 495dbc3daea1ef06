"""Threads for handlers: of which nobody waits any more must not keep others from running."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.waiting import until

from shoal.threads import HandlerThreads


async def _given_up(threads: HandlerThreads, hangs: threading.Event) -> None:
    """Something that hangs in a thread, and is waited for no longer."""
    begun = threading.Event()
    waiting = asyncio.create_task(threads.run(lambda: (begun.set(), hangs.wait())))
    await asyncio.to_thread(begun.wait)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def _handlers() -> int:
    return sum(thread.name == "shoal-handler" for thread in threading.enumerate())


def test_what_hangs_is_replaced() -> None:
    """Each time; and its thread ends when it is done after all."""
    threads, hangs = HandlerThreads(2), threading.Event()
    before = _handlers()

    async def all_of_it() -> list[int]:
        for _ in range(5):
            await _given_up(threads, hangs)
        results = await asyncio.gather(*(threads.run(lambda n=n: n) for n in range(10)))
        hangs.set()
        return results

    assert asyncio.run(asyncio.wait_for(all_of_it(), 30)) == list(range(10))
    threads.shutdown()
    until(lambda: _handlers() <= before)


def test_what_is_queued_behind_it_runs() -> None:
    """It was there before the other one was given up."""
    threads, hangs = HandlerThreads(1), threading.Event()

    async def all_of_it() -> int:
        first = asyncio.create_task(threads.run(hangs.wait))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(threads.run(lambda: 2))
        await asyncio.sleep(0.05)
        assert not second.done()
        first.cancel()
        return await second

    assert asyncio.run(asyncio.wait_for(all_of_it(), 30)) == 2
    hangs.set()
    threads.shutdown()


def test_what_has_not_begun_never_does() -> None:
    """If nobody waits for it any more."""
    threads, hangs, ran = HandlerThreads(1), threading.Event(), []

    async def all_of_it() -> None:
        first = asyncio.create_task(threads.run(hangs.wait))
        second = asyncio.create_task(threads.run(lambda: ran.append(2)))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.wait([second])
        hangs.set()
        await first
        await threads.run(lambda: ran.append(3))

    asyncio.run(asyncio.wait_for(all_of_it(), 30))
    threads.shutdown()
    assert ran == [3]
