"""Workers as users start them: `celery -A scraper worker`."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter

import pytest
from tests.celery.conftest import FOLLOW
from tests.services import RedisServer
from tests.site import Site
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def big():
    """A site that takes a few seconds."""
    with Site(pages=400, latency_s=0.02) as site:
        yield site


@pytest.fixture
def site(big):
    """With an empty log."""
    big.log.clear()
    return big


def rows(project):
    """What is in the store."""
    return [json.loads(line) for line in project.rows.read_text().splitlines()]


def assert_all_once(project, site):
    """Every page was fetched once and has one row."""
    assert site.fetches() == Counter(site.urls)
    assert_a_row_each(project, site)


def assert_a_row_each(project, site):
    """However often each page was fetched."""
    assert Counter(row["id"] for row in rows(project)) == Counter(row["id"] for row in site.rows().values())
    stats = project.stats()
    assert (stats.done, stats.queued, stats.leased, stats.dead) == (site.pages, 0, 0, 0)


@pytest.mark.parametrize(
    "options",
    [
        ("-c", "2"),
        ("-P", "threads", "-c", "2"),
        ("-P", "solo"),
        ("-c", "2", "--max-tasks-per-child=1"),
        ("--autoscale=3,1",),
    ],
    ids=" ".join,
)
def test_a_pool_crawls_everything_once(new_project, site, options):
    """Prefork, threads and solo; no more tickets than there is room for, and none is left in the end."""
    project = new_project()
    assert project.module.scrape.delay(site.url).new
    worker = project.worker(*options).ready()
    project.finish(most=3)
    assert worker.stop() == 0
    assert_all_once(project, site)


def test_both_brokers_carry_tickets(new_project, broker, site):
    """It is the same on Redis and on RabbitMQ."""
    project = new_project(broker=broker)
    project.module.scrape.delay(site.url)
    worker = project.worker("-c", "2").ready()
    project.finish(most=2)
    assert worker.stop() == 0
    assert_all_once(project, site)


def test_a_frontier_in_a_file_will_do_on_one_machine(new_project, site, tmp_path):
    """SQLite, with several processes."""
    project = new_project(frontier=f"sqlite:{tmp_path / 'state.shoal'}")
    project.module.scrape.delay(site.url)
    project.worker("-c", "2").ready()
    project.finish(most=2)
    assert_all_once(project, site)


def test_children_may_be_spawned(new_project, site):
    """`worker_pool_start_method="spawn"`."""
    project = new_project(f"app.conf.worker_pool_start_method = 'spawn'\n{FOLLOW}")
    project.module.scrape.delay(site.url)
    worker = project.worker("-c", "2").ready()
    project.finish()
    assert worker.stop() == 0
    assert_all_once(project, site)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGQUIT])
@pytest.mark.parametrize("soft", [0, 3])
def test_a_worker_that_is_stopped_leaves_nothing_behind(new_project, site, how, soft, tmp_path):
    """Warm, cold and soft shutdown: what has begun is finished or given back, and the rest goes on later."""
    longer = "PLACE['pace'] = msgspec.structs.replace(PACE, slice_s=30, tick_s=30)  # nothing else happens"
    project = new_project(
        f"import msgspec\napp.conf.worker_soft_shutdown_timeout = {soft}\n{longer}\n{FOLLOW}"
    )
    project.module.scrape.delay(site.url)
    worker = project.worker("-c", "2", environment={"TMPDIR": str(tmp_path)}).ready()
    until(lambda: project.stats().done > 50, 30, "some progress")
    worker.stop(how, 30)
    stats = project.stats()
    assert stats.leased == 0
    assert [slot.state for slot in project.slots()] in ([], ["queued"])
    assert project.office.desk().crew().nodes == ()
    assert list(tmp_path.glob("shoal-drain-*")) == []
    assert 50 < stats.done < site.pages
    project.worker("-c", "2").ready()
    project.finish()
    assert Counter(row["id"] for row in rows(project)) == Counter(row["id"] for row in site.rows().values())
    if how == signal.SIGTERM:
        assert_all_once(project, site)


def test_many_urls_without_a_worker_are_one_message(new_project, site):
    """Messages do not pile up."""
    project = new_project()
    for number in range(500):
        project.module.scrape.delay(f"{site.url}p/{number}")
    with project.module.app.connection_for_write() as connection:
        assert connection.default_channel.client.llen(project.office.queue_name) == 1
    assert project.stats().queued == 500


def test_a_worker_of_another_queue_takes_no_tickets(new_project, site):
    """It counts for nothing, so it does not call for tickets that it would not take."""
    project = new_project()
    project.worker("-c", "2", "-Q", "other").ready()
    project.module.scrape.delay(site.url)
    until(lambda: "ready" in project.worker("-c", "1").ready().said(), 60)
    until(lambda: project.office.desk().crew().nodes, 10)
    assert [capacity for _, capacity in project.office.desk().crew().nodes] == [1]
    project.finish()


def test_lost_tickets_are_made_up_for(new_project, site):
    """`celery purge` costs some seconds and no URL."""
    project = new_project()
    project.module.scrape.delay(site.url)
    project.module.app.control.purge()
    project.worker("-c", "2").ready()
    project.finish()
    assert_all_once(project, site)


def test_a_redis_that_restarts_ends_no_worker(new_project, site):
    """Slices go on meanwhile, and the same worker takes the tickets that come later."""
    with RedisServer(appendonly=True) as broker:
        project = new_project(url=broker.url)
        project.module.scrape.delay(site.url)
        worker = project.worker("-c", "2").ready()
        until(lambda: project.stats().done > 20, 30, "some progress")
        broker.kill()
        until(lambda: "Trying again in" in worker.said(), 30, "that the worker misses it")
        broker.start()
        project.finish()
        assert_all_once(project, site)
        project.module.scrape.apply_async(args=[site.url], key="again")
        project.finish()
        assert project.stats().done == site.pages + 1
        assert worker.stop() == 0


def test_time_limits_shorten_slices(new_project, site):
    """Limits shorter than a slice kill nothing: a slice ends before them."""
    limits = "app.conf.task_soft_time_limit = 4\napp.conf.task_time_limit = 8\n"
    project = new_project(f"{limits}PLACE['pace'] = shoal.celery.Pace()\n{FOLLOW}")
    project.module.scrape.delay(site.url)
    worker = project.worker("-c", "1").ready()
    project.finish()
    assert "imeLimitExceeded" not in worker.said()
    assert "a page of the crawl 'scrape' may take 1.8 s and not 35.0 s, its handler included" in worker.said()
    assert_all_once(project, site)


def test_time_limits_of_the_command_line_shorten_slices_too(new_project, site):
    """As those of the app do."""
    project = new_project(f"PLACE['pace'] = shoal.celery.Pace()\n{FOLLOW}")
    project.module.scrape.delay(site.url)
    worker = project.worker("-c", "1", "--soft-time-limit=4", "--time-limit=8").ready()
    project.finish()
    assert "imeLimitExceeded" not in worker.said()
    assert "a page of the crawl 'scrape' may take 1.8 s and not 35.0 s, its handler included" in worker.said()
    assert_all_once(project, site)


def test_a_store_that_cannot_be_used_pauses_the_crawl(new_project, site):
    """With one line from each process that says why; when that is mended, it goes on and nothing is lost."""
    project = new_project(FOLLOW.replace("per_host=32", "delay_s=0.01"))
    project.module.scrape.delay(site.url)
    worker = project.worker("-c", "2").ready()
    frontier = project.office.desk().frontier
    until(lambda: frontier.stats().done > 20, 30, "some pages")
    frontier.pause()
    until(lambda: not frontier.stats().leased, 30, "what had begun")
    kept = project.rows.read_bytes()
    project.rows.unlink()
    frontier.resume()
    until(lambda: frontier.stats().paused and not frontier.stats().leased, 30, "the pause")
    time.sleep(3.0)
    said = worker.said()
    assert "rows are missing from rows.jsonl that this crawl had written" in said
    assert 1 <= said.count("the crawl 'scrape' is paused: `shoal resume` lets it go on") <= 2
    assert "Traceback" not in said
    project.rows.write_bytes(kept)
    frontier.resume()
    project.finish()
    assert_a_row_each(project, site)


def test_inspect_shows_slices_and_what_they_have_done(new_project, site):
    """`celery inspect active` has the progress, `celery inspect shoal` slots, nodes and counters."""
    project = new_project(FOLLOW.replace("per_host=32", "delay_s=0.1"))
    project.module.scrape.delay(site.url)
    project.worker("-c", "1").ready()
    inspect = project.module.app.control.inspect(timeout=5)

    def progress():
        (slices,) = (inspect.active() or {"": []}).values()
        return next((each["progress"] for each in slices if each["progress"].get("pages")), None)

    assert until(progress, 20)["state"] == "running"
    (answer,) = inspect._request("shoal").values()
    assert answer["scrape"]["done"] > 0
    assert list(answer["scrape"]["nodes"].values()) == [1]


def test_the_gevent_pool_is_refused(new_project):
    """At once, in one line, with the pools that work."""
    worker = new_project(FOLLOW).worker("-c", "2", "-P", "gevent")
    assert worker.process.wait(20) == 2
    assert "shoal does not work in the gevent pool: use --pool=prefork, threads or solo" in worker.said()
    assert "Traceback" not in worker.said()


def test_a_frontier_that_cannot_be_used_ends_the_worker(new_project, tmp_path):
    """With one line that says why."""
    place = f"(app, store=None, frontier='sqlite:{tmp_path}/no/where', name="
    project = new_project(FOLLOW.replace("(app, **PLACE, name=", place))
    worker = project.worker("-c", "1")
    assert worker.process.wait(20) == 2
    assert f"cannot open the state file {tmp_path}/no/where" in worker.said()
    assert "Traceback" not in worker.said()


def test_pages_are_visited_again_for_ever(new_project, site):
    """With `revisit_s` a worker queues what is due, again and again."""
    project = new_project(FOLLOW.replace("per_host=32", "per_host=32, max_pages=5, revisit_s=1.0"))
    project.module.scrape.delay(site.url)
    worker = project.worker("-c", "2").ready()
    until(lambda: site.fetches()[site.url] >= 3, 60, "the third visit")
    assert worker.stop() == 0
    assert project.stats().done + project.stats().queued >= 5
