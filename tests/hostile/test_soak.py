"""A crawl that meets all bad servers at once gets the good pages as fast as one that meets none.

`SHOAL_SOAK_S` says for how many seconds. Both run side by side, so what else the machine does hits both.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from msgspec import Struct
from tests.hostile.healthy import WILD, Healthy
from tests.hostile.hosts import Hosts
from tests.hostile.misbehaviours import MISBEHAVIOURS

SOAK_S = float(os.environ.get("SHOAL_SOAK_S", "30"))
CALM = "calm"
GOOD_HOSTS = 50
DELAY_S = 1.0
STEP_S = 1.0
LEAST_SHARE = 0.95
MB = 1_000_000
MOST_MEMORY_BYTES = 150 * MB
LONG_S = 180.0
"""Each bad server is met every 26 s: before some rounds there is no telling whether memory grows."""


class Sample(Struct, frozen=True):
    """How things stand at one moment."""

    at: float
    pages: Counter[str]
    memory_bytes: dict[str, int]
    connections: int


class Crawl:
    """The command, at work."""

    def __init__(self, folder: Path, seeds: list[str]) -> None:
        folder.mkdir()
        self.folder = folder
        options = ["--scope", "any", "--concurrency", "300", "--timeout", "5", "--retries", "1"]
        options += ["--delay", str(DELAY_S), "--state", "state.shoal", "-q"]
        with (folder / "stderr").open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "shoal", "crawl", *seeds, *options],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                env=os.environ | {"PYTHONWARNINGS": "error", "PYTHONSAFEPATH": "1"},
            )
        self._ps = psutil.Process(self.process.pid)

    @property
    def memory_bytes(self) -> int:
        """Of the process, just now."""
        return int(self._ps.memory_info().rss)

    @property
    def connections(self) -> int:
        """Open at the moment."""
        return len(self._ps.net_connections("inet"))

    def cpu_s(self) -> float:
        """Used so far."""
        return float(sum(self._ps.cpu_times()[:2]))

    def stop(self) -> int:
        """Stop it as a person would; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(30)

    def status(self) -> dict[str, int]:
        """What `shoal status` says."""
        command = [sys.executable, "-m", "shoal", "status", "--json", "--state", "state.shoal"]
        return dict(json.loads(subprocess.check_output(command, cwd=self.folder)))

    def kill(self) -> None:
        """In case that it still runs."""
        self.process.kill()
        self.process.wait()


def _watch(healthy: Healthy, crawls: dict[str, Crawl]) -> list[Sample]:
    """Samples of the whole time."""
    samples = []
    end = time.monotonic() + SOAK_S
    while (now := time.monotonic()) < end:
        assert all(crawl.process.poll() is None for crawl in crawls.values())
        memory = {kind: crawl.memory_bytes for kind, crawl in crawls.items()}
        samples.append(Sample(now, healthy.pages(), memory, crawls[WILD].connections))
        time.sleep(STEP_S)
    return samples


def _rate(samples: list[Sample], kind: str) -> float:
    """Good pages per second."""
    first, last = samples[0], samples[-1]
    return (last.pages[kind] - first.pages[kind]) / (last.at - first.at)


def _memory(samples: list[Sample], kind: str) -> float:
    return statistics.median(sample.memory_bytes[kind] for sample in samples)


@pytest.mark.faults
@pytest.mark.timeout(SOAK_S + 120)
def test_bad_servers_do_not_slow_down_good_ones(tmp_path: Path) -> None:
    """Good pages come within 5 % as fast, memory is flat, connections are bounded, and it can be stopped."""
    with Hosts() as hosts:
        strangers = [hosts.url(name) for name in MISBEHAVIOURS]
        with Healthy(hosts=GOOD_HOSTS, strangers=strangers) as healthy:
            crawls = {kind: Crawl(tmp_path / kind, healthy.seeds(kind)) for kind in (CALM, WILD)}
            try:
                samples = _watch(healthy, crawls)
                cpu_s = {kind: round(crawl.cpu_s(), 1) for kind, crawl in crawls.items()}
                assert [crawl.stop() for crawl in crawls.values()] == [130, 130]
            finally:
                for crawl in crawls.values():
                    crawl.kill()
    third = len(samples) // 3
    begun, middle, late = samples[third:], samples[third : 2 * third], samples[2 * third :]
    rates = {kind: round(_rate(begun, kind), 2) for kind in crawls}
    grown = {kind: round((_memory(late, kind) - _memory(middle, kind)) / MB, 1) for kind in crawls}
    status = crawls[WILD].status()
    print(f"pages/s {rates}; CPU {cpu_s} s; MB in the end {_memory(late, WILD) / MB:.0f}, grown {grown}")
    print({name: status[name] for name in ("done", "dead", "skipped", "queued", "leased")})
    assert rates[WILD] >= LEAST_SHARE * rates[CALM]
    assert rates[CALM] >= 0.5 * GOOD_HOSTS / DELAY_S
    assert max(sample.memory_bytes[WILD] for sample in samples) < MOST_MEMORY_BYTES
    if SOAK_S >= LONG_S:
        assert grown[WILD] <= max(grown[CALM], 0) + 0.05 * _memory(middle, WILD) / MB
    assert max(sample.connections for sample in samples) <= 600
    assert status["dead"] > SOAK_S / 3
    assert (crawls[WILD].folder / "stderr").read_bytes() == b""
