"""A store that is down for ten seconds in the middle of a crawl, longer than leases last here."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import psycopg
import pytest
from tests.faults.crawling import Crawling, Running, assert_archived
from tests.services import PostgresServer, S3Server, Server
from tests.site import Site

pytestmark = pytest.mark.faults

DOWN_S = 10.0
HASTY = ("hasty.py", "TROUBLE_S=0.2,LEASE_S=4,TEND_S=0.5")


@pytest.fixture
def site() -> Iterator[Site]:
    """A site that is not crawled before its store is down."""
    with Site(pages=200, hosts=4, latency_s=0.1) as served:
        yield served


def until_down_and_back(crawling: Crawling, server: Server) -> tuple[Running, dict[str, object]]:
    """A crawl whose store is killed, and comes back; and what the status said meanwhile."""
    run = crawling.start(*HASTY)
    assert crawling.until(lambda: crawling.done() > 20, run)
    server.kill()
    assert crawling.until(lambda: "trying again every" in run.said(), run)
    begun = time.monotonic()
    assert crawling.until(lambda: crawling.status()["workers"][0]["trouble"], run)
    status = crawling.status()
    time.sleep(DOWN_S - (time.monotonic() - begun))
    assert crawling.status()["done"] == status["done"]
    server.start()
    assert run.wait() == 0
    return run, status


def assert_paused(run: Running, status: dict[str, object], crawling: Crawling) -> None:
    """It said so a few times, and lost no lease: whatever it held was extended, and no more was leased."""
    (worker,) = status["workers"]
    assert "cannot write to" in worker["trouble"]
    assert run.said().count("trying again every") < 5
    assert "the crawl goes on, after 1" in run.said()
    assert crawling.status()["losses"] == 0


def test_an_object_store_that_is_down_pauses_the_crawl(new_crawling, site: Site, s3: S3Server):
    """The crawl waits, says why, and goes on by itself; nothing is lost or doubled."""
    crawling = new_crawling(site, "s3", "--concurrency", 8)
    run, status = until_down_and_back(crawling, s3)
    crawling.assert_finished()
    assert_paused(run, status, crawling)


@pytest.mark.parametrize("place", ["output", "archive"])
def test_one_of_two_stores_that_is_down_pauses_the_crawl(
    new_crawling, site: Site, s3: S3Server, place: str, tmp_path: Path
):
    """What the other one had of the same batch is taken back."""
    target = f"s3://{s3.BUCKET}/{tmp_path.name}-{place}/rows.jsonl"
    crawling = new_crawling(site, "parquet", f"--{place}", target, "--concurrency", 8)
    run, status = until_down_and_back(crawling, s3)
    crawling.assert_finished()
    assert_paused(run, status, crawling)
    folder = s3.data / target.removeprefix("s3://")
    if place == "output":
        lines = [line for part in folder.glob("date=*/*.jsonl") for line in part.read_text().splitlines()]
        assert Counter(json.loads(line)["url"] for line in lines) == Counter(site.urls)
    else:
        assert_archived(folder, site.urls)


def test_a_postgresql_that_is_down_pauses_the_crawl(new_crawling, site: Site, tmp_path: Path):
    """The same; psql, if it is there, reads each row once."""
    with PostgresServer() as server:
        crawling = new_crawling(site, "jsonl", "--concurrency", 8, "-o", f"{server.url}?table=rows")
        run, status = until_down_and_back(crawling, server)
        crawling.assert_finished()
        assert_paused(run, status, crawling)
        query = "SELECT count(*), count(DISTINCT url) FROM rows"
        with closing(psycopg.connect(server.url)) as db:
            assert db.execute(query).fetchone() == (site.pages, site.pages)
        if psql := shutil.which("psql"):
            read = subprocess.run(
                [psql, "-Atc", query, server.url], check=True, capture_output=True, text=True
            )
            assert read.stdout.strip() == f"{site.pages}|{site.pages}"


def test_a_worker_that_dies_while_postgresql_is_down(new_crawling, site: Site):
    """The one that takes its place waits for the database as the others do, and the crawl goes on."""
    with PostgresServer() as server:
        crawling = new_crawling(
            site, "jsonl", "--processes", 2, "--concurrency", 8, "-o", f"{server.url}?table=rows"
        )
        run = crawling.start(*HASTY)
        assert crawling.until(lambda: crawling.done() > 20 and crawling.at_work(), run)
        server.kill()
        assert crawling.until(lambda: "trying again every" in run.said(), run)
        os.kill(crawling.at_work().pop(), signal.SIGKILL)
        assert crawling.until(lambda: "starting another one" in run.said(), run)
        time.sleep(1.0)
        assert not run.ended()
        server.start()
        assert run.wait() == 0
        crawling.assert_finished()
        with closing(psycopg.connect(server.url)) as db:
            query = "SELECT count(*), count(DISTINCT url) FROM rows"
            assert db.execute(query).fetchone() == (site.pages, site.pages)


def test_kills_while_the_store_comes_and_goes(new_crawling, site: Site, s3: S3Server, rng: Random):
    """Killed while the store is down, resumed when it is up again, several times."""
    crawling = new_crawling(site, "s3", "--concurrency", 8)
    for goal in sorted(rng.sample(range(5, 150), 3)):
        run = crawling.start(*HASTY)
        crawling.until(lambda goal=goal: crawling.done() >= goal, run)
        s3.kill()
        time.sleep(rng.uniform(0, 0.3))
        run.kill(whole=True)
        refused = crawling.start(*HASTY)
        assert refused.wait() == 2
        assert "cannot write to s3://" in refused.said()
        assert "Traceback" not in refused.said()
        s3.start()
    crawling.finish()
