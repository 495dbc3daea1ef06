"""Good servers beside bad ones: endless small pages on many addresses, in a process of their own.

    with Healthy(hosts=50, strangers=["http://127.66.0.1:4711/"]) as healthy:
        crawl(healthy.seeds("calm"))
    print(healthy.pages("calm"))

Page N of a kind links to page N + 1 of the same kind and host. Wild ones also lead to strangers at times.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Self

from tests.hostile.hosts import ROOT

WILD = "wild"
PAGES_PER_STRANGER = 10
FILLER = "x" * 10_000


class Healthy:
    """Serves on the addresses from 127.67.0.1 on, all at one port, while the context is open."""

    def __init__(self, *, hosts: int, strangers: Sequence[str]) -> None:
        self._arguments = [str(hosts), json.dumps(list(strangers))]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.healthy", *self._arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        self._origins: list[str] = self._answer()
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def seeds(self, kind: str) -> list[str]:
        """One page of each host."""
        return [f"{origin}/{kind}/0" for origin in self._origins]

    def pages(self) -> Counter[str]:
        """How many pages of each kind were asked for so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Counter(self._answer())

    def _answer(self) -> object:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


class Connection(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def __init__(self, asked: Counter[str], strangers: Sequence[str]) -> None:
        self._asked = asked
        self._strangers = strangers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """A request, which is small and comes in one piece."""
        target = data.split(b" ", 2)[1].decode()
        _, kind, *rest = target.split("/")
        if not rest:
            self._send("404 Not Found", "")
            return
        self._asked[kind] += 1
        number = int(rest[0])
        links = f'<a href="/{kind}/{number + 1}">on</a>'
        if kind == WILD and self._asked[kind] % PAGES_PER_STRANGER == 0:
            at = self._asked[kind] // PAGES_PER_STRANGER
            links += f'<a href="{self._strangers[at % len(self._strangers)]}{at}">away</a>'
        self._send("200 OK", f"<title>{target}</title>{links}<p>{FILLER}")

    def _send(self, status: str, body: str) -> None:
        assert isinstance(self._transport, asyncio.WriteTransport)
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write((head + body).encode())


async def serve(hosts: int, strangers: Sequence[str]) -> None:
    """Serve until standard input ends; origins, and then counts for each line of input, go to its output."""
    asked: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    port = 0
    for number in range(1, hosts + 1):
        server = await loop.create_server(lambda: Connection(asked, strangers), f"127.67.0.{number}", port)
        port = server.sockets[0].getsockname()[1]
    print(json.dumps([f"http://127.67.0.{number}:{port}" for number in range(1, hosts + 1)]), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(asked), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), json.loads(sys.argv[2])))
