"""Metrics as Prometheus reads them (text format 0.0.4): of workers, and of frontiers.

docs/reference/metrics.md says what each means. All of it is read off counters that are kept anyway, so a
scrape takes as long at ten million URLs as at ten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from shoal.errors import ShoalError
from shoal.frontier import Frontier
from shoal.meter import Histogram, Meter
from shoal.model import Beat, Stats, WorkerRecord

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


class Address(NamedTuple):
    """Where metrics are served."""

    port: int
    """0: any that is free."""
    host: str = "127.0.0.1"

    def of(self, number: int) -> Address:
        """That of one of several processes, the first of which is number 0: they have ports in a row."""
        return self._replace(port=self.port + number) if self.port else self


class Family(NamedTuple):
    """One metric, with the samples of all its labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Sequence[tuple[str, Labels, float]]
    """Each with what is appended to the name."""


def render(families: Iterable[Family]) -> str:
    """The text; families of one name (of several crawls) become one."""
    merged: dict[str, list[Family]] = {}
    for family in families:
        merged.setdefault(family.name, []).append(family)
    lines = []
    for name, parts in merged.items():
        lines += [f"# HELP {name} {_escaped(parts[0].help)}", f"# TYPE {name} {parts[0].kind}"]
        lines += [
            f"{name}{suffix}{_labels(labels)} {_number(value)}"
            for part in parts
            for suffix, labels, value in part.samples
        ]
    return "\n".join([*lines, ""])


def _labels(labels: Labels) -> str:
    shown = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{shown}}}" if shown else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    """A value of a label: it may come from a page. What is no character in UTF-8 becomes a question mark."""
    return _escaped(text).replace('"', '\\"').encode("utf-8", "replace").decode()


def _number(value: float) -> str:
    return repr(value) if isinstance(value, float) else str(int(value))


def counter(name: str, help_: str, *samples: tuple[Labels, float]) -> Family:
    """Something that only grows; its name gets `_total`."""
    return Family(f"{name}_total", "counter", help_, [("", *sample) for sample in samples])


def gauge(name: str, help_: str, *samples: tuple[Labels, float]) -> Family:
    """Something that rises and falls."""
    return Family(name, "gauge", help_, [("", *sample) for sample in samples])


def histogram(name: str, help_: str, labels: Labels, counts: Histogram) -> Family:
    """Durations in seconds."""
    sums = list(accumulate(counts.counts))
    bounds = [*map(_bound, counts.bounds), "+Inf"]
    return Family(
        name,
        "histogram",
        help_,
        [
            *(("_bucket", {**labels, "le": at}, count) for at, count in zip(bounds, sums, strict=True)),
            ("_sum", labels, counts.sum_s),
            ("_count", labels, sums[-1]),
        ],
    )


def _bound(seconds: float) -> str:
    return f"{seconds:g}"


# --- workers --------------------------------------------------------------------------------


def worker_families(crawl: str, meters: Iterable[Meter]) -> Iterator[Family]:
    """What the workers of one process have done for a crawl, together."""
    meters = list(meters)
    total = Meter()
    for meter in meters:
        total.add(meter)
    labels = {"crawl": crawl}
    yield counter(
        "shoal_pages",
        "Attempts at pages that were committed, by outcome (done, dead, skipped, retried) and reason.",
        *(
            ({**labels, "outcome": _outcome(state), "reason": reason}, count)
            for (state, reason), count in sorted(total.ends.items())
        ),
    )
    yield counter("shoal_fetched_bytes", "Bytes in bodies that were fetched.", (labels, total.size_bytes))
    yield counter("shoal_items", "Rows extracted.", (labels, total.items))
    yield counter("shoal_lease_losses", "Leases that were lost while held.", (labels, total.losses))
    for name, help_, counts in (
        ("shoal_fetch_duration_seconds", "From the request to the last byte.", total.fetches),
        ("shoal_store_duration_seconds", "Writing the rows of a batch of pages.", total.stores),
        ("shoal_commit_duration_seconds", "Committing a batch of pages to the frontier.", total.commits),
        ("shoal_loop_lag_seconds", "How late the event loop was, four times a second.", total.lags),
    ):
        yield histogram(name, help_, labels, counts)
    beats = [meter.beat for meter in meters if meter.beat is not None]
    yield from _beat_families(labels, beats)


def _outcome(state: str) -> str:
    return "retried" if state == "queued" else state


def _beat_families(labels: Labels, beats: Sequence[Beat]) -> Iterator[Family]:
    yield gauge(
        "shoal_worker_concurrency",
        "How many pages the workers of this process may fetch at once.",
        (labels, sum(beat.concurrency for beat in beats)),
    )
    yield gauge(
        "shoal_in_flight_bytes",
        "Bytes in bodies that are read, handled or wait to be stored.",
        (labels, sum(beat.bytes_in_flight for beat in beats)),
    )


def process_families(
    crawl: str, meters: Iterable[Meter], open_frontier: Callable[[], Frontier]
) -> Iterator[Family]:
    """All that a process serves about a crawl: what its workers have done, and how the crawl stands."""
    yield from worker_families(crawl, meters)
    try:
        with open_frontier() as frontier:
            yield from frontier_families(frontier)
    except ShoalError:
        yield _up(crawl, False)


# --- frontiers ------------------------------------------------------------------------------


def frontier_metrics(*frontiers: Frontier) -> str:
    """The text for the crawls of these frontiers; of one that cannot be reached, just that."""
    return render(family for frontier in frontiers for family in frontier_families(frontier))


def frontier_families(frontier: Frontier) -> Iterator[Family]:
    """How a crawl stands, for all workers together: the same wherever it is asked."""
    labels = {"crawl": frontier.crawl}
    try:
        stats, workers = frontier.stats(), frontier.workers()
    except ShoalError:
        yield _up(frontier.crawl, False)
        return
    yield _up(frontier.crawl, True)
    yield from _stats_families(labels, stats)
    yield from _workers_families(labels, [worker for worker in workers if worker.alive])


def _up(crawl: str, up: bool) -> Family:
    return gauge("shoal_frontier_up", "Whether the frontier can be used.", ({"crawl": crawl}, up))


STATES = ("queued", "overflow", "leased", "done", "dead", "skipped")


def _stats_families(labels: Labels, stats: Stats) -> Iterator[Family]:
    yield gauge(
        "shoal_urls",
        "URLs known, by state.",
        *(({**labels, "state": state}, getattr(stats, state)) for state in STATES),
    )
    yield gauge(
        "shoal_queued_urls",
        "Queued URLs, by priority.",
        *(({**labels, "priority": str(at)}, count) for at, count in enumerate(stats.by_priority)),
    )
    for name, help_, value in (
        ("shoal_delayed_urls", "Queued URLs whose time has not come.", stats.delayed),
        ("shoal_retrying_urls", "Queued URLs that have failed at least once.", stats.retrying),
        ("shoal_hosts", "Hosts known.", stats.hosts),
        ("shoal_ready_hosts", "Hosts that would give a page now.", stats.ready_hosts),
        ("shoal_oldest_queued_seconds", "How long ago the oldest queued URL was found.", stats.oldest_s),
        ("shoal_producers", "Producers that are open.", stats.producers),
        ("shoal_crawl_items", "Rows that the pages of the crawl have.", stats.items),
        ("shoal_crawl_paused", "Whether the crawl is paused.", stats.paused),
        ("shoal_crawl_finished", "Whether the crawl is finished.", stats.finished),
    ):
        yield gauge(name, help_, (labels, value))
    for name, help_, value in (
        ("shoal_crawl_fetches", "Attempts that came to an end.", stats.fetches),
        ("shoal_crawl_retries", "Attempts that failed and are followed by another one.", stats.retries),
        ("shoal_crawl_lease_losses", "Leases that ran out or whose worker died.", stats.losses),
        ("shoal_crawl_fetched_bytes", "Bytes in bodies that were fetched.", stats.size_bytes),
        ("shoal_crawl_fetch_seconds", "Time that all fetches took together.", stats.elapsed_s),
    ):
        yield counter(name, help_, (labels, value))


def _workers_families(labels: Labels, workers: Sequence[WorkerRecord]) -> Iterator[Family]:
    def worst(name: str) -> float:
        return max((getattr(worker, name) for worker in workers), default=0.0)

    for name, help_, value in (
        ("shoal_workers", "Workers that were heard of lately.", len(workers)),
        (
            "shoal_workers_concurrency",
            "Fetches at once, of all workers.",
            sum(w.concurrency for w in workers),
        ),
        (
            "shoal_workers_in_flight_bytes",
            "Bytes in bodies that workers hold.",
            sum(w.bytes_in_flight for w in workers),
        ),
        ("shoal_workers_worst_loop_lag_seconds", "The latest event loop of all workers.", worst("lag_s")),
        ("shoal_workers_worst_settle_seconds", "The slowest to store and commit a batch.", worst("settle_s")),
    ):
        yield gauge(name, help_, (labels, value))
