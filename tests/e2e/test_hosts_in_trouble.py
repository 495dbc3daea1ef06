"""Hosts that limit, stall, refuse or fail: they are spared, and others do not suffer from them."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise

import pytest
from tests.e2e.redis_shop import Shop
from tests.e2e.shell import PATIENCE_S, Shell
from tests.servers import RESET, Reply, Request, ScriptedServer, Step, page, reply
from tests.services import RedisServer
from tests.site import Site
from tests.troubled import NUISANCES, Limiter, assert_little_lost
from tests.waiting import until

SCRAPER = """\
    import shoal

    crawl = shoal.Crawl("shop", seeds={seeds!r}, {settings})

    @crawl.page()
    def page(page):
        yield {{"url": page.url}}
        yield from page.links()
    """


def _scraper(shoal: Shell, seeds: list[str], file: str = "shop.py", **settings: object) -> None:
    given = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    shoal.write(file, SCRAPER.format(seeds=seeds, settings=given))


@contextmanager
def _closed_port() -> Iterator[str]:
    """The base URL of a host that refuses all connections."""
    with closing(socket.socket()) as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/"


# --- down -------------------------------------------------------------------------------------


def test_a_host_that_is_down_is_given_up(shoal: Shell) -> None:
    """All its pages become dead letters after a few tries, not after a few tries each; others are crawled."""
    with _closed_port() as down, Site(30) as site:
        seeds = [site.url, *(f"{down}{number}" for number in range(300))]
        _scraper(shoal, seeds, host_pause_s=0.05, host_give_up=5, retries=20, retry_delay_s=0.01)
        shoal("run", "shop.py")
        assert set(site.fetches()) == set(site.urls)
    letters = shoal("dead", "--json").objects
    assert {letter["reason"] for letter in letters} == {"host down"}
    assert len(letters) == 300
    assert sum(letter["attempts"] for letter in letters) < 30
    [host] = [each for each in shoal("hosts", "--json").objects if each["given_up"]]
    assert down == f"http://{host['host']}/"
    assert "given up until" in shoal("hosts").out


def test_a_host_that_comes_back_is_crawled_to_its_end(shoal: Shell) -> None:
    """While it is down one page at a time is tried, later and later; nothing is lost."""
    down_s = 3.0  # from the first request on
    links = page(b"".join(b'<a href="/%d">x</a>' % number for number in range(20)))

    def answer(request: Request) -> Reply:
        first_at = server.requests[0].at if server.requests else request.at
        return page(b"", "502 Bad Gateway") if request.at < first_at + down_s else links

    with ScriptedServer(answer) as server:
        seeds = [server.url(f"/{number}") for number in range(20)]
        _scraper(shoal, seeds, obey_robots=False, host_pause_s=0.1, host_give_up=20, retries=50)
        shoal("run", "shop.py")
        early = [request.at for request in server.requests if request.at < server.requests[0].at + down_s]
        assert {request.target for request in server.requests} == {f"/{number}" for number in range(20)}
    assert shoal("dead").out == ""
    assert len(early) < 20
    assert max(later - earlier for earlier, later in pairwise(early)) >= 0.4


@pytest.mark.parametrize("bad", [b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello", RESET])
def test_bad_pages_do_not_cost_the_good_ones_of_their_host(shoal: Shell, bad: Step) -> None:
    """However often they fail in a row: the host is there."""
    paths = [f"/{number}" for number in range(12)]
    links = page("".join(f'<a href="{path}">x</a>' for path in paths).encode())
    replies = {"/": links} | {path: reply(bad) for path in paths[:3]} | dict.fromkeys(paths[3:], links)
    with ScriptedServer(replies) as server:
        settings = {"per_host": 1, "host_pause_s": 0.1, "host_give_up": 4, "retry_delay_s": 0.01}
        _scraper(shoal, [server.url("/")], obey_robots=False, **settings)
        shoal("run", "shop.py")
        assert {row["url"] for row in shoal.rows()} == {server.url(path) for path in ["/", *paths[3:]]}
    assert len(shoal("dead", "--json").objects) == 3


def test_robots_txt_that_cannot_be_had_counts_for_the_host(shoal: Shell) -> None:
    """It is not asked for once more for each of its pages."""
    with ScriptedServer({"/robots.txt": page(b"", "503 Service Unavailable")}) as server:
        seeds = [server.url(f"/{number}") for number in range(100)]
        _scraper(shoal, seeds, host_pause_s=0.05, host_give_up=4)
        shoal("run", "shop.py", code=1)
        assert server.count("/robots.txt") < 10
    assert {letter["reason"] for letter in shoal("dead", "--json").objects} == {"host down"}


def test_refusals_without_a_time_are_the_hosts(shoal: Shell) -> None:
    """429 for five pages in turn, each once: the pauses between them grow all the same."""
    refused: set[str] = set()

    def answer(request: Request) -> Reply:
        if request.target not in refused and len(refused) < 5:
            refused.add(request.target)
            return page(b"", "429 Too Many Requests")
        return page(b"")

    with ScriptedServer(answer) as server:
        seeds = [server.url(f"/{number}") for number in range(5)]
        _scraper(shoal, seeds, obey_robots=False, host_pause_s=0.1, retry_delay_s=60.0, retries=1)
        process = shoal.start("run", "shop.py")
        until(lambda: len(server.requests) >= 5)
        process.kill()
        process.communicate()
        gaps = [later.at - earlier.at for earlier, later in pairwise(server.requests[:5])]
    assert [gap >= pause_s - 0.01 for gap, pause_s in zip(gaps, (0.1, 0.2, 0.4, 0.8), strict=True)] == [
        True
    ] * 4


def test_retries_can_be_set_for_each_cause(shoal: Shell) -> None:
    """By status, class of status or name, on the command line and in a scraper."""
    statuses = {"/503": "503 Oops", "/500": "500 Oops", "/404": "404 Not Found", "/410": "410 Gone"}
    with ScriptedServer({target: page(b"", status) for target, status in statuses.items()}) as server:
        seeds = [server.url(target) for target in statuses]
        options = ["--retry", "503=1", "--retry", "5xx=2", "--retry", "404=1", "--ignore-robots"]
        _scraper(shoal, seeds, retry_delay_s=0.01, retries_by={"410": 5})
        shoal("run", "shop.py", *options, code=1)
        assert [server.count(target) for target in statuses] == [2, 3, 2, 1]
        _scraper(shoal, seeds, retry_delay_s=0.01, retries_by={"5xx": 0, "410": 1}, obey_robots=False)
        shoal("run", "shop.py", "--fresh", code=1)
        assert [server.count(target) for target in statuses] == [2 + 1, 3 + 1, 2 + 1, 1 + 2]


def test_what_a_host_is_cannot_be_changed_on_the_way(shoal: Shell, site: Site) -> None:
    """The queue is kept by host."""
    shoal("crawl", site.url, "--max-pages", "3", "--politeness", "domain")
    assert "politeness" in shoal.refused("crawl", site.url)
    shoal("crawl", site.url, "--politeness", "domain")
    [host] = shoal("hosts", "--json").objects
    assert host["host"] == "127.0.0.1"


# --- rate limits ------------------------------------------------------------------------------


@pytest.mark.faults
def test_a_rate_limit_is_kept_to_by_four_processes(shoal: Shell) -> None:
    """After warming up fewer than 3 % of requests are refused, and 85 % of the allowed ones are made."""
    limiter = Limiter()
    with ScriptedServer(limiter) as server:
        process = shoal.start("crawl", server.url(), "--processes", "4", "--ignore-robots")
        time.sleep(Limiter.LASTS_S)
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    limiter.assert_well_used()


@pytest.mark.faults
def test_a_rate_limit_is_kept_to_by_four_workers_on_redis(shoal: Shell) -> None:
    """The same, with what they know of the host on Redis."""
    limiter = Limiter()
    with (
        RedisServer() as redis,
        redis.client() as client,
        ScriptedServer(limiter) as server,
        ExitStack() as working,
    ):
        shop = Shop(shoal, redis.url, client)
        shop.scraper(server.url(), obey_robots=False)
        for _ in range(4):
            working.enter_context(shop.working())
        time.sleep(Limiter.LASTS_S)
    limiter.assert_well_used()


# --- one among a hundred ----------------------------------------------------------------------

HEALTHY = 99
PAGES = 10  # of each healthy host
LATENCY_S = 0.8  # so long that the fetches at once are what limits the rate


def _start(shoal: Shell, site: Site, name: str, others: list[str]) -> subprocess.Popen[str]:
    seeds = shoal.write(f"{name}.txt", "\n".join([*site.urls, *others]))
    scraper, state = f"{name}.py", ("--state", f"{name}.shoal")
    _scraper(shoal, [site.url], scraper, scope="any", obey_robots=False)
    shoal("run", scraper, *state, "--max-pages", "1")
    shoal("add", "--from", seeds, *state)
    return shoal.start("run", scraper, *state)


@pytest.mark.faults
@pytest.mark.parametrize("nuisance", NUISANCES)
def test_one_bad_host_does_not_slow_down_the_others(shoal: Shell, nuisance: str) -> None:
    """Two crawls at the same time, one with a bad host among a hundred: the others lose less than 5 %."""
    pages = HEALTHY * PAGES
    with (
        Site(pages, hosts=HEALTHY, latency_s=LATENCY_S) as alone,
        Site(pages, hosts=HEALTHY, latency_s=LATENCY_S) as beside,
        ScriptedServer(NUISANCES[nuisance], host="127.0.0.100") as bad,
    ):
        processes = [
            _start(shoal, alone, "alone", []),
            _start(shoal, beside, "beside", [bad.url(f"/{number}") for number in range(2_000)]),
        ]
        until(lambda: min(len(site.fetches()) for site in (alone, beside)) == pages)
        for process in processes:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)
    assert_little_lost(nuisance, alone, beside)
