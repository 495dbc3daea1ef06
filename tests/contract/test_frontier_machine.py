"""Every back end against the oracle: the same verbs on both, step by step, on a clock moved by hand.

HYPOTHESIS_PROFILE=thorough makes it a long run.
"""

from __future__ import annotations

import os
from math import inf
from typing import get_args

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from invariants import Observer, assert_items_once, assert_nothing_lost
from msgspec.structs import replace
from oracle import LOST, Oracle

from shoal.caution import GIVEN_UP
from shoal.model import Limits, Link, Minute, Outcome, PageRecord, Quota, Sign, Survey, Visit
from shoal.urls import fingerprint

LATER = 4_000_000_000.0
"""Ahead of every real clock, by which verbs go that take no `now`."""

COMMON = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": set(Phase) - {Phase.explain},  # which traces every line
    "report_multiple_bugs": False,
}
PROFILES = {
    "quick": settings(max_examples=40, stateful_step_count=40, **COMMON),
    "thorough": settings(max_examples=3000, stateful_step_count=80, **COMMON),
}
PROFILE = PROFILES[os.environ.get("HYPOTHESIS_PROFILE", "quick")]

HOSTS = ("a.test", "b.test", "c.test", "c.test:8080")
URLS = tuple(f"http://{host}/{page}" for host in HOSTS for page in range(4))
WORKERS = ("ann", "bob", "eve")
STORES = ("rows.jsonl", "rows.csv")
REASONS = ("HTTP 503", "timeout", GIVEN_UP)
SIGNS = get_args(Sign)
SHAPE, QUERIES = Quota("trap: shape", 7, 2), Quota("trap: queries", -8, 3)
QUOTAS = ((SHAPE,), (QUERIES,), (SHAPE, QUERIES))

urls = st.sampled_from(URLS)
keys = st.sampled_from(["", "", "", "k"])
priorities = st.sampled_from([0, 0, 5, 9])
links = st.builds(
    Link,
    url=urls,
    key=keys,
    priority=priorities,
    depth=st.integers(0, 2),
    via=st.sampled_from([(), ("http://a.test/old",)]),
    meta=st.sampled_from([None, {"shelf": 3}]),
    delay_s=st.sampled_from([0.0, 0.0, 0.5, 10.0]),
    trap=st.sampled_from(["", "", "", "", "trap: calendar"]),
    quotas=st.sampled_from([(), (), *QUOTAS]),
)
limits = st.builds(
    Limits,
    max_pages=st.sampled_from([None, None, 3, 6]),
    max_pages_per_host=st.sampled_from([None, None, 1, 3]),
    max_depth=st.sampled_from([None, 1]),
    max_queued=st.sampled_from([None, 1, 3]),
    max_losses=st.sampled_from([1, 2, 5]),
    per_host=st.sampled_from([1, 2, 8]),
    delay_s=st.sampled_from([0.0, 0.0, 1.0, 2.5]),
    adapt=st.sampled_from([True, True, False]),
    host_pause_s=st.sampled_from([0.5, 2.5]),
    host_give_up=st.sampled_from([0, 2, 8]),
)
POSITIONS = st.lists(st.sampled_from([("rows.jsonl", 100), ("rows.csv", 7), ("rows.csv", 9)]), max_size=2)
visits = st.sampled_from([None, None, Visit(1.0, 2.0, 1.0), Visit(1.0, 3.0, 3.0, etag='"v"', rows=2)])
durations = st.sampled_from([0.5, 1.0, 2.5, 10.0, 60.0])


@st.composite
def outcomes(draw, lease, held_s, signs):
    """Any end of a lease that has been held for `held_s`, with one of these signs."""
    state = draw(st.sampled_from(["done", "done", "done", "dead", "skipped", "queued", "queued"]))
    rows = draw(st.integers(0, 2)) if state == "done" else 0
    visit = draw(visits)
    survey = Survey(
        fingerprint(lease.link.url, lease.link.key),
        lease.link.url,
        status=draw(st.sampled_from([0, 200, 404])),
        elapsed_s=0.5,
        size_bytes=3,
        target=draw(urls),
        links=tuple(draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2))),
    )
    return Outcome(
        lease=lease,
        state=state,
        reason="" if state == "done" else draw(st.sampled_from(REASONS)),
        error=draw(st.sampled_from(["", "Traceback ..."])),
        retry_s=draw(st.sampled_from([0.0, 0.5, 10.0])) if state == "queued" else 0.0,
        status=draw(st.sampled_from([0, 200, 503])),
        size_bytes=draw(st.sampled_from([0, 1000])),
        elapsed_s=draw(st.sampled_from([0.0, 0.5, 3.0])),
        sign=draw(st.sampled_from(signs)),
        age_s=draw(st.sampled_from([min(held_s, age_s) for age_s in (0.0, 0.5, 2.5)] + [1000.0])),
        crawl_delay_s=draw(st.sampled_from([None, None, 0.0, 1.0, 2.5])),
        pause_s=draw(st.sampled_from([0.0, 0.0, 0.0, 2.5])),
        links=tuple(draw(st.lists(links, max_size=3))),
        items=tuple({"url": lease.link.url + lease.link.key, "index": index} for index in range(rows)),
        visit=visit,
        unchanged=state == "done" and lease.visit is not None and draw(st.booleans()),
        survey=draw(st.sampled_from([None, None, survey])),
    )


class Crawl:
    """One crawl three times: in the back end (as two processes see it), in the oracle, for an observer."""

    def __init__(self, place, name):
        self.place, self.name = place, name
        self.frontiers = [place.open(name), place.open(name)]
        self.oracle = Oracle()
        self.observer = Observer()
        self.granted = {}
        """Each lease ever given, with the time: token -> (lease, time)."""
        self.forgotten = set()


class Machine(RuleBasedStateMachine):
    def __init__(self, new_place):
        super().__init__()
        self.place = new_place()
        self.crawls = {name: Crawl(self.place, name) for name in ("busy", "quiet")}
        self.touched = self.crawls["busy"]
        self.now = LATER

    def teardown(self):
        self.place.close()

    # --- which crawl, which process, which lease -------------------------------------------------

    wheres = st.tuples(st.sampled_from(["busy", "busy", "busy", "quiet"]), st.sampled_from([0, 1]))

    def at(self, where):
        name, process = where
        crawl = self.touched = self.crawls[name]
        return crawl, crawl.frontiers[process], crawl.oracle

    def some_leases(self, data, crawl):
        """Held ones mostly, but also some that are held no more."""
        held = [crawl.granted[token][0] for token in crawl.oracle.held()]
        gone = [lease for token, (lease, _) in crawl.granted.items() if token not in crawl.oracle.held()]
        few = st.lists(st.sampled_from(held), unique_by=lambda lease: lease.token, max_size=4)
        some = data.draw(few) if held else []
        if gone and data.draw(st.integers(0, 5)) == 0:
            some.append(data.draw(st.sampled_from(gone)))
        return some

    # --- time ------------------------------------------------------------------------------------

    @rule(seconds=durations)
    def time_passes(self, seconds):
        self.now += seconds

    @rule(data=st.data(), where=wheres)
    def it_is_just_the_moment(self, data, where):
        """Of a deadline, the end of a delay, ...: or half a second after it."""
        moments = [moment for moment in self.at(where)[2].moments(self.now) if moment < inf]
        if moments:
            self.now = data.draw(st.sampled_from(moments)) + data.draw(st.sampled_from([0.0, 0.0, 0.5]))

    # --- what a worker needs ---------------------------------------------------------------------

    @initialize(some=st.lists(links, min_size=8, max_size=16), limits=st.one_of(st.just(Limits()), limits))
    def begin(self, some, limits):
        self.add(("busy", 0), some)
        self.configure(("busy", 0), limits)

    @rule(where=wheres, some=st.lists(links, max_size=5))
    def add(self, where, some):
        _, frontier, oracle = self.at(where)
        assert frontier.add(some, now=self.now) == oracle.add(some, now=self.now)

    @rule(
        where=wheres,
        limit=st.integers(1, 4),
        seconds=st.sampled_from([0.5, 10.0, 60.0]),
        worker=st.sampled_from(WORKERS),
    )
    def lease(self, where, limit, seconds, worker):
        self.leased(where, limit, seconds, worker)

    def leased(self, where, limit, seconds, worker):
        crawl, frontier, oracle = self.at(where)
        grant = frontier.lease(limit, seconds, worker=worker, now=self.now)
        oracle.follow(grant, limit, seconds, worker=worker, now=self.now)
        crawl.observer.granted(grant, self.now + seconds, oracle.limits, self.now)
        crawl.granted |= {lease.token: (lease, self.now) for lease in grant.leases}
        return grant.leases

    @rule(where=wheres, data=st.data(), positions=POSITIONS)
    def commit(self, where, data, positions):
        self.commit_all(where, self.some_leases(data, self.at(where)[0]), data, positions)

    @rule(where=wheres, rounds=st.integers(1, 6), data=st.data())
    def work(self, where, rounds, data):
        """A worker that nobody disturbs."""
        for _ in range(rounds):
            limit = data.draw(st.integers(1, 4))
            leases = self.leased(where, limit, 60.0, "ann")
            self.now += data.draw(st.sampled_from([0.0, 0.5, 2.5]))
            self.commit_all(where, leases, data, ())

    @rule(where=wheres, rounds=st.integers(2, 12), sign=st.sampled_from(SIGNS), data=st.data())
    def weather(self, where, rounds, sign, data):
        """All hosts are well, or in trouble, for a while."""
        for _ in range(rounds):
            leases = self.leased(where, 2, 60.0, "ann")
            self.now += data.draw(st.sampled_from([0.0, 0.5, 10.0]))
            self.commit_all(where, leases, data, (), (sign,))

    @rule(where=wheres, limit=st.integers(1, 4), lates=st.lists(st.sampled_from([0.0, 0.5]), max_size=4))
    def die(self, where, limit, lates):
        """Workers die with their leases; others ask at the deadline, or after it."""
        for late in lates:
            self.leased(where, limit, 2.5, "eve")
            self.now += 2.5 + late
        self.leased(where, limit, 60.0, "bob")

    def commit_all(self, where, leases, data, positions, signs=SIGNS):
        crawl, frontier, oracle = self.at(where)
        held_s = {lease.token: self.now - crawl.granted[lease.token][1] for lease in leases}
        ends = [data.draw(outcomes(lease, held_s[lease.token], signs)) for lease in leases]
        lost = frontier.commit(ends, positions=positions, now=self.now)
        assert lost == oracle.commit(ends, positions=positions, now=self.now)
        if not lost:
            crawl.observer.committed(ends, self.now)

    @rule(where=wheres, data=st.data(), seconds=durations)
    def extend(self, where, data, seconds):
        crawl, frontier, oracle = self.at(where)
        tokens = {lease.token for lease in self.some_leases(data, crawl)}
        lost = frontier.extend(tokens, seconds, now=self.now)
        assert lost == oracle.extend(tokens, seconds, now=self.now)
        crawl.observer.extended(tokens - lost, self.now + seconds)

    @rule(where=wheres, data=st.data())
    def release(self, where, data):
        crawl, frontier, oracle = self.at(where)
        tokens = {lease.token for lease in self.some_leases(data, crawl)}
        crawl.observer.ended(tokens & oracle.held().keys(), self.now)
        frontier.release(tokens, now=self.now)
        oracle.release(tokens, now=self.now)

    @rule(where=wheres, worker=st.sampled_from(WORKERS))
    def reap(self, where, worker):
        crawl, frontier, oracle = self.at(where)
        theirs = [token for token, page in oracle.held().items() if page.worker == worker]
        crawl.observer.ended(theirs, self.now)
        assert frontier.reap(worker, now=self.now) == oracle.reap(worker, now=self.now) == len(theirs)

    @rule(where=wheres, data=st.data(), seconds=st.sampled_from([0.0, 2.5, 10.0]))
    def pause_host(self, where, data, seconds):
        _, frontier, oracle = self.at(where)
        if oracle.hosts:
            host = data.draw(st.sampled_from(sorted(oracle.hosts)))
            frontier.pause_host(host, seconds, now=self.now)
            oracle.pause_host(host, seconds, now=self.now)

    @rule(where=wheres, host=st.sampled_from(HOSTS), delay_s=st.sampled_from([None, 0.0, 0.5, 2.5]))
    def set_delay(self, where, host, delay_s):
        crawl, frontier, oracle = self.at(where)
        if host in oracle.hosts:
            frontier.set_delay(host, delay_s)
            oracle.set_delay(host, delay_s)
            crawl.observer.set_delays[host] = delay_s

    # --- the crawl -------------------------------------------------------------------------------

    @rule(where=wheres, limits=st.one_of(st.just(Limits()), limits))
    def configure(self, where, limits):
        _, frontier, oracle = self.at(where)
        frontier.configure(limits)
        oracle.limits = limits

    @rule(where=wheres, name=st.sampled_from(["feed", "cli"]), seconds=st.one_of(st.none(), durations))
    def produce(self, where, name, seconds):
        """A producer opens, stays or, with None, closes."""
        _, frontier, oracle = self.at(where)
        if seconds is None:
            frontier.close_producer(name)
            oracle.producers.pop(name, None)
        else:
            room = frontier.open_producer(name, seconds, now=self.now)
            assert room == oracle.open_producer(name, seconds, now=self.now)

    @rule(where=wheres, paused=st.sampled_from([False, False, False, True]))
    def pause(self, where, paused):
        _, frontier, oracle = self.at(where)
        if paused:
            frontier.pause()
        else:
            frontier.resume()
        oracle.paused = paused

    @precondition(lambda self: len(self.crawls["quiet"].oracle.pages) > 3)
    @rule(process=st.sampled_from([0, 1]))
    def purge(self, process):
        crawl, frontier, oracle = self.at(("quiet", process))
        crawl.observer.ended(oracle.held(), self.now)
        crawl.observer = Observer()
        frontier.purge()
        oracle.purge()

    @rule(where=wheres)
    def reopen(self, where):
        crawl, frontier, _ = self.at(where)
        frontier.close()
        crawl.frontiers[where[1]] = self.place.open(crawl.name)

    # --- for people ------------------------------------------------------------------------------

    @rule(
        where=wheres,
        which=st.one_of(
            st.just({}),
            st.fixed_dictionaries({"url": urls}),
            st.fixed_dictionaries({"host": st.sampled_from(HOSTS), "reason": st.sampled_from(REASONS)}),
            st.fixed_dictionaries({"reason": st.sampled_from(REASONS)}),
        ),
    )
    def redrive(self, where, which):
        _, frontier, oracle = self.at(where)
        assert frontier.redrive(**which, now=self.now) == oracle.redrive(**which, now=self.now)

    @rule(where=wheres, seconds=st.sampled_from([0.0, 2.5, 60.0]))
    def revisit(self, where, seconds):
        _, frontier, oracle = self.at(where)
        assert frontier.revisit(seconds, now=self.now) == oracle.revisit(seconds, now=self.now)

    @rule(where=wheres, url=urls, key=keys)
    def forget(self, where, url, key):
        crawl, frontier, oracle = self.at(where)
        forgotten = frontier.forget(url, key)
        assert forgotten == oracle.forget(url, key, now=self.now)
        crawl.forgotten |= {url} if forgotten else set()

    @rule(where=wheres, url=urls, key=keys, priority=priorities)
    def set_priority(self, where, url, key, priority):
        _, frontier, oracle = self.at(where)
        changed = frontier.set_priority(url, priority, key)
        assert changed == oracle.set_priority(url, priority, key, now=self.now)

    @rule(where=wheres, contents=st.lists(st.tuples(st.integers(-3, 3), urls), max_size=3))
    def claim(self, where, contents):
        _, frontier, oracle = self.at(where)
        assert frontier.claim(contents) == oracle.claim(contents)

    # --- after every step ------------------------------------------------------------------------

    @invariant()
    def back_end_and_oracle_agree(self):
        for crawl in self.crawls.values():
            stats, expected = crawl.frontiers[0].stats(now=self.now), crawl.oracle.stats(now=self.now)
            minutes, told = crawl.frontiers[1].history(LATER, now=self.now), crawl.oracle.history()
            if not crawl.frontiers[0].keeps_items:  # then only that they were committed is counted
                expected = replace(expected, items=stats.items)
                minutes, told = without_items(minutes), without_items(told)
            assert stats == expected
            assert minutes == told
            assert crawl.frontiers[1].limits == crawl.oracle.limits
            assert crawl.frontiers[1].cuts() == crawl.oracle.cuts
            assert_same_hosts(crawl.frontiers[0].hosts(limit=100), crawl.oracle)
        for (url, key), page in self.touched.oracle.pages.items():
            frontier, expected = self.touched.frontiers[1], page.record()
            if not frontier.remembers_done:
                expected = forgetful(expected)
            assert_same(frontier.why(url, key), expected, self.touched.forgotten, self.now)

    @invariant()
    def invariants_hold(self):
        frontier, oracle = self.touched.frontiers[0], self.touched.oracle
        assert_nothing_lost(frontier, oracle.pages.keys(), now=self.now)
        rows = [(item["url"], item["index"]) for page in oracle.pages.values() for item in page.items]
        if frontier.keeps_items:
            assert_items_once(frontier, rows)
        surveys = [page.survey for page in oracle.pages.values() if page.survey is not None]
        assert {survey.fingerprint: survey for survey in frontier.surveys()} == {
            survey.fingerprint: survey for survey in surveys
        }
        for store in STORES:
            assert frontier.position(store) == oracle.positions.get(store)


def without_items(minutes):
    """Those in which something else happened."""
    left = [replace(minute, items=0) for minute in minutes]
    return [minute for minute in left if minute != Minute(minute.at)]


def forgetful(page):
    """What a back end still knows of a page that does not remember what is done."""
    if page.state == "done" and page.visit is None:
        return PageRecord(url=page.url, state="done", host=page.host)
    return replace(page, parent="", added_at=page.added_at // 1)


def assert_same_hosts(records, oracle):
    """What they are allowed for the time being, to the last digit."""
    found = {
        each.host: (each.delay_s, each.at_once, each.failures, each.latency_s, each.error_rate)
        for each in records
    }
    pauses = {each.host: each.paused_until for each in records}
    for name, host in oracle.hosts.items():
        allowed = oracle.present_delay_s(name), oracle.at_once(name), host.caution.failures
        assert found[name] == (*allowed, host.latency_s, host.error_rate), name
        assert pauses[name] == (host.paused_until if host.paused_until > 0 else None)


def assert_same(record, expected, forgotten, now):
    """Left open: the reason of a page that was lost too often, and whether the past is told."""
    if expected.state == "dead" and expected.reason == LOST:
        assert record.reason
        expected = replace(expected, reason=record.reason, error=record.error)
    if expected.parent in forgotten:
        expected = replace(expected, parent=record.parent)
    both = [replace(page, not_before=max(page.not_before or now, now)) for page in (record, expected)]
    assert both[0] == both[1]


def test_back_end_and_oracle_agree_after_any_steps(new_place):
    """Whatever is done, in any order and at any time, the back end does what the oracle says."""
    run_state_machine_as_test(lambda: Machine(new_place), settings=PROFILE)
