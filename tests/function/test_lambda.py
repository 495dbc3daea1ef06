"""A handler under AWS Lambda's own runtime client."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.function.conftest import CRAWL, Lambda, Table, assert_all_once, assert_clean, drain, large_site
from tests.services import PostgresServer, RedisServer
from tests.site import Site

from shoal.frontier import open_frontier

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "aws_lambda"
CODE = f"""{CRAWL}
work = shoal.function.handler(crawl, frontier=os.environ["FRONTIER"], store=os.environ["STORE"])
add = shoal.function.handler(crawl, frontier=os.environ["FRONTIER"], store=os.environ["STORE"], limit_s=0)
"""

pytest.importorskip("awslambdaric")  # which is made for Linux
pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def new_lambda(tmp_path: Path, frontier: str) -> Iterator[Callable[..., Lambda]]:
    """Makes functions of the code above; rows go to rows.jsonl."""
    (tmp_path / "app.py").write_text(CODE)
    made: list[Lambda] = []

    def new(site: Site, handler: str = "app.work", *, timeout_s: float = 10.0, **more: str) -> Lambda:
        environment = {"SEEDS": site.url, "FRONTIER": frontier, "STORE": "rows.jsonl"} | more
        made.append(Lambda(tmp_path, handler, timeout_s=timeout_s, environment=environment))
        return made[-1]

    yield new
    for each in made:
        each.close()
        print(each.said())


def ids(folder: Path) -> Counter[str]:
    """Of all rows."""
    return Counter(json.loads(line)["id"] for line in (folder / "rows.jsonl").read_text().splitlines())


def truth(site: Site) -> Counter[str]:
    """What they must be."""
    return Counter(row["id"] for row in site.rows().values())


def stats(frontier: str, crawl: str = "site") -> Any:
    """The counters of a crawl."""
    with open_frontier(frontier, crawl=crawl) as opened:
        return opened.stats()


def test_slices_finish_a_crawl(new_lambda: Any, tmp_path: Path) -> None:
    """Each in its time, one after the other in the same process; they say how it stands, and then the end."""
    with Site(200, latency_s=0.05) as site:
        function = new_lambda(site, timeout_s=2.5)
        reports = [function.invoke({}).report]
        while not reports[-1]["finished"]:
            reports.append(function.invoke({}).report)
            assert len(reports) < 20
        assert len(reports) > 1
        assert len(function.pids) == 1
        assert all(each["queued"] + each["leased"] > 0 and each["start"] >= 1 for each in reports[:-1])
        assert sum(each["done"] for each in reports) == site.pages
        assert (reports[-1]["queued"], reports[-1]["start"]) == (0, 0)
        assert site.fetches() == Counter(site.urls)
        assert ids(tmp_path) == truth(site)


def test_a_warm_process_uses_its_connections_again(
    new_lambda: Any, redis_server: RedisServer, table: Table
) -> None:
    """To the frontier, the store and the sites."""

    def connections() -> tuple[int, int]:
        with redis_server.client() as client, table.server.connect() as db:
            (sessions,) = db.execute(
                "SELECT sessions FROM pg_stat_database WHERE datname = 'postgres'"
            ).fetchone()
            return client.info("stats")["total_connections_received"], sessions

    with Site(40) as site:
        function = new_lambda(site, STORE=table.url)
        assert function.invoke({}).report["finished"]
        time.sleep(1.5)  # PostgreSQL counts a little late
        before, ports = connections(), {fetch.port for fetch in site.log}
        for number in range(1, 6):
            url = site.page_url(0) + f"p/{number}?again"
            assert function.invoke({"urls": [url]}).report["done"] == 1
        time.sleep(1.5)
        after = connections()
        assert {fetch.port for fetch in site.log} == ports
        assert [late - early for early, late in zip(before, after, strict=True)] == [1, 1]  # ours, to look


def test_the_same_event_again_does_no_harm(new_lambda: Any, tmp_path: Path) -> None:
    """Its URLs are known then, and their pages are not fetched again."""
    with Site(30) as site:
        function = new_lambda(site)
        event = {"urls": [{"url": f"{site.url}p/1?x", "priority": 3, "meta": {"a": 1}}, f"{site.url}p/1"]}
        first, second = function.invoke(event).report, function.invoke(event).report
        assert (first["added"], first["known"], first["finished"]) == (2, 0, True)
        assert (second["added"], second["known"], second["finished"]) == (0, 2, True)
        assert site.fetches() == Counter([*site.urls, f"{site.url}p/1?x"])


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({"url": "books.example"}, "not an http(s) URL: 'books.example'"),
        ({"urls": ["http://a.example/"], "priority": 12}, "`int` <= 9"),
        ({"key1": "value1"}, "unknown field `key1`"),
    ],
)
def test_a_bad_event_is_an_error_and_costs_nothing(
    new_lambda: Any, frontier: str, event: object, says: str
) -> None:
    """Its caller reads what is wrong with it; nothing of it was added, and the process works on."""
    with Site(1) as site:
        function = new_lambda(site)
        answer = function.invoke(event)
        assert answer.kind == "error"
        assert answer.content["errorType"] == "BadEvent"
        assert says in answer.content["errorMessage"]
        assert function.invoke({}).report["finished"]
        assert len(function.pids) == 1
        assert stats(frontier).seen == site.pages


def test_of_a_batch_from_sqs_only_bad_messages_fail(new_lambda: Any, frontier: str) -> None:
    """By their ids, as ReportBatchItemFailures wants it; the others are added."""

    def message(number: int, body: str) -> dict[str, str]:
        return {"eventSource": "aws:sqs", "messageId": f"m{number}", "body": body}

    with Site(1) as site:
        function = new_lambda(site)
        bodies = [f"{site.url}a", "nonsense", json.dumps({"urls": [f"{site.url}b"]}), '{"urls": 1}']
        answer = function.invoke({"Records": [message(*each) for each in enumerate(bodies)]}).report
        assert answer["batchItemFailures"] == [{"itemIdentifier": "m1"}, {"itemIdentifier": "m3"}]
        assert answer["added"] == 2
        assert "nonsense" in function.said()
        assert stats(frontier).seen == site.pages + 2


def test_without_time_urls_are_added_and_none_fetched(new_lambda: Any, frontier: str) -> None:
    """For a function that only feeds a crawl."""
    with Site(1) as site:
        report = new_lambda(site, "app.add").invoke({"urls": [f"{site.url}a"]}).report
        assert (report["added"], report["done"], report["queued"], report["start"]) == (1, 0, 2, 1)
        assert not site.log


def test_a_page_that_takes_longer_than_a_slice_ends_the_crawl_nevertheless(
    new_lambda: Any, frontier: str
) -> None:
    """It times out, instead of being given back for ever."""
    with Site(1, extras=["/slow/30"]) as site:
        function = new_lambda(site, timeout_s=4.0)
        for _ in range(12):
            if function.invoke({}).report["retried"]:
                return
        pytest.fail("it was given back each time")


def test_a_frontier_that_cannot_be_reached_fails_the_invocation(new_lambda: Any) -> None:
    """So that whoever invoked it tries again; it says where it should be."""
    with Site(1) as site:
        answer = new_lambda(site, FRONTIER="redis://127.0.0.1:1/0").invoke({"urls": [site.url]})
        assert answer.kind == "error"
        assert answer.content["errorType"] == "FrontierUnavailable"
        assert "127.0.0.1:1" in answer.content["errorMessage"]


def test_connections_that_broke_while_the_process_was_frozen_are_made_anew(new_lambda: Any) -> None:
    """The next invocation works as if nothing had happened. The servers are for this test alone."""
    with Site(5) as site, RedisServer() as redis_server, PostgresServer() as postgres:
        function = new_lambda(site, FRONTIER=redis_server.url, STORE=Table(postgres, "rows").url)
        assert function.invoke({}).report["finished"]
        with redis_server.client() as client, postgres.connect() as db:
            client.client_kill_filter(_type="normal", skipme=True)
            db.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
        report = function.invoke({"urls": [f"{site.url}p/1?new"]}).report
        assert (report["added"], report["done"], report["finished"]) == (1, 1, True)
        assert len(function.pids) == 1


def test_invocations_at_once_that_are_killed_lose_nothing(
    new_lambda: Any, frontier: str, tmp_path: Path
) -> None:
    """Five at once, the first of them killed: what it held is fetched by the next ones."""
    with Site(150, hosts=4, latency_s=0.3) as site:
        function = new_lambda(site, timeout_s=3.0)
        answers = _drain(function, at_once=5, kill_s=0.8)
        assert any(each.kind == "killed" for each in answers)
        assert_all_once(site, frontier, tmp_path / "rows.jsonl")


def _drain(function: Lambda, *, at_once: int, kill_s: float) -> list[Any]:
    return drain(
        lambda kill_after_s: function.invoke({}, kill_after_s=kill_after_s),
        lambda answer: answer.kind == "response" and answer.content["finished"],
        at_once=at_once,
        kill_s=kill_s,
    )


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_twenty_at_once_drain_a_large_site(tmp_path: Path, frontier: str, table: Table) -> None:
    """The example, five seconds each, every fifth killed: the rows are all of the site's, each once."""
    (tmp_path / "scraper.py").write_bytes((EXAMPLE / "scraper.py").read_bytes())
    with large_site(tmp_path) as site:
        environment = {
            "FRONTIER": frontier,
            "STORE": table.url,
            "SEEDS": site.url,
            "SITES": "http://127.0.0.*",
        }
        function = Lambda(tmp_path, "scraper.work", timeout_s=5.0, environment=environment)
        try:
            answers = _drain(function, at_once=20, kill_s=1.5)
        finally:
            function.close()
            print(function.said())
        print(Counter(each.kind for each in answers), len(function.pids), "processes")
        assert any(each.kind == "killed" for each in answers)
        assert_clean(site.check(table.rows()), site.pages)
