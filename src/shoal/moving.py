"""The marks of a crawl that is being moved, and not all there yet, or has been: nobody may work on it."""

from __future__ import annotations

from shoal.errors import ConfigError
from shoal.frontier import Frontier

MOVING = "moving"
"""In the description of the crawl: whether its source was paused before the move."""

MOVED = "moved"
"""In the description of the crawl: where it is now."""


def check_here(frontier: Frontier) -> None:
    """Raise ConfigError if the crawl was moved away, or was to be moved here and the move was killed."""
    description = frontier.describe()
    if MOVING in description:
        raise ConfigError(
            f"the crawl '{frontier.crawl}' is not all here: it was being moved, and that was cut off;"
            " do the same `shoal migrate` again"
        )
    if MOVED in description:
        raise ConfigError(
            f"the crawl '{frontier.crawl}' was moved to {description[MOVED]}: go on there;"
            " if it is there no more, `shoal resume --anyway` lets it go on here"
        )


def mark_moved(frontier: Frontier, place: str | None) -> None:
    """Leave word of where the crawl is now; None: here."""
    kept = {name: value for name, value in frontier.describe().items() if name != MOVED}
    frontier.describe(kept if place is None else {**kept, MOVED: place})
