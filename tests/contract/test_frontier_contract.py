"""The contract of `shoal.frontier.base`, sentence by sentence, on every back end.

Time is passed in. It is ahead of every real clock, by which those verbs go that take no `now`.
"""

from __future__ import annotations

import re
import threading
import time
from math import inf, nan
from typing import get_args

import pytest
from msgspec.structs import replace

from shoal.errors import ConfigError
from shoal.model import Beat, HostOrder, Limits, Link, Outcome, Stats, Survey, Visit
from shoal.urls import fingerprint, host_key

NOW = 4_000_000_000.0
A, B, C = "http://a.test/", "http://b.test/", "http://c.test/"


def add(frontier, *urls, at=NOW, **fields):
    """Add links that are alike but for their URL; how many were new."""
    return frontier.add([Link(url, **fields) for url in urls], now=at)


def lease(frontier, limit=10, *, at=NOW, seconds=60.0, worker="ann"):
    """Lease, where only the leases are of interest."""
    return frontier.lease(limit, seconds, worker=worker, now=at).leases


def leased_urls(frontier, limit=10, *, at=NOW):
    """Lease, where only the URLs are of interest."""
    return [each.link.url for each in lease(frontier, limit, at=at)]


def done(lease, **fields):
    """The usual end of a lease."""
    return Outcome(lease, "done", **fields)


def commit(frontier, *outcomes, at=NOW):
    """Commit outcomes whose leases are all held."""
    assert frontier.commit(outcomes, now=at) == frozenset()


def fetch(frontier, url, state="done", *, at=NOW, **fields):
    """One page, from being found to its end, while nothing else can be leased first."""
    add(frontier, url, at=at, priority=9)
    (page,) = lease(frontier, 1, at=at)
    assert page.link.url == url
    commit(frontier, Outcome(page, state, **fields), at=at)


def become(frontier, url, state):
    """Bring a new URL into any of the states."""
    if state in ("queued", "leased"):
        add(frontier, url, priority=9)
        if state == "leased":
            lease(frontier, 1)
    else:
        fetch(frontier, url, state)


def state_of(frontier, url):
    """The state of a known URL."""
    return frontier.why(url).state


# --- the states and their arrows ------------------------------------------------------------------


def test_a_link_added_is_queued_and_one_given_out_is_leased(frontier):
    """Queued --lease--> leased."""
    add(frontier, A)
    assert state_of(frontier, A) == "queued"
    lease(frontier)
    assert state_of(frontier, A) == "leased"


@pytest.mark.parametrize("state", ["done", "dead", "skipped", "queued"])
def test_commit_moves_a_leased_page_to_the_state_of_its_outcome(frontier, state):
    """Leased --commit--> done, dead, skipped or queued, with the counters in the same step."""
    add(frontier, A)
    (page,) = lease(frontier)
    commit(frontier, Outcome(page, state, reason="why"))
    stats = frontier.stats(now=NOW)
    assert (state_of(frontier, A), getattr(stats, state), stats.leased, stats.seen) == (state, 1, 0, 1)


def leases(frontier, now):
    """How many leases each worker holds."""
    return {worker.name: worker.leases for worker in frontier.workers(now=now)}


def test_release_queues_a_leased_page(frontier):
    """Leased --release--> queued."""
    add(frontier, A)
    frontier.release([page.token for page in lease(frontier)], now=NOW)
    assert state_of(frontier, A) == "queued"


def test_nothing_but_a_verb_changes_a_state(frontier):
    """No state changes anywhere else: looking, long after the deadline, changes nothing."""
    add(frontier, A)
    lease(frontier, seconds=10)
    assert frontier.stats(now=NOW + 1000).leased == 1
    assert (state_of(frontier, A), leases(frontier, NOW + 1000)) == ("leased", {"ann": 1})


def test_without_now_the_clock_of_the_back_end_counts(frontier):
    """`now` None, in production, means the clock of the back end."""
    before = time.time()
    frontier.add([Link(A)])
    assert before - 1 <= frontier.why(A).added_at <= time.time() + 1


def test_empty_batches_are_fine(frontier):
    """Verbs take batches, also of nothing."""
    assert frontier.add([], now=NOW) == 0
    assert frontier.commit([], now=NOW) == frozenset()
    assert frontier.extend([], 10, now=NOW) == frozenset()
    frontier.release([], now=NOW)
    assert frontier.stats(now=NOW) == Stats(finished=True)


def test_links_that_may_be_new_are_sifted(frontier):
    """They go in as the sieve gives them; what the process knows to be seen is not even asked about."""
    asked = []

    def sift(link):
        asked.append(link.url)
        return replace(link, trap="trap: test") if link.url == B else link

    add(frontier, A)
    (page,) = lease(frontier)
    assert not frontier.commit([done(page, links=(Link(B), Link(C)))], sift=sift, now=NOW)
    (page,) = lease(frontier)
    assert (page.link.url, sorted(asked)) == (C, [B, C])
    assert not frontier.commit([done(page, links=(Link(B), Link(C)))], sift=sift, now=NOW)
    assert len(asked) == 2
    stats = frontier.stats(now=NOW)
    assert (stats.done, stats.skipped, stats.queued) == (2, 1, 0)


def test_large_batches_are_fine(frontier):
    """Verbs take batches of any size."""
    frontier.configure(Limits(per_host=5000))
    fetch(frontier, A)
    assert add(frontier, *(f"{A}{number}" for number in range(2000))) == 2000
    pages = lease(frontier, 5000)
    assert frontier.extend([page.token for page in pages], 60, now=NOW) == frozenset()
    commit(frontier, *map(done, pages))
    assert frontier.stats(now=NOW).done == 2001


# --- all or nothing -------------------------------------------------------------------------------


def test_an_add_that_fails_half_way_adds_nothing(frontier):
    """Every method either does all of what it says or nothing."""

    def found():
        yield Link(A)
        raise OSError("the list of links cannot be read on")

    with pytest.raises(OSError, match="cannot be read on"):
        frontier.add(found(), now=NOW)
    assert frontier.stats(now=NOW) == Stats(finished=True)
    assert frontier.why(A) is None
    assert add(frontier, A) == 1


def test_a_commit_that_fails_half_way_changes_nothing(frontier):
    """If one link of a batch is refused, no outcome, no link, no position is kept."""
    add(frontier, A, B)
    first, second = lease(frontier)
    before = frontier.stats(now=NOW)
    refused = done(second, links=(Link(C), Link(A + "new", priority=10)))
    with pytest.raises(ConfigError):
        frontier.commit([done(first), refused], positions=[("rows.jsonl", 10)], now=NOW)
    assert frontier.stats(now=NOW) == before
    assert (frontier.why(C), frontier.position("rows.jsonl")) == (None, None)
    commit(frontier, done(first), done(second, links=(Link(C),)))
    assert state_of(frontier, C) == "queued"


@pytest.mark.parametrize("delay_s", [inf, nan, 1e18])
def test_a_delay_that_never_ends_is_refused(frontier, delay_s):
    """And nothing is added with it."""
    with pytest.raises(ConfigError, match=re.escape(f"a delay of {delay_s:g} s of {B}")):
        frontier.add([Link(A), Link(B, delay_s=delay_s)], now=NOW)
    assert frontier.stats(now=NOW).seen == 0


@pytest.mark.parametrize("priority", [-1, 10, True])
def test_a_priority_outside_0_to_9_is_refused(frontier, priority):
    """Priorities are 0..9 on every back end; a batch with another one is not added at all."""
    with pytest.raises(ConfigError, match=str(priority)):
        frontier.add([Link(A), Link(B, priority=priority)], now=NOW)
    assert frontier.stats(now=NOW).seen == 0
    add(frontier, A)
    with pytest.raises(ConfigError, match=str(priority)):
        frontier.set_priority(A, priority)
    assert frontier.why(A).priority == 0


# --- add ------------------------------------------------------------------------------------------


def test_add_tells_how_many_were_new(frontier):
    """Those known before and those twice in the batch do not count."""
    assert add(frontier, A, B) == 2
    assert add(frontier, A, C, C) == 1
    assert frontier.stats(now=NOW).queued == 3


@pytest.mark.parametrize("state", ["queued", "leased", "done", "dead", "skipped"])
def test_a_known_link_is_dropped_whatever_its_state(frontier, state):
    """Adding it again changes nothing, be it by another process."""
    become(frontier, A, state)
    before = frontier.why(A)
    assert add(frontier, A, at=NOW + 5, depth=3) == 0
    assert frontier.why(A) == before


def test_another_process_knows_what_this_one_has_added(place):
    """A link is new once, for all processes together."""
    one, other = place.open(), place.open()
    assert add(one, A) == 1
    assert add(other, A, B) == 1
    assert add(one, B) == 0


def test_a_key_sets_a_link_apart_from_others_with_its_url(frontier):
    """The identity is the URL with the key."""
    assert frontier.add([Link(A), Link(A, key="in French"), Link(A, key="in French")], now=NOW) == 2
    assert frontier.why(A, "in French").url == A
    assert frontier.why(A, "in Greek") is None


def test_urls_that_differ_in_anything_are_different(frontier):
    """Case of the path, a slash at the end, the order of parameters: all of it may be another page."""
    urls = (A + "p", A + "P", A + "p/", A + "p?x=1&y=2", A + "p?y=2&x=1", A + "p%2Fq", A + "p/q")
    assert add(frontier, *urls) == len(urls)


def test_a_link_deeper_than_max_depth_is_dropped_and_not_remembered(frontier):
    """At the limit it is kept; what was dropped may be found again when the limit has been raised."""
    frontier.configure(Limits(max_depth=1))
    assert frontier.add([Link(A, depth=1), Link(B, depth=2)], now=NOW) == 1
    assert frontier.why(B) is None
    frontier.configure(Limits())
    assert add(frontier, B, depth=2) == 1


def test_add_does_not_look_at_max_queued(frontier):
    """That is `open_producer`'s business: links found are never refused."""
    frontier.configure(Limits(max_queued=1))
    assert add(frontier, A, B, C) == 3


def test_a_lease_brings_the_link_as_it_was_added(frontier):
    """The user's data, the redirects on the way and the depth come back; so do identity and host."""
    link = Link(
        "http://a.test:8080/p", 3, 2, "k", via=("http://b.test/",), cookie=True, meta={"shelf": [3, None]}
    )
    frontier.add([link], now=NOW)
    (page,) = lease(frontier)
    assert page.link == link
    assert page.fingerprint == fingerprint(link.url, "k")
    assert page.host == host_key(link.url)


def test_a_delayed_link_is_not_given_before_its_time(frontier):
    """`delay_s` after it was added it may be fetched, and not earlier."""
    add(frontier, A, delay_s=10)
    assert frontier.stats(now=NOW + 9.5).delayed == 1
    assert leased_urls(frontier, at=NOW + 9.5) == []
    assert frontier.stats(now=NOW + 10).delayed == 0
    assert leased_urls(frontier, at=NOW + 10) == [A]


def test_a_delayed_link_does_not_hold_up_its_host(frontier):
    """Other links of the host go first, even those of a lower priority."""
    add(frontier, A + "late", delay_s=10, priority=9)
    add(frontier, A + "soon")
    assert leased_urls(frontier) == [A + "soon"]


# --- lease ----------------------------------------------------------------------------------------


def test_lease_gives_up_to_limit(frontier):
    """Not more, and fewer if there are fewer."""
    add(frontier, A, B, C)
    assert len(lease(frontier, 2)) == 2
    assert len(lease(frontier, 2)) == 1
    assert len(lease(frontier, 2)) == 0


def test_a_lease_is_exclusive(place):
    """What one worker holds, no other one gets, whichever process it is in."""
    one, other = place.open(), place.open()
    add(one, A, B)
    held = lease(one, 1, worker="ann")
    assert [page.link.url for page in lease(other, worker="bob")] == [
        url for url in (A, B) if url != held[0].link.url
    ]
    assert lease(one) == lease(other) == ()


def test_a_lease_is_for_some_seconds_in_the_name_of_a_worker(frontier):
    """Both can be looked up."""
    add(frontier, A)
    lease(frontier, seconds=30, worker="ann")
    assert (frontier.why(A).deadline, frontier.why(A).worker) == (NOW + 30, "ann")


def test_at_the_deadline_the_holder_still_owns_the_lease(frontier):
    """Nobody else gets the page then, and its commit counts."""
    add(frontier, A)
    (page,) = lease(frontier, seconds=60)
    assert lease(frontier, at=NOW + 60, worker="bob") == ()
    commit(frontier, done(page), at=NOW + 60)


def test_after_the_deadline_the_lease_is_taken_back_and_given_anew(frontier):
    """In the same call of `lease`; the page has another token then, and the old one is lost."""
    add(frontier, A)
    (old,) = lease(frontier, seconds=60, worker="ann")
    (new,) = lease(frontier, at=NOW + 60.5, worker="bob")
    assert (new.link, new.token > old.token, frontier.why(A).worker) == (old.link, True, "bob")
    assert frontier.commit([done(old)], now=NOW + 61) == {old.token}
    assert state_of(frontier, A) == "leased"
    assert frontier.stats(now=NOW + 61).losses == 1


def test_a_lease_that_nobody_took_back_is_still_held_after_its_deadline(frontier):
    """Only `lease` and `reap` take back: until then a late worker may commit, extend and release."""
    add(frontier, A, B)
    first, second = lease(frontier, seconds=60)
    commit(frontier, done(first), at=NOW + 100)
    assert frontier.extend([second.token], 60, now=NOW + 100) == frozenset()
    assert lease(frontier, at=NOW + 160) == ()


def test_leases_are_taken_back_even_while_the_crawl_is_paused(frontier):
    """First, leases whose deadline has passed are taken back."""
    add(frontier, A)
    lease(frontier, seconds=60)
    frontier.pause()
    assert lease(frontier, at=NOW + 61) == ()
    assert state_of(frontier, A) == "queued"


def test_higher_priority_first_across_hosts(frontier):
    """The heads of all ready hosts compete: the best first."""
    for priority, url in [(0, A), (9, B), (5, C)]:
        add(frontier, url, priority=priority)
    assert leased_urls(frontier) == [B, C, A]


def test_a_host_competes_with_its_best_link(frontier):
    """The priority of its head counts, not the order in which its links came."""
    add(frontier, A + "0", B + "5")
    add(frontier, A + "9", priority=9)
    assert leased_urls(frontier, 1) == [A + "9"]


def test_among_equals_the_host_that_has_waited_longest_is_next(frontier):
    """So hosts take turns, be it in one lease or in several."""
    fetch(frontier, A)
    fetch(frontier, B)
    add(frontier, *(A + name for name in "12345"), *(B + name for name in "12345"))
    together = [url[:-1] for url in leased_urls(frontier, 4)]
    apart = [leased_urls(frontier, 1)[0][:-1] for _ in range(4)]
    assert sorted(together) == sorted(apart) == [A, A, B, B]
    assert together[0] != together[1]
    assert apart[0] != apart[1]


def test_a_new_host_does_not_wait_behind_a_long_queue(frontier):
    """However much one host has queued, another one gets its turn."""
    fetch(frontier, A)
    add(frontier, *(f"{A}{number}" for number in range(20)))
    add(frontier, B)
    assert B in leased_urls(frontier, 2)


def test_within_a_host_first_in_first_out(frontier):
    """Within one priority; a higher one goes before."""
    fetch(frontier, A)
    add(frontier, A + "1", A + "2", at=NOW)
    add(frontier, A + "3", at=NOW + 1)
    add(frontier, A + "first", at=NOW + 2, priority=1)
    assert leased_urls(frontier, at=NOW + 3) == [A + "first", A + "1", A + "2", A + "3"]


@pytest.mark.parametrize("how", ["retry", "release", "loss", "redrive"])
def test_a_link_that_comes_back_goes_before_those_never_leased(frontier, how):
    """Of its priority; a higher one still goes before it."""
    fetch(frontier, A)
    add(frontier, A + "again", A + "never", A + "best")
    (page,) = lease(frontier, 1)
    if how == "retry":
        commit(frontier, Outcome(page, "queued"))
    elif how == "release":
        frontier.release([page.token], now=NOW)
    elif how == "loss":
        frontier.reap("ann", now=NOW)
    else:
        commit(frontier, Outcome(page, "dead"))
        frontier.redrive(now=NOW)
    frontier.set_priority(A + "best", 1)
    assert leased_urls(frontier) == [A + "best", A + "again", A + "never"]


def test_a_link_that_comes_back_goes_before_an_older_one_never_leased(frontier):
    """Even if that one was only held up by its own delay."""
    fetch(frontier, A)
    add(frontier, A + "never", delay_s=10)
    add(frontier, A + "again")
    (page,) = lease(frontier, 1)
    commit(frontier, Outcome(page, "queued"))
    assert leased_urls(frontier, 1, at=NOW + 10) == [A + "again"]


# --- lease: when a host is ready ------------------------------------------------------------------


def test_per_host_of_its_links_are_leased_at_once(frontier):
    """And one more as soon as one of them has come to an end."""
    frontier.configure(Limits(per_host=2))
    fetch(frontier, A)
    add(frontier, A + "1", A + "2", A + "3")
    pages = lease(frontier)
    assert len(pages) == 2
    commit(frontier, done(pages[0]))
    assert len(lease(frontier)) == 1


def test_per_host_holds_for_all_workers_together(place):
    """Politeness is of the crawl, not of a process."""
    one, other = place.open(), place.open()
    one.configure(Limits(per_host=2))
    fetch(one, A)
    add(one, A + "1", A + "2", A + "3")
    assert len(lease(one, 1)) + len(lease(other)) == 2


def test_a_new_host_gives_one_link_until_its_first_commit(frontier):
    """Which tells its crawl delay; a release or a loss tells nothing."""
    add(frontier, A + "1", A + "2", A + "3")
    (page,) = lease(frontier)
    frontier.release([page.token], now=NOW)
    (page,) = lease(frontier)
    assert frontier.reap("ann", now=NOW) == 1
    (page,) = lease(frontier)
    commit(frontier, Outcome(page, "queued", reason="timeout"))
    assert len(lease(frontier)) == 3


def test_a_host_with_a_delay_gives_one_link_at_a_time(frontier):
    """Even when the delay has passed and the page is still being fetched."""
    frontier.configure(Limits(delay_s=5, per_host=8))
    fetch(frontier, A)
    add(frontier, A + "1", A + "2")
    assert len(lease(frontier, at=NOW + 5, seconds=60)) == 1
    assert lease(frontier, at=NOW + 15) == ()


def test_a_host_waits_its_delay_after_the_start_of_its_last_fetch(frontier):
    """The start, as the outcome's age tells it, and not the end."""
    frontier.configure(Limits(delay_s=5))
    add(frontier, A + "1", A + "2")
    (page,) = lease(frontier)
    commit(frontier, done(page, age_s=2), at=NOW + 3)
    assert lease(frontier, at=NOW + 5.5) == ()
    assert len(lease(frontier, at=NOW + 6)) == 1


def test_a_page_for_which_its_host_was_not_asked_costs_no_delay(frontier):
    """Its outcome is older than its lease: the last fetch before it is the one that counts."""
    frontier.configure(Limits(delay_s=5))
    add(frontier, A + "1", A + "2", A + "3")
    (page,) = lease(frontier)
    commit(frontier, done(page), at=NOW)
    (page,) = lease(frontier, at=NOW + 5)
    commit(frontier, done(page, age_s=1000), at=NOW + 6)
    assert len(lease(frontier, at=NOW + 6)) == 1


def test_the_last_fetch_is_the_one_that_started_last(frontier):
    """Not the one that was committed last."""
    fetch(frontier, A)
    add(frontier, A + "1", A + "2", A + "3")
    first, second = lease(frontier, 2)
    commit(frontier, done(second, age_s=1), at=NOW + 10)
    commit(frontier, done(first, age_s=11, crawl_delay_s=5), at=NOW + 11)
    assert lease(frontier, at=NOW + 13.5) == ()
    assert len(lease(frontier, at=NOW + 14)) == 1


def test_the_delay_holds_for_other_processes_and_after_a_restart(place):
    """Politeness is kept with the crawl."""
    one = place.open()
    one.configure(Limits(delay_s=5))
    fetch(one, A)
    add(one, A + "1")
    one.close()
    other = place.open()
    assert lease(other, at=NOW + 4.5) == ()
    assert len(lease(other, at=NOW + 5)) == 1


def test_other_hosts_do_not_wait_for_one_with_a_delay(frontier):
    """Each host has a clock of its own; a port of its own makes another host."""
    fetch(frontier, A, crawl_delay_s=100)
    add(frontier, A + "1", B, "http://a.test:8080/")
    assert sorted(leased_urls(frontier, at=NOW + 1)) == ["http://a.test:8080/", B]


def test_max_pages_per_host_is_never_overshot(frontier):
    """Done + leased stay below it: what is leased may become done."""
    frontier.configure(Limits(max_pages_per_host=2))
    fetch(frontier, A)
    add(frontier, A + "1", A + "2", B)
    assert sorted(leased_urls(frontier)) == [A + "1", B]
    assert lease(frontier) == ()


@pytest.mark.parametrize("state", ["dead", "skipped", "queued"])
def test_only_pages_done_count_towards_the_limits(frontier, state):
    """A page that came to another end makes room for the next one."""
    frontier.configure(Limits(max_pages=1, max_pages_per_host=1))
    add(frontier, A + "1", A + "2")
    (page,) = lease(frontier)
    commit(frontier, Outcome(page, state, reason="why", retry_s=100))
    assert leased_urls(frontier) == [A + "2"]


def test_nothing_is_given_while_the_crawl_is_paused(place):
    """Whoever asks; `resume` ends it."""
    one, other = place.open(), place.open()
    add(one, A)
    one.pause()
    assert (lease(one), lease(other), other.stats(now=NOW).paused) == ((), (), True)
    other.resume()
    assert leased_urls(one) == [A]


def test_max_pages_is_never_overshot(frontier):
    """Done + leased never pass it, in one lease or in several."""
    frontier.configure(Limits(max_pages=3))
    fetch(frontier, A)
    add(frontier, *(f"http://{name}.test/" for name in "bcdefg"))
    pages = lease(frontier, 10)
    assert len(pages) == 2
    assert lease(frontier) == ()
    commit(frontier, *map(done, pages))
    assert lease(frontier) == ()


# --- grant ----------------------------------------------------------------------------------------


def asks_again(frontier, limit=10, *, at=NOW):
    """Lease, where only the time to ask again is of interest."""
    return frontier.lease(limit, 60, worker="ann", now=at).again_s


def test_nothing_to_wait_for_in_an_empty_crawl(frontier):
    """again_s is None: never by time alone."""
    assert asks_again(frontier) is None


def test_ask_again_at_once_if_more_may_start(frontier):
    """again_s is 0 if only `limit` kept more from being given."""
    add(frontier, A, B)
    assert asks_again(frontier, 1) == 0


def test_a_limit_reached_is_no_reason_to_ask_again_at_once(frontier):
    """What `max_pages` keeps back may not start now."""
    frontier.configure(Limits(max_pages=1))
    add(frontier, A, B)
    assert asks_again(frontier, 1) == 60


def test_ask_again_when_a_delayed_link_is_due(frontier):
    """Not before the first of them."""
    add(frontier, A, delay_s=10)
    add(frontier, B, delay_s=7)
    assert asks_again(frontier) == 7


def test_ask_again_when_the_delay_of_a_host_has_passed(frontier):
    """Its clock started with its last fetch."""
    frontier.configure(Limits(delay_s=5))
    fetch(frontier, A)
    add(frontier, A + "1")
    assert asks_again(frontier, at=NOW + 2) == 3


def test_ask_again_when_the_pause_of_a_host_is_over(frontier):
    """Of a host that has something to give."""
    add(frontier, A)
    frontier.pause_host("a.test", 20, now=NOW)
    frontier.pause_host("b.test", 10, now=NOW)
    assert asks_again(frontier, at=NOW + 5) == 15


def test_ask_again_when_a_lease_runs_out(frontier):
    """Its holder may have died."""
    add(frontier, A)
    lease(frontier, seconds=30)
    assert asks_again(frontier, at=NOW + 10) == 20
    assert asks_again(frontier, at=NOW + 30) == 0


def test_ask_again_when_a_producer_may_be_gone(frontier):
    """Then the crawl may be finished."""
    frontier.open_producer("feed", 40, now=NOW)
    assert asks_again(frontier, at=NOW + 10) == 30


def test_a_producer_that_is_gone_is_no_reason_to_ask_again(frontier):
    """What is over cannot change anything any more."""
    frontier.open_producer("feed", 10, now=NOW)
    add(frontier, A, delay_s=100)
    assert asks_again(frontier, at=NOW + 50) == 50


def test_whoever_asks_again_in_time_misses_nothing(frontier):
    """Waiting for again_s each time, and nothing else, a worker sees all pages and the end."""
    frontier.configure(Limits(delay_s=5, max_losses=2))
    add(frontier, A + "1", A + "2", A + "3", B)
    add(frontier, C, delay_s=100)
    now, fetched, grant = NOW, [], frontier.lease(10, 60, worker="ann", now=NOW)
    while not grant.finished:
        fetched += [page.link.url for page in grant.leases]
        commit(frontier, *(done(page) for page in grant.leases if page.link.url != B), at=now)  # B kills
        now += grant.again_s + 0.5
        grant = frontier.lease(10, 60, worker="ann", now=now)
    assert sorted(fetched) == [A + "1", A + "2", A + "3", B, B, C]
    assert (state_of(frontier, B), now < NOW + 140) == ("dead", True)


# --- finished -------------------------------------------------------------------------------------


def finished(frontier, at=NOW):
    """As `lease` tells it, which here must agree with the counters."""
    answer = frontier.lease(10, 60, worker="ann", now=at).finished
    assert frontier.stats(now=at).finished == answer
    return answer


def test_an_empty_crawl_is_finished(frontier):
    """Nothing is leased, nothing may be leased, no producer is open."""
    assert finished(frontier)


def test_a_crawl_is_finished_when_its_last_page_is_committed(frontier):
    """Not while anything is leased; not if the page brought links."""
    add(frontier, A)
    (page,) = lease(frontier)
    assert not frontier.stats(now=NOW).finished
    commit(frontier, done(page, links=(Link(A + "1"),)))
    assert not frontier.stats(now=NOW).finished
    (page,) = lease(frontier)
    commit(frontier, Outcome(page, "dead", reason="HTTP 404"))
    assert finished(frontier)


def test_a_delayed_link_keeps_a_crawl_open(frontier):
    """It may be leased some day."""
    fetch(frontier, A, "queued", reason="timeout", retry_s=1000)
    assert not finished(frontier)


def test_a_paused_host_keeps_a_crawl_open(frontier):
    """Its links may be leased some day."""
    add(frontier, A)
    frontier.pause_host("a.test", 1000, now=NOW)
    assert not finished(frontier)


def test_a_paused_crawl_with_queued_links_is_not_finished(frontier):
    """It may be resumed."""
    add(frontier, A)
    frontier.pause()
    assert not finished(frontier)


def test_a_crawl_is_finished_when_max_pages_are_done(frontier):
    """Whatever is queued; but not as long as the last of them are leased."""
    frontier.configure(Limits(max_pages=1))
    add(frontier, A, B)
    (page,) = lease(frontier)
    assert not finished(frontier)
    commit(frontier, done(page))
    assert finished(frontier)
    frontier.configure(Limits(max_pages=2))
    assert not finished(frontier)


def test_a_crawl_is_finished_when_all_hosts_with_links_have_had_their_pages(frontier):
    """`max_pages_per_host` counts like `max_pages`."""
    frontier.configure(Limits(max_pages_per_host=1))
    add(frontier, A + "1", A + "2", B + "1")
    for page in lease(frontier):
        assert not frontier.stats(now=NOW).finished
        commit(frontier, done(page))
    assert finished(frontier)
    assert frontier.stats(now=NOW).queued == 1
    add(frontier, C)
    assert not finished(frontier)


# --- commit ---------------------------------------------------------------------------------------


def test_one_lost_lease_keeps_the_whole_batch_from_being_applied(frontier):
    """The lost tokens are told; the caller drops them and commits the rest."""
    add(frontier, A, B)
    kept, lost = sorted(lease(frontier), key=lambda page: page.host)
    frontier.release([lost.token], now=NOW)
    outcomes = [done(kept, links=(Link(C),)), done(lost)]
    before = frontier.stats(now=NOW)
    assert frontier.commit(outcomes, positions=[("rows.jsonl", 10)], now=NOW) == {lost.token}
    assert frontier.stats(now=NOW) == before
    assert (frontier.why(C), frontier.position("rows.jsonl")) == (None, None)
    commit(frontier, outcomes[0])
    assert (state_of(frontier, A), state_of(frontier, B), state_of(frontier, C)) == (
        "done",
        "queued",
        "queued",
    )


def test_a_page_cannot_be_committed_twice(frontier):
    """After the first commit the lease is held no more."""
    add(frontier, A)
    (page,) = lease(frontier)
    commit(frontier, done(page))
    assert frontier.commit([Outcome(page, "dead")], now=NOW) == {page.token}
    assert state_of(frontier, A) == "done"


def test_a_zombie_cannot_commit(frontier):
    """Its lease was taken back and given to somebody else, who is not disturbed."""
    add(frontier, A)
    (zombie,) = lease(frontier, seconds=10, worker="zombie")
    (page,) = lease(frontier, at=NOW + 11, worker="ann")
    late = done(zombie, links=(Link(B),), items=({"by": "zombie"},))
    assert frontier.commit([late], now=NOW + 12) == {zombie.token}
    commit(frontier, done(page, items=({"by": "ann"},)), at=NOW + 13)
    assert list(frontier.items()) == ([{"by": "ann"}] if frontier.keeps_items else [])
    assert frontier.why(B) is None


def test_links_are_queued_with_the_page_as_their_parent(remembering, frontier):
    """The page that a link was found on first; a seed has none."""
    add(frontier, A, B)
    first, second = lease(frontier)
    commit(frontier, done(first, links=(Link(C, depth=1),)), done(second, links=(Link(C, depth=1), Link(A))))
    assert frontier.why(C).parent == first.link.url
    assert frontier.why(C).depth == 1
    assert frontier.why(A).parent == ""


def test_links_of_every_outcome_are_queued(frontier):
    """Also of a page that is tried again, or a dead letter."""
    fetch(frontier, A, "dead", reason="handler", links=(Link(B),))
    assert state_of(frontier, B) == "queued"


def test_links_found_are_subject_to_max_depth(frontier):
    """As those added are."""
    frontier.configure(Limits(max_depth=1))
    fetch(frontier, A, links=(Link(B, depth=1), Link(C, depth=2)))
    assert state_of(frontier, B) == "queued"
    assert frontier.why(C) is None


def test_a_retry_is_not_given_before_its_time(frontier):
    """`retry_s` after the commit it may be; with its attempt counted and the reason told."""
    add(frontier, A)
    (page,) = lease(frontier)
    assert page.attempt == 1
    commit(frontier, Outcome(page, "queued", reason="HTTP 503", error="busy", status=503, retry_s=30))
    record, stats = frontier.why(A), frontier.stats(now=NOW)
    assert (record.reason, record.error, record.status, record.attempts) == ("HTTP 503", "busy", 503, 1)
    assert (record.not_before, record.finished_at) == (NOW + 30, None)
    assert (stats.queued, stats.delayed, stats.retrying) == (1, 1, 1)
    assert lease(frontier, at=NOW + 29.5) == ()
    (page,) = lease(frontier, at=NOW + 30)
    assert page.attempt == 2


def test_a_server_may_ask_to_be_left_alone(frontier):
    """The next fetch of the host not before now + pause_s, whatever its delay."""
    fetch(frontier, A, pause_s=30)
    add(frontier, A + "1", B)
    assert leased_urls(frontier, at=NOW + 29.5) == [B]
    assert leased_urls(frontier, at=NOW + 30) == [A + "1"]


@pytest.mark.parametrize(("limit_s", "crawl_delay_s"), [(5, 2), (2, 5), (0, 5), (5, None), (5, 0)])
def test_the_larger_of_the_two_delays_counts(frontier, limit_s, crawl_delay_s):
    """robots.txt can only raise `Limits.delay_s`."""
    frontier.configure(Limits(delay_s=limit_s))
    fetch(frontier, A, crawl_delay_s=crawl_delay_s)
    add(frontier, A + "1")
    assert lease(frontier, at=NOW + 4.5) == ()
    assert len(lease(frontier, at=NOW + 5)) == 1


def test_the_last_crawl_delay_told_counts(frontier):
    """An outcome that tells none leaves it as it is; one that tells another changes it."""
    fetch(frontier, A, crawl_delay_s=5)
    add(frontier, A + "1", A + "2", A + "3", at=NOW)
    (page,) = lease(frontier, at=NOW + 5)
    commit(frontier, done(page), at=NOW + 5)
    assert lease(frontier, at=NOW + 9.5) == ()
    (page,) = lease(frontier, at=NOW + 10)
    commit(frontier, done(page, crawl_delay_s=1), at=NOW + 10)
    assert len(lease(frontier, at=NOW + 11)) == 1


@pytest.mark.parametrize("how", ["release", "reap", "deadline"])
def test_a_lease_that_ends_without_a_commit_counts_as_a_fetch_started_at_its_end(frontier, how):
    """The page may have been fetched until then, so the host waits its delay."""
    frontier.configure(Limits(delay_s=5))
    add(frontier, A)
    (page,) = lease(frontier, seconds=10)
    if how == "release":
        frontier.release([page.token], now=NOW + 11)
    elif how == "reap":
        frontier.reap("ann", now=NOW + 11)
    assert lease(frontier, at=NOW + 11) == ()
    assert lease(frontier, at=NOW + 15.5) == ()
    assert len(lease(frontier, at=NOW + 16)) == 1


def test_what_a_page_was_is_recorded(frontier):
    """`why` tells all that is known of it."""
    add(frontier, B, depth=1, priority=2)
    (page,) = lease(frontier, at=NOW + 1)
    commit(frontier, Outcome(page, "dead", reason="HTTP 404", error="gone", status=404), at=NOW + 2)
    record = frontier.why(B)
    assert (record.url, record.state, record.host) == (B, "dead", "b.test")
    assert (record.priority, record.depth, record.parent) == (2, 1, "")
    assert (record.attempts, record.losses) == (1, 0)
    assert (record.reason, record.error, record.status) == ("HTTP 404", "gone", 404)
    assert (record.added_at, record.finished_at, record.not_before) == (NOW, NOW + 2, None)
    assert (record.worker, record.deadline) == ("", None)


def test_fetches_and_bytes_are_added_up(frontier):
    """Attempts that came to an end, failed ones included."""
    fetch(frontier, A, size_bytes=100)
    fetch(frontier, B, "queued", size_bytes=20, retry_s=9)
    fetch(frontier, C, "dead")
    stats = frontier.stats(now=NOW)
    assert (stats.fetches, stats.size_bytes, stats.losses) == (3, 120, 0)


# --- items ----------------------------------------------------------------------------------------


def test_items_are_kept_in_the_order_of_their_commits(place, keeping):
    """All of one page together, in their order; a process that opens the crawl later sees the same."""
    frontier = place.open()
    assert frontier.keeps_items
    fetch(frontier, A, items=({"n": 1}, {"n": 2, "tags": ["x", None, 1.5]}))
    fetch(frontier, B, items=({"n": 3},))
    expected = [{"n": 1}, {"n": 2, "tags": ["x", None, 1.5]}, {"n": 3}]
    assert list(frontier.items()) == list(place.open().items()) == expected
    assert frontier.stats(now=NOW).items == 3


def test_a_page_that_is_done_again_has_its_items_once(keeping, frontier):
    """The items of a later commit take the place of those of an earlier one."""
    fetch(frontier, A, "dead", reason="handler", items=({"try": 1}, {"try": 1}))
    frontier.redrive(now=NOW)
    (page,) = lease(frontier)
    commit(frontier, done(page, items=({"try": 2},)))
    assert list(frontier.items()) == [{"try": 2}]
    assert frontier.stats(now=NOW).items == 1


def test_no_items_are_kept_by_a_frontier_that_is_not_the_store(place):
    """They are counted, though; the store has them."""
    frontier = place.open(keep_items=False)
    assert not frontier.keeps_items
    fetch(frontier, A, items=({"n": 1},))
    assert list(frontier.items()) == []


# --- extend, release, reap ------------------------------------------------------------------------


def test_extend_moves_the_deadline(frontier):
    """To now + seconds, be that later or earlier."""
    add(frontier, A, B)
    first, second = lease(frontier, seconds=60)
    assert frontier.extend([first.token], 60, now=NOW + 50) == frozenset()
    assert frontier.extend([second.token], 1, now=NOW + 50) == frozenset()
    assert frontier.why(first.link.url).deadline == NOW + 110
    assert leased_urls(frontier, at=NOW + 51.5) == [second.link.url]
    assert leased_urls(frontier, at=NOW + 110) == []


def test_extend_tells_which_leases_are_lost(frontier):
    """The held ones of the batch are extended."""
    add(frontier, A, B)
    held, lost = lease(frontier, seconds=60)
    frontier.release([lost.token], now=NOW)
    assert frontier.extend([held.token, lost.token, 999], 100, now=NOW) == {lost.token, 999}
    assert frontier.why(held.link.url).deadline == NOW + 100


def test_release_does_not_count_as_an_attempt(frontier):
    """The page is as if it had never been leased: no attempt, no loss."""
    add(frontier, A)
    (page,) = lease(frontier)
    frontier.release([page.token], now=NOW)
    record, stats = frontier.why(A), frontier.stats(now=NOW)
    assert (record.attempts, record.losses, record.worker, record.deadline) == (0, 0, "", None)
    assert (stats.retrying, stats.fetches, stats.losses) == (0, 0, 0)
    assert lease(frontier)[0].attempt == 1


def test_release_ignores_tokens_no_longer_held(frontier):
    """Those of the batch that are held are released."""
    add(frontier, A, B)
    first, second = lease(frontier)
    commit(frontier, done(first))
    frontier.release([first.token, second.token, 999], now=NOW)
    assert (state_of(frontier, first.link.url), state_of(frontier, second.link.url)) == ("done", "queued")


def test_reap_takes_back_all_leases_of_a_worker_before_their_deadline(frontier):
    """And tells how many; other workers keep theirs."""
    add(frontier, A, B, C)
    lease(frontier, 2, worker="dead")
    lease(frontier, 1, worker="alive")
    assert frontier.reap("dead", now=NOW + 1) == 2
    assert frontier.reap("dead", now=NOW + 1) == 0
    assert leases(frontier, NOW + 1) == {"alive": 1}
    stats = frontier.stats(now=NOW + 1)
    assert (stats.queued, stats.leased, stats.losses) == (2, 1, 2)


def test_a_loss_is_told_but_is_no_attempt(frontier):
    """`attempt` is one more than the attempts that were committed."""
    add(frontier, A)
    lease(frontier)
    frontier.reap("ann", now=NOW)
    record, stats = frontier.why(A), frontier.stats(now=NOW)
    assert (record.attempts, record.losses, record.worker, record.deadline) == (0, 1, "", None)
    assert (stats.retrying, stats.fetches, stats.losses) == (0, 0, 1)
    assert lease(frontier)[0].attempt == 1


@pytest.mark.parametrize("how", ["reap", "deadline"])
def test_a_page_that_is_lost_too_often_becomes_a_dead_letter(frontier, how):
    """After `max_losses` losses: it may be what kills the workers. Its reason says so."""
    frontier.configure(Limits(max_losses=3))
    add(frontier, A)
    for loss in range(3):
        assert len(lease(frontier, at=NOW + 11 * loss, seconds=10)) == 1
        if how == "reap":
            frontier.reap("ann", now=NOW + 11 * loss + 11)
    assert lease(frontier, at=NOW + 33) == ()
    (record,) = frontier.dead()
    assert (record.losses, record.finished_at, record.reason != "") == (3, NOW + 33, True)
    assert finished(frontier, at=NOW + 33)


# --- pause_host -----------------------------------------------------------------------------------


def test_a_paused_host_gives_nothing_until_its_time(frontier):
    """Other hosts are not concerned."""
    add(frontier, A, B)
    frontier.pause_host("a.test", 30, now=NOW)
    assert leased_urls(frontier, at=NOW + 29.5) == [B]
    assert leased_urls(frontier, at=NOW + 30) == [A]


def test_a_shorter_pause_never_cuts_a_longer_one(frontier):
    """Neither by `pause_host` nor by an outcome; a longer one prolongs it."""
    add(frontier, A)
    (page,) = lease(frontier)
    frontier.pause_host("a.test", 30, now=NOW)
    frontier.pause_host("a.test", 5, now=NOW)
    commit(frontier, Outcome(page, "queued", pause_s=5))
    assert lease(frontier, at=NOW + 29.5) == ()
    frontier.pause_host("a.test", 30, now=NOW + 29.5)
    assert lease(frontier, at=NOW + 59) == ()
    assert len(lease(frontier, at=NOW + 59.5)) == 1


def test_a_pause_of_0_ends_a_pause(frontier):
    """Also one that the server asked for."""
    fetch(frontier, A, "queued", pause_s=1000)
    frontier.pause_host("a.test", 0, now=NOW + 1)
    assert leased_urls(frontier, at=NOW + 1) == [A]


def test_a_host_can_be_paused_before_it_is_known(frontier):
    """Its links wait from the first one on."""
    frontier.pause_host("a.test", 30, now=NOW)
    add(frontier, A)
    assert leased_urls(frontier, at=NOW + 29.5) == []
    assert leased_urls(frontier, at=NOW + 30) == [A]


# --- stats ----------------------------------------------------------------------------------------


def test_stats_count_every_state(frontier):
    """And `seen` is their sum."""
    for number, state in enumerate(["done", "dead", "skipped", "leased", "queued"]):
        become(frontier, f"http://{number}.test/", state)
    stats = frontier.stats(now=NOW)
    assert (stats.queued, stats.leased, stats.done, stats.dead, stats.skipped) == (1, 1, 1, 1, 1)
    assert (stats.seen, stats.hosts) == (5, 5)


def test_stats_count_the_queued_by_priority(frontier):
    """From 0 to 9, delayed ones included."""
    for priority in range(10):
        urls = [f"http://{priority}.test/{number}" for number in range(priority)]
        add(frontier, *urls, priority=priority, delay_s=5.0 * (priority % 2))
    assert frontier.stats(now=NOW).by_priority == tuple(range(10))


def test_stats_count_the_hosts_that_are_ready(frontier):
    """Those that would give a lease now: not those that wait, are paused or have one leased."""
    fetch(frontier, A, crawl_delay_s=10)
    add(frontier, A + "1", B, C, "http://d.test/", "http://e.test/")
    frontier.pause_host("b.test", 20, now=NOW)
    lease(frontier, 1)
    assert frontier.stats(now=NOW).ready_hosts == 2
    assert frontier.stats(now=NOW + 10).ready_hosts == 3
    assert frontier.stats(now=NOW + 20).ready_hosts == 4


def test_stats_are_the_same_for_all_processes(place):
    """They are counters of the crawl."""
    one, other = place.open(), place.open()
    fetch(one, A, links=(Link(B),), size_bytes=10)
    assert one.stats(now=NOW) == other.stats(now=NOW)


# --- wait, wake, close ----------------------------------------------------------------------------


def test_wait_returns_when_its_time_is_up(frontier):
    """If nobody does anything."""
    lease(frontier)
    start = time.monotonic()
    frontier.wait(0.05)
    assert time.monotonic() - start >= 0.04
    frontier.wait(0)


def test_wait_returns_when_somebody_else_has_brought_work(place):
    """Since the last verb of this one: nothing is missed in between."""
    one, other = place.open(), place.open()
    lease(one)
    add(other, A)
    start = time.monotonic()
    one.wait(60)
    assert time.monotonic() - start < 30
    assert leased_urls(one) == [A]


def test_wake_ends_the_wait_of_another_thread(frontier):
    """Either the one that is going on or the next one."""
    lease(frontier)
    start = time.monotonic()
    frontier.wake()
    frontier.wait(60)
    timer = threading.Timer(0.05, frontier.wake)
    timer.start()
    frontier.wait(60)
    timer.join()
    assert time.monotonic() - start < 30


def test_leases_stay_when_a_frontier_is_closed(place):
    """Nothing is lost: the next one finds all as it was, and the lease can be committed there."""
    with place.open() as frontier:
        add(frontier, A, B)
        (page,) = lease(frontier, 1)
        before = frontier.stats(now=NOW)
    frontier = place.open()
    assert frontier.stats(now=NOW) == before
    commit(frontier, done(page))


# --- limits ---------------------------------------------------------------------------------------


def test_without_configure_the_default_limits_are_in_force(frontier):
    """Those of `Limits()`."""
    assert frontier.limits == Limits()


def test_limits_are_set_for_all_workers(place):
    """Whichever process sets them; they stay with the crawl."""
    one, other = place.open(), place.open()
    limits = Limits(1, 2, 3, 4, 5, 6, 7.5)
    one.configure(limits)
    assert one.limits == other.limits == place.open().limits == limits


def test_limits_lowered_take_effect_on_the_next_lease(frontier):
    """What is leased already is finished."""
    fetch(frontier, A)
    add(frontier, *(A + name for name in "12345"))
    held = lease(frontier, 2)
    frontier.configure(Limits(per_host=2))
    assert lease(frontier) == ()
    commit(frontier, done(held[0]))
    assert len(lease(frontier)) == 1
    frontier.configure(Limits(max_pages=4))
    commit(frontier, done(held[1]))
    assert frontier.stats(now=NOW).leased == 1
    assert len(lease(frontier)) == 0


def test_limits_raised_take_effect_on_the_next_lease(frontier):
    """Of every kind."""
    frontier.configure(Limits(max_pages=1))
    fetch(frontier, A)
    add(frontier, A + "1", A + "2", A + "3", A + "4")
    assert lease(frontier) == ()
    frontier.configure(Limits(per_host=1))
    assert len(lease(frontier)) == 1
    frontier.configure(Limits(max_pages_per_host=3))
    assert len(lease(frontier)) == 1
    frontier.configure(Limits())
    assert len(lease(frontier)) == 2


@pytest.mark.parametrize("limits", [Limits(max_pages=1), Limits(max_pages_per_host=1)])
def test_limits_lowered_may_finish_the_crawl_and_raised_reopen_it(frontier, limits):
    """What is queued may not be leased then."""
    fetch(frontier, A)
    add(frontier, A + "1")
    frontier.configure(limits)
    assert finished(frontier)
    frontier.configure(Limits())
    assert leased_urls(frontier) == [A + "1"]


def test_a_delay_raised_or_lowered_counts_from_the_last_start(frontier):
    """Not from the moment of the change."""
    fetch(frontier, A)
    add(frontier, A + "1")
    frontier.configure(Limits(delay_s=10))
    assert lease(frontier, at=NOW + 9.5) == ()
    frontier.configure(Limits(delay_s=5))
    assert len(lease(frontier, at=NOW + 5)) == 1


def test_max_losses_lowered_counts_at_the_next_loss(frontier):
    """A page that has been lost already is not dead before it is lost again."""
    add(frontier, A)
    lease(frontier)
    frontier.reap("ann", now=NOW)
    frontier.configure(Limits(max_losses=1))
    assert state_of(frontier, A) == "queued"
    lease(frontier)
    frontier.reap("ann", now=NOW)
    assert state_of(frontier, A) == "dead"


# --- description, position, producers -------------------------------------------------------------


def test_a_crawl_can_be_described(place):
    """With anything that JSON can hold; a new description replaces the old one as a whole."""
    one, other = place.open(), place.open()
    assert one.describe() == {}
    assert one.describe({"seeds": [A], "scope": {"kind": "host"}}) == other.describe()
    assert other.describe() == {"seeds": [A], "scope": {"kind": "host"}}
    assert other.describe({"seeds": [B]}) == one.describe() == {"seeds": [B]}
    assert one.describe({}) == {}


def test_the_committed_length_of_a_store_is_kept(place):
    """For each store; None if nothing was ever recorded, and 0 is not None."""
    one, other = place.open(), place.open()
    assert one.position("rows.jsonl") is None
    one.commit([], positions=[("rows.jsonl", 0)], now=NOW)
    assert other.position("rows.jsonl") == 0
    add(one, A)
    (page,) = lease(one)
    assert one.commit([done(page)], positions=[("rows.jsonl", 2**40)], now=NOW) == frozenset()
    assert (other.position("rows.jsonl"), other.position("rows.csv")) == (2**40, None)


def test_the_positions_of_several_stores_are_recorded_in_one_step(frontier):
    """All of them or, if a lease is lost, none."""
    add(frontier, A)
    (page,) = lease(frontier)
    positions = [("rows.jsonl", 7), ("rows.csv", 9)]
    assert frontier.commit([done(page)], positions=positions, now=NOW) == frozenset()
    assert frontier.commit([done(page)], positions=[("rows.csv", 11)], now=NOW) == {page.token}
    assert [frontier.position(store) for store, _ in positions] == [7, 9]


def test_a_crawl_is_not_finished_while_a_producer_is_open(frontier):
    """Until it is closed."""
    frontier.open_producer("feed", 1000, now=NOW)
    frontier.open_producer("cli", 1000, now=NOW)
    assert frontier.stats(now=NOW).producers == 2
    frontier.close_producer("feed")
    assert not finished(frontier)
    frontier.close_producer("cli")
    frontier.close_producer("never opened")
    assert (finished(frontier), frontier.stats(now=NOW).producers) == (True, 0)


def test_a_producer_that_is_not_extended_is_closed_by_time(frontier):
    """After its seconds; each announcement starts them anew."""
    frontier.open_producer("feed", 10, now=NOW)
    frontier.open_producer("feed", 10, now=NOW + 5)
    assert not finished(frontier, at=NOW + 14.5)
    assert finished(frontier, at=NOW + 15)
    assert frontier.stats(now=NOW + 15).producers == 0


def test_a_producer_is_told_whether_there_is_room(frontier):
    """There is none while `max_queued` or more are queued, delayed ones included."""
    assert frontier.open_producer("feed", 10, now=NOW)
    frontier.configure(Limits(max_queued=2))
    add(frontier, A, delay_s=100)
    assert frontier.open_producer("feed", 10, now=NOW)
    add(frontier, B, C)
    assert not frontier.open_producer("feed", 50, now=NOW)
    assert len(lease(frontier)) == 2
    assert frontier.open_producer("cli", 10, now=NOW)
    assert frontier.stats(now=NOW + 40).producers == 1


# --- pause, purge, several crawls -----------------------------------------------------------------


def test_what_is_being_fetched_is_committed_while_the_crawl_is_paused(frontier):
    """With its links, which wait."""
    add(frontier, A)
    (page,) = lease(frontier)
    frontier.pause()
    assert frontier.extend([page.token], 60, now=NOW) == frozenset()
    commit(frontier, done(page, links=(Link(B),)))
    assert (state_of(frontier, A), state_of(frontier, B), lease(frontier)) == ("done", "queued", ())


def test_purge_forgets_the_whole_crawl(place):
    """URLs, hosts, items, limits, description, positions, producers; in other processes too."""
    frontier, other = place.open(), place.open()
    frontier.configure(Limits(max_pages=9, delay_s=5))
    frontier.describe({"seeds": [A]})
    frontier.open_producer("feed", 1000, now=NOW)
    fetch(frontier, A, items=({"n": 1},), pause_s=1000, links=(Link(C),))
    become(frontier, B, "leased")
    frontier.commit([], positions=[("rows.jsonl", 10)], now=NOW)
    frontier.pause()
    assert add(other, A, B) == 0
    frontier.purge()
    assert other.stats(now=NOW) == Stats(finished=True)
    assert (other.limits, other.describe(), other.position("rows.jsonl")) == (Limits(), {}, None)
    assert (other.why(A), other.hosts(), other.workers(now=NOW), list(other.items())) == (None, [], [], [])
    assert add(other, A) == 1
    assert add(frontier, B) == 1
    assert leased_urls(frontier, at=NOW) != []


def test_a_lease_from_before_a_purge_is_lost(frontier):
    """Even though the same URL is leased again: no token comes twice."""
    add(frontier, A)
    (old,) = lease(frontier)
    frontier.purge()
    add(frontier, A)
    (new,) = lease(frontier)
    assert new.token > old.token
    assert frontier.commit([done(old)], now=NOW) == {old.token}


def test_crawls_in_one_place_know_nothing_of_each_other(place):
    """The same URL is another page in another crawl; no verb of one changes the other."""
    one, other = place.open("one"), place.open("other")
    for frontier in (one, other):
        frontier.describe({"seeds": [A]})
        fetch(frontier, A, items=({"n": 1},))
        fetch(frontier, B, "dead", reason="HTTP 404")
        become(frontier, C, "leased")
        frontier.commit([], positions=[("rows.jsonl", 10)], now=NOW)
    before = other.stats(now=NOW), other.why(A), other.why(C), other.hosts(), other.describe(), other.limits
    one.configure(Limits(max_pages=1, delay_s=100))
    one.describe({})
    one.reap("ann", now=NOW)
    one.pause_host("a.test", 100, now=NOW)
    one.pause()
    one.redrive(now=NOW)
    one.forget(A)
    one.open_producer("feed", 100, now=NOW)
    one.commit([], positions=[("rows.jsonl", 99)], now=NOW)
    one.purge()
    assert before == (
        other.stats(now=NOW),
        other.why(A),
        other.why(C),
        other.hosts(),
        other.describe(),
        other.limits,
    )
    assert (other.position("rows.jsonl"), list(other.items())) == (
        10,
        [{"n": 1}] if other.keeps_items else [],
    )


def test_tokens_grow_and_never_come_twice(place):
    """Whatever happens in between."""
    tokens = []
    for _ in range(3):
        frontier = place.open()
        add(frontier, A, B)
        tokens += [page.token for page in lease(frontier)]
        frontier.release(tokens, now=NOW)
        tokens += [page.token for page in lease(frontier, 1)]
        frontier.reap("ann", now=NOW)
        assert frontier.forget(A)
        assert frontier.forget(B)
        frontier.close()
    assert tokens == sorted(set(tokens))


def test_a_crawl_that_is_not_there_is_not_made_by_looking(place):
    """With create=False it must exist."""
    with pytest.raises(ConfigError):
        place.open("nowhere", create=False)
    place.open("somewhere")
    with pytest.raises(ConfigError, match="somewhere"):
        place.open("nowhere", create=False)
    assert place.open("somewhere", create=False).stats(now=NOW).seen == 0


# --- for people -----------------------------------------------------------------------------------


def test_nothing_is_known_of_a_url_never_seen(frontier):
    """`why` is None, also for one that is only the beginning of a known one."""
    add(frontier, A + "page")
    assert frontier.why(A) is None


def test_dead_letters_are_listed_the_oldest_first(frontier):
    """With their reason, attempts and last error; not more than `limit`."""
    for second, url in enumerate([A, B, C]):
        fetch(frontier, url, "dead", at=NOW + second, reason="timeout", error="no answer in 30 s")
    fetch(frontier, "http://d.test/")
    assert [page.url for page in frontier.dead()] == [A, B, C]
    assert [page.url for page in frontier.dead(limit=2)] == [A, B]
    first = frontier.dead()[0]
    assert first == frontier.why(A)
    assert (first.reason, first.error, first.attempts) == ("timeout", "no answer in 30 s", 1)


def test_dead_letters_of_one_host_or_one_reason(frontier):
    """The reason must be this one exactly."""
    fetch(frontier, A + "1", "dead", reason="HTTP 404")
    fetch(frontier, A + "2", "dead", reason="HTTP 4045")
    fetch(frontier, B, "dead", reason="HTTP 404")
    assert {page.url for page in frontier.dead(host="a.test")} == {A + "1", A + "2"}
    assert {page.url for page in frontier.dead(reason="HTTP 404")} == {A + "1", B}
    assert [page.url for page in frontier.dead(host="a.test", reason="HTTP 404")] == [A + "1"]
    assert frontier.dead(host="test", reason="HTTP") == []


def test_redrive_queues_dead_letters_with_fresh_attempts(frontier):
    """Attempts and losses start again, so that the page has all its chances."""
    frontier.configure(Limits(max_losses=2))
    add(frontier, A)
    lease(frontier)
    frontier.reap("ann", now=NOW)
    (page,) = lease(frontier)
    commit(frontier, Outcome(page, "dead", reason="timeout", status=503))
    assert frontier.redrive(now=NOW) == 1
    record, stats = frontier.why(A), frontier.stats(now=NOW)
    assert (record.state, record.attempts, record.losses, record.finished_at) == ("queued", 0, 0, None)
    assert (stats.dead, stats.queued, stats.retrying) == (0, 1, 0)
    assert lease(frontier)[0].attempt == 1
    frontier.reap("ann", now=NOW)
    assert state_of(frontier, A) == "queued"


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ({}, [A + "1", A + "2", B]),
        ({"url": A + "1"}, [A + "1"]),
        ({"host": "a.test"}, [A + "1", A + "2"]),
        ({"reason": "HTTP 404"}, [A + "1", B]),
        ({"host": "a.test", "reason": "HTTP 404"}, [A + "1"]),
        ({"url": C}, []),
        ({"url": "http://d.test/"}, []),
    ],
)
def test_redrive_by_url_host_or_reason(frontier, which, expected):
    """All that is given must fit; without arguments: all dead letters, and nothing else."""
    fetch(frontier, A + "1", "dead", reason="HTTP 404")
    fetch(frontier, A + "2", "dead", reason="timeout")
    fetch(frontier, B, "dead", reason="HTTP 404")
    fetch(frontier, C, "skipped", reason="HTTP 404")
    assert frontier.redrive(**which, now=NOW) == len(expected)
    assert sorted(leased_urls(frontier)) == expected


# --- what a report is to know ---------------------------------------------------------------------

SURVEY = Survey(fingerprint(A), A, 200, 0.5, 1000, links=(-(2**63), 2**63 - 1))


@pytest.mark.parametrize("state", ["done", "dead", "skipped", "queued"])
def test_the_survey_of_a_page_is_kept(frontier, state):
    """Whatever the state, to the last bit."""
    fetch(frontier, B)
    fetch(frontier, A, state, survey=SURVEY)
    assert list(frontier.surveys()) == [SURVEY]


def test_the_last_survey_of_a_page_counts(frontier):
    """A later one replaces it; an outcome without one leaves it."""
    fetch(frontier, A, "dead", survey=SURVEY)
    for survey in (None, replace(SURVEY, status=404, links=())):
        frontier.redrive(now=NOW)
        (page,) = lease(frontier)
        commit(frontier, Outcome(page, "dead", survey=survey))
        assert list(frontier.surveys()) == [survey or SURVEY]


def test_a_survey_goes_with_its_page(frontier):
    """When the page is forgotten, or the crawl."""
    fetch(frontier, A, survey=SURVEY)
    frontier.forget(A)
    assert list(frontier.surveys()) == []
    fetch(frontier, A, survey=SURVEY)
    frontier.purge()
    assert list(frontier.surveys()) == []


def test_nothing_of_a_refused_commit_is_kept(frontier):
    """The survey of a lease that was lost neither."""
    add(frontier, A)
    (page,) = lease(frontier)
    frontier.release([page.token])
    assert frontier.commit([done(page, survey=SURVEY)], now=NOW) == {page.token}
    assert list(frontier.surveys()) == []


# --- pages that are visited again -----------------------------------------------------------------

VISIT = Visit(1.0, 2.0, 1.0, etag='"a"', digest=-(2**63), rows=2)


@pytest.mark.parametrize("state", ["done", "dead", "skipped"])
def test_revisit_queues_ended_pages_again_if_a_visit_was_recorded(frontier, state):
    """With fresh attempts and found now; others stay as they are, in every counter."""
    frontier.configure(Limits(max_pages=10, max_pages_per_host=10))
    fetch(frontier, A, state, visit=VISIT, reason="x", error="y", status=503)
    fetch(frontier, B, state)
    assert frontier.revisit(0, now=NOW + 90) == 1
    record, stats = frontier.why(A), frontier.stats(now=NOW + 90)
    assert (record.state, record.attempts, record.losses, record.reason, record.visit) == (
        *("queued", 0, 0, "", VISIT),
    )
    assert record.added_at == NOW + 90
    assert stats.oldest_s < 60
    assert (getattr(stats, state), stats.queued, stats.retrying, stats.seen) == (1, 1, 0, 2)
    assert {host.host: host.done for host in frontier.hosts()} == {
        "a.test": 0,
        "b.test": 1 if state == "done" else 0,
    }
    (page,) = lease(frontier, at=NOW + 90)
    assert (page.link.url, page.link.priority, page.attempt, page.visit) == (A, 9, 1, VISIT)


def test_revisit_takes_what_ended_long_enough_ago(frontier):
    """To the very moment."""
    fetch(frontier, A, visit=VISIT)
    assert frontier.revisit(10, now=NOW + 9.5) == 0
    assert frontier.revisit(10, now=NOW + 10) == 1
    assert frontier.revisit(10, now=NOW + 100) == 0


def test_revisit_goes_in_batches_until_nothing_is_left(frontier):
    """The oldest come first."""
    frontier.configure(Limits(per_host=2000))
    fetch(frontier, B)
    add(frontier, *(f"{A}{n}" for n in range(1200)))
    fetch(frontier, A, at=NOW - 50, visit=VISIT)
    commit(frontier, *(done(page, visit=VISIT) for page in lease(frontier, 1200)))
    counts = []
    while not counts or counts[-1]:
        counts.append(frontier.revisit(0, now=NOW))
        assert len(counts) > 1 or frontier.why(A).state == "queued"
    assert sum(counts) == 1201
    assert frontier.stats(now=NOW).queued == 1201


def test_a_visit_stays_with_its_page(frontier):
    """Through leases, losses, failures and redrives, until another is recorded."""
    fetch(frontier, A, visit=VISIT)
    frontier.revisit(0, now=NOW)
    lease(frontier)
    frontier.reap("ann", now=NOW)
    (page,) = lease(frontier)
    assert (page.visit, page.losses) == (VISIT, 1)
    commit(frontier, Outcome(page, "queued", reason="timeout", retry_s=5))
    assert frontier.why(A).visit == VISIT
    (page,) = lease(frontier, at=NOW + 6)
    commit(frontier, Outcome(page, "dead", reason="timeout"), at=NOW + 6)
    assert frontier.dead()[0].visit == VISIT
    frontier.redrive(now=NOW + 6)
    (page,) = lease(frontier, at=NOW + 6)
    assert page.visit == VISIT
    other = Visit(1.0, 5.0, 4.0)
    commit(frontier, done(page, visit=other), at=NOW + 6)
    assert frontier.why(A).visit == other


def test_a_link_with_all_that_belongs_to_it_is_visited_again(frontier):
    """Its depth, priority, key and data are what they were."""
    link = Link(A, priority=4, depth=2, key="k", via=(B,), cookie=True, meta={"n": 1})
    frontier.add([link], now=NOW)
    (page,) = lease(frontier)
    commit(frontier, done(page, visit=VISIT))
    frontier.revisit(0, now=NOW)
    assert lease(frontier)[0].link == link


def test_a_page_that_is_redriven_or_forgotten_is_not_revisited_as_well(frontier):
    """It is queued once, or not known."""
    fetch(frontier, A, "dead", visit=VISIT)
    fetch(frontier, B, visit=VISIT)
    frontier.redrive(now=NOW)
    frontier.forget(B)
    assert frontier.revisit(0, now=NOW) == 0
    assert (frontier.stats(now=NOW).seen, frontier.why(B)) == (1, None)
    assert add(frontier, B) == 1


def test_the_number_of_items_is_that_of_the_last_visits(frontier):
    """Rows that were replaced are counted no more; those that stay still are."""
    items = tuple({"n": n} for n in range(3))
    fetch(frontier, A, items=items[:2], visit=VISIT)

    def visit(**fields):
        frontier.revisit(0, now=NOW)
        (page,) = lease(frontier)
        commit(frontier, Outcome(page, **fields))
        return frontier.stats(now=NOW).items

    assert visit(state="done", unchanged=True, visit=VISIT) == 2
    assert visit(state="dead") == 2
    assert visit(state="done", items=items, visit=replace(VISIT, rows=3)) == 3
    assert visit(state="dead", visit=replace(VISIT, rows=0)) == 0


def test_items_that_are_kept_say_when_they_were_seen(keeping):
    """And are replaced, or stay, as the outcome says."""
    fetch(keeping, A, items=({"n": 1}, {"n": 2}), visit=VISIT)
    assert [item["n"] for item in keeping.items()] == [1, 2]
    keeping.revisit(0, now=NOW)
    (page,) = lease(keeping)
    seen = Visit(1.0, 9.0, 1.0, rows=2)
    commit(keeping, done(page, unchanged=True, visit=seen))
    assert list(keeping.items()) == [{"n": 1, **seen.fields()}, {"n": 2, **seen.fields()}]
    keeping.revisit(0, now=NOW)
    (page,) = lease(keeping)
    commit(keeping, done(page, items=({"n": 3},), visit=seen))
    assert [item["n"] for item in keeping.items()] == [3]


def test_skipped_pages_are_listed_the_oldest_first(frontier):
    """With their reason; not more than `limit`."""
    for second, url in enumerate([A, B, C]):
        fetch(frontier, url, "skipped", at=NOW + second, reason="robots.txt")
    assert [page.url for page in frontier.skipped()] == [A, B, C]
    assert [page.reason for page in frontier.skipped(limit=2)] == ["robots.txt"] * 2
    assert frontier.dead() == []


@pytest.mark.parametrize("state", ["queued", "done", "dead", "skipped"])
def test_a_url_that_is_forgotten_may_be_found_again(place, state):
    """By any process, as if it had never been seen: any state but leased --forget--> unknown."""
    frontier, other = place.open(), place.open()
    become(frontier, A, state)
    assert add(other, A) == 0
    assert frontier.forget(A)
    assert frontier.why(A) is None
    assert frontier.stats(now=NOW).seen == 0
    assert add(other, A) == 1
    assert add(frontier, A) == 0
    assert [(page.link.url, page.attempt) for page in lease(frontier)] == [(A, 1)]


def test_the_process_that_forgets_a_url_may_find_it_again(frontier):
    """Nobody remembers it, not even the one that had added it."""
    add(frontier, A)
    frontier.forget(A)
    assert add(frontier, A) == 1


def test_a_host_goes_on_without_the_url_forgotten(frontier):
    """With its next link, or, if that was the last one, with none."""
    add(frontier, A + "best", priority=9)
    add(frontier, A + "next")
    add(frontier, B, priority=5)
    add(frontier, C, priority=9)
    assert frontier.forget(A + "best")
    assert frontier.forget(C)
    assert frontier.stats(now=NOW).ready_hosts == 2
    assert leased_urls(frontier) == [B, A + "next"]


def test_what_is_unknown_or_leased_cannot_be_forgotten(frontier):
    """The answer is False, and nothing changes."""
    become(frontier, A, "leased")
    assert not frontier.forget(A)
    assert not frontier.forget(B)
    assert not frontier.forget(A, "another key")
    assert state_of(frontier, A) == "leased"


def test_the_items_of_a_forgotten_url_are_gone(keeping, frontier):
    """So that they are not doubled when it is fetched again."""
    fetch(frontier, A, items=({"n": 1}, {"n": 2}))
    fetch(frontier, B, items=({"n": 3},))
    frontier.forget(A)
    assert list(frontier.items()) == [{"n": 3}]
    assert frontier.stats(now=NOW).items == 1


def test_a_page_forgotten_makes_room_under_the_limits(frontier):
    """It is not done any more; its host's clock goes on."""
    frontier.configure(Limits(max_pages=1, max_pages_per_host=1, delay_s=5))
    fetch(frontier, A)
    add(frontier, A + "1")
    assert frontier.stats(now=NOW).finished
    frontier.forget(A)
    assert not frontier.stats(now=NOW).finished
    assert lease(frontier, at=NOW + 4.5) == ()
    assert leased_urls(frontier, at=NOW + 5) == [A + "1"]


def test_the_priority_of_a_queued_url_can_be_changed(frontier):
    """Up and down, delayed or not; the counters follow."""
    add(frontier, A, priority=5)
    add(frontier, B, priority=5, delay_s=10)
    add(frontier, C, priority=4)
    assert frontier.set_priority(A, 3)
    assert frontier.set_priority(B, 9)
    assert frontier.stats(now=NOW).by_priority == (0, 0, 0, 1, 1, 0, 0, 0, 0, 1)
    pages = lease(frontier, at=NOW + 10)
    assert [(page.link.url, page.link.priority) for page in pages] == [(B, 9), (C, 4), (A, 3)]


@pytest.mark.parametrize("state", ["leased", "done", "dead", "skipped"])
def test_only_a_queued_url_can_change_its_priority(frontier, state):
    """The answer is False for all others, and nothing changes."""
    become(frontier, A, state)
    assert not frontier.set_priority(A, 1)
    assert not frontier.set_priority(B, 1)
    if state != "done" or frontier.remembers_done:
        assert frontier.why(A).priority == 9


def test_hosts_are_listed_the_slowest_first(frontier):
    """By the average of their latencies; not more than `limit`."""
    for url, elapsed_s in [(A, 0.2), (B, 3.0), (C, 1.0)]:
        fetch(frontier, url, elapsed_s=elapsed_s)
    assert [each.host for each in frontier.hosts()] == ["b.test", "c.test", "a.test"]
    assert [each.host for each in frontier.hosts(limit=1)] == ["b.test"]
    assert frontier.hosts()[0].latency_s == 3.0


def test_the_latency_of_a_host_is_a_moving_average(frontier):
    """Between the old value and the new one."""
    fetch(frontier, A, elapsed_s=1.0)
    fetch(frontier, A + "1", elapsed_s=2.0)
    (host,) = frontier.hosts()
    assert 1.0 < host.latency_s < 2.0


def test_hosts_tell_what_they_have_and_wait_for(frontier):
    """Queued, leased, done, the delay, when it may be fetched from again, and its pause."""
    fetch(frontier, A, crawl_delay_s=5)
    add(frontier, A + "1", A + "2", at=NOW)
    frontier.pause_host("a.test", 3, now=NOW)
    (host,) = frontier.hosts()
    assert (host.host, host.queued, host.leased, host.done) == ("a.test", 2, 0, 1)
    assert (host.delay_s, host.due_at, host.paused_until) == (5, NOW + 5, NOW + 3)
    lease(frontier, at=NOW + 5)
    (host,) = frontier.hosts()
    assert (host.queued, host.leased, host.done) == (1, 1, 1)


@pytest.mark.parametrize("by", get_args(HostOrder))
def test_hosts_are_listed_in_any_order(frontier, by):
    """From the top, from the bottom, and only those with something in their name."""
    fetch(frontier, B, "dead", sign="failing")
    fetch(frontier, B + "1", elapsed_s=3.0)
    for number in range(2):
        fetch(frontier, f"{C}{number}", "queued" if number else "done", retry_s=60, elapsed_s=1.0)
    add(frontier, A, A + "1", A + "2", B + "2", priority=1)
    lease(frontier, 1)
    frontier.set_delay("a.test", 2)
    frontier.pause_host("c.test", 1e9)
    frontier.pause_host("b.test", 2e9)
    values = {each.host: getattr(each, by) or 0 for each in frontier.hosts()}
    assert len(values) == 3
    assert len(set(values.values())) > 1
    top, bottom = frontier.hosts(by=by), frontier.hosts(by=by, ascending=True)
    assert [values[each.host] for each in top] == sorted(values.values(), reverse=True)
    assert [values[each.host] for each in bottom] == sorted(values.values())
    assert frontier.hosts(by=by, limit=1) == top[:1]
    assert [each.host for each in frontier.hosts(by=by, having="a.t")] == ["a.test"]
    assert frontier.hosts(by=by, having="*") == frontier.hosts(by=by, having="[a]") == []


def test_hosts_are_found_by_name(frontier):
    """In the order of the names; unknown ones are left out."""
    add(frontier, A, B)
    listed = {each.host: each for each in frontier.hosts()}
    assert frontier.hosts_named(["b.test", "x.test", "a.test"]) == [listed["b.test"], listed["a.test"]]
    assert frontier.hosts_named([]) == []


def test_a_delay_that_somebody_sets_stands_for_that_of_the_limits(frontier):
    """Shorter or longer, for this host alone, until it is taken back; robots.txt can still raise it."""
    frontier.configure(Limits(delay_s=10))
    fetch(frontier, A)
    fetch(frontier, B)
    add(frontier, A + "1", A + "2", B + "1")
    frontier.set_delay("a.test", 2)
    assert [page.host for page in lease(frontier, at=NOW + 2)] == ["a.test"]
    frontier.set_delay("a.test", 0)
    assert frontier.hosts_named(["a.test"])[0].delay_s == 0
    frontier.set_delay("a.test", None)
    (host,) = frontier.hosts_named(["a.test"])
    assert (host.delay_s, host.set_delay_s) == (10, None)
    frontier.set_delay("b.test", 3)
    fetch(frontier, B + "2", crawl_delay_s=5, at=NOW + 100)
    (host,) = frontier.hosts_named(["b.test"])
    assert (host.delay_s, host.set_delay_s) == (5, 3)


def test_the_error_rate_of_a_host_follows_its_attempts(frontier):
    """It rises with those that fail, and falls to nothing with those that do not."""
    rates = []
    for number, state in enumerate(["dead"] * 3 + ["done", "skipped"] + ["done"] * 60):
        fetch(frontier, f"{A}{number}", state)
        rates.append(frontier.hosts_named(["a.test"])[0].error_rate)
    assert 0 < rates[0] < rates[1] < rates[2] > rates[3] > rates[4] > rates[-2] >= rates[-1] == 0


def test_dead_and_skipped_pages_are_counted_by_reason_and_host(frontier):
    """The most first, not more than `limit`; redriven and forgotten ones count no more."""
    for url in (A, A + "1", B):
        fetch(frontier, url, "dead", reason="HTTP 404")
    fetch(frontier, C, "dead", reason="timeout")
    fetch(frontier, C + "1", "skipped", reason="robots.txt")
    assert list(frontier.tally("dead").items()) == [("HTTP 404", 3), ("timeout", 1)]
    assert list(frontier.tally("dead", reason="HTTP 404").items()) == [("a.test", 2), ("b.test", 1)]
    assert frontier.tally("dead", limit=1) == {"HTTP 404": 3}
    assert frontier.tally("dead", reason="HTTP 404", limit=1) == {"a.test": 2}
    assert frontier.tally("skipped") == {"robots.txt": 1}
    assert frontier.tally("skipped", reason="HTTP 404") == {}
    frontier.redrive(url=B)
    frontier.forget(A)
    frontier.forget(C + "1")
    assert frontier.tally("dead") == {"HTTP 404": 1, "timeout": 1}
    assert frontier.tally("dead", reason="HTTP 404") == {"a.test": 1}
    assert frontier.tally("skipped") == {}


def test_the_last_items_come_the_latest_first(keeping):
    """Not more than `limit`."""
    for number in range(3):
        fetch(keeping, f"{A}{number}", items=({"n": number},))
    assert keeping.last_items(2) == [{"n": 2}, {"n": 1}]


def test_a_worker_that_is_heard_of_is_alive_for_that_long(frontier):
    """`beat` says what it does; without another one it is forgotten, though not the leases that it holds."""
    beat = Beat(name="ann", concurrency=8, since=NOW - 5, pages_per_s=2.5)
    frontier.beat(beat, 30, now=NOW)
    (worker,) = frontier.workers(now=NOW + 30)
    assert (worker.name, worker.alive, worker.until, worker.leases) == ("ann", True, NOW + 30, 0)
    assert (worker.concurrency, worker.since, worker.pages_per_s) == (8, NOW - 5, 2.5)
    frontier.beat(replace(beat, trouble="the store is full"), 30, now=NOW)
    assert [worker.trouble for worker in frontier.workers(now=NOW)] == ["the store is full"]
    assert frontier.workers(now=NOW + 31) == []
    add(frontier, A)
    lease(frontier, worker="ann")
    (worker,) = frontier.workers(now=NOW + 31)
    assert (worker.name, worker.alive, worker.leases) == ("ann", False, 1)


def test_the_age_of_the_oldest_queued_link_is_known_to_the_minute(frontier):
    """It is that of the link found first among those that are queued now."""
    minute = NOW // 60 * 60
    add(frontier, A, at=minute)
    add(frontier, B, at=minute + 60)
    assert frontier.stats(now=minute + 90).oldest_s == 90
    (page,) = lease(frontier, 1, at=minute + 90)
    assert frontier.stats(now=minute + 90).oldest_s == 30
    commit(frontier, done(page), at=minute + 90)
    lease(frontier, 1, at=minute + 90)
    assert frontier.stats(now=minute + 90).oldest_s == 0


def test_workers_are_listed_with_their_leases(frontier):
    """Those that hold any."""
    add(frontier, A, B, C)
    lease(frontier, 2, worker="ann")
    (page,) = lease(frontier, 1, worker="bob")
    assert leases(frontier, NOW) == {"ann": 2, "bob": 1}
    commit(frontier, done(page))
    assert leases(frontier, NOW) == {"ann": 2}
