"""The command line: arguments in, text out. What a command needs is imported when it runs.

Exit codes: 0 done; 1 nothing was fetched, or, with --strict, some pages became dead letters;
2 bad usage or input; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shoal.errors import ConfigError, ShoalError

if TYPE_CHECKING:
    from shoal.crawl import Crawl
    from shoal.export import Format
    from shoal.frontier.sqlite import SqliteFrontier
    from shoal.local import Job
    from shoal.model import PageRecord

SUFFIX = ".shoal"
INTERRUPTED = 130

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="shoal")
def shoal() -> None:
    """Crawl web sites: every page once, surviving any kill.

    `shoal crawl URL` crawls a site; the same command again resumes it.
    `shoal demo` shows it on a small shop of its own.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; errors for people take one line."""
    try:
        code = shoal.main(args=args, prog_name="shoal", standalone_mode=False)
    except click.exceptions.Abort:
        code = INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        code = 2
    except click.ClickException as error:
        hint = (
            f" ({error.ctx.command_path} --help)" if isinstance(error, click.UsageError) and error.ctx else ""
        )
        code = _complain(f"{error.format_message()}{hint}")
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # `shoal export | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except ShoalError as error:
        code = _complain(str(error))
    if code == INTERRUPTED:
        _leave_at_once()
    sys.exit(code or 0)


def _leave_at_once() -> None:
    """End now: a thread may still run a handler, which nobody waits for any more."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _complain(message: str) -> int:
    print(f"shoal: {' '.join(message.split())}", file=sys.stderr)
    return 2


class Whole(click.IntRange):
    """A whole number, called so if something else is given."""

    name = "whole number"


class Number(click.FloatRange):
    """A number, called so if something else is given."""

    name = "number"


# --- crawling -----------------------------------------------------------------------------


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several click options as one decorator, in the order given."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


state_option = click.option(
    "--state", metavar="FILE", help="The state file (default: the one in this folder)."
)
crawl_name_option = click.option(
    "--crawl", "crawl_name", metavar="NAME", help="Which crawl of the state file, if it has several."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

crawl_options = _options(
    click.option(
        "-o",
        "--output",
        metavar="FILE",
        help="Where the rows go: FILE.jsonl, FILE.csv or sqlite:FILE (default: the state file).",
    ),
    click.option(
        "--scope",
        type=click.Choice(["host", "domain", "any"]),
        help="Follow links to the seeds' hosts (default), their domains, or any host.",
    ),
    click.option(
        "--allow", multiple=True, metavar="GLOB", help="Follow only URLs like this; /path/* or http://..."
    ),
    click.option("--deny", multiple=True, metavar="GLOB", help="Do not follow URLs like this."),
    click.option(
        "--depth", "max_depth", type=Whole(0), metavar="N", help="Follow links at most N steps deep."
    ),
    click.option("--max-pages", type=Whole(1), metavar="N", help="Fetch at most N pages."),
    click.option(
        "--max-pages-per-host", type=Whole(1), metavar="N", help="Fetch at most N pages of one host."
    ),
    click.option(
        "--concurrency", type=Whole(1), metavar="N", help="Fetches at once per process (default 32)."
    ),
    click.option("--per-host", type=Whole(1), metavar="N", help="Fetches at once per host (default 8)."),
    click.option(
        "--delay",
        "delay_s",
        type=Number(0),
        metavar="S",
        help="Seconds between two fetches of a host (default 0, or what robots.txt asks for).",
    ),
    click.option(
        "--retries", type=Whole(0), metavar="N", help="Further tries of a failed fetch (default 3)."
    ),
    click.option(
        "--timeout",
        "total_timeout_s",
        type=Number(0, min_open=True),
        metavar="S",
        help="For one fetch (default 60).",
    ),
    click.option("--user-agent", metavar="S", help="What to call oneself (default shoal/VERSION)."),
    click.option("--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Send it each time."),
    click.option("--proxy", metavar="URL", help="Fetch through this HTTP proxy."),
    click.option("--ignore-robots", is_flag=True, help="Do not read robots.txt."),
    click.option("--obey-nofollow", is_flag=True, default=None, help="Ignore links marked nofollow."),
    click.option("--sort-query", is_flag=True, default=None, help="?b=1&a=2 is the same page as ?a=2&b=1."),
    click.option("--drop-tracking", is_flag=True, help="Drop utm_* and the like from URLs."),
    click.option(
        "--allow-private", is_flag=True, default=None, help="Fetch from private addresses, whatever the seed."
    ),
    click.option("--state", metavar="FILE", help=f"The state file (default: NAME{SUFFIX})."),
    click.option("--processes", type=Whole(1), default=1, metavar="N", help="Default 1."),
    click.option("--fresh", is_flag=True, help="Forget what was crawled before, rows included."),
    click.option("--strict", is_flag=True, help="Exit with 1 if any page became a dead letter."),
    click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
    click.option("-v", "--verbose", is_flag=True, help="Print a line for each page."),
    click.option("--log-json", is_flag=True, help="Log as JSON lines."),
)


@shoal.command()
@click.argument("urls", metavar="URL...", nargs=-1, required=True)
@click.option(
    "--select",
    "selects",
    multiple=True,
    metavar="NAME=CSS",
    help="A field of the rows, e.g. title=h1 or 'id=article::attr(data-id)'. May be given several times.",
)
@crawl_options
def crawl(urls: Sequence[str], selects: Sequence[str], **options: Any) -> int:
    """Crawl the sites at URL..., following links.

    Each page gives a row; with --select, each page where any of the fields is found. Running the same
    command again resumes the crawl.
    """
    from shoal.crawl import Crawl, select, summarize
    from shoal.parse import parse_field
    from shoal.urls import host_key

    fields = [parse_field(text) for text in selects]
    made = Crawl("crawl", seeds=urls)
    seeds = made.seed_urls()
    made.name = host_key(seeds[0])
    made.page()(select(fields) if fields else summarize)
    columns = ("url", *(field.name for field in fields)) if fields else ()
    return _crawl(made, {"seeds": seeds, "select": list(selects)}, columns, **options)


@shoal.command()
@click.argument("scraper", metavar="SCRAPER.py[:NAME]")
@crawl_options
def run(scraper: str, **options: Any) -> int:
    """Run the crawl that a Python file defines (shoal.Crawl).

    Options given here replace the settings in the file. Running the same command again resumes the crawl.
    """
    from shoal.scraper import load

    return _crawl(load(scraper), {}, (), **options)


def _crawl(
    made: Crawl,
    fixed: dict[str, object],
    columns: tuple[str, ...],
    *,
    state: str | None,
    output: str | None,
    processes: int,
    fresh: bool,
    strict: bool,
    quiet: bool,
    verbose: bool,
    log_json: bool,
    **settings: Any,
) -> int:
    from shoal import local, log, report
    from shoal.progress import progress

    made.change(**_settings(**settings))
    if not made.settings.seeds:
        raise ConfigError(
            f"the crawl '{made.name}' has no seeds: write seeds=[\"http://...\"] in shoal.Crawl()"
        )
    path = state or f"{made.name.replace(':', '_').replace('/', '_')}{SUFFIX}"
    job = local.Job(
        crawl=made,
        frontier=f"sqlite:{path}",
        output=output,
        fields=columns,
        fixed=fixed,
        processes=processes,
        fresh=fresh,
    )
    _check(job, path)
    stats = local.prepare(job)
    log.set_up(as_json=log_json, quiet=quiet, verbose=verbose)
    say = report.Speaker(job, path, quiet=quiet, as_json=log_json)
    if stats.finished:
        say.already_finished(stats)
        return report.exit_code(stats, strict=strict)
    if stats.paused:
        raise ConfigError(
            f"the crawl '{made.name}' is paused: let it go on with `shoal resume --state {path}`"
        )
    say.begin(stats)
    watch = progress(made.name, quiet=quiet, plain=log_json)
    try:
        stopped = local.run(job, watch)
    finally:
        watch.close()
    with job.open_frontier() as frontier:
        stats = say.end(frontier, stopped=stopped)
    return INTERRUPTED if stopped else report.exit_code(stats, strict=strict)


def _check(job: Job, state: str) -> None:
    """Refuse what cannot work, before anything is written."""
    from shoal.worker import fetch_settings

    fetch_settings(job.crawl)
    _check_place(state, "the state file", "--state")
    store = job.open_store()
    if job.output is None or store is None:
        return
    output = job.output.removeprefix("sqlite:")
    _check_place(output, "the output file", "--output")
    if Path(output).resolve() == Path(state).resolve():
        raise ConfigError(f"{output} is the state file, which keeps the rows by itself: leave --output out")
    if not Path(state).exists():  # nothing is committed yet
        with closing(store), store.open(committed=lambda: None, fresh=job.fresh):
            pass


def _check_place(file: str, what: str, option: str) -> None:
    path = Path(file)
    if path.is_dir():
        raise ConfigError(f"{what} {file} is a folder: name a file in it with {option}")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder for {what} {file}: make it, or choose another with {option}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(
            f"you may not write {what} {file}: change its permissions, or choose another with {option}"
        )


def _settings(
    *,
    allow: Sequence[str],
    deny: Sequence[str],
    headers: Sequence[str],
    ignore_robots: bool,
    drop_tracking: bool,
    **others: Any,
) -> dict[str, object]:
    """The options as settings; None where nothing was given."""
    from shoal.urls import TRACKING_PARAMS

    return {
        **others,
        "allow": allow or None,
        "deny": deny or None,
        "headers": [_header(text) for text in headers] or None,
        "obey_robots": False if ignore_robots else None,
        "drop_params": TRACKING_PARAMS if drop_tracking else None,
    }


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError(f"not a header: '{text}'; write 'NAME: VALUE'")
    return name.strip(), value.strip()


@shoal.command()
@click.option("--processes", type=Whole(1), default=1, metavar="N", help="Default 1.")
def demo(processes: int) -> int:
    """Crawl a small shop that shoal itself serves on this machine, and show the rows."""
    from shoal.demo import run_demo

    return run_demo(processes)


# --- looking at a crawl, and putting it right ---------------------------------------------


def _find_state(state: str | None) -> str:
    if state is not None:
        return state
    found = sorted(str(path) for path in Path().glob(f"*{SUFFIX}"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(f"there is no state file (*{SUFFIX}) in this folder: name it with --state FILE")
    raise ConfigError(f"there are several state files, name one with --state: {', '.join(found)}")


def _open(state: str | None, name: str | None) -> SqliteFrontier:
    from shoal.frontier.sqlite import SqliteFrontier
    from shoal.frontier.sqlite_file import crawl_names

    path = _find_state(state)
    if Path(path).exists():
        _check_place(path, "the state file", "--state")
    names = crawl_names(path)
    if not names:
        raise ConfigError(f"there is no crawl in {path} yet: `shoal crawl URL --state {path}` starts one")
    if name is None and len(names) > 1:
        raise ConfigError(f"{path} has several crawls, name one with --crawl: {', '.join(names)}")
    return SqliteFrontier(path, name or names[0], create=False)


@shoal.command()
@state_option
@crawl_name_option
@json_option
def status(state: str | None, crawl_name: str | None, as_json: bool) -> None:
    """Show how the crawl stands."""
    from shoal import report

    with _open(state, crawl_name) as frontier:
        print(report.status(frontier, as_json=as_json))


@shoal.command()
@click.option("--host", metavar="HOST", help="Only those of this host.")
@click.option("--reason", metavar="TEXT", help="Only those with this reason.")
@click.option("--limit", type=Whole(1), metavar="N", help="At most N.")
@click.option("--errors", is_flag=True, help="Show the whole error, such as the traceback of a handler.")
@state_option
@crawl_name_option
@json_option
def dead(
    host: str | None,
    reason: str | None,
    limit: int | None,
    errors: bool,
    state: str | None,
    crawl_name: str | None,
    as_json: bool,
) -> None:
    """List the dead letters: pages that were given up, and why."""
    from shoal import report

    with _open(state, crawl_name) as frontier:
        _print_records(frontier.dead(host=host, reason=reason, limit=limit), as_json, report.letter, errors)


@shoal.command()
@click.option("--limit", type=Whole(1), metavar="N", help="At most N.")
@state_option
@crawl_name_option
@json_option
def skipped(limit: int | None, state: str | None, crawl_name: str | None, as_json: bool) -> None:
    """List the pages that were skipped, and by which rule."""
    from shoal import report

    with _open(state, crawl_name) as frontier:
        _print_records(frontier.skipped(limit=limit), as_json, report.letter, False)


def _print_records(
    records: Sequence[PageRecord], as_json: bool, line: Callable[[PageRecord, bool], str], errors: bool
) -> None:
    from shoal import report

    for record in records:
        print(report.to_json(record) if as_json else line(record, errors))


@shoal.command()
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option("--host", metavar="HOST", help="Those of this host.")
@click.option("--reason", metavar="TEXT", help="Those with this reason.")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@state_option
@crawl_name_option
def redrive(
    urls: Sequence[str],
    host: str | None,
    reason: str | None,
    everything: bool,
    state: str | None,
    crawl_name: str | None,
) -> None:
    """Queue dead letters again, with fresh attempts: by URL, by host, by reason, or all."""
    if not (urls or host or reason or everything):
        raise ConfigError("which dead letters? Give URLs, --host, --reason or --all")
    from shoal import report

    with _open(state, crawl_name) as frontier:
        wanted: list[str | None] = [report.spelled(frontier, url) for url in urls] or [None]
        count = sum(frontier.redrive(url=url, host=host, reason=reason) for url in wanted)
    print(f"{count} queued again; run the crawl to fetch {'it' if count == 1 else 'them'}")


@shoal.command()
@click.argument("url")
@state_option
@crawl_name_option
@json_option
def why(url: str, state: str | None, crawl_name: str | None, as_json: bool) -> int:
    """Say what became of a URL, and why. Exits with 1 if it was never seen."""
    from shoal import report

    with _open(state, crawl_name) as frontier:
        spelled = report.spelled(frontier, url)
        record = frontier.why(spelled)
        if record is None:
            print(report.never_seen(frontier, spelled, as_json=as_json))
            return 1
        print(report.to_json(record) if as_json else report.why(record))
        return 0


@shoal.command()
@click.argument("url")
@state_option
@crawl_name_option
def forget(url: str, state: str | None, crawl_name: str | None) -> int:
    """Forget a URL and its rows, so that it is fetched when it is found again.

    Rows in an output file stay there.
    """
    from shoal import report

    with _open(state, crawl_name) as frontier:
        spelled = report.spelled(frontier, url)
        if not frontier.forget(spelled):
            print(f"not known, or being fetched just now: {spelled}")
            return 1
        output = frontier.describe().get("output")
        print(f"forgotten: {spelled}" + (f"; its rows stay in {output}" if output else ""))
        return 0


@shoal.command()
@state_option
@crawl_name_option
def pause(state: str | None, crawl_name: str | None) -> None:
    """Let workers finish what they fetch, and start nothing more until `shoal resume`."""
    with _open(state, crawl_name) as frontier:
        frontier.pause()
        print(f"the crawl '{frontier.crawl}' is paused; `shoal resume` lets it go on")


@shoal.command()
@state_option
@crawl_name_option
def resume(state: str | None, crawl_name: str | None) -> None:
    """End `shoal pause`: running workers go on."""
    with _open(state, crawl_name) as frontier:
        frontier.resume()
        print(f"the crawl '{frontier.crawl}' is no longer paused; if no worker runs, start it again")


@shoal.command()
@click.option("-o", "--output", metavar="FILE", help="FILE.jsonl or FILE.csv (default: standard output).")
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), help="Default: by the file's name.")
@click.option("--safe", is_flag=True, help="CSV: keep cells from being taken for formulas.")
@state_option
@crawl_name_option
def export(
    output: str | None, form: Format | None, safe: bool, state: str | None, crawl_name: str | None
) -> None:
    """Write the rows that the state file keeps to a file."""
    from shoal.export import export_file

    with _open(state, crawl_name) as frontier:
        kept = frontier.describe().get("output")
        if kept is not None:
            raise ConfigError(f"the rows of this crawl are in {kept}, not in the state file")
        count = export_file(frontier.items, output, form, safe=safe)
    if output:
        print(f"{count:,} rows in {output}")


if __name__ == "__main__":
    main()
