"""Politeness by IP address, on every back end: names that lead to one address are one host."""

from __future__ import annotations

import threading
import time
from itertools import product

import pytest
from test_frontier_contract import NOW, A, add, commit, done, fetch, lease, leased_urls

from shoal import lookup
from shoal.frontier import open_frontier
from shoal.frontier.base import Frontier
from shoal.frontier.tickets import Pace
from shoal.model import Limits, Link, Outcome
from shoal.tickets import tickets_of

SHARED = (
    "http://a.test/",
    "http://b.test:8080/x",
    "https://c.test/",
    "http://192.0.2.1/",
    "http://192.0.2.1:81/",
)
OTHER = "http://d.test/"
ADDRESSES = {
    "a.test": ["192.0.2.1"],
    "b.test": ["192.0.2.7", "192.0.2.1", "2001:db8::1"],
    "c.test": ["2001:db8::1", "192.0.2.1"],
    "d.test": ["2001:db8::2", "2001:db8::1"],
}


class Names:
    """A name server."""

    def __init__(self, addresses: dict[str, list[str]]) -> None:
        self.addresses = addresses
        self.asked: list[str] = []

    def __call__(self, name: str) -> list[str]:
        self.asked.append(name)
        if name not in self.addresses:
            raise OSError("no such name")
        return self.addresses[name]


def by_address(frontier: Frontier, addresses: dict[str, list[str]] = ADDRESSES, **limits: float) -> Names:
    """Let it look names up here."""
    frontier.configure(Limits(politeness="address", **limits))
    frontier.lookups.find = names = Names(addresses)
    return names


def keys(frontier: Frontier) -> set[str]:
    """The hosts that there are."""
    return {each.host for each in frontier.hosts()}


def test_names_on_one_address_are_one_host(frontier):
    """Whatever the port; of several addresses the lowest IPv4 one counts."""
    by_address(frontier, delay_s=5)
    add(frontier, *SHARED, OTHER)
    assert keys(frontier) == {"192.0.2.1", "2001:db8::1"}
    assert len(lease(frontier)) == 2
    assert len(lease(frontier, at=NOW + 4.9)) == 0


def test_they_share_their_delay_whoever_asks(place):
    """Two workers get one page of theirs in each interval, and every page in the end."""
    one, two = place.open(), place.open()
    by_address(one, delay_s=5)
    by_address(two, delay_s=5)
    add(one, *SHARED)
    got = []
    for step, worker in product(range(len(SHARED)), (one, two)):
        at = NOW + 5 * step
        pages = worker.lease(10, 60, worker=str(id(worker)), now=at).leases
        got += [(at, page.link.url) for page in pages]
        commit(worker, *map(done, pages), at=at)
    assert [at for at, _ in got] == [NOW + 5 * step for step in range(len(SHARED))]
    assert {url for _, url in got} == set(SHARED)


def test_links_of_pages_are_looked_up_too(frontier):
    """Each name once, however many links lead to it."""
    names = by_address(frontier)
    add(frontier, A)
    (page,) = lease(frontier)
    commit(frontier, done(page, links=[Link(f"{url}{n}") for url in (*SHARED[:3], OTHER) for n in range(9)]))
    assert keys(frontier) == {"192.0.2.1", "2001:db8::1"}
    assert sorted(names.asked) == ["a.test", "b.test", "c.test", "d.test"]


def test_links_with_tickets_are_looked_up_too(frontier):
    """Those that tasks bring."""
    by_address(frontier)
    tickets_of(frontier, Pace()).add([Link(url) for url in SHARED])
    assert keys(frontier) == {"192.0.2.1"}


def test_the_first_answer_holds_for_all(place):
    """The address of a name may change, or be another one elsewhere: its links stay together."""
    one, two = place.open(), place.open()
    by_address(one)
    add(one, "http://a.test/1")
    names = by_address(two, {"a.test": ["198.51.100.1"]})
    add(two, "http://a.test/2")
    assert names.asked == []
    assert keys(two) == {"192.0.2.1"}
    assert two.why("http://a.test/1").host == two.why("http://a.test/2").host == "192.0.2.1"


def test_a_host_without_an_address_is_by_itself(frontier):
    """And stays so: its pages may be dead letters, but their queue is the same."""
    names = by_address(frontier, {})
    add(frontier, "http://a.test/1", "http://b.test:81/")
    names.addresses = ADDRESSES
    add(frontier, "http://a.test:80/2")
    assert keys(frontier) == {"a.test", "b.test"}


def test_nobody_waits_long_for_a_name_server(frontier, monkeypatch):
    """A name whose lookup hangs is taken for one that has no address; the others are not held up."""
    monkeypatch.setattr(lookup, "LOOK_UP_S", 0.2)
    answer = threading.Event()

    def hang(name: str) -> list[str]:
        if name == "a.test":
            answer.wait(20)
        return ["192.0.2.1"]

    by_address(frontier)
    frontier.lookups.find = hang
    began = time.monotonic()
    add(frontier, *SHARED)
    assert time.monotonic() - began < 10
    answer.set()
    assert keys(frontier) == {"a.test", "192.0.2.1"}


def test_nonsense_of_a_name_server_is_no_address(frontier):
    """The name is by itself then."""
    by_address(frontier, {"a.test": ["nonsense"], "b.test": []})
    add(frontier, *SHARED[:2])
    assert keys(frontier) == {"a.test", "b.test"}


def test_links_by_address_are_themselves(place):
    """They are leased, found, changed, buried and forgotten by their own URLs, from any process."""
    by_address(place.open())
    add_to = place.open()
    by_address(add_to)
    add(add_to, *SHARED)
    frontier = place.open()
    assert frontier.set_priority(SHARED[2], 5)
    (page,) = lease(frontier)
    assert (page.link.url, page.host) == (SHARED[2], "192.0.2.1")
    commit(frontier, Outcome(page, "dead", reason="timeout"))
    assert [each.url for each in frontier.dead(host="192.0.2.1")] == [SHARED[2]]
    assert {frontier.why(url).host for url in SHARED} == {"192.0.2.1"}
    assert add(frontier, *SHARED) == 0
    assert frontier.forget(SHARED[1])
    assert frontier.redrive(host="192.0.2.1", now=NOW) == 1
    assert frontier.why("http://a.test/unknown") is None
    assert set(leased_urls(frontier, at=NOW + 1)) == set(SHARED) - {SHARED[1]}


def test_the_longest_crawl_delay_on_an_address_counts(frontier):
    """Its names may have different ones."""
    by_address(frontier)
    fetch(frontier, SHARED[0], crawl_delay_s=5)
    fetch(frontier, SHARED[1], crawl_delay_s=1, at=NOW + 5)
    (host,) = frontier.hosts()
    assert host.delay_s == 5


def test_a_crawl_that_starts_again_looks_its_hosts_up_again(place):
    """Also if another process has purged it."""
    one, two, three = (place.open() for _ in range(3))
    for frontier in (one, two):
        by_address(frontier)
        add(frontier, A)
    one.purge()
    by_address(three, {"a.test": ["198.51.100.1"]})
    add(three, A)
    two.stats()
    lease(two)
    add(two, "http://a.test/2")
    assert keys(two) == {"198.51.100.1"}


@pytest.mark.parametrize("politeness", ["host", "domain"])
def test_nothing_is_looked_up_otherwise(frontier, politeness):
    """It costs nothing to those who do not ask for it."""
    names = by_address(frontier)
    frontier.configure(Limits(politeness=politeness))
    add(frontier, *SHARED)
    assert names.asked == []


def test_what_others_push_is_looked_up(new_place, request):
    """A plain LPUSH into the inbox, by the worker that takes it in."""
    place = new_place()
    if not place.url.startswith("redis"):
        pytest.skip("it has no inbox")
    frontier = place.open()
    by_address(frontier)
    frontier._redis.lpush(frontier._key("inbox"), *SHARED)
    assert len(lease(frontier)) == 1
    assert keys(frontier) == {"192.0.2.1"}
    with open_frontier(place.url, crawl="books") as another:
        assert another.why(SHARED[1]).host == "192.0.2.1"
