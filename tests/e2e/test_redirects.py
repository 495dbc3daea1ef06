"""Redirects, hop by hop: scope, what is seen and robots.txt are asked about each target."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.nursery import Nursery
from tests.e2e.shell import Shell
from tests.servers import NOT_FOUND, Reply, Request, ScriptedServer, page
from tests.site import Site

from shoal.model import Response
from shoal.policy import Dead, Hop, Read, Redirect, Retries, follow, judge
from shoal.urls import normalize

CORPORA = Path(__file__).parent.parent / "corpora"


def _to(location: str, *headers: str, status: str = "302 Found") -> Reply:
    return page(b"", status, f"Location: {location}", *headers)


def _targets(server: ScriptedServer) -> list[str]:
    return [request.target for request in server.requests if request.target != "/robots.txt"]


def _outcome(shoal: Shell, url: str) -> tuple[str, str]:
    [record] = shoal("why", url, "--json").objects
    return record["state"], record["reason"]


# --- one hop after the other ----------------------------------------------------------------


@pytest.mark.parametrize("status", ["301", "302", "303", "307", "308"])
def test_a_redirect_leads_to_a_page_once(shoal: Shell, status: str) -> None:
    """The row is about the page that answered; a target that is known already is not fetched again."""
    with ScriptedServer(
        {
            "/": page(b'<a href="/a">a</a><a href="/b">b</a><a href="/t">t</a>'),
            "/a": _to("/t", status=f"{status} Moved"),
            "/b": _to("/t#top", status=f"{status} Moved"),
            "/t": page(b"<title>Target</title>"),
        }
    ) as server:
        shoal("crawl", server.url())
        assert sorted(_targets(server)) == ["/", "/a", "/b", "/t"]
        assert [row["url"] for row in shoal.rows()] == [server.url(), server.url("/t")]
        assert _outcome(shoal, server.url("/a")) == ("done", "redirect")


def test_a_redirect_does_not_count_as_depth(shoal: Shell) -> None:
    """A page behind redirects is as deep as the link that led there."""
    with Site(1, extras=["/chain/3"]) as site:
        shoal("crawl", site.url + "chain/3", "--depth", "0")
        assert [(row["url"], row["depth"]) for row in shoal.rows()] == [(site.url, 0)]


def test_a_redirect_out_of_scope_is_not_followed(shoal: Shell) -> None:
    """Nothing is asked of the other host; for a seed there is a warning, as the crawl would be empty."""
    with ScriptedServer({"/": page(b"")}) as other, ScriptedServer({"/": _to(other.url())}) as server:
        ended = shoal("crawl", server.url())
        assert other.requests == []
        assert _outcome(shoal, server.url()) == ("done", "redirect out of scope")
        assert f"{server.url()} redirects to {other.url()}, which is out of scope" in ended.err
        assert shoal.rows() == []


def test_a_redirect_to_what_is_denied_is_not_followed(shoal: Shell) -> None:
    """The rules of scope are asked about each hop."""
    with ScriptedServer({"/": _to("/login"), "/login": page(b"")}) as server:
        shoal("crawl", server.url(), "--deny", "/login")
        assert _targets(server) == ["/"]


def test_a_redirect_to_what_robots_txt_closes_is_not_followed(shoal: Shell) -> None:
    """robots.txt is asked about each hop, the one of the target's own host."""
    closed = page(b"User-agent: *\nDisallow: /t\n", "200 OK", "Content-Type: text/plain")
    with (
        ScriptedServer({"/robots.txt": closed, "/t": page(b"")}) as other,
        ScriptedServer({"/": _to(other.url("/t"))}) as server,
    ):
        shoal("crawl", server.url(), "--scope", "any")
        assert [request.target for request in other.requests] == ["/robots.txt"]
        assert _outcome(shoal, other.url("/t")) == ("skipped", "robots.txt")


@pytest.mark.parametrize(("hops", "followed"), [(10, True), (11, False)])
def test_ten_redirects_in_a_row_are_followed(shoal: Shell, hops: int, followed: bool) -> None:
    """The page behind ten is read; the eleventh is one too many, and its URL a dead letter."""
    with Site(1) as site:
        shoal("crawl", site.url + f"chain/{hops}")
        assert [row["url"] for row in shoal.rows()] == [site.url] * followed
        assert site.fetches().total() == 11
        letters = [letter["reason"] for letter in shoal("dead", "--json").objects]
        assert letters == [] if followed else ["too many redirects"]


def test_a_redirect_loop_ends_as_a_dead_letter(shoal: Shell) -> None:
    """Of one URL or several, and each of them is asked once."""
    with ScriptedServer(
        {
            "/": page(b'<a href="/self">1</a><a href="/a">2</a>'),
            "/self": _to("/self"),
            "/a": _to("/b"),
            "/b": _to("/c"),
            "/c": _to("/a"),
        }
    ) as server:
        shoal("crawl", server.url())
        assert sorted(_targets(server)) == ["/", "/a", "/b", "/c", "/self"]
        assert _outcome(shoal, server.url("/self")) == ("dead", "redirect loop")
        assert _outcome(shoal, server.url("/c")) == ("dead", "redirect loop")


def test_a_cookie_makes_a_way_out_of_a_loop(shoal: Shell) -> None:
    """A page that sets a cookie and sends the visitor round to itself is read at the second visit, once."""

    def door(request: Request) -> Reply:
        return page(b"<h1>In</h1>") if "seen=1" in request.headers.get("cookie", "") else _to("/consent")

    with ScriptedServer({"/": door, "/consent": _to("/", "Set-Cookie: seen=1; Path=/")}) as server:
        shoal("crawl", server.url(), "--select", "title=h1", "-o", "rows.jsonl")
        assert _targets(server) == ["/", "/consent", "/"]
        assert json.loads(shoal.read("rows.jsonl")) == {"url": server.url(), "title": "In"}
        assert shoal("dead").out == ""


def test_a_cookie_that_leads_nowhere_is_given_up(shoal: Shell) -> None:
    """A server that sets a cookie each time and never lets the visitor in."""
    with ScriptedServer({"/": _to("/", "Set-Cookie: seen=1")}) as server:
        shoal("crawl", server.url())
        assert len(_targets(server)) <= 11
        assert [letter["reason"] for letter in shoal("dead", "--json").objects] == ["too many redirects"]


def test_what_came_with_a_link_travels_through_redirects(shoal: Shell) -> None:
    """Its priority and the user's own data."""
    with ScriptedServer(
        {"/": page(b'<a href="/a">a</a>'), "/a": _to("/b"), "/b": page(b"<title>B</title>")}
    ) as server:
        shoal.write(
            "meta.py",
            f"""
            import shoal

            crawl = shoal.Crawl("meta", seeds=["{server.url()}"])

            @crawl.page("/b")
            def target(page):
                return {{"title": page.title, "priority": page.priority, "depth": page.depth, **page.meta}}

            @crawl.page()
            def start(page):
                return page.links("a", priority=7, meta={{"shelf": "lamps"}})
            """,
        )
        shoal("run", "meta.py")
        assert shoal.rows() == [{"title": "B", "priority": 7, "depth": 1, "shelf": "lamps"}]


# --- recorded cases -------------------------------------------------------------------------

HTTP = {
    case["id"]: case
    for case in json.loads((CORPORA / "http-cases.json").read_text("utf-8"))["cases"]
    if case["id"].startswith(("redir/", "refresh/"))
}


class _Replay(ScriptedServer):
    """Serves one case of the corpus, in which {host} stands for the server's address."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.case = case
        super().__init__(self._reply)

    def _reply(self, request: Request) -> Reply:
        route = self.case["routes"].get(request.target)
        if route is None:
            return self._other(request.target)
        name, steps = route.get("if_cookie", (None, None))
        chosen = steps if name and name in request.headers.get("cookie", "") else route["steps"]
        parts = [step["s"].replace("{host}", self.address).encode("latin-1") for step in chosen]
        return Reply(parts, keep=route.get("keep", False))

    def _other(self, target: str) -> Reply:
        if "/n*" in self.case["routes"] and (number := re.fullmatch(r"/n(\d+)", target)):
            return _to(f"/n{int(number[1]) + 1}")
        return page(b"ok") if target in ("/next", "/t", "/t?a=1&b=2") else NOT_FOUND

    @property
    def expected_url(self) -> str:
        """The target that the case expects."""
        url: str = self.case["expect"]["url"].replace("{host}", self.address)
        return url if "://" in url else self.url(url)


class _Replayed:
    """One crawl of the start pages of all cases."""

    def __init__(self, shoal: Shell, servers: Mapping[str, _Replay]) -> None:
        self.shoal, self.servers = shoal, servers
        shoal("crawl", *(server.url() for server in servers.values()), "--retries", "0", "--ignore-robots")
        self.rows = {row["url"] for row in shoal.rows()}
        self.dead = {letter["url"] for letter in shoal("dead", "--json").objects}


@pytest.fixture(scope="module")
def replayed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Replayed]:
    """A crawl of all recorded cases, each on a server of its own."""
    with ExitStack() as stack:
        servers = {id_: stack.enter_context(_Replay(case)) for id_, case in HTTP.items()}
        yield _Replayed(Shell(tmp_path_factory.mktemp("replayed"), nursery), servers)


@pytest.mark.parametrize("id_", HTTP)
def test_a_recorded_way_ends_where_it_should(replayed: _Replayed, id_: str) -> None:
    """Followed to the URL where browsers end up, or given up; and never asked for without end."""
    server = replayed.servers[id_]
    expect = HTTP[id_]["expect"]
    assert len(server.requests) <= 12
    outcome = expect["outcome"]
    if outcome == "redirect_to":
        assert server.count(server.expected_url.removeprefix(server.url().rstrip("/"))) == 1
    elif outcome == "redirect_offsite":
        assert replayed.shoal("why", server.expected_url, code=1).out.endswith("scope: other host\n")
    elif outcome == "fail":
        assert replayed.dead & {server.url(request.target) for request in server.requests}
        assert not any(row.startswith(server.url()) for row in replayed.rows)
    elif outcome == "ok":
        assert server.url() in replayed.rows
    if "links" in expect:
        assert set(expect["links"]) <= set(_targets(server))
    assert server.count("/from-redirect-body") == 0


ELSEWHERE = {"refresh/in-noscript": "/nojs"}
"""Browsers run scripts, so they do not see it."""


@pytest.mark.parametrize("id_", [id_ for id_ in HTTP if id_.startswith("refresh/")])
def test_a_page_that_asks_to_be_refreshed_is_a_page(replayed: _Replayed, id_: str) -> None:
    """It is read, and where it would send a browser is one of its links."""
    server = replayed.servers[id_]
    assert server.url() in replayed.rows
    target = ELSEWHERE.get(id_, server.case["expect"].get("url"))
    assert _targets(server) == list(filter(None, dict.fromkeys(["/", target, "/next"])))


SCRAPY = {
    number: case
    for number, case in enumerate(json.loads((CORPORA / "scrapy-redirects.json").read_text("utf-8"))["cases"])
    if case["kind"] == "http"
}
"""Those of meta refresh are left out: it is a link here, and no redirect."""

_LOOP = "back to a URL that it came from, without a cookie: a loop"
_OPTION = "recorded with an option that tells Scrapy not to follow"
SCRAPY_DIFFERS = {
    **dict.fromkeys((20, 21, 23, 24, 25, 27, 29, 31, 32, 33, 35, 36, 37, 39, 41, 42, 45, 46), _LOOP),
    **dict.fromkeys((1, 81, 82, 83), _OPTION),
}


def _chain(request: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(filter(None, map(normalize, request["meta"].get("redirect_urls", ()))))


@pytest.mark.parametrize("number", SCRAPY)
def test_a_redirect_is_followed_where_scrapy_follows_it(number: int) -> None:
    """To the same URL, without its fragment."""
    request, outcome = SCRAPY[number]["request"], SCRAPY[number]["outcome"]
    url = normalize(request["url"])
    assert url is not None
    headers = tuple((name.lower(), value) for name, values in request["headers"].items() for value in values)
    verdict = judge(Response(url, request["status"], headers, b""), 1, retries=Retries(), now=0, draw=0)
    hop: Hop | Dead | None = None
    if isinstance(verdict, Redirect):
        hop = follow(normalize(verdict.location, url), url, _chain(request), set_cookie=False)
    followed = hop.url if isinstance(hop, Hop) else None
    expected = normalize(outcome["url"]) if outcome.get("type") == "Request" else None
    assert (followed == expected) == (number not in SCRAPY_DIFFERS), (followed, expected)
    assert expected is None or not isinstance(verdict, Read)
