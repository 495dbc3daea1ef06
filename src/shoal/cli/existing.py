"""Commands on a crawl that exists."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from shoal.cli.options import crawl_name_options
from shoal.cli.place import find_state, open_crawl, place_of


def on_crawl(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a crawl to a command, which gets its frontier as the first argument."""

    @wraps(command)
    def run_command(*, state: str | None, frontier: str | None, crawl_name: str | None, **others: Any) -> Any:
        with open_crawl(place_of(state, frontier) or find_state(), crawl_name) as opened:
            return command(opened, **others)

    return crawl_name_options(run_command)
