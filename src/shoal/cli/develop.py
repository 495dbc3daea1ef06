"""While a scraper is written: `shoal test`, `shoal shell`; and `shoal demo`."""

from __future__ import annotations

import sys
from typing import Any

import click

from shoal.cli.group import complain, let_it_be_caught, shoal
from shoal.cli.options import MOST_PROCESSES, Whole, fetch_options, json_option
from shoal.cli.settings import fetch_settings_of


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
    made.change(**fetch_settings_of(**options))
    access.check(made)
    try:
        trial = direct.try_out(made, Link(url))
    except Unanswered as error:
        return complain(str(error), 1)
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
    made.change(seeds=(*made.settings.seeds, url), **fetch_settings_of(**options))
    access.check(made)
    let_it_be_caught()
    try:
        interact(made, url)
    except Unanswered as error:
        return complain(str(error), 1)
    return 0


@shoal.command()
@click.option("--processes", type=Whole(1, MOST_PROCESSES), default=1, metavar="N", help="Default 1.")
def demo(processes: int) -> int:
    """Crawl a small shop that shoal itself serves on this machine, and show the rows."""
    from shoal.demo import run_demo

    let_it_be_caught()
    return run_demo(processes)
