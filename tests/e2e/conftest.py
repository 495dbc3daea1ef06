"""For all end-to-end tests: a folder with the command in it, and a small site."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.nursery import Nursery
from tests.e2e.redis_shop import Shop
from tests.e2e.shell import Shell
from tests.services import RedisServer
from tests.site import Site


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """Where the commands come from."""
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def shoal(tmp_path: Path, nursery: Nursery) -> Shell:
    """The command, in an empty folder."""
    return Shell(tmp_path, nursery)


@pytest.fixture
def site() -> Iterator[Site]:
    """A site of 20 pages."""
    with Site(20) as site:
        yield site


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Redis for the tests of a module, which may have another one."""
    with RedisServer(appendonly=True) as server:
        yield server


@pytest.fixture
def shop(shoal: Shell, server: RedisServer) -> Iterator[Shop]:
    """A crawl that does not exist yet, on an empty Redis."""
    with server.client() as client:
        client.flushall()
        yield Shop(shoal, server.url, client)
