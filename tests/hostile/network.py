"""All addresses of the world without leaving this machine, and what names mean there."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from shoal.fetch.connection import Socket


class Names(AbstractResolver):
    """Looks names up: each name has a list of answers, which are given in turn, the last one for ever."""

    def __init__(self, answers: Mapping[str, Iterable[tuple[str, ...]]]) -> None:
        self._answers = {name: list(each) for name, each in answers.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of the next answer."""
        self.asked.append(host)
        answers = self._answers.get(host)
        if answers is None:
            raise OSError(None, "no such name")
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [_resolved(host, address, port) for address in addresses]

    async def close(self) -> None:
        """There is nothing to close."""


def _resolved(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)


@contextmanager
def everywhere(server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let every connection of this thread, whatever its address, lead to one server on loopback.

    Yields the addresses that were connected to. For asyncio's own loop: others do not use Python's sockets.
    """
    connected: list[str] = []

    class Diverted(Socket):
        """Says that it is of the family asked for, and goes to the server."""

        def __init__(self, family: int = socket.AF_INET, *args: Any, **options: Any) -> None:
            self._family = family
            super().__init__(socket.AF_INET if family == socket.AF_INET6 else family, *args, **options)

        @property
        def family(self) -> Any:
            return self._family

        def connect(self, address: Any) -> None:
            connected.append(address[0])
            super().connect(server)

    with monkeypatch.context() as patch:
        patch.setattr("shoal.fetch.connection.Socket", Diverted)
        yield connected
