"""The commands: crawling, resuming, limits, looking at a crawl and putting it right."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import brotli
import pytest
from backports import zstd
from tests.e2e.shell import PATIENCE_S, Shell
from tests.servers import RESET, Pause, Reply, Request, ScriptedServer, Step, page, reply
from tests.site import Site, row


def _until(condition: Callable[[], object]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- from beginning to end ------------------------------------------------------------------


def test_the_installed_command_crawls_a_site(tmp_path: Path, site: Site) -> None:
    """The script that pip installs fetches every page once and names what it found."""
    command = Path(sys.executable).with_name("shoal")
    done = subprocess.run(
        [command, "crawl", site.url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert site.fetches() == Counter(site.urls)
    name = site.url.removeprefix("http://").rstrip("/").replace(":", "_")
    assert done.stdout == ""
    first, last = done.stderr.splitlines()
    assert re.fullmatch(
        r"finished after 0:00:\d\d: 20 pages, 20 rows, [\d.]+ kB, 0 dead letters, 0 skipped", first
    )
    assert last == f"the rows are in {name}.shoal: `shoal export --state {name}.shoal -o rows.csv`"


def test_a_finished_crawl_says_so_and_does_nothing(shoal: Shell, site: Site) -> None:
    """The same command again asks the site nothing."""
    shoal("crawl", site.url)
    asked = len(site.log)
    ended = shoal("crawl", site.url)
    assert ended.err.startswith("already finished: 20 pages, 20 rows (the rows are in ")
    assert ended.err.endswith("); --fresh starts again\n")
    assert len(site.log) == asked


def test_fresh_starts_again(shoal: Shell, site: Site) -> None:
    """With --fresh every page is fetched once more, and the rows are there once."""
    shoal("crawl", site.url, "-o", "rows.jsonl")
    shoal("crawl", site.url, "-o", "rows.jsonl", "--fresh")
    assert site.fetches() == Counter(site.urls * 2)
    assert len(shoal.read("rows.jsonl").splitlines()) == 20


def test_fresh_changes_what_the_crawl_is(shoal: Shell, site: Site) -> None:
    """Other options are no obstacle then, and old rows are gone."""
    shoal("crawl", site.url, "--state", "a.shoal")
    shoal(
        "crawl",
        site.url + "p/3",
        "--select",
        "id=article::attr(data-id)",
        "--depth",
        "0",
        "--state",
        "a.shoal",
        "--fresh",
    )
    assert shoal.rows() == [{"url": site.page_url(3), "id": "P3"}]


def test_an_interrupted_crawl_says_how_to_go_on_and_does(shoal: Shell) -> None:
    """Ctrl-C: exit code 130 and what to do; the same command fetches the rest, and no page twice."""
    with Site(200, latency_s=0.02) as site:
        process = shoal.start("crawl", site.url, "-o", "rows.jsonl", "--state", "a.shoal")
        _until(lambda: len(site.log) > 60)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
        assert re.search(r"^stopped after 0:00:0\d: \d+ pages, ", err, re.MULTILINE)
        assert re.search(r"^\d+ URLs queued; the same command goes on from here$", err, re.MULTILINE)
        so_far = len(shoal.read("rows.jsonl").splitlines())
        assert 0 < so_far < 200
        ended = shoal("crawl", site.url, "-o", "rows.jsonl", "--state", "a.shoal")
        assert ended.err.startswith(f"resuming a.shoal: {so_far} pages done, ")
        assert site.fetches() == Counter(site.urls)
    urls = [json.loads(line)["url"] for line in shoal.read("rows.jsonl").splitlines()]
    assert Counter(urls) == Counter(site.urls)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_slow_handler_does_not_hold_up_an_interrupted_crawl(
    shoal: Shell, site: Site, processes: str
) -> None:
    """Ctrl-C ends it within two seconds, though a thread still runs the handler."""
    shoal.write(
        "slow.py",
        f"""
        import time
        import shoal

        crawl = shoal.Crawl("slow", seeds=["{site.url}"])

        @crawl.page()
        def wait(page):
            time.sleep(30)
        """,
    )
    process = shoal.start("run", "slow.py", "--processes", processes)
    _until(lambda: site.fetches())
    time.sleep(0.2)  # the handler begins
    process.send_signal(signal.SIGINT)
    began = time.monotonic()
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert time.monotonic() - began < 2
    assert shoal.status()["queued"] == 1


# --- what could not be fetched --------------------------------------------------------------


def test_a_seed_that_cannot_be_reached_is_a_dead_letter(shoal: Shell) -> None:
    """The summary gives the reason, and the exit code is 1."""
    ended = shoal("crawl", "http://127.0.0.1:9/", "--retries", "0", code=1)
    assert "0 pages, 0 rows, 0 B, 1 dead letter, 0 skipped\n" in ended.err
    assert "the seed http://127.0.0.1:9/ could not be fetched: connection refused\n" in ended.err
    [letter] = shoal("dead", "--json").objects
    assert letter["reason"] == "connection refused"
    shoal("crawl", "http://127.0.0.1:9/", code=1)  # nor is it better afterwards


def test_why_nothing_was_fetched_is_told_in_quiet_too(shoal: Shell, site: Site) -> None:
    """It is an error, of which there is nothing else to see."""
    shoal.write("unreachable.py", "import shoal\ncrawl = shoal.Crawl('a', seeds=['http://127.0.0.1:9/'])\n")
    ended = shoal("run", "unreachable.py", "--retries", "0", "-q", code=1)
    assert ended.err == "the seed http://127.0.0.1:9/ could not be fetched: connection refused\n"
    ended = shoal("crawl", f"{site.url}private/x", "-q", code=1)
    assert ended.err == f"the seed {site.url}private/x was skipped: robots.txt\n"
    both = ("crawl", site.url, f"{site.url}private/x", "--state", "both.shoal")
    assert shoal(*both, "-q").err == ""


def test_a_seed_that_robots_txt_closes_is_named(shoal: Shell, site: Site) -> None:
    """Nothing was fetched: exit code 1."""
    ended = shoal("crawl", site.url + "private/x", code=1)
    assert f"the seed {site.url}private/x was skipped: robots.txt\n" in ended.err


def test_one_good_seed_is_enough(shoal: Shell, site: Site) -> None:
    """The bad one is named, and the exit code is 0."""
    ended = shoal("crawl", site.url, "http://127.0.0.1:9/", "--retries", "0")
    assert "the seed http://127.0.0.1:9/ could not be fetched: connection refused\n" in ended.err


def test_dead_letters_fail_a_strict_crawl(shoal: Shell) -> None:
    """Exit code 1 with --strict, also when it was finished before; 0 without."""
    with Site(5, extras=["/status/410"]) as site:
        ended = shoal("crawl", site.url)
        assert "dead letters: HTTP 410: 1 (see `shoal dead --state " in ended.err
        shoal("crawl", site.url, "--strict", code=1)
        shoal("crawl", site.url, "--strict", "--fresh", code=1)


def test_a_strict_crawl_without_dead_letters_succeeds(shoal: Shell, site: Site) -> None:
    """Skipped pages are none."""
    shoal("crawl", site.url, "--strict")


@pytest.mark.parametrize(("retries", "fetches", "done"), [("0", 1, False), ("1", 2, False), ("2", 3, True)])
def test_a_failed_fetch_is_tried_again(shoal: Shell, retries: str, fetches: int, done: bool) -> None:
    """--retries more times, and then it is a dead letter."""
    with Site(1, extras=["/flaky/2/x"]) as site:
        shoal("crawl", site.url, "--retries", retries)
        assert site.fetches()[site.url + "flaky/2/x"] == fetches
        assert (shoal("dead").out == "") == done


# --- limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", ["1", "2"])
def test_max_pages_is_never_overshot_and_may_be_raised(shoal: Shell, processes: str) -> None:
    """Exactly so many pages are fetched, by one process or two; a higher limit goes on from there."""
    with Site(60) as site:
        ended = shoal("crawl", site.url, "--max-pages", "15", "--processes", processes)
        assert site.fetches().total() == 15
        assert re.search(
            r"^the limit of pages is reached, with \d+ URLs queued: raise it", ended.err, re.MULTILINE
        )
        again = shoal("crawl", site.url, "--max-pages", "15", "--processes", processes)
        assert again.err.startswith("already finished: 15 pages, 15 rows")
        assert "the limit of pages is reached" in again.err
        shoal("crawl", site.url, "--max-pages", "40", "--processes", processes)
        assert site.fetches().total() == 40
        shoal("crawl", site.url, "--processes", processes)
        assert site.fetches() == Counter(site.urls)


def test_max_pages_per_host_counts_each_host(shoal: Shell) -> None:
    """Each host gives so many pages and no more."""
    with Site(60, hosts=3) as site:
        shoal("crawl", site.url, "--scope", "any", "--max-pages-per-host", "7")
        hosts = Counter(url.split("/")[2] for url in site.fetches().elements())
        assert hosts == {f"127.0.0.{number}:{site.port}": 7 for number in (1, 2, 3)}


@pytest.mark.parametrize(("depth", "pages"), [(0, 1), (3, 4)])
def test_depth_counts_steps_from_the_seed(shoal: Shell, depth: int, pages: int) -> None:
    """An endless chain of links is followed so far and no further."""
    with Site(1) as site:
        shoal("crawl", site.url + "trap/0", "--depth", depth)
        assert site.fetches() == Counter(f"{site.url}trap/{number}" for number in range(pages))


class _Busy:
    """Pages that take a while, and how many of them were being served at once."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def __call__(self, request: Request) -> Reply:
        return Reply(self._steps(), keep=True)

    def _steps(self) -> Iterator[Step]:
        self.now += 1
        self.most = max(self.most, self.now)
        yield Pause(0.05)
        self.now -= 1
        yield from page(b"".join(b'<a href="/%d">x</a>' % number for number in range(12))).steps


@pytest.mark.parametrize(("option", "most"), [("--concurrency", 3), ("--per-host", 2)])
def test_so_many_fetches_at_once(shoal: Shell, option: str, most: int) -> None:
    """As many as the option says are under way at the same time, and never more."""
    busy = _Busy()
    with ScriptedServer(busy) as server:
        shoal("crawl", server.url(), "--ignore-robots", option, most)
    assert busy.most == most


# --- scope ----------------------------------------------------------------------------------


def _pages(hrefs: str) -> ScriptedServer:
    """A start page with these links; all else is an empty page."""
    body = "".join(f'<a href="{href}">x</a>' for href in hrefs.split()).encode()
    return ScriptedServer(lambda request: page(body if request.target == "/" else b""))


def _fetched(server: ScriptedServer) -> set[str]:
    return {request.target for request in server.requests} - {"/robots.txt"}


def test_allow_and_deny_choose_by_path(shoal: Shell) -> None:
    """Only what a pattern allows and none denies is fetched; `why` names the rule."""
    with _pages("/news/1 /news/2 /shop/1 /news/2?print=1") as server:
        shoal("crawl", server.url(), "--allow", "/news/*", "--allow", "/", "--deny", "*print=1")
        assert _fetched(server) == {"/", "/news/1", "/news/2"}
        ended = shoal("why", server.url("/news/2?print=1"), code=1)
        assert ended.out.endswith("was never seen; it does not belong: scope: denied by *print=1\n")


def test_patterns_may_be_whole_urls(shoal: Shell) -> None:
    """A glob that begins with http:// is matched with all of the URL."""
    with _pages("/news/1 /shop/1") as server:
        shoal("crawl", server.url(), "--deny", server.url("/shop/*"))
        assert _fetched(server) == {"/", "/news/1"}


@pytest.mark.parametrize("scope", ["host", "any"])
def test_scope_decides_about_other_hosts(shoal: Shell, scope: str) -> None:
    """By default links to other hosts are left alone; "any" follows them, as the seed is on loopback."""
    with Site(20, hosts=2) as site:
        shoal("crawl", site.url, "--scope", scope)
        hosts = {url.split("/")[2] for url in site.fetches()}
        assert len(hosts) == {"host": 1, "any": 2}[scope]
        if scope == "any":
            assert site.fetches() == Counter(site.urls)


def test_another_port_is_another_host_but_the_same_domain(shoal: Shell) -> None:
    """--scope domain follows links to it."""
    with _pages("/far") as other, _pages(f"/near {other.url()}") as server:
        shoal("crawl", server.url(), "--state", "a.shoal")
        assert not other.requests
        shoal("crawl", server.url(), "--state", "b.shoal", "--scope", "domain")
        assert _fetched(other) == {"/", "/far"}


def test_private_addresses_are_not_fetched_from_a_public_seed(shoal: Shell) -> None:
    """A loopback seed does not open other private networks: the link is a dead letter, nothing is sent."""
    with _pages("http://10.0.0.1/ http://169.254.169.254/latest/meta-data/") as server:
        shoal("crawl", server.url(), "--scope", "any", "--retries", "0")
        letters = {letter["url"]: letter["reason"] for letter in shoal("dead", "--json").objects}
        assert letters == {
            "http://10.0.0.1/": "blocked address",
            "http://169.254.169.254/latest/meta-data/": "blocked address",
        }


def test_the_order_of_query_parameters_counts_unless_told_otherwise(shoal: Shell) -> None:
    """--sort-query makes one page of two spellings, and `why` and `forget` know it by either."""
    with _pages("/?b=2&amp;a=1 /?a=1&amp;b=2") as server:
        shoal("crawl", server.url("/"), "--state", "a.shoal")
        assert _fetched(server) == {"/", "/?b=2&a=1", "/?a=1&b=2"}
    with _pages("/?b=2&amp;a=1 /?a=1&amp;b=2") as server:
        shoal("crawl", server.url("/"), "--state", "b.shoal", "--sort-query")
        assert _fetched(server) == {"/", "/?a=1&b=2"}
        assert "state        done" in shoal("why", server.url("/?b=2&a=1"), "--state", "b.shoal").out
        assert "forgotten" in shoal("forget", server.url("/?b=2&a=1"), "--state", "b.shoal").out


def test_tracking_parameters_may_be_dropped(shoal: Shell) -> None:
    """--drop-tracking takes utm_* and the like out of URLs."""
    with _pages("/a?utm_source=x&amp;id=1 /a?id=1&amp;fbclid=y /a?id=1") as server:
        shoal("crawl", server.url(), "--drop-tracking")
        assert _fetched(server) == {"/", "/a?id=1"}


def test_links_marked_nofollow_may_be_left(shoal: Shell) -> None:
    """--obey-nofollow ignores them."""
    body = b'<a href="/a" rel="nofollow">a</a><a href="/b">b</a>'
    with ScriptedServer(lambda request: page(body)) as server:
        shoal("crawl", server.url(), "--obey-nofollow")
        assert _fetched(server) == {"/", "/b"}


def test_pages_marked_noindex_may_give_no_rows(shoal: Shell) -> None:
    """--obey-noindex, whether the page or a header says so; their links are followed."""
    pages = {
        "/": page(b'<meta name=robots content="NOINDEX"><title>A</title><a href=/b>b</a>'),
        "/b": page(b"<title>B</title><a href=/c>c</a>", "200 OK", "X-Robots-Tag: noindex"),
        "/c": page(b"<title>C</title>"),
    }
    with ScriptedServer(pages) as server:
        shoal("crawl", server.url(), "--state", "a.shoal")
        shoal("crawl", server.url(), "--state", "b.shoal", "--obey-noindex")
    assert [found["title"] for found in shoal.rows("--state", "a.shoal")] == ["A", "B", "C"]
    assert [found["title"] for found in shoal.rows("--state", "b.shoal")] == ["C"]


def test_a_canonical_page_may_take_the_place_of_others(shoal: Shell) -> None:
    """--obey-canonical: one row for all pages that name it; by default each has its own."""
    body = (
        b'<link rel=canonical href="/item"><title>T</title><a href="/item?a=1">1</a><a href="/item?a=2">2</a>'
    )
    with ScriptedServer(lambda request: page(body)) as server:
        shoal("crawl", server.url("/item?a=1"), "--state", "a.shoal")
        shoal("crawl", server.url("/item?a=1"), "--state", "b.shoal", "--obey-canonical")
        urls = {
            name: sorted(found["url"] for found in shoal.rows("--state", f"{name}.shoal")) for name in "ab"
        }
        assert urls == {
            "a": [server.url("/item?a=1"), server.url("/item?a=2")],
            "b": [server.url("/item")],
        }


def test_frames_may_be_followed(shoal: Shell) -> None:
    """--iframes."""
    with ScriptedServer(lambda request: page(b"<iframe src=/frame></iframe>")) as server:
        shoal("crawl", server.url(), "--state", "a.shoal")
        assert _fetched(server) == {"/"}
        shoal("crawl", server.url(), "--state", "b.shoal", "--iframes")
        assert _fetched(server) == {"/", "/frame"}


# --- what is sent ---------------------------------------------------------------------------


def test_user_agent_and_headers_arrive(shoal: Shell, site: Site) -> None:
    """With every request, that for robots.txt included."""
    shoal(
        "crawl",
        site.url,
        "--user-agent",
        "books/1.0",
        "--header",
        "X-Key: a: b",
        "--header",
        "accept:text/html",
    )
    assert site.log[0].url.endswith("/robots.txt")
    for fetch in site.log:
        assert fetch.headers["user-agent"] == "books/1.0"
        assert fetch.headers["x-key"] == "a: b"
        assert fetch.headers["accept"] == "text/html"


def test_the_user_agent_is_shoal_by_default(shoal: Shell, site: Site) -> None:
    """With its version."""
    shoal("crawl", site.url)
    assert all(re.fullmatch(r"shoal/\d+\.\d+\.\d+", fetch.headers["user-agent"]) for fetch in site.log)


def test_a_proxy_is_asked_for_everything(shoal: Shell) -> None:
    """The proxy gets absolute URLs, of a host that exists nowhere else."""
    pages = {
        "http://shop.example/robots.txt": page(b"", "404 Not Found"),
        "http://shop.example/": page(b'<title>Shop</title><a href="/a">a</a>'),
        "http://shop.example/a": page(b"<title>A</title>"),
    }
    with ScriptedServer(pages) as proxy:
        shoal("crawl", "http://shop.example/", "--proxy", proxy.url())
        assert [request.target for request in proxy.requests] == list(pages)
        assert [found["title"] for found in shoal.rows()] == ["Shop", "A"]


def test_a_slow_page_is_given_up_after_the_timeout(shoal: Shell) -> None:
    """--timeout seconds for one fetch; the others are not held up."""
    with Site(5, extras=["/slow/30"]) as site:
        shoal("crawl", site.url, "--timeout", "0.5", "--retries", "0")
        [letter] = shoal("dead", "--json").objects
        assert (letter["reason"], letter["error"]) == ("timeout", "not complete within 0.5 s")
        assert len(shoal.rows()) == 5


def test_protocol_faults_have_clear_reasons(shoal: Shell) -> None:
    """Each page that could not be read is a dead letter that says why; none stops the crawl."""
    faults = {
        "/reset": reply(RESET),
        "/closed": reply(),
        "/garbage": reply(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
        "/short": reply(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"),
        "/coding": page(b"not gzip", "200 OK", "Content-Encoding: gzip"),
        "/large": reply(b"HTTP/1.1 200 OK\r\nContent-Length: 99000000\r\n\r\n"),
        "/teapot": page(b"", "418 I'm a teapot"),
        "/away": page(b"", "302 Found", "Location: javascript:alert(1)"),
    }
    start = page("".join(f'<a href="{target}">x</a>' for target in faults).encode())
    with ScriptedServer({"/": start} | faults) as server:
        shoal("crawl", server.url(), "--retries", "0")
        letters = {letter["url"]: letter["reason"] for letter in shoal("dead", "--json").objects}
    assert letters == {
        server.url("/reset"): "connection reset",
        server.url("/closed"): "connection reset",
        server.url("/garbage"): "broken HTTP",
        server.url("/short"): "truncated body",
        server.url("/coding"): "broken content coding",
        server.url("/large"): "too large",
        server.url("/teapot"): "HTTP 418",
        server.url("/away"): "redirect to an invalid URL",
    }


def test_a_certificate_that_is_not_valid_is_refused(shoal: Shell) -> None:
    """Unless a scraper says otherwise."""
    with ScriptedServer({"/": page(b"<title>Safe</title>")}, tls=True) as server:
        ended = shoal("crawl", server.url(), code=1)
        assert f"the seed {server.url()} could not be fetched: TLS certificate" in ended.err
        assert [letter["attempts"] for letter in shoal("dead", "--json").objects] == [1]
        shoal.write(
            "trust.py",
            f"""
            import shoal

            crawl = shoal.Crawl("trust", seeds=["{server.url()}"], verify_tls=False)

            @crawl.page()
            def row(page):
                return {{"title": page.title}}
            """,
        )
        shoal("run", "trust.py")
        assert shoal.rows("--state", "trust.shoal") == [{"title": "Safe"}]


@pytest.mark.parametrize("coding", ["gzip", "br", "zstd", "deflate"])
def test_compressed_pages_are_read(shoal: Shell, coding: str) -> None:
    """The codings that were asked for; a body that grows beyond the limit is a dead letter."""
    text = b"<title>Pressed</title>" + b"x" * 1000
    packed = {"gzip": gzip.compress, "br": brotli.compress, "zstd": zstd.compress, "deflate": zlib.compress}[
        coding
    ]

    def answer(request: Request) -> Reply:
        assert coding in request.headers["accept-encoding"]
        body = packed(bytes(11_000_000)) if request.target == "/bomb" else packed(text)
        return page(body, "200 OK", f"Content-Encoding: {coding}")

    with ScriptedServer(answer) as server:
        shoal("crawl", server.url(), server.url("/bomb"), "--ignore-robots")
        assert [found["title"] for found in shoal.rows()] == ["Pressed"]
        assert shoal("dead").out == f"too large: {server.url('/bomb')}\n"


def test_only_types_that_handlers_can_read_are_fetched_to_the_end(shoal: Shell) -> None:
    """Others are skipped by their content type, and their bodies not read."""
    with ScriptedServer(
        {
            "/": page(
                b'<a href="/a.pdf">a</a><a href="/b.json">b</a><a href="/c">c</a><a href="/d.xml">d</a>'
            ),
            "/a.pdf": page(b"%PDF", "200 OK", "Content-Type: application/pdf; x=y"),
            "/b.json": page(b"{}", "200 OK", "Content-Type: application/json"),
            "/c": reply(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"),
            "/d.xml": page(b"<rss/>", "200 OK", "Content-Type: application/rss+xml"),
        }
    ) as server:
        shoal("crawl", server.url())
        [skipped] = shoal("skipped", "--json").objects
        assert (skipped["url"], skipped["reason"]) == (server.url("/a.pdf"), "content type application/pdf")
        assert {found["url"] for found in shoal.rows()} == {
            server.url(target) for target in ("/", "/b.json", "/c", "/d.xml")
        }


# --- looking at a crawl ---------------------------------------------------------------------


def test_status_tells_how_a_crawl_stands(shoal: Shell) -> None:
    """As text for people, as JSON with the same numbers; the state file is found without options."""
    with Site(10, extras=["/status/410", "/private/x"]) as site:
        shoal("crawl", site.url, "--max-pages", "4", "--concurrency", "1")
        found = shoal.status()
        assert found["finished"] is True
        assert (found["done"], found["leased"], found["items"]) == (4, 0, 4)
        assert found["seen"] == found["queued"] + found["done"] + found["dead"] + found["skipped"]
        assert "(finished: the limit of pages is reached)\n" in shoal("status").out
        shoal("crawl", site.url)
        text = shoal("status").out
        assert text.startswith(f"crawl     {site.url.removeprefix('http://').rstrip('/')} (finished)\n")
        for line in ("done      10", "dead      1 (HTTP 410: 1)", "skipped   1", "rows      10"):
            assert f"\n{line}\n" in text


def test_dead_and_skipped_list_pages_with_their_reasons(shoal: Shell) -> None:
    """All, or those of a host or with a reason, or only the first ones; as text or as JSON lines."""
    with Site(5, extras=["/status/410", "/status/404", "/circle", "/private/x"]) as site:
        shoal("crawl", site.url)
        host = site.url.removeprefix("http://").rstrip("/")
        lines = shoal("dead").out.splitlines()
        assert sorted(lines) == [
            f"HTTP 404: {site.url}status/404",
            f"HTTP 410: {site.url}status/410",
            f"redirect loop: {site.url}circle",
        ]
        assert shoal("dead", "--reason", "HTTP 404").out == f"HTTP 404: {site.url}status/404\n"
        assert shoal("dead", "--host", host).out.splitlines() == lines
        assert shoal("dead", "--host", "other.example").out == ""
        assert shoal("dead", "--limit", "1").out.splitlines() == lines[:1]
        assert [letter["url"] for letter in shoal("dead", "--json").objects] == [
            line.rpartition(" ")[2] for line in lines
        ]
        assert shoal("skipped").out == f"robots.txt: {site.url}private/x\n"
        [skipped] = shoal("skipped", "--json").objects
        assert skipped["state"] == "skipped"
        assert skipped["parent"] == site.url


def test_attempts_are_told(shoal: Shell) -> None:
    """A page that was tried more than once says how often."""
    with Site(1, extras=["/flaky/9/x"]) as site:
        shoal("crawl", site.url, "--retries", "1")
        assert shoal("dead").out == f"HTTP 503 after 2 attempts: {site.url}flaky/9/x\n"


def test_why_tells_what_became_of_a_url(shoal: Shell) -> None:
    """Done, dead or never seen; however the URL is spelled."""
    with Site(5, extras=["/status/410"]) as site:
        shoal("crawl", site.url)
        facts = dict(
            re.findall(r"^(\S.*?) {2,}(.*)$", shoal("why", site.url + "p/../p/2#top").out, re.MULTILINE)
        )
        assert facts["url"] == site.page_url(2)
        assert facts["state"] == "done"
        assert facts["found on"] == site.url
        assert facts["status"] == "200"
        assert (
            dict(re.findall(r"^(\S.*?) {2,}(.*)$", shoal("why", site.url).out, re.MULTILINE))["found on"]
            == "(a seed)"
        )
        [letter] = shoal("why", site.url + "status/410", "--json").objects
        assert (letter["state"], letter["reason"], letter["status"]) == ("dead", "HTTP 410", 410)
        never = shoal("why", site.url + "never", code=1)
        assert never.out == f"{site.url}never was never seen, though it is in scope\n"
        [other] = shoal("why", "http://other.example/", "--json", code=1).objects
        assert other == {"url": "http://other.example/", "state": None, "reason": "scope: other host"}


def test_redrive_gives_dead_letters_another_chance(shoal: Shell) -> None:
    """By URL, by host, by reason or all; the next run fetches them with fresh attempts."""
    extras = ["/flaky/1/a", "/flaky/1/b", "/flaky/1/c", "/flaky/1/d", "/status/404"]
    with Site(2, extras=extras) as site:
        host = site.url.removeprefix("http://").rstrip("/")
        shoal("crawl", site.url, "--retries", "0")
        assert len(shoal("dead").out.splitlines()) == 5
        again = shoal("crawl", site.url, "--retries", "0")
        assert re.search(
            r"^5 dead letters: `shoal redrive --all --state \S+` lets this command", again.err, re.MULTILINE
        )
        one = shoal("redrive", site.url + "flaky/1/a")
        assert one.out == "1 queued again; run the crawl to fetch it\n"
        assert shoal("redrive", site.url + "flaky/1/a").out == "0 queued again: no such dead letters\n"
        assert shoal("redrive", "--reason", "HTTP 404").out.startswith("1 queued")
        assert shoal("redrive", "--host", "other.example").out.startswith("0 queued")
        assert shoal("redrive", "--host", host, "--reason", "HTTP 503").out.startswith("3 queued")
        assert shoal("redrive", "--all").out.startswith("0 queued")
        ended = shoal("crawl", site.url, "--retries", "0")
        assert "resuming" in ended.err
        assert shoal("dead").out == f"HTTP 404: {site.url}status/404\n"
        assert shoal("redrive", "--all").out.startswith("1 queued")


def test_a_forgotten_page_is_fetched_again(shoal: Shell, site: Site) -> None:
    """Its rows go with it, and its new ones come: none is doubled."""
    shoal("crawl", site.url)
    assert shoal("forget", site.url + "#top").out == f"forgotten: {site.url}\n"
    assert len(shoal.rows()) == 19
    assert shoal("forget", site.url, code=1).out == f"not known, or being fetched just now: {site.url}\n"
    shoal("crawl", site.url)
    assert site.fetches()[site.url] == 2
    assert Counter(found["url"] for found in shoal.rows()) == Counter(site.urls)


def test_rows_in_a_file_outlive_their_page(shoal: Shell, site: Site) -> None:
    """`forget` says so."""
    shoal("crawl", site.url, "-o", "rows.csv")
    assert shoal("forget", site.url).out == f"forgotten: {site.url}; its rows stay in rows.csv\n"


def test_a_paused_crawl_starts_nothing_until_it_is_resumed(shoal: Shell) -> None:
    """A running crawl stops fetching and goes on; one that is started while paused says what to do."""
    with Site(200, latency_s=0.02) as site:
        process = shoal.start("crawl", site.url, "--state", "a.shoal", "--per-host", "2")
        _until(lambda: len(site.log) > 10)
        assert "is paused; `shoal resume` lets it go on" in shoal("pause").out
        _until(lambda: shoal.status()["leased"] == 0)
        asked = len(site.log)
        assert shoal.status()["paused"] is True
        assert " (paused)\n" in shoal("status").out
        ended = shoal("crawl", site.url, "--state", "a.shoal", code=2)
        assert ended.err.endswith("is paused: let it go on with `shoal resume --state a.shoal`\n")
        assert len(site.log) == asked
        assert process.poll() is None
        assert "is no longer paused" in shoal("resume").out
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert site.fetches() == Counter(site.urls)


# --- several crawls, several processes ------------------------------------------------------


def test_several_crawls_share_a_state_file(shoal: Shell, site: Site) -> None:
    """Each has its own pages, rows and options; --crawl names one."""
    for name in ("one", "two"):
        shoal.write(
            f"{name}.py",
            f"""
            import shoal

            crawl = shoal.Crawl("{name}", seeds=["{site.url}"], max_pages={len(name) + 1})

            @crawl.page()
            def rows(page):
                yield {{"crawl": "{name}", "title": page.css("h1::text").get()}}
                yield from page.links()
            """,
        )
        shoal("run", f"{name}.py", "--state", "both.shoal", "--max-pages", {"one": 3, "two": 5}[name])
    assert shoal.status("--crawl", "one")["done"] == 3
    assert shoal.status("--crawl", "two")["done"] == 5
    assert [found["crawl"] for found in shoal.rows("--crawl", "two")] == ["two"] * 5


def test_two_processes_fetch_every_page_once(shoal: Shell) -> None:
    """--processes 2: nothing missing, nothing twice, in pages and in rows."""
    with Site(120, latency_s=0.005) as site:
        shoal("crawl", site.url, "--processes", "2", "--select", "title=h1", "-o", "rows.csv")
        assert site.fetches() == Counter(site.urls)
        expected = sorted(f"{url},{row(number)['title']}" for number, url in enumerate(site.urls))
    header, *lines = shoal.read("rows.csv").splitlines()
    assert header == "url,title"
    assert sorted(lines) == expected


def test_two_commands_on_one_state_file_share_the_work(shoal: Shell) -> None:
    """Started at the same time, both end well and no page is fetched twice."""
    with Site(150, latency_s=0.01) as site:
        both = [shoal.start("crawl", site.url, "--state", "a.shoal", "-o", "rows.jsonl") for _ in range(2)]
        for process in both:
            _, err = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0, err
        assert site.fetches() == Counter(site.urls)
    urls = [json.loads(line)["url"] for line in shoal.read("rows.jsonl").splitlines()]
    assert Counter(urls) == Counter(site.urls)


def test_certificates_are_checked_unless_told_otherwise(shoal: Shell) -> None:
    """A certificate that nobody vouches for makes a dead letter; --insecure takes it."""
    with ScriptedServer({"/": page(b"<title>hidden</title>")}, tls=True) as server:
        shoal("crawl", server.url(), "--ignore-robots", code=1)
        assert "TLS certificate" in shoal("dead").out
        assert server.requests == []
        shoal("crawl", server.url(), "--insecure", "--fresh")
    assert [row["title"] for row in shoal.rows()] == ["hidden"]
