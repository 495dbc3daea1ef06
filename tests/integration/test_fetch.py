"""The Fetcher against real sockets, on both event loops: what is sent, what comes back, what goes wrong."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from tests.servers import RESET, Pause, Reply, Request, ScriptedServer, Step, page, reply

from shoal.errors import ConfigError
from shoal.fetch import Fetcher, FetchSettings
from shoal.fetch.connection import MAX_HEAD_BYTES
from shoal.fetch.exchange import MAX_HEADER_BYTES
from shoal.model import Failure, Response

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]

LOOPS: dict[str, Run] = {"asyncio": asyncio.run, "uvloop": uvloop.run}
OK = b"HTTP/1.1 200 OK\r\n"
LOOPBACK = frozenset({"loopback"})


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine in a new loop of each kind."""
    return LOOPS[request.param]


def _settings(**changes: Any) -> FetchSettings:
    return FetchSettings(**{"allow": LOOPBACK, **changes})


async def fetched(*urls: str, **changes: Any) -> list[Response | Failure]:
    """Fetch one after the other with one Fetcher."""
    async with Fetcher(_settings(**changes)) as fetcher:
        return [await fetcher.fetch(url) for url in urls]


def _good(outcome: Response | Failure) -> Response:
    assert isinstance(outcome, Response), outcome
    return outcome


def _bad(outcome: Response | Failure) -> Failure:
    assert isinstance(outcome, Failure), outcome
    assert outcome.detail
    assert "\n" not in outcome.detail
    return outcome


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Host names and their addresses, for the loop of asyncio; all others do not exist."""
    known: dict[str, str] = {}

    def getaddrinfo(host: str, port: int, *_: object, **__: object) -> list[tuple[Any, ...]]:
        if host not in known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if ":" in known[host]:
            return [(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (known[host], port, 0, 0))]
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (known[host], port))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return known


# --- what is sent


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/?",
        "/a?",
        "/a?b=?",
        "//two//slashes/",
        "/a/%2e%2E/b%2fc",
        "/%e2%80%a6?q=%zz&%C3%A9",
        "/[]|^`{}'?[]|^`{}'",
        "/a;b=c,d@e:f!$&*()~",
        "/?u=http://h/#".removesuffix("#"),
        "/a+b%20c?a+b%20c",
    ],
)
def test_the_target_is_sent_byte_for_byte(target: str, run: Run) -> None:
    """Nothing is quoted, unquoted, tidied or dropped."""
    with ScriptedServer({target: page(b"found")}) as server:
        [outcome] = run(fetched(server.url(target)))
    assert [request.target for request in server.requests] == [target]
    assert _good(outcome).body == b"found"
    assert _good(outcome).url == server.url(target)


def test_the_standard_headers() -> None:
    """A plain request names the host, the user agent, and what can be read."""
    with ScriptedServer({"/": page()}) as server:
        asyncio.run(fetched(server.url(), user_agent="tester/1"))
    assert server.requests[0].method == "GET"
    assert server.requests[0].headers == {
        "host": server.address,
        "user-agent": "tester/1",
        "accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "accept-encoding": "gzip, deflate, br, zstd",
    }


def test_own_headers_replace_the_standard_ones() -> None:
    """Names compare without case; what is new is added; host and protocol stay right."""
    headers = (("ACCEPT", "text/plain"), ("X-Key", "caf\xe9"), ("Accept-Language", "de"))
    with ScriptedServer({"/": page()}) as server:
        asyncio.run(fetched(server.url(), headers=headers))
    sent = server.requests[0].headers
    assert (sent["accept"], sent["accept-language"]) == ("text/plain", "de")
    assert sent["x-key"].encode("latin-1").decode() == "caf\xe9"
    assert sent["host"] == server.address


@pytest.mark.parametrize(
    "wrong",
    [
        {"user_agent": "a\r\nX: y"},
        {"headers": (("X", "a\nb"),)},
        {"headers": (("X Y", "a"),)},
        {"headers": (("", "a"),)},
        {"proxy": "socks5://127.0.0.1:1080"},
        {"proxy": "127.0.0.1:8080"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    """A header that would break the request, or a proxy of another kind, is the user's to change."""
    with pytest.raises(ConfigError):
        FetchSettings(**wrong)


# --- what comes back


def test_headers_come_back_raw_and_in_order(run: Run) -> None:
    """Names in lower case, all of several, bytes outside ASCII as latin-1."""
    raw = (
        OK + b"B: 1\r\nSet-Cookie: a=1\r\nLink: \xc3\xa9\xff\r\nSET-COOKIE: b=2\r\nContent-Length: 0\r\n\r\n"
    )
    with ScriptedServer({"/": reply(raw)}) as server:
        [outcome] = run(fetched(server.url()))
    assert _good(outcome).headers == (
        ("b", "1"),
        ("set-cookie", "a=1"),
        ("link", "\xc3\xa9\xff"),
        ("set-cookie", "b=2"),
        ("content-length", "0"),
    )


def test_a_redirect_is_not_followed(run: Run) -> None:
    """One hop: the answer is the redirect itself."""
    with ScriptedServer({"/": page(b"moved", "301 Moved", "Location: /elsewhere")}) as server:
        [outcome] = run(fetched(server.url()))
    assert (_good(outcome).status, _good(outcome).header("location")) == (301, "/elsewhere")
    assert _good(outcome).body == b"moved"
    assert len(server.requests) == 1


def test_time_is_measured() -> None:
    """`elapsed_s` runs from the request to the last byte, for failures as well."""
    slow = reply(OK + b"Content-Length: 2\r\n\r\na", Pause(0.1), b"b")
    cut = reply(OK + b"Content-Length: 2\r\n\r\na", Pause(0.1))
    with ScriptedServer({"/slow": slow, "/cut": cut}) as server:
        outcomes = asyncio.run(fetched(server.url("/slow"), server.url("/cut")))
    assert [type(outcome) for outcome in outcomes] == [Response, Failure]
    assert all(0.1 <= outcome.elapsed_s < 5 for outcome in outcomes)


def test_a_body_in_many_pieces_is_put_together(run: Run) -> None:
    """Chunks, and a size beyond all buffers."""
    piece = bytes(range(256)) * 300
    chunk = f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    chunked = reply(OK + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 50, b"0\r\n\r\n", keep=True)
    with ScriptedServer({"/chunked": chunked, "/plain": page(piece * 50)}) as server:
        outcomes = run(fetched(server.url("/chunked"), server.url("/plain")))
    assert [_good(outcome).body == piece * 50 for outcome in outcomes] == [True, True]
    assert server.connections == 1


# --- content types


@pytest.mark.parametrize(
    ("header", "asked"),
    [
        ("Content-Type: text/html", "text/html"),
        ("Content-Type: TEXT/HTML; Charset=UTF-8", "text/html"),
        ("Content-Type: text/html, text/html; charset=utf-8", "text/html"),
        ("Content-Type:   application/pdf  ", "application/pdf"),
        ("Content-Type: html", "html"),
        ("Content-Type: ;", ""),
        ("X-Content-Type:", ""),
    ],
)
def test_the_type_is_asked_about_without_its_parameters(header: str, asked: str) -> None:
    """The media type alone, in lower case, or nothing."""
    questions: list[str] = []

    def refuse(kind: str) -> bool:
        questions.append(kind)
        return False

    async def scenario(url: str) -> Response | Failure:
        async with Fetcher(_settings()) as fetcher:
            return await fetcher.fetch(url, accepts=refuse)

    raw = OK + header.encode() + b"\r\nContent-Length: 3\r\n\r\nabc"
    with ScriptedServer({"/": reply(raw)}) as server:
        outcome = asyncio.run(scenario(server.url()))
    assert questions == [asked]
    assert _good(outcome).body == b""


def test_a_body_that_is_not_wanted_is_not_downloaded(run: Run) -> None:
    """The response comes at once, with its headers and no body, even if the body never ends."""
    endless = reply(OK + b"Content-Type: video/mp4\r\n\r\n", b"x" * 1000, Pause(60))

    async def scenario(url: str) -> Response | Failure:
        async with Fetcher(_settings()) as fetcher:
            return await fetcher.fetch(url, accepts=lambda kind: kind == "text/html")

    with ScriptedServer({"/": endless}) as server:
        outcome = run(scenario(server.url()))
    assert (_good(outcome).header("content-type"), _good(outcome).body) == ("video/mp4", b"")
    assert outcome.elapsed_s < 5


def test_only_a_success_is_asked_about() -> None:
    """The body of an error or a redirect is read whatever its type."""

    async def scenario(*urls: str) -> list[Response | Failure]:
        async with Fetcher(_settings()) as fetcher:
            return [await fetcher.fetch(url, accepts=lambda kind: False) for url in urls]

    answers = {f"/{status}": page(b"body", f"{status} X") for status in (200, 206, 301, 404, 500)}
    with ScriptedServer(answers) as server:
        outcomes = asyncio.run(scenario(*map(server.url, answers)))
    assert [_good(outcome).body for outcome in outcomes] == [b"", b"", b"body", b"body", b"body"]


# --- size


def test_the_limit_is_exact_and_can_be_set_for_one_fetch(run: Run) -> None:
    """As many bytes as the limit are read, one more is too many."""

    async def scenario(url: str) -> list[Response | Failure]:
        async with Fetcher(_settings(max_body_bytes=1000)) as fetcher:
            return [
                await fetcher.fetch(url),
                await fetcher.fetch(url, max_body_bytes=1001),
                await fetcher.fetch(url, max_body_bytes=2000),
            ]

    with ScriptedServer({"/": reply(OK + b"\r\n" + b"x" * 1001)}) as server:
        small, exact, large = run(scenario(server.url()))
    assert (_bad(small).kind, _bad(small).detail) == ("too_large", "the body is larger than 1000 bytes")
    assert len(_good(exact).body) == len(_good(large).body) == 1001


def test_a_body_that_is_declared_too_large_is_not_waited_for(run: Run) -> None:
    """The header alone decides."""
    with ScriptedServer({"/": reply(OK + b"Content-Length: 1001\r\n\r\n", Pause(60))}) as server:
        [outcome] = run(fetched(server.url(), max_body_bytes=1000))
    assert _bad(outcome).kind == "too_large"
    assert outcome.elapsed_s < 5


@pytest.mark.parametrize(
    ("size", "fits"), [(MAX_HEADER_BYTES - 1000, True), (MAX_HEADER_BYTES + 1000, False)]
)
def test_long_headers_are_read(size: int, fits: bool, run: Run) -> None:
    """Real sites send long ones; there is an end to it."""
    with ScriptedServer({"/": page(b"x", "200 OK", "X-Long: " + "a" * size)}) as server:
        [outcome] = run(fetched(server.url()))
    assert isinstance(outcome, Response) == fits
    assert fits or _bad(outcome).kind == "protocol"


def test_many_headers_are_read_up_to_a_total(run: Run) -> None:
    """Hundreds are no problem; all of the head together has a limit, interim responses included."""
    many = page(b"x", "200 OK", *[f"X-{number}: {'v' * 300}" for number in range(500)])
    interim = reply(b"HTTP/1.1 102 Processing\r\n\r\n" * (MAX_HEAD_BYTES // 20), Pause(60))
    heavy = page(b"x", "200 OK", *[f"X-{number}: {'v' * 60_000}" for number in range(5)])
    with ScriptedServer({"/many": many, "/interim": interim, "/heavy": heavy}) as server:
        outcomes = run(fetched(*map(server.url, ["/many", "/interim", "/heavy"])))
    assert _good(outcomes[0]).body == b"x"
    for outcome in outcomes[1:]:
        assert (_bad(outcome).kind, "before the body" in _bad(outcome).detail) == ("protocol", True)


# --- what goes wrong


@pytest.mark.parametrize(
    ("answer", "kind", "detail"),
    [
        (reply(), "reset", "the connection was closed before the response was complete"),
        (reply(RESET), "reset", "Connection reset by peer before the response was complete"),
        (reply(OK + b"Content-Le"), "reset", "the connection was closed before the response was complete"),
        (reply(b"SSH-2.0-OpenSSH_9.2\r\n"), "protocol", "Bad status line: Expected HTTP/, RTSP/ or ICE/"),
        (reply(OK + b"Content-Length: 9\r\n\r\ncut"), "truncated", "the body ends early"),
        (
            reply(OK + b"Content-Length: 9\r\n\r\ncut", Pause(0.05), RESET),
            "reset",
            "Connection reset by peer",
        ),
        (reply(OK + b"\r\nno length", Pause(0.05), RESET), "reset", "Connection reset by peer"),
        (reply(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"), "truncated", "the body ends early"),
        (
            reply(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", Pause(0.05), b"zz\r\n", Pause(60)),
            "protocol",
            "Invalid character in chunk size",
        ),
        (reply(OK + b"Content-Encoding: gzip\r\n\r\nplain text"), "decoding", "broken coding: not gzip"),
        (reply(OK + b"Content-Encoding: rot13,compress\r\n\r\nx"), "decoding", "unknown coding"),
        (
            reply(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
            "protocol",
            "the server switched protocols without being asked",
        ),
    ],
)
def test_a_faulty_answer_is_a_failure_with_its_reason(
    answer: Reply, kind: str, detail: str, run: Run
) -> None:
    """Each fault has its kind and words that tell it from others, and is found without waiting."""
    with ScriptedServer({"/": answer}) as server:
        [outcome] = run(fetched(server.url()))
    assert _bad(outcome).kind == kind
    assert _bad(outcome).detail.startswith(detail)
    assert outcome.elapsed_s < 5
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", ["301 Moved", "404 Not Found", "503 Busy", "999 Denied"])
@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 9\r\n\r\ncut",
        b"Content-Length: 999999999\r\n\r\nx",
        b"Content-Encoding: gzip\r\n\r\nplain",
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_a_status_that_is_no_success_needs_no_good_body(status: str, body: bytes) -> None:
    """The status and the headers (Location, Retry-After) are what counts."""
    raw = f"HTTP/1.1 {status}\r\nLocation: /x\r\nRetry-After: 7\r\n".encode() + body
    with ScriptedServer({"/": reply(raw)}) as server:
        [outcome] = asyncio.run(fetched(server.url()))
    assert (_good(outcome).status, _good(outcome).body) == (int(status[:3]), b"")
    assert (_good(outcome).header("location"), _good(outcome).header("retry-after")) == ("/x", "7")


def test_silence_ends_as_a_timeout(run: Run) -> None:
    """Before the first byte, and in the middle of a body."""
    never, stuck = reply(Pause(60)), reply(OK + b"Content-Length: 9\r\n\r\ncut", Pause(60))
    with ScriptedServer({"/never": never, "/stuck": stuck}) as server:
        outcomes = run(fetched(server.url("/never"), server.url("/stuck"), read_timeout_s=0.2))
    for outcome in outcomes:
        assert (_bad(outcome).kind, _bad(outcome).detail) == ("timeout", "nothing received for 0.2 s")


def test_a_trickle_ends_at_the_total_timeout(run: Run) -> None:
    """Bytes that keep coming do not keep a fetch alive for ever."""
    drops: list[Step] = [b"x", Pause(0.05)]
    trickle = reply(OK + b"Content-Length: 999\r\n\r\n", *drops * 100)
    with ScriptedServer({"/": trickle}) as server:
        [outcome] = run(fetched(server.url(), total_timeout_s=0.3))
    assert (_bad(outcome).kind, _bad(outcome).detail) == ("timeout", "not complete within 0.3 s")


def test_a_connection_that_does_not_come_about_is_a_timeout(run: Run) -> None:
    """TCP and TLS together: this server never says its part of the handshake."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"https://127.0.0.1:{mute.getsockname()[1]}/"
        [outcome] = run(fetched(url, connect_timeout_s=0.2))
    assert (_bad(outcome).kind, _bad(outcome).detail) == ("timeout", "no connection within 0.2 s")


def test_a_closed_port_is_refused(run: Run) -> None:
    """Nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    [outcome] = run(fetched(f"http://127.0.0.1:{port}/"))
    assert (_bad(outcome).kind, _bad(outcome).detail) == ("refused", "Connection refused")


@pytest.mark.usefixtures("names")
def test_a_name_that_does_not_exist_is_a_dns_failure() -> None:
    """In the words of the resolver."""
    [outcome] = asyncio.run(fetched("http://nowhere.test/"))
    assert (_bad(outcome).kind, _bad(outcome).detail) == ("dns", "Name or service not known")


def test_localhost_is_resolved(run: Run) -> None:
    """Names go through the resolver of the system."""
    with ScriptedServer({"/": page(b"home")}) as server:
        [outcome] = run(fetched(f"http://localhost:{server.port}/"))
    assert _good(outcome).body == b"home"


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://127.0.0.1:0/", "refused"),
        ("http://127.0.0.1:99999/", "blocked"),
        ("http://[::1/", "blocked"),
        ("http:///", "blocked"),
        ("", "blocked"),
        ("/relative", "blocked"),
        ("javascript:alert(1)", "blocked"),
        ("file:///etc/passwd", "blocked"),
        ("http://2130706433/", "blocked"),
        ("http://a..b/", "dns"),
        ("http://" + "a" * 64 + ".test/", "dns"),
        ("http://127.0.0.1/a\r\nX: y", "blocked"),
    ],
)
def test_what_cannot_be_fetched_at_all_is_a_failure(url: str, kind: str, run: Run) -> None:
    """Even if it is no normalized URL."""
    [outcome] = run(fetched(url))
    assert _bad(outcome).kind == kind


@given(
    st.text(max_size=30),
    st.sampled_from(["", "http://", "https://", "http://127.0.0.1:0/", "http://[::1]:0"]),
)
def test_no_text_raises(text: str, prefix: str) -> None:
    """Whatever is asked for, the answer is a value; no name is looked up here."""
    if prefix.endswith("//"):
        text = "127.0.0.1:0" + text
    assert _bad(uvloop.run(fetched(prefix + text))[0])


# --- connections


def test_a_connection_is_kept(run: Run) -> None:
    """Also after an error, a redirect, and bodies of every framing that has an end."""
    chunked = reply(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", keep=True)
    empty = page(b"", "204 No Content")
    answers = {
        "/": page(b"x"),
        "/404": page(b"x", "404 X"),
        "/301": page(b"", "301 X"),
        "/c": chunked,
        "/e": empty,
    }
    with ScriptedServer(answers) as server:
        outcomes = run(fetched(*map(server.url, [*answers, *answers])))
    assert all(isinstance(outcome, Response) for outcome in outcomes)
    assert server.connections == 1


@pytest.mark.parametrize("end", [reply(), reply(RESET)])
def test_a_kept_connection_that_died_is_replaced_once(end: Reply, run: Run) -> None:
    """The server closes a connection just as it is used again: the fetch does not notice."""

    def answer(request: Request) -> Reply:
        return page(request.target.encode()) if request.target == "/1" or request.connection > 1 else end

    with ScriptedServer(answer) as server:
        outcomes = run(fetched(server.url("/1"), server.url("/2")))
    assert [_good(outcome).body for outcome in outcomes] == [b"/1", b"/2"]
    assert server.connections == 2


def test_a_request_on_a_new_connection_is_not_repeated(run: Run) -> None:
    """A server that drops it is not asked again behind the back of the caller."""
    with ScriptedServer({"/": reply(RESET)}) as server:
        [outcome] = run(fetched(server.url()))
    assert _bad(outcome).kind == "reset"
    assert len(server.requests) == 1


def test_a_connection_closed_while_idle_is_not_used(run: Run) -> None:
    """The server's close has arrived long before the next fetch."""
    with ScriptedServer({"/": page(b"x", keep=False)}) as server:

        async def scenario() -> list[Response | Failure]:
            async with Fetcher(_settings()) as fetcher:
                first = await fetcher.fetch(server.url())
                await asyncio.sleep(0.05)
                return [first, await fetcher.fetch(server.url())]

        outcomes = run(scenario())
    assert all(isinstance(outcome, Response) for outcome in outcomes)
    assert (len(server.requests), server.connections) == (2, 2)


@pytest.mark.parametrize("pause", [0, 0.05])
@pytest.mark.parametrize("stray", [OK + b"Content-Length: 4\r\n\r\nevil", b"rubbish\r\n\r\n"])
def test_bytes_behind_a_response_are_not_the_next_one(stray: bytes, pause: float, run: Run) -> None:
    """Whether they come with it or later, they spoil neither response."""
    first = reply(OK + b"Content-Length: 4\r\n\r\ngood", Pause(pause), stray, keep=True)
    with ScriptedServer({"/1": first, "/2": page(b"right")}) as server:

        async def scenario() -> list[Response | Failure]:
            async with Fetcher(_settings()) as fetcher:
                one = await fetcher.fetch(server.url("/1"))
                await asyncio.sleep(0.15)
                return [one, await fetcher.fetch(server.url("/2"))]

        outcomes = run(scenario())
    assert [_good(outcome).body for outcome in outcomes] == [b"good", b"right"]
    assert server.connections == 2


def test_the_oldest_idle_connection_is_given_up(run: Run) -> None:
    """Only so many are kept idle, so that a wide crawl does not run out of sockets."""
    hosts = [f"127.0.0.{number}" for number in range(1, 5)]
    servers = [ScriptedServer({"/": page(b"x")}, host=host) for host in hosts]
    with servers[0], servers[1], servers[2], servers[3]:
        order = [*servers, servers[3], servers[2], servers[0]]
        outcomes = run(fetched(*(server.url() for server in order), idle_connections=2))
    assert all(isinstance(outcome, Response) for outcome in outcomes)
    assert [server.connections for server in servers] == [2, 1, 1, 1]


def test_connections_to_one_host_are_limited(run: Run) -> None:
    """Fetches beyond the limit wait for their turn."""
    slow = reply(OK + b"Content-Length: 1\r\n\r\n", Pause(0.02), b"x", keep=True)

    async def scenario(url: str) -> list[Response | Failure]:
        async with Fetcher(_settings(per_host_connections=2)) as fetcher:
            return await asyncio.gather(*(fetcher.fetch(url) for _ in range(6)))

    with ScriptedServer({"/": slow}) as server:
        outcomes = run(scenario(server.url()))
    assert all(isinstance(outcome, Response) for outcome in outcomes)
    assert server.connections == 2


def test_an_idle_connection_expires(run: Run) -> None:
    """After the keep-alive time a new one is made."""

    async def scenario(url: str) -> None:
        async with Fetcher(_settings(keepalive_timeout_s=0.05)) as fetcher:
            _good(await fetcher.fetch(url))
            await asyncio.sleep(0.1)
            _good(await fetcher.fetch(url))

    with ScriptedServer({"/": page(b"x")}) as server:
        run(scenario(server.url()))
    assert server.connections == 2


# --- ending


@pytest.mark.parametrize(
    "answer", [reply(Pause(60)), reply(OK + b"Content-Length: 9\r\n\r\nhalf", Pause(60))]
)
def test_a_cancelled_fetch_frees_its_connection(answer: Reply, run: Run) -> None:
    """CancelledError comes through, and with one connection allowed the next fetch works."""

    async def scenario(server: ScriptedServer) -> Response | Failure:
        async with Fetcher(_settings(connections=1)) as fetcher:
            stuck = asyncio.create_task(fetcher.fetch(server.url("/stuck")))
            waiting = asyncio.create_task(fetcher.fetch(server.url("/")))
            await asyncio.sleep(0.05)
            for task in (waiting, stuck):
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            return await fetcher.fetch(server.url("/"))

    with ScriptedServer({"/stuck": answer, "/": page(b"x")}) as server:
        assert _good(run(scenario(server))).body == b"x"


def test_closing_leaves_nothing_behind(run: Run) -> None:
    """No task, no transport, no connection at the server, whatever was going on."""

    async def scenario(server: ScriptedServer) -> list[Response | Failure]:
        fetcher = Fetcher(_settings())
        _good(await fetcher.fetch(server.url("/")))
        stuck = [asyncio.create_task(fetcher.fetch(server.url("/stuck"))) for _ in range(3)]
        await asyncio.sleep(0.05)
        await fetcher.close()
        outcomes = await asyncio.gather(*stuck)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return [*outcomes, await fetcher.fetch(server.url("/"))]

    stuck = reply(OK + b"Content-Length: 9\r\n\r\nhalf", Pause(0.2))
    with ScriptedServer({"/stuck": stuck, "/": page(b"x")}) as server:
        outcomes = run(scenario(server))
    for outcome in outcomes:
        _bad(outcome)
    gc.collect()  # ResourceWarnings are errors


def test_closing_twice_is_harmless(run: Run) -> None:
    """Also if nothing was fetched."""

    async def scenario() -> None:
        async with Fetcher() as fetcher:
            await fetcher.close()

    run(scenario())


# --- TLS


def test_a_certificate_that_is_not_trusted_is_refused(run: Run) -> None:
    """Unless that is what was asked for; connections are kept with TLS as well."""
    with ScriptedServer({"/": page(b"secret")}, tls=True) as server:
        [outcome] = run(fetched(server.url()))
        trusting = run(fetched(server.url(), server.url(), verify_tls=False))
    assert _bad(outcome).kind == "tls"
    assert _bad(outcome).detail.startswith("certificate not accepted: self")
    assert [_good(outcome).body for outcome in trusting] == [b"secret"] * 2
    assert server.connections == 1


def test_plain_http_where_tls_was_meant_is_a_tls_failure(run: Run) -> None:
    """And TLS where HTTP was meant is not HTTP."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    async def scenario(secure: ScriptedServer) -> list[Response | Failure]:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as plain:
            port = plain.sockets[0].getsockname()[1]
            return await fetched(f"https://127.0.0.1:{port}/", f"http://{secure.address}/")

    with ScriptedServer({"/": page()}, tls=True) as secure:
        plain, tls = run(scenario(secure))
    assert (_bad(plain).kind, _bad(plain).detail) == ("tls", "wrong version number")
    assert _bad(tls).kind in {"protocol", "reset"}


# --- cookies


def _cookie(server: ScriptedServer, number: int) -> str | None:
    return server.requests[number].headers.get("cookie")


def test_cookies_are_sent_back_as_they_came(run: Run) -> None:
    """No quoting, no escaping; each to its own host only."""
    cookies = ['Set-Cookie: a={"x":1,"y":2}', 'Set-Cookie: b="q r"', "Set-Cookie: c=", "Set-Cookie: d=e=f=="]
    with (
        ScriptedServer({"/": page(b"", "200 OK", *cookies)}) as server,
        ScriptedServer({"/": page()}, host="127.0.0.2") as other,
    ):
        run(fetched(server.url(), server.url(), other.url()))
    assert _cookie(server, 0) is None
    assert _cookie(server, 1) == 'a={"x":1,"y":2}; b="q r"; c=; d=e=f=='
    assert _cookie(other, 0) is None


def test_cookies_of_a_domain_reach_its_hosts_and_no_others(names: dict[str, str]) -> None:
    """A cookie for a whole public suffix is nobody's."""
    cookies = ["own=1", "site=2; Domain=.a.co.uk", "suffix=3; Domain=co.uk", "tld=4; Domain=uk"]
    names.update(dict.fromkeys(["www.a.co.uk", "a.co.uk", "b.co.uk"], "127.0.0.1"))
    answer = page(b"", "200 OK", *(f"Set-Cookie: {cookie}" for cookie in cookies))
    with ScriptedServer({"/": answer, "/x": page()}) as server:
        places = [("www.a.co.uk", "/"), ("www.a.co.uk", "/x"), ("a.co.uk", "/x"), ("b.co.uk", "/x")]
        asyncio.run(fetched(*(f"http://{host}:{server.port}{path}" for host, path in places)))
    assert [_cookie(server, number) for number in range(4)] == [None, "own=1; site=2", "site=2", None]


def test_cookies_belong_to_one_fetcher_and_can_be_off(run: Run) -> None:
    """Another Fetcher starts with none."""
    with ScriptedServer({"/": page(b"", "200 OK", "Set-Cookie: a=1")}) as server:
        run(fetched(server.url()))
        run(fetched(server.url(), server.url(), cookies=False))
    assert [_cookie(server, number) for number in range(3)] == [None, None, None]


# --- proxy


def test_a_proxy_is_asked_for_the_whole_url(run: Run) -> None:
    """Names are left to it, and its own address is not guarded."""
    with ScriptedServer(lambda request: page(b"from afar")) as proxy:
        url = f"http://user:pass@{proxy.address}"
        outcomes = run(fetched("http://site.test/a%7e?", "http://site.test/b", proxy=url, allow=frozenset()))
    assert [_good(outcome).body for outcome in outcomes] == [b"from afar"] * 2
    assert [request.target for request in proxy.requests] == ["http://site.test/a%7e?", "http://site.test/b"]
    assert proxy.requests[0].headers["host"] == "site.test"
    assert proxy.requests[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"
    assert proxy.connections == 1


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.0.0.1", "[::1]", "localhost", "a.localhost", "169.254.169.254"]
)
def test_a_proxy_is_not_sent_to_a_forbidden_address(host: str, run: Run) -> None:
    """An address in the URL itself is checked before the proxy hears of it."""
    with ScriptedServer(lambda request: page()) as proxy:
        [outcome] = run(fetched(f"http://{host}/", proxy=f"http://{proxy.address}", allow=frozenset()))
    assert _bad(outcome).kind == "blocked"
    assert proxy.connections == 0


def test_a_proxy_that_refuses_is_named(run: Run) -> None:
    """Its answer to CONNECT, or that it is not there."""
    with ScriptedServer(lambda request: page(b"", "403 Forbidden")) as proxy:
        [refused] = run(fetched("https://site.test/", proxy=f"http://{proxy.address}"))
    assert (_bad(refused).kind, _bad(refused).detail) == ("refused", "the proxy answered 403")
    [missing] = run(fetched("http://site.test/", proxy=f"http://{proxy.address}"))
    assert (_bad(missing).kind, _bad(missing).detail) == ("refused", "proxy: Connection refused")


def test_tls_goes_through_a_tunnel(run: Run) -> None:
    """The proxy only connects the two ends; the tunnel is kept for the next fetch."""
    asked: list[bytes] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def scenario(server: ScriptedServer) -> list[Response | Failure]:
        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
            far_reader, far_writer = await asyncio.open_connection(server.host, server.port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        async with proxy:
            host, port = proxy.sockets[0].getsockname()
            url = f"https://site.test:{server.port}/"
            return await fetched(url, url, proxy=f"http://{host}:{port}", verify_tls=False)

    with ScriptedServer({"/": page(b"secret")}, tls=True) as server:
        outcomes = run(scenario(server))
    assert [_good(outcome).body for outcome in outcomes] == [b"secret"] * 2
    assert asked == [f"CONNECT site.test:{server.port} HTTP/1.1".encode()]
