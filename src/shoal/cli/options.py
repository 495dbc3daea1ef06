"""Options that several commands have, and their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shoal.cli.place import SUFFIX

MOST_PROCESSES = 1024
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
Command = TypeVar("Command", bound=Callable[..., Any])


class Whole(click.IntRange):
    """A whole number, called so if something else is given."""

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from shoal.crawl import MOST

        number = super().convert(value, param, ctx)
        if number > MOST:
            self.fail(f"{number} is more than {MOST}.", param, ctx)
        return number


class Number(click.FloatRange):
    """A number, called so if something else is given."""

    name = "number"


def seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A time with its unit, such as "90s", "30m", "6h", "1d", "2w", in seconds."""
    if value is None:
        return None
    number, unit = value[:-1], UNITS_S.get(value[-1:])
    if unit is not None and number.replace(".", "", 1).isdecimal() and float(number) > 0:
        return float(number) * unit
    raise click.BadParameter(f"'{value}' is not a time: write it like 30m, 6h or 1d", ctx, param)


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
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

crawl_name_options = together(
    click.option("--state", metavar="FILE", help="The state file (default: the one in this folder)."),
    frontier_option,
    click.option("--crawl", "crawl_name", metavar="NAME", help="Which crawl, if there are several."),
)

fetch_options = together(
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

metrics_options = together(
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

crawl_options = together(
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
        callback=seconds,
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
    click.option(
        "--max-pages",
        type=Whole(1),
        metavar="N",
        help="Get at most N pages; those that fail or are skipped do not count.",
    ),
    click.option("--max-pages-per-host", type=Whole(1), metavar="N", help="The same for each host."),
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
    click.option("--processes", type=Whole(1, MOST_PROCESSES), default=1, metavar="N", help="Default 1."),
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
