"""OpenTelemetry: a span for each page, with its parts. The one module that knows the library (shoal[otel]).

    page                 from the beginning of the visit until the page is committed
      robots             waiting for robots.txt, if it had to be read, and for the delay after it
      fetch              from the request to the last byte
      read               what handlers and parsing took
      store, commit      of its batch

What it takes is known when the page is committed, so all of them are made then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import NamedTuple

from shoal.errors import ConfigError
from shoal.meter import Meter, Visit
from shoal.model import Lease, Outcome

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
except ImportError as error:
    raise ConfigError("spans need: pip install 'shoal[otel]'") from error

MOST_VISITS = 10_000  # visited and not committed yet; beyond that they are those of lost leases
NS = 1_000_000_000


class _Times(NamedTuple):
    """Of one visit, by `time.monotonic`."""

    began: float
    asked: float
    """When the request was sent."""
    ended: float


class SpanMeter(Meter):
    """Counts, and makes a span of each page that is committed."""

    def __init__(self, crawl: str, tracer: Tracer) -> None:
        super().__init__()
        self._crawl = crawl
        self._tracer = tracer
        self._visits: dict[int, _Times] = {}

    def timed(self, visit: Visit) -> Visit:
        async def timed(lease: Lease) -> Outcome:
            began = time.monotonic()
            outcome = await visit(lease)
            if len(self._visits) >= MOST_VISITS:
                self._visits.clear()
            ended = time.monotonic()
            self._visits[lease.token] = _Times(began, max(began, ended - outcome.age_s), ended)
            return outcome

        return timed

    def committed(self, outcomes: Sequence[Outcome], store_s: float, commit_s: float) -> None:
        super().committed(outcomes, store_s, commit_s)
        now = time.monotonic()
        committing, storing = now - commit_s, now - commit_s - store_s
        for outcome in outcomes:
            times = self._visits.pop(outcome.lease.token, None)
            if times is not None:
                fetched = times.asked + outcome.elapsed_s
                parts = {
                    "robots": (times.began, times.asked),
                    "fetch": (times.asked, fetched),
                    "read": (fetched, times.ended),
                    "store": (storing, committing),
                    "commit": (committing, now),
                }
                self._tell(outcome, times.began, now, parts)

    def _tell(
        self, outcome: Outcome, began: float, ended: float, parts: dict[str, tuple[float, float]]
    ) -> None:
        clock_ns = time.time_ns() - int(time.monotonic() * NS)

        def at(moment: float) -> int:
            return clock_ns + int(moment * NS)

        page = self._tracer.start_span("page", start_time=at(began))
        if page.is_recording():
            _describe(page, self._crawl, outcome)
            within = trace.set_span_in_context(page)
            for name, (begin, end) in parts.items():
                if end > begin and (outcome.elapsed_s or name not in {"fetch", "read"}):
                    kind = SpanKind.CLIENT if name == "fetch" else SpanKind.INTERNAL
                    part = self._tracer.start_span(name, within, kind, start_time=at(begin))
                    part.end(at(end))
        page.end(at(ended))


def _describe(page: Span, crawl: str, outcome: Outcome) -> None:
    lease = outcome.lease
    page.set_attributes(
        {
            "shoal.crawl": crawl,
            "shoal.host": lease.host,
            "shoal.attempt": lease.attempt,
            "shoal.outcome": outcome.state,
            "shoal.reason": outcome.reason,
            "shoal.rows": len(outcome.items),
            "shoal.links": len(outcome.links),
            "url.full": lease.link.url,
            "http.response.body.size": outcome.size_bytes,
        }
    )
    if outcome.status:
        page.set_attribute("http.response.status_code", outcome.status)
    if outcome.state in {"dead", "queued"}:
        page.set_status(Status(StatusCode.ERROR, outcome.reason))


@contextmanager
def tracing() -> Iterator[Tracer]:
    """Spans go where the OTEL_* variables say; they are all sent when the context ends.

    A provider that the scraper, or `opentelemetry-instrument`, has set up is used as it is. One that is made
    here has a thread, of which a fork would know nothing.
    """
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        yield _tracer(provider)
        provider.force_flush()
        return
    named = OTELResourceDetector().detect()
    provider = TracerProvider(resource=Resource.create({SERVICE_NAME: "shoal"}).merge(named))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield _tracer(provider)
    finally:
        provider.shutdown()


def _tracer(provider: TracerProvider) -> Tracer:
    return provider.get_tracer("shoal", version("shoal"))
