"""Manners, as the server's own log shows them: robots.txt, delays, and hosts that ask to be left alone."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from tests.e2e.shell import PATIENCE_S, Shell
from tests.servers import Reply, Request, ScriptedServer, page
from tests.site import Site

TOLERANCE_S = 0.05  # a request may be held up on its way if the machine is busy


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def _assert_apart(times: list[float], seconds: float) -> None:
    assert len(times) > 2
    assert min(_gaps(times)) >= seconds - TOLERANCE_S


def _links(*targets: str) -> Reply:
    return page("".join(f'<a href="{target}">x</a>' for target in targets).encode())


# --- robots.txt -----------------------------------------------------------------------------


def test_robots_txt_is_read_first_and_obeyed(shoal: Shell) -> None:
    """Closed pages are skipped, by name; the file is asked for once."""
    with Site(10, extras=["/private/a", "/private/b"]) as site:
        shoal("crawl", site.url)
        assert [fetch.url for fetch in site.log if fetch.url.endswith("robots.txt")] == [
            site.url + "robots.txt"
        ]
        assert site.log[0].url == site.url + "robots.txt"
        assert not [url for url in site.fetches() if "/private/" in url]
        assert [letter["reason"] for letter in shoal("skipped", "--json").objects] == ["robots.txt"] * 2


def test_robots_txt_may_be_ignored(shoal: Shell) -> None:
    """With --ignore-robots it is not even asked for."""
    with Site(3, extras=["/private/a"]) as site:
        shoal("crawl", site.url, "--ignore-robots")
        assert {fetch.url for fetch in site.log} == {*site.urls, site.url + "private/a"}


@pytest.mark.parametrize(
    ("agent", "closed"), [("shoal", "/all"), ("books", "/books"), ("Books/2.0 (x)", "/books")]
)
def test_the_rules_are_those_for_the_user_agent(shoal: Shell, agent: str, closed: str) -> None:
    """Its first word is looked up."""
    robots = b"User-agent: books\nDisallow: /books\n\nUser-agent: *\nDisallow: /all\n"
    with ScriptedServer(
        {"/robots.txt": page(robots, "200 OK", "Content-Type: text/plain"), "/": _links("/all", "/books")}
    ) as server:
        shoal("crawl", server.url(), "--user-agent", agent)
        assert [letter["url"] for letter in shoal("skipped", "--json").objects] == [server.url(closed)]


ROBOTS_ANSWERS = {
    "404": (page(b"", "404 Not Found"), "done"),
    "403": (page(b"", "403 Forbidden"), "done"),
    "an HTML page": (page(b"<title>Welcome</title>"), "done"),
    "500": (page(b"", "500 Oops"), "dead: robots.txt unreachable"),
    "a redirect": (page(b"", "302 Found", "Location: /rules"), "skipped: robots.txt"),
    "a redirect loop": (page(b"", "302 Found", "Location: /robots.txt"), "done"),
}


@pytest.mark.parametrize("answer", ROBOTS_ANSWERS)
def test_what_the_answer_for_robots_txt_means(shoal: Shell, answer: str) -> None:
    """RFC 9309, section 2.3.1: unavailable allows all, unreachable nothing, redirects are followed."""
    reply, expected = ROBOTS_ANSWERS[answer]
    rules = page(b"User-agent: *\nDisallow: /\n", "200 OK", "Content-Type: text/plain")
    with ScriptedServer({"/robots.txt": reply, "/rules": rules, "/": page(b"")}) as server:
        shoal("crawl", server.url(), "--retries", "0", code=0 if expected == "done" else 1)
        [record] = shoal("why", server.url(), "--json").objects
    assert ": ".join(filter(None, [record["state"], record["reason"]])) == expected
    assert server.count("/") == (expected == "done")


def test_a_page_waits_until_robots_txt_can_be_read(shoal: Shell) -> None:
    """429 with Retry-After first, then rules: no page before them, and what they close is never fetched."""
    answers = iter(
        [
            page(b"", "429 Too Many Requests", "Retry-After: 1"),
            page(b"User-agent: *\nDisallow: /x\n", "200 OK", "Content-Type: text/plain"),
        ]
    )
    with ScriptedServer(
        {"/robots.txt": lambda request: next(answers), "/": _links("/x", "/y"), "/y": page(b"")}
    ) as server:
        shoal("crawl", server.url())
        assert [request.target for request in server.requests] == ["/robots.txt", "/robots.txt", "/", "/y"]
        assert server.requests[1].at - server.requests[0].at >= 1 - TOLERANCE_S


# --- delays ---------------------------------------------------------------------------------


def test_delay_keeps_fetches_of_a_host_apart_across_restarts(shoal: Shell) -> None:
    """--delay S from start to start, robots.txt included, by one process or two, and over a restart."""
    with Site(9, latency_s=0.02) as site:
        shoal("crawl", site.url, "--delay", "0.25", "--max-pages", "3")
        shoal("crawl", site.url, "--delay", "0.25", "--max-pages", "6", "--processes", "2")
        shoal("crawl", site.url, "--delay", "0.25")
        _assert_apart([fetch.at for fetch in site.log if not fetch.url.endswith("/robots.txt")], 0.25)
        assert site.fetches().total() == 9


def test_the_first_page_keeps_its_distance_from_robots_txt(shoal: Shell) -> None:
    """That file is a fetch as well."""
    with Site(3) as site:
        shoal("crawl", site.url, "--delay", "0.3")
        _assert_apart([fetch.at for fetch in site.log], 0.3)


def test_hosts_do_not_wait_for_each_other(shoal: Shell) -> None:
    """The delay is each host's own: three hosts take no longer than one."""
    with Site(15, hosts=3) as site:
        shoal("crawl", site.url, "--scope", "any", "--delay", "0.25")
        starts = [fetch.at for fetch in site.log if not fetch.url.endswith("/robots.txt")]
        for number in (1, 2, 3):
            host = f"http://127.0.0.{number}:"
            _assert_apart([fetch.at for fetch in site.log if fetch.url.startswith(host)], 0.25)
        assert max(starts) - min(starts) < 14 * 0.25 * 2 / 3


def test_crawl_delay_of_robots_txt_is_honoured(shoal: Shell) -> None:
    """As if it had been given as --delay, from the first page on; a smaller --delay does not lower it."""
    with Site(5, robots="User-agent: *\nCrawl-delay: 0.3\n") as site:
        shoal("crawl", site.url, "--delay", "0.1", "--max-pages", "3")
        shoal("crawl", site.url, "--delay", "0.1")
        _assert_apart([fetch.at for fetch in site.log if not fetch.url.endswith("/robots.txt")], 0.3)
        assert site.log[1].at - site.log[0].at >= 0.3 - TOLERANCE_S


def test_a_larger_delay_than_crawl_delay_counts(shoal: Shell) -> None:
    """robots.txt can only raise it."""
    with Site(4, robots="User-agent: *\nCrawl-delay: 0.05\n") as site:
        shoal("crawl", site.url, "--delay", "0.3")
        _assert_apart([fetch.at for fetch in site.log], 0.3)


# --- Retry-After ----------------------------------------------------------------------------


def _busy_once(
    target: str, header: str = "Retry-After: 1", robots: str = ""
) -> tuple[ScriptedServer, list[str]]:
    """A site whose page `target` answers 429 once, and the targets of its pages."""
    pages = [f"/{number}" for number in range(8)]

    def answer(request: Request) -> Reply:
        if request.target == "/robots.txt":
            return page(robots.encode(), "200 OK", "Content-Type: text/plain")
        if request.target == target and server.count(target) == 1:
            return page(b"", "429 Too Many Requests", header)
        return _links(*pages)

    server = ScriptedServer(answer)
    return server, pages


def test_a_host_that_asks_for_it_is_left_alone_by_all_processes(shoal: Shell) -> None:
    """429 with Retry-After: nothing is asked of that host meanwhile; another host goes on."""
    server, pages = _busy_once("/")
    with server, Site(20, latency_s=0.02) as site:
        shoal("crawl", server.url(), site.url, "--processes", "2", "--scope", "any")
        first, second, *_ = [request.at for request in server.requests if request.target != "/robots.txt"]
        assert second - first >= 1 - TOLERANCE_S
        assert {request.target for request in server.requests} == {"/robots.txt", "/", *pages}
        assert server.count("/") == 2
        times = [fetch.at for fetch in site.log]
        assert times[0] < second
        assert max(_gaps(times)) < 0.9
        assert shoal("dead").out == ""


def test_a_pause_of_a_host_survives_a_kill(shoal: Shell) -> None:
    """429 with Retry-After, then kill -9: the host is still left alone after the restart."""
    server, _ = _busy_once("/", "Retry-After: 2")
    with server:
        process = shoal.start("crawl", server.url(), "--state", "a.shoal")
        deadline = time.monotonic() + PATIENCE_S
        while not (server.count("/") and shoal.status()["retrying"]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
        process.communicate()
        shoal("crawl", server.url(), "--state", "a.shoal")
        first, second, *_ = [request.at for request in server.requests if request.target == "/"]
        between = [request for request in server.requests if first < request.at < first + 2 - TOLERANCE_S]
        assert second - first >= 2 - TOLERANCE_S
        assert between == []


def test_the_longer_of_two_pauses_counts(shoal: Shell) -> None:
    """Retry-After: 1 together with Crawl-delay: 1.5."""
    server, _ = _busy_once("/", "Retry-After: 1", robots="User-agent: *\nCrawl-delay: 1.5\n")
    with server:
        shoal("crawl", server.url(), "--max-pages", "1")
        first, second = [request.at for request in server.requests if request.target == "/"]
        assert second - first >= 1.5 - TOLERANCE_S


def test_a_host_that_is_always_busy_is_given_up(shoal: Shell) -> None:
    """Every answer is 429: after so many tries the page is a dead letter, and the crawl ends."""
    busy = page(b"", "429 Too Many Requests", "Retry-After: 1")
    with ScriptedServer({"/": busy}) as server:
        shoal("crawl", server.url(), "--retries", "1", code=1)
        assert server.count("/") == 2
        assert shoal("dead").out == f"HTTP 429 after 2 attempts: {server.url()}\n"
