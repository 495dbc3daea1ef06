"""The connection to Redis: URLs, scripts, errors, and a bell to wait for."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from shoal.errors import ConfigError, FrontierError, FrontierUnavailable, ShoalError
from shoal.place import shown

TIMEOUT_S = 10.0
GUARD = 0.9  # of Redis's maxmemory: beyond it, nothing new is taken in from outside
GONE = "GONE"  # the scripts' word for a crawl that is not there

log = logging.getLogger("shoal.frontier")


class Server:
    """One Redis, and the keys of one prefix on it. `client` is untyped: types begin above this module.

    It has one connection, which is never mended in silence: a server that was restarted, or replaced by
    another one, may have gone back to an earlier moment, and its clients must know.
    """

    def __init__(
        self, url: str, timeout_s: float = TIMEOUT_S, *, trouble: Callable[[], None] = lambda: None
    ) -> None:
        """Nothing is sent yet.

        timeout_s: for each answer. trouble: called before FrontierUnavailable is raised.
        Raises ConfigError for a bad URL.
        """
        self.url = url
        self._trouble = trouble
        self.client, own = _connect(url, timeout_s)
        self.prefix = own.prefix
        self._guard = own.guard

    def check(self) -> None:
        """Raise FrontierError for a server that would lose URLs or is too old, FrontierUnavailable."""
        with self.translated():
            _check_server(self.client, self.url)

    def is_nearly_full(self) -> bool:
        """Whether it uses more of its maxmemory than `guard` allows; False where INFO is forbidden."""
        with self.translated():
            memory = {"maxmemory": 0, "used_memory": 0, **_info(self.client, "memory")}
        return bool(memory["maxmemory"]) and memory["used_memory"] > self._guard * memory["maxmemory"]

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
            if self.client.connection is None:
                self._connect()
            yield
        except redis.RedisError as error:
            translated = _translate(error, self.url)
            if isinstance(translated, FrontierUnavailable):
                self._disconnect()
                self._trouble()
            raise translated from error

    def _connect(self) -> None:
        try:
            self.client.connection = self.client.connection_pool.get_connection()
        except TypeError as error:
            raise ConfigError(f"not a Redis URL: {shown(self.url)} ({error})") from error

    def _disconnect(self) -> None:
        """For good: the next connection may be one to another server, if Sentinel says so."""
        connection, self.client.connection = self.client.connection, None
        if connection is not None:
            connection.disconnect()
            self.client.connection_pool.release(connection)

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
        self._own = ""
        self._pipe = list(os.pipe())
        self._in, self._out = self._pipe
        os.set_blocking(self._in, False)

    def wait(self, own: str, inbox: str, seconds: float) -> None:
        """Until there is something in the list `own` or `inbox`, or `ring`; at most `seconds`."""
        if own != self._own:
            self._drop("BLPOP")  # it blocks on the list of another name
            self._own = own
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
            self.reset()
            time.sleep(min(seconds, 1.0))  # the next verb says what is wrong
        with suppress(BlockingIOError):
            os.read(self._in, 4096)

    def ring(self) -> None:
        """End the wait that is going on or comes next; from any thread."""
        os.write(self._out, b"1")

    def reset(self) -> None:
        """Connect anew for the next wait."""
        for command in [*self._blocked]:
            self._drop(command)

    def close(self) -> None:
        self.reset()
        self._pool.disconnect()
        while self._pipe:
            os.close(self._pipe.pop())

    def _drop(self, command: str) -> None:
        connection = self._blocked.pop(command, None)
        if connection is not None:
            connection.disconnect()
            self._pool.release(connection)

    def _block(self, command: str, *arguments: object) -> None:
        if command not in self._blocked:
            connection = self._pool.get_connection()
            connection.send_command(command, *arguments)
            self._blocked[command] = connection


def crawl_names(url: str) -> list[str]:
    """The crawls of a server. Raises as RedisFrontier does."""
    server = Server(url)
    try:
        return server.names()
    finally:
        server.close()


class _Own(NamedTuple):
    """Parameters of the URL that are ours."""

    prefix: str
    """Of all keys."""
    guard: float
    """See GUARD."""


def _connect(url: str, timeout_s: float | None) -> tuple[Any, _Own]:
    """A client, and what the URL says to us. Nothing is sent yet.

    url: redis://, rediss:// (TLS) or redis+sentinel://HOST:PORT,HOST:PORT/MASTER/DB, with user and password
    in it or in the environment (REDIS_USERNAME, REDIS_PASSWORD); ?prefix=NAME for another prefix of the
    keys, ?guard=SHARE for another one than GUARD.
    """
    try:
        parts = urlsplit(url)
        if "@" in f"{parts.path}{parts.query}{parts.fragment}":
            raise ValueError("write %XX for characters like / @ ? # in user and password")
        options = dict(parse_qsl(parts.query))
        own = _Own(options.pop("prefix", "shoal"), float(options.pop("guard", GUARD)))
        common = _login(parts) | {
            "socket_timeout": timeout_s,
            "socket_connect_timeout": TIMEOUT_S,
            "socket_keepalive": True,
            "health_check_interval": 0,
            "retry": Retry(NoBackoff(), 0),  # the unanswered may have been done: whoever asked sees to it
        }
        if parts.scheme == "redis+sentinel":
            return _sentinel(parts, common), own
        if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"/?\d*", parts.path):
            raise ValueError("the database is a number: redis://HOST:PORT/0")
        plain = urlunsplit(parts._replace(query=urlencode(options)))
        return redis.Redis.from_url(plain, **common), own
    except (ValueError, TypeError) as error:
        raise ConfigError(f"not a Redis URL: {shown(url)} ({error})") from error


def _login(parts: SplitResult) -> dict[str, Any]:
    """User and password: what the URL says, else the environment."""
    login = {
        "username": unquote(parts.username or "") or os.environ.get("REDIS_USERNAME"),
        "password": unquote(parts.password or "") or os.environ.get("REDIS_PASSWORD"),
    }
    return {name: value for name, value in login.items() if value}


def _sentinel(parts: SplitResult, common: dict[str, Any]) -> Any:
    hosts = [each.rpartition(":") for each in parts.netloc.rpartition("@")[2].split(",")]
    master, _, database = parts.path.strip("/").partition("/")
    if not master:
        raise ValueError("it needs the name of the master: redis+sentinel://HOST:PORT/MASTER")
    sentinel: Any = Sentinel(  # type: ignore[no-untyped-call, unused-ignore]  # typed since redis 8.2
        [(host, int(port)) for host, _, port in hosts], socket_timeout=TIMEOUT_S
    )
    return sentinel.master_for(master, db=int(database or 0), **common)


def _check_server(client: Any, url: str) -> None:
    """Refuse a server that would lose URLs. Managed servers may forbid to ask; then nothing is known."""
    version = tuple(map(int, str(_info(client, "server").get("redis_version", "6.2")).split(".")[:2]))
    if version < (6, 2):
        raise FrontierError(f"{shown(url)} is Redis {version[0]}.{version[1]}: shoal needs 6.2 or later")
    policy = _info(client, "memory").get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise FrontierError(
            f"{shown(url)} throws keys away when its memory is full (maxmemory-policy {policy}), which would"
            " lose URLs: set it to noeviction"
        )
    persistence = {"loading": 0, "aof_enabled": 1, **_info(client, "persistence")}
    if not (persistence["loading"] or persistence["aof_enabled"]) and _setting(client, "save") == "":
        _warn_once(
            f"{shown(url)} keeps nothing on disk: a restart of it loses the crawl; switch appendonly on"
        )


def _info(client: Any, section: str) -> dict[str, Any]:
    try:
        return dict(client.info(section))
    except redis.exceptions.NoPermissionError:
        return {}


def _setting(client: Any, name: str) -> str | None:
    try:
        return dict(client.config_get(name)).get(name)
    except redis.ResponseError:
        return None


@cache
def _warn_once(text: str) -> None:
    log.warning("%s", text)


def _translate(error: redis.RedisError, url: str) -> ShoalError:
    where = shown(url)
    if isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError):
        return FrontierError(f"{where} refuses this user or password: {error}")
    text = _IN_SCRIPT.sub("", str(error))
    if text.startswith(GONE):
        return FrontierError(f"{where} has lost the crawl: it was started again without its data, or emptied")
    if isinstance(error, _PASSING) or _PASSES.search(text):
        return FrontierUnavailable(f"the frontier {where} cannot be used just now: {text}")
    return FrontierError(f"the frontier {where} does not work: {text}")


_PASSING = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.ReadOnlyError,
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.TryAgainError,
)
_PASSES = re.compile("(?:^|: -)(?:OOM|READONLY|LOADING|MISCONF|NOREPLICAS|BUSY)\\b")
"""What an error begins with that will pass, also if Redis before 7 reports it out of a script."""

_IN_SCRIPT = re.compile(r",? script:(?: [0-9a-f]{40},)? on @user_script:\d+\.")
"""Where in a script the error came up, which says nothing to people."""


def escaped(text: str) -> str:
    """For the patterns of SCAN."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", text)


@cache
def _script(verb: str) -> tuple[str, str]:
    """Source and SHA-1 of a verb."""
    source = _source(verb)
    return source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


def _source(verb: str) -> str:
    folder = files("shoal.frontier").joinpath("lua")
    shared = {"ticket": ("lib", "tickets"), "commit": ("lib", "caution")}.get(
        verb.partition("_")[0], ("lib",)
    )
    return "".join(folder.joinpath(f"{name}.lua").read_text() for name in (*shared, verb))
