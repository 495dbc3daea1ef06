"""The command line: arguments in, text out. What a command needs is imported when it runs.

Exit codes: 0 done; 1 nothing was fetched, or, with --strict, some pages became dead letters, or, with
--fail-on-broken, there are broken links; 2 bad usage or input; 130 interrupted.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from shoal.errors import ConfigError, ShoalError

if TYPE_CHECKING:
    from shoal.crawl import Crawl
    from shoal.export import Format
    from shoal.frontier import Frontier
    from shoal.local import Job
    from shoal.model import PageRecord, Stats
    from shoal.report.findings import Findings
    from shoal.store.read import Rows
    from shoal.words import Speaker

SUFFIX = ".shoal"
INTERRUPTED = 130
WATCH_S = 2.0
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

Command = TypeVar("Command", bound=Callable[..., Any])


class Group(click.Group):
    """The commands."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run one. A pipe that closes, as in `shoal export | head`, ends it quietly."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return code


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
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


def _complain(message: str, code: int = 2) -> int:
    from shoal.log import visible

    print(f"shoal: {visible(' '.join(message.split()))}", file=sys.stderr)
    return code


def _let_it_be_caught() -> None:
    """From now on Ctrl-C is an exception: there is something to be tidied up (see `shoal.__main__`)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Whole(click.IntRange):
    """A whole number, called so if something else is given."""

    name = "whole number"


class Number(click.FloatRange):
    """A number, called so if something else is given."""

    name = "number"


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A time with its unit, such as "90s", "30m", "6h", "1d", "2w", in seconds."""
    if value is None:
        return None
    number, unit = value[:-1], UNITS_S.get(value[-1:])
    if unit is not None and number.replace(".", "", 1).isdecimal() and float(number) > 0:
        return float(number) * unit
    raise click.BadParameter(f"'{value}' is not a time: write it like 30m, 6h or 1d", ctx, param)


# --- crawling -----------------------------------------------------------------------------


def _options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several click options as one decorator, in the order given."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


frontier_option = click.option(
    "--frontier",
    metavar="URL",
    envvar="SHOAL_FRONTIER",
    help="Where the URLs are, instead of a state file: redis://HOST:PORT/DB.",
)
csv_safe_option = click.option(
    "--csv-safe", is_flag=True, help="CSV: put ' in front of text that a spreadsheet would run as a formula."
)
fail_option = click.option("--fail-on-broken", is_flag=True, help="Exit with 1 if there are broken links.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

fetch_options = _options(
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
    click.option("--insecure", is_flag=True, help="Accept any TLS certificate."),
    click.option(
        "--auth",
        multiple=True,
        metavar="HOST=USER:PASSWORD",
        help="Credentials for a host, or HOST='bearer TOKEN'; $NAME in single quotes is read from the"
        " environment.",
    ),
    click.option("--auth-file", metavar="FILE", help="Credentials and headers by host, in TOML."),
    click.option(
        "--cache", metavar="DIR", help="Keep responses there and answer from them, while developing."
    ),
    click.option(
        "--allow-private", is_flag=True, default=None, help="Fetch from addresses that are not public, too."
    ),
)

metrics_options = _options(
    click.option(
        "--metrics-port",
        type=Whole(0, 65_535),
        metavar="N",
        help="Serve metrics for Prometheus at http://127.0.0.1:N/metrics; 0: any free port.",
    ),
    click.option(
        "--metrics-host", default="127.0.0.1", metavar="ADDRESS", help="Serve metrics there instead."
    ),
)

crawl_options = _options(
    click.option(
        "-o",
        "--output",
        "outputs",
        multiple=True,
        metavar="PLACE",
        help="Where the rows go: FILE.jsonl, FILE.csv, sqlite:FILE, parquet:DIR, postgresql://...,"
        " s3://BUCKET/NAME.jsonl, .jsonl.gz, .jsonl.zst or .parquet, MODULE:CLASS; it may be given several"
        " times"
        " (default: the state file).",
    ),
    click.option(
        "--archive",
        metavar="PLACE",
        help="Archive raw pages as WARC files in a folder, or below s3://BUCKET/PREFIX.",
    ),
    csv_safe_option,
    click.option(
        "--sitemap", "sitemaps", multiple=True, metavar="URL", help="Start from a sitemap or feed as well."
    ),
    click.option(
        "--robots-sitemaps", is_flag=True, default=None, help="Read the sitemaps that robots.txt names."
    ),
    click.option(
        "--sitemap-priority", is_flag=True, default=None, help="Take the priority of pages from sitemaps."
    ),
    click.option(
        "--revisit",
        "revisit_s",
        callback=_seconds,
        metavar="TIME",
        help="Visit finished pages again after so long: 30m, 6h, 1d.",
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
        "--max-queued", type=Whole(1), metavar="N", help="Further links that pages have wait in the overflow."
    ),
    click.option(
        "--concurrency", type=Whole(1), metavar="N", help="Fetches at once per process (default 32)."
    ),
    click.option(
        "--max-bytes-in-flight",
        type=Whole(1),
        metavar="N",
        help="Lease no more while pages in memory are larger, per process (default 256000000).",
    ),
    click.option("--per-host", type=Whole(1), metavar="N", help="Fetches at once per host (default 8)."),
    click.option(
        "--delay",
        "delay_s",
        type=Number(0),
        metavar="S",
        help="Seconds between two fetches of a host (default 0, or what robots.txt asks for).",
    ),
    click.option("--no-adapt", is_flag=True, help="Ask no less of hosts that are slow, busy or failing."),
    click.option(
        "--politeness",
        type=click.Choice(["host", "domain", "address"]),
        help="Whether delays and limits are about each host (default), a whole domain or an IP address.",
    ),
    click.option(
        "--retries", type=Whole(0), metavar="N", help="Further tries of a failed fetch (default 3)."
    ),
    click.option(
        "--retry",
        "retries_by",
        multiple=True,
        metavar="CAUSE=N",
        help="The same for one cause: dns, refused, reset, timeout, 503, 5xx, 404, handler ...",
    ),
    click.option(
        "--host-give-up",
        type=Whole(0),
        metavar="N",
        help="Give up a host after N failures in a row (default 8, 0: never).",
    ),
    fetch_options,
    click.option("--ignore-robots", is_flag=True, help="Do not read robots.txt."),
    click.option("--obey-nofollow", is_flag=True, default=None, help="Ignore links marked nofollow."),
    click.option("--obey-noindex", is_flag=True, default=None, help="No rows of pages marked noindex."),
    click.option(
        "--obey-canonical", is_flag=True, default=None, help="Fetch a page's rel=canonical instead of it."
    ),
    click.option("--iframes", "follow_iframes", is_flag=True, default=None, help="Follow frames too."),
    click.option("--sort-query", is_flag=True, default=None, help="?b=1&a=2 is the same page as ?a=2&b=1."),
    click.option("--drop-tracking", is_flag=True, help="Drop utm_* and the like from URLs."),
    click.option("--drop-sessions", is_flag=True, default=None, help="Drop session ids from URLs."),
    click.option("--ignore-traps", is_flag=True, help="Cut no links for looking like a spider trap."),
    click.option(
        "--max-url-length", type=Whole(1), metavar="N", help="Cut links longer than this (default 2048)."
    ),
    click.option(
        "--max-repeats",
        type=Whole(2),
        metavar="N",
        help="Cut links that repeat path segments so often (default 3).",
    ),
    click.option(
        "--years-ahead",
        type=Whole(0),
        metavar="N",
        help="Cut links to calendar pages later than N years from now (default 5).",
    ),
    click.option(
        "--years-back",
        type=Whole(0),
        metavar="N",
        help="Cut links to calendar pages earlier than N years ago.",
    ),
    click.option(
        "--max-per-shape", type=Whole(1), metavar="N", help="Cut links beyond N of one shape and host."
    ),
    click.option(
        "--max-per-path", type=Whole(1), metavar="N", help="Cut links beyond N that differ in the query only."
    ),
    click.option(
        "--duplicates",
        type=click.Choice(["keep", "body", "text"]),
        help="Skip pages with the same body, or text, as another one (default keep).",
    ),
    click.option(
        "--external",
        is_flag=True,
        default=None,
        help="Fetch links to other hosts too, unread, to see whether they are dead.",
    ),
    click.option("--report", "report_to", metavar="FILE.html", help="Write a report at the end."),
    click.option(
        "--survey", is_flag=True, default=None, help="Keep of each page what `shoal report` wants to know."
    ),
    fail_option,
    click.option("--state", metavar="FILE", help=f"The state file (default: NAME{SUFFIX})."),
    frontier_option,
    click.option("--processes", type=Whole(1), default=1, metavar="N", help="Default 1."),
    metrics_options,
    click.option("--fresh", is_flag=True, help="Forget what was crawled before, rows included."),
    click.option("--strict", is_flag=True, help="Exit with 1 if any page became a dead letter."),
    click.option("-q", "--quiet", is_flag=True, help="Print errors only."),
    click.option("-v", "--verbose", is_flag=True, help="Print a line for each page."),
    click.option("--log-json", is_flag=True, help="Log as JSON lines."),
    click.option(
        "--otel", is_flag=True, help="Send an OpenTelemetry span for each page, as the OTEL_* variables say."
    ),
)


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
    **settings: Any,
) -> int:
    from shoal import local, log, words
    from shoal.metrics import Address
    from shoal.progress import progress

    made.change(**_settings(**settings))
    if report_to or fail_on_broken:
        made.change(survey=True)
    if not made.start_urls():
        raise ConfigError(
            f"the crawl '{made.name}' has no seeds: write seeds=[\"http://...\"] in shoal.Crawl()"
        )
    place = _place(state, frontier) or f"sqlite:{made.name.replace(':', '_').replace('/', '_')}{SUFFIX}"
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
        _check_place(report_to, "the report", "--report")
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
        _write_report(found, report_to)
    say.report(found, report_to)
    return int(fail and bool(found.broken))


def _write_report(found: Findings, output: str) -> None:
    from shoal.atomic import whole_file
    from shoal.report.page import page

    with whole_file(output) as file:
        file.write_text(page(found), encoding="utf-8")


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
        _check_place(state, "the state file", "--state")
    stores = job.open_stores()
    if len({store.place for store in stores}) < len(stores):
        raise ConfigError("a place for the rows is given twice: give each --output once")
    for output in (output for output in job.outputs if FILE.fullmatch(output)):
        file = output.removeprefix("sqlite:")
        _check_place(file, "the output file", "--output")
        if state is not None and Path(file).resolve() == Path(state).resolve():
            raise ConfigError(f"{file} is the state file, which keeps the rows by itself: leave --output out")
    if state is not None and not (Path(state).exists() and job.crawl.name in crawl_names(job.frontier)):
        for store in stores:
            with closing(store), store.open(committed=lambda _: None, fresh=job.fresh):
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
    retries_by: Sequence[str],
    no_adapt: bool,
    ignore_robots: bool,
    ignore_traps: bool,
    drop_tracking: bool,
    sitemaps: Sequence[str] = (),
    **others: Any,
) -> dict[str, object]:
    """The options as settings; None where nothing was given."""
    from shoal.urls import TRACKING_PARAMS

    return {
        **_fetch_settings(**others),
        "allow": allow or None,
        "deny": deny or None,
        "sitemaps": sitemaps or None,
        "retries_by": dict(map(_cause, retries_by)) or None,
        "adapt": False if no_adapt else None,
        "obey_robots": False if ignore_robots else None,
        "avoid_traps": False if ignore_traps else None,
        "drop_params": TRACKING_PARAMS if drop_tracking else None,
    }


def _fetch_settings(
    *, headers: Sequence[str], auth: Sequence[str], auth_file: str | None, insecure: bool, **others: Any
) -> dict[str, object]:
    kept = _read_auth_file(auth_file) if auth_file is not None else {}
    return {
        **others,
        "headers": [_header(text) for text in headers] or None,
        "auth": {**kept.get("auth", {}), **dict(map(_credentials, auth))} or None,
        "host_headers": kept.get("headers"),
        "verify_tls": False if insecure else None,
    }


def _read_auth_file(file: str) -> dict[str, Any]:
    import tomllib

    try:
        kept = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the file of credentials {file} cannot be read: {error.strerror}") from error
    except ValueError:
        raise ConfigError(
            f"the file of credentials {file} is not TOML"
        ) from None  # whose words may be secret
    if not kept.keys() <= {"auth", "headers"}:
        raise ConfigError(f'the file of credentials {file} may have the tables [auth] and [headers."HOST"]')
    return kept


def _credentials(text: str) -> tuple[str, str]:
    host, equals, value = text.partition("=")
    if not equals:
        raise ConfigError("--auth: write HOST=USER:PASSWORD or HOST='bearer TOKEN'")
    return host, value


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError(f"not a header: '{text}'; write 'NAME: VALUE'")
    return name.strip(), value.strip()


def _cause(text: str) -> tuple[str, int]:
    cause, _, number = text.partition("=")
    if not number.isdecimal():
        raise ConfigError(f"not a number of retries: '{text}'; write CAUSE=N, such as timeout=1")
    return cause, int(number)


@shoal.command()
@click.argument("scraper", metavar="SCRAPER.py[:NAME]")
@crawl_options
@click.option("--drain", is_flag=True, help="Stop when the crawl is finished.")
def worker(scraper: str, **options: Any) -> int:
    """Work on a crawl together with other workers, on this machine or others.

    They share the frontier that --frontier names. Without --drain it goes on for ever, waiting for URLs
    that somebody adds.
    """
    from shoal.scraper import load

    return _crawl(load(scraper), {}, (), **options)


# --- developing a scraper -----------------------------------------------------------------


@shoal.command("test")
@click.argument("scraper", metavar="SCRAPER.py[:NAME]")
@click.argument("url")
@json_option
@fetch_options
def try_out(scraper: str, url: str, as_json: bool, **options: Any) -> int:
    """Fetch one page, run its handler, and print the rows and links that it gives.

    Nothing is stored, and no frontier is touched; robots.txt is not asked. Exits with 1 if there is no page
    or the handler raises.
    """
    from shoal import access, direct, words
    from shoal.log import visible_lines
    from shoal.model import Link
    from shoal.scraper import load
    from shoal.session import Unanswered

    made = load(scraper)
    made.change(**_fetch_settings(**options))
    access.check(made)
    try:
        trial = direct.try_out(made, Link(url))
    except Unanswered as error:
        return _complain(str(error), 1)
    if trial.error:
        print(visible_lines(trial.error), file=sys.stderr)
        return 1
    if said := words.trial(trial, as_json=as_json):
        print(said)
    return 0


@shoal.command("shell")
@click.argument("url")
@click.argument("scraper", metavar="[SCRAPER.py[:NAME]]", required=False)
@fetch_options
def open_shell(url: str, scraper: str | None, **options: Any) -> int:
    """Fetch a page and open a Python prompt with it.

    With a scraper, its settings, credentials and login are used. The prompt is IPython's if it is installed.
    """
    from shoal import access
    from shoal.crawl import Crawl
    from shoal.scraper import load
    from shoal.session import Unanswered
    from shoal.shell import interact

    made = load(scraper) if scraper else Crawl("shell")
    made.change(seeds=(*made.settings.seeds, url), **_fetch_settings(**options))
    access.check(made)
    _let_it_be_caught()
    try:
        interact(made, url)
    except Unanswered as error:
        return _complain(str(error), 1)
    return 0


@shoal.command()
@click.option("--processes", type=Whole(1), default=1, metavar="N", help="Default 1.")
def demo(processes: int) -> int:
    """Crawl a small shop that shoal itself serves on this machine, and show the rows."""
    from shoal.demo import run_demo

    _let_it_be_caught()
    return run_demo(processes)


# --- looking at a crawl, and putting it right ---------------------------------------------


def _place(state: str | None, frontier: str | None) -> str | None:
    """The URL of the frontier that the options name."""
    if state is not None:
        return f"sqlite:{state}"
    return frontier


def _find_state() -> str:
    found = sorted(str(path) for path in Path().glob(f"*{SUFFIX}"))
    if len(found) == 1:
        return f"sqlite:{found[0]}"
    if not found:
        raise ConfigError(f"there is no state file (*{SUFFIX}) in this folder: name it with --state FILE")
    raise ConfigError(f"there are several state files, name one with --state: {', '.join(found)}")


def _open(place: str, name: str | None, *, any_of: bool = False) -> Frontier:
    """A crawl that exists: that of the name, or the only one, or with `any_of` the first one."""
    from shoal import words
    from shoal.frontier import crawl_names, open_frontier

    if place.startswith("sqlite:") and (file := Path(place.removeprefix("sqlite:"))).exists():
        _check_place(str(file), "the state file", "--state")
    names = crawl_names(place)
    shown, option = words.shown(place), words.option(place)
    if not names:
        raise ConfigError(f"there is no crawl in {shown} yet: `shoal crawl URL {option}` starts one")
    if name is None and len(names) > 1 and not any_of:
        raise ConfigError(f"{shown} has several crawls, name one with --crawl: {', '.join(names)}")
    return open_frontier(place, crawl=name or names[0], create=False)


def on_crawl(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name a crawl to a command, which gets its frontier as the first argument."""

    @wraps(command)
    def run_command(*, state: str | None, frontier: str | None, crawl_name: str | None, **others: Any) -> Any:
        with _open(_place(state, frontier) or _find_state(), crawl_name) as opened:
            return command(opened, **others)

    return crawl_name_options(run_command)


crawl_name_options = _options(
    click.option("--state", metavar="FILE", help="The state file (default: the one in this folder)."),
    frontier_option,
    click.option("--crawl", "crawl_name", metavar="NAME", help="Which crawl, if there are several."),
)


@shoal.command()
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@json_option
@on_crawl
def status(frontier: Frontier, as_json: bool, watch: bool) -> None:
    """Show how the crawl stands."""
    from shoal import words

    while watch:
        clear = "\033[H\033[2J" if sys.stdout.isatty() else ""
        print(clear + words.status(frontier, as_json=as_json), flush=True)
        time.sleep(WATCH_S)
    print(words.status(frontier, as_json=as_json))


@shoal.command()
@click.option("--state", metavar="FILE", help="The state file (default: the one in this folder).")
@frontier_option
@click.option(
    "--crawl", "crawls", multiple=True, metavar="NAME", help="Only this crawl; may be given several times."
)
@click.option(
    "--store",
    metavar="STORE",
    help="Show rows of it: FILE.jsonl, FILE.csv,"
    " sqlite:FILE, postgresql://..., parquet:DIR, s3://BUCKET/NAME.jsonl or .parquet.",
)
@click.option(
    "--host", default="127.0.0.1", metavar="HOST", help="Serve at this address (default 127.0.0.1)."
)
@click.option("--port", type=Whole(0, 65_535), default=8080, metavar="N", help="Default 8080; 0: a free one.")
@click.option(
    "--token",
    envvar="SHOAL_DASHBOARD_TOKEN",
    metavar="TOKEN",
    help="Ask for this token; needed unless it is served at a loopback address.",
)
@click.option(
    "--name", "names", multiple=True, metavar="NAME", help="Serve it under this host name, too (a proxy's)."
)
def dashboard(
    state: str | None,
    frontier: str | None,
    crawls: tuple[str, ...],
    store: str | None,
    host: str,
    port: int,
    token: str | None,
    names: tuple[str, ...],
) -> None:
    """Serve a web page that shows how crawls stand, and lets one put them right, until Ctrl-C."""
    from shoal import log
    from shoal.dashboard import guard, rows, server

    guard.check_bind(host, token)
    place = _place(state, frontier) or _find_state()
    for name in crawls or (None,):
        _open(place, name, any_of=not crawls).close()
    latest = rows.latest_rows(store) if store is not None else None
    log.set_up(as_json=False, quiet=False, verbose=False)
    _let_it_be_caught()
    server.serve(
        lambda: server.Dashboard(place, guard.Guard(token, names), crawls=crawls, latest=latest),
        host,
        port,
        lambda url: print(f"the dashboard is at {url} (Ctrl-C ends it)", flush=True),
    )


@shoal.command()
@click.option("--host", metavar="HOST", help="Only those of this host.")
@click.option("--reason", metavar="TEXT", help="Only those with this reason.")
@click.option("--limit", type=Whole(1), metavar="N", help="At most N.")
@click.option("--errors", is_flag=True, help="Show the whole error, such as the traceback of a handler.")
@json_option
@on_crawl
def dead(
    frontier: Frontier, host: str | None, reason: str | None, limit: int | None, errors: bool, as_json: bool
) -> None:
    """List the dead letters: pages that were given up, and why."""
    from shoal import words

    _print_records(frontier.dead(host=host, reason=reason, limit=limit), as_json, words.letter, errors)


@shoal.command()
@click.option("--summary", is_flag=True, help="Only count them, by rule and host.")
@click.option("--host", metavar="HOST", help="Only those of this host.")
@click.option("--reason", metavar="TEXT", help="Only those with this reason.")
@click.option("--limit", type=Whole(1), metavar="N", help="At most N.")
@json_option
@on_crawl
def skipped(
    frontier: Frontier, summary: bool, host: str | None, reason: str | None, limit: int | None, as_json: bool
) -> None:
    """List the pages that were skipped, and by which rule.

    Of the links that a trap rule cuts on one host, the first thousand are listed; all of them are counted.
    """
    from shoal import words

    if summary:
        rows = words.skips(frontier, host=host, reason=reason)[:limit]
        for line in map(words.to_json, rows) if as_json else [words.table(rows)] if rows else []:
            print(line)
    else:
        records = frontier.skipped(host=host, reason=reason, limit=limit)
        _print_records(records, as_json, words.letter, False)


@shoal.command()
@click.option("--limit", type=Whole(1), default=20, metavar="N", help="At most N (default 20).")
@json_option
@on_crawl
def hosts(frontier: Frontier, limit: int, as_json: bool) -> None:
    """List the hosts, the slowest first: what is asked of them at present, and why."""
    from shoal import words

    records = frontier.hosts(limit=limit)
    print("\n".join(map(words.to_json, records)) if as_json else words.hosts(records))


@shoal.command("report")
@click.option("-o", "--output", metavar="FILE", default="report.html", help="Default report.html.")
@fail_option
@json_option
@on_crawl
def write_report(frontier: Frontier, output: str, fail_on_broken: bool, as_json: bool) -> int:
    """Write a report on the crawl, finished or not: one HTML page that needs nothing else.

    Broken links and redirects with the pages that link there, throughput, answers, errors, what was skipped,
    and hosts. Which pages link where is known of crawls with --report or --survey. --json prints it instead.
    """
    from shoal import words
    from shoal.report.findings import gather

    if not as_json:
        _check_place(output, "the report", "--output")
    found = gather(frontier, at=time.time())
    if as_json:
        print(words.to_json(found))
    else:
        _write_report(found, output)
        print(words.links(found, output))
    return int(fail_on_broken and bool(found.broken))


def _print_records(
    records: Sequence[PageRecord], as_json: bool, line: Callable[[PageRecord, bool], str], errors: bool
) -> None:
    from shoal import words

    for record in records:
        print(words.to_json(record) if as_json else line(record, errors))


@shoal.command()
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option("--host", metavar="HOST", help="Those of this host.")
@click.option("--reason", metavar="TEXT", help="Those with this reason.")
@click.option("--all", "everything", is_flag=True, help="All of them.")
@on_crawl
def redrive(
    frontier: Frontier, urls: Sequence[str], host: str | None, reason: str | None, everything: bool
) -> None:
    """Queue dead letters again, with fresh attempts: by URL, by host, by reason, or all."""
    if not (urls or host or reason or everything):
        raise ConfigError("which dead letters? Give URLs, --host, --reason or --all")
    from shoal import words

    wanted: list[str | None] = [words.spelled(frontier, url) for url in urls] or [None]
    count = sum(frontier.redrive(url=url, host=host, reason=reason) for url in wanted)
    print(f"{count} queued again; run the crawl to fetch {'it' if count == 1 else 'them'}")


@shoal.command()
@click.argument("url")
@json_option
@on_crawl
def why(frontier: Frontier, url: str, as_json: bool) -> int:
    """Say what became of a URL, and why. Exits with 1 if it was never seen."""
    from shoal import words
    from shoal.model import SITEMAP

    spelled = words.spelled(frontier, url)
    record = frontier.why(spelled) or frontier.why(spelled, SITEMAP)
    if record is None:
        print(words.never_seen(frontier, spelled, as_json=as_json))
        return 1
    print(words.to_json(record) if as_json else words.why(record))
    return 0


@shoal.command()
@click.argument("url")
@on_crawl
def forget(frontier: Frontier, url: str) -> int:
    """Forget a URL and its rows, so that it is fetched when it is found again.

    Rows in an output file stay there.
    """
    from shoal import words

    spelled = words.spelled(frontier, url)
    if not frontier.forget(spelled):
        print(f"not known, or being fetched just now: {spelled}")
        return 1
    output = frontier.describe().get("output")
    print(f"forgotten: {spelled}" + (f"; its rows stay in {output}" if output else ""))
    return 0


@shoal.command()
@on_crawl
def pause(frontier: Frontier) -> None:
    """Let workers finish what they fetch, and start nothing more until `shoal resume`."""
    frontier.pause()
    print(f"the crawl '{frontier.crawl}' is paused; `shoal resume` lets it go on")


@shoal.command()
@on_crawl
def resume(frontier: Frontier) -> None:
    """End `shoal pause`: running workers go on."""
    frontier.resume()
    print(f"the crawl '{frontier.crawl}' is no longer paused; if no worker runs, start it again")


@shoal.command()
@click.argument("urls", metavar="[URL]...", nargs=-1)
@click.option("--from", "file", metavar="FILE", help="Read URLs from it, one a line (or JSON); - is stdin.")
@click.option("--sitemap", "sitemaps", multiple=True, metavar="URL", help="Read URLs from a sitemap.")
@click.option(
    "--scraper",
    metavar="SCRAPER.py[:NAME]",
    help="Read sitemaps with the headers, credentials and login of this scraper.",
)
@click.option("--priority", type=Whole(0, 9), default=0, metavar="N", help="0..9; higher runs sooner.")
@click.option(
    "--max-queued", type=Whole(1), metavar="N", help="Wait while so many are queued: the crawl's own limit."
)
@on_crawl
def add(
    frontier: Frontier,
    urls: Sequence[str],
    file: str | None,
    sitemaps: Sequence[str],
    scraper: str | None,
    priority: int,
    max_queued: int | None,
) -> None:
    """Add URLs to the crawl; those that it knows are left out.

    Lines that are no URLs are written to FILE.rejects with the reason. While it runs the crawl cannot be
    finished.
    """
    from shoal import access, words
    from shoal.model import Link
    from shoal.produce import Producer
    from shoal.scraper import load

    if not (urls or file or sitemaps):
        raise ConfigError("which URLs? Give URLs, --from FILE or --sitemap URL")
    made = load(scraper) if scraper else None
    if made is not None:
        access.check(made)
    _let_it_be_caught()
    producer = Producer(frontier, priority=priority, max_queued=max_queued)
    producer.add(Link(url=words.spelled(frontier, url), priority=priority) for url in urls)
    if file is not None:
        producer.add_file(file)
    for url in sitemaps:
        producer.add_sitemap(words.spelled(frontier, url), made)
    print(words.added(producer))


@shoal.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--crawl", "crawl_name", metavar="NAME", help="Which crawl, if FROM has several.")
def migrate(source: str, target: str, crawl_name: str | None) -> None:
    """Move a crawl with all that is known of it, e.g. from sqlite:FILE to redis://HOST:PORT/DB.

    It is paused at FROM, and goes on at TO as soon as workers are started there. Rows are not moved.
    """
    from shoal import words
    from shoal.frontier import open_frontier
    from shoal.migrate import migrate as move

    with _open(source, crawl_name) as old, open_frontier(target, crawl=old.crawl) as new:
        stats = move(old, new, waiting=lambda leased: _note(f"waiting for {leased} pages to be finished"))
        print(words.moved(old, stats, source, target))


@shoal.command()
@click.argument("damaged", metavar="FILE")
@click.argument("target", metavar="NEW")
def recover(damaged: str, target: str) -> None:
    """Save what can be read of a damaged state file into a new one."""
    from shoal.frontier.sqlite_recover import recover as save
    from shoal.progress import count

    pages, items = save(damaged, target)
    print(f"{count(pages, 'URL')} and {count(items, 'row')} saved: go on with --state {target}")


def _note(text: str) -> None:
    print(text, file=sys.stderr)


@shoal.command()
@click.option(
    "--from",
    "source",
    metavar="PLACE",
    help="Where the rows are, as `crawl -o` names it (default: where the crawl has put them).",
)
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="FILE.jsonl, FILE.csv (both also with .gz or .zst), FILE.db for SQLite, or FILE.parquet"
    " (default: standard output).",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv", "sqlite", "parquet"]),
    help="Default: by the file's name.",
)
@click.option(
    "--history", is_flag=True, help="Of pages that were visited again, also the rows that were replaced."
)
@csv_safe_option
@crawl_name_options
def export(
    source: str | None,
    output: str | None,
    form: Format | None,
    history: bool,
    csv_safe: bool,
    state: str | None,
    frontier: str | None,
    crawl_name: str | None,
) -> None:
    """Write the rows of a crawl to a file.

    They come from the state file, or from wherever the crawl has put them. Only rows whose pages are
    committed are read; with --from and no frontier all that are there.
    """
    from shoal.export import export_file
    from shoal.progress import count

    _let_it_be_caught()
    place = _place(state, frontier)
    with ExitStack() as opened:
        known = None
        if source is None or place is not None:
            known = opened.enter_context(_open(place or _find_state(), crawl_name))
        rows = _rows(known, source, crawl_name, history)
        exported = export_file(rows, output, form, safe=csv_safe)
    if output:
        print(f"{count(exported, 'row')} in {output}")


def _rows(known: Frontier | None, source: str | None, crawl_name: str | None, history: bool) -> Rows:
    """The rows of a crawl, or of a place whose crawl need not be known."""
    from shoal.export.current import current
    from shoal.store.read import stored_rows

    if known is not None:
        source = source or _rows_place(known)
        if source is None:
            return known.items
    assert source is not None
    name = known.crawl if known is not None else crawl_name
    committed = known.position if known is not None else lambda store: None
    rows, has_old_ones = stored_rows(source, crawl=name, committed=committed)
    return current(rows) if has_old_ones and not history else rows


def _rows_place(frontier: Frontier) -> str | None:
    """Where a crawl has put its rows; None: they are in its state file."""
    description = frontier.describe()
    if description.get("output") is None:
        return None
    places = description.get("outputs")
    if not isinstance(places, list) or not places or "postgres" in str(places[0]).partition("://")[0]:
        where = description["output"]
        raise ConfigError(f"the rows of this crawl are in {where}: name the place with --from PLACE")
    return str(places[0])


if __name__ == "__main__":
    main()
