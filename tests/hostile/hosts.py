"""Many bad servers at once, each with an address of its own, in a process of their own.

with Hosts(MISBEHAVIOURS) as hosts:
    crawl(hosts.url("a body without end"))
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Self

from tests.hostile.misbehaviours import MISBEHAVIOURS, Misbehaviour, Steps
from tests.servers import act, closed, read_request, tls_context

from shoal.frontier import Frontier
from shoal.model import PageRecord

NO_ROBOTS = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
BACKLOG_FILLERS = 3
ROOT = Path(__file__).parents[2]


class Hosts:
    """Serves each misbehaviour on a free port of 127.66.0.N while the context is open."""

    def __init__(self, names: Iterable[str] = MISBEHAVIOURS) -> None:
        self._names = list(names)
        self._urls: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.hosts", json.dumps(self._names)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        self._urls = json.loads(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def url(self, name: str) -> str:
        """The URL of its page."""
        return self._urls[name]

    def wrong(self, frontier: Frontier, names: Iterable[str]) -> dict[str, PageRecord | None]:
        """Those whose page has not the outcome that it should; some back ends forget why one is done."""
        found = {name: frontier.why(self.url(name)) for name in names}
        return {
            name: record
            for name, record in found.items()
            if record is None
            or not MISBEHAVIOURS[name].has(
                record.state, record.reason, reasons=frontier.remembers_done or record.state != "done"
            )
        }


async def serve(names: list[str]) -> None:
    """Serve until standard input ends; the URLs go to standard output."""
    cases = {name: MISBEHAVIOURS[name] for name in names}
    sockets = {name: _listening(f"127.66.0.{at}", case) for at, (name, case) in enumerate(cases.items(), 1)}
    fillers = [_fill(sockets[name]) for name, case in cases.items() if case.door == "full"]
    for name, case in cases.items():
        if case.door not in {"closed", "full"}:
            tls = tls_context() if case.door in {"tls", "tls only"} else None
            await asyncio.start_server(_conversation(case), sock=sockets[name], ssl=tls)
    print(json.dumps({name: _url(case, sockets[name]) for name, case in cases.items()}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    del fillers


def _url(case: Misbehaviour, listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    scheme = "https" if case.door in {"tls", "mute"} else "http"
    return f"{scheme}://{host}:{port}/"


def _conversation(
    case: Misbehaviour,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    return lambda reader, writer: _converse(case, reader, writer)


async def _converse(case: Misbehaviour, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection, one answer, until the other side has had enough."""
    async with closed(writer):
        if case.door in {"rude", "mute"}:
            steps: Steps | None = case.answer
        elif request := await read_request(reader, 0):
            steps = case.robots or (lambda: [NO_ROBOTS]) if request.target == "/robots.txt" else case.answer
        else:
            steps = None
        if steps is not None:
            await _until_gone(reader, act(steps(), writer))


async def _until_gone(reader: asyncio.StreamReader, acting: Coroutine[None, None, object]) -> None:
    """Act, but no longer than the client is there."""
    task = asyncio.ensure_future(acting)
    gone = asyncio.ensure_future(_gone(reader))
    try:
        await asyncio.wait([task, gone], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while await reader.read(65_536):
            pass


def _listening(host: str, case: Misbehaviour) -> socket.socket:
    if case.door == "closed":
        bound = socket.socket()
        bound.bind((host, 0))  # the port is kept, and nobody listens
        return bound
    return socket.create_server((host, 0), backlog=0 if case.door == "full" else 100)


def _fill(listening: socket.socket) -> list[socket.socket]:
    """Connections that take all the room there is for those that are not accepted."""
    fillers = [socket.socket() for _ in range(BACKLOG_FILLERS)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(listening.getsockname())
    return fillers


if __name__ == "__main__":
    asyncio.run(serve(json.loads(sys.argv[1])))
