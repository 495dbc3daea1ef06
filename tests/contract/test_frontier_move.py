"""A crawl moves from one back end to another with all that it knows."""

from __future__ import annotations

import time

import pytest
from test_frontier_contract import NOW, A, B, C, add, commit, done, lease

from shoal.errors import ConfigError
from shoal.migrate import migrate
from shoal.model import Limits, Link, Outcome, Quota, Survey, Visit
from shoal.moving import MOVING, check_here, mark_moved
from shoal.urls import fingerprint

D, E = "http://d.test/", "http://d.test/2"


@pytest.fixture
def filled(place):
    """A crawl with pages in every state."""
    frontier = place.open("old")
    frontier.describe({"seeds": [A]})
    frontier.configure(Limits(max_pages=100, per_host=3))
    add(frontier, A, B, C, D)
    frontier.add([Link(E, priority=7, depth=2, key="k", meta={"n": 1}, delay_s=30)], now=NOW)
    first, second, third, _ = lease(frontier)
    commit(
        frontier,
        done(first, items=({"n": 1},), size_bytes=10, crawl_delay_s=2.0, elapsed_s=0.5),
        Outcome(second, "dead", reason="HTTP 404", error="gone", status=404),
        Outcome(third, "queued", reason="timeout", retry_s=40),
    )
    frontier.commit([], positions=[("rows.jsonl", 17)], now=NOW)
    return frontier


def test_all_that_is_known_arrives(filled, backends):
    """States, links, hosts, counters, limits, description and positions; a leased page is queued again."""
    for target in backends.values():
        frontier = target.open("new")
        frontier.load(filled.dump())
        before, after = filled.stats(now=NOW), frontier.stats(now=NOW)
        assert (after.queued, after.leased) == (before.queued + before.leased, 0)
        for name in ("done", "dead", "skipped", "delayed", "retrying", "fetches", "size_bytes", "losses"):
            assert getattr(after, name) == getattr(before, name), name
        assert (after.retries, after.elapsed_s) == (before.retries, before.elapsed_s) == (1, 0.5)
        assert frontier.limits == filled.limits
        assert frontier.describe() == {"seeds": [A]}
        assert frontier.position("rows.jsonl") == 17
        for url in (A, B, C):
            assert frontier.why(url).state == filled.why(url).state
        (letter,) = frontier.dead()
        assert (letter.reason, letter.error, letter.status) == ("HTTP 404", "gone", 404)
        moved = frontier.why(E, "k")
        assert (moved.state, moved.priority, moved.depth) == ("queued", 7, 2)
        assert moved.not_before == pytest.approx(NOW + 30)


def test_the_history_moves_along(place, backends):
    """It is the same in the new place, where the arrival of pages is no event."""
    frontier = place.open("old")
    now = time.time()
    frontier.add([Link(A), Link(B)], now=now - 3600)
    page, _ = lease(frontier, at=now - 3600)
    commit(frontier, done(page, size_bytes=10, elapsed_s=0.25), at=now - 3500)
    before = frontier.history(now - 7200)
    assert [minute.found for minute in before] == [2, 0]
    for target in backends.values():
        moved = target.open("new")
        moved.load(frontier.dump())
        assert moved.history(now - 7200) == before


def test_the_crawl_goes_on_where_it_was(filled, backends):
    """What was queued is leased with all that belongs to its link; nothing that is known is queued again."""
    for target in backends.values():
        frontier = target.open("new")
        frontier.load(filled.dump())
        assert add(frontier, A, B, C, D, at=NOW + 100) == 0
        grant = frontier.lease(10, 60, worker="ann", now=NOW + 100)
        links = {page.link.url: page.link for page in grant.leases}
        assert links[E] == Link(E, priority=7, depth=2, key="k", meta={"n": 1})
        commit(frontier, *map(done, grant.leases), at=NOW + 100)
        while grant := frontier.lease(10, 60, worker="ann", now=NOW + 100):
            if not grant.leases:
                break
            commit(frontier, *map(done, grant.leases), at=NOW + 100)
        assert frontier.stats(now=NOW + 100).done == 4
        assert frontier.lease(1, 60, worker="ann", now=NOW + 100).finished


def test_what_somebody_has_set_for_a_host_moves_along(filled, backends):
    """Its delay, with the share of attempts that failed and the tallies."""
    filled.set_delay("a.test", 4)
    before = {each.host: (each.set_delay_s, each.error_rate, each.failures) for each in filled.hosts()}
    for target in backends.values():
        moved = target.open("new")
        moved.load(filled.dump())
        after = {each.host: (each.set_delay_s, each.error_rate, each.failures) for each in moved.hosts()}
        assert after == before
        assert moved.tally("dead") == filled.tally("dead")
        assert moved.tally("skipped") == filled.tally("skipped")


def test_a_paused_crawl_arrives_paused(filled, backends):
    """And one that was not goes on by itself."""
    filled.pause()
    for target in backends.values():
        frontier = target.open("new")
        frontier.load(filled.dump())
        assert frontier.stats(now=NOW).paused


def test_visits_move_along(place, backends):
    """What is to be revisited is, in its new place, from any state."""
    visit = Visit(1.0, 2.0, 1.0, etag='"a"', rows=1)
    frontier = place.open("old")
    add(frontier, A, B, C, D)
    frontier.add([Link(E, key="k", meta={"n": 1})], now=NOW)
    frontier.configure(Limits(per_host=3))
    first, second, third, _ = lease(frontier)
    commit(
        frontier,
        done(first, visit=visit),
        Outcome(second, "dead", reason="gone", visit=visit),
        Outcome(third, "queued", reason="timeout", visit=visit),
    )
    for target in backends.values():
        moved = target.open("new")
        moved.load(frontier.dump())
        assert moved.why(first.link.url).visit == moved.why(third.link.url).visit == visit
        assert moved.why(third.link.url).reason == "timeout"
        before = moved.stats(now=NOW)
        assert moved.revisit(10, now=NOW + 20) == 2
        after = moved.stats(now=NOW + 20)
        assert (after.queued, after.done, after.dead) == (before.queued + 2, 0, 0)
        assert moved.why(second.link.url).visit == visit


def test_traps_go_on_counting(place, backends):
    """What was cut and counted of a host is, in its new place: no quota starts anew."""
    quota = Quota("trap: shape", 7, 3)
    old = place.open("old")
    old.configure(Limits(max_pages=100))
    links = [Link(f"{A}{n}", quotas=(quota,)) for n in range(5)]
    old.add([*links, Link(f"{B}x", trap="trap: calendar"), *[Link(B, quotas=(quota,))]], now=NOW)
    assert old.cuts() == {("trap: shape", "a.test"): 2, ("trap: calendar", "b.test"): 1}
    for target in backends.values():
        new = target.open("new")
        new.load(old.dump())
        assert new.cuts() == old.cuts()
        new.add([Link(f"{A}another", quotas=(quota,))], now=NOW)
        new.add([Link(f"{B}{n}", quotas=(quota,)) for n in range(5)], now=NOW)
        assert new.cuts()["trap: shape", "a.test"] == 3
        assert new.cuts()["trap: shape", "b.test"] == 3


def test_claims_hold(place, backends):
    """A content that a page had first stays that of this page."""
    old = place.open("old")
    old.claim([(2**63 - 1, A), (-(2**63), B), (0, C)])
    for target in backends.values():
        new = target.open("new")
        new.load(old.dump())
        assert new.claim([(2**63 - 1, D), (-(2**63), D), (0, D), (5, D)]) == [A, B, C, D]


def test_a_name_keeps_its_address(place, backends):
    """With politeness by address; nothing is looked up anew."""
    old = place.open("old")
    old.configure(Limits(politeness="address"))
    old.lookups.find = lambda name: {"a.test": ["192.0.2.1"], "b.test": ["192.0.2.1"]}.get(name, [])
    add(old, A, B, C)
    for target in backends.values():
        new = target.open("new")
        new.load(old.dump())
        new.lookups.find = lambda name: ["198.51.100.1"]
        assert {each.host for each in new.hosts()} == {"192.0.2.1", "c.test"}
        assert {new.why(url).host for url in (A, B)} == {"192.0.2.1"}
        add(new, f"{A}2", f"{C}2")
        assert {each.host for each in new.hosts()} == {"192.0.2.1", "c.test"}
        assert len(lease(new)) == 2


def test_tokens_go_on_growing(filled, backends):
    """Stores know by them which rows of a page are the latest."""
    for target in backends.values():
        there = target.open("there")
        there.load(filled.dump())
        (first, *_) = lease(there, at=NOW + 100)
        there.release([first.token], now=NOW + 100)
        for last in backends.values():
            back = last.open(f"back from {id(target)}")
            back.load(there.dump())
            (again, *_) = lease(back, at=NOW + 200)
            assert again.token > first.token


def test_what_was_pushed_moves_along(new_place, backends):
    """The inbox is taken in first, as far as it holds links."""
    place = new_place()
    if not place.url.startswith("redis"):
        pytest.skip("it has no inbox")
    old = place.open("old")
    old._redis.lpush(old._key("inbox"), *[f"{A}{n}" for n in range(450)], "nonsense")
    for target in backends.values():
        new = target.open("new")
        new.load(old.dump())
        assert new.stats(now=NOW).queued == 450
    assert old._redis.llen(old._key("rejects")) == 1


def test_surveys_move_along(place, backends):
    """What a report is to know of pages is known in their new place."""
    frontier = place.open("old")
    add(frontier, A, B)
    surveys = [Survey(fingerprint(url), url, 200, 0.5, 9, links=(1, -2)) for url in (A, B)]
    known = {survey.url: survey for survey in surveys}
    commit(frontier, *(done(page, survey=known[page.link.url]) for page in lease(frontier)))
    for target in backends.values():
        moved = target.open("new")
        migrate(frontier, moved, place="elsewhere")
        mark_moved(frontier, None)
        assert sorted(moved.surveys(), key=lambda each: each.url) == surveys


def test_what_a_move_that_was_killed_has_left_is_replaced(place, backends):
    """Whether the crawl was paused is told by what was left, since its source is paused by the move."""
    frontier = place.open("old")
    add(frontier, A, B)
    for target in backends.values():
        left = target.open("left")
        left.describe({MOVING: False})
        add(left, C)
        left.pause()
        frontier.pause()
        with pytest.raises(ConfigError, match="not all here"):
            migrate(left, frontier, place="elsewhere")
        migrate(frontier, left, place="elsewhere")
        mark_moved(frontier, None)
        check_here(left)
        assert [left.why(url) is not None for url in (A, B, C)] == [True, True, False]
        assert not left.stats(now=NOW).paused


def test_links_that_are_added_during_a_move_are_not_left_behind(place, backends):
    """They would stay at the source, where nobody works any more: the move fails, and can be done again."""
    frontier, loads = place.open("old"), []
    add(frontier, A)
    (page,) = lease(frontier)

    class Loaded:
        """Adds a link at the moment when all has been read."""

        def __init__(self, target):
            self._target = target

        def __getattr__(self, name):
            return getattr(self._target, name)

        def load(self, snapshot):
            self._target.load(snapshot)
            frontier.add([Link(f"{B}{len(loads)}")])
            loads.append(snapshot)

    commit(frontier, done(page))
    for target in backends.values():
        new = target.open("new")
        with pytest.raises(ConfigError, match="move it again"):
            migrate(frontier, Loaded(new), place="elsewhere")
        assert (new.stats(now=NOW).seen, frontier.stats(now=NOW).paused) == (0, False)
        migrate(frontier, new, place="elsewhere")
        mark_moved(frontier, None)
        assert new.stats(now=NOW).seen == frontier.stats(now=NOW).seen
        frontier.resume()
