"""Commands on a crawl whose frontier is on Redis, and other programs that write into it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
import redis
from tests.e2e.redis_shop import INBOX, NAME, REJECTS, Shop
from tests.e2e.shell import PATIENCE_S, Shell
from tests.faults import hasty_redis
from tests.names import pid_of
from tests.servers import ScriptedServer, page
from tests.services import RedisServer
from tests.site import Site
from tests.waiting import until

from shoal.model import Limits, Link, Outcome

# --- workers --------------------------------------------------------------------------------------


def test_workers_share_a_crawl(shop: Shop):
    """Two commands, one of them with two processes: each page once, and all of them end with the crawl."""
    with Site(120, hosts=3, latency_s=0.05) as site:
        shop.scraper(site.url, scope="any", concurrency=8)
        commands = [shop.command("--drain"), shop.command("--drain", "--processes", "2")]
        workers = [shop.shoal.start(*command) for command in commands]
        for worker in workers:
            assert worker.communicate(timeout=PATIENCE_S)
        assert [worker.returncode for worker in workers] == [0, 0]
        assert Counter(shop.rows()) == Counter(site.urls) == site.fetches()
    status = shop.status()
    assert (status["done"], status["items"], status["leased"], status["finished"]) == (120, 120, 0, True)


def test_a_drained_crawl_is_finished_for_everybody(shop: Shop, site: Site):
    """One more worker says so and does nothing; without --drain it waits for more."""
    shop.scraper(site.url)
    assert "finished" in shop.drain().err
    fetches = len(site.log)
    assert "already finished: 20 pages, 20 rows" in shop.drain().err
    assert len(site.log) == fetches
    with shop.working():
        shop.client.lpush(INBOX, f"{site.url}?again")
        until(lambda: shop.stats().done == 21)


def test_a_crawl_that_others_feed_needs_no_seeds(shop: Shop, site: Site):
    """A worker waits for what is pushed, or works off what was; from there on it follows links."""
    shop.scraper(site.url, allow_private=True)
    text = shop.shoal.read("shop.py").replace(f'seeds=["{site.url}"], ', "")
    shop.shoal.write("shop.py", text)
    shop.client.lpush(INBOX, site.url)
    shop.drain()
    assert shop.stats().done == 20
    with shop.working():
        shop.client.lpush(INBOX, f"{site.url}?again")
        until(lambda: shop.stats().done == 21)


def test_a_worker_that_is_stopped_gives_back_what_it_holds(shop: Shop):
    """SIGTERM: nothing stays leased, and the next worker goes on."""
    with Site(20, latency_s=3.0) as slow:
        shop.scraper(slow.url, obey_robots=False)
        with shop.working():
            until(lambda: shop.stats().leased)
        assert (shop.stats().leased, shop.stats().losses) == (0, 0)
        assert shop.status()["workers"] == []
        slow.latency_s = 0
        shop.drain()
        assert Counter(shop.rows()) == Counter(slow.urls)


def test_rows_must_go_somewhere(shop: Shop, site: Site):
    """Redis keeps none."""
    shop.scraper(site.url)
    assert re.search("keeps no rows: say with -o where", shop.shoal.refused("worker", "shop.py", *shop.place))


def test_workers_that_differ_are_told(shop: Shop, site: Site):
    """In scope and limits: the second one hears how it differs; an equal one hears nothing."""
    shop.scraper(site.url, delay_s=0.01)
    shop.scraper(site.url, "other.py", scope="any", delay_s=0.02, deny=["/private/*"])
    with shop.working():
        equal = shop.drain()
        assert "warning" not in equal.err
        other = shop.shoal(*shop.command("--drain", file="other.py"))
        [line] = [line for line in other.err.splitlines() if "warning" in line]
        assert "running with another scope, deny, delay_s" in line


def test_what_decides_which_pages_are_the_same_must_not_differ(shop: Shop, site: Site):
    """Nor where the rows go."""
    shop.scraper(site.url)
    shop.drain()
    shop.scraper(site.url, sort_query=True)
    assert "was started with sort_query false, not true" in shop.shoal.refused(*shop.command("--drain"))
    shop.scraper(site.url)
    other = ["worker", "shop.py", *shop.place, "-o", "others.jsonl", "--drain"]
    said = shop.shoal.refused(*other)
    assert 'was started with output "rows.jsonl", not "others.jsonl": give' in said
    assert said.endswith("or another ?prefix=NAME in --frontier to keep both")


def test_fresh_starts_again(shop: Shop, site: Site):
    """The crawl and its rows are gone, and come again once."""
    shop.scraper(site.url)
    shop.drain()
    shop.drain("--fresh")
    assert Counter(shop.rows()) == Counter(site.urls)
    assert set(site.fetches().values()) == {2}


# --- heartbeats -----------------------------------------------------------------------------------


def test_workers_are_listed_with_their_rate_until_they_die(shop: Shop):
    """Host, pid, concurrency, since when, how fast; some heartbeats after a SIGKILL they are gone."""
    program = Path(hasty_redis.__file__)
    with Site(2_000, hosts=8, latency_s=0.02) as site:
        shop.scraper(site.url, scope="any", concurrency=16)
        began = time.time()
        process = subprocess.Popen(
            [sys.executable, program, "shoal.worker:TEND_S=0.3", *map(str, shop.command())],
            cwd=shop.shoal.folder,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: shop.begun(process.pid))
            until(lambda: [each for each in shop.status()["workers"] if each["pages_per_s"] > 0])
            [worker] = shop.status()["workers"]
            assert pid_of(worker["name"]) == process.pid
            assert (worker["concurrency"], worker["alive"]) == (16, True)
            assert began <= worker["since"] <= time.time()
            assert 10 < worker["pages_per_s"] < 5_000
            text = shop.shoal("status", *shop.place).out
            assert re.search(rf"worker +{re.escape(worker['name'])}: \d+ leases?, [\d.]+ pages/s", text)
        finally:
            process.kill()
            process.wait()
        until(lambda: not [each for each in shop.status()["workers"] if each["alive"]], seconds=5)
        with shop.frontier() as frontier:
            frontier.reap(worker["name"])
        assert shop.status()["workers"] == []


# --- the open door --------------------------------------------------------------------------------


def test_any_program_feeds_a_worker_that_waits(shop: Shop):
    """A URL, or a JSON object; what is no good goes to the rejects with its reason and harms nobody."""
    with ScriptedServer(lambda request: page(b"<title>x</title>")) as web:
        shop.scraper(web.url("/"), obey_robots=False)
        with shop.working():
            until(lambda: shop.stats().done == 1)
            entry = {"url": web.url("/json"), "priority": 9, "meta": {"n": 1}}
            garbage = [
                b"books",
                b"{",
                b"\xff\xfe\xfd",
                json.dumps(entry | {"priority": 11}),
                b"y" * 2_000_000,
                b'{"url": ' + b"[" * 100_000,
            ]
            shop.client.lpush(INBOX, web.url("/plain"), *garbage, json.dumps(entry))
            until(lambda: shop.stats().done == 3)
            until(lambda: shop.client.llen(REJECTS) == len(garbage))
            shop.client.lpush(INBOX, web.url("/after"))
            until(lambda: shop.stats().done == 4)
        reasons = [reject.decode() for reject in shop.client.lrange(REJECTS, 0, -1)]
        assert "not an http(s) URL: books" in reasons
        assert any("<= 9" in reason and web.url("/json") in reason for reason in reasons)
        assert max(map(len, reasons)) < 5_000
    rows = [json.loads(line) for line in shop.shoal.read("rows.jsonl").splitlines()]
    assert {row["url"]: row["meta"] for row in rows}[web.url("/json")] == {"n": 1}
    assert len(rows) == 4


def test_the_inbox_is_part_of_the_crawl(shop: Shop, site: Site):
    """What was pushed while no worker ran is fetched before the crawl is called finished."""
    shop.scraper(site.url)
    shop.drain()
    shop.client.lpush(INBOX, *["garbage"] * 1_200, f"{site.url}?pushed")
    assert not shop.status()["finished"]
    shop.drain()
    assert (shop.status()["done"], shop.client.llen(REJECTS)) == (21, 1_200)


# --- shoal add ------------------------------------------------------------------------------------


def test_urls_are_added_by_hand_with_a_priority(shop: Shop):
    """Higher priority first; known ones are counted as such."""
    with Site(1) as site:
        shop.scraper(site.url, per_host=1)
        shop.drain()
        site.log.clear()
        added = shop.shoal("add", *shop.place, f"{site.url}?low", f"{site.url}?low", site.url)
        assert added.out == "1 URL added, 2 known before\n"
        shop.shoal("add", *shop.place, f"{site.url}?high", "--priority", 9)
        shop.drain()
        assert [fetch.url for fetch in site.log if "?" in fetch.url] == [
            f"{site.url}?high",
            f"{site.url}?low",
        ]


@pytest.mark.parametrize("lines", ["{url}?a\r\n{url}?b\r\n", "{url}?a"])
def test_a_file_may_begin_with_a_byte_order_mark(shop: Shop, site: Site, lines: str):
    """Editors of Windows write one: it is no part of the first URL."""
    shop.scraper(site.url)
    shop.drain()
    content = lines.format(url=site.url)
    (shop.shoal.folder / "urls.txt").write_bytes(b"\xef\xbb\xbf" + content.encode())
    added = shop.shoal("add", *shop.place, "--from", "urls.txt")
    assert added.out.startswith(f"{len(content.split())} URL")
    assert "rejected" not in added.out


def test_a_file_with_garbage_in_it(shop: Shop, site: Site):
    """The rest goes in; the garbage is counted, and kept with its reasons in a file beside it."""
    shop.scraper(site.url)
    shop.drain()
    lines = [
        "# ours",
        f"{site.url}?a",
        "",
        "  ",
        "books",
        '{"url": "http://x.test/", "priority": 12}',
        f"{site.url}?b",
    ]
    (shop.shoal.folder / "urls.txt").write_bytes("\r\n".join(lines).encode() + b"\n\xff\n" + b"z" * 2_500_000)
    added = shop.shoal("add", *shop.place, "--from", "urls.txt")
    assert re.fullmatch(
        r"2 URLs added, 0 known before, 6 lines rejected \(see urls\.txt\.rejects\)\n", added.out
    )
    rejects = (shop.shoal.folder / "urls.txt.rejects").read_bytes().splitlines()
    assert rejects[0] == b"books\tnot an http(s) URL"
    assert b"<= 9" in rejects[1]
    assert shop.status()["queued"] == 2


BAD_SOURCES = {
    "no such file": (["--from", "none.txt"], r"cannot read none\.txt: No such file"),
    "a folder": (["--from", "."], r"cannot read \.: Is a directory"),
    "nothing": ([], r"which URLs\? Give URLs, --from FILE or --sitemap URL"),
    "no URL": (["books"], r"not an http\(s\) URL: 'books'"),
    "no sitemap": (["--sitemap", "http://127.0.0.1:1/sitemap.xml"], r"cannot read the sitemap http://127"),
    "bad priority": (["http://a.test/", "--priority", "10"], r"10 is not in the range 0<=x<=9"),
}


@pytest.mark.parametrize("case", BAD_SOURCES)
def test_sources_that_cannot_be_read(shop: Shop, site: Site, case: str):
    """One line says which, and the crawl is not kept open."""
    shop.scraper(site.url)
    shop.drain()
    options, message = BAD_SOURCES[case]
    assert re.search(message, shop.shoal.refused("add", *shop.place, *options))
    assert shop.status()["finished"]


@pytest.mark.slow
def test_a_hundred_thousand_lines_wait_for_room(shop: Shop):
    """They stream, in little memory: hardly more than --max-queued are queued, and the crawl stays open."""
    lines, most = 100_000, 5_000
    path = shop.shoal.folder / "urls.txt"
    with path.open("w") as file:
        file.writelines(f"http://h{n % 50}.test/some/path/to/page/{n}\n" for n in range(lines))
    with shop.frontier() as frontier:
        frontier.configure(Limits(per_host=10_000))
        frontier.add([Link(f"http://h{n}.test/") for n in range(50)])
        commit_all(frontier)
        adding = shop.shoal.start("add", *shop.place, "--from", "urls.txt", "--max-queued", most)
        peak_bytes, peak_queued = 0, 0
        until(lambda: frontier.stats().producers or adding.poll() is not None)
        while adding.poll() is None:
            peak_bytes = max(peak_bytes, resident(adding.pid))
            stats = frontier.stats()
            peak_queued = max(peak_queued, stats.queued)
            assert not stats.finished or not stats.producers
            commit_all(frontier, 1_500)
        out, err = adding.communicate()
        commit_all(frontier)
        assert (adding.returncode, out, err) == (0, f"{lines:,} URLs added, 0 known before\n", "")
        assert peak_queued <= most + 1_000
        assert peak_queued > most * 3 // 4  # it did wait
        assert peak_bytes < 100e6
        assert (frontier.stats().done, frontier.stats().finished) == (lines + 50, True)


def commit_all(frontier, most: int = 10**9) -> None:
    """What a worker does, without fetching anything."""
    while most > 0 and (leases := frontier.lease(500, 60, worker="ann").leases):
        frontier.commit([Outcome(lease, "done") for lease in leases])
        most -= len(leases)


def resident(pid: int) -> int:
    """Bytes of memory; 0 if it has ended."""
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return 0


def test_an_open_pipe_keeps_the_crawl_open_and_is_read_as_it_comes(shop: Shop, site: Site):
    """A worker with --drain waits for its end; what is written is fetched at once, not when there is more."""
    shop.scraper(site.url)
    adding = shop.shoal.start("add", *shop.place, "--from", "-", stdin=subprocess.PIPE)
    assert adding.stdin is not None
    try:
        assert "there is no crawl" in adding.communicate(timeout=PATIENCE_S)[1]
        shop.drain()
        adding = shop.shoal.start("add", *shop.place, "--from", "-", stdin=subprocess.PIPE)
        until(lambda: shop.stats().producers)
        worker = shop.shoal.start(*shop.command("--drain"))
        for n in (21, 22):
            adding.stdin.write(f"{site.url}?{n}\n")
            adding.stdin.flush()
            until(lambda n=n: shop.stats().done == n, seconds=5)
        time.sleep(0.3)
        assert worker.poll() is None
        assert not shop.status()["finished"]
    finally:
        out, _ = adding.communicate()
    assert out == "2 URLs added, 0 known before\n"
    assert worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 0


def test_a_worker_that_starts_leaves_the_limit_of_producers_alone(shop: Shop, site: Site):
    """--max-queued holds until another one is given."""
    shop.scraper(site.url)
    shop.drain()
    shop.shoal("add", *shop.place, site.url, "--max-queued", 77)
    shop.drain()
    with shop.frontier() as frontier:
        assert frontier.limits.max_queued == 77


def test_a_producer_waits_while_redis_is_away(shoal: Shell, site: Site):
    """It goes on where it was, and nothing that it has read is lost."""
    with RedisServer(appendonly=True) as server:
        shop = Shop(shoal, server.url, server.client())
        shop.scraper(site.url)
        shop.drain()
        time.sleep(1.1)  # until that is on disk
        adding = shop.shoal.start("add", *shop.place, "--from", "-", stdin=subprocess.PIPE)
        until(lambda: shop.stats().producers)
        assert adding.stdin is not None
        server.kill()
        adding.stdin.write("".join(f"{site.url}?{n}\n" for n in range(1_500)))  # a pipe holds all of them
        adding.stdin.close()
        assert adding.stderr is not None
        assert "cannot be used just now" in adding.stderr.readline()  # before it is back
        server.start()
        adding.stdin = None
        out, _ = adding.communicate(timeout=PATIENCE_S)
        assert (adding.returncode, out) == (0, "1,500 URLs added, 0 known before\n")
        assert shop.stats().queued == 1_500


def test_a_sitemap_is_added(shop: Shop):
    """With those that it lists."""
    xml = '<?xml version="1.0"?><{0} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{1}</{0}>'
    with ScriptedServer({}) as web:
        urls = "".join(f"<url><loc>{web.url(f'/{n}')}</loc></url>" for n in range(3))
        index = f"<sitemap><loc>{web.url('/one.xml')}</loc></sitemap>"
        web._routes = {
            "/": page(b"x"),
            "/index.xml": page(
                xml.format("sitemapindex", index).encode(), "200 OK", "Content-Type: text/xml"
            ),
            "/one.xml": page(xml.format("urlset", urls).encode(), "200 OK", "Content-Type: text/xml"),
        }
        shop.scraper(web.url("/"))
        shop.drain()
        added = shop.shoal("add", *shop.place, "--sitemap", web.url("/index.xml"))
        assert added.out == "3 URLs added, 0 known before\n"
        assert shop.status()["queued"] == 3


# --- looking at it --------------------------------------------------------------------------------


def test_status_tells_all_counters(shop: Shop, site: Site):
    """As text and as JSON."""
    shop.scraper(site.url, max_pages=5)
    shop.drain()
    shop.shoal("add", *shop.place, f"{site.url}?x", "--priority", 7)
    status = shop.status()
    assert status["crawl"] == NAME
    assert (status["done"], status["items"], status["fetches"], status["leased"]) == (5, 5, 5, 0)
    assert status["by_priority"][7] == 1
    assert status["queued"] == sum(status["by_priority"]) == status["seen"] - 5
    assert 0 <= status["oldest_s"] < 120
    expected = {
        "delayed",
        "dead",
        "skipped",
        "hosts",
        "ready_hosts",
        "retrying",
        "producers",
        "paused",
        "workers",
    }
    assert expected <= status.keys()
    text = shop.shoal("status", *shop.place).out
    assert "by priority: 7: 1, 0: " in text
    assert re.search(r"queued +\d+ \(0 delayed, 0 retrying\), the oldest for up to 0:0[0-2]:00", text)


def test_status_is_watched(shop: Shop, site: Site):
    """It is printed again and again, until Ctrl-C."""
    shop.scraper(site.url)
    shop.drain()
    watching = shop.shoal.start("status", *shop.place, "--watch", "--json")
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    shop.shoal("add", *shop.place, f"{site.url}?x")
    second = json.loads(watching.stdout.readline())
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=PATIENCE_S)
    assert watching.returncode == 130
    assert (first["queued"], second["queued"]) == (0, 1)


def test_the_environment_names_the_frontier(shop: Shop, site: Site, monkeypatch):
    """SHOAL_FRONTIER, for all commands."""
    shop.scraper(site.url)
    shop.drain()
    process = subprocess.run(
        [sys.executable, "-m", "shoal", "status", "--json"],
        cwd=shop.shoal.folder,
        env=os.environ | {"SHOAL_FRONTIER": shop.url},
        capture_output=True,
        check=True,
    )
    assert json.loads(process.stdout)["done"] == 20


def test_several_crawls_share_a_redis(shop: Shop, site: Site):
    """Commands ask which one, unless there is only one."""
    shop.scraper(site.url)
    shop.drain()
    shop.shoal("crawl", site.url, *shop.place, "-o", "others.jsonl")
    message = shop.shoal.refused("status", *shop.place)
    assert re.search(rf"has several crawls, name one with --crawl: 127\.0\.0\.1:{site.port}, {NAME}", message)
    assert shop.shoal.status(*shop.place, "--crawl", NAME)["done"] == 20
    refusal = shop.shoal.refused("status", *shop.place, "--crawl", "none")
    assert "has no crawl 'none'" in refusal
    assert f"'{NAME}'" in refusal


def test_why_tells_what_became_of_a_url(shop: Shop):
    """Queued, dead, skipped, done, never seen."""
    with Site(3, extras=["/status/410", "/private/a"]) as site:
        shop.scraper(site.url)
        shop.drain()
        shop.shoal("add", *shop.place, f"{site.url}?x", "--priority", 3)

        def why(url: str, code: int = 0) -> dict[str, object]:
            [found] = shop.shoal("why", "--json", url, *shop.place, code=code).objects
            return found

        assert why(site.url)["state"] == "done"
        assert (why(f"{site.url}?x")["state"], why(f"{site.url}?x")["priority"]) == ("queued", 3)
        assert (why(f"{site.url}status/410")["state"], why(f"{site.url}status/410")["status"]) == (
            "dead",
            410,
        )
        assert why(f"{site.url}private/a")["reason"] == "robots.txt"
        assert why(f"{site.url}none", code=1)["state"] is None
        assert "state        dead" in shop.shoal("why", f"{site.url}status/410", *shop.place).out


def test_dead_letters_are_listed_and_redriven(shop: Shop):
    """By all, by reason, by host, by URL."""
    with Site(1, extras=["/status/404", "/status/410", "/flaky/1/x"]) as site:
        shop.scraper(site.url, retries=0)
        shop.drain()
        letters = shop.shoal("dead", "--json", *shop.place).objects
        assert {letter["reason"] for letter in letters} == {"HTTP 404", "HTTP 410", "HTTP 503"}
        assert [
            e["url"] for e in shop.shoal("dead", "--json", "--reason", "HTTP 410", *shop.place).objects
        ] == [f"{site.url}status/410"]
        assert shop.shoal("redrive", "--reason", "HTTP 503", *shop.place).out.startswith("1 queued again")
        assert (shop.stats().queued, shop.stats().dead) == (1, 2)
        shop.drain()
        assert f"{site.url}flaky/1/x" in shop.rows()
        assert shop.shoal("redrive", f"{site.url}status/404", *shop.place).out.startswith("1 queued again")
        assert shop.shoal("redrive", "--all", *shop.place).out.startswith("1 queued again")


def test_a_forgotten_page_is_fetched_again(shop: Shop, site: Site):
    """Though workers that are running have known it; its rows stay in the file."""
    shop.scraper(site.url)
    with shop.working():
        until(lambda: shop.stats().done == 20)
        url = site.page_url(1)
        assert "its rows stay in rows.jsonl" in shop.shoal("forget", url, *shop.place).out
        assert shop.stats().done == 19
        shop.client.lpush(INBOX, f"{site.url}?links-to-it")
        with shop.frontier() as frontier:  # a page that links to it is done again
            frontier.forget(site.url)
            frontier.add([Link(site.url)])
        until(lambda: site.fetches()[url] == 2)


def test_a_paused_crawl_starts_nothing_until_it_is_resumed(shop: Shop, site: Site):
    """Workers that are running obey at once, and go on at once."""
    shop.scraper(site.url)
    with shop.working():
        until(lambda: shop.stats().done == 20)
        assert "is paused" in shop.shoal("pause", *shop.place).out
        shop.shoal("add", *shop.place, f"{site.url}?x")
        time.sleep(0.3)
        assert (shop.status()["queued"], shop.status()["paused"]) == (1, True)
        assert "is paused: let it go on with `shoal resume --frontier" in shop.shoal.refused(*shop.command())
        shop.shoal("resume", *shop.place)
        until(lambda: shop.stats().done == 21, seconds=3)


def test_export_reads_the_rows_where_they_are(shop: Shop, site: Site):
    """They are not in Redis, which knows where."""
    shop.scraper(site.url)
    shop.drain()
    stored = (shop.shoal.folder / "rows.jsonl").read_text()
    assert sorted(shop.shoal("export", *shop.place).out.splitlines()) == sorted(stored.splitlines()) != []


# --- moving ---------------------------------------------------------------------------------------


def test_a_crawl_moves_to_redis_and_back_in_the_middle(shop: Shop):
    """State, limits and rows: each page is fetched once, wherever it was."""
    with Site(90, hosts=2, extras=["/status/404"]) as site:
        shop.scraper(site.url, scope="any")
        output = ("-o", "rows.jsonl")
        shop.shoal("run", "shop.py", *output, "--state", "a.shoal", "--max-pages", 30)
        moved = shop.shoal("migrate", "sqlite:a.shoal", shop.url)
        assert f"the crawl '{NAME}' is now in {shop.url}" in moved.out
        assert shop.status()["done"] == 30
        for command in (["run", "shop.py", *output], ["resume"], ["add", site.url]):
            refusal = shop.shoal(*command, "--state", "a.shoal", code=2).err
            assert f"the crawl '{NAME}' was moved to {shop.url}: go on there" in refusal
        assert f"(moved to {shop.url})" in shop.shoal("status", "--state", "a.shoal").out
        assert "was moved to" in shop.shoal("migrate", "sqlite:a.shoal", "sqlite:c.shoal", code=2).err
        shop.drain("--max-pages", 60)
        shop.shoal("migrate", shop.url, "sqlite:b.shoal")
        assert "was moved to b.shoal" in shop.shoal.refused(*shop.command("--drain"))
        shop.shoal("run", "shop.py", *output, "--state", "b.shoal")
        status = shop.shoal.status("--state", "b.shoal")
        assert (status["done"], status["dead"], status["items"], status["finished"]) == (90, 1, 90, True)
        assert Counter(shop.rows()) == Counter(site.urls)
        pages = {url: fetches for url, fetches in site.fetches().items() if "/status/" not in url}
        assert set(pages.values()) == {1}
        assert site.fetches()[f"{site.url}status/404"] == 1


def test_a_crawl_moves_while_a_worker_is_at_work(shop: Shop):
    """It is waited for, says where the crawl is now, and ends; nothing is fetched twice."""
    with Site(60, latency_s=0.1) as site:  # so that it takes seconds
        shop.scraper(site.url, per_host=2)
        with shop.working() as worker:
            until(lambda: shop.stats().done > 10)
            shop.shoal("migrate", shop.url, "sqlite:a.shoal")
            said = worker.communicate(timeout=60)[1]
            assert worker.returncode == 2
            assert f"shoal: the crawl '{NAME}' was moved to a.shoal: go on there" in said
        assert shop.shoal.status("--state", "a.shoal")["done"] < 60
        shop.shoal("run", "shop.py", "-o", "rows.jsonl", "--state", "a.shoal")
        assert Counter(shop.rows()) == Counter(site.urls) == site.fetches()


def test_a_crawl_that_was_moved_may_go_on_where_it_was(shop: Shop):
    """If its copy is given up: `resume --anyway`."""
    with Site(20) as site:
        shop.scraper(site.url)
        state = ("-o", "rows.jsonl", "--state", "a.shoal")
        shop.shoal("run", "shop.py", *state, "--max-pages", 5)
        shop.shoal("migrate", "sqlite:a.shoal", shop.url)
        shop.shoal("resume", "--anyway", "--state", "a.shoal")
        shop.shoal("run", "shop.py", *state)
        assert Counter(shop.rows()) == Counter(site.urls) == site.fetches()


def test_a_crawl_does_not_move_onto_another_one(shop: Shop, site: Site):
    """Both stay as they are."""
    shop.scraper(site.url)
    shop.drain()
    shop.shoal("run", "shop.py", "-o", "b.jsonl", "--state", "a.shoal", "--max-pages", 3)
    message = shop.shoal.refused("migrate", "sqlite:a.shoal", shop.url)
    assert "there is a crawl of this name already" in message
    assert (shop.status()["done"], shop.shoal.status("--state", "a.shoal")["paused"]) == (20, False)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_move_that_is_cut_off_loses_nothing(shop: Shop, number: signal.Signals):
    """A killed one leaves a part that nobody may work on; any other undoes it. The same command moves all."""
    with Site(1) as site:
        shop.scraper(site.url)
        shop.shoal("run", "shop.py", "-o", "rows.jsonl", "--state", "a.shoal")
        path = shop.shoal.folder / "urls.txt"
        path.write_text("".join(f"http://h{n % 50}.test/{n}\n" for n in range(20_000)))
        shop.shoal("add", "--state", "a.shoal", "--from", "urls.txt")
        moving = shop.shoal.start("migrate", "sqlite:a.shoal", shop.url)
        until(lambda: shop.client.hget(f"shoal:{{{NAME}}}:crawl", "known"))
        moving.send_signal(number)
        moving.communicate()
        killed = number == signal.SIGKILL
        assert moving.returncode == (-number if killed else 130)
        assert shop.shoal.status("--state", "a.shoal")["paused"] is killed
        assert shop.shoal.status("--state", "a.shoal")["queued"] == 20_000
        if killed:
            assert 0 < shop.stats().queued < 20_000
            for command in (["resume", *shop.place], ["add", site.url, *shop.place], shop.command("--drain")):
                assert "is not all here" in shop.shoal.refused(*command)
        else:
            assert shop.stats().seen == 0
        shop.shoal("migrate", "sqlite:a.shoal", shop.url)
        status = shop.status()
        assert (status["queued"], status["done"], status["paused"]) == (20_000, 1, False)
        assert "moving" not in shop.client.hget(f"shoal:{{{NAME}}}:crawl", "description").decode()


def test_threads_of_a_program_may_push_while_workers_come_and_go(shop: Shop):
    """Everything that was pushed is fetched, once."""
    with ScriptedServer(lambda request: page(b"x")) as web:
        shop.scraper(web.url("/"), obey_robots=False)

        def push(part: int) -> None:
            with redis.Redis.from_url(shop.url) as client:
                for n in range(part * 100, part * 100 + 100):
                    client.lpush(INBOX, web.url(f"/{n}"))
                    time.sleep(0.001)

        shop.drain()
        threads = [threading.Thread(target=push, args=(part,)) for part in range(3)]
        with shop.working():
            for thread in threads:
                thread.start()
            until(lambda: shop.stats().done > 20)
        with shop.working():
            for thread in threads:
                thread.join()
            until(lambda: shop.stats().done == 301)
        fetched = Counter(request.target for request in web.requests)
        assert fetched == Counter(["/", *(f"/{n}" for n in range(300))])
