"""Workers that share a frontier on Redis: they are killed, Redis is killed, goes back in time, is in trouble.

Each crawl must come to its end by itself, with every page once and every counter right. FAULT_ROUNDS says how
often each is done (a few times unless told otherwise).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from random import Random

import pytest
from tests.faults.crawling import Running
from tests.faults.faulty_redis import STEPS
from tests.faults.redis_crawling import FAULTS, KINDS, Crew, Fault
from tests.redis_servers import Sentinel, drop_connections
from tests.services import RedisServer
from tests.site import Site

from shoal.store import lock

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]

PAGES = 2_000
WORKERS = 3
ROUNDS = int(os.environ.get("FAULT_ROUNDS", "1"))
every_round = pytest.mark.parametrize("round_", range(ROUNDS))
NUMBERS = count(1)
NewCrew = Callable[..., Crew]


@pytest.fixture(scope="module")
def large_site() -> Iterator[Site]:
    """A site that is large enough for many faults."""
    with Site(PAGES, hosts=8, latency_s=0.01) as served:
        yield served


@pytest.fixture(scope="module")
def small_site() -> Iterator[Site]:
    """A site that takes some seconds because it is slow."""
    with Site(300, hosts=4, latency_s=0.1) as served:
        yield served


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis that keeps what is written, within a second."""
    with RedisServer("--enable-debug-command", "yes", appendonly=True) as server:
        yield server


@pytest.fixture
def new_crew(tmp_path: Path, server: RedisServer, request: pytest.FixtureRequest) -> Iterator[NewCrew]:
    """Makes crews; in the end none of their workers is left running."""
    with ExitStack() as ended:

        def new(site: Site, kind: str = "jsonl", *options: object, frontier: str = "") -> Crew:
            postgres = request.getfixturevalue("postgres") if kind == "postgresql" else None
            place = {"folder": tmp_path / f"crew_{next(NUMBERS)}", "frontier": frontier or server.url}
            s3 = request.getfixturevalue("s3") if kind == "s3" else None
            crew = Crew(site, server, kind, *options, **place, postgres=postgres, s3=s3)
            ended.callback(crew.end)
            return crew

        yield new


def start_all(crew: Crew, program: str = "", *options: object) -> None:
    """All workers, until they are at work: one that cannot begin gives up, as any command does."""
    runs = [crew.start(program, *options) for _ in range(WORKERS)]
    assert crew.until(lambda: all(map(crew.has_begun, runs)))
    assert crew.running() == runs, crew.said()


def goals(rng: Random, faults: int, pages: int = PAGES) -> list[int]:
    """At how many pages done there is to be a fault."""
    return sorted(rng.sample(range(1, pages * 9 // 10), faults))


# --- workers are killed ---------------------------------------------------------------------------


@every_round
@pytest.mark.parametrize("kind", KINDS)
def test_killed_workers_lose_and_double_nothing(new_crew: NewCrew, large_site: Site, rng, kind, round_):
    """Each one killed at some moment of its life is replaced by another one, twelve times."""
    crew = new_crew(large_site, kind)
    start_all(crew)
    for goal in goals(rng, 12):
        crew.until_done(goal)
        time.sleep(rng.uniform(0, 0.02))
        if running := crew.running():
            rng.choice(running).kill(whole=True)
            crew.start()
    crew.finish()


PASSES = {
    "store opened": 2,
    "start recorded": 2,
    "before the limits": 1,
    "before the description": 2,
    "before the seeds": 1,
    "seeds sent": 1,
    "before the leases are extended": 1,
    "before the end": 1,
    "after the end": 1,
}
"""How often a run passes a step at least; the others 5 times."""


@pytest.fixture(scope="module")
def tiny_site() -> Iterator[Site]:
    """A site that one worker crawls in no time."""
    with Site(60, hosts=2) as served:
        yield served


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_this_step_loses_and_doubles_nothing(new_crew: NewCrew, tiny_site: Site, rng, step):
    """Killed there at the first or a later time; another one does the rest."""
    crew = new_crew(tiny_site, "jsonl", "--concurrency", 4)
    nth = rng.randint(1, PASSES.get(step, 5))
    print(f"killed {step}, time {nth}")
    assert crew.start("faulty_redis.py", step, nth).wait() == -signal.SIGKILL
    crew.start()
    crew.finish()


# --- Redis is killed, or goes back in time --------------------------------------------------------


@every_round
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_redis_loses_and_doubles_nothing(
    new_crew: NewCrew, server, large_site: Site, rng, kind, round_
):
    """Killed five times, it restarts from its append-only file without the last second, and all goes on."""
    crew = new_crew(large_site, kind)
    start_all(crew)
    for goal in goals(rng, 5):
        crew.until_done(goal)
        server.kill()
        time.sleep(rng.choice((0.0, 0.5)))
        server.start()
    assert len(crew.running()) == WORKERS
    crew.finish()


@every_round
@pytest.mark.parametrize("kind", KINDS)
def test_a_redis_that_goes_back_loses_and_doubles_nothing(
    new_crew: NewCrew, server, large_site: Site, rng, kind, round_
):
    """It restarts from an older copy of its files, while the workers live on."""
    crew = new_crew(large_site, kind)
    start_all(crew)
    crew.until_done(rng.randrange(PAGES // 3))
    older = shutil.copytree(server.folder / "appendonlydir", server.folder / "older")
    crew.until_done(PAGES * 2 // 3)
    server.kill()
    shutil.rmtree(server.folder / "appendonlydir")
    shutil.copytree(older, server.folder / "appendonlydir")
    server.start()
    assert crew.done() < PAGES * 2 // 3
    crew.finish()


@every_round
def test_kills_of_all_kinds_at_once_lose_and_double_nothing(
    new_crew: NewCrew, server, large_site: Site, rng, round_
):
    """Now a worker, now Redis, now all connections, until the crawl is finished."""
    crew = new_crew(large_site, "postgresql")
    start_all(crew)
    for goal in goals(rng, 10):
        crew.until_done(goal)
        match rng.choice(("worker", "redis", "connections")):
            case "worker":
                if running := crew.running():
                    rng.choice(running).kill(whole=True)
                    other = crew.start()
                    crew.until(lambda other=other: crew.has_begun(other))
            case "redis":
                server.kill()
                server.start()
            case "connections":
                drop_connections(crew.client)
    crew.finish()


def test_a_redis_that_loads_its_data_is_waited_for(new_crew: NewCrew, server, large_site: Site):
    """It answers LOADING for some seconds."""
    crew = new_crew(large_site)
    start_all(crew)
    crew.until_done(PAGES // 3)
    crew.client.bgrewriteaof()
    crew.until(lambda: crew.client.info("persistence")["aof_rewrite_in_progress"] == 0)
    server.kill()
    server._options += ["--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024"]
    server.start()
    crew.finish()
    assert "loading the dataset" in crew.said()


def test_a_replica_takes_over(new_crew: NewCrew, large_site: Site, server):
    """Workers ask Sentinel for the master: when that dies, they go on with what its replica has."""
    with (
        RedisServer("--replicaof", "127.0.0.1", str(server.port)) as replica,
        Sentinel(server.port) as sentinel,
    ):
        sentinel.wait_for_replica()
        crew = new_crew(large_site, frontier=sentinel.url)
        start_all(crew)
        crew.until_done(PAGES // 3)
        server.kill()
        crew.server = replica
        crew.client = replica.client()
        crew.finish()


# --- Redis is in trouble --------------------------------------------------------------------------


def trouble(crew: Crew, fault: Fault) -> None:
    """Let it happen, and end."""
    fault.begin(crew.client)
    time.sleep(fault.seconds)
    fault.end(crew.client)


@pytest.mark.parametrize("name", FAULTS)
def test_trouble_is_waited_out(new_crew: NewCrew, small_site: Site, name):
    """Workers keep what they hold, and go on by themselves."""
    crew = new_crew(small_site, "jsonl", "--concurrency", 8)
    start_all(crew)
    for goal in (60, 120, 180):
        crew.until_done(goal)
        trouble(crew, FAULTS[name])
    crew.finish()


def test_connections_dropped_all_the_time(new_crew: NewCrew, large_site: Site):
    """Ten times a second, from the beginning to the end."""
    crew = new_crew(large_site)
    start_all(crew)
    ended = threading.Event()

    def drop() -> None:
        with crew.server.client() as client:
            while not ended.wait(0.1):
                drop_connections(client)

    dropping = threading.Thread(target=drop)
    dropping.start()
    try:
        crew.until_done(PAGES)
    finally:
        ended.set()
        dropping.join()
    crew.finish()
    assert crew.counter("dead") == 0


HASTY = ("hasty_redis.py", "shoal.frontier.redis_server:TIMEOUT_S=0.5")


@every_round
@pytest.mark.parametrize("kind", KINDS)
def test_a_redis_that_answers_too_late(new_crew: NewCrew, server, small_site: Site, rng, kind, round_):
    """What it was asked before its clients gave up waiting is done, later, and harms nobody."""
    crew = new_crew(small_site, kind, "--concurrency", 8)
    start_all(crew, *HASTY)
    for goal in goals(rng, 4, small_site.pages):
        crew.until_done(goal)
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(rng.uniform(0.6, 1.5))
        os.kill(server.pid, signal.SIGCONT)
    crew.finish()


# --- zombies --------------------------------------------------------------------------------------

SHORT = ("hasty_redis.py", "shoal.worker:LEASE_S=1.5,shoal.worker:TEND_S=0.5")


@pytest.mark.parametrize("kind", KINDS)
def test_a_zombie_leaves_no_trace(new_crew: NewCrew, small_site: Site, kind):
    """A worker that is stopped for longer than its leases last, and then goes on."""
    crew = new_crew(small_site, kind, "--concurrency", 8)
    zombie = crew.start(*SHORT)
    crew.until_done(20)
    crew.start(*SHORT)
    crew.until_done(60)
    stop_outside_a_write(crew, zombie)
    assert crew.until(lambda: crew.counter("losses") > 0)
    crew.until_done(200)
    zombie.signal(signal.SIGCONT)
    crew.finish()
    assert "leases lost" in zombie.said()


def stop_outside_a_write(crew: Crew, run: Running) -> None:
    """Stop it while it holds leases, and does not lock the file of rows: everybody else would wait."""
    while True:
        run.signal(signal.SIGSTOP)
        time.sleep(0.02)  # until Redis has done what it was told last
        if crew.leases(run) and (crew.kind != "jsonl" or not _locked(crew.folder / "rows.jsonl")):
            return
        run.signal(signal.SIGCONT)
        time.sleep(0.01)


def _locked(path: Path) -> bool:
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, lock.ALONE)
        except BlockingIOError:
            return True
        return False


# --- several processes of one command -------------------------------------------------------------


def test_a_worker_killed_while_redis_is_away_is_replaced(new_crew: NewCrew, server, small_site: Site):
    """By one that waits until Redis is back."""
    crew = new_crew(small_site, "jsonl", "--processes", 2)
    run = crew.start()
    crew.until_done(50)
    victim = next(pid for pid in run.members() if pid != run.pid)
    server.kill()
    os.kill(victim, signal.SIGKILL)
    time.sleep(1.5)
    server.start()
    crew.finish()
