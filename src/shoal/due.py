"""Bring back the pages whose time has come: those that are to be visited again."""

from __future__ import annotations

from itertools import islice, repeat

from shoal.crawl import Crawl
from shoal.frontier import Frontier

BATCHES = 20
"""So many at once, where others wait: some thousand pages."""


def revisit_due(frontier: Frontier, crawl: Crawl, *, batches: int | None = BATCHES) -> None:
    """Queue them, in the order of their last visits; without `batches`: all of them."""
    after_s = crawl.settings.revisit_s
    if after_s is not None:
        for _ in islice(repeat(None), batches):
            if not frontier.revisit(after_s):
                return
