"""Hosts in trouble and hosts given up, and what a host is, on every back end."""

from __future__ import annotations

import pytest
from test_frontier_contract import NOW, A, B, add, commit, done, fetch, lease, leased_urls, state_of

from shoal.model import Limits, Link, Outcome


def in_trouble(frontier, sign, times, *, url=A):
    """Let a host have troubles one after the other, as its pauses allow; returns when the last one was."""
    at = NOW
    for number in range(times):
        at = NOW if number == 0 else max(at + 60, host_of(frontier, url).paused_until or 0)
        add(frontier, f"{url}{sign}{number}", priority=9, at=at)
        (page,) = lease(frontier, 1, at=at)
        commit(frontier, Outcome(page, "dead", sign=sign, reason="trouble"), at=at)
    return at


def host_of(frontier, url):
    """What is known of its host."""
    return next(each for each in frontier.hosts(limit=100) if each.host == url.split("/")[2])


def pages_of(url, count):
    """URLs on its host."""
    return [f"{url}{number}" for number in range(count)]


# --- caution --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["busy", "failing"])
def test_a_host_in_trouble_gets_fewer_fetches_at_once_for_all(place, sign):
    """Half as many after the first trouble, whoever asks, also after a restart; other hosts as before."""
    one = place.open()
    for url in (A, B):
        fetch(one, url, sign="fine")
        add(one, *pages_of(url, 20))
    page, _ = sorted(lease(one, 2), key=lambda page: page.host)
    commit(one, Outcome(page, "dead", sign=sign))
    one.close()
    another = place.open()
    given = [each.host for second in range(40) for each in lease(another, 1, at=NOW + 10 + second)]
    assert (given.count("a.test"), given.count("b.test")) == (4, 8 - 1)
    assert host_of(another, A).at_once == 4


def test_a_busy_host_is_asked_less_often(frontier):
    """There is a delay between the starts of its fetches, though several may run at once."""
    fetch(frontier, A, sign="fine")
    add(frontier, *pages_of(A, 9))
    (page,) = lease(frontier, 1)
    commit(frontier, Outcome(page, "dead", sign="busy", pause_s=1))
    assert host_of(frontier, A).delay_s == 0.125
    assert [len(lease(frontier, at=NOW + 1 + 0.125 * times)) for times in (0, 0.5, 1, 1.5, 2)] == [
        1,
        0,
        1,
        0,
        1,
    ]


def test_speed_comes_back_step_by_step(frontier):
    """Each ten fine answers allow one more at once, until all is as before."""
    fetch(frontier, A, sign="fine")
    fetch(frontier, A + "x", sign="failing")
    found = []
    for number in range(40):
        fetch(frontier, f"{A}{number}", sign="fine", at=NOW + 1)
        found.append(host_of(frontier, A).at_once)
    assert found == [4] * 9 + [5] * 10 + [6] * 10 + [7] * 10 + [8]


def test_a_slow_host_gets_fewer_fetches_at_once(frontier):
    """In proportion to its latency, which failures do not move."""
    fetch(frontier, A, sign="fine", elapsed_s=4.0)
    fetch(frontier, A + "x", sign="failing", elapsed_s=60.0)
    (host,) = frontier.hosts()
    assert (host.latency_s, host.at_once) == (4.0, 2)
    add(frontier, *pages_of(A, 9))
    assert len(lease(frontier)) == 2


def test_a_host_gives_one_link_until_it_has_answered(frontier):
    """A failure tells no crawl delay."""
    add(frontier, *pages_of(A, 9))
    (page,) = lease(frontier)
    commit(frontier, Outcome(page, "dead", sign="failing"))
    (page,) = lease(frontier)
    commit(frontier, done(page, sign="fine"))
    assert len(lease(frontier)) > 1


def test_a_refusal_without_a_time_pauses_the_host_longer_each_time(frontier):
    """It is the host's count and not the page's: each page is refused once."""
    for number, pause_s in enumerate([5, 10, 20, 40]):
        at = NOW + 100 * number
        fetch(frontier, f"{A}{number}", "dead", sign="busy", at=at)
        add(frontier, f"{A}x{number}", at=at)
        assert lease(frontier, at=at + pause_s - 0.5) == ()
        (page,) = lease(frontier, at=at + pause_s)
        frontier.forget(page.link.url)
        commit(frontier, done(page), at=at + pause_s)


def test_a_host_that_is_down_is_paused_and_probed_with_one_page(frontier):
    """After three failures in a row; an answer ends it."""
    fetch(frontier, A, sign="fine")
    add(frontier, *pages_of(A, 30))
    in_trouble(frontier, "failing", 3)
    at = host_of(frontier, A).paused_until
    assert host_of(frontier, A).failures == 3
    (page,) = lease(frontier, at=at)
    assert lease(frontier, at=at + 1) == ()
    commit(frontier, done(page, sign="fine"), at=at + 1)
    assert host_of(frontier, A).failures == 0
    assert len(lease(frontier, at=at + 1)) == 1


def test_a_host_that_is_down_is_probed_with_a_page_that_was_never_tried(frontier):
    """It may be up, and only the pages that failed are bad; these come first otherwise."""
    frontier.configure(Limits(host_give_up=0))
    fetch(frontier, A, sign="fine")
    add(frontier, *pages_of(A, 3))
    at, tried = NOW, []
    for _ in range(6):
        (page,) = lease(frontier, 1, at=at)
        tried.append(page.link.url)
        commit(frontier, Outcome(page, "queued", sign="failing", reason="trouble", retry_s=1), at=at)
        at = max(at + 60, host_of(frontier, A).paused_until or 0)
    first, *others = dict.fromkeys(tried)
    assert tried[:3] == [first] * 3
    assert tried[3:5] == others
    assert len(others) == 2
    (page,) = lease(frontier, 1, at=at)
    commit(frontier, done(page, sign="fine"), at=at)
    assert host_of(frontier, A).failures == 0


def test_limits_turn_caution_off(frontier):
    """`adapt=False`, from the next lease on."""
    fetch(frontier, A, sign="fine")
    fetch(frontier, A + "x", "dead", sign="busy", pause_s=1)
    add(frontier, *pages_of(A, 9))
    assert len(lease(frontier, 1, at=NOW + 1)) == 1
    frontier.configure(Limits(adapt=False))
    assert len(lease(frontier, at=NOW + 1)) == 7


# --- given up -------------------------------------------------------------------------------------


def give_up(frontier, url=A, **limits):
    """Let a host fail until it is given up; returns the time."""
    frontier.configure(Limits(host_give_up=4, **limits))
    return in_trouble(frontier, "failing", 4, url=url)


def test_the_links_of_a_host_that_is_given_up_become_dead_letters(frontier):
    """All that are queued, and those that are found later; other hosts go on, and the crawl ends."""
    add(frontier, *pages_of(A, 3), B)
    give_up(frontier)
    assert host_of(frontier, A).given_up
    (page,) = lease(frontier)
    assert page.link.url == B
    letters = frontier.dead(reason="host down")
    assert [(each.url, each.error) for each in letters] == [
        (url, "given up after 4 failures in a row") for url in pages_of(A, 3)
    ]
    assert frontier.stats(now=NOW).dead == 4 + 3
    add(frontier, A + "late")
    commit(frontier, done(page))
    assert frontier.lease(1, 60, worker="ann", now=NOW).finished
    assert frontier.why(A + "late").reason == "host down"


def test_a_retry_of_a_host_given_up_dies_when_its_time_comes(frontier):
    """It is delayed until then, and the worker is told when that is."""
    add(frontier, A)
    (page,) = lease(frontier)
    commit(frontier, Outcome(page, "queued", retry_s=800, sign="failing", reason="timeout"))
    frontier.configure(Limits(host_give_up=4))
    at = in_trouble(frontier, "failing", 3)
    grant = frontier.lease(1, 60, worker="ann", now=at)
    assert not grant.finished
    at += grant.again_s
    assert frontier.lease(1, 60, worker="ann", now=at).finished
    assert state_of(frontier, A) == "dead"


def test_a_great_many_links_are_given_up_in_parts(frontier):
    """No lease takes long, and the worker asks again at once; what others have is leased meanwhile."""
    add(frontier, *pages_of(A, 2_500), B)
    at = give_up(frontier)
    grants = [frontier.lease(1, 60, worker="ann", now=at)]
    assert [page.link.url for page in grants[0].leases] == [B]
    while frontier.stats(now=at).queued:
        assert grants[-1].again_s == 0
        grants.append(frontier.lease(1, 60, worker="ann", now=at))
    assert len(grants) > 2
    assert frontier.stats(now=at).dead == 4 + 2_500


def test_the_overflow_of_a_host_given_up_is_given_up_too(frontier):
    """So it does not keep the crawl open."""
    fetch(frontier, B, links=tuple(map(Link, pages_of(A, 500))))
    frontier.configure(Limits(max_queued=100))
    add(frontier, A + "parent", priority=9)
    (page,) = lease(frontier, 1)
    commit(frontier, Outcome(page, "dead", sign="failing", links=tuple(map(Link, pages_of(A + "x", 500)))))
    assert frontier.stats(now=NOW).overflow == 500
    at = give_up(frontier, max_queued=100)
    while not frontier.lease(1, 60, worker="ann", now=at).finished:
        pass
    assert len(frontier.dead(reason="host down")) == 1_000


def test_after_its_pause_one_link_may_try_again(frontier):
    """If it fails, the others are given up at once; if it is answered, they may go on."""
    give_up(frontier)
    until = host_of(frontier, A).paused_until
    add(frontier, *pages_of(A, 3), at=until)
    (page,) = lease(frontier, at=until)
    commit(frontier, Outcome(page, "dead", sign="failing"), at=until)
    assert lease(frontier, at=until) == ()
    assert len(frontier.dead(reason="host down")) == 2
    until = host_of(frontier, A).paused_until
    add(frontier, *[url + "x" for url in pages_of(A, 3)], at=until)
    (page,) = lease(frontier, at=until)
    commit(frontier, done(page, sign="fine"), at=until)
    assert len(lease(frontier, at=until + 1)) == 1


def test_redrive_gives_a_host_another_chance(frontier):
    """As if nothing had been."""
    add(frontier, *pages_of(A, 3))
    at = give_up(frontier)
    assert lease(frontier, at=at) == ()
    assert frontier.redrive(reason="host down", now=at) == 3
    assert (host_of(frontier, A).failures, host_of(frontier, A).given_up) == (0, False)
    assert len(lease(frontier, at=at)) == 1


def test_ending_the_pause_of_a_host_given_up_lets_one_link_try(frontier):
    """Whoever knows that it is up again need not wait."""
    at = give_up(frontier)
    frontier.pause_host("a.test", 0, now=at)
    add(frontier, *pages_of(A, 3))
    assert len(lease(frontier, at=at + 1)) == 1
    assert frontier.dead(reason="host down") == []


def test_a_host_is_never_given_up_if_the_limits_say_so(frontier):
    """`host_give_up=0`: it is paused for five minutes at most, and probed."""
    frontier.configure(Limits(host_give_up=0))
    at = in_trouble(frontier, "failing", 12)
    add(frontier, *pages_of(A, 3), at=at)
    assert lease(frontier, at=at + 299) == ()
    at += 300
    assert len(lease(frontier, at=at)) == 1


def test_pages_beyond_the_limit_of_their_host_are_not_given_up(frontier):
    """They would not be fetched anyway, and stay queued for a higher limit."""
    add(frontier, A + "more")
    fetch(frontier, A, sign="fine")
    at = give_up(frontier, max_pages_per_host=2)
    frontier.configure(Limits(host_give_up=4, max_pages_per_host=1))
    assert frontier.lease(1, 60, worker="ann", now=at).finished
    assert state_of(frontier, A + "more") == "queued"


def test_a_crawl_moves_with_the_troubles_of_its_hosts(place, backends):
    """What is given up in one place is given up in the other."""
    old = place.open("old")
    at = give_up(old)
    fetch(old, B, "dead", sign="busy", at=at)
    for target in backends.values():
        new = target.open("new")
        new.load(old.dump())
        assert {each.host: each for each in new.hosts()} == {each.host: each for each in old.hosts()}


# --- what a host is -------------------------------------------------------------------------------

DOMAIN = ("http://www.books.co.uk/", "http://books.co.uk:8080/x", "https://a.b.books.co.uk/")


def test_a_host_may_be_a_registrable_domain(frontier):
    """Then limits and delays are about all that lies below it, whatever port."""
    frontier.configure(Limits(politeness="domain", delay_s=5))
    add(frontier, *DOMAIN, A, "http://127.0.0.1:81/", "http://127.0.0.1:82/")
    assert frontier.stats(now=NOW).hosts == 3
    assert len(lease(frontier)) == 3
    (host,) = [each for each in frontier.hosts() if each.queued == 2]
    assert host.host == "books.co.uk"


def test_links_of_a_domain_are_themselves(frontier):
    """They are leased, found, changed, buried and forgotten by their own URLs."""
    frontier.configure(Limits(politeness="domain"))
    add(frontier, *DOMAIN)
    assert frontier.set_priority(DOMAIN[2], 5)
    (page,) = lease(frontier)
    assert (page.link.url, page.host) == (DOMAIN[2], "books.co.uk")
    commit(frontier, Outcome(page, "dead", reason="timeout"))
    assert [each.url for each in frontier.dead(host="books.co.uk")] == [DOMAIN[2]]
    assert {frontier.why(url).host for url in DOMAIN} == {"books.co.uk"}
    assert add(frontier, *DOMAIN) == 0
    assert frontier.forget(DOMAIN[1])
    assert frontier.redrive(host="books.co.uk", now=NOW) == 1
    assert set(leased_urls(frontier)) == {DOMAIN[0], DOMAIN[2]}


def test_of_a_domain_the_longest_crawl_delay_counts(frontier):
    """Its hosts may have different ones."""
    frontier.configure(Limits(politeness="domain"))
    fetch(frontier, DOMAIN[0], crawl_delay_s=5)
    fetch(frontier, DOMAIN[1], crawl_delay_s=1, at=NOW + 5)
    assert host_of_domain(frontier).delay_s == 5


def host_of_domain(frontier):
    """The only host there is."""
    (host,) = frontier.hosts()
    return host


def test_another_process_knows_what_a_host_is(place):
    """It is said once, for the whole crawl, and moves with it."""
    place.open().configure(Limits(politeness="domain"))
    another = place.open()
    add(another, *DOMAIN)
    assert [each.host for each in another.hosts()] == ["books.co.uk"]
    fetch(another, DOMAIN[0] + "done")
    assert another.why(DOMAIN[0] + "done").host == "books.co.uk"
