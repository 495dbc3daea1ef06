"""Politeness by IP address, as the server's own log shows it."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise

import pytest
from tests.e2e.shell import Shell
from tests.servers import Reply, Request, ScriptedServer, page
from tests.services import RedisServer

DELAY_S = 0.15
TOLERANCE_S = 0.05  # a request may be held up on its way if the machine is busy
NAMES = ("localhost", "127.0.0.1")
PAGES = 12

SCRAPER = """\
    import shoal

    crawl = shoal.Crawl(
        "names", seeds=["{url}"], scope="any", politeness="address", delay_s={delay_s}, obey_robots=False
    )
    """


class Names:
    """Pages that each link to two more, on all names of one server."""

    def __init__(self) -> None:
        self._server = ScriptedServer(self._answer)

    def _answer(self, request: Request) -> Reply:
        number = int(request.target.strip("/") or 0)
        more = [n for n in (2 * number + 1, 2 * number + 2) if n < PAGES]
        links = [f"<a href=http://{name}:{self._server.port}/{n}>x</a>" for name in NAMES for n in more]
        return page("".join(links).encode())

    def __enter__(self) -> ScriptedServer:
        return self._server.__enter__()

    def __exit__(self, *error: object) -> None:
        self._server.__exit__(*error)


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_names_on_one_address_share_one_delay_over_all_workers(
    shoal: Shell, server: RedisServer, kind: str
) -> None:
    """Two workers, two names: no two requests are closer than the delay, and each page is fetched once."""
    with server.client() as client:
        client.flushall()
    place = ("--frontier", server.url) if kind == "redis" else ("--state", "names.shoal")
    with Names() as site:
        shoal.write("names.py", SCRAPER.format(url=f"http://localhost:{site.port}/0", delay_s=DELAY_S))
        options = ("worker", "names.py", *place, "-o", "rows.jsonl", "--drain")
        workers = [shoal.start(*options) for _ in range(2)]
        for worker in workers:
            _, err = worker.communicate()
            assert worker.returncode == 0, err
        times = sorted(request.at for request in site.requests)
        asked = Counter((request.headers["host"], request.target) for request in site.requests)
        assert len(asked) == len(NAMES) * (PAGES - 1) + 1
        assert set(asked.values()) == {1}
        assert len({request.connection for request in site.requests}) > 1
    gaps = [after - before for before, after in pairwise(times)]
    close = [gap for gap in gaps if gap < DELAY_S - TOLERANCE_S]
    assert (
        len(close) <= len(gaps) / 5
    )  # a request may be held up on its way; names apart would halve the gaps
    [host] = shoal("hosts", "--json", *place, "--crawl", "names").objects
    assert host["host"] == "127.0.0.1"
    assert host["done"] == len(asked)


def test_a_whole_address_may_be_paused(shoal: Shell) -> None:
    """A Retry-After of one name is one of its address; `shoal why` says what its host is."""
    asked: list[float] = []

    def answer(request: Request) -> Reply:
        asked.append(time.monotonic())
        if len(asked) == 1:
            return page(b"", "429 Too Many Requests", "Retry-After: 1")
        return page(b"")

    with ScriptedServer(answer) as site:
        urls = [f"http://{name}:{site.port}/" for name in NAMES]
        shoal("crawl", *urls, "--politeness", "address", "--ignore-robots", "--scope", "any")
        assert len(asked) == 3
        assert asked[1] - asked[0] >= 1.0 - TOLERANCE_S
        [found] = shoal("why", urls[0], "--json").objects
        assert found["host"] == "127.0.0.1"


def test_it_cannot_be_had_through_a_proxy(shoal: Shell) -> None:
    """The proxy looks names up, and tells nobody."""
    refused = shoal.refused(
        "crawl", "http://127.0.0.1:9/", "--politeness", "address", "--proxy", "http://127.0.0.1:9/"
    )
    assert refused.startswith("politeness by address cannot be had through a proxy")
