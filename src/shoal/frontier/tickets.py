"""Tickets: how many bounded runs of workers (slices) a crawl has out. The contract of every back end.

A job queue (Celery, or any other) carries tickets, never URLs. A ticket is a numbered slot with a generation:

    free     --add, mint, end, tick-->  queued    (generation + 1: a ticket to be sent)
    queued   --claim-->                 running   (by one owner, until a deadline that `beat` moves)
    queued   --unmint-->                free      (it could not be sent)
    queued   --tick, too old-->         queued    (generation + 1: it is taken for lost and sent again)
    running  --end, fail-->             free
    running  --tick, no beat-->         free

As `lease` does, `tick` buries links of hosts that were given up.

A ticket whose generation is not the current one is worth nothing, so the job queue may lose, repeat or delay
tickets as it likes. There are as many slots as its workers have room for (`tick`), and no more in use
than there are URLs ready to be fetched. They are kept in the frontier and change in the same step as it does.

Verbs return the tickets that are now to be sent. `now` as in `Frontier`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from shoal.model import Link

MOST_DOUBLINGS = 6
"""A lost ticket is sent again after `queued_s`, the next one after twice that, up to 64 times."""

SlotState: TypeAlias = Literal["free", "queued", "running"]


class Pace(Struct, frozen=True):
    """The times of tickets, and the most there may be."""

    slice_s: float = 30.0
    """How long a slice leases."""
    drain_s: float = 10.0
    """How long what it has begun may take then, before it is given back."""
    beat_s: float = 1.0
    """Between two beats of a slice."""
    running_s: float = 20.0
    """A slice without a beat for so long is taken for dead."""
    queued_s: float = 60.0
    """A ticket that nobody has taken for so long is taken for lost; the next time after twice as long, ..."""
    tick_s: float = 2.0
    """Between two ticks of a node."""
    most: int = 256
    """Tickets out at once."""

    @property
    def node_s(self) -> float:
        """A node without a tick for so long is taken for dead; some cannot tick during a slice."""
        return max(3 * self.tick_s, self.slice_s + self.drain_s + 10.0)

    @property
    def expires_s(self) -> float:
        """After this time a ticket is certainly worth nothing."""
        return self.queued_s * 2.0**MOST_DOUBLINGS


class Ticket(Struct, frozen=True, order=True):
    """The right to run one slice."""

    slot: int
    generation: int


class Slot(Struct, frozen=True):
    """What is known of a slot that is not free."""

    ticket: Ticket
    state: SlotState
    deadline: float
    owner: str = ""
    tries: int = 0
    """How often it was sent again since somebody took it."""
    pages: int = 0
    """How many pages the slice has done so far."""


class Crew(Struct, frozen=True):
    """All that is known of tickets and of who may take them."""

    slots: tuple[Slot, ...]
    """In use, in their order."""
    nodes: tuple[tuple[str, int], ...]
    """Nodes alive, and how many slices each may run at once."""


class Tickets(ABC):
    """The tickets of one crawl, on a frontier of it: like that, one object belongs to one thread."""

    @abstractmethod
    def add(self, links: Iterable[Link], *, now: float | None = None) -> tuple[int, list[Ticket]]:
        """Add links to the frontier (`Frontier.add`), and mint; also returns how many were new."""

    @abstractmethod
    def mint(self, *, now: float | None = None) -> list[Ticket]:
        """Queue as many free slots as there is ready work for; O(1) if there are enough."""

    @abstractmethod
    def unmint(self, tickets: Sequence[Ticket]) -> None:
        """Free slots whose tickets could not be sent."""

    @abstractmethod
    def claim(self, ticket: Ticket, owner: str, *, now: float | None = None) -> bool:
        """Take a ticket; False if it is worth nothing. A slot that is running is never taken over."""

    @abstractmethod
    def beat(
        self, ticket: Ticket, owner: str, pages: int, *, now: float | None = None
    ) -> tuple[bool, list[Ticket]]:
        """Go on running, and mint; False if the slot is no longer the owner's: then lease no more."""

    @abstractmethod
    def end(self, ticket: Ticket, owner: str, *, again: bool, now: float | None = None) -> list[Ticket]:
        """Free the slot, and mint if `again`."""

    @abstractmethod
    def fail(self, ticket: Ticket, *, lost: bool, now: float | None = None) -> bool:
        """Free a running slot and give back all leases of its owner; False if it is not running.

        lost: the owner died, so its leases count as lost.
        """

    @abstractmethod
    def tick(self, node: str, capacity: int, *, now: float | None = None) -> list[Ticket]:
        """A node is alive and may run so many slices at once; 0: it takes no tickets, and none is minted.

        Takes back leases that ran out, frees slots without a beat, sends lost tickets again, and mints.
        """

    @abstractmethod
    def crew(self, *, now: float | None = None) -> Crew:
        """Slots in use and nodes alive."""


def queued_for_s(pace: Pace, tries: int) -> float:
    """How long to wait for a ticket to be taken that was sent again so often."""
    return pace.queued_s * 2.0 ** min(tries, MOST_DOUBLINGS)
