"""The example of the documents, pasted: a site of 2,000 pages goes into PostgreSQL."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from celery.app.utils import find_app
from psycopg.rows import dict_row
from tests.bench_site import BenchSite
from tests.celery.conftest import Running
from tests.services import PostgresServer, RedisServer, ServiceMissing
from tests.waiting import until

from shoal.frontier import open_frontier

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "celery.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "celery_app"
PAGES = 2_000


class Pasted:
    """What `Running` needs to know of a project."""

    def __init__(self, folder: Path) -> None:
        self.name, self.folder = "scraper", folder


@pytest.mark.parametrize("name", ["scraper.py", "producer.py"])
def test_the_guide_shows_the_example(name):
    """Word for word."""
    assert f"```py\n{(EXAMPLE / name).read_text(encoding='utf-8')}```" in GUIDE


def test_code_of_the_guide_compiles():
    """All of it."""
    for number, code in enumerate(re.findall(r"```py\n(.*?)```", GUIDE, re.DOTALL)):
        compile(code, f"celery.md, block {number}", "exec")


def test_the_example_is_an_app_of_celery(monkeypatch):
    """`-A scraper` finds it, and the task is registered under the name that Celery would give it."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    app = find_app("scraper")
    assert "scraper.scrape" in app.tasks
    monkeypatch.delitem(sys.modules, "scraper")


@pytest.fixture
def served(tmp_path):
    """The site."""
    try:
        site = BenchSite(tmp_path / "site", pages=PAGES)
    except ServiceMissing as missing:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(missing))
    with site:
        yield site


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_example_crawls_a_site_into_postgresql(served, tmp_path, monkeypatch):
    """Nothing missing, doubled or wrong, in the rows and in the server's log; no ticket is left."""
    shutil.copytree(EXAMPLE, tmp_path / "app")
    with RedisServer() as redis, PostgresServer() as postgres:
        place = redis.url.removesuffix("/0")
        monkeypatch.setenv("BROKER", f"{place}/0")
        monkeypatch.setenv("FRONTIER", f"{place}/1")
        monkeypatch.setenv("DATABASE", f"{postgres.url}?table=products")
        monkeypatch.setenv("SITES", "http://127.0.0.*")
        worker = Running(Pasted(tmp_path / "app"), "--concurrency=2")
        try:
            worker.ready()
            subprocess.run([sys.executable, "producer.py", served.url], cwd=tmp_path / "app", check=True)
            with open_frontier(f"{place}/1", crawl="scraper.scrape") as frontier:
                until(lambda: frontier.stats().finished, 200, "the end of the crawl")
            assert worker.stop() == 0
        finally:
            worker.end()
        with psycopg.connect(postgres.url, row_factory=dict_row) as db:
            rows = db.execute("SELECT id, title, price, url FROM products").fetchall()
    report = served.check(rows)
    for name in ("pages", "items", "fetches", "pages_fetched"):
        assert report[name] == PAGES, report
    for name in (
        "missing",
        "duplicated",
        "wrong",
        "unknown",
        "broken",
        "never_fetched",
        "pages_fetched_again",
    ):
        assert report[name] == 0, report
