"""The cache for development: responses are kept, and answered from, without anybody being asked again."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from tests.e2e.shell import Shell
from tests.servers import Pause, Reply, Request, ScriptedServer, page, reply
from tests.site import Site


def _crawl(shoal: Shell, url: str, *options: object, code: int = 0) -> list[dict[str, object]]:
    """Crawl from the start with the cache; returns the rows, without what differs from run to run."""
    shoal("crawl", url, "--fresh", "--cache", "kept", "--state", "a.shoal", *options, code=code)
    rows = shoal.rows("--state", "a.shoal")
    return sorted(({**row, "fetched_at": ""} for row in rows), key=lambda row: str(row["url"]))


def test_the_second_run_asks_nobody(shoal: Shell) -> None:
    """Pages, redirects, missing pages and robots.txt; it gives the same rows, with several processes too."""
    with Site(20, extras=["/go/3", "/status/404", "/status/410", "/private/x"]) as site:
        first = _crawl(shoal, site.url)
        asked = Counter(fetch.url for fetch in site.log)
        second = _crawl(shoal, site.url, "--processes", "2")
        assert Counter(fetch.url for fetch in site.log) == asked
    assert len(first) == 20
    assert second == first
    third = _crawl(shoal, site.url)  # the site is gone
    assert third == first


def test_a_crawl_out_of_the_cache_waits_for_nobody(shoal: Shell) -> None:
    """Neither for the delay nor for what robots.txt asks for; whoever is asked is still asked slowly."""
    robots = "User-agent: *\nCrawl-delay: 0.3\n"
    with Site(4, robots=robots) as site:
        _crawl(shoal, site.url, "--max-pages", "2")
        began = time.monotonic()
        _crawl(shoal, site.url, "--delay", "0.5")
        assert time.monotonic() - began > 0.5  # two pages are new
        at = [fetch.at for fetch in site.log][-2:]
        assert at[1] - at[0] > 0.3  # a request may be held up on its way
        _crawl(shoal, site.url, "--delay", "1000")


def test_errors_are_not_kept(shoal: Shell) -> None:
    """What may be otherwise next time is asked for again: no answer, 5xx, 429, 401, 403, a broken body."""
    broken = reply(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx")
    bad = {
        f"/{status[:3]}": page(b"", status) for status in ("500 No", "503 No", "429 No", "401 No", "403 No")
    }
    bad["/broken"] = broken
    good = {"/": page("".join(f"<a href={path}>x</a>" for path in bad).encode())}
    with ScriptedServer({**good, **bad}) as server:
        _crawl(shoal, server.url(), "--retries", "0")
        _crawl(shoal, server.url(), "--retries", "0")
        counts = Counter(request.target for request in server.requests)
    assert counts == Counter({"/": 1, "/robots.txt": 1} | dict.fromkeys(bad, 2))


def test_what_differs_in_who_asks_is_kept_apart(shoal: Shell) -> None:
    """Other credentials, headers, user agents: nobody gets what somebody else was shown."""

    def whoever(request: Request) -> Reply:
        shown = (request.headers.get(name, "") for name in ("authorization", "x-a", "user-agent"))
        return page(f"<title>{' '.join(shown)}</title>".encode())

    with ScriptedServer(whoever) as server:
        everybody = [
            (),
            ("--auth", f"{server.address}=user:one"),
            ("--auth", f"{server.address}=user:two"),
            ("--auth", f"{server.address}=bearer t"),
            ("--header", "X-A: 1"),
            ("--header", "X-A: 2"),
            ("--user-agent", "other/1"),
        ]
        first = [_crawl(shoal, server.url(), *options)[0]["title"] for options in everybody]
        asked = len(server.requests)
        second = [_crawl(shoal, server.url(), *options)[0]["title"] for options in everybody]
        assert len(server.requests) == asked
    assert len(set(first)) == len(everybody)
    assert second == first


def test_a_page_that_its_handler_takes_for_that_of_strangers_is_not_kept(shoal: Shell) -> None:
    """After the new login it is asked for again; out of the cache nobody has to log in."""
    cookies = iter(["old", "new"])

    def site(request: Request) -> Reply:
        if request.target == "/login":
            return page(b"", "200 OK", f"Set-Cookie: session={next(cookies)}; Path=/")
        return page(b"<h1>in</h1>" if "new" in request.headers.get("cookie", "") else b"<h1>out</h1>")

    with ScriptedServer(site) as server:
        shoal.write(
            "members.py",
            f"""
            import shoal

            crawl = shoal.Crawl("members", seeds=["{server.url()}"], cache="kept", retry_delay_s=0.001)

            @crawl.login
            async def login(session):
                await session.get("{server.url("/login")}")

            @crawl.page()
            def row(page):
                if page.css("h1::text").get() == "out":
                    raise shoal.LoggedOut
                yield {{"h1": page.css("h1::text").get()}}
            """,
        )
        shoal("run", "members.py", "--strict")
        assert shoal.rows() == [{"h1": "in"}]
        asked = len(server.requests)
        shoal("run", "members.py", "--strict", "--fresh")
        assert shoal.rows() == [{"h1": "in"}]
        assert len(server.requests) == asked


def test_a_crawl_that_is_killed_leaves_no_half_responses(shoal: Shell) -> None:
    """It is killed again and again; what was kept by then is whole."""
    body = b"<title>x</title>" + b"y" * 500_000
    links = b"".join(b"<a href=/%d>x</a>" % number for number in range(30))
    with ScriptedServer(
        lambda request: page(body + links) if request.target != "/robots.txt" else page()
    ) as server:
        for delay_s in (0.5, 0.7, 0.9, 1.1):
            process = shoal.start("crawl", server.url(), "--cache", "kept", "--state", "k.shoal", "--fresh")
            time.sleep(delay_s)
            process.kill()
            process.communicate()
        first = _crawl(shoal, server.url())
        asked = len(server.requests)
        assert _crawl(shoal, server.url()) == first
        assert len(server.requests) == asked
    assert {row["text_length"] for row in first} == {len(body + links)}
    assert len(first) == 31


def test_a_damaged_file_is_as_good_as_none(shoal: Shell) -> None:
    """Cut off, empty, or anything else: the page is asked for again."""
    damages = [lambda c: c[:-1], lambda c: b"", lambda c: b"{}", lambda c: b"\0" * 50, lambda c: c + b"x"]
    with Site(len(damages)) as site:
        first = _crawl(shoal, site.url)
        asked = len(site.log)
        files = [path for path in (shoal.folder / "kept").glob("*/*") if path.is_file()]
        assert len(files) == len(damages) + 1
        for path, damage in zip(files, damages, strict=False):
            path.write_bytes(damage(path.read_bytes()))
        assert _crawl(shoal, site.url) == first
        assert len(site.log) == asked + len(damages)


def test_settings_that_ask_for_more_or_less_of_a_page_hold(shoal: Shell) -> None:
    """Types of content and the size of bodies, as if there was no cache."""
    scraper = """
        import shoal

        crawl = shoal.Crawl("types", seeds=["{url}"], cache="kept", retries=0, {settings})

        @crawl.page()
        def row(page):
            yield {{"size": len(page.body)}}
        """
    with ScriptedServer({"/": page(b"x" * 1000, "200 OK", "Content-Type: application/pdf")}) as server:
        outcomes = []
        for settings in (
            "",
            "content_types=['application/pdf']",
            "",
            "content_types=['*'], max_body_bytes=999",
            "content_types=['*']",
        ):
            shoal.write("types.py", scraper.format(url=server.url(), settings=settings))
            shoal("run", "types.py", "--fresh", code=1 if "bytes" in settings or not settings else 0)
            outcomes.append((shoal.rows(), server.count("/")))
    assert outcomes == [([], 1), ([{"size": 1000}], 2), ([], 2), ([], 3), ([{"size": 1000}], 3)]


def test_only_its_owner_may_read_the_cache(shoal: Shell) -> None:
    """Pages behind a login are in it."""
    with Site(1) as site:
        _crawl(shoal, site.url)
    kept = shoal.folder / "kept"
    assert {path.stat().st_mode & 0o077 for path in (kept, *kept.rglob("*"))} == {0}


@pytest.mark.parametrize("where", ["file", "file/below"])
def test_a_cache_that_cannot_be_is_refused(shoal: Shell, where: str) -> None:
    """In one line."""
    shoal.write("file", "")
    assert shoal.refused("crawl", "http://127.0.0.1:9/", "--cache", where).startswith(
        f"the cache {where} cannot be used: "
    )


def test_a_slow_page_is_quick_the_second_time(shoal: Shell) -> None:
    """Nothing of its latency is kept."""
    slow = Reply([Pause(0.5), *page(b"x").steps], keep=False)
    with ScriptedServer({"/": slow}) as server:
        _crawl(shoal, server.url())
        _crawl(shoal, server.url())
        assert server.count("/") == 1
    assert shoal("why", server.url(), "--state", "a.shoal", "--json").objects[0]["state"] == "done"


@pytest.mark.parametrize("validators", ["etag", "last-modified", None])
def test_a_page_that_is_visited_again_is_asked_for_at_its_site(shoal: Shell, validators: Any) -> None:
    """With its conditions, if it has any; what has changed is found, and kept from then on."""
    run = ("--revisit", "0.05s", "--cache", "kept", "--select", "title=h1")
    with Site(5, validators=validators) as site:
        shoal("crawl", site.url, *run, "--state", "a.shoal")
        first, asked = shoal.rows("--state", "a.shoal"), len(site.log)
        shoal("crawl", site.url, *run, "--fresh", "--state", "other.shoal")
        assert [fetch.url for fetch in site.log[asked:]] == [site.url + "robots.txt"]

        asked = len(site.log)
        site.editions.update([3])
        time.sleep(0.1)
        shoal("crawl", site.url, *run, "--state", "a.shoal")
        again = [fetch for fetch in site.log[asked:] if fetch.url in site.urls]
        assert sorted(fetch.url for fetch in again) == sorted(site.urls)
        conditions = {"etag": "if-none-match", "last-modified": "if-modified-since"}
        if validators is not None:
            assert all(conditions[validators] in fetch.headers for fetch in again)
        titles = {row["url"]: row["title"] for row in shoal.rows("--state", "a.shoal")}
        assert titles[site.page_url(3)].endswith("edition 1")
        assert titles != {row["url"]: row["title"] for row in first}

        asked = len(site.log)
        shoal(
            "crawl", site.url, "--cache", "kept", "--select", "title=h1", "--fresh", "--state", "third.shoal"
        )
        assert len(site.log) == asked
        assert {row["url"]: row["title"] for row in shoal.rows("--state", "third.shoal")} == titles
