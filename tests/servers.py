"""HTTP servers that answer, byte for byte, what a test tells them to, right or wrong.

    with ScriptedServer({"/": page(b"<a href=/x>x</a>"), "/x": reply(b"not HTTP", RESET)}) as server:
        fetch(server.url("/"))
    assert [request.target for request in server.requests] == ["/"]

They listen on a free port of a loopback address, in a thread of their own, so that any kind of client can be
pointed at them. What no route answers is a 404.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Self, TypeAlias

from msgspec import Struct


class Pause(Struct, frozen=True):
    """Say nothing for so long."""

    seconds: float


class Reset(Struct, frozen=True):
    """Tear the connection down with a TCP reset."""


RESET: Final = Reset()
Step: TypeAlias = bytes | Pause | Reset


class Reply(Struct, frozen=True):
    """What to do with a request, step by step; then the connection is closed, unless it is to be kept."""

    steps: Iterable[Step]
    """Gone through once for each request: a list or a tuple, unless the reply is made for one request."""
    keep: bool = False


class Request(Struct, frozen=True):
    """A request as it was received."""

    method: str
    target: str
    headers: Mapping[str, str]
    """Names in lower case; of several with one name the last."""
    connection: int
    """Which of the server's connections it came in on: 1, 2, ..."""
    at: float
    """When, by `time.monotonic`."""
    body: bytes = b""


Answer: TypeAlias = Reply | Callable[[Request], Reply]


def reply(*steps: Step, keep: bool = False) -> Reply:
    """Raw steps, nothing added."""
    return Reply(steps, keep)


def page(body: bytes = b"", status: str = "200 OK", *headers: str, keep: bool = True) -> Reply:
    """A correct response: HTML, unless `headers` (whole lines) say otherwise."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    if not any(header.lower().startswith("content-type:") for header in headers):
        lines.append("Content-Type: text/html; charset=utf-8")
    return Reply(["\r\n".join((*lines, "", "")).encode("latin-1") + body], keep)


NOT_FOUND: Final = page(b"", "404 Not Found")


class ScriptedServer:
    """Serves `routes`: by request target, or decided by a function for all of them."""

    def __init__(
        self,
        routes: Mapping[str, Answer] | Callable[[Request], Reply],
        *,
        host: str = "127.0.0.1",
        tls: bool = False,
    ) -> None:
        self.requests: list[Request] = []
        """All received so far."""
        self.connections = 0
        """How many were opened so far."""
        self._routes = routes
        self._scheme = "https" if tls else "http"
        self._tls = tls_context() if tls else None
        self._socket = socket.create_server((host, 0))
        self.host, self.port = self._socket.getsockname()[:2]
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"scripted server on {self.port}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def address(self) -> str:
        """The host and the port, as in URLs."""
        return f"{self.host}:{self.port}"

    def url(self, target: str = "/") -> str:
        """The URL of a request target."""
        return f"{self._scheme}://{self.address}{target}"

    def count(self, target: str) -> int:
        """How often it was asked for."""
        return sum(request.target == target for request in self.requests)

    def _run(self) -> None:
        with contextlib.closing(self._loop):
            self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        handlers: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = asyncio.create_task(self._converse(reader, writer, self.connections))
            handlers.add(task)
            task.add_done_callback(handlers.discard)

        server = await asyncio.start_server(connected, sock=self._socket, ssl=self._tls)
        await self._stop.wait()
        server.close()
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
        await server.wait_closed()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        async with closed(writer):
            while request := await read_request(reader, connection):
                self.requests.append(request)
                answer = self._answer(request)
                if not await act(answer.steps, writer) or not answer.keep:
                    break

    def _answer(self, request: Request) -> Reply:
        if not isinstance(self._routes, Mapping):
            return self._routes(request)
        answer = self._routes.get(request.target, NOT_FOUND)
        return answer if isinstance(answer, Reply) else answer(request)


@contextlib.asynccontextmanager
async def closed(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close the connection at the end of what is done with it, which is also when the client goes away."""
    try:
        with contextlib.suppress(OSError, ssl.SSLError):
            yield
    finally:
        writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await writer.wait_closed()


async def read_request(reader: asyncio.StreamReader, connection: int) -> Request | None:
    """The next request; None if there is none any more."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = (line.partition(":")[::2] for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    at = time.monotonic()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, target, headers, connection, at, body)


async def act(steps: Iterable[Step], writer: asyncio.StreamWriter) -> bool:
    """Do it; returns whether the connection is still there afterwards."""
    for step in steps:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
        elif isinstance(step, Reset):
            _reset(writer)
            return False
        else:
            writer.write(step)
            await writer.drain()
    return True


def _reset(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def tls_context() -> ssl.SSLContext:
    """For servers, with a certificate that nobody trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder) / "chain.pem"
        chain.write_text(_CHAIN)
        context.load_cert_chain(chain)
    return context


_CHAIN: Final = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgRlDQr+IO0J4hgC5I
fXI7dV8hw48yDcch1xflcN9z1NWhRANCAAQuey7mveAf9X8BEvveWmNL/OK4flmt
8xnx0LYauCZ5EAo+dYUibntIL8rQxupPF8EYUGB92dRa+o61rvx795PC
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBnTCCAUOgAwIBAgIUdcr2BjPzNN5rH64GTiiRHXbPuCQwCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKc2hvYWwgdGVzdDAgFw0yNjEyMDIwMDQ5MDNaGA8yMTI2MTEw
ODAwNDkwM1owFTETMBEGA1UEAwwKc2hvYWwgdGVzdDBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABC57Lua94B/1fwES+95aY0v84rh+Wa3zGfHQthq4JnkQCj51hSJu
e0gvytDG6k8XwRhQYH3Z1Fr6jrWu/Hv3k8KjbzBtMB0GA1UdDgQWBBS/gRM9npnN
D9Jz/BFFvbl3lfUOGjAfBgNVHSMEGDAWgBS/gRM9npnND9Jz/BFFvbl3lfUOGjAP
BgNVHRMBAf8EBTADAQH/MBoGA1UdEQQTMBGCCWxvY2FsaG9zdIcEfwAAATAKBggq
hkjOPQQDAgNIADBFAiEArQLXnM+WNOl7Ja1gxcVp/5Qb1p7l96yjioA+L1N2tuIC
ICRf99UaOAIFq5vbisMB1ECq0okfmfJ5J84sV9uH7oK6
-----END CERTIFICATE-----
"""
"""A self-signed certificate for localhost and 127.0.0.1 with its key, made for these tests."""
