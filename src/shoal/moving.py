"""The mark of a crawl that is being moved, and is not all there yet: nobody may work on a part of it."""

from __future__ import annotations

from shoal.errors import ConfigError
from shoal.frontier import Frontier

MOVING = "moving"
"""In the description of the crawl: whether its source was paused before the move."""


def check_whole(frontier: Frontier) -> None:
    """Raise ConfigError if the crawl was to be moved here, and the move was killed."""
    if MOVING in frontier.describe():
        raise ConfigError(
            f"the crawl '{frontier.crawl}' is not all here: it was being moved, and that was cut off;"
            " do the same `shoal migrate` again"
        )
