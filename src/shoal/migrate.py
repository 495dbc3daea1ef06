"""Move a crawl, with all that is known of it, from one frontier to another."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from shoal.errors import ConfigError
from shoal.frontier import Frontier
from shoal.model import Stats
from shoal.moving import MOVING, check_here, mark_moved

WAIT_S = 90.0  # for workers to finish what they have leased; longer than a lease
LOOK_S = 0.2


def migrate(
    source: Frontier, target: Frontier, *, place: str, waiting: Callable[[int], None] = lambda leased: None
) -> Stats:
    """Pause `source`, wait until nothing is leased, copy it; returns the counters of `target`.

    The source stays paused and says where the crawl is now, so that nobody goes on with the copy that was
    left behind. Rows are not moved: they stay in their store, and where the frontier itself keeps them they
    stay there. What a move that was killed has left at `target` is replaced.
    place: what to call `target`.
    Raises ConfigError if `source` is itself a part that such a move has left, or was moved, `target` knows
    the crawl already, the workers do not come to an end, or links are added or the crawl is moved meanwhile.
    """
    begun = target.describe().get(MOVING)
    if begun is not None:
        mark_moved(source, None)  # it may have come as far as that
    check_here(source)
    if begun is not None:
        target.purge()
    elif target.stats().seen:
        raise ConfigError("there is a crawl of this name already: name another target, or remove it there")
    was_paused = source.stats().paused if begun is None else bool(begun)
    target.describe({MOVING: was_paused})
    source.pause()
    try:
        _wait_for_workers(source, waiting)
        snapshot = source.dump()
        description = snapshot.crawl.description
        moving = replace(snapshot.crawl, paused=True, description={**description, MOVING: was_paused})
        target.load(snapshot._replace(crawl=moving))
        if target.stats().seen != source.stats().seen:
            raise ConfigError("links were added meanwhile, or it was moved twice at once: move it again")
        mark_moved(source, place)
        target.describe(description)
        if not was_paused:
            target.resume()
    except BaseException:
        target.purge()
        mark_moved(source, None)
        if not was_paused:
            source.resume()
        raise
    return target.stats()


def _wait_for_workers(source: Frontier, waiting: Callable[[int], None]) -> None:
    deadline = time.monotonic() + WAIT_S
    while leased := source.stats().leased:
        if time.monotonic() > deadline:
            raise ConfigError(f"{leased} pages are still being fetched: stop the workers first")
        waiting(leased)
        time.sleep(LOOK_S)
