"""Manners that hold for all workers together, as the server's own log shows them."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from itertools import pairwise

import pytest
import redis
from tests.e2e.redis_shop import NAME, Shop
from tests.servers import Reply, Request, ScriptedServer, page
from tests.site import Site
from tests.waiting import until

from shoal.model import Link

DELAY_S = 0.2
TOLERANCE_S = 0.05  # a request may be held up on its way if the machine is busy
CLOCK_S = 0.002  # what clocks may be rounded by
OVER = "that is all"
WORKERS = 4
HOSTS = 8
SECONDS = 8.0


def by_host(site: Site) -> dict[str, list[float]]:
    """When each host was asked for something, robots.txt included."""
    times = defaultdict(list)
    for fetch in site.log:
        times[fetch.url.split("/")[2]].append(fetch.at)
    return times


class Leases:
    """The leases that are given while the context is open, as Redis itself tells them."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.by_host: dict[str, list[float]] = defaultdict(list)
        """When a page of each host was leased, by `time.time`."""
        self.by_url: dict[str, list[float]] = defaultdict(list)

    def __enter__(self) -> Leases:
        self._monitor = self._client.monitor().__enter__()
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._client.echo(OVER)
        self._listening.join()
        self._monitor.__exit__(*error)

    def _listen(self) -> None:
        given = f"HSET shoal:{{{NAME}}}:leases "
        for each in self._monitor.listen():
            command, at = each["command"], each["time"]
            if command == f"ECHO {OVER}":
                return
            if command.startswith(given):
                for host, path in _LEASED.findall(command):
                    self.by_host[host].append(at)
                    self.by_url[f"http://{host}{path}"].append(at)


_LEASED = re.compile(r"(127\.0\.0\.\d+:\d+)(?:\\x\w\w){3}(/[^\\ ]*)")
"""Host and path, in msgpack as MONITOR shows it."""


def assert_polite(site: Site, leases: Leases) -> None:
    """No host is leased from before its delay is over, and nothing is fetched without a lease.

    What the server sees may be closer: a request may be held up on its way if the machine is busy, and with
    it those to all hosts at this moment. So of the moments with requests too close there may be a few.
    """
    leased = [after - before for times in leases.by_host.values() for before, after in pairwise(times)]
    gaps = [pair for times in by_host(site).values() for pair in pairwise(sorted(times))]
    close = [after for before, after in gaps if after - before < DELAY_S - TOLERANCE_S]
    moments = {round(at / DELAY_S) for at in close}
    print(f"{len(leased)} gaps between leases, the shortest {min(leased):.4f} s")
    print(f"{len(gaps)} gaps between requests, {len(close)} below the delay, at {len(moments)} moments")
    assert len(leased) > 50
    assert len(gaps) > 50
    assert min(leased) >= DELAY_S - CLOCK_S
    assert len(moments) <= len(gaps) / 100
    wall_s = time.time() - time.monotonic()
    unasked = [
        fetch.url
        for fetch in site.log
        if not fetch.url.endswith("/robots.txt")
        and not any(at <= fetch.at + wall_s + CLOCK_S for at in leases.by_url[fetch.url])
    ]
    assert not unasked


@pytest.mark.parametrize("kill", [False, True])
def test_the_delay_of_a_host_holds_for_all_workers(shop: Shop, kill: bool):
    """Also when some are killed while they fetch, and others started; and nearly no time is wasted."""
    watching = Leases(shop.client)
    with Site(5_000, hosts=HOSTS, latency_s=0.02) as site, watching as leases, ExitStack() as working:
        shop.scraper(site.url, scope="any", delay_s=DELAY_S)
        workers = [working.enter_context(shop.working()) for _ in range(WORKERS)]
        until(lambda: len(by_host(site)) == HOSTS)
        time.sleep(1.0)  # until all have read all the robots.txt
        began, before = time.monotonic(), len(site.log)
        if kill:
            for worker in workers[:2]:
                time.sleep(1.0)
                os.kill(worker.pid, signal.SIGKILL)
                worker.communicate()
                workers.append(working.enter_context(shop.working()))
        time.sleep(max(0.0, began + SECONDS - time.monotonic()))
        seconds, requests = time.monotonic() - began, len(site.log) - before
    assert_polite(site, leases)
    possible = seconds / DELAY_S * HOSTS
    print(
        f"{'with kills' if kill else 'undisturbed'}: {requests / possible * 100:.0f} % of the possible rate"
    )
    assert requests >= 0.75 * possible


def test_a_host_that_is_paused_is_left_alone_by_all(shop: Shop):
    """From that moment on, until its time has come; others go on."""
    with (
        Site(2_000, hosts=2, latency_s=0.02) as site,
        ExitStack() as working,
        shop.frontier() as frontier,
    ):
        shop.scraper(site.url, scope="any", per_host=2, obey_robots=False, max_depth=0)
        for _ in range(3):
            working.enter_context(shop.working())
        frontier.add([Link(url) for url in site.urls])  # not before all of them can take part
        until(lambda: shop.stats().done > 50)
        host = f"127.0.0.1:{site.port}"
        frontier.pause_host(host, 2.0)
        paused = time.monotonic()
        time.sleep(2.5)
        times = by_host(site)
    late = [at - paused for at in times[host] if at > paused + 0.1]
    assert min(late) >= 2.0 - TOLERANCE_S
    assert len([at for at in times[f"127.0.0.2:{site.port}"] if at > paused]) > 50


def test_a_server_that_asks_to_be_left_alone_is_obeyed_by_all(shop: Shop):
    """Retry-After, told to one worker, is known to the others at once."""
    asked_at: list[float] = []

    def answer(request: Request) -> Reply:
        if len(server.requests) == 120:
            asked_at.append(time.monotonic())
            return page(b"", "429 Too Many Requests", "Retry-After: 2")
        return page(b"x")

    with ScriptedServer(answer) as server, ExitStack() as working, shop.frontier() as frontier:
        shop.scraper(server.url("/"), per_host=3, obey_robots=False)
        for _ in range(3):
            working.enter_context(shop.working())
        frontier.add([Link(server.url(f"/{n}")) for n in range(1_000)])
        until(lambda: shop.stats().done == 1_001, seconds=30)
    late = [request.at - asked_at[0] for request in server.requests if request.at > asked_at[0] + 0.1]
    assert min(late) >= 2.0 - TOLERANCE_S
    assert len(late) > 800


def test_so_many_at_once_hold_for_all_workers(shop: Shop):
    """per_host counts the fetches of all of them."""
    with Site(60, latency_s=0.1) as site, ExitStack() as working, shop.frontier() as frontier:
        shop.scraper(site.url, per_host=3, max_depth=0)
        for _ in range(3):
            working.enter_context(shop.working())
        frontier.add([Link(url) for url in site.urls])  # not before all of them can take part
        peak = 0
        while shop.stats().done < 60:
            leased = shop.client.hlen(f"shoal:{{{NAME}}}:leases")
            peak = max(peak, int(leased))
    assert peak == 3
    starts = sorted(fetch.at for fetch in site.log if not fetch.url.endswith("robots.txt"))
    assert all(
        later - earlier >= 0.1 - TOLERANCE_S for earlier, later in zip(starts, starts[3:], strict=False)
    )
