"""The command `shoal` with nothing that watches a crawl: `benchmarks.overhead` compares it with the real one.

No counters of the worker, no look at the event loop's lag, no logs, no minutes of history in the frontier.
"""

from __future__ import annotations

import logging

from shoal import load, meter
from shoal.__main__ import main
from shoal.frontier import redis_server, sqlite_step


def unwatched() -> None:
    """Take it out of this process and those that it forks."""
    logging.disable(logging.CRITICAL)
    meter.Meter.committed = _nothing  # type: ignore[method-assign]
    load.Load.watch = _nobody  # type: ignore[method-assign]
    sqlite_step.CrawlRow.gains = lambda *_: []  # type: ignore[method-assign]
    redis_server._source = _without_history


def _nothing(*_: object) -> None:
    pass


async def _nobody(_: object) -> None:
    pass


def _without_history(verb: str) -> str:
    """The source of a verb that saves no minutes."""
    return _SOURCE(verb).replace("\n  save_gains()\n", "\n")


_SOURCE = redis_server._source

if __name__ == "__main__":
    unwatched()
    main()
