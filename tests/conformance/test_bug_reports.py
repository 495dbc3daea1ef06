"""What users of other crawlers reported as bugs, tried one by one.

`TRIED` has an experiment for each report: the input as it was reported, against the right outcome.
`ELSEWHERE` names the tests that show it for those that take several processes or a broker.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from html import escape
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

import pytest
from tests.hostile.crawls import crawled
from tests.servers import RESET, Pause, Reply, Request, ScriptedServer, page, reply

import shoal
from shoal.errors import ConfigError
from shoal.fetch import Fetcher, FetchSettings
from shoal.frontier import Frontier, open_frontier
from shoal.intake import read_link
from shoal.model import Link, Response
from shoal.parse import Page
from shoal.sitemap import parse as parse_sitemap

ROOT = Path(__file__).parents[2]
REPORTS = {
    report["number"]: report
    for report in json.loads((ROOT / "tests/corpora/bug-reports.json").read_text(encoding="utf-8"))["reports"]
}

ELSEWHERE = {
    55: "tests/faults/test_random_kills.py::test_kills_lose_and_double_nothing",
    58: "tests/e2e/test_redis_commands.py::test_threads_of_a_program_may_push_while_workers_come_and_go",
    80: "tests/celery/test_decisions.py::test_retry_waits_as_long_as_it_says",
    81: "tests/celery/test_celery_faults.py::test_nothing_is_lost_and_nothing_doubled",
    82: "tests/celery/test_lesson.py::test_higher_priority_runs_first_on_every_broker",
    88: "tests/contract/test_store_contract.py::test_processes_share_a_store",
}

TRIED: dict[int, Callable[[], None]] = {}


def report(number: int) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """The experiment for a report."""

    def register(experiment: Callable[[], None]) -> Callable[[], None]:
        TRIED[number] = experiment
        return experiment

    return register


@pytest.mark.parametrize("number", TRIED)
def test_a_report_is_no_bug_of_ours(number: int) -> None:
    """The input of the report has the right outcome."""
    TRIED[number]()


def test_every_report_is_tried() -> None:
    """Here, or by a test that exists."""
    assert sorted([*TRIED, *ELSEWHERE]) == sorted(REPORTS)
    for place in ELSEWHERE.values():
        file, test = place.split("::")
        assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), place


# --- how they are tried


class Seen:
    """What a crawl of one site asked for, and how it stands."""

    def __init__(self, frontier: Frontier, server: ScriptedServer) -> None:
        self.rows = list(frontier.items())
        self.times = [request.at for request in server.requests if request.target != "/robots.txt"]
        self.finished = frontier.stats().finished
        self.targets = [each.target for each in server.requests if each.target != "/robots.txt"]
        """Asked for, in order, robots.txt left out."""
        records = {target: frontier.why(server.url(target)) for target in self.targets}
        self.states = {target: (each.state, each.reason) for target, each in records.items() if each}
        """Of each page: state and reason."""


Routes = Mapping[str, str | bytes | Reply | Callable[[Request], Reply]]


def _routes(routes: Routes) -> dict[str, Reply | Callable[[Request], Reply]]:
    """Pages may be given by their HTML."""
    return {
        target: page(answer.encode() if isinstance(answer, str) else answer)
        if isinstance(answer, str | bytes)
        else answer
        for target, answer in routes.items()
    }


def _links(*hrefs: str) -> str:
    return "".join(f'<a href="{escape(href)}">x</a>' for href in hrefs)


@contextmanager
def _site(routes: Routes | Callable[[Request], Reply], host: str = "127.0.0.1") -> Iterator[ScriptedServer]:
    with ScriptedServer(routes if callable(routes) else _routes(routes), host=host) as server:
        yield server


def _crawl(server: ScriptedServer, *seeds: str, **settings: object) -> Seen:
    """Crawl it from `/`, or from these seeds."""
    with tempfile.TemporaryDirectory() as folder:
        urls = [server.url(seed) if seed.startswith("/") else seed for seed in seeds or ("/",)]
        with crawled(urls, Path(folder), **{"retry_delay_s": 0.01, **settings}) as frontier:
            return Seen(frontier, server)


def _crawl_of(routes: Routes, *seeds: str, **settings: object) -> Seen:
    with _site(routes) as server:
        return _crawl(server, *seeds, **settings)


def _to(location: str | bytes, *headers: str) -> Reply:
    raw = location if isinstance(location, bytes) else location.encode()
    more = "".join(f"{header}\r\n" for header in headers).encode()
    return reply(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + raw + b"\r\n" + more + b"\r\n")


def _in_turn(*replies: Reply) -> Callable[[Request], Reply]:
    """One after the other, the last one for ever."""
    left = list(replies)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def _gaps(times: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


# --- URLs


@report(2)
def _escaped_percent_signs_stay() -> None:
    seen = _crawl_of(
        {"/": _links("/cmp/Dia%25", "/cmp/Dia%2541"), "/cmp/Dia%25": "one", "/cmp/Dia%2541": "other"}
    )
    assert sorted(seen.targets) == ["/", "/cmp/Dia%25", "/cmp/Dia%2541"]
    assert len(seen.rows) == 3


@report(6)
def _square_brackets() -> None:
    seen = _crawl_of(
        {"/": _links("/search?tags[]=a", "/a[b]/", "/x#[1]"), "/search?tags[]=a": "", "/a[b]/": "", "/x": ""}
    )
    assert sorted(seen.targets) == ["/", "/a[b]/", "/search?tags[]=a", "/x"]


@report(7)
def _a_blank_behind_the_url() -> None:
    with _site({"/x": _links("/x ", "/x")}) as server:
        assert read_link(f"{server.url('/x')} ".encode()).url == server.url("/x")
        seen = _crawl(server, f"{server.url('/x')} ")
    assert (seen.targets, len(seen.rows), seen.states["/x"]) == (["/x"], 1, ("done", ""))


@report(8)
def _urls_without_a_host() -> None:
    assert read_link(b"http:/feeds/latest.xml").url == "http://feeds/latest.xml"
    for bad in (b"http://", b"http://:80/", b"//x"):
        with pytest.raises(ValueError, match="not an http"):
            read_link(bad)
        with pytest.raises(ConfigError, match="not an http"):
            shoal.Crawl("x", seeds=[bad.decode()])
    with _site({"/good": ""}) as server:
        seen = _crawl(
            server, "/good", server.url("/a.xml").replace("//", "/"), f"http:{server.url('/b')[5:]}"
        )
    assert sorted(seen.targets) == ["/a.xml", "/b", "/good"]


@report(12)
def _hosts_that_cannot_be() -> None:
    bad = [f"http://{'a' * 64}.test/", "http://.x.test/", "http://a..b.test/"]
    with _site({"/": _links(*bad, "/good"), "/good": ""}) as server:
        with (
            tempfile.TemporaryDirectory() as folder,
            crawled([server.url()], Path(folder), scope="any", obey_robots=False) as frontier,
        ):
            states = {record.state for url in bad if (record := frontier.why(url))}
            assert frontier.stats().finished
        assert server.count("/good") == 1
    assert states <= {"dead"}


@report(13)
def _mail_addresses_as_links() -> None:
    with _site({"/": "", **{f"/{n}": "" for n in range(9)}}) as server:
        server._routes["/"] = page(
            _links(
                f"http://info@{server.address}/", *(f"http://u:p@{server.address}/{n}" for n in range(9))
            ).encode()
        )
        seen = _crawl(server)
    assert len(seen.targets) == len(seen.rows) == 10


@report(14)
def _a_blank_before_the_url() -> None:
    with _site(
        lambda request: page(f'<a href=" http://{request.headers["host"]}/x">x</a>'.encode())
    ) as server:
        assert _crawl(server).targets == ["/", "/x"]


# --- links


@report(15)
def _a_relative_base() -> None:
    start = "/forum/index.php/mv/1/0/"
    seen = _crawl_of({start: '<base href="/forum/"><a href="index.php/fa/2/">x</a>'}, start)
    assert seen.targets == [start, "/forum/index.php/fa/2/"]


@report(20)
def _a_huge_script() -> None:
    seen = _crawl_of(
        {"/": _links("/a") + f"<script>{'x' * 12_000_000}</script>" + _links("/b"), "/a": "", "/b": ""},
        max_body_bytes=20_000_000,
    )
    assert sorted(seen.targets) == ["/", "/a", "/b"]


@report(22)
def _links_behind_a_redirect() -> None:
    seen = _crawl_of({"/": _to("/d/start.html"), "/d/start.html": _links("impressum.html")})
    assert seen.targets == ["/", "/d/start.html", "/d/impressum.html"]


@report(23)
def _line_breaks_in_a_link() -> None:
    smuggled = "/x&#13;&#10;GET /evil HTTP/1.1&#13;&#10;Host: h&#13;&#10;&#13;&#10;"
    seen = _crawl_of({"/": f'<a href="{smuggled}">x</a>'})
    assert seen.targets == ["/", "/xGET%20/evil%20HTTP/1.1Host:%20h"]


# --- robots.txt


def _robots(text: str) -> Reply:
    return page(text.encode(), "200 OK", "Content-Type: text/plain")


@report(24)
def _a_rule_reaches_into_the_query() -> None:
    seen = _crawl_of(
        {"/robots.txt": _robots("User-agent: *\nDisallow: /*s="), "/": _links("/s/", "/?s=asd"), "/s/": ""}
    )
    assert seen.targets == ["/", "/s/"]


@report(25)
def _an_escaped_slash_in_a_rule() -> None:
    seen = _crawl_of(
        {
            "/robots.txt": _robots("User-agent: *\nDisallow: /*%2F*"),
            "/": _links("/path/index.html", "/topic/9%2F11/"),
            "/path/index.html": "",
        }
    )
    assert seen.targets == ["/", "/path/index.html"]


@report(26)
def _crawl_delay_before_any_group() -> None:
    seen = _crawl_of(
        {
            "/robots.txt": _robots("Crawl-delay: 1\n\nUser-agent: *\nDisallow: /x"),
            "/": _links("/x", "/y"),
            "/y": "",
        },
        max_crawl_delay_s=0.1,
    )
    assert seen.targets == ["/", "/y"]


@report(30)
def _robots_txt_on_another_port() -> None:
    with _site({"/": ""}) as without, _site({"/": _links("/a", "/b"), "/b": ""}) as strict:
        strict._routes["/robots.txt"] = _robots("User-agent: mybot\nDisallow: /a")
        assert _crawl(without, user_agent="mybot/1.0").targets == ["/"]
        assert _crawl(strict, user_agent="mybot/1.0").targets == ["/", "/b"]
        assert (without.count("/robots.txt"), strict.count("/robots.txt")) == (1, 1)


@report(32)
def _a_robots_txt_behind_too_many_slashes() -> None:
    with _site(
        {"/": _links("/x", "/y"), "/y": "", "/r.txt": _robots("User-agent: *\nDisallow: /x")}
    ) as server:
        server._routes["/robots.txt"] = _to(f"http:////{server.address}/r.txt")
        seen = _crawl(server)
    assert seen.targets == ["/", "/r.txt", "/y"] or seen.targets == ["/r.txt", "/", "/y"]


# --- redirects


@report(34)
def _a_target_that_is_linked_too() -> None:
    seen = _crawl_of({"/": _links("/old", "/new"), "/old": _to("/new"), "/new": ""})
    assert sorted(seen.targets) == ["/", "/new", "/old"]
    assert len(seen.rows) == 2


@report(36)
def _raw_utf8_in_a_location() -> None:
    seen = _crawl_of({"/": _to("/fa/اعزام")})
    assert seen.targets == ["/", "/fa/%D8%A7%D8%B9%D8%B2%D8%A7%D9%85"]


@report(38)
def _a_refresh_in_either_order() -> None:
    for meta in (
        'content="0;url=/dummy.html" http-equiv="refresh"',
        'http-equiv=refresh content="0;url=/dummy.html"',
    ):
        assert _crawl_of({"/": f"<meta {meta}>", "/dummy.html": ""}).targets == ["/", "/dummy.html"]


@report(40)
def _a_refresh_to_a_folder_above() -> None:
    seen = _crawl_of({"/a/b/c.html": '<meta http-equiv=refresh content="0; url=../d.html">'}, "/a/b/c.html")
    assert seen.targets == ["/a/b/c.html", "/a/d.html"]


# --- encodings


def _page(body: bytes, content_type: str = "text/html") -> Page:
    url = "http://h/"
    return Page(Response(url, 200, (("content-type", content_type),), body), Link(url))


@report(43)
def _a_mark_of_utf8() -> None:
    meta = '<meta content="text/html; charset=utf-8" http-equiv="Content-Type"><title>Größe</title>'
    seen = _page(b"\xef\xbb\xbf" + meta.encode())
    assert (seen.encoding, seen.title) == ("utf-8", "Größe")
    assert not seen.text.startswith("\ufeff")


@report(45)
def _gb2312_named_late() -> None:
    seen = _page("<title>中文网页标题</title><meta charset=gb2312>".encode("gb2312"))
    assert seen.title == "中文网页标题"
    assert "\ufffd" not in seen.text


# --- HTTP


CUT = reply(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n")


@report(47)
def _chunks_that_are_cut_off_once() -> None:
    seen = _crawl_of({"/": _in_turn(CUT, page(b"whole"))}, retries=2)
    assert (seen.targets, seen.states["/"], len(seen.rows)) == (["/", "/"], ("done", ""), 1)


@report(48)
def _the_same_length_twice() -> None:
    twice = reply(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody")
    seen = _crawl_of({"/": _links("/twice", "/other"), "/twice": twice, "/other": ""})
    assert seen.states["/twice"] in {("done", ""), ("dead", "broken HTTP")}
    assert seen.states["/other"] == ("done", "")


@report(51)
def _a_gzip_bomb() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()
    seen = _crawl_of({"/": _links("/bomb", "/other"), "/bomb": reply(head + bomb), "/other": ""})
    assert seen.states["/bomb"] == ("dead", "too large")
    assert seen.states["/other"] == ("done", "")


@report(52)
def _a_page_that_drips_for_ever() -> None:
    drip = [b"HTTP/1.1 200 OK\r\n\r\n", *[b"x", Pause(0.05)] * 1_000]
    good = {f"/{n}": "" for n in range(20)}
    with _site({"/": reply(*drip)}) as slow, _site({"/": _links(*good), **good}, "127.0.0.2") as fast:
        seeds = [slow.url(), fast.url()]
        with (
            tempfile.TemporaryDirectory() as folder,
            crawled(seeds, Path(folder), concurrency=2, total_timeout_s=3.0) as frontier,
        ):
            record = frontier.why(slow.url())
            assert record is not None
            assert (record.state, record.reason) == ("dead", "timeout")
        began = slow.requests[-1].at
        assert len(fast.requests) == 22
        assert fast.requests[-1].at < began + 3.0


# --- queues


@report(60)
def _malformed_urls_in_the_queue() -> None:
    for bad in (b"http://[::1", b"http://h:99999/"):
        with pytest.raises(ValueError, match="not an http"):
            read_link(bad)
    with _site({"/": ""}) as server, tempfile.TemporaryDirectory() as folder:
        with open_frontier(f"sqlite:{folder}/state.shoal", crawl="hostile") as frontier:
            frontier.add([Link("http://127.0.0.1:99999/")])
        with crawled([server.url()], Path(folder), obey_robots=False) as frontier:
            record = frontier.why("http://127.0.0.1:99999/")
            assert record is not None
            assert (record.state, record.reason) == ("dead", "blocked address")
            assert (frontier.stats().queued, frontier.stats().finished) == (0, True)


@report(61)
def _more_urls_than_may_be_fetched_at_once() -> None:
    many = {f"/{n}": "" for n in range(50)}
    seen = _crawl_of({"/": _links(*many), **many}, concurrency=4, delay_s=0.02)
    assert len(seen.targets) == 51


@report(62)
def _a_reader_that_holds_the_file() -> None:
    many = {f"/{n}": "" for n in range(50)}
    with _site({"/": _links(*many), **many}) as server, tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/state.shoal"
        with open_frontier(f"sqlite:{file}", crawl="hostile") as frontier:
            frontier.add([Link(server.url())])
        with closing(sqlite3.connect(file)) as reader:
            reader.execute("BEGIN")
            [(table,), *_] = reader.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            reader.execute(f"SELECT * FROM {table}").fetchall()
            with crawled([server.url()], Path(folder)) as frontier:
                assert frontier.stats().done == 51


# --- duplicates


@report(63)
def _pages_that_all_link_to_each_other() -> None:
    links = _links(*(f"/{n}" for n in range(250)))
    failing = {f"/{n}": _in_turn(page(b"", "500 Oops"), page(links.encode())) for n in range(0, 250, 20)}
    seen = _crawl_of({**{f"/{n}": links for n in range(250)}, **failing}, "/1", concurrency=50, retries=2)
    assert len(seen.rows) == 250
    assert len(seen.targets) == 250 + len(failing)


@report(65)
def _a_limit_counts_pages_and_not_links() -> None:
    seen = _crawl_of({"/": _links(*["/"] * 10, *(f"/#{n}" for n in range(10)), "/2"), "/2": ""}, max_pages=10)
    assert seen.targets == ["/", "/2"]


@report(66)
def _a_seed_with_a_fragment() -> None:
    seen = _crawl_of({"/p": "<title>p</title>"}, "/p#Background")
    assert (seen.targets, len(seen.rows)) == (["/p"], 1)


# --- politeness

TOLERANCE_S = 0.05


@report(68)
def _many_tasks_and_one_delay() -> None:
    many = {f"/{n}": "" for n in range(12)}
    seen = _crawl_of(many, *many, concurrency=16, delay_s=0.15)
    assert len(seen.times) == 12
    assert min(_gaps(seen.times)) >= 0.15 - TOLERANCE_S


@report(70)
def _a_queue_that_runs_empty_each_time() -> None:
    seen = _crawl_of({f"/{n}": _links(f"/{n + 1}") for n in range(8)}, "/0", delay_s=0.15)
    assert len(seen.times) == 9
    assert min(_gaps(seen.times)) >= 0.15 - TOLERANCE_S


@report(71)
def _urls_of_a_sitemap_keep_the_delay() -> None:
    many = {f"/{n}": "" for n in range(10)}
    with _site({"/robots.txt": _robots("User-agent: *\nCrawl-delay: 0.15"), **many}) as server:
        text = "\n".join(map(server.url, many)).encode()
        server._routes["/sitemap.txt"] = page(text, "200 OK", "Content-Type: text/plain")
        seen = _crawl(server, "/0", sitemaps=[server.url("/sitemap.txt")])
    assert len(seen.times) == 11
    assert min(_gaps(seen.times)) >= 0.15 - TOLERANCE_S


@report(73)
def _a_page_that_fails_twice() -> None:
    shaky = _in_turn(reply(RESET), reply(RESET), page(b"here"))
    pages = {f"/{n}": _links("/x") for n in range(5)}
    seen = _crawl_of({**pages, "/x": shaky}, *pages, retries=3)
    assert (seen.targets.count("/x"), seen.states["/x"]) == (3, ("done", ""))
    assert len(seen.rows) == 6


# --- sitemaps

SITEMAP = (
    b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url><loc>http://h/a</loc></url></urlset>'
)


@report(74)
def _sitemaps_with_gzip_once_twice_or_never() -> None:
    once, twice = gzip.compress(SITEMAP), gzip.compress(gzip.compress(SITEMAP))
    coded = "Content-Encoding: gzip"
    answers = [page(once, "200 OK", coded), page(twice, "200 OK", coded), page(once), page(SITEMAP)]

    async def read(server: ScriptedServer) -> list[str]:
        async with Fetcher(FetchSettings(allow=frozenset({"loopback"}))) as fetcher:
            found = []
            for _ in answers:
                answer = await fetcher.fetch(server.url("/sitemap.xml.gz"))
                assert isinstance(answer, Response)
                found += [entry.url for entry in parse_sitemap(answer.body, "http://h/sitemap.xml.gz").links]
            return found

    with _site({"/sitemap.xml.gz": _in_turn(*answers)}) as server:
        assert asyncio.run(read(server)) == ["http://h/a"] * 4


@report(78)
def _sitemaps_without_end() -> None:
    bomb = gzip.compress(bytes(200_000_000))

    def answer(request: Request) -> Reply:
        number = re.fullmatch(r"/map/(\d+)", request.target)
        if number is None:
            return page(bomb if request.target == "/bomb.xml.gz" else b"")
        further = f"http://{request.headers['host']}/map/{int(number[1]) + 1}"
        return page(f"<sitemapindex><sitemap><loc>{further}</loc></sitemap></sitemapindex>".encode())

    with _site(answer) as server:
        sitemaps = [server.url("/bomb.xml.gz"), server.url("/map/0")]
        seen = _crawl(server, sitemaps=sitemaps, obey_robots=False)
    assert seen.finished
    assert "/" in seen.targets
    assert len(seen.targets) < 100


@report(79)
def _addresses_of_name_spaces_are_no_pages() -> None:
    broken = SITEMAP.replace(b"</url>", b"<b xmlns='http://www.w3.org/1999/xhtml'>")
    for body in (SITEMAP, broken, broken[:-30], SITEMAP.replace(b"urlset", b"x")):
        urls = {entry.url for entry in parse_sitemap(body, "http://h/maps/own.xml").links}
        assert urls <= {"http://h/a"}


# --- traps


@report(91)
def _a_page_that_echoes_its_own_url() -> None:
    def answer(request: Request) -> Reply:
        if request.target == "/robots.txt":
            return page(b"", "404 Not Found")
        own = f"http://{request.headers['host']}{request.target}"
        return page(_links(f"/search?u={quote(own, safe='')}").encode())

    with _site(answer) as server:
        seen = _crawl(server, within_s=100.0)
    assert seen.finished
    assert len(seen.targets) < 500
    assert max(map(len, seen.targets)) <= 8_192


@report(92)
def _a_calendar_without_end() -> None:
    real = [f"/real/{n}" for n in range(100)]

    def answer(request: Request) -> Reply:
        if request.target == "/robots.txt":
            return page(b"", "404 Not Found")
        year = re.fullmatch(r"/cal\?y=(-?\d+)", request.target)
        if year:
            return page(_links(f"/cal?y={int(year[1]) + 1}", f"/cal?y={int(year[1]) - 1}").encode())
        return page(_links("/cal?y=2000", *real).encode())

    with _site(answer) as server:
        seen = _crawl(server, max_depth=20, concurrency=4)
        capped = _crawl(server, max_pages_per_host=150, concurrency=4)
    assert set(real) <= set(seen.targets[:130])
    assert len(seen.targets) < 300
    assert capped.finished


# --- cookies


@report(93)
def _a_cookie_that_a_redirect_changes() -> None:
    sent: list[str | None] = []

    def inside(request: Request) -> Reply:
        sent.append(request.headers.get("cookie"))
        return page()

    _crawl_of(
        {
            "/": page(_links("/go").encode(), "200 OK", "Set-Cookie: c=1"),
            "/go": _to("/in", "Set-Cookie: c=2"),
            "/in": inside,
        }
    )
    assert sent == ["c=2"]
