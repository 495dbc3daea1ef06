"""Tickets on every back end: slots, generations, and what happens when something dies in between."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace
from tests.contract.conftest import BACKENDS

from shoal.frontier.tickets import Pace, Ticket
from shoal.model import Limits, Link, Outcome
from shoal.tickets import tickets_of

NOW = 1_000_000.0
PACE = Pace(slice_s=30, running_s=20, queued_s=60, most=4)


def links(count, *, start=0, hosts=3, **fields):
    """New links, spread over hosts."""
    return [Link(url=f"http://h{n % hosts}.example/{n}", **fields) for n in range(start, start + count)]


@pytest.fixture
def tickets(frontier):
    """The tickets of an empty crawl."""
    return tickets_of(frontier, PACE)


def used(tickets, at=NOW):
    """Slots in use, as (slot, generation, state)."""
    return [(s.ticket.slot, s.ticket.generation, s.state) for s in tickets.crew(now=at).slots]


# --- how many ------------------------------------------------------------------------------------


def test_many_urls_without_a_worker_make_one_ticket(tickets):
    """As long as no node is known, one ticket is out, however many URLs are added."""
    assert tickets.add(links(50), now=NOW) == (50, [Ticket(0, 1)])
    assert tickets.add(links(50, start=50), now=NOW) == (50, [])
    assert used(tickets) == [(0, 1, "queued")]


def test_a_known_url_makes_no_ticket(tickets):
    """Nothing new and nothing ready: nothing is minted."""
    (ticket,) = tickets.add(links(1), now=NOW)[1]
    tickets.claim(ticket, "ann", now=NOW)
    tickets.end(ticket, "ann", again=False, now=NOW)
    tickets._frontier.lease(9, 60.0, worker="ann", now=NOW)
    assert tickets.add(links(1), now=NOW) == (0, [])


def test_there_are_as_many_tickets_as_there_is_room_for(tickets):
    """The capacities of all living nodes are added up."""
    tickets.add(links(50), now=NOW)
    assert tickets.tick("a", 2, now=NOW) == [Ticket(1, 1)]
    assert tickets.tick("b", 1, now=NOW) == [Ticket(2, 1)]
    assert tickets.crew(now=NOW).nodes == (("a", 2), ("b", 1))


def test_there_are_never_more_tickets_than_the_most(tickets):
    """However large the nodes are."""
    tickets.add(links(50), now=NOW)
    assert len(tickets.tick("a", 100, now=NOW)) == PACE.most - 1


def test_there_are_never_more_tickets_than_ready_urls(tickets):
    """Two URLs keep at most two slices busy."""
    tickets.add(links(2), now=NOW)
    tickets.tick("a", 4, now=NOW)
    assert len(used(tickets)) == 2


def test_a_node_that_is_not_heard_of_has_no_room(tickets):
    """After `node_s` without a tick."""
    tickets.add(links(50), now=NOW)
    tickets.tick("a", 2, now=NOW)
    late = NOW + PACE.node_s + 1
    tickets.tick("b", 1, now=late)
    assert tickets.crew(now=late).nodes == (("b", 1),)


def test_a_node_without_room_leaves_and_mints_nothing(tickets):
    """Capacity 0: it takes no tickets, or is about to stop."""
    tickets.tick("a", 2, now=NOW)
    tickets.add(links(50), now=NOW)
    tickets.unmint([Ticket(0, 1), Ticket(1, 1)])
    assert tickets.tick("a", 0, now=NOW) == []
    assert tickets.crew(now=NOW).nodes == ()


@pytest.mark.parametrize("why", ["paused", "max_pages", "delayed", "host paused"])
def test_work_that_may_not_be_done_now_makes_no_tickets(frontier, tickets, why):
    """A paused crawl, a reached limit, a time to come."""
    frontier.lease(1, 60.0, worker="ann", now=NOW)
    if why == "paused":
        frontier.pause()
    elif why == "max_pages":
        frontier.configure(Limits(max_pages=1))
        frontier.add(links(1, start=100), now=NOW)
        (lease,) = frontier.lease(1, 60.0, worker="ann", now=NOW).leases
        frontier.commit([Outcome(lease, "done")], now=NOW)
    elif why == "host paused":
        frontier.pause_host("h0.example", 60.0, now=NOW)
    more = links(1, delay_s=60.0 if why == "delayed" else 0.0)
    assert tickets.add(more, now=NOW) == (1, [])


def test_what_becomes_due_makes_a_ticket_at_the_next_tick(tickets):
    """A delayed URL is nobody's business until its time has come."""
    tickets.add(links(1, delay_s=60.0), now=NOW)
    assert tickets.tick("a", 2, now=NOW + 59) == []
    assert tickets.tick("a", 2, now=NOW + 61) == [Ticket(0, 1)]


def test_what_has_become_due_makes_a_ticket_when_something_is_added(tickets):
    """Even if what is added is not due itself."""
    tickets.add(links(1, delay_s=30.0), now=NOW)
    assert tickets.add(links(1, start=1, delay_s=30.0), now=NOW + 31) == (1, [Ticket(0, 1)])


def test_leases_that_ran_out_make_a_ticket_at_the_next_tick(frontier, tickets):
    """All workers died, and nothing else is left to do."""
    frontier.add(links(1), now=NOW)
    frontier.lease(1, 60.0, worker="ann", now=NOW)
    assert tickets.tick("a", 2, now=NOW + 59) == []
    assert tickets.tick("a", 2, now=NOW + 61) == [Ticket(0, 1)]


# --- claims --------------------------------------------------------------------------------------


def test_a_ticket_is_taken_once(tickets):
    """A repeated message is worth nothing, and the slice that runs is not disturbed."""
    (ticket,) = tickets.add(links(1), now=NOW)[1]
    assert tickets.claim(ticket, "ann", now=NOW)
    assert not tickets.claim(ticket, "bob", now=NOW)
    assert not tickets.claim(ticket, "bob", now=NOW + 1_000)
    assert tickets.beat(ticket, "ann", 0, now=NOW)[0]


def test_a_ticket_of_another_generation_is_worth_nothing(tickets):
    """Whether it is an old one or was never sent."""
    tickets.add(links(1), now=NOW)
    assert not tickets.claim(Ticket(0, 0), "ann", now=NOW)
    assert not tickets.claim(Ticket(0, 2), "ann", now=NOW)
    assert not tickets.claim(Ticket(7, 1), "ann", now=NOW)


def test_a_slice_that_ends_is_followed_if_there_is_work(tickets):
    """The successor has the next generation; without work there is none."""
    (ticket,) = tickets.add(links(1), now=NOW)[1]
    tickets.claim(ticket, "ann", now=NOW)
    assert tickets.end(ticket, "ann", again=True, now=NOW) == [Ticket(0, 2)]
    tickets.claim(Ticket(0, 2), "ann", now=NOW)
    assert tickets.end(Ticket(0, 2), "ann", again=False, now=NOW) == []
    assert used(tickets) == []


def test_a_beat_mints_for_work_that_was_found(tickets, frontier):
    """One slice finds many links: the others are called."""
    tickets.tick("a", 3, now=NOW)
    (ticket,) = tickets.add(links(1), now=NOW)[1]
    tickets.claim(ticket, "ann", now=NOW)
    frontier.add(links(9, start=1), now=NOW)
    assert tickets.beat(ticket, "ann", 7, now=NOW) == (True, [Ticket(1, 1), Ticket(2, 1)])
    assert tickets.crew(now=NOW).slots[0].pages == 7


def test_a_slice_without_a_beat_is_superseded(tickets):
    """Its slot is free at the next tick, and its next beat says so."""
    (ticket,) = tickets.add(links(1), now=NOW)[1]
    tickets.claim(ticket, "ann", now=NOW)
    assert tickets.tick("a", 1, now=NOW + PACE.running_s - 1) == []
    assert tickets.tick("a", 1, now=NOW + PACE.running_s + 1) == [Ticket(0, 2)]
    assert tickets.beat(ticket, "ann", 0, now=NOW + PACE.running_s + 1) == (False, [])
    assert tickets.end(ticket, "ann", again=False, now=NOW + PACE.running_s + 1) == []
    assert used(tickets) == [(0, 2, "queued")]


# --- what goes wrong ------------------------------------------------------------------------------


def test_a_ticket_that_could_not_be_sent_is_free_again(tickets):
    """The next add mints it anew; unmint does not touch one that was taken."""
    (ticket,) = tickets.add(links(1), now=NOW)[1]
    tickets.unmint([ticket])
    assert used(tickets) == []
    (ticket,) = tickets.add(links(1, start=1), now=NOW)[1]
    assert ticket == Ticket(0, 2)
    tickets.claim(ticket, "ann", now=NOW)
    tickets.unmint([ticket])
    assert used(tickets) == [(0, 2, "running")]


def test_lost_tickets_are_sent_again_ever_more_rarely(tickets):
    """By ticks only: a producer never sends again what nobody took. Once taken, it counts anew."""
    tickets.add(links(9), now=NOW)
    at, sent = NOW, []
    while at < NOW + 1_000:
        at += 10
        tickets.add(links(1, start=int(at)), now=at)
        sent += [(at - NOW, ticket) for ticket in tickets.tick("a", 1, now=at)]
    assert [ticket.generation for _, ticket in sent] == [2, 3, 4, 5]
    assert [when for when, _ in sent] == [70, 200, 450, 940]


@pytest.mark.parametrize("lost", [True, False])
def test_a_failed_slice_gives_its_leases_back(frontier, tickets, lost):
    """All of its pages may be leased again at once; they count as lost if its process died."""
    frontier.configure(Limits(max_losses=9))
    (ticket,) = tickets.add(links(3), now=NOW)[1]
    tickets.claim(ticket, "ann", now=NOW)
    assert len(frontier.lease(9, 60.0, worker="ann", now=NOW).leases) == 3
    assert tickets.fail(ticket, lost=lost, now=NOW)
    assert not tickets.fail(ticket, lost=lost, now=NOW)
    stats = frontier.stats(now=NOW)
    assert (stats.leased, stats.queued, stats.losses) == (0, 3, 3 if lost else 0)
    assert used(tickets) == []


def test_fail_leaves_the_leases_of_others(frontier, tickets):
    """Only the owner of the slot is concerned."""
    tickets.tick("a", 2, now=NOW)
    (ticket,) = tickets.add(links(1), now=NOW)[1]
    tickets.claim(ticket, "ann", now=NOW)
    frontier.lease(9, 60.0, worker="bob", now=NOW)
    tickets.fail(ticket, lost=True, now=NOW)
    assert frontier.stats(now=NOW).leased == 1


# --- anything, in any order -----------------------------------------------------------------------


class TicketMachine(RuleBasedStateMachine):
    """The same things happen to every back end, and all of them answer alike."""

    @initialize()
    def start(self):
        self.places = [make() for make in BACKENDS.values()]
        self.frontiers = [place.open() for place in self.places]
        self.all = [tickets_of(frontier, PACE) for frontier in self.frontiers]
        self.now, self.added = NOW, 0
        self.sent: set[Ticket] = set()
        self.running: dict[Ticket, str] = {}

    def teardown(self):
        for place in self.places:
            place.close()

    def ask(self, question):
        """The one answer of all back ends."""
        answers = [question(tickets) for tickets in self.all]
        assert all(answer == answers[0] for answer in answers), answers
        return answers[0]

    def minted(self, tickets):
        assert not self.sent & set(tickets), "a generation was sent twice"
        self.sent.update(tickets)

    @rule(count=st.integers(1, 5), delay_s=st.sampled_from([0.0, 0.0, 30.0]))
    def add(self, count, delay_s):
        more = links(count, start=self.added, delay_s=delay_s)
        self.added += count
        new, minted = self.ask(lambda tickets: tickets.add(more, now=self.now))
        assert new == count
        self.minted(minted)

    @rule(seconds=st.sampled_from([1, 15, 30, 100]))
    def wait(self, seconds):
        self.now += seconds

    @rule(node=st.sampled_from("abc"), capacity=st.integers(0, 3))
    def tick(self, node, capacity):
        self.minted(self.ask(lambda tickets: sorted(tickets.tick(node, capacity, now=self.now))))

    @rule(data=st.data())
    def claim(self, data):
        if not self.sent:
            return
        ticket = data.draw(st.sampled_from(sorted(self.sent)))
        owner = f"w{len(self.running)}"
        if self.ask(lambda tickets: tickets.claim(ticket, owner, now=self.now)):
            assert ticket not in self.running, "a ticket was taken twice"
            self.running[ticket] = owner

    @rule(data=st.data(), how=st.sampled_from(["beat", "end", "stop", "fail", "lost", "unmint"]))
    def go_on(self, data, how):
        if not self.running:
            return
        ticket = data.draw(st.sampled_from(sorted(self.running)))
        owner, now = self.running[ticket], self.now
        if how == "beat":
            self.minted(self.ask(lambda tickets: tickets.beat(ticket, owner, 1, now=now))[1])
        elif how in ("end", "stop"):
            self.minted(self.ask(lambda tickets: tickets.end(ticket, owner, again=how == "end", now=now)))
        elif how == "unmint":
            self.ask(lambda tickets: tickets.unmint([ticket]))
        else:
            self.ask(lambda tickets: tickets.fail(ticket, lost=how == "lost", now=now))

    @rule(limit=st.integers(1, 3), data=st.data())
    def work(self, limit, data):
        owner = data.draw(st.sampled_from([*self.running.values(), "else"]))
        for frontier in self.frontiers:
            leases = frontier.lease(limit, 60.0, worker=owner, now=self.now).leases
            frontier.commit([Outcome(lease, "done") for lease in leases[1:]], now=self.now)

    @invariant()
    def there_are_never_more_than_the_most(self):
        if hasattr(self, "all"):
            crew = self.ask(lambda tickets: replace(tickets.crew(now=self.now), nodes=()))
            assert len(crew.slots) <= PACE.most
            assert {slot.ticket for slot in crew.slots} <= self.sent


TestTicketMachine = TicketMachine.TestCase
TestTicketMachine.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
