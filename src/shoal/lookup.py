"""Which address a host has, as the system looks it up: for politeness by address."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from shoal.threads import HandlerThreads

LOOK_UP_S = 5.0
"""What is not found by then is not waited for."""

MOST = 64
"""Lookups at once in one process: names of dead name servers take long."""

CAPACITY = 50_000


class _Lookup(NamedTuple):
    begun_at: float
    address: Future[str]
    """Empty if there is none."""


class Lookups:
    """Looks names up in threads of its own, and remembers what came of it.

    A host that is an address needs no lookup. Of the addresses of a name, which come in changing order, the
    lowest IPv4 one is taken, or the lowest IPv6 one, so that names that share all of them agree.
    """

    def __init__(self, find: Callable[[str], Collection[str]] | None = None) -> None:
        """find: the addresses of a name, instead of those that the system knows; OSError if it has none."""
        self.find = find or _addresses
        self._threads = HandlerThreads(MOST)
        self._known: dict[str, _Lookup] = {}

    async def warm(self, names: Collection[str]) -> None:
        """Look them up, so that `of` need not wait. Takes LOOK_UP_S at most."""
        begun = [self._begin(name).address for name in names]
        if pending := [asyncio.wrap_future(each) for each in begun if not each.done()]:
            await asyncio.wait(pending, timeout=LOOK_UP_S)

    def of(self, names: Collection[str]) -> dict[str, str]:
        """The address of each name; the name itself if none came within LOOK_UP_S.

        The time counts from when a name was first asked for, in whatever thread.
        """
        lookups = {name: self._begin(name) for name in names}
        until = max((each.begun_at for each in lookups.values()), default=0.0) + LOOK_UP_S
        wait([each.address for each in lookups.values()], timeout=max(0.0, until - time.monotonic()))
        return {
            name: (each.address.result() if each.address.done() else "") or name
            for name, each in lookups.items()
        }

    def close(self) -> None:
        """Let the threads end when they are done."""
        self._threads.shutdown()

    def _begin(self, name: str) -> _Lookup:
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= CAPACITY:
                self._known.clear()
            known = _Lookup(time.monotonic(), self._threads.submit(partial(self._address, name)))
            self._known[name] = known
        return known

    def _address(self, name: str) -> str:
        with suppress(ValueError):
            return str(ipaddress.ip_address(name.strip("[]")))
        with suppress(OSError, ValueError):
            found = map(ipaddress.ip_address, self.find(name))
            return str(min(found, key=lambda address: (address.version, int(address))))
        return ""


def _addresses(name: str) -> set[str]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return {str(address[0]).partition("%")[0] for *_, address in found}
