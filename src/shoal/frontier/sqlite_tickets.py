"""The tickets of a crawl in a SQLite file; see the tables `slots` and `nodes` of sqlite.sql."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from shoal.frontier.sqlite import SqliteFrontier
from shoal.frontier.sqlite_step import Step
from shoal.frontier.tickets import Crew, Pace, Slot, SlotState, Ticket, Tickets, queued_for_s
from shoal.model import Link


class SqliteTickets(Tickets):
    """See `shoal.frontier.tickets.Tickets`."""

    def __init__(self, frontier: SqliteFrontier, pace: Pace) -> None:
        """On the connection of this frontier, which remains the caller's."""
        self._frontier = frontier
        self._pace = pace

    @contextmanager
    def _slots(self, now: float | None = None) -> Iterator[_Slots]:
        with self._frontier._step(now) as step:
            yield _Slots(step, self._pace)

    def add(self, links: Iterable[Link], *, now: float | None = None) -> tuple[int, list[Ticket]]:
        links = self._frontier._met(links)
        with self._slots(now) as slots:
            new = slots.step.add([(links, None)], self._frontier._seen)
            return new, slots.mint()

    def mint(self, *, now: float | None = None) -> list[Ticket]:
        with self._slots(now) as slots:
            return slots.mint()

    def unmint(self, tickets: Sequence[Ticket]) -> None:
        with self._slots() as slots:
            for ticket in tickets:
                if slots.is_current(ticket, "queued"):
                    slots.free(ticket.slot)

    def claim(self, ticket: Ticket, owner: str, *, now: float | None = None) -> bool:
        with self._slots(now) as slots:
            if not slots.is_current(ticket, "queued"):
                return False
            slots.run(ticket, owner, 0)
            return True

    def beat(
        self, ticket: Ticket, owner: str, pages: int, *, now: float | None = None
    ) -> tuple[bool, list[Ticket]]:
        with self._slots(now) as slots:
            if not slots.is_current(ticket, "running", owner):
                return False, []
            slots.run(ticket, owner, pages)
            return True, slots.mint()

    def end(self, ticket: Ticket, owner: str, *, again: bool, now: float | None = None) -> list[Ticket]:
        with self._slots(now) as slots:
            if slots.is_current(ticket, "running", owner):
                slots.free(ticket.slot)
            return slots.mint() if again else []

    def fail(self, ticket: Ticket, *, lost: bool, now: float | None = None) -> bool:
        with self._slots(now) as slots:
            if not slots.is_current(ticket, "running"):
                return False
            slots.give_back(slots.owner(ticket.slot), lost=lost)
            slots.free(ticket.slot)
            return True

    def tick(self, node: str, capacity: int, *, now: float | None = None) -> list[Ticket]:
        with self._slots(now) as slots:
            if capacity == 0:
                slots.leave(node)
                return []
            slots.join(node, capacity)
            slots.step.take_back("deadline < ?", slots.step.now)
            slots.step.promote()
            slots.step.bury_given_up()
            return [*slots.renew(), *slots.mint()]

    def crew(self, *, now: float | None = None) -> Crew:
        with self._slots(now) as slots:
            return Crew(slots=tuple(slots.in_use()), nodes=tuple(slots.nodes()))


class _Slots:
    """The slots of one crawl during one step."""

    def __init__(self, step: Step, pace: Pace) -> None:
        self.step = step
        self._pace = pace

    def is_current(self, ticket: Ticket, state: SlotState, owner: str | None = None) -> bool:
        row = self.step.db.execute(
            "SELECT state, owner FROM slots WHERE crawl = ? AND slot = ? AND generation = ?",
            (self.step.id, ticket.slot, ticket.generation),
        ).fetchone()
        return row is not None and row[0] == state and owner in (None, row[1])

    def owner(self, slot: int) -> str:
        query = "SELECT owner FROM slots WHERE crawl = ? AND slot = ?"
        return str(self.step.db.execute(query, (self.step.id, slot)).fetchone()[0])

    def free(self, slot: int) -> None:
        self.step.db.execute(
            "UPDATE slots SET state = 'free', owner = '', tries = 0, pages = 0 WHERE crawl = ? AND slot = ?",
            (self.step.id, slot),
        )

    def run(self, ticket: Ticket, owner: str, pages: int) -> None:
        self.step.db.execute(
            "UPDATE slots SET state = 'running', deadline = ?, owner = ?, tries = 0, pages = ?"
            " WHERE crawl = ? AND slot = ?",
            (self.step.now + self._pace.running_s, owner, pages, self.step.id, ticket.slot),
        )

    def give_back(self, owner: str, *, lost: bool) -> None:
        """All leases of a slice that is no more."""
        step = self.step
        if lost:
            step.take_back("worker = ?", owner)
        else:
            query = "SELECT token FROM leases WHERE crawl = ? AND worker = ?"
            step.give_back(step.held([row[0] for row in step.db.execute(query, (step.id, owner))]))

    # --- who works ------------------------------------------------------------------------

    def join(self, node: str, capacity: int) -> None:
        db, until = self.step.db, self.step.now + self._pace.node_s
        db.execute("DELETE FROM nodes WHERE crawl = ? AND deadline < ?", (self.step.id, self.step.now))
        db.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?)", (self.step.id, node, until, capacity))

    def leave(self, node: str) -> None:
        self.step.db.execute("DELETE FROM nodes WHERE crawl = ? AND name = ?", (self.step.id, node))

    def nodes(self) -> list[tuple[str, int]]:
        query = "SELECT name, capacity FROM nodes WHERE crawl = ? AND deadline >= ? ORDER BY name"
        return self.step.db.execute(query, (self.step.id, self.step.now)).fetchall()

    def in_use(self) -> list[Slot]:
        rows = self.step.db.execute(
            "SELECT slot, generation, state, deadline, owner, tries, pages FROM slots"
            " WHERE crawl = ? AND state <> 'free' ORDER BY slot",
            (self.step.id,),
        )
        return [Slot(Ticket(*row[:2]), *row[2:]) for row in rows]

    # --- tickets out ----------------------------------------------------------------------

    def mint(self) -> list[Ticket]:
        """Queue free slots while there is work for more."""
        used = {slot.ticket.slot for slot in self.in_use()}
        most = self._ready()
        if len(used) < most:
            most = min(most, self._wanted())
        unused = (slot for slot in range(self._pace.most) if slot not in used)
        return [self._send(slot) for slot, _ in zip(unused, range(most - len(used)), strict=False)]

    def renew(self) -> list[Ticket]:
        """Slots whose time is up: send tickets again that got lost, free the others."""
        late = [slot for slot in self.in_use() if slot.deadline < self.step.now]
        ready, wanted = self._ready(), self._wanted()
        sent = []
        for slot in late:
            number = slot.ticket.slot
            if slot.state == "queued" and number < wanted and ready > 0:
                sent.append(self._send(number, slot.tries + 1))
            else:
                self.free(number)
        return sent

    def _send(self, slot: int, tries: int = 0) -> Ticket:
        (generation,) = self.step.db.execute(
            "INSERT INTO slots (crawl, slot, generation, state, deadline, tries)"
            " VALUES (:crawl, :slot, 1, 'queued', :deadline, :tries)"
            " ON CONFLICT DO UPDATE SET generation = generation + 1, state = 'queued', deadline = :deadline,"
            " owner = '', tries = :tries, pages = 0 RETURNING generation",
            {
                "crawl": self.step.id,
                "slot": slot,
                "deadline": self.step.now + queued_for_s(self._pace, tries),
                "tries": tries,
            },
        ).fetchone()
        return Ticket(slot, generation)

    def _wanted(self) -> int:
        return max(1, min(sum(capacity for _, capacity in self.nodes()), self._pace.most))

    def _ready(self) -> int:
        """How many URLs could be leased now."""
        self.step.promote()
        crawl = self.step.crawl
        if crawl.room(self.step.limits) <= 0 or not crawl.ready_hosts:
            return 0
        return crawl.queued - crawl.held - crawl.delayed
