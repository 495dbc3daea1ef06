"""To look at a crawl: how it stands, and what became of its pages."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from shoal.cli.existing import on_crawl
from shoal.cli.group import let_it_be_caught, shoal
from shoal.cli.options import Whole, frontier_option, json_option
from shoal.cli.place import find_state, open_crawl, place_of

if TYPE_CHECKING:
    from shoal.frontier import Frontier
    from shoal.model import PageRecord

WATCH_S = 2.0


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
    place = place_of(state, frontier) or find_state()
    for name in crawls or (None,):
        open_crawl(place, name, any_of=not crawls).close()
    latest = rows.latest_rows(store) if store is not None else None
    log.set_up(as_json=False, quiet=False, verbose=False)
    let_it_be_caught()
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


def _print_records(
    records: Sequence[PageRecord], as_json: bool, line: Callable[[PageRecord, bool], str], errors: bool
) -> None:
    from shoal import words

    for record in records:
        print(words.to_json(record) if as_json else line(record, errors))
