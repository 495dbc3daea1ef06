"""The measuring: a site served by nginx, and what a crawler's processes cost while they crawl it."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
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
        """Compare the rows and the fetches of a crawl with the truth."""
        return json.loads(run_site("check", self.directory, items))

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


def shoal_command(start: str, work: Path) -> list[object]:
    """Return the command that crawls the whole site with shoal and extracts the products."""
    return [
        *(SHOAL, "crawl", start, "--scope", "any", "--ignore-robots", "--sort-query"),
        *("--per-host", 16, "--concurrency", 64),
        *("--select", "id=article.product::attr(data-id)"),
        *("--select", "title=article.product h1"),
        *("--select", "price=[itemprop=price]::attr(content)"),
        *("-o", work / "items.jsonl", "--state", work / "state.shoal", "--quiet"),
    ]


class Cost(NamedTuple):
    """What one crawl of a whole site cost, from the start of its process to its end."""

    pages: int
    seconds: float
    cpu_s: float
    """User + system time of the process and its children."""
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
    """Run a crawler on the site until it ends by itself."""
    site.reset()
    start, busy = time.monotonic(), _busy_s(site)
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL)
    peak, cpu_s = 0.0, None
    try:
        while cpu_s is None:
            peak = max(peak, _memory_mb(process.pid))
            time.sleep(0.1)
            cpu_s = _ended(process)
    finally:
        if cpu_s is None:
            process.kill()
            process.wait()
    seconds = time.monotonic() - start
    others = (_busy_s(site) - busy - cpu_s) / seconds
    return Cost(site.pages, seconds, cpu_s, peak, others)


def _ended(process: subprocess.Popen[bytes]) -> float | None:
    """Return the CPU seconds of the process and its children if it has ended, else None."""
    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
    if not pid:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {process.args}")
    return usage.ru_utime + usage.ru_stime


def _memory_mb(root: int) -> float:
    """Return the memory of a process and its descendants; shared pages count once."""
    try:
        tree = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
        return sum(member.memory_full_info().pss for member in tree) / 2**20
    except psutil.Error:  # it is ending
        return 0.0


def _busy_s(site: Site) -> float:
    """CPU seconds that the whole machine has used, without our nginx."""
    times = psutil.cpu_times()
    return times.user + times.nice + times.system + times.irq + times.softirq - site.nginx_cpu_s()
