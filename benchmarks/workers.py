"""Two worker processes on one Redis: shoal, with its rows in PostgreSQL, beside scrapy-redis.

    python -m benchmarks.workers

scrapy-redis crawls a smaller site, because it takes so long, and writes its rows to files. Its duplicate
filter does not know the start page, which it fetches twice.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from functools import partial

from psycopg.rows import dict_row
from redis.client import Redis
from tests.services import PostgresServer

from benchmarks.measure import PEERS_PYTHON, ROOT, serving
from benchmarks.report import machine, publish, versions
from benchmarks.turns import Place, Processes, Turn, compared, is_finished, shoal_worker, take_turn
from shoal.store.encode import to_json


def collect(postgres: PostgresServer, place: Place) -> None:
    """Write the rows in PostgreSQL to the place's file, and empty the database."""
    with postgres.connect() as db, place.rows.open("wb") as rows:
        cursor = db.cursor(row_factory=dict_row)
        for row in cursor.execute("SELECT id, title, price FROM items"):
            rows.write(to_json(row) + b"\n")
        db.execute("DROP SCHEMA public CASCADE")
        db.execute("CREATE SCHEMA public")


def scrapy_redis(mode: str, place: Place) -> Processes:
    """Start two of them, with their first URL in the queue."""
    peer = ROOT / "benchmarks" / "peers" / "scrapy_peer.py"
    environment = os.environ | {"REDIS_URL": place.frontier}
    with Redis.from_url(place.frontier) as client:
        client.lpush("peer:start_urls", place.site.start)
    return [
        subprocess.Popen(
            [PEERS_PYTHON, peer, mode, place.site.start, f"{place.rows}.{number}"],
            cwd=place.work,
            env=environment,
        )
        for number in range(2)
    ]


def is_all_fetched(place: Place) -> bool:
    """Whether the server has been asked for as many pages as there are: the peer never ends."""
    return (place.site.directory / "access.log").read_bytes().count(b"\n") >= place.site.pages


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--peer-pages", type=int, default=4_000)
    args = parser.parse_args()
    turns: dict[str, list[Turn]] = {}
    with PostgresServer() as postgres:
        shoal = {
            f"shoal, {n} process{'es' if n > 1 else ''}": partial(
                shoal_worker, store=postgres.url, processes=n
            )
            for n in (2, 1)
        }
        for _ in range(args.rounds):
            with serving(args.pages) as site:
                for name, start in shoal.items():
                    _take(turns, name, take_turn(start, site, is_finished, partial(collect, postgres)))
            with serving(args.peer_pages) as site:
                for mode in ("redis", "redis-lean"):
                    name = f"scrapy-{mode}, 2 processes"
                    _take(
                        turns, name, take_turn(partial(scrapy_redis, mode), site, is_all_fetched, doubled=1)
                    )
    used = versions("shoal", "redis", "psycopg")
    publish("workers", f"{compared(turns, 'shoal, 2 processes')}\n{machine()}Versions: {used}.\n")


def _take(turns: dict[str, list[Turn]], name: str, turn: Turn) -> None:
    turns.setdefault(name, []).append(turn)
    print(name, turn, flush=True)


if __name__ == "__main__":
    main()
