"""The tickets of a crawl on Redis: a Lua script for each verb; lua/tickets.lua has the keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from shoal.frontier.redis import RedisFrontier
from shoal.frontier.redis_values import pack_link
from shoal.frontier.tickets import Crew, Pace, Slot, SlotState, Ticket, Tickets
from shoal.model import Link

_STATES: tuple[SlotState, ...] = ("free", "queued", "running")


class RedisTickets(Tickets):
    """See `shoal.frontier.tickets.Tickets`."""

    def __init__(self, frontier: RedisFrontier, pace: Pace) -> None:
        """On the connection of this frontier, which remains the caller's."""
        self._frontier = frontier
        self._node_s = pace.node_s
        self._pace = msgspec.msgpack.encode((pace.queued_s, pace.running_s, pace.most))

    def add(self, links: Iterable[Link], *, now: float | None = None) -> tuple[int, list[Ticket]]:
        links = list(links)
        host_key = self._frontier._key_of_new(links)
        new, minted = self._call("add", [pack_link(link, host_key) for link in links], now=now)
        return new, _tickets(minted)

    def mint(self, *, now: float | None = None) -> list[Ticket]:
        return _tickets(self._call("mint", now=now))

    def unmint(self, tickets: Sequence[Ticket]) -> None:
        self._call("unmint", [number for each in tickets for number in (each.slot, each.generation)])

    def claim(self, ticket: Ticket, owner: str, *, now: float | None = None) -> bool:
        return bool(self._call("claim", ticket.slot, ticket.generation, owner, now=now))

    def beat(
        self, ticket: Ticket, owner: str, pages: int, *, now: float | None = None
    ) -> tuple[bool, list[Ticket]]:
        held, minted = self._call("beat", ticket.slot, ticket.generation, owner, pages, now=now)
        return bool(held), _tickets(minted)

    def end(self, ticket: Ticket, owner: str, *, again: bool, now: float | None = None) -> list[Ticket]:
        return _tickets(self._call("end", ticket.slot, ticket.generation, owner, again, now=now))

    def fail(self, ticket: Ticket, *, lost: bool, now: float | None = None) -> bool:
        return bool(self._call("fail", ticket.slot, ticket.generation, lost, now=now))

    def tick(self, node: str, capacity: int, *, now: float | None = None) -> list[Ticket]:
        return _tickets(self._call("tick", node, capacity, self._node_s, now=now))

    def crew(self, *, now: float | None = None) -> Crew:
        slots, nodes = self._call("crew", now=now)
        return Crew(
            slots=tuple(sorted((_slot(*pair) for pair in _pairs(slots)), key=lambda slot: slot.ticket)),
            nodes=tuple(sorted((name.decode(), capacity) for name, capacity in _pairs(nodes))),
        )

    def _call(self, verb: str, *arguments: object, now: float | None = None) -> Any:
        return self._frontier._call(f"ticket_{verb}", *arguments, more=[self._pace], now=now)


def _pairs(flat: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)


def _tickets(flat: Sequence[int]) -> list[Ticket]:
    return [Ticket(*pair) for pair in _pairs(flat)]


def _slot(number: int, packed: bytes) -> Slot:
    generation, state, deadline, owner, tries, pages = msgspec.msgpack.decode(packed)
    return Slot(Ticket(number, generation), _STATES[state], deadline, owner, tries, pages)
