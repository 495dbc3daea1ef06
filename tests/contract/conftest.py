"""The back ends that the contract tests run on: a new one adds a class and an entry to `BACKENDS`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from shoal.frontier import Frontier, open_frontier


class SqlitePlace:
    """An empty place for crawls: one SQLite file."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self.url = f"sqlite:{Path(self._opened.enter_context(TemporaryDirectory())) / 'state.shoal'}"

    def open(self, crawl: str = "books", **options: bool) -> Frontier:
        """Another frontier object, as another process would have it."""
        return self._opened.enter_context(open_frontier(self.url, crawl=crawl, **options))

    def close(self) -> None:
        self._opened.close()


BACKENDS = {"sqlite": SqlitePlace}


@pytest.fixture(params=BACKENDS)
def new_place(request):
    """Makes empty places, each for crawls that know nothing of those in other places."""
    with ExitStack() as places:

        def new():
            place = BACKENDS[request.param]()
            places.callback(place.close)
            return place

        yield new


@pytest.fixture
def place(new_place):
    """One empty place."""
    return new_place()


@pytest.fixture
def frontier(place):
    """The frontier of an empty crawl."""
    return place.open()
