"""Ctrl-C and SIGTERM: a crawl ends soon, whatever holds it up, and goes on when it is run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from tests.faults.crawling import Crawling, Running
from tests.site import Site

from shoal.frontier import open_frontier

pytestmark = pytest.mark.faults

SOON_S = 2.0
NOISE = 3  # other programs may keep this one waiting
FOREVER_S = 30.0


@pytest.fixture
def site() -> Iterator[Site]:
    """A site that takes its time."""
    with Site(pages=60, hosts=2, latency_s=0.1) as served:
        yield served


def ctrl_c(run: Running) -> None:
    """As a terminal does: all processes are told."""
    with suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGINT)


def sigterm(run: Running) -> None:
    """As a service manager or `kill` does: the main process is told."""
    run.signal(signal.SIGTERM)


def seconds_to_end(run: Running, stop: Callable[[Running], None]) -> float:
    """Stop it, and see how long it takes, its children included."""
    stopped_at = time.monotonic()
    stop(run)
    run.wait(FOREVER_S)
    while run.members():
        time.sleep(0.02)
        assert time.monotonic() - stopped_at < FOREVER_S
    took = time.monotonic() - stopped_at
    print(f"ended after {took:.2f} s")
    return took


class Situation:
    """What a crawl is doing when it is stopped."""

    fault = ""

    def hold_up(self, crawling: Crawling) -> None: ...

    def let_go(self, crawling: Crawling) -> None: ...


class Fetching(Situation):
    pass


class SlowServer(Situation):
    def hold_up(self, crawling):
        crawling.site.latency_s = FOREVER_S

    def let_go(self, crawling):
        crawling.site.latency_s = 0.0


class SlowHandlers(Situation):
    fault = f"while os.path.exists('slow'): time.sleep({FOREVER_S})"

    def hold_up(self, crawling):
        (crawling.folder / "slow").touch()

    def let_go(self, crawling):
        (crawling.folder / "slow").unlink()


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("stop", [ctrl_c, sigterm])
@pytest.mark.parametrize(
    "situation", [Fetching(), SlowServer(), SlowHandlers()], ids=lambda one: type(one).__name__
)
def test_it_ends_soon_and_can_be_resumed(new_crawling, site, situation, stop, processes):
    """Nothing holds it up; it says how to go on, and has given back what it could not finish."""
    crawling = new_crawling(
        site, "jsonl", "--processes", processes, "--concurrency", 6, fault=situation.fault
    )
    run = crawling.start()
    assert crawling.until(lambda: crawling.done() > 10, run)
    situation.hold_up(crawling)
    time.sleep(0.3)
    assert seconds_to_end(run, stop) < SOON_S * NOISE
    assert run.wait() == 130
    assert "the same command goes on from here" in run.said()
    assert "Traceback" not in run.said()
    assert crawling.at_work() == set()
    crawling.assert_sound()
    situation.let_go(crawling)
    crawling.finish()


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("stop", [ctrl_c, sigterm])
def test_the_second_time_kills_it_at_once(new_crawling, site, stop, processes):
    """Even if it would take its time to end well."""
    crawling = new_crawling(site, "jsonl", "--processes", processes)
    run = crawling.start("hasty.py", "GRACE_S=60")
    assert crawling.until(lambda: crawling.done() > 10, run)
    SlowServer().hold_up(crawling)
    time.sleep(0.3)
    stop(run)
    time.sleep(0.3)
    assert not run.ended()
    assert seconds_to_end(run, stop) < NOISE
    assert run.wait() == 130
    SlowServer().let_go(crawling)
    crawling.finish()


STARTING = "import shoal.__main__ as it; print('now', flush=True); it.main()"
COMMANDS = {
    "crawl": ("crawl", "{url}", "--fresh"),
    "two processes": ("crawl", "{url}", "--fresh", "--processes", "2"),
    "run": ("run", "slow.py"),
    "test": ("test", "slow.py", "{url}"),
    "watch": ("status", "--watch", "--state", "other.shoal"),
    "demo": ("demo",),
    "add": ("add", "--from", "-", "--state", "other.shoal"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_ctrl_c_while_a_command_starts_ends_it_cleanly(
    tmp_path: Path, site, rng: Random, rounds, command: str
) -> None:
    """Whatever is being imported just then: exit code 130, no traceback, and it is never overheard."""
    site.latency_s = FOREVER_S
    made = f"crawl = shoal.Crawl('slow', seeds=['{site.url}'])"
    (tmp_path / "slow.py").write_text(f"import time\ntime.sleep(0.1)\nimport shoal\n{made}\n")
    open_frontier(f"sqlite:{tmp_path}/other.shoal", crawl="other").close()
    for _ in range(max(4, rounds)):
        process = subprocess.Popen(
            [sys.executable, "-c", STARTING, *(word.format(url=site.url) for word in COMMANDS[command])],
            cwd=tmp_path,
            text=True,
            process_group=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "now\n"
        time.sleep(rng.uniform(0.0, 0.7))
        os.killpg(process.pid, signal.SIGINT)
        try:
            out, err = process.communicate(timeout=FOREVER_S / 2)
        finally:
            process.kill()
        assert process.returncode == 130, (out, err)
        assert "Traceback" not in err
        assert "KeyboardInterrupt" not in err
    site.latency_s = 0.0


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("stop", [ctrl_c, sigterm])
def test_it_can_be_stopped_at_any_moment(new_crawling, site, rng: Random, rounds, stop, processes):
    """Also while it starts, once it has touched a file; never does it go on as if nothing was said."""
    site.latency_s = 1.0
    for _ in range(max(1, rounds // 6)):
        crawling = new_crawling(site, "jsonl", "--processes", processes)
        run = crawling.start()
        assert crawling.until(crawling.state.exists, run)
        time.sleep(rng.uniform(0.0, 0.8))
        assert seconds_to_end(run, stop) < SOON_S * NOISE
        assert run.wait() in {130, -signal.SIGINT, -signal.SIGTERM}
        crawling.assert_sound()
    site.latency_s = 0.0
    crawling.finish()
