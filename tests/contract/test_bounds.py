"""What bounds a crawl's discovery, on every back end: the overflow, trap cuts, quotas, contents."""

from __future__ import annotations

import pytest
from test_frontier_contract import NOW, A, B, C, add, commit, done, fetch, lease, leased_urls, state_of

from shoal.frontier.base import MOST_CUT, MOST_SHAPES
from shoal.model import Limits, Link, Outcome, Quota

SHAPE = Quota("trap: shape", 11, 2)


def find(frontier, *links, page=B, at=NOW):
    """A page with these links is fetched."""
    fetch(frontier, page, at=at, links=links)


def numbered(count, host=A):
    """So many links of a host."""
    return [Link(f"{host}{number}") for number in range(count)]


def work_off(frontier, *, at=NOW):
    """Lease and commit one by one until nothing is left; the URLs in their order."""
    urls = []
    while pages := lease(frontier, 1, at=at):
        urls += [page.link.url for page in pages]
        commit(frontier, *map(done, pages), at=at)
    return urls


# --- overflow -------------------------------------------------------------------------------------


def test_links_beyond_max_queued_wait_in_the_overflow(frontier):
    """They are known, counted apart, and hold the end of the crawl up."""
    frontier.configure(Limits(max_queued=3))
    find(frontier, *numbered(10))
    stats = frontier.stats(now=NOW)
    assert (stats.queued, stats.overflow, stats.seen, stats.finished) == (3, 7, 11, False)
    assert [state_of(frontier, f"{A}{number}") for number in (0, 2, 3, 9)] == ["queued"] * 2 + [
        "overflow"
    ] * 2
    assert add(frontier, f"{A}9") == 0


def test_the_overflow_returns_and_nothing_is_lost(frontier):
    """In the order in which the links were found; then the crawl is finished."""
    frontier.configure(Limits(max_queued=3))
    find(frontier, *numbered(1000))
    assert work_off(frontier) == [link.url for link in numbered(1000)]
    stats = frontier.stats(now=NOW)
    assert (stats.done, stats.queued, stats.overflow, stats.finished) == (1001, 0, 0, True)


def test_priorities_hold_across_the_overflow(frontier):
    """The best link of a host is never in the overflow, however full the queue is."""
    frontier.configure(Limits(max_queued=2))
    links = [Link(f"{A}{priority}{n}", priority=priority) for priority in (0, 5, 9, 3) for n in range(3)]
    find(frontier, *links)
    assert frontier.stats(now=NOW).overflow > 5
    assert work_off(frontier) == [link.url for link in sorted(links, key=lambda link: -link.priority)]


def test_a_host_does_not_starve_because_another_one_fills_the_queue(frontier):
    """Each host goes on giving its links, though one that is paused has all the room."""
    frontier.configure(Limits(max_queued=5))
    find(frontier, *numbered(20))
    frontier.pause_host("a.test", 1000, now=NOW)
    find(frontier, *numbered(5, C), page="http://d.test/")
    assert work_off(frontier) == [link.url for link in numbered(5, C)]
    assert frontier.stats(now=NOW).overflow == 15


def test_links_go_behind_those_that_wait_already(frontier):
    """Also when there is room again meanwhile: first in, first out."""
    frontier.configure(Limits(max_queued=2))
    find(frontier, *numbered(4))
    frontier.configure(Limits(max_queued=100))
    find(frontier, Link(f"{A}new"), page="http://d.test/")
    assert work_off(frontier) == [*(link.url for link in numbered(4)), f"{A}new"]


def test_what_people_add_is_queued_and_a_retry_too(frontier):
    """Only links found by pages are held back."""
    frontier.configure(Limits(max_queued=1))
    add(frontier, A, B, C)
    assert frontier.stats(now=NOW).queued == 3
    (page,) = lease(frontier, 1)
    commit(frontier, Outcome(page, "queued", reason="timeout", retry_s=5, links=(Link(f"{B}1"),)))
    assert (frontier.stats(now=NOW).queued, frontier.stats(now=NOW).overflow) == (3, 1)


def test_producers_wait_for_the_overflow(frontier):
    """There is room for them when less than `max_queued` wait in all."""
    frontier.configure(Limits(max_queued=3))
    find(frontier, *numbered(5))
    lease(frontier, 2)
    assert not frontier.open_producer("feed", 60, now=NOW)
    frontier.configure(Limits(max_queued=10))
    assert frontier.open_producer("feed", 60, now=NOW)


def test_a_host_that_has_had_its_pages_ends_with_its_overflow(frontier):
    """Links that may never be leased do not keep the crawl open, wherever they wait."""
    frontier.configure(Limits(max_queued=2, max_pages_per_host=1))
    find(frontier, *numbered(5))
    assert len(work_off(frontier)) == 1
    stats = frontier.stats(now=NOW)
    assert (stats.queued + stats.overflow, stats.finished) == (4, True)


@pytest.mark.parametrize("number", [0, 3])
def test_a_link_can_be_forgotten_wherever_it_waits(frontier, number):
    """And what waits behind it comes all the same."""
    frontier.configure(Limits(max_queued=1))
    find(frontier, *numbered(4))
    assert frontier.forget(f"{A}{number}")
    assert work_off(frontier) == [link.url for link in numbered(4) if link.url != f"{A}{number}"]


def test_a_link_in_the_overflow_can_be_made_urgent(frontier):
    """It is queued at once, with its new priority."""
    frontier.configure(Limits(max_queued=1))
    find(frontier, *numbered(4))
    assert frontier.set_priority(f"{A}3", 9)
    assert state_of(frontier, f"{A}3") == "queued"
    assert leased_urls(frontier, 1) == [f"{A}3"]


def test_the_overflow_moves_to_another_back_end(frontier, backends):
    """With the crawl, in its order."""
    frontier.configure(Limits(max_queued=2))
    find(frontier, *numbered(6))
    for place in backends.values():
        new = place.open("moved")
        new.load(frontier.dump())
        assert (new.stats(now=NOW).queued, new.stats(now=NOW).overflow) == (2, 4)
        assert work_off(new) == [link.url for link in numbered(6)]


# --- traps ----------------------------------------------------------------------------------------


def test_a_link_that_a_rule_cuts_is_skipped_and_listed(frontier):
    """It is known with its rule, counted, and never leased."""
    find(frontier, Link(f"{A}x", trap="trap: calendar"), Link(f"{A}y"))
    (record,) = frontier.skipped()
    assert (record.url, record.reason, record.host) == (f"{A}x", "trap: calendar", "a.test")
    assert frontier.cuts() == {("trap: calendar", "a.test"): 1}
    assert work_off(frontier) == [f"{A}y"]
    assert frontier.stats(now=NOW).skipped == 1
    assert add(frontier, f"{A}x") == 0


def test_skipped_pages_can_be_asked_for_by_host_and_rule(frontier):
    """As dead letters can."""
    cut = [Link(f"{host}x", trap=rule) for host in (A, C) for rule in ("trap: calendar",)]
    find(frontier, *cut, Link(f"{A}z", trap="trap: other"))
    assert [record.url for record in frontier.skipped(host="a.test", reason="trap: calendar")] == [f"{A}x"]
    assert len(frontier.skipped(host="a.test")) == 2


def test_a_full_quota_cuts_further_links(frontier):
    """Per host, over all pages and processes; links known before do not count again."""
    links = [Link(f"{host}{n}", quotas=(SHAPE,)) for host in (A, C) for n in range(4)]
    find(frontier, *links[:1])
    find(frontier, *links, page="http://d.test/")
    assert sorted(record.url for record in frontier.skipped()) == [f"{A}2", f"{A}3", f"{C}2", f"{C}3"]
    assert frontier.cuts() == {(SHAPE.rule, "a.test"): 2, (SHAPE.rule, "c.test"): 2}


def test_a_link_that_is_cut_counts_towards_no_quota(frontier):
    """Each quota has its own count; a link cut by one leaves the others as they are."""
    other = Quota("trap: other", 12, 1)
    find(frontier, Link(f"{A}0", quotas=(other,)), Link(f"{A}1", quotas=(SHAPE, other)))
    find(frontier, *(Link(f"{A}{n}", quotas=(SHAPE,)) for n in (2, 3, 4)), page="http://d.test/")
    assert {record.url: record.reason for record in frontier.skipped()} == {
        f"{A}1": "trap: other",
        f"{A}4": SHAPE.rule,
    }


def test_links_that_are_too_deep_count_nowhere(frontier):
    """They are dropped before."""
    frontier.configure(Limits(max_depth=1))
    find(frontier, Link(f"{A}1", depth=2, trap="trap: calendar"), Link(f"{A}2", depth=2, quotas=(SHAPE,)))
    assert (frontier.cuts(), frontier.skipped()) == ({}, [])


def test_a_great_many_cuts_are_counted_but_not_all_remembered(frontier):
    """A trap cannot fill the frontier with what it was cut for; one not remembered may be added by hand."""
    cut = [Link(f"{A}{number}", trap="trap: calendar") for number in range(MOST_CUT + 100)]
    find(frontier, *cut)
    assert frontier.cuts() == {("trap: calendar", "a.test"): MOST_CUT + 100}
    assert (len(frontier.skipped()), frontier.stats(now=NOW).skipped) == (MOST_CUT, MOST_CUT)
    assert frontier.why(cut[-1].url) is None
    assert add(frontier, cut[-1].url) == 1
    assert leased_urls(frontier) == [cut[-1].url]


def test_the_shapes_that_are_counted_are_bounded_and_common_ones_stay(frontier):
    """More shapes than are counted do not hide the one that a trap is made of."""
    trap = Quota("trap: shape", -1, 60)
    endless = iter(range(10_000))
    for round_ in range(3):
        rare = [
            Link(f"{A}{round_}/{n}", quotas=(Quota("trap: shape", 10_000 * round_ + n, 60),))
            for n in range(MOST_SHAPES)
        ]
        find(
            frontier, *(Link(f"{A}e{next(endless)}", quotas=(trap,)) for _ in range(30)), page=f"{B}{round_}"
        )
        find(frontier, *rare, page=f"{B}{round_}r")
    cut = frontier.cuts()[trap.rule, "a.test"]
    assert 20 <= cut <= 30
    assert {record.url.startswith(f"{A}e") for record in frontier.skipped()} == {True}


def test_a_content_belongs_to_the_url_that_claimed_it_first(place):
    """For all processes together, and again for the same URL."""
    one, other = place.open(), place.open()
    assert one.claim([(7, A), (-8, B), (7, C)]) == [A, B, A]
    assert other.claim([(7, C), (7, A), (9, C)]) == [A, A, C]
    assert one.claim([]) == []


def test_purge_forgets_cuts_quotas_and_contents(frontier):
    """As everything else."""
    find(frontier, Link(f"{A}x", trap="trap: calendar"), *(Link(f"{A}{n}", quotas=(SHAPE,)) for n in (1, 2)))
    frontier.claim([(7, A)])
    frontier.purge()
    assert (frontier.cuts(), frontier.claim([(7, B)])) == ({}, [B])
    find(frontier, *(Link(f"{A}{n}", quotas=(SHAPE,)) for n in (1, 2)))
    assert frontier.skipped() == []
