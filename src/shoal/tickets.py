"""Keep enough tickets out for the work that there is. Knows of no job queue: whoever uses it sends them.

    with Desk(frontier, pace, send) as desk: ...

| who | calls |
| --- | --- |
| a producer | `add` |
| a slice | `claim`, `beat` again and again, `end`; `fail` when it ends in any other way |
| each node of the job queue | `tick`, every `tick_s` |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from shoal.errors import ShoalError
from shoal.frontier import Frontier
from shoal.frontier.tickets import Crew, Pace, Ticket, Tickets
from shoal.liveness import is_dead, reap_dead
from shoal.model import Link

SOON_S = 1.0
QUIET_S = 5.0  # after a ticket could not be sent, producers mint none

Send = Callable[[Ticket], None]
"""Puts a ticket into the job queue, once. Whatever it raises means that it could not."""

log = logging.getLogger("shoal.tickets")


class Desk:
    """Hands out the tickets of one crawl; belongs to one thread, like its frontier."""

    def __init__(self, frontier: Frontier, pace: Pace, send: Send) -> None:
        self.frontier = frontier
        self.pace = pace
        self._tickets = tickets_of(frontier, pace)
        self._send = send
        self._quiet_until = 0.0

    def add(self, links: Iterable[Link]) -> int:
        """Add links to the frontier and send tickets for them; returns how many were new.

        The links are safe as soon as this returns, even if no ticket could be sent.
        """
        if time.monotonic() < self._quiet_until:
            return self.frontier.add(links)
        new, minted = self._tickets.add(links)
        self._issue(minted)
        return new

    def claim(self, ticket: Ticket, owner: str) -> bool:
        """Whether the ticket is worth anything; then its slot is the owner's."""
        return self._tickets.claim(ticket, owner)

    def beat(self, ticket: Ticket, owner: str, pages: int) -> bool:
        """Whether the slot is still the owner's."""
        held, minted = self._tickets.beat(ticket, owner, pages)
        self._issue(minted)
        return held

    def end(self, ticket: Ticket, owner: str, *, again: bool) -> None:
        """The slice has ended in good order; `again`: others may follow.

        If there is nothing to do just now, but soon, it waits for that, since the next tick may be far: at
        most moments a host with a rate limit has nothing to do.
        """
        tickets = self._tickets.end(ticket, owner, again=again)
        if again and not tickets:
            again_s = self.frontier.lease(0, 0.0, worker=owner).again_s
            if again_s is not None and again_s <= SOON_S:
                time.sleep(again_s)
                tickets = self._tickets.mint()
        self._issue(tickets)

    def fail(self, ticket: Ticket, *, lost: bool) -> None:
        """The slice has come to a bad end.

        lost: its process died; another slice follows at once. Otherwise what ended it may still be there,
        so that the next one comes with a tick.
        """
        if self._tickets.fail(ticket, lost=lost) and lost:
            self._issue(self._tickets.mint())

    def tick(self, node: str, capacity: int) -> None:
        """The node may run so many slices at once; 0: none. Puts right what the dead have left.

        node: a `worker_name`, like the owners of slots: which of this machine are dead is known at once.
        """
        reap_dead(self.frontier)
        crew = self._tickets.crew()
        for slot in crew.slots:
            if slot.state == "running" and is_dead(slot.owner):
                self._tickets.fail(slot.ticket, lost=True)
        for name, _ in crew.nodes:
            if is_dead(name):
                self._tickets.tick(name, 0)
        self._issue(self._tickets.tick(node, capacity))

    def crew(self) -> Crew:
        """Slots in use and nodes alive."""
        return self._tickets.crew()

    def _issue(self, tickets: list[Ticket]) -> None:
        for at, ticket in enumerate(tickets):
            try:
                self._send(ticket)
            except Exception as error:
                log.warning("no ticket can be sent just now (%s); nothing is lost, it is made up for", error)
                self._quiet_until = time.monotonic() + QUIET_S
                self._tickets.unmint(tickets[at:])
                return


def tickets_of(frontier: Frontier, pace: Pace) -> Tickets:
    """The tickets that this frontier keeps. Raises ShoalError for one that keeps none."""
    from shoal.frontier.sqlite import SqliteFrontier

    if isinstance(frontier, SqliteFrontier):
        from shoal.frontier.sqlite_tickets import SqliteTickets

        return SqliteTickets(frontier, pace)
    from shoal.frontier.redis import RedisFrontier

    if isinstance(frontier, RedisFrontier):
        from shoal.frontier.redis_tickets import RedisTickets

        return RedisTickets(frontier, pace)
    raise ShoalError(f"{type(frontier).__name__} keeps no tickets")
