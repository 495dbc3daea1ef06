"""`shoal export`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from shoal.cli.group import let_it_be_caught, shoal
from shoal.cli.options import crawl_name_options, csv_safe_option
from shoal.cli.place import find_state, is_same_file, open_crawl, place_of
from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.export import Format
    from shoal.frontier import Frontier
    from shoal.store.read import Rows


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

    let_it_be_caught()
    place = place_of(state, frontier)
    with ExitStack() as opened:
        known = None
        if source is None or place is not None:
            place = place or find_state()
            known = opened.enter_context(open_crawl(place, crawl_name))
        if output is not None:
            _keep(output, [source, place, *(_outputs(known) if known else ())])
        rows = _rows(known, source, crawl_name, history)
        exported = export_file(rows, output, form, safe=csv_safe)
    if output:
        print(f"{count(exported, 'row')} in {output}")


def _keep(output: str, places: Iterable[str | None]) -> None:
    """Refuse to write over what is read, or over the rows that the crawl writes."""
    for place in filter(None, places):
        if is_same_file(place, output):
            raise ConfigError(f"{output} belongs to the crawl: export its rows to another file")


def _outputs(known: Frontier) -> list[str]:
    """The places where the rows of a crawl go, apart from its state file."""
    places = known.describe().get("outputs")
    return [*map(str, places)] if isinstance(places, list) else []


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
    places = _outputs(frontier)
    if not places or "postgres" in places[0].partition("://")[0]:
        where = description["output"]
        raise ConfigError(f"the rows of this crawl are in {where}: name the place with --from PLACE")
    return places[0]
