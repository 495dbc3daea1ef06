"""Real processes on one frontier: many, killed, stopped; files that are damaged and disks that are full."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import resource
import signal
import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from invariants import assert_gaps, assert_items_once, assert_nothing_lost

from shoal.errors import FrontierError, FrontierUnavailable
from shoal.frontier import open_frontier
from shoal.model import Limits, Link, Outcome

PROCESSES = multiprocessing.get_context("forkserver")  # new ones in milliseconds, each as fresh as after exec
PROCESSES.set_forkserver_preload(["pytest", "shoal.frontier.sqlite"])

LONG_S = 60.0
"""Never waited for in full: what ends before it has been woken."""


@pytest.fixture
def url(place):
    """Where any process can open a frontier."""
    return place.url


@pytest.fixture
def file_url(tmp_path):
    """The same, in a file of a back end that has any."""
    return f"sqlite:{tmp_path / 'state.shoal'}"


@contextmanager
def running(target, *args):
    """A process running target(pipe, *args), and the other end of its pipe; killed in the end."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=target, args=(theirs, *args))
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def drain(frontier, worker, lease_s=LONG_S):
    """Do what a worker does until the crawl is finished: yields each lease committed and when it began."""
    while not (grant := frontier.lease(8, lease_s, worker=worker)).finished:
        started = {lease.token: time.time() for lease in grant.leases}
        outcomes = [outcome(lease, time.time() - started[lease.token]) for lease in grant.leases]
        while lost := frontier.commit(outcomes):
            outcomes = [each for each in outcomes if each.lease.token not in lost]
        yield from ((each.lease, started[each.lease.token]) for each in outcomes)
        if not outcomes:
            frontier.wait(LONG_S if grant.again_s is None else grant.again_s)


# --- workers that are killed ----------------------------------------------------------------------

HOSTS = 6


def page_url(number):
    """One of the pages of a small web."""
    return f"http://h{number % HOSTS}.test/{number}"


def outcome(lease, age_s):
    """Page n links to 3n+1, 3n+2 and 3n+3, as far as there are any, and to the first pages, as all do."""
    number, pages = int(lease.link.url.rpartition("/")[2]), lease.link.meta["pages"]
    found = {*range(HOSTS), 3 * number + 1, 3 * number + 2, 3 * number + 3} & {*range(pages)}
    links = tuple(Link(page_url(each), meta=lease.link.meta) for each in sorted(found))
    return Outcome(lease, "done", age_s=age_s, links=links, items=({"url": lease.link.url, "index": 0},))


def work_with_diary(url, name, diary):
    """A worker that writes down, after each commit, what it has fetched and when it began."""
    with open_frontier(url, crawl="books") as frontier, Path(diary).open("a") as lines:
        for lease, began in drain(frontier, name, lease_s=2.0):
            print(json.dumps([lease.link.url, lease.host, lease.token, began]), file=lines, flush=True)


class Crew:
    """Three workers in processes of their own; one that is killed is replaced by another one."""

    def __init__(self, url, directory):
        self.url, self.directory = url, directory
        self.workers = {}
        self.started = 0
        for _ in range(3):
            self.start()

    def start(self):
        self.started += 1
        name = f"worker-{self.started}"
        diary = self.directory / f"{name}.diary"
        self.workers[name] = PROCESSES.Process(target=work_with_diary, args=(self.url, name, diary))
        self.workers[name].start()

    def replace(self, name):
        self.workers[name].kill()
        self.workers.pop(name).join()
        self.start()

    def finish(self):
        """Wait for the end of the crawl; returns the lines of all diaries."""
        for process in self.workers.values():
            process.join()
            assert process.exitcode == 0
        diaries = [diary.read_text() for diary in self.directory.glob("*.diary")]
        return [json.loads(line) for diary in diaries for line in diary.splitlines()]


def crawl_with_kills(frontier, crew, kills):
    """Kill workers at random moments, some with leases; returns what the crew has fetched."""
    moments = random.Random(kills)
    for _ in range(kills):
        time.sleep(moments.uniform(0, 0.1))
        holding = [each.name for each in frontier.workers() if each.name in crew.workers]
        name = moments.choice(holding or sorted(crew.workers))
        crew.replace(name)
        if moments.random() < 0.7:  # otherwise its leases run out
            frontier.reap(name)
        at_once = 1 if frontier.limits.delay_s else frontier.limits.per_host
        assert all(host.leased <= at_once for host in frontier.hosts())
    return crew.finish()


@pytest.mark.parametrize("limits", [Limits(per_host=4), Limits(delay_s=0.004)], ids=["per host", "delay"])
@pytest.mark.parametrize(
    ("pages", "kills"),
    [(800, 8), pytest.param(5000, 80, marks=[pytest.mark.faults, pytest.mark.timeout(600)])],
)
def test_workers_killed_at_any_moment_lose_nothing_and_double_nothing(url, tmp_path, limits, pages, kills):
    """Every page is committed exactly once, with its items, and politeness holds across all workers."""
    urls = [page_url(number) for number in range(pages)]
    with open_frontier(url, crawl="books") as frontier:
        frontier.configure(limits)
        frontier.add([Link(page_url(0), meta={"pages": pages})])
        fetched = crawl_with_kills(frontier, Crew(url, tmp_path), kills)
        stats = frontier.stats()
        assert (stats.finished, stats.done, stats.fetches) == (True, pages, pages)
        assert_nothing_lost(frontier, [(each, "") for each in urls])
        if frontier.keeps_items:
            assert_items_once(frontier, [(each, 0) for each in urls])
    assert len({token for _, _, token, _ in fetched}) == len({each for each, *_ in fetched}) == len(fetched)
    assert_gaps([(host, started) for _, host, _, started in fetched], limits.delay_s - 0.0001)


def lease_and_hang(pipe, url, lease_s):
    """A worker that never comes back to its pages."""
    with open_frontier(url, crawl="books") as frontier:
        pipe.send(len(frontier.lease(10, lease_s, worker="hanging").leases))
        signal.pause()


def test_the_leases_of_a_killed_process_come_back_by_themselves(url):
    """When they have run out, another process, which only waits as long as it is told, does the pages."""
    with open_frontier(url, crawl="books") as frontier:
        frontier.add([Link(page_url(number), meta={"pages": 3}) for number in range(3)])
        with running(lease_and_hang, url, 1.0) as (process, pipe):
            assert pipe.recv() == 3
            process.kill()
            begun = time.monotonic()
            assert len(list(drain(frontier, "alive"))) == 3
        assert time.monotonic() - begun < LONG_S / 3
        assert frontier.stats().losses == 3
        if frontier.keeps_items:
            assert_items_once(frontier, [(page_url(number), 0) for number in range(3)])


def lease_stop_and_commit(pipe, url):
    """A worker that is stopped while it holds a page, and does not notice."""
    with open_frontier(url, crawl="books") as frontier:
        (lease,) = frontier.lease(1, 0.3, worker="zombie").leases
        pipe.send(lease.token)
        os.kill(os.getpid(), signal.SIGSTOP)
        pipe.send(frontier.commit([Outcome(lease, "done", items=({"url": "zombie", "index": 0},))]))


def test_a_process_that_was_stopped_too_long_cannot_commit(url):
    """Its page has been done by somebody else, and nothing of the late commit is applied."""
    with open_frontier(url, crawl="books") as frontier:
        frontier.add([Link(page_url(0), meta={"pages": 1})])
        with running(lease_stop_and_commit, url) as (process, pipe):
            token = pipe.recv()
            assert len(list(drain(frontier, "alive"))) == 1
            os.kill(process.pid, signal.SIGCONT)
            assert pipe.recv() == {token}
        if frontier.keeps_items:
            assert_items_once(frontier, [(page_url(0), 0)])


# --- several processes at once --------------------------------------------------------------------


def add_when_told(pipe, url, links):
    """A producer that waits for the start, and then tells how many links were new."""
    pipe.send("ready")
    pipe.recv()
    with open_frontier(url, crawl="books") as frontier:
        pipe.send(sum(frontier.add([link]) for link in links))


def test_processes_may_make_and_fill_a_file_at_the_same_time(url):
    """One of them makes the tables and the crawl; each link is new for exactly one of them."""
    links = [Link(page_url(number)) for number in range(50)]
    with (
        running(add_when_told, url, links) as (_, first),
        running(add_when_told, url, links[::-1]) as (_, second),
        running(add_when_told, url, links) as (_, third),
    ):
        pipes = (first, second, third)
        assert [pipe.recv() for pipe in pipes] == ["ready"] * 3
        for pipe in pipes:
            pipe.send("go")
        assert sum(pipe.recv() for pipe in pipes) == len(links)
    with open_frontier(url, crawl="books") as frontier:
        assert_nothing_lost(frontier, [(link.url, "") for link in links])


def add_each_when_told(pipe, url, count):
    """A producer that adds one link at each word, and tells when it had."""
    with open_frontier(url, crawl="books") as frontier:
        for number in range(count):
            pipe.recv()
            frontier.add([Link(page_url(number))])
            pipe.send(time.monotonic())


def test_an_idle_process_wakes_when_another_one_adds(url):
    """At once, compared with how long it was ready to wait."""
    with open_frontier(url, crawl="books") as frontier, running(add_each_when_told, url, 5) as (_, pipe):
        late_s = []
        for number in range(5):
            grant = frontier.lease(1, LONG_S, worker="idle")
            assert grant.leases == ()
            pipe.send("add")
            frontier.wait(LONG_S)
            woken = time.monotonic()
            (lease,) = frontier.lease(1, LONG_S, worker="idle").leases
            assert lease.link.url == page_url(number)
            late_s.append(woken - pipe.recv())
        assert sorted(late_s)[2] < LONG_S / 100


# --- files that are not usable --------------------------------------------------------------------


def some_crawl(path):
    """A closed state file with more in it than fits on a few of its pages."""
    with open_frontier(f"sqlite:{path}", crawl="books") as frontier:
        frontier.add([Link(page_url(number)) for number in range(1000)])


def refusal(path, use=lambda frontier: None):
    """The one line with which the file is refused."""
    with (
        pytest.raises(FrontierError) as refused,
        open_frontier(f"sqlite:{path}", crawl="books") as frontier,
    ):
        use(frontier)
    line = str(refused.value)
    assert "\n" not in line
    assert str(path) in line
    return line


def test_a_file_that_is_no_database_is_refused(tmp_path):
    """With one line that names it; it is left as it is."""
    path = tmp_path / "rows.csv"
    path.write_text("url,title\n" * 100)
    assert "not a state file" in refusal(path)
    assert path.read_text() == "url,title\n" * 100


def test_a_database_of_another_program_is_refused(tmp_path):
    """With one line that names it; it is left as it is, byte by byte."""
    path = tmp_path / "cookies.sqlite"
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE cookies (name)")
    foreign.close()
    before = path.read_bytes()
    assert "not a state file" in refusal(path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["cookies.sqlite"]


def test_a_file_of_a_newer_version_is_refused(tmp_path):
    """With one line that says so; it is left as it is."""
    path = tmp_path / "state.shoal"
    some_crawl(path)
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 999")
    newer.close()
    before = path.read_bytes()
    assert "newer" in refusal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["overwritten", "cut"])
def test_a_damaged_file_is_refused(tmp_path, damage):
    """With one line that says so and what can be saved, by the first verb that meets the damage."""
    path = tmp_path / "state.shoal"
    some_crawl(path)
    content = path.read_bytes()
    damaged = content[: len(content) // 3]
    if damage == "overwritten":
        damaged = content[:8192].ljust(len(content), b"\xa5")
    path.write_bytes(damaged)

    def use(frontier):
        frontier.lease(10, 60, worker="ann")
        frontier.add([Link(page_url(number)) for number in range(2000)])

    line = refusal(path, use)
    assert "damaged" in line
    assert "recover" in line


def test_what_cannot_be_opened_is_refused(tmp_path):
    """A directory, or a file in a directory that is not there."""
    refusal(tmp_path)
    refusal(tmp_path / "missing" / "state.shoal")
    assert list(tmp_path.iterdir()) == []


# --- a full disk ----------------------------------------------------------------------------------


def add_batch(frontier, batch):
    """How many of these 100 links were new."""
    return frontier.add([Link(page_url(100 * batch + number)) for number in range(100)])


def fill_up(frontier):
    """Add batches until one is refused; how many were accepted."""
    accepted = []

    def fill():
        while sum(accepted) < 1_000_000:
            accepted.append(add_batch(frontier, len(accepted)))

    with pytest.raises(FrontierUnavailable) as full:
        fill()
    assert "\n" not in str(full.value)
    return len(accepted)


def assert_holds(frontier, batches):
    """These batches, whole, and nothing else."""
    assert_nothing_lost(frontier, [(page_url(number), "") for number in range(100 * batches)])


def fill_a_small_disk(pipe, url):
    """Files may not grow beyond 1 MB: SQLite's writes fail like those to a broken or full disk."""
    with open_frontier(url, crawl="books") as frontier:
        (held,) = frontier.lease(1, LONG_S, worker="ann").leases
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        batches = fill_up(frontier)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        pipe.send((batches, add_batch(frontier, batches), frontier.commit([Outcome(held, "done")])))


def test_a_write_that_fails_loses_nothing(file_url):
    """The verb is refused as a whole; when there is room again the same frontier goes on."""
    with open_frontier(file_url, crawl="books") as frontier:
        frontier.add([Link(page_url(0))])
    with running(fill_a_small_disk, file_url) as (_, pipe):
        batches, again, lost = pipe.recv()
    assert (batches > 0, again, lost) == (True, 100, frozenset())
    with open_frontier(file_url, crawl="books") as frontier:
        assert_holds(frontier, batches + 1)


def test_a_full_disk_loses_nothing(file_url, monkeypatch):
    """As SQLite reports one: refused as a whole, and when there is room again it goes on."""
    opened = []
    connect = sqlite3.connect

    def connect_to_small_disk(*args, **options):
        opened.append(connect(*args, **options))
        opened[-1].execute("PRAGMA max_page_count = 200")
        return opened[-1]

    monkeypatch.setattr(sqlite3, "connect", connect_to_small_disk)
    with open_frontier(file_url, crawl="books") as frontier:
        batches = fill_up(frontier)
        assert batches > 0
        assert_holds(frontier, batches)
        opened[-1].execute("PRAGMA max_page_count = 20000")
        assert add_batch(frontier, batches) == 100
        assert_holds(frontier, batches + 1)
