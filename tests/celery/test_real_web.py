"""What holds for real sites holds under Celery too: bad servers, private addresses, credentials, caches."""

from __future__ import annotations

import pytest
from tests.celery.conftest import until
from tests.hostile.hosts import Hosts
from tests.hostile.misbehaviours import LIMITS, MISBEHAVIOURS
from tests.servers import Reply, Request, ScriptedServer, page

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

BAD = (
    "a refresh header to itself",
    "links that would split the request",
    "entities that grow",
    "an encoding that nobody knows",
)
CRAWL = """\
import shoal

crawl = shoal.Crawl("sites", **{settings!r})


@crawl.page()
def read(page):
    yield {{"url": page.url, "title": page.title}}
    yield from page.links()


@crawl.login
def login(session):
    session.get({login!r})


PLACE.pop("allow_private")
shoal.celery.attach(app, crawl, **PLACE)
"""


@pytest.fixture(params=["redis", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path) -> dict[str, str]:
    """Where the URLs are."""
    return {} if request.param == "redis" else {"frontier": f"sqlite:{tmp_path}/state.shoal"}


def members(request: Request) -> Reply:
    """Pages for those who have logged in and have the token."""
    if request.target == "/login":
        return page(b"", "200 OK", "Set-Cookie: session=1; Path=/")
    if (request.headers.get("cookie"), request.headers.get("authorization")) != ("session=1", "Bearer t"):
        return page(b"", "403 Forbidden")
    if request.target == "/":
        return page(b'<title>in</title><a href="/x">x</a><a href="http://192.168.0.1/">y</a>', "200 OK")
    return page(b"<title>x</title>")


def test_bad_servers_credentials_and_private_addresses(new_project, place, tmp_path) -> None:
    """Each bad page has its outcome, the login and the token are used, and what is private is refused."""
    with Hosts(BAD) as hosts, ScriptedServer(members) as server:
        settings = {
            **LIMITS,
            "seeds": [server.url(), *(hosts.url(name) for name in BAD)],
            "scope": "any",
            "obey_robots": False,
            "auth": {server.address: "bearer t"},
            "cache": str(tmp_path / "kept"),
        }
        project = new_project(CRAWL.format(settings=settings, login=server.url("/login")), **place)
        worker = project.worker("-c", "2").ready()
        project.finish()
        frontier = project.office.desk().frontier
        found = {name: frontier.why(hosts.url(name)) for name in BAD}
        for name, record in found.items():
            case = MISBEHAVIOURS[name]
            assert record.state == case.state, name
            assert record.reason in case.reason.split(" or "), name
        assert frontier.why(server.url("/x")).state == "done"
        private = frontier.why("http://192.168.0.1/")
        assert (private.state, private.reason) == ("dead", "blocked address")
        assert {request.headers.get("authorization") for request in server.requests} == {"Bearer t"}
        assert worker.stop() == 0
    assert any((tmp_path / "kept").rglob("*"))
    assert "Bearer t" not in worker.said()


def test_a_host_that_says_when_to_come_back_is_left_alone(new_project, place) -> None:
    """Retry-After holds for all processes of a worker; a page of a dead host becomes a dead letter."""

    def answer(request: Request) -> Reply:
        if request.target == "/login" or server.count("/") > 1:
            return page(b"")
        return page(b"", "429 Too Many Requests", "Retry-After: 2")

    with ScriptedServer(answer) as server:
        down = "http://127.0.0.1:9/"
        settings = {
            "seeds": [server.url(), down],
            "scope": "any",
            "obey_robots": False,
            "retries": 0,
            "retries_by": {"429": 2},
        }
        project = new_project(CRAWL.format(settings=settings, login=server.url("/login")), **place)
        worker = project.worker("-c", "2").ready()
        project.finish()
        at = [request.at for request in server.requests if request.target == "/"]
        assert len(at) == 2
        assert at[1] - at[0] >= 1.98
        until(lambda: project.stats().finished, 10)
        [letter] = project.office.desk().frontier.dead()
        assert (letter.url, letter.reason) == (down, "connection refused")
        assert worker.stop() == 0
