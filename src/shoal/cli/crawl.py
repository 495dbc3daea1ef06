"""To crawl: `shoal crawl`, `shoal run` and `shoal worker`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.cli.group import INTERRUPTED, shoal
from shoal.cli.options import crawl_options
from shoal.cli.place import SUFFIX, check_file, is_same_file, place_of
from shoal.cli.report import check_report, save_report
from shoal.cli.settings import settings_of
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.crawl import Crawl
    from shoal.local import Job
    from shoal.model import Stats
    from shoal.words import Speaker


@shoal.command()
@click.argument("urls", metavar="URL...", nargs=-1)
@click.option(
    "--select",
    "selects",
    multiple=True,
    metavar="NAME=CSS",
    help="A field of the rows, e.g. title=h1 or 'id=article::attr(data-id)'. May be given several times.",
)
@crawl_options
def crawl(urls: Sequence[str], selects: Sequence[str], **options: Any) -> int:
    """Crawl the sites at URL..., or the pages of a --sitemap, following links.

    Each page gives a row; with --select, each page where any of the fields is found. Running the same
    command again resumes the crawl.
    """
    from shoal.crawl import Crawl, select, summarize
    from shoal.parse import parse_field
    from shoal.urls import host_key

    fields = [parse_field(text) for text in selects]
    made = Crawl("crawl", seeds=urls, sitemaps=options.pop("sitemaps"))
    starts = made.start_urls()
    if not starts:
        raise click.UsageError("Missing argument 'URL...': where to start; or give --sitemap URL")
    made.name = host_key(starts[0])
    made.page()(select(fields) if fields else summarize)
    columns = ("url", *(field.name for field in fields)) if fields else ()
    return _crawl(made, {"seeds": starts, "select": list(selects)}, columns, **options)


@shoal.command()
@click.argument("scraper", metavar="SCRAPER.py[:NAME]")
@crawl_options
def run(scraper: str, **options: Any) -> int:
    """Run the crawl that a Python file defines (shoal.Crawl).

    Options given here replace the settings in the file. Running the same command again resumes the crawl.
    """
    from shoal.scraper import load

    return _crawl(load(scraper), {}, (), **options)


@shoal.command()
@click.argument("scraper", metavar="SCRAPER.py[:NAME]")
@crawl_options
@click.option("--drain", is_flag=True, help="Stop when the crawl is finished.")
def worker(scraper: str, **options: Any) -> int:
    """Work on a crawl together with other workers, on this machine or others.

    They share the frontier that --frontier names. Without --drain it goes on for ever, waiting for URLs
    that somebody adds; the crawl needs no seeds of its own then.
    """
    from shoal.scraper import load

    return _crawl(load(scraper), {}, (), needs_seeds=False, **options)


def _crawl(
    made: Crawl,
    fixed: dict[str, object],
    columns: tuple[str, ...],
    *,
    state: str | None,
    frontier: str | None,
    outputs: tuple[str, ...],
    csv_safe: bool,
    processes: int,
    metrics_port: int | None,
    metrics_host: str,
    fresh: bool,
    strict: bool,
    quiet: bool,
    verbose: bool,
    log_json: bool,
    otel: bool,
    report_to: str | None,
    fail_on_broken: bool,
    drain: bool = True,
    needs_seeds: bool = True,
    **settings: Any,
) -> int:
    from shoal import local, log, words
    from shoal.metrics import Address
    from shoal.progress import progress

    made.change(**settings_of(**settings))
    if report_to or fail_on_broken:
        made.change(survey=True)
    if needs_seeds and not made.start_urls():
        raise ConfigError(
            f"the crawl '{made.name}' has no seeds: write seeds=[\"http://...\"] in shoal.Crawl()"
        )
    place = place_of(state, frontier) or f"sqlite:{made.name.replace(':', '_').replace('/', '_')}{SUFFIX}"
    job = local.Job(
        crawl=made,
        frontier=place,
        outputs=outputs,
        csv_safe=csv_safe,
        fields=columns,
        fixed=fixed,
        processes=processes,
        drain=drain,
        fresh=fresh,
        metrics=None if metrics_port is None else Address(metrics_port, metrics_host),
        otel=otel,
    )
    if report_to is not None:
        check_report(report_to, "--report")
    log.set_up(as_json=log_json, quiet=quiet, verbose=verbose, crawl=made.name)

    def begin() -> Stats:
        _check(job)
        return local.prepare(job)

    stats = local.apart(begin) if processes > 1 else begin()
    say = words.Speaker(job, quiet=quiet, as_json=log_json)
    broken = partial(_look_for_broken, job, report_to, fail_on_broken, say)
    if stats.finished and drain:
        say.already_finished(stats)
        return broken() or words.exit_code(stats, strict=strict)
    if stats.paused:
        raise ConfigError(
            f"the crawl '{made.name}' is paused: let it go on with `shoal resume {words.option(place)}`"
        )
    say.begin(stats)
    watch = progress(made.name, quiet=quiet, plain=log_json)
    try:
        stopped = local.run(job, watch)
    finally:
        watch.close()
    stats = local.look_back(job, partial(say.end, stopped=stopped), patient=not stopped)
    return INTERRUPTED if stopped else broken() or words.exit_code(stats, strict=strict)


def _look_for_broken(job: Job, report_to: str | None, fail: bool, say: Speaker) -> int:
    """Write the report that is wanted; returns 1 if there are broken links and there should be none."""
    if report_to is None and not fail:
        return 0
    from shoal import local
    from shoal.report.findings import gather

    found = local.look_back(job, partial(gather, at=time.time()), patient=True)
    if report_to is not None:
        save_report(found, report_to)
    say.report(found, report_to)
    return int(fail and bool(found.broken))


def _check(job: Job) -> None:
    """Refuse what cannot work, before anything is written."""
    from shoal import access
    from shoal.frontier import crawl_names
    from shoal.store import FILE
    from shoal.worker import fetch_settings

    fetch_settings(job.crawl)
    access.check(job.crawl)
    state = job.frontier.removeprefix("sqlite:") if job.frontier.startswith("sqlite:") else None
    if state is not None:
        check_file(state, "the state file", "--state")
    stores = job.open_stores()
    if len({store.place for store in stores}) < len(stores):
        raise ConfigError("a place for the rows is given twice: give each --output once")
    for output in (output for output in job.outputs if FILE.fullmatch(output)):
        file = output.removeprefix("sqlite:")
        check_file(file, "the output file", "--output")
        if state is not None and is_same_file(file, state):
            raise ConfigError(f"{file} is the state file, which keeps the rows by itself: leave --output out")
    if state is not None and not (Path(state).exists() and job.crawl.name in crawl_names(job.frontier)):
        for store in stores:
            with closing(store), store.open(committed=lambda _: None, fresh=job.fresh):
                pass
