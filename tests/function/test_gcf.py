"""An HTTP function under Google Cloud's own functions-framework."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.function.conftest import (
    CRAWL,
    Cloud,
    Framework,
    Table,
    assert_all_once,
    assert_clean,
    drain,
    large_site,
)
from tests.site import Site

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "google_cloud"
CODE = f"""{CRAWL}
work = shoal.function.gcf(crawl, frontier=os.environ["FRONTIER"], store=os.environ["STORE"])
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def new_function(tmp_path: Path, frontier: str) -> Iterator[Callable[..., Any]]:
    """Makes an instance of the function above, or a cloud with as many as are needed."""
    (tmp_path / "main.py").write_text(CODE)
    made: list[Any] = []

    def new(site: Site, kind: Any = Framework, *, limit_s: float = 10, **more: str) -> Any:
        signature = {"signature": more.pop("signature")} if "signature" in more else {}
        environment = {"SEEDS": site.url, "FRONTIER": frontier, "STORE": "rows.jsonl"} | more
        environment["CLOUD_RUN_TIMEOUT_SECONDS"] = str(limit_s)
        made.append(kind(tmp_path, "work", environment=environment, **signature))
        return made[-1]

    yield new
    for each in made:
        each.close()
        print(each.said())


def test_slices_finish_a_crawl(new_function: Any, frontier: str, tmp_path: Path) -> None:
    """Each in its time, one after the other in the same process, and it ends in good order."""
    with Site(200, latency_s=0.1) as site:
        function = new_function(site, limit_s=3)
        reports = [function.post()]
        while not reports[-1][1]["finished"]:
            reports.append(function.post())
            assert len(reports) < 20
        assert len(reports) > 1
        assert {status for status, _ in reports} == {200}
        assert sum(report["done"] for _, report in reports) == site.pages
        assert site.fetches() == Counter(site.urls)
        assert_all_once(site, frontier, tmp_path / "rows.jsonl")
        assert function.stop() == 0
        assert "Traceback" not in function.said()


URLS = b'{"urls": ["%s"], "priority": 9}'


def encoded(url: str) -> str:
    """As Pub/Sub carries it."""
    return base64.b64encode(URLS % url.encode()).decode()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (lambda url: URLS % url.encode(), {}),
        (lambda url: url.encode(), {"Content-Type": "text/plain"}),
        (
            lambda url: json.dumps(
                {"message": {"data": encoded(url), "messageId": "1"}, "subscription": "s"}
            ),
            {},
        ),
        (
            lambda url: json.dumps({"message": {"data": encoded(url)}, "subscription": "s"}),
            {
                "ce-specversion": "1.0",
                "ce-type": "google.cloud.pubsub",
                "ce-id": "1",
                "ce-source": "//pubsub",
            },
        ),
        (
            lambda url: json.dumps(
                {"specversion": "1.0", "type": "t", "id": "1", "source": "s"}
                | {"data": {"message": {"data": encoded(url)}}}
            ),
            {"Content-Type": "application/cloudevents+json"},
        ),
    ],
    ids=["plain", "text", "push", "binary CloudEvent", "structured CloudEvent"],
)
def test_requests_bring_urls(new_function: Any, body: Any, headers: dict[str, str]) -> None:
    """Plainly, pushed by Pub/Sub, or in a CloudEvent; the same request again does no harm."""
    with Site(3) as site:
        function = new_function(site)
        content = body(f"{site.url}p/1?more")
        request = content if isinstance(content, bytes) else content.encode()
        added, known = function.post(request, headers), function.post(request, headers)
        assert (added[0], added[1]["added"], added[1]["finished"]) == (200, 1, True)
        assert (known[0], known[1]["added"], known[1]["known"]) == (200, 0, 1)
        assert site.fetches()[f"{site.url}p/1?more"] == 1


def test_it_can_be_deployed_for_events(new_function: Any) -> None:
    """With the other signature, by which a function is called with a CloudEvent and answers nothing."""
    with Site(3) as site:
        function = new_function(site, signature="cloudevent")
        event = {"specversion": "1.0", "type": "t", "id": "1", "source": "s"}
        for url, status in ((f"{site.url}p/1?more", 200), ("nonsense", 500)):
            body = json.dumps(event | {"data": {"message": {"data": encoded(url)}}})
            headers = {"Content-Type": "application/cloudevents+json"}
            assert function.post(body.encode(), headers)[0] == status
        assert site.fetches()[f"{site.url}p/1?more"] == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"urls": "http://a.example/"}', "Expected `array`, got `str` - at `$.urls`"),
        (b'{"message": {"data": "%%%"}}', "data is not base64: '%%%'"),
        (b"ftp://a.example/", "not an http(s) URL: 'ftp://a.example/'"),
        (b'{"urls": [', "the event is not JSON"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_bad_request_is_answered_with_400(new_function: Any, frontier: str, body: bytes, says: str) -> None:
    """And with what is wrong with it; the next one is served."""
    with Site(1) as site:
        function = new_function(site)
        status, answer = function.post(body)
        assert status == 400
        assert says in answer["error"]
        assert function.post()[0] == 200


def test_a_frontier_that_cannot_be_reached_is_answered_with_503(new_function: Any) -> None:
    """So that whoever called tries again."""
    with Site(1) as site:
        status, answer = new_function(site, FRONTIER="redis://127.0.0.1:1/0").post()
        assert status == 503
        assert "127.0.0.1:1" in answer["error"]


def test_invocations_at_once_that_are_killed_lose_nothing(
    new_function: Any, frontier: str, tmp_path: Path
) -> None:
    """Five instances, the first of them killed: what it held is fetched by the next ones."""
    with Site(150, hosts=4, latency_s=0.3) as site:
        answers = _drain(new_function(site, Cloud, limit_s=3), at_once=5, kill_s=0.8)
        assert any(status == 0 for status, _ in answers)
        assert_all_once(site, frontier, tmp_path / "rows.jsonl")


def test_one_instance_serves_several_requests_at_once(
    new_function: Any, frontier: str, tmp_path: Path
) -> None:
    """Each in a thread of its own."""
    with Site(300, hosts=4, latency_s=0.1) as site:
        function = new_function(site, limit_s=3, THREADS="4")
        answers = drain(
            lambda _: function.post(), lambda answer: bool(answer[1]["finished"]), at_once=4, kill_s=1.0
        )
        assert {status for status, _ in answers} == {200}
        assert sum(report["done"] for _, report in answers) == site.pages
        assert_all_once(site, frontier, tmp_path / "rows.jsonl")


def _drain(function: Cloud, *, at_once: int, kill_s: float) -> list[Any]:
    return drain(
        lambda kill_after_s: function.invoke({}, kill_after_s=kill_after_s),
        lambda answer: answer[0] == 200 and answer[1]["finished"],
        at_once=at_once,
        kill_s=kill_s,
    )


@pytest.mark.faults
@pytest.mark.timeout(400)
def test_twenty_at_once_drain_a_large_site(tmp_path: Path, frontier: str, table: Table) -> None:
    """The example, five seconds each, every fifth killed: the rows are all of the site's, each once."""
    (tmp_path / "main.py").write_text((EXAMPLE / "main.py").read_text().replace("limit_s=60", "limit_s=5"))
    with large_site(tmp_path) as site:
        environment = {
            "FRONTIER": frontier,
            "STORE": table.url,
            "SEEDS": site.url,
            "SITES": "http://127.0.0.*",
        }
        function = Cloud(tmp_path, "work", environment=environment)
        try:
            answers = _drain(function, at_once=20, kill_s=1.5)
        finally:
            function.close()
            print(function.said())
        print(Counter(status for status, _ in answers))
        assert any(status == 0 for status, _ in answers)
        assert_clean(site.check(table.rows()), site.pages)
