"""The connection to Redis: URLs, scripts, errors, and a bell to wait for."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import select
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec
import redis
from redis.sentinel import Sentinel

from shoal.errors import ConfigError, FrontierError, FrontierUnavailable, ShoalError

TIMEOUT_S = 10.0

log = logging.getLogger("shoal.frontier")


class Server:
    """One Redis, and the keys of one prefix on it. `client` is untyped: types begin above this module."""

    def __init__(self, url: str) -> None:
        """Nothing is sent yet. Raises ConfigError for a bad URL."""
        self.url = url
        self.client, self.prefix = _connect(url, TIMEOUT_S)

    def check(self) -> None:
        """Raise FrontierError for a server that would lose URLs or is too old, FrontierUnavailable."""
        with self.translated():
            _check_server(self.client, self.url)

    def call(
        self, verb: str, base: str, *arguments: object, more: Sequence[bytes] = (), now: float | None = None
    ) -> Any:
        """Run the script of a verb; it is sent whole only to a server that does not know it yet."""
        source, sha = _script(verb)
        values = ("" if now is None else repr(now), msgspec.msgpack.encode(arguments), *more)
        with self.translated():
            try:
                return self.client.evalsha(sha, 1, base, *values)
            except redis.exceptions.NoScriptError:
                return self.client.eval(source, 1, base, *values)

    def names(self) -> list[str]:
        """The crawls on it, in alphabetical order."""
        with self.translated():
            found = list(self.client.scan_iter(f"{escaped(self.prefix)}:{{*}}:crawl", count=1000))
        return sorted(key.decode().removeprefix(f"{self.prefix}:{{").removesuffix("}:crawl") for key in found)

    @contextmanager
    def translated(self) -> Iterator[None]:
        """The errors of client and server in our words."""
        try:
            yield
        except redis.RedisError as error:
            raise _translate(error, self.url) from error

    def close(self) -> None:
        self.client.close()


class Bell:
    """What an idle worker waits for: its own list, into which scripts put something, or the inbox.

    Two connections block on our behalf. Their commands stay outstanding from one wait to the next, so that
    a wait costs no round trip.
    """

    def __init__(self, url: str) -> None:
        self._pool = _connect(url, None)[0].connection_pool
        self._blocked: dict[str, Any] = {}
        self._pipe = list(os.pipe())
        self._in, self._out = self._pipe
        os.set_blocking(self._in, False)

    def wait(self, own: str, inbox: str, seconds: float) -> None:
        """Until there is something in the list `own` or `inbox`, or `ring`; at most `seconds`."""
        try:
            self._block("BLPOP", own, 0)
            self._block("BLMOVE", inbox, inbox, "RIGHT", "RIGHT", 0)  # back to its place: only to know
            sockets = {connection._sock: command for command, connection in self._blocked.items()}
            readable, _, _ = select.select([*sockets, self._in], [], [], seconds)
            for command in [sockets[each] for each in readable if each in sockets]:
                connection = self._blocked.pop(command)
                connection.read_response()
                self._pool.release(connection)
        except (redis.RedisError, OSError):
            self._unblock()
            time.sleep(min(seconds, 1.0))  # the next verb says what is wrong
        with suppress(BlockingIOError):
            os.read(self._in, 4096)

    def ring(self) -> None:
        """End the wait that is going on or comes next; from any thread."""
        os.write(self._out, b"1")

    def close(self) -> None:
        self._unblock()
        self._pool.disconnect()
        while self._pipe:
            os.close(self._pipe.pop())

    def _block(self, command: str, *arguments: object) -> None:
        if command not in self._blocked:
            connection = self._pool.get_connection()
            connection.send_command(command, *arguments)
            self._blocked[command] = connection

    def _unblock(self) -> None:
        for connection in self._blocked.values():
            connection.disconnect()
            self._pool.release(connection)
        self._blocked.clear()


def crawl_names(url: str) -> list[str]:
    """The crawls of a server. Raises as RedisFrontier does."""
    server = Server(url)
    try:
        return server.names()
    finally:
        server.close()


def _connect(url: str, timeout_s: float | None) -> tuple[Any, str]:
    """A client, and the prefix of all keys. Nothing is sent yet.

    url: redis://, rediss:// (TLS) or redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB, with user and password
    in it or in the environment (REDIS_USERNAME, REDIS_PASSWORD), and ?prefix=NAME for another prefix.
    """
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    prefix = options.pop("prefix", "shoal")
    login = {
        "username": parts.username or os.environ.get("REDIS_USERNAME"),
        "password": parts.password or os.environ.get("REDIS_PASSWORD"),
    }
    common: dict[str, Any] = {
        **{name: unquote(value) for name, value in login.items() if value},
        "socket_timeout": timeout_s,
        "socket_connect_timeout": TIMEOUT_S,
        "socket_keepalive": True,
        "health_check_interval": 0,
    }
    try:
        if parts.scheme == "redis+sentinel":
            return _sentinel(parts, common), prefix
        plain = urlunsplit(parts._replace(query=urlencode(options)))
        return redis.Redis.from_url(plain, **common), prefix
    except (ValueError, TypeError) as error:
        raise ConfigError(f"not a Redis URL: {shown(url)} ({error})") from error


def _sentinel(parts: SplitResult, common: dict[str, Any]) -> Any:
    hosts = [each.rpartition(":") for each in parts.netloc.rpartition("@")[2].split(",")]
    master, _, database = parts.path.strip("/").partition("/")
    if not master:
        raise ValueError("it needs the name of the master: redis+sentinel://HOST:PORT/MASTER")
    sentinel: Any = Sentinel(  # type: ignore[no-untyped-call]
        [(host, int(port)) for host, _, port in hosts], socket_timeout=TIMEOUT_S
    )
    return sentinel.master_for(master, db=int(database or 0), **common)


def _check_server(client: Any, url: str) -> None:
    """Refuse a server that would lose URLs. Managed servers may forbid to ask; then nothing is known."""
    version = tuple(map(int, str(client.info("server")["redis_version"]).split(".")[:2]))
    if version < (6, 2):
        raise FrontierError(f"{shown(url)} is Redis {version[0]}.{version[1]}: shoal needs 6.2 or later")
    try:
        config = client.config_get("maxmemory-policy", "appendonly", "save")
    except redis.ResponseError:
        return
    policy = config.get("maxmemory-policy", "noeviction")
    if policy != "noeviction":
        raise FrontierError(
            f"{shown(url)} throws keys away when its memory is full (maxmemory-policy {policy}), which would"
            " lose URLs: set it to noeviction"
        )
    if config.get("appendonly") == "no" and not config.get("save"):
        _warn_once(
            f"{shown(url)} keeps nothing on disk: a restart of it loses the crawl; switch appendonly on"
        )


@cache
def _warn_once(text: str) -> None:
    log.warning("%s", text)


def _translate(error: redis.RedisError, url: str) -> ShoalError:
    where = shown(url)
    if isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError):
        return FrontierError(f"{where} refuses this user or password: {error}")
    text = str(error)
    transient = isinstance(
        error,
        redis.ConnectionError
        | redis.TimeoutError
        | redis.BusyLoadingError
        | redis.ReadOnlyError
        | redis.exceptions.OutOfMemoryError,
    ) or text.startswith(("OOM", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY"))
    if transient or "OOM" in text:
        return FrontierUnavailable(f"the frontier {where} cannot be used just now: {text}")
    return FrontierError(f"the frontier {where} does not work: {text}")


def shown(url: str) -> str:
    """The URL without its secrets."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def escaped(text: str) -> str:
    """For the patterns of SCAN."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)


@cache
def _script(verb: str) -> tuple[str, str]:
    """Source and SHA-1 of a verb."""
    folder = files("shoal.frontier").joinpath("lua")
    source = folder.joinpath("lib.lua").read_text() + folder.joinpath(f"{verb}.lua").read_text()
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
