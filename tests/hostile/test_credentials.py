"""Users, passwords and cookies: none is kept, shown, or sent to anybody whom it does not concern."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.e2e.nursery import Nursery
from tests.e2e.shell import Shell
from tests.servers import Reply, Request, ScriptedServer, page

from shoal.addresses import KINDS
from shoal.fetch import Fetcher, FetchSettings

SECRET = "s3cr3t"


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """Where the commands come from."""
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def shell(tmp_path, nursery) -> Shell:
    """The command, in an empty folder."""
    return Shell(tmp_path, nursery)


def _to(location: str) -> Reply:
    return page(b"", "302 Found", f"Location: {location}")


def _heard(server: ScriptedServer) -> str:
    """All that was said to it."""
    return "\n".join(f"{each.target} {dict(each.headers)}" for each in server.requests)


def test_users_and_passwords_in_urls_go_nowhere(shell: Shell) -> None:
    """Not to a server, and not into the state file, rows, logs or lists, wherever a site writes them."""

    def answer(request: Request) -> Reply:
        own = f"http://user:{SECRET}@{server.address}"
        other = f"http://user:{SECRET}@{stranger.address}"
        match request.target:
            case "/":
                hrefs = [
                    f"{own}/a",
                    f"{other}/",
                    f"http:\\\\user:{SECRET}@{server.address}/b",
                    "/away",
                    "/broken",
                ]
                hrefs += [
                    "/home",
                    "/based",
                    "/fresh",
                    "/gone",
                    f"http://user:{SECRET}@[broken/",
                    f"//{SECRET}@h:x/",
                ]
                return page("".join(f'<a href="{href}">x</a>' for href in hrefs).encode())
            case "/away":
                return _to(f"{other}/")
            case "/broken":
                return _to(f"http://user:{SECRET}@[broken/")
            case "/home":
                return _to(f"{own}/c")
            case "/based":
                return page(f'<base href="{own}/"><a href="d">x</a>'.encode())
            case "/fresh":
                return page(f'<meta http-equiv="refresh" content="0;url={own}/e">'.encode())
            case "/gone":
                return page(b"", "404 Not Found")
            case "/robots.txt":
                return _to(f"{own}/r.txt") if "r.txt" not in request.target else page(b"")
        return page(b"<h1>x</h1>")

    with ScriptedServer(answer) as server, ScriptedServer(answer, host="127.0.0.2") as stranger:
        crawl = shell(
            "crawl", server.url(), "-o", "rows.csv", "-v", "--log-json", "--scope", "any", "--retries", "0"
        )
        said = [crawl, *(shell(name) for name in ("dead", "skipped", "status")), shell("dead", "--json")]
        paths = {request.target for request in server.requests}
        assert {"/a", "/b", "/c", "/d", "/e", "/r.txt"} <= paths
        assert SECRET not in _heard(server) + _heard(stranger)
        assert "authorization" not in _heard(server) + _heard(stranger)
        assert "referer" not in _heard(server) + _heard(stranger)
    for each in said:
        assert SECRET not in each.out + each.err
    for name, content in shell.files().items():
        assert SECRET.encode() not in (content or b""), name
    assert "to http://***@[broken/" in shell("dead", "--errors").out


@pytest.mark.parametrize("args", [["crawl"], ["add"], ["why"]])
@pytest.mark.parametrize(
    "url", ["http://user:{}@127.0.0.1:1/", "http://{}@127.0.0.1:1/", "http://u:{}@[x/", "u:{}@h"]
)
def test_a_url_with_a_user_is_refused_without_its_password(shell: Shell, args: list[str], url: str) -> None:
    """Whoever writes it believes that it will be used, so it is not dropped in silence."""
    with ScriptedServer({"/": page()}) as server:
        shell("crawl", server.url(), "--state", "x.shoal")
    more = [] if args == ["crawl"] else ["--state", "x.shoal"]
    ended = shell(*args, url.format(SECRET), *more, code=2)
    assert ended.err.startswith("shoal: ")
    assert ended.err.count("\n") == 1
    if url.startswith("http"):
        assert SECRET not in ended.err


def test_headers_and_the_password_of_a_proxy_are_not_kept(shell: Shell) -> None:
    """They are used, and are in no file afterwards."""
    with ScriptedServer(lambda request: page(b"<h1>x</h1>")) as proxy:
        shell(
            "crawl", "http://site.test/", "--proxy", f"http://user:{SECRET}@{proxy.address}",
            "--header", f"X-Key: {SECRET}", "-v",
        )  # fmt: skip
        assert proxy.requests[0].headers["x-key"] == SECRET
        assert "proxy-authorization" in proxy.requests[0].headers
    for name, content in shell.files().items():
        assert SECRET.encode() not in (content or b""), name
    assert SECRET not in shell.refused(
        "crawl", "http://site.test/", "--proxy", f"socks://user:{SECRET}@h", "--fresh"
    )


@pytest.mark.parametrize("name", ["X: y", "X\r\nY", "", "X Y", "Ä"])
@pytest.mark.parametrize("value", ["a\r\nEvil: yes", "a\nb", "a\0b", "a\rb", "fine"])
def test_headers_cannot_be_smuggled(shell: Shell, name: str, value: str) -> None:
    """CR, LF and NUL are refused anywhere in a header."""
    if (name, value) == ("X: y", "fine"):
        return
    line = f"{name}:{value}".encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    if "\0" in line:
        from shoal.errors import ConfigError

        with pytest.raises(ConfigError):
            FetchSettings(headers=((name, value),))
        return
    ended = shell("crawl", "http://127.0.0.1:1/", "--header", line, code=2)
    assert ended.err.count("\n") == 1


def _cookies(*headers: str, times: int = 2) -> list[str | None]:
    """What is sent back, to each request, by who gets these cookies each time."""

    async def fetch(url: str) -> None:
        async with Fetcher(FetchSettings(allow=KINDS)) as fetcher:
            for _ in range(times):
                await fetcher.fetch(url)

    answer = page(b"", "200 OK", *(f"Set-Cookie: {header}" for header in headers))
    with ScriptedServer({"/": answer}) as server:
        asyncio.run(fetch(server.url()))
    return [request.headers.get("cookie") for request in server.requests]


@pytest.mark.parametrize("value", ["a\1b", "a\x7fb", "\t", "a\x0bb"])
def test_control_characters_do_not_come_back_in_cookies(value: str) -> None:
    """Whatever a server sets, no request of ours holds them."""
    for sent in _cookies(f"c={value}"):
        assert (sent or "").isprintable()


def test_cookies_have_bounds() -> None:
    """A server that sets a thousand cookies with each answer gets some kilobytes back, not all of them."""
    cookies = [f"c{number}={'x' * 200}" for number in range(900)]
    assert all(len(sent or "") < 10_000 for sent in _cookies(*cookies, times=5))


@pytest.mark.parametrize("domain", ["127.0.0.2", "0.0.1", ".1", "localhost", "com", "co.uk"])
def test_an_address_sets_cookies_for_itself_alone(domain: str) -> None:
    """A cookie for a part of an address, or for another host, is not kept."""
    assert _cookies(f"c=1; Domain={domain}") == [None, None]
