"""`celery worker --otel`: each process that runs slices sends the spans of its pages."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.celery.conftest import FOLLOW
from tests.integration.test_spans import collector, page_urls, received, sending_to
from tests.services import free_ports
from tests.site import Site
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    "options", [("-c", "2"), ("-P", "threads", "-c", "2"), ("-P", "solo")], ids=["prefork", "threads", "solo"]
)
def test_all_processes_send_the_spans_of_their_pages(new_project, options):
    """Each page once; a worker that ends sends what it still has."""
    project = new_project()
    with Site(pages=100, latency_s=0.02, extras=["/missing"]) as site, collector() as at:
        detectors = {"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "process"}
        project.module.scrape.delay(site.url)
        worker = project.worker(*options, "--otel", environment=sending_to(at) | detectors).ready()
        project.finish()
        workers = worker.children() if "-P" not in options else [worker.pid]
        assert worker.stop() == 0
        sent = received(at)
        assert page_urls(sent) == site.fetches() - Counter([f"{site.url}robots.txt"])
    assert {pid(each) for each in sent} <= {*workers}
    assert all('string_value: "shoal"' in str(each.resource) for each in sent)


def pid(spans):
    """Which process has sent them."""
    return next(each.value.int_value for each in spans.resource.attributes if each.key == "process.pid")


def test_children_that_are_replaced_or_spawned_send_theirs(new_project):
    """A new process for each slice."""
    project = new_project(f"app.conf.worker_pool_start_method = 'spawn'\n{FOLLOW}")
    with Site(pages=60, latency_s=0.02) as site, collector() as at:
        project.module.scrape.delay(site.url)
        project.worker("-c", "1", "--max-tasks-per-child=1", "--otel", environment=sending_to(at)).ready()
        project.finish()
        until(lambda: page_urls(received(at)).total() >= 60, 20, "the last span")
        assert page_urls(received(at)) == site.fetches() - Counter([f"{site.url}robots.txt"])


def test_without_the_option_nothing_is_sent(new_project):
    """Whatever the environment says."""
    project = new_project()
    with Site(pages=20) as site, collector() as at:
        project.module.scrape.delay(site.url)
        worker = project.worker("-c", "1", environment=sending_to(at)).ready()
        project.finish()
        assert worker.stop() == 0
        assert received(at) == []


def test_a_collector_that_is_down_holds_up_nothing(new_project):
    """Neither the pages nor, for longer than the timeout, the end of the worker."""
    project = new_project()
    nobody = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_ports(1)}",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
    }
    with Site(pages=20) as site:
        project.module.scrape.delay(site.url)
        worker = project.worker("-c", "1", "--otel", environment=nobody).ready()
        project.finish()
        assert worker.stop() == 0
    assert project.stats().done == 20


def test_without_the_extra_it_is_named(new_project):
    """In one line, before there are any children."""
    project = new_project()
    (project.folder / "opentelemetry.py").write_text("raise ImportError('it is not there')")
    worker = project.worker("-c", "1", "--otel")
    assert worker.process.wait(60) == 2
    assert "spans need: pip install 'shoal[otel]'" in worker.said()
    assert "Traceback" not in worker.said()
