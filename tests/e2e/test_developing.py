"""`shoal test` and `shoal shell`: a scraper tried out on one page, without a frontier."""

from __future__ import annotations

import re
import subprocess

import pytest
from tests.e2e.shell import PATIENCE_S, Ended, Shell
from tests.e2e.test_display import Terminal
from tests.servers import ScriptedServer, page
from tests.site import Site

SCRAPER = """
import shoal

crawl = shoal.Crawl("books", seeds=["{url}"], headers={{"X-A": "1"}})

@crawl.page("/p/*")
def book(page):
    yield {{"title": page.css("h1::text").get(), "n": 1}}
    yield from page.links("a")[:1]
    yield shoal.Link("/extra?a=1", priority=9, meta={{"k": "v"}})
    yield shoal.Link("http://elsewhere.example/")

@crawl.page("/bad")
def bad(page):
    return helper(page)

def helper(page):
    return page.css("h1").get()["x"]

@crawl.page("/stop")
def stop(page):
    raise StopIteration

@crawl.page("/selector")
def selector(page):
    page.css("a[")
"""


def _files(shoal: Shell) -> set[str]:
    return {name for name in shoal.files() if not name.endswith(".py")}


# --- shoal test -----------------------------------------------------------------------------


def test_a_handler_is_tried_out_on_a_page(shoal: Shell, site: Site) -> None:
    """Its rows, and its links that are in scope, with the settings of the scraper; nothing is kept."""
    shoal.write("books.py", SCRAPER.format(url=site.url))
    ended = shoal("test", "books.py", site.page_url(5))
    row, link, extra = ended.out.splitlines()[1:4]
    title = site.rows()[site.page_url(5)]["title"]
    assert ended.out.startswith(f"<Page 200 {site.page_url(5)}>")
    assert row == f'row   {{"title":"{title}","n":1}}'
    assert link.startswith(f"link  {site.url}")
    assert extra == f'link  {site.url}extra?a=1  priority 9  meta {{"k":"v"}}'
    assert ended.out.splitlines()[4:] == ["1 row, 2 links in scope"]
    assert [fetch.url for fetch in site.log] == [site.page_url(5)]
    assert site.log[0].headers["x-a"] == "1"
    assert _files(shoal) == set()


def test_what_it_gives_may_be_had_as_json(shoal: Shell, site: Site) -> None:
    """One object a line: a row, or a link."""
    shoal.write("books.py", SCRAPER.format(url=site.url))
    row, first, extra = shoal("test", "books.py", site.page_url(5), "--json").objects
    assert row == {"row": {"title": site.rows()[site.page_url(5)]["title"], "n": 1}}
    assert set(first) == {"link"}
    assert extra["link"]["url"] == f"{site.url}extra?a=1"
    assert (extra["link"]["priority"], extra["link"]["depth"], extra["link"]["meta"]) == (9, 1, {"k": "v"})


def test_redirects_are_followed_and_options_count(shoal: Shell, site: Site) -> None:
    """The handler is that of the page in the end."""
    shoal.write("books.py", SCRAPER.format(url=site.url))
    ended = shoal("test", "books.py", f"{site.url}go/5", "--header", "X-B: 2", "--auth", f"{_host(site)}=a:b")
    assert ended.out.startswith(f"<Page 200 {site.page_url(5)}>")
    assert site.log[-1].headers["x-b"] == "2"
    assert site.log[-1].headers["authorization"] == "Basic YTpi"


def test_the_traceback_of_a_handler_is_the_users_own(shoal: Shell) -> None:
    """From the handler on, and exit code 1."""
    with ScriptedServer(lambda request: page(b"<h1>x</h1>")) as server:
        shoal.write("books.py", SCRAPER.format(url=server.url()))
        ended = shoal("test", "books.py", server.url("/bad"), code=1)
        assert ended.out == ""
        places = [line.strip().rpartition("/")[2] for line in ended.err.splitlines() if "File " in line]
        assert places == ['books.py", line 15, in bad', 'books.py", line 18, in helper']
        assert ended.err.splitlines()[-1].startswith("TypeError: string indices must be integers")
        assert "StopIteration" in shoal("test", "books.py", server.url("/stop"), code=1).err
        assert "ConfigError" in shoal("test", "books.py", server.url("/selector"), code=1).err


@pytest.mark.parametrize("command", ["test", "shell"])
def test_a_page_that_is_not_there_is_one_line(shoal: Shell, command: str) -> None:
    """And exit code 1."""
    shoal.write("books.py", SCRAPER.format(url="http://127.0.0.1:9/"))
    url = "http://127.0.0.1:1/"
    args = ("books.py", url) if command == "test" else (url, "books.py")
    assert shoal(command, *args, code=1).err == f"shoal: {url}: refused: Connection refused\n"


def test_a_missing_page_is_one_line(shoal: Shell, site: Site) -> None:
    """With its status."""
    shoal.write("books.py", SCRAPER.format(url=site.url))
    ended = shoal("test", "books.py", f"{site.url}status/410", code=1)
    assert ended.err == f"shoal: {site.url}status/410: HTTP 410\n"


def _host(site: Site) -> str:
    return site.url.removeprefix("http://").rstrip("/")


# --- shoal shell ----------------------------------------------------------------------------


def _shell(shoal: Shell, text: str, *args: object) -> Ended:
    process = shoal.start("shell", *args, stdin=subprocess.PIPE)
    out, err = process.communicate(text, timeout=PATIENCE_S)
    return Ended(process.returncode, out, err)


def test_a_page_is_opened_at_a_prompt(shoal: Shell, site: Site) -> None:
    """With what can be done; what is typed may come from a pipe."""
    lines = (
        "page",
        'page.css("h1::text").get()',
        'fetch("/p/3").status',
        "for n in range(2):",
        "    print(n)",
    )
    text = "\n".join((*lines, "", "crawl.name", "1/0", ""))
    ended = _shell(shoal, text, site.url)
    title = site.rows()[site.url]["title"]
    assert ended.out.splitlines() == [f"<Page 200 {site.url}>", f"{title!r}", "200", "0", "1", "'shell'"]
    assert ended.err.startswith(f"<Page 200 {site.url}> Site\n\n    page   ")
    for word in ("fetch(URL)", "page.links", "crawl"):
        assert word in ended.err
    assert "ZeroDivisionError" in ended.err
    assert ended.code == 0
    assert _files(shoal) == set()


def test_a_shell_with_a_scraper_has_its_settings(shoal: Shell, site: Site) -> None:
    """And its handlers; secrets are not shown with them."""
    shoal.write("books.py", SCRAPER.format(url=site.url))
    text = "crawl.settings\nlist(crawl.handler(page.url)(page))[0]\nfetch('nowhere://').status\nexit()\n"
    ended = _shell(shoal, text, site.page_url(5), "books.py", "--auth", f"{_host(site)}=a:s3cret")
    assert "s3cret" not in ended.out
    assert "Settings(seeds=" in ended.out
    assert "{'title': " in ended.out
    assert "ConfigError: not an http(s) URL" in ended.err
    assert site.log[0].headers["authorization"] == "Basic YTpzM2NyZXQ="
    assert site.log[0].headers["x-a"] == "1"
    assert ended.code == 0


def test_a_page_that_says_no_may_be_looked_at(shoal: Shell, site: Site) -> None:
    """In the shell, whatever its status."""
    assert _shell(shoal, "page.status\n", f"{site.url}status/410").out == "410\n"


def test_ctrl_c_at_the_prompt_ends_a_line_and_not_the_shell(shoal: Shell, site: Site) -> None:
    """As in Python's own."""
    with Terminal() as terminal:
        process = shoal.start(
            "shell",
            site.url,
            wrapper=("setsid", "--ctty", "--wait"),
            **dict.fromkeys(("stdin", "stdout", "stderr"), terminal.theirs),
        )
        steps = [
            (r">>> $", "import time; print('z' * 3); time.sleep(60)\n"),
            (r"zzz\r\n", "\x03"),
            (r"KeyboardInterrupt(.|\n)*>>> $", "print(page.status * 3)\n"),
            (r"600\r\n(.|\n)*>>> $", "\x04"),
        ]
        for _ in terminal.read():
            if steps and re.search(steps[0][0], terminal.shown):
                terminal.type(steps.pop(0)[1])
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "600" in terminal.shown
