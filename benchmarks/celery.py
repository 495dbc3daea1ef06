"""One crawl by `celery worker --concurrency=2`, and by `shoal worker --processes 2`.

    python -m benchmarks.celery

Besides, on a smaller site because they take so long, crawlers with a message for each URL
(peers/celery_peer.py). Frontier and broker are one Redis.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from celery import Celery
from redis.client import Redis

from benchmarks.measure import PEERS_PYTHON, serving
from benchmarks.report import machine, publish, versions
from benchmarks.turns import (
    Place,
    Processes,
    Turn,
    compared,
    is_finished,
    shoal_worker,
    take_turn,
    write_scraper,
)

APP = """\
import shoal.celery
from celery import Celery
from scraper import crawl

app = Celery("app", broker={broker!r})
site = shoal.celery.attach(app, crawl, frontier={frontier!r}, store={store!r})
"""


PEERS = Path(__file__).parent / "peers"


def is_all_done(place: Place) -> bool:
    """Whether the peer has done as many pages as there are: it cannot tell when it is finished."""
    with Redis.from_url(place.frontier) as client:
        return int(client.get("done") or 0) >= place.site.pages


def celery_worker(place: Place) -> Processes:
    """Start the worker, which finds the seeds itself."""
    write_scraper(place)
    names = {"broker": f"{place.redis}/0", "frontier": place.frontier, "store": str(place.rows)}
    (place.work / "app.py").write_text(APP.format(**names))
    return [subprocess.Popen(celery_command("app", 2), cwd=place.work)]


def message_per_url(place: Place, python: str | Path, reader: str) -> Processes:
    """Start the peer's worker, with its first message on the way."""
    environment = os.environ | {
        "BROKER": f"{place.redis}/0",
        "SEEN": place.frontier,
        "ROWS": str(place.rows),
        "PYTHONPATH": str(PEERS),
        "READER": reader,
    }
    with Redis.from_url(place.frontier) as client:
        client.sadd("seen", place.site.start)
    with Celery(broker=f"{place.redis}/0") as app:
        app.send_task("crawl", args=[place.site.start])
    command = celery_command("celery_peer", 4, python)
    return [subprocess.Popen(command, cwd=place.work, env=environment)]


def celery_command(app: str, concurrency: int, python: str | Path = sys.executable) -> list[object]:
    """Return how a worker is started."""
    return [python, "-m", "celery", "-A", app, "worker", f"--concurrency={concurrency}", "-l", "warning"]


WORKERS = {"celery worker": celery_worker, "shoal worker": shoal_worker}
PEERS_AT_WORK = {
    "a message per URL, lxml": partial(message_per_url, python=PEERS_PYTHON, reader="lxml"),
    "a message per URL, shoal's parser": partial(message_per_url, python=sys.executable, reader="lean"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--peer-pages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    turns: dict[str, list[Turn]] = {name: [] for name in [*WORKERS, *PEERS_AT_WORK]}
    for _ in range(given.rounds):
        with serving(given.pages) as site:
            for name, start in WORKERS.items():
                turns[name].append(take_turn(start, site, is_finished))
                print(name, turns[name][-1], flush=True)
        with serving(given.peer_pages) as site:
            for name, start_peer in PEERS_AT_WORK.items():
                turns[name].append(take_turn(start_peer, site, is_all_done))
                print(name, turns[name][-1], flush=True)
    used = versions("shoal", "celery", "kombu", "redis")
    publish("celery", f"{compared(turns, 'celery worker')}\n{machine()}Versions: {used}.\n")


if __name__ == "__main__":
    main()
