"""The measuring: a site served by nginx, and what a crawler's processes cost while they crawl it."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import psutil

ROOT = Path(__file__).parents[1]
SHOAL = Path(sys.executable).with_name("shoal")
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
PORT = 8811
"""Our own nginx listens here, on 127.0.0.2 and up. The pages name it in their links."""


class Site(NamedTuple):
    """A built site that nginx is serving."""

    directory: Path
    start: str
    pages: int

    def reset(self) -> None:
        """Start a new access log."""
        run_site("reset", self.directory)

    def check(self, items: Path) -> dict[str, int]:
        """Compare the fetches of a crawl, and its rows if it has written any, with the truth."""
        return json.loads(run_site("check", self.directory, *([items] if items.exists() else [])))

    def fetched(self) -> int:
        """How many requests are in the log, which nginx writes out every second."""
        return (self.directory / "access.log").read_bytes().count(b"\n")

    def first_fetch_at(self) -> float:
        """When the first request came. Raises IndexError if there was none."""
        log, patience_s = self.directory / "access.log", 2.0
        while patience_s > 0 and not log.stat().st_size:
            time.sleep(0.1)
            patience_s -= 0.1
        return float(log.read_text().splitlines()[0].split()[-1])

    def nginx_cpu_s(self) -> float:
        """CPU seconds that the one worker of our nginx has used."""
        master = psutil.Process(int((self.directory / "nginx.pid").read_text()))
        times = master.children()[0].cpu_times()
        return times.user + times.system


def run_site(*args: object) -> str:
    """Run a command of site.py and return what it prints."""
    command = [sys.executable, Path(__file__).with_name("site.py"), *args]
    return subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True).stdout


@contextlib.contextmanager
def serving(pages: int, hosts: int = 16) -> Iterator[Site]:
    """Serve the site of that size with an nginx of our own; it is built the first time."""
    directory = ROOT / ".bench" / f"site-{pages}-{hosts}"
    if not (directory / "site.json").exists():
        (ROOT / ".bench").mkdir(exist_ok=True)
        (ROOT / ".bench" / ".gitignore").write_text("*\n")
        run_site("build", directory, "--pages", pages, "--hosts", hosts, "--port", PORT)
    run_site("serve", directory)
    try:
        yield Site(directory, f"http://127.0.0.2:{PORT}/", pages)
    finally:
        run_site("stop", directory)


def shoal_command(start: str, work: Path, frontier: str | None = None) -> list[object]:
    """Return the command that crawls the whole site with shoal and extracts the products.

    frontier: its URL, if it is not to be a state file in `work`.
    """
    return [
        *(SHOAL, "crawl", start, "--scope", "any", "--ignore-robots", "--sort-query"),
        *("--per-host", 16, "--concurrency", 64),
        *("--select", "id=article.product::attr(data-id)"),
        *("--select", "title=article.product h1"),
        *("--select", "price=[itemprop=price]::attr(content)"),
        *("-o", work / "items.jsonl"),
        *(("--frontier", frontier) if frontier else ("--state", work / "state.shoal")),
        "--quiet",
    ]


Processes = list[subprocess.Popen[bytes]]


class Cost(NamedTuple):
    """What one crawl of a whole site cost, from the start of its processes to their end."""

    pages: int
    seconds: float
    cpu_s: float
    """User + system time of the processes and their children."""
    start_cpu_s: float
    """Of this, until the first request."""
    peak_mb: float
    """The largest sum of their proportional set sizes."""
    others_cores: float
    """CPU that the rest of the machine used meanwhile, nginx left out: a run is quiet below 0.2."""

    @property
    def cpu_ms_per_page(self) -> float:
        """CPU milliseconds for one page, which is also CPU seconds for 1,000."""
        return 1000 * self.cpu_s / self.pages

    @property
    def pages_per_s(self) -> float:
        """Pages in a second of wall time."""
        return self.pages / self.seconds


def median(costs: Sequence[Cost], name: str) -> float:
    """Return the median of an attribute."""
    return statistics.median(getattr(cost, name) for cost in costs)


def crawl(command: Sequence[object], site: Site) -> Cost:
    """Run a crawler of one command on the site until it ends by itself."""
    return follow(lambda: [subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL)], site)


def follow(start: Callable[[], Processes], site: Site, is_over: Callable[[], bool] = lambda: False) -> Cost:
    """Start the processes of a crawler and wait for their end; they are told to end once `is_over()`."""
    site.reset()
    began, busy = time.time(), _busy_s(site)
    processes = start()
    cpu_s, peak_mb, told = dict[int, float](), 0.0, False
    samples = [(began, 0.0)]
    try:
        while len(cpu_s) < len(processes):
            running = [each for each in processes if each.pid not in cpu_s]
            at, seconds, memory_mb = _sample(running)
            samples.append((at, seconds))
            peak_mb = max(peak_mb, memory_mb)
            time.sleep(0.1)
            if not told and is_over():
                told = True
                for each in running:
                    each.terminate()
            for each in running:
                if (used_s := ended(each, told=told)) is not None:
                    cpu_s[each.pid] = used_s
    finally:
        for each in processes:
            if each.pid not in cpu_s:
                each.kill()
                each.wait()
    seconds, total_s = time.time() - began, sum(cpu_s.values())
    others = (_busy_s(site) - busy - total_s) / seconds
    samples.append((began + seconds, total_s))
    return Cost(site.pages, seconds, total_s, _used_at(site.first_fetch_at(), samples), peak_mb, others)


def _used_at(moment: float, samples: Sequence[tuple[float, float]]) -> float:
    """The CPU seconds used by then: on the line between the samples before and after it."""
    for (at, used_s), (later, more_s) in pairwise(samples):
        if at <= moment < later:
            return used_s + (more_s - used_s) * (moment - at) / (later - at)
    raise ValueError("it is not within the samples")


def ended(process: subprocess.Popen[bytes], *, told: bool = False) -> float | None:
    """Return the CPU seconds of the process and its children if it has ended, else None.

    Raises SystemExit if it has failed, unless it was told to end.
    """
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if not pid:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode and not told:
        raise SystemExit(f"exit code {process.returncode}: {process.args}")
    return usage.ru_utime + usage.ru_stime


def _sample(processes: Processes) -> tuple[float, float, float]:
    """The time, and the CPU seconds and MB of processes and their descendants; shared pages count once."""
    at, seconds, memory = time.time(), 0.0, 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):  # it is ending
            root = psutil.Process(process.pid)
            for member in [root, *root.children(recursive=True)]:
                seconds += sum(member.cpu_times()[:4])
                memory += member.memory_full_info().pss
    return at, seconds, memory / 2**20


def _busy_s(site: Site) -> float:
    """CPU seconds that the whole machine has used, without our nginx."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq - site.nginx_cpu_s()
