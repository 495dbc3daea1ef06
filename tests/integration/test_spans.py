"""OpenTelemetry spans of a crawl, as its own exporter in memory gets them."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from tests.e2e.shell import COMMAND, PATIENCE_S
from tests.servers import ScriptedServer, reply
from tests.site import Site

from shoal import Crawl
from shoal.errors import ConfigError
from shoal.frontier import open_frontier
from shoal.otel import SpanMeter
from shoal.store import open_store
from shoal.worker import Worker, load_of

PARTS = {"robots", "fetch", "read", "store", "commit"}


@pytest.fixture
def site() -> Iterator[Site]:
    """With a page that is missing and one that is closed."""
    with Site(10, latency_s=0.02, extras=["/status/410", "/private/x", "/flaky/1/a"]) as site:
        yield site


def crawl(site: Site, folder: Path, meter: SpanMeter) -> None:
    """Crawl it with this meter."""
    made = Crawl("shop", seeds=[site.url], retry_delay_s=0.01, host_pause_s=0.05)

    @made.page()
    def page(page):
        yield {"url": page.url}
        yield from page.links()

    with open_frontier(f"sqlite:{folder}/state.shoal", crawl="shop", keep_items=False) as frontier:
        frontier.configure(made.limits())
        frontier.add(made.seeds())
        store = open_store(str(folder / "rows.jsonl"), crawl="shop")
        with store.open(committed=lambda _: None, fresh=True) as position:
            frontier.commit((), positions=[position])
        worker = Worker(made, frontier, [store], name="w", load=load_of(made, meter))
        asyncio.run(worker.run())
        store.close()


def spans(site: Site, folder: Path, **options: object) -> list[ReadableSpan]:
    """All that a crawl tells."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(**options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    crawl(site, folder, SpanMeter("shop", provider.get_tracer("test")))
    return list(exporter.get_finished_spans())


def test_each_attempt_is_a_span_with_its_parts(site: Site, tmp_path: Path) -> None:
    """From the visit to the commit, one after the other; what it says of the page is in attributes."""
    told = spans(site, tmp_path)
    pages = [span for span in told if span.name == "page"]
    assert Counter(span.attributes["url.full"] for span in pages) == site.fetches() + Counter(
        [f"{site.url}private/x"]
    )
    for page in pages:
        parts = {span.name: span for span in told if span.parent == page.context}
        assert parts.keys() <= PARTS
        assert {"store", "commit"} <= parts.keys()
        assert ("fetch" in parts) == (page.attributes["shoal.reason"] != "robots.txt")
        ordered = sorted(parts.values(), key=lambda span: span.start_time)
        assert page.start_time <= ordered[0].start_time
        assert page.end_time >= ordered[-1].end_time
        for before, after in pairwise(ordered):
            assert before.end_time <= after.start_time + 1_000_000  # counted in floats and rounded
    fetch = next(span for span in told if span.name == "fetch")
    assert fetch.end_time - fetch.start_time >= 20_000_000


def test_what_failed_is_marked(site: Site, tmp_path: Path) -> None:
    """Dead letters, and attempts that are tried again; with status, reason and attempt."""
    pages = [span for span in spans(site, tmp_path) if span.name == "page"]
    by_url = {(span.attributes["url.full"], span.attributes["shoal.attempt"]): span for span in pages}
    dead = by_url[f"{site.url}status/410", 1]
    again, done = by_url[f"{site.url}flaky/1/a", 1], by_url[f"{site.url}flaky/1/a", 2]
    assert [span.status.is_ok for span in (dead, again, done)] == [False, False, True]
    assert dead.attributes["http.response.status_code"] == 410
    assert (dead.attributes["shoal.outcome"], dead.attributes["shoal.reason"]) == ("dead", "HTTP 410")
    assert (done.attributes["shoal.crawl"], done.attributes["shoal.rows"]) == ("shop", 1)


def test_what_is_not_sampled_has_no_parts(site: Site, tmp_path: Path) -> None:
    """The sampler decides once for each page."""
    assert spans(site, tmp_path, sampler=ALWAYS_OFF) == []


@contextmanager
def collector() -> Iterator[ScriptedServer]:
    """Takes all spans that are sent to it by OTLP, over HTTP."""
    thanks = reply(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", keep=True)
    with ScriptedServer(lambda request: thanks) as server:
        yield server


def sending_to(server: ScriptedServer) -> dict[str, str]:
    """The environment of who sends spans there."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": server.url("").rstrip("/"),
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }


def received(server: ScriptedServer) -> list[ResourceSpans]:
    """What it has got so far."""
    return [
        each
        for request in [*server.requests]
        if request.target == "/v1/traces"
        for each in ExportTraceServiceRequest.FromString(gzip.decompress(request.body)).resource_spans
    ]


def page_urls(sent: list[ResourceSpans]) -> Counter[str]:
    """How many spans tell of each page."""
    spans = (span for each in sent for scope in each.scope_spans for span in scope.spans)
    return Counter(
        attribute.value.string_value
        for span in spans
        if span.name == "page"
        for attribute in span.attributes
        if attribute.key == "url.full"
    )


@pytest.mark.parametrize("processes", [1, 2])
def test_the_command_line_sends_spans(site: Site, tmp_path: Path, processes: int) -> None:
    """To where the environment says, all of them before it ends."""
    with collector() as at:
        subprocess.run(
            [*COMMAND, "crawl", site.url, "--otel", "-q", "--processes", str(processes), "--retries", "0"],
            cwd=tmp_path,
            env=os.environ | sending_to(at) | {"OTEL_SERVICE_NAME": "books", "PYTHONWARNINGS": "error"},
            check=True,
            timeout=PATIENCE_S,
        )
        sent = received(at)
    assert all("books" in str(each.resource) for each in sent)
    assert page_urls(sent) == site.fetches() + Counter([f"{site.url}private/x"])


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line."""
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "shoal.otel")
    with pytest.raises(ConfigError, match=r"pip install 'shoal\[otel\]'"):
        importlib.import_module("shoal.otel")
