"""Metrics of workers while they work: by HTTP, as Prometheus scrapes them."""

from __future__ import annotations

import re
import signal
import socket
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest
from tests.e2e.redis_shop import SCRAPER, Shop
from tests.e2e.shell import PATIENCE_S, Shell
from tests.services import RedisServer, free_ports
from tests.site import Site
from tests.unit.test_metrics import check, samples
from tests.waiting import until


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Redis for these tests."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def shop(shoal: Shell, server: RedisServer) -> Iterator[Shop]:
    """A crawl that does not exist yet, on an empty Redis."""
    with server.client() as client:
        client.flushall()
        yield Shop(shoal, server.url, client)


def scrape(url: str) -> str:
    """What is served there."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(answer.read().decode())


def pages(texts: Iterable[str]) -> Counter[str]:
    """How attempts at pages ended, summed over all that was scraped."""
    ends: Counter[str] = Counter()
    for text in texts:
        for name, value in samples(text).items():
            if found := re.match(r'shoal_pages_total\{.*outcome="(\w+)"', name):
                ends[found[1]] += int(value)
    return ends


class Working:
    """A worker that goes on until the context ends. What it logs is in a file, and can be read meanwhile."""

    def __init__(self, shoal: Shell, log: Path, *args: object) -> None:
        self._log = log
        with log.open("w") as file:
            self._process = shoal.start(*args, stderr=file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=PATIENCE_S)

    def urls(self, count: int = 1) -> list[str]:
        """Where its metrics are, once it has said so for as many processes."""

        def found() -> list[str]:
            assert self._process.poll() is None, self._log.read_text()
            return re.findall(r"metrics are at (\S+)", self._log.read_text())

        until(lambda: len(found()) == count)
        return sorted(found())


def test_the_metrics_of_all_workers_agree_with_status_and_with_the_site(shop: Shop, tmp_path: Path) -> None:
    """Summed over three processes: pages by outcome, attempts, bytes, rows. Nothing is counted twice."""
    command = shop.command("--metrics-port", "0")
    with Site(120, hosts=3, latency_s=0.02, extras=["/missing", "/flaky/1/a"]) as site, ExitStack() as ending:
        site.failing = {7, 8}
        shop.scraper(site.url, scope="any", concurrency=8, retries=1, retry_delay_s=0.01, host_pause_s=0.1)
        one = ending.enter_context(Working(shop.shoal, tmp_path / "one.log", *command))
        two = ending.enter_context(Working(shop.shoal, tmp_path / "two.log", *command, "--processes", 2))
        urls = [*one.urls(), *two.urls(2)]
        until(lambda: shop.stats().finished)
        until(lambda: pages(map(scrape, urls)).total() == shop.stats().fetches)
        texts, status = [scrape(url) for url in urls], shop.status()
    for text in texts:
        check(text)
    told: Counter[str] = Counter()
    for text in texts:
        told.update(samples(text))
    ends = {"done": status["done"], "dead": status["dead"], "retried": status["retries"]}
    assert pages(texts) == ends
    assert status["dead"] > 0
    assert status["retries"] > 0
    assert sum(ends.values()) == status["fetches"] == site.fetches().total()
    labels = '{crawl="shop"}'
    assert told[f"shoal_fetched_bytes_total{labels}"] == status["size_bytes"]
    assert told[f"shoal_items_total{labels}"] == status["items"]
    assert told[f"shoal_fetch_duration_seconds_count{labels}"] == status["fetches"]
    first = samples(texts[0])  # the frontier's part is the same at each
    assert first['shoal_urls{crawl="shop",state="done"}'] == status["done"]
    assert first[f"shoal_crawl_fetches_total{labels}"] == status["fetches"]
    assert first[f"shoal_workers{labels}"] == 3
    assert first[f"shoal_workers_concurrency{labels}"] == told[f"shoal_worker_concurrency{labels}"] == 24


def test_processes_have_ports_in_a_row(shoal: Shell, site: Site, tmp_path: Path) -> None:
    """The first one the port that was named, and the others those behind it."""
    shoal.write("shop.py", SCRAPER.format(name="shop", url=site.url, settings=""))
    first = free_ports(2)
    command = ("worker", "shop.py", "--processes", 2, "--metrics-port", first)
    with Working(shoal, tmp_path / "log", *command) as worker:
        urls = [f"http://127.0.0.1:{first + number}/metrics" for number in range(2)]
        assert worker.urls(2) == urls
        assert all("shoal_loop_lag_seconds_count" in scrape(url) for url in urls)


def test_only_metrics_are_served_and_only_on_loopback(shoal: Shell, site: Site, tmp_path: Path) -> None:
    """Unless another address is named."""
    shoal.write("shop.py", SCRAPER.format(name="shop", url=site.url, settings=""))
    command = ("worker", "shop.py", "--metrics-port", 0, "--metrics-host", "127.0.0.9")
    with Working(shoal, tmp_path / "log", *command) as worker:
        (url,) = worker.urls()
        assert url.startswith("http://127.0.0.9:")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(url.replace("/metrics", "/state"), timeout=10)
        with pytest.raises(urllib.error.URLError, match="refused"):
            urllib.request.urlopen(url.replace("127.0.0.9", "127.0.0.1"), timeout=10)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_port_that_is_taken_is_told(shoal: Shell, site: Site, processes: int) -> None:
    """In one line, with what to do about it, before anything is fetched."""
    shoal.write("shop.py", SCRAPER.format(name="shop", url=site.url, settings=""))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = shoal("run", "shop.py", "--metrics-port", port, "--processes", processes, code=2)
    assert f"metrics cannot be served at 127.0.0.1:{port} (Address already in use)" in ended.err
    assert "choose another --metrics-port" in ended.err
    assert "Traceback" not in ended.err
