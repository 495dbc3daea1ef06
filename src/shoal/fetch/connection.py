"""aiohttp's connections, made safe: to which address they may go, and what they take from a server."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import socket
from typing import Any, Final, cast

import aiohttp
from aiohttp.abc import AbstractResolver
from aiohttp.client_proto import ResponseHandler

from shoal.addresses import KINDS, Kind, kind_of
from shoal.decode import FetchError
from shoal.fetch.trouble import FORBIDDEN, brief, dropped

MAX_HEAD_BYTES: Final = 262_144
"""All that may come before the body, interim (1xx) responses included."""

MAX_HEADS: Final = 100
"""Interim (1xx) responses before the one that counts, and empty lines in place of them."""

MAX_WRAPPING: Final = 2
"""Most bytes received for each byte of a body, beyond MAX_HEAD_BYTES: enough for chunks of 5 bytes."""

_DNS_CACHE_S: Final = 300
logging.getLogger("aiohttp").addHandler(logging.NullHandler())  # or bad cookies would get onto the screen

_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")


def connector(
    *,
    allow: frozenset[Kind] | None,
    connections: int,
    idle: int,
    per_host: int,
    keepalive_timeout_s: float,
    verify_tls: bool,
    resolver: AbstractResolver | None,
) -> aiohttp.TCPConnector:
    """A pool of connections. `allow` is for `guard`; None: to a proxy, which is not guarded."""
    made = aiohttp.TCPConnector(
        limit=connections,
        limit_per_host=per_host,
        keepalive_timeout=keepalive_timeout_s,
        ttl_dns_cache=_DNS_CACHE_S,
        ssl=verify_tls,
        resolver=resolver,
        socket_factory=functools.partial(_guarded_socket, KINDS if allow is None else allow),
    )
    # behind a proxy the start of a tunnel looks like an idle connection, and must not be closed
    max_idle = None if allow is None else idle or None
    made._factory = cast(
        "functools.partial[ResponseHandler]",
        functools.partial(_Connection, asyncio.get_running_loop(), {}, max_idle),
    )
    return made


def refuse(kind: Kind | None, allow: frozenset[Kind], name: str) -> None:
    """Raises OSError with the number FORBIDDEN if what is called `name` is of a kind that is not allowed."""
    if kind is not None and kind not in allow:
        raise OSError(FORBIDDEN, f"{name} is a {kind} address (see --allow-private)")


class Socket(socket.socket):
    """Closes when nobody holds it any more: aiohttp forgets one whose connection dies while it is set up."""

    def __del__(self) -> None:
        self.close()


def _guarded_socket(
    allow: frozenset[Kind], address_info: tuple[int, int, int, str, tuple[Any, ...]]
) -> Socket:
    """Make the socket for an address that is about to be connected to: the last moment to refuse it.

    What is checked here is what is connected to: a name whose answer changes (DNS rebinding) gains nothing.
    """
    family, kind, protocol, _, address = address_info
    refuse(kind_of(address[0]), allow, address[0])
    return Socket(family, kind, protocol)


class _Connection(ResponseHandler):
    """aiohttp's connection, made to treat sloppy servers as browsers do.

    - Bytes after a complete response are dropped with the connection, instead of failing the response or,
      worse, answering the next request.
    - A body that a reset or a broken chunk cuts off is not taken for a whole one, nor waited for.
    - The head is bounded as a whole, and so is what comes with the body without being a part of it: sizes and
      extensions of chunks, trailers.
    - Only a connection that was used before may have died of old age: aiohttp sends the request once more
      whenever a connection is dropped, which would ask a server that crashes on a page twice each time.
    - The number of idle connections is bounded: the oldest one goes.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, idle: dict[_Connection, None], max_idle: int | None
    ) -> None:
        super().__init__(loop)
        self._idle = idle
        self._max_idle = max_idle
        self._requests = 0
        self._in_head = False
        self._heads = 0
        self._head_bytes = 0
        self._body_bytes = 0

    def set_response_params(self, **params: Any) -> None:
        """A request is about to be sent."""
        self._idle.pop(self, None)
        self._requests += 1
        self._in_head = True
        self._heads = 0
        self._head_bytes = 0
        self._body_bytes = 0
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """A head has been parsed: of an interim response, or of the one that counts."""
        status: int = data[0].code
        self._in_head = 100 <= status < 200 and status != 101
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Bytes have come; if there are none, parsing goes on after a pause."""
        if not data:
            super().data_received(data)
        at = 0
        while at < len(data) and self.exception() is None:
            if self._in_head:
                end = _HEAD_END.search(data, at)
                head = data[at : end.end() if end else None]
                at += len(head)
                self._heads += end is not None
                self._head_received(head)
            elif self._complete:
                self._end()
                return
            else:
                self._body_received(data[at:])
                break
        self._settle()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone; `exc` is None if it was closed in an orderly way."""
        self._idle.pop(self, None)
        if self._requests == 1 and not self.is_eof():
            self.set_exception(dropped(exc))
        if exc is not None:
            self._cut_off(exc)
        super().connection_lost(exc)

    def close(self) -> None:
        """Close the connection, which may be in the middle of a body."""
        self._cut_off(None)
        super().close()

    def abort(self) -> None:
        """Close it at once."""
        self._cut_off(None)
        super().abort()

    @property
    def _complete(self) -> bool:
        return self._payload is None or self._payload.is_eof()

    def _cut_off(self, error: BaseException | None) -> None:
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(dropped(error))

    def _head_received(self, head: bytes) -> None:
        self._head_bytes += len(head)
        if self._head_bytes > MAX_HEAD_BYTES or self._heads > MAX_HEADS:
            self.set_exception(FetchError("protocol", "too much before the body"))
            self._end()
        else:
            super().data_received(head)

    def _body_received(self, data: bytes) -> None:
        super().data_received(data)
        self._body_bytes += len(data)
        if self._payload is None or self._payload.is_eof():
            return
        if self._body_bytes > MAX_HEAD_BYTES + MAX_WRAPPING * self._payload.total_bytes:
            self._payload.set_exception(FetchError("protocol", "far more bytes around the body than in it"))
            self._end()

    def _settle(self) -> None:
        if self._in_head or self._payload is None:
            return
        if self._payload.is_eof():
            self._idle[self] = None
            if self._max_idle is not None and len(self._idle) > self._max_idle:
                next(iter(self._idle))._end()
        elif (error := self.exception()) is not None:
            words = getattr(error, "message", None) or str(error)
            self._payload.set_exception(FetchError("protocol", brief(words)))

    def _end(self) -> None:
        self._idle.pop(self, None)
        self.force_close()
        if self.transport is not None:
            self.transport.close()
