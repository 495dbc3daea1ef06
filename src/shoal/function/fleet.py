"""How many invocations are worth starting. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, inf

from shoal.model import Limits, Stats, WorkerRecord


def worth_starting(
    stats: Stats, limits: Limits, workers: Iterable[WorkerRecord], concurrency: int, most: int
) -> int:
    """So many more than are running, so that all that may be fetched at this moment is being fetched.

    concurrency: fetches that one invocation has under way at once. most: that may run at once.
    """
    if stats.paused:
        return 0
    running = [worker for worker in workers if worker.alive]
    room = sum(worker.concurrency for worker in running) - stats.leased
    fetches = _may_start(stats, limits) - max(0, room)
    return max(0, min(ceil(fetches / concurrency), most - len(running)))


def _may_start(stats: Stats, limits: Limits) -> int:
    """How many fetches could start now: of the URLs whose time has come, as many as their hosts allow."""
    per_host = 1 if limits.delay_s else limits.per_host
    left = inf if limits.max_pages is None else limits.max_pages - stats.done - stats.leased
    return int(min(stats.queued - stats.delayed, stats.ready_hosts * per_host, left))
