"""What the fault tests share: a site, and crawls of it that are interrupted in every way."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from tests.faults.crawling import Crawling
from tests.site import Site

ROUNDS = int(os.environ.get("FAULT_ROUNDS", "20"))


@pytest.fixture
def rounds() -> int:
    """How many faults there are in a row; the environment variable FAULT_ROUNDS says it."""
    return ROUNDS


@pytest.fixture
def rng() -> Random:
    """Chance, from a seed that is shown when the test fails; FAULT_SEED repeats it."""
    seed = int(os.environ.get("FAULT_SEED", secrets.randbits(32)))
    print(f"FAULT_SEED={seed}")
    return Random(seed)


@pytest.fixture
def site() -> Iterator[Site]:
    """A small site on loopback."""
    with Site(pages=60, hosts=2) as served:
        yield served


@pytest.fixture
def new_crawling(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Crawling]]:
    """Makes crawls, each with a folder of its own unless one is given; in the end none is left running."""
    with ExitStack() as ended:

        def new(site: Site, kind: str, *options: object, **more: object) -> Crawling:
            folder = tmp_path / f"crawl-{len(list(tmp_path.glob('crawl-*')))}"
            if kind == "s3":
                server = request.getfixturevalue("s3")
                more["bucket"] = server.data / server.BUCKET
            crawling = Crawling(site, kind, *options, **{"folder": folder, **more})
            ended.callback(crawling.end)
            return crawling

        yield new
