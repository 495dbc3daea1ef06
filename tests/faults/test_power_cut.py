"""A state file that is back at an earlier moment, as a power cut or a restored copy leaves it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from tests.faults.crawling import KINDS, Crawling
from tests.site import Site

pytestmark = pytest.mark.faults

PAGES = 400


@pytest.fixture
def site() -> Iterator[Site]:
    """A site that takes a few runs."""
    with Site(pages=PAGES, hosts=4) as served:
        yield served


def kill_after(crawling: Crawling, pages: int) -> None:
    """Run it until so many pages are done."""
    run = crawling.start()
    assert crawling.until(lambda: crawling.done() >= pages, run)
    run.kill(whole=True)


def files(state: Path) -> list[Path]:
    """The state file and what SQLite has beside it."""
    return [path for path in state.parent.iterdir() if path.name.startswith(state.name)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("to_the_end", [False, True])
def test_an_earlier_state_file_loses_and_doubles_nothing(new_crawling, site, rng: Random, kind, to_the_end):
    """The rows are longer than what it remembers: the rest is cut off, and its pages are done again."""
    crawling = new_crawling(site, kind)
    kill_after(crawling, rng.randrange(1, PAGES // 3))
    earlier = crawling.folder / "earlier"
    earlier.mkdir()
    for file in files(crawling.state):
        shutil.copy(file, earlier)
    if to_the_end:
        crawling.finish()
    else:
        kill_after(crawling, rng.randrange(PAGES // 2, PAGES * 3 // 4))
    for file in files(crawling.state):
        file.unlink()
    for file in earlier.iterdir():
        shutil.copy(file, crawling.state.parent)
    crawling.finish()


@pytest.mark.parametrize("kind", KINDS)
def test_a_power_cut_costs_only_work(new_crawling, site, rng: Random, kind):
    """Of the log that SQLite had not synced, any part may be missing: these pages are done again."""
    crawling = new_crawling(site, kind)
    for pages in (PAGES // 4, PAGES // 2):
        kill_after(crawling, pages)
        log = crawling.state.with_name("state.shoal-wal")
        left = rng.randint(0, log.stat().st_size)
        print(f"{left} of {log.stat().st_size} bytes are left of the log")
        os.truncate(log, left)
        crawling.state.with_name("state.shoal-shm").unlink()
        crawling.assert_sound()
    crawling.finish()
