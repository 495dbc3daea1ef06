"""`celery worker --metrics-port`: each process that runs slices tells what it has done."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.celery.conftest import FOLLOW
from tests.e2e.test_metrics_served import pages, scrape
from tests.services import free_ports
from tests.site import Site
from tests.unit.test_metrics import check, samples
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("options", "processes"),
    [(("-c", "2"), 2), (("-P", "threads", "-c", "2"), 1), (("-P", "solo"), 1)],
    ids=["prefork", "threads", "solo"],
)
def test_all_processes_together_agree_with_the_frontier(new_project, options, processes):
    """Pages by outcome, bytes and rows; a pool of threads is one process."""
    project = new_project()
    first = free_ports(processes)
    urls = [f"http://127.0.0.1:{first + number}/metrics" for number in range(processes)]
    with Site(pages=100, latency_s=0.02, extras=["/missing"]) as site:
        project.module.scrape.delay(site.url)
        project.worker(*options, "--metrics-port", str(first)).ready()
        project.finish()
        stats = project.stats()
        until(lambda: pages(map(scrape, urls)).total() == stats.fetches, 10, "the last count")
        texts = [scrape(url) for url in urls]
        assert stats.fetches == site.fetches().total()
    assert +pages(texts) == +Counter(done=stats.done, dead=stats.dead, skipped=stats.skipped)
    told = Counter()
    for text in texts:
        check(text)
        told.update(samples(text))
    assert told['shoal_fetched_bytes_total{crawl="scrape"}'] == stats.size_bytes
    assert told['shoal_items_total{crawl="scrape"}'] == stats.items
    assert samples(texts[0])['shoal_urls{crawl="scrape",state="done"}'] == stats.done


def test_children_that_are_replaced_or_spawned_have_the_ports_again(new_project):
    """A new process for each slice; the port of its number is free again."""
    project = new_project(f"app.conf.worker_pool_start_method = 'spawn'\n{FOLLOW}")
    first = free_ports(1)
    with Site(pages=60, latency_s=0.02) as site:
        project.module.scrape.delay(site.url)
        project.worker("-c", "1", "--max-tasks-per-child=1", "--metrics-port", str(first)).ready()
        project.finish()
        url = f"http://127.0.0.1:{first}/metrics"
        assert 'shoal_urls{crawl="scrape",state="done"} 60' in until(lambda: answer(url), 10, "an answer")


def answer(url):
    """What is served there; nothing while nobody serves it."""
    try:
        return scrape(url)
    except OSError:
        return ""


def test_a_port_that_is_taken_does_not_stop_the_work(new_project):
    """It is told, and the pages are done."""
    project = new_project()
    with Site(pages=20) as site:
        port = str(site.port)
        project.module.scrape.delay(site.url)
        worker = project.worker("-c", "1", "--metrics-port", port).ready()
        project.finish()
    assert f"metrics cannot be served at 127.0.0.1:{port}" in worker.said()
    assert project.stats().done == 20
