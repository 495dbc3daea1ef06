"""To change a crawl, and put it right: add, redrive, forget, pause, resume, migrate, recover."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from shoal.cli.existing import on_crawl
from shoal.cli.group import let_it_be_caught, shoal
from shoal.cli.options import Whole
from shoal.cli.place import open_crawl
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.frontier import Frontier


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

    They are fetched even if they are out of its scope; links that pages have to such URLs still do not
    count. Lines that are no URLs are written to FILE.rejects with the reason. While it runs the crawl cannot
    be finished.
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
    let_it_be_caught()
    producer = Producer(frontier, priority=priority, max_queued=max_queued)
    producer.add(Link(url=words.spelled(frontier, url), priority=priority) for url in urls)
    if file is not None:
        producer.add_file(file)
    for url in sitemaps:
        producer.add_sitemap(words.spelled(frontier, url), made)
    print(words.added(producer))


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
    then = f"; run the crawl to fetch {'it' if count == 1 else 'them'}" if count else ": no such dead letters"
    print(f"{count} queued again{then}")


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
@click.option("--anyway", is_flag=True, help="Even if the crawl was moved: the copy must not go on.")
def resume(frontier: Frontier, anyway: bool) -> None:
    """End `shoal pause`: running workers go on."""
    from shoal.moving import check_here, mark_moved

    if anyway:
        mark_moved(frontier, None)
    check_here(frontier)
    frontier.resume()
    print(f"the crawl '{frontier.crawl}' is no longer paused; if no worker runs, start it again")


@shoal.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--crawl", "crawl_name", metavar="NAME", help="Which crawl, if FROM has several.")
def migrate(source: str, target: str, crawl_name: str | None) -> None:
    """Move a crawl with all that is known of it, e.g. from sqlite:FILE to redis://HOST:PORT/DB.

    Workers at FROM end, and it goes on at TO as soon as workers are started there. Rows are not moved. If it
    is killed, the same command again does all of it.
    """
    from shoal import words
    from shoal.frontier import open_frontier
    from shoal.migrate import migrate as move

    let_it_be_caught()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open_crawl(source, crawl_name) as old, open_frontier(target, crawl=old.crawl) as new:
        stats = move(
            old,
            new,
            place=words.shown(target),
            waiting=lambda leased: _note(f"waiting for {leased} pages to be finished"),
        )
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
