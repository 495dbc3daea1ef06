"""`shoal report`, and the report that a crawl writes at its end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.cli.existing import on_crawl
from shoal.cli.group import shoal
from shoal.cli.options import fail_option, json_option
from shoal.cli.place import check_file
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.frontier import Frontier
    from shoal.report.findings import Findings


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
        check_report(output, "--output")
    found = gather(frontier, at=time.time())
    if as_json:
        print(words.to_json(found))
    else:
        save_report(found, output)
        print(words.links(found, output))
    return int(fail_on_broken and bool(found.broken))


def check_report(file: str, option: str) -> None:
    """Raise ConfigError unless a report can be written there."""
    if Path(file).suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"a report is an HTML page: name it FILE.html with {option}, not {file}")
    check_file(file, "the report", option)


def save_report(found: Findings, output: str) -> None:
    """Write the report into a file, whole or not at all."""
    from shoal.atomic import whole_file
    from shoal.report.page import page

    with whole_file(output) as file:
        file.write_text(page(found), encoding="utf-8")
