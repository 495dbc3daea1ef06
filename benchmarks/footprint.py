"""What there is besides pages: the start of a crawl, and a worker that has nothing to do.

    python -m benchmarks.footprint

What starts takes turns; what waits does so at the same time, since it hardly uses the machine.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
from tests.services import RedisServer

from benchmarks.celery import celery_command
from benchmarks.measure import PEERS_PYTHON, SHOAL
from benchmarks.report import machine, peer_versions, publish, table, versions

PEERS = Path(__file__).parent / "peers"
STARTS = 5
"""Of each, in a round."""
SETTLE_S, IDLE_S = 8.0, 20.0
FIRST_S = 30.0
"""How long the first request may take."""

SCRAPER = """\
import shoal

crawl = shoal.Crawl("idle", seeds=["http://127.0.0.1:9/"], obey_robots=False, retries=0)


@crawl.page()
def page(page):
    return None
"""

# --- the start --------------------------------------------------------------------------------------


def first_request_ms(command: Sequence[object], listener: socket.socket, work: Path) -> float:
    """From the start of a process to the first bytes that it asks a server for; then it is killed."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [*map(str, command)], cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(FIRST_S)
            if not connection.recv(1):
                raise SystemExit(f"it asked for nothing: {process.args}")
        return 1000 * (time.perf_counter() - began)
    finally:
        process.kill()
        process.wait()


def run_ms(command: Sequence[object]) -> float:
    """Of a process that ends by itself."""
    began = time.perf_counter()
    subprocess.run([*map(str, command)], stdout=subprocess.DEVNULL, check=True)
    return 1000 * (time.perf_counter() - began)


def starts(rounds: int) -> str:
    """The table."""
    commands: Mapping[str, Callable[[str], list[object]]] = {
        "shoal crawl": lambda url: [SHOAL, "crawl", url, "--quiet", "--fresh"],
        "Scrapy": lambda url: [PEERS_PYTHON, PEERS / "scrapy_peer.py", "memory", url, "items.jsonl"],
        "Crawlee": lambda url: [PEERS_PYTHON, PEERS / "crawlee_peer.py", "usual", url, "items.jsonl"],
    }
    taken: dict[str, list[float]] = {}
    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.TemporaryDirectory() as folder:
        listener.settimeout(FIRST_S)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        for _ in range(rounds * STARTS):
            for name, command in commands.items():
                spent_ms = first_request_ms(command(url), listener, Path(folder))
                taken.setdefault(f"{name}, to its first request", []).append(spent_ms)
            taken.setdefault("shoal --help", []).append(run_ms([SHOAL, "--help"]))
            taken.setdefault("Python alone", []).append(run_ms([sys.executable, "-c", "pass"]))
    alone_ms = statistics.median(taken["Python alone"])
    rows = [
        [
            name,
            f"{statistics.median(each):.0f}",
            f"{statistics.median(each) / alone_ms:.1f}",
            f"{min(each):.0f}",
        ]
        for name, each in taken.items()
    ]
    return table(["process", "ms", "times Python alone", "at best"], rows)


# --- waiting ----------------------------------------------------------------------------------------


def waiters(opened: ExitStack, work: Path) -> dict[str, tuple[subprocess.Popen[bytes], RedisServer | None]]:
    """Start workers that have nothing to do, each with the Redis that it waits for."""
    (work / "scraper.py").write_text(SCRAPER)
    worker = [SHOAL, "worker", "scraper.py", "-o", "items.jsonl", "--frontier"]
    scrapy_redis = [PEERS_PYTHON, PEERS / "scrapy_peer.py", "redis", "http://127.0.0.1/", "scrapy.jsonl"]
    servers = [opened.enter_context(RedisServer(appendonly=True)) for _ in range(3)]
    for_celery = {
        "BROKER": servers[2].url,
        "SEEN": servers[2].url,
        "READER": "lxml",
        "PYTHONPATH": str(PEERS),
        "ROWS": "celery.jsonl",
    }
    commands: dict[str, tuple[list[object], RedisServer | None, dict[str, str]]] = {
        "shoal worker, SQLite": ([*worker, f"sqlite:{work / 'idle.shoal'}"], None, {}),
        "shoal worker, Redis": ([*worker, servers[0].url], servers[0], {}),
        "scrapy-redis": (scrapy_redis, servers[1], {"REDIS_URL": servers[1].url}),
        "celery worker, one child": (celery_command("celery_peer", 1, PEERS_PYTHON), servers[2], for_celery),
    }
    return {
        name: (opened.enter_context(running(command, work, more)), server)
        for name, (command, server, more) in commands.items()
    }


@contextmanager
def running(command: list[object], work: Path, more: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended in the end."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        [*map(str, command)], cwd=work, env=os.environ | more, stdout=quiet, stderr=quiet
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def waiting() -> str:
    """The table."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as opened:
        started = waiters(opened, Path(folder))
        time.sleep(SETTLE_S)
        before = {name: _used_s(process.pid) for name, (process, _) in started.items()}
        servers_before = {name: _used_s(server.pid) for name, (_, server) in started.items() if server}
        time.sleep(IDLE_S)
        rows = []
        for name, (process, server) in started.items():
            if process.poll() is not None:
                raise SystemExit(f"{name} has ended: exit code {process.returncode}")
            own = _share(_used_s(process.pid) - before[name])
            theirs = _share(_used_s(server.pid) - servers_before[name]) if server else ""
            rows.append([name, own, theirs, f"{_memory_mb(process.pid):.0f}"])
    return table(["it waits", "CPU, % of a core", "its Redis, % of a core", "MB"], rows)


def _share(used_s: float) -> str:
    return f"{100 * used_s / IDLE_S:.2f}"


def _tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


def _used_s(pid: int) -> float:
    """CPU seconds of a process and its descendants."""
    return sum(sum(each.cpu_times()[:2]) for each in _tree(pid))


def _memory_mb(pid: int) -> float:
    """Their proportional set size."""
    return sum(each.memory_full_info().pss for each in _tree(pid)) / 2**20


def main(rounds: int = 5) -> None:
    """Publish the tables."""
    used = f"{machine()}Versions: {versions('shoal')}; {peer_versions()}.\n"
    publish("footprint", f"{starts(rounds)}\n{waiting()}\n{used}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    main(parser.parse_args().rounds)
