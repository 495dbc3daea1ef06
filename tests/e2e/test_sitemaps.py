"""Sitemaps and feeds as places to start from, and those that robots.txt names."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest
from tests.e2e.shell import Shell
from tests.servers import Reply, Request, ScriptedServer, page


def _urlset(*entries: str) -> bytes:
    urls = "".join(f"<url><loc>{entry}</loc></url>" for entry in entries)
    return f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/">{urls}</urlset>'.encode()


def _index(*entries: str) -> bytes:
    urls = "".join(f"<sitemap><loc>{entry}</loc></sitemap>" for entry in entries)
    return f"<sitemapindex>{urls}</sitemapindex>".encode()


def _xml(body: bytes, kind: str = "application/xml") -> Reply:
    return page(body, "200 OK", f"Content-Type: {kind}")


def _html(*links: str) -> Reply:
    return page("".join(f'<a href="{link}">x</a>' for link in links).encode() + b"<h1>t</h1>")


@pytest.fixture
def site() -> object:
    """A server that tests script."""
    with ScriptedServer({"/robots.txt": page(b"", "404 Not Found")}) as server:
        yield server


def _fetched(site: ScriptedServer) -> list[str]:
    """Paths, robots.txt left out, in no particular order."""
    return sorted(request.target for request in site.requests if request.target != "/robots.txt")


def test_a_crawl_starts_from_a_sitemap(shoal: Shell, site: ScriptedServer) -> None:
    """With all that an index names, packed or not, and the links of its pages; a sitemap gives no row."""
    site._routes |= {
        "/sitemap.xml": _xml(_index("/one.xml.gz", "/two.txt", "/feed")),
        "/one.xml.gz": _xml(gzip.compress(_urlset("/a")), "application/gzip"),
        "/two.txt": _xml(f"{site.url('/b')}\n".encode(), "text/plain"),
        "/feed": _xml(b"<rss><channel><item><link>/c</link></item></channel></rss>", "application/rss+xml"),
        **{path: _html("/d") for path in ("/a", "/b", "/c")},
        "/d": _html(),
    }
    shoal("crawl", "--sitemap", site.url("/sitemap.xml"))
    assert _fetched(site) == ["/a", "/b", "/c", "/d", "/feed", "/one.xml.gz", "/sitemap.xml", "/two.txt"]
    assert sorted((row["url"], row["depth"]) for row in shoal.rows()) == [
        (site.url("/a"), 0),
        (site.url("/b"), 0),
        (site.url("/c"), 0),
        (site.url("/d"), 1),
    ]
    told = shoal("why", site.url("/sitemap.xml")).out
    assert "sitemap" in told
    assert "done" in told


def test_a_sitemap_besides_a_seed(shoal: Shell, site: ScriptedServer) -> None:
    """--depth 0 takes what the sitemap lists and follows no links."""
    site._routes |= {
        "/": _html("/linked"),
        "/s.xml": _xml(_urlset("/a", "http://127.0.0.9:1/elsewhere")),
        "/a": _html("/linked"),
        "/linked": _html(),
    }
    shoal("crawl", site.url("/"), "--sitemap", site.url("/s.xml"), "--depth", 0)
    assert _fetched(site) == ["/", "/a", "/s.xml"]


def test_sitemaps_that_robots_txt_names(shoal: Shell, site: ScriptedServer) -> None:
    """They are read if that is asked for; the pages that it closes stay closed."""
    rules = "User-agent: *\nDisallow: /no\nSitemap: {0}\nSitemap: {1}\n"
    site._routes |= {
        "/robots.txt": page(rules.format(site.url("/s.xml"), site.url("/missing.xml")).encode()),
        "/": _html(),
        "/s.xml": _xml(_urlset("/a", "/no")),
        "/missing.xml": page(b"", "404 Not Found"),
        "/a": _html(),
    }
    shoal("crawl", site.url("/"))
    assert _fetched(site) == ["/"]
    shoal("crawl", site.url("/"), "--robots-sitemaps", "--state", "other.shoal")
    assert _fetched(site) == ["/", "/", "/a", "/missing.xml", "/s.xml"]
    dead = shoal("dead", "--json", "--state", "other.shoal").objects
    assert [(letter["url"], letter["reason"]) for letter in dead] == [(site.url("/missing.xml"), "HTTP 404")]
    assert [letter["url"] for letter in shoal("skipped", "--json", "--state", "other.shoal").objects] == [
        site.url("/no")
    ]


def test_a_scraper_says_where_its_sitemaps_are(shoal: Shell, site: ScriptedServer) -> None:
    """And a handler may find more: a link with the key "sitemap"."""
    site._routes |= {
        "/s.xml": _xml(_urlset("/a")),
        "/a": _html(),
        "/more.xml": _xml(_urlset("/b")),
        "/b": _html(),
    }
    shoal.write(
        "scraper.py",
        f"""
        import shoal

        crawl = shoal.Crawl("s", sitemaps=[{site.url("/s.xml")!r}])

        @crawl.page("/a")
        def first(page):
            yield shoal.Link("/more.xml", key="sitemap")
        """,
    )
    shoal("run", "scraper.py")
    assert _fetched(site) == ["/a", "/b", "/more.xml", "/s.xml"]


def test_priorities_of_sitemaps(shoal: Shell, site: ScriptedServer) -> None:
    """Those of higher priority are fetched first."""
    urls = "".join(f"<url><loc>/{n}</loc><priority>0.{n}</priority></url>" for n in (3, 7, 1, 9, 5))
    site._routes |= {
        "/s.xml": _xml(f"<urlset>{urls}</urlset>".encode()),
        **{f"/{n}": _html() for n in range(10)},
    }
    shoal("crawl", "--sitemap", site.url("/s.xml"), "--sitemap-priority", "--per-host", 1)
    assert [request.target for request in site.requests][2:] == ["/9", "/7", "/5", "/3", "/1"]


def test_a_sitemap_is_tried_again_and_may_redirect(shoal: Shell, site: ScriptedServer) -> None:
    """As any page."""

    def flaky(request: Request) -> Reply:
        if site.count("/s.xml") == 1:
            return page(b"", "503 Service Unavailable")
        return page(b"", "301 Moved Permanently", "Location: /new.xml")

    answers: dict[str, Callable[[Request], Reply] | Reply] = {
        "/s.xml": flaky,
        "/new.xml": _xml(_urlset("/a")),
        "/a": _html(),
    }
    site._routes |= answers
    shoal("crawl", "--sitemap", site.url("/s.xml"))
    assert _fetched(site) == ["/a", "/new.xml", "/s.xml", "/s.xml"]


def test_a_sitemap_larger_than_a_page_may_be(shoal: Shell, site: ScriptedServer) -> None:
    """It is read up to 50 MB, whatever the limit for pages."""
    site._routes |= {"/s.xml": _xml(_urlset("/a") + b" " * 12_000_000), "/a": _html()}
    shoal("crawl", "--sitemap", site.url("/s.xml"))
    assert _fetched(site) == ["/a", "/s.xml"]


def test_a_sitemap_that_is_none(shoal: Shell, site: ScriptedServer) -> None:
    """It lists nothing, which is told; one that is not there is told as a seed is."""
    site._routes |= {"/s.xml": _html("/a"), "/x.xml": page(b"", "404 Not Found")}
    ended = shoal("crawl", "--sitemap", site.url("/s.xml"), "--sitemap", site.url("/x.xml"))
    assert f"{site.url('/s.xml')} lists no pages that belong to the crawl" in ended.err
    assert f"the sitemap {site.url('/x.xml')} could not be fetched: HTTP 404" in ended.err


def test_what_is_added_as_a_sitemap_may_be_none(shoal: Shell, site: ScriptedServer) -> None:
    """`add` says so, and adds nothing."""
    site._routes |= {"/": _html("/a"), "/a": _html()}
    shoal("crawl", site.url("/"))
    added = shoal("add", "--sitemap", site.url("/"))
    assert f"{site.url('/')} lists no pages: is it a sitemap?" in added.err
    assert added.out.startswith("0 URLs added")


def test_sitemaps_are_revisited(shoal: Shell, site: ScriptedServer) -> None:
    """So pages that are new in them are found."""
    site._routes |= {"/s.xml": _xml(_urlset("/a")), "/a": _html(), "/b": _html()}
    shoal("crawl", "--sitemap", site.url("/s.xml"), "--revisit", "0.01s")
    site._routes |= {"/s.xml": _xml(_urlset("/a", "/b"))}
    shoal("crawl", "--sitemap", site.url("/s.xml"), "--revisit", "0.01s")
    assert sorted(row["url"] for row in shoal.rows()) == [site.url("/a"), site.url("/b")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--sitemap", "s.xml"], "not an http(s) URL: 's.xml'"),
        ([], "Missing argument 'URL...'"),
        (["http://127.0.0.1/", "--robots-sitemaps", "--ignore-robots"], "if it is not read"),
    ],
)
def test_bad_options(shoal: Shell, options: list[str], words: str) -> None:
    """One line says what is wrong."""
    assert words in shoal.refused("crawl", *options)


def test_a_sitemap_is_added_as_a_scraper_fetches(shoal: Shell) -> None:
    """With its headers, credentials and login; without it, it is not to be had."""

    def members(request: Request) -> Reply:
        headers = request.headers
        if request.target == "/login":
            return page(b"", "200 OK", "Set-Cookie: session=1; Path=/")
        known = headers.get("authorization"), headers.get("x-a"), headers.get("cookie")
        if known != ("Bearer t", "1", "session=1"):
            return page(b"", "403 Forbidden")
        return _xml(_index("/two.xml") if request.target == "/one.xml" else _urlset("/a", "/b"))

    with ScriptedServer(members) as server:
        shoal.write(
            "members.py",
            f"""
            import shoal

            crawl = shoal.Crawl(
                "members", seeds=["{server.url()}"], headers={{"X-A": "1"}}, obey_robots=False,
                auth={{"{server.address}": "bearer t"}}, cache="kept",
            )

            @crawl.login
            def login(session):
                session.get("{server.url("/login")}")
            """,
        )
        shoal("run", "members.py")
        url = server.url("/one.xml")
        assert "HTTP 403" in shoal("add", "--sitemap", url, code=2).err
        for new in (2, 0):  # the second time, the cache has it, but what is there now is wanted
            added = shoal("add", "--sitemap", url, "--scraper", "members.py")
            assert added.out.startswith(f"{new} URLs added")
        assert server.count("/two.xml") == 2
        refused = shoal.refused("add", "--sitemap", url, "--scraper", "nobody.py")
        assert refused == "there is no scraper file nobody.py"
