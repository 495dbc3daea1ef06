"""A disk that is full for a while."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.faults.crawling import KINDS, Crawling, Running
from tests.site import Site

from shoal.errors import FrontierError, FrontierUnavailable
from shoal.frontier import open_frontier
from shoal.frontier.sqlite_recover import recover
from shoal.model import Link

pytestmark = pytest.mark.faults

TROUBLE = "trying again every"
TROUBLE_S = 0.2
HASTY = ("hasty.py", f"TROUBLE_S={TROUBLE_S}")


@pytest.fixture
def site() -> Iterator[Site]:
    """A site that is not crawled before its disk is full."""
    with Site(pages=120, hosts=4, latency_s=0.1) as served:
        yield served


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mounting = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], capture_output=True)
    if mounting.returncode:
        pytest.skip("only root may mount a small file system")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def fill(disk: Path) -> Path:
    """Leave no room; returns the file to remove."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler


def paused_by(disk: Path, crawling: Crawling) -> tuple[Running, Path]:
    """A crawl that has met the full disk and says so; and the file to remove."""
    run = crawling.start(*HASTY)
    assert crawling.until(lambda: crawling.done() > 10, run)
    filler = fill(disk)
    assert crawling.until(lambda: TROUBLE in run.said(), run)
    return run, filler


@pytest.fixture
def crawling(new_crawling: Callable[..., Crawling], site: Site, kind: str, disk: Path) -> Crawling:
    """A crawl whose files are all on the small disk."""
    return new_crawling(site, kind, "--concurrency", 8, state=disk, rows=disk)


@pytest.mark.parametrize("kind", [*KINDS, "parquet", "warc", "two"])
def test_a_full_disk_pauses_the_crawl(crawling, disk):
    """It says so, but not all the time, and goes on by itself when there is room."""
    run, filler = paused_by(disk, crawling)
    time.sleep(5 * TROUBLE_S)
    assert run.said().count(TROUBLE) < 20
    filler.unlink()
    assert run.wait() == 0
    crawling.assert_finished()


@pytest.mark.parametrize("kind", ["jsonl", "csv", "sqlite", "parquet", "warc", "two"])
def test_a_full_disk_of_the_rows_alone_pauses_the_crawl(new_crawling, site, kind, disk):
    """The same, if there is room for the state file."""
    crawling = new_crawling(site, kind, "--concurrency", 8, rows=disk)
    run, filler = paused_by(disk, crawling)
    filler.unlink()
    assert run.wait() == 0
    crawling.assert_finished()


@pytest.mark.parametrize("kind", KINDS)
def test_a_crawl_killed_on_a_full_disk_can_be_resumed(crawling, disk):
    """As long as there is no room the command says what is wrong."""
    run, filler = paused_by(disk, crawling)
    run.kill(whole=True)
    refused = crawling.start()
    assert refused.wait() == 2
    assert "cannot write" in refused.said()
    assert "Traceback" not in refused.said()
    filler.unlink()
    crawling.finish()


@pytest.mark.parametrize("kind", ["state", "jsonl"])
def test_a_crawl_can_be_stopped_on_a_full_disk(crawling, disk):
    """Ctrl-C ends it soon, without a traceback, and it can be resumed."""
    run, filler = paused_by(disk, crawling)
    run.signal(signal.SIGINT)
    assert run.wait(6) == 130
    assert "Traceback" not in run.said()
    filler.unlink()
    crawling.finish()


@pytest.mark.parametrize("kind", ["state", "jsonl"])
def test_a_worker_that_dies_on_a_full_disk_is_replaced(new_crawling, site, kind, disk):
    """Its parent can do without writing, too."""
    crawling = new_crawling(site, kind, "--concurrency", 4, "--processes", 2, state=disk, rows=disk)
    run, filler = paused_by(disk, crawling)
    workers = set(run.members()) - {run.pid}
    os.kill(min(workers), signal.SIGKILL)
    assert crawling.until(lambda: "starting another one" in run.said(), run)
    assert crawling.until(lambda: len(run.members()) == 3, run)
    filler.unlink()
    assert run.wait() == 0
    crawling.assert_finished()


@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_on_the_size_of_files_is_like_a_full_disk(new_crawling, site, kind):
    """It pauses the crawl until it is raised."""
    crawling = new_crawling(site, kind, "--concurrency", 8)
    run = crawling.start(*HASTY)
    assert crawling.until(lambda: crawling.done() > 10, run)
    _, most = resource.prlimit(run.pid, resource.RLIMIT_FSIZE)
    largest = max(file.stat().st_size for file in crawling.folder.iterdir())
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (largest + 10_000, most))
    assert crawling.until(lambda: TROUBLE in run.said(), run)
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, (most, most))
    assert run.wait() == 0
    crawling.assert_finished()


def test_the_log_of_the_state_file_does_not_fill_a_small_disk(disk):
    """What it repeats is moved into the state file in time."""
    with open_frontier(f"sqlite:{disk}/a.shoal", crawl="a") as frontier:
        frontier.add([Link(f"http://a.test/{number}") for number in range(100)])
        for _ in range(2_000):
            (lease,) = frontier.lease(1, 60.0, worker="ann").leases
            frontier.release([lease.token])
        assert frontier.stats().queued == 100


def test_a_state_file_that_has_no_room_even_to_be_read_says_so(disk, tmp_path):
    """It is not taken for damaged."""
    place = f"sqlite:{disk}/a.shoal"
    with open_frontier(place, crawl="a") as frontier:
        frontier.add([Link("http://a.test/")])
    fill(disk)
    with pytest.raises(FrontierUnavailable, match=r"disk I/O error \(is its disk full\?\)"):
        open_frontier(place, crawl="a")
    with pytest.raises(FrontierError, match=r"disk I/O error \(is its disk full\?\)"):
        recover(f"{disk}/a.shoal", str(tmp_path / "new.shoal"))
