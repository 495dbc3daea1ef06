"""What the command line says about a crawl, as text or JSON."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from shoal.crawl import Settings, check_url
from shoal.direct import Trial
from shoal.frontier import Frontier
from shoal.intake import spelling_of
from shoal.local import Job
from shoal.log import visible, visible_json, visible_lines
from shoal.model import HostRecord, Item, PageRecord, Stats, Visit, WorkerRecord
from shoal.moving import MOVED
from shoal.place import shown as place_shown
from shoal.produce import Producer
from shoal.progress import clock, count, counters, size
from shoal.report import findings
from shoal.scope import Scope
from shoal.store import store_name
from shoal.urls import normalize

MOST_REASONS = 5
MOST_BROKEN = 20

log = logging.getLogger("shoal.words")


class Speaker:
    """Tells the person who runs a crawl what is going on, on stderr; errors are told elsewhere."""

    def __init__(self, job: Job, *, quiet: bool, as_json: bool = False, passing: bool = False) -> None:
        """as_json: speak through the log, for machines. passing: nothing stays that one could look at."""
        self._job = job
        self._option = option(job.frontier)
        self._quiet = quiet
        self._as_json = as_json
        self._passing = passing
        self._began = time.monotonic()

    def begin(self, stats: Stats) -> None:
        """The crawl starts, or goes on."""
        if stats.done or stats.dead or stats.skipped:
            where = shown(self._job.frontier)
            self._say(f"resuming {where}: {count(stats.done, 'page')} done, {stats.queued:,} queued")

    def already_finished(self, stats: Stats) -> None:
        """The crawl had come to its end before."""
        self._say(
            f"already finished: {count(stats.done, 'page')}, {count(stats.items, 'row')}"
            f" ({self._rows_in()}); --fresh starts again",
            stats,
        )
        if stats.dead:
            self._say(
                f"{count(stats.dead, 'dead letter')}: `shoal redrive --all {self._option}`"
                " lets this command try them again"
            )
        self._say_limit(stats)

    def end(self, frontier: Frontier, *, stopped: bool) -> Stats:
        """The crawl is over, or was stopped."""
        stats = frontier.stats()
        elapsed_s = time.monotonic() - self._began
        word = "stopped" if stopped else "finished"
        self._say(
            f"{word} after {clock(elapsed_s)}: {count(stats.done, 'page')}, {count(stats.items, 'row')},"
            f" {size(stats.size_bytes)}, {count(stats.dead, 'dead letter')}, {stats.skipped:,} skipped",
            stats,
        )
        if self._passing:
            return stats
        if stats.dead:
            self._say(f"dead letters: {_reasons(frontier)} (see `shoal dead {self._option}`)")
        self._tell_of_seeds(frontier, nothing_else=stats.done == 0)
        if stopped:
            left = stats.queued + stats.overflow
            self._say(f"{count(left, 'URL')} queued; the same command goes on from here")
        else:
            self._say_limit(stats)
            if stats.items:
                self._say(self._rows_in())
        return stats

    def _say_limit(self, stats: Stats) -> None:
        if left := stats.queued + stats.overflow:
            self._say(f"the limit of pages is reached, with {count(left, 'URL')} queued: raise it to go on")

    def _tell_of_seeds(self, frontier: Frontier, *, nothing_else: bool) -> None:
        for link in self._job.crawl.seeds():
            record = frontier.why(link.url, link.key)
            what = f"the {link.key or 'seed'} {link.url}"
            if record is not None and record.state == "dead":
                self._complain(f"{what} could not be fetched: {_reason(record)}")
            elif record is not None and record.state == "skipped":
                say = self._complain if nothing_else else self._say
                say(f"{what} was skipped: {_reason(record)}")

    def _rows_in(self) -> str:
        if self._job.has_stores:
            places = [*self._job.outputs, *map(store_name, self._job.crawl.stores)]
            return f"the rows are in {', '.join(map(shown, places))}"
        return f"the rows are in {shown(self._job.frontier)}: `shoal export {self._option} -o rows.csv`"

    def report(self, found: findings.Findings, file: str | None) -> None:
        """A report has been written, or links were looked at."""
        self._say(links(found, file))

    def _complain(self, text: str) -> None:
        """Said even to those who want to hear of errors only."""
        if self._as_json:
            log.error("%s", text)
        else:
            print(text, file=sys.stderr)

    def _say(self, text: str, stats: Stats | None = None) -> None:
        if self._as_json:
            log.info("%s", text, extra=counters(stats) if stats else None)
        elif not self._quiet:
            print(text, file=sys.stderr)


def shown(place: str) -> str:
    """A frontier or a store by its name."""
    return place_shown(place).removeprefix("sqlite:")


def option(frontier: str) -> str:
    """How the command line is told of a frontier."""
    return f"--state {shown(frontier)}" if frontier.startswith("sqlite:") else f"--frontier {shown(frontier)}"


def exit_code(stats: Stats, *, strict: bool) -> int:
    """0 if at least one page was fetched; with `strict`, only if none became a dead letter."""
    return 1 if stats.done == 0 or (strict and stats.dead) else 0


def _reasons(frontier: Frontier) -> str:
    counts = Counter(record.reason for record in frontier.dead())
    shown = [f"{visible(reason)}: {count:,}" for reason, count in counts.most_common(MOST_REASONS)]
    return ", ".join(shown) + (", ..." if len(counts) > MOST_REASONS else "")


def status(frontier: Frontier, *, as_json: bool) -> str:
    """How a crawl stands."""
    stats = frontier.stats()
    workers = frontier.workers()
    if as_json:
        counts = msgspec.structs.asdict(stats)
        return to_json({"crawl": frontier.crawl, **counts, "seen": stats.seen, "workers": workers})
    priorities = [f"{n}: {count:,}" for n, count in reversed(list(enumerate(stats.by_priority))) if count]
    lines = [
        f"crawl     {frontier.crawl} ({_standing(frontier, stats)})",
        f"queued    {stats.queued:,} ({stats.delayed:,} delayed, {stats.retrying:,} retrying)"
        + (f", the oldest for up to {clock(60 * math.ceil(stats.oldest_s / 60))}" if stats.queued else ""),
        *([f"          by priority: {', '.join(priorities)}"] if priorities else []),
        *([f"overflow  {stats.overflow:,} (found while the queue was full)"] if stats.overflow else []),
        f"leased    {stats.leased:,}",
        f"done      {stats.done:,}",
        f"dead      {stats.dead:,}" + (f" ({_reasons(frontier)})" if stats.dead else ""),
        f"skipped   {stats.skipped:,}",
        f"hosts     {stats.hosts:,} ({stats.ready_hosts:,} ready)",
        f"rows      {stats.items:,}",
        f"fetched   {size(stats.size_bytes)} in {stats.fetches:,} attempts, {stats.losses:,} leases lost",
        *(f"worker    {_worker(each)}" for each in workers),
    ]
    return "\n".join(lines)


def _standing(frontier: Frontier, stats: Stats) -> str:
    if place := frontier.describe().get(MOVED):
        return f"moved to {place}"
    if stats.finished:
        return "finished: the limit of pages is reached" if stats.queued + stats.overflow else "finished"
    return "paused" if stats.paused else "not finished"


def _worker(worker: WorkerRecord) -> str:
    told = f"{worker.name}: {count(worker.leases, 'lease')}"
    if not worker.alive:
        return f"{told}, not heard of lately"
    if worker.trouble:
        return f"{told}, waits: {visible(worker.trouble)}"
    return (
        f"{told}, {worker.pages_per_s:,.1f} pages/s, {size(worker.bytes_in_flight)} in flight,"
        f" {worker.lag_s * 1000:,.0f} ms late, {worker.settle_s * 1000:,.0f} ms to store a batch"
    )


def hosts(records: Iterable[HostRecord]) -> str:
    """A table of hosts."""
    return table(
        {
            "host": record.host,
            "queued": f"{record.queued:,}",
            "leased": f"{record.leased:,}",
            "done": f"{record.done:,}",
            "latency": f"{record.latency_s:.3f} s",
            "delay": f"{record.delay_s:.3g} s",
            "at once": record.at_once,
            "trouble": _trouble(record),
        }
        for record in records
    )


def _trouble(host: HostRecord) -> str:
    facts = [
        count(host.failures, "failure") if host.failures else "",
        f"{'given up' if host.given_up else 'paused'} until {_when(host.paused_until)}"
        if host.paused_until
        else "",
    ]
    return ", ".join(filter(None, facts))


def added(producer: Producer) -> str:
    """What `shoal add` has done."""
    counts = producer.counts
    text = f"{count(counts.new, 'URL')} added, {counts.known:,} known before"
    if counts.rejected:
        text += f", {count(counts.rejected, 'line')} rejected (see {producer.rejects_file})"
    return text


def moved(old: Frontier, stats: Stats, source: str, target: str) -> str:
    """What `shoal migrate` has done."""
    text = (
        f"the crawl '{old.crawl}' is now in {shown(target)}: {count(stats.seen, 'URL')} known,"
        f" {stats.queued:,} queued; it stays paused in {shown(source)}"
    )
    if old.keeps_items and old.describe().get("output") is None and stats.items:
        text += f"\nits {count(stats.items, 'row')} stay in {shown(source)}: get them with `shoal export`"
    return text


def trial(trial: Trial, *, as_json: bool) -> str:
    """What the handler of one page gives."""
    if as_json:
        lines = [to_json({"row": item}) for item in trial.items]
        return "\n".join([*lines, *(to_json({"link": link}) for link in trial.links)])
    title = visible(f"{trial.page!r} {trial.page.title or ''}".rstrip())
    rows = [f"row   {to_json(item)}" for item in trial.items]
    links = [
        f"link  {link.url}"
        + (f"  priority {link.priority}" if link.priority else "")
        + (f"  meta {to_json(link.meta)}" if link.meta else "")
        for link in trial.links
    ]
    end = f"{count(len(rows), 'row')}, {count(len(links), 'link')} in scope"
    return "\n".join([title, *rows, *links, end])


def letter(record: PageRecord, errors: bool) -> str:
    """One line about a page that was given up or skipped; or more, with the whole error."""
    tries = f" after {record.attempts} attempts" if record.attempts > 1 else ""
    line = visible(f"{record.reason}{tries}: {record.url}")
    return f"{line}\n    {_indented(record.error, 4)}" if record.error and errors else line


def skips(frontier: Frontier, *, host: str | None = None, reason: str | None = None) -> list[Item]:
    """How many pages each rule has kept from being fetched or read, by host, the most first."""
    counts = findings.skips(frontier, host=host, reason=reason)
    return [{"rule": rule, "host": name, "pages": number} for rule, name, number in counts]


def links(found: findings.Findings, file: str | None) -> str:
    """What a report says of links, in short. file: where all of it is."""
    broken = found.broken
    text = count(len(broken), "broken link") if broken else "no broken links"
    lines = [f"{file}: {text}" if file else text, *map(_broken, broken[:MOST_BROKEN])]
    if len(broken) > MOST_BROKEN:
        lines.append(f"  and {len(broken) - MOST_BROKEN:,} more")
    return "\n".join(lines)


def _broken(link: findings.Broken) -> str:
    pages = link.linked_from
    first = pages.pages[0] if pages.pages else link.found_on
    where = f", linked from {first}" if first else ""
    more = f" and {count(pages.count - 1, 'other page')}" if pages.count > 1 else ""
    return f"  {visible(f'{link.reason}: {link.url}{where}{more}')}"


def _indented(text: str, width: int) -> str:
    """Lines after the first one moved to the right."""
    return visible_lines(text).replace("\n", f"\n{' ' * width}")


def why(record: PageRecord) -> str:
    """Everything that is known of a URL."""
    facts = {
        "url": record.url,
        "state": record.state,
        "reason": record.reason,
        "found on": record.parent or "(a seed)",
        "found at": _when(record.added_at),
        "depth": str(record.depth),
        "priority": str(record.priority),
        "attempts": str(record.attempts),
        "losses": str(record.losses or ""),
        "status": str(record.status or ""),
        "finished at": _when(record.finished_at),
        **(_seen(record.visit) if record.visit else {}),
        "not before": _when(record.not_before),
        "leased by": record.worker,
        "until": _when(record.deadline),
        "host": record.host,
    }
    lines = [f"{name:<12} {visible(value)}" for name, value in facts.items() if value]
    if record.error:
        lines.append(f"{'error':<12} {_indented(record.error, 13)}")
    return "\n".join(lines)


def _seen(visit: Visit) -> dict[str, str]:
    times = {"first seen": visit.first_seen, "last seen": visit.last_seen, "last changed": visit.last_changed}
    return {name: _when(at) for name, at in times.items()}


def never_seen(frontier: Frontier, url: str, *, as_json: bool) -> str:
    """A URL that is not known: whether it is in scope."""
    reason = _out_of_scope(frontier, url)
    if as_json:
        return to_json({"url": url, "state": None, "reason": reason or "never seen"})
    return f"{url} was never seen" + (
        f"; it does not belong: {reason}" if reason else ", though it is in scope"
    )


def _out_of_scope(frontier: Frontier, url: str) -> str | None:
    settings = _settings(frontier)
    seeds = [seed for text in settings.seeds + settings.sitemaps if (seed := normalize(text)) is not None]
    return Scope.of(seeds, settings.scope, settings.allow, settings.deny).reason(url)


def spelled(frontier: Frontier, text: str) -> str:
    """A URL as the crawl spells it. Raises ConfigError if it is none."""
    return normalize(check_url(text), None, spelling_of(frontier.describe())) or text


def _settings(frontier: Frontier) -> Settings:
    return msgspec.convert(frontier.describe().get("settings", {}), Settings)


def table(rows: Iterable[Item]) -> str:
    """Rows under the names of their fields."""
    shown = [{visible(name): visible(str(value)) for name, value in row.items()} for row in rows]
    names = list(dict.fromkeys(name for row in shown for name in row))
    lines = [dict(zip(names, names, strict=True)), *shown]
    widths = {name: max(len(line.get(name, "")) for line in lines) for name in names}
    return "\n".join(
        "  ".join(line.get(name, "").ljust(widths[name]) for name in names).rstrip() for line in lines
    )


def to_json(value: object) -> str:
    """One line of JSON."""
    return visible_json(msgspec.json.encode(value).decode())


def _when(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="seconds")


def _reason(record: PageRecord) -> str:
    """Why a page was given up or skipped, with the details (of a traceback the end) if they say more."""
    detail = record.error.rpartition("\n")[2]
    more = f" ({detail})" if detail.lower() not in {"", record.reason.lower()} else ""
    return visible(record.reason + more)
