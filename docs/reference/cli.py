"""Write cli.md, beside this file, from the commands' own help: `make docs`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from shoal.cli import shoal

WIDTH = 100
INTRODUCTION = """\
# The command line

This page is made from `shoal --help` and the help of each command.

Exit codes: 0 when all is well, 1 if no page was fetched or, with `--strict`, if there are dead letters
or, with `--fail-on-broken`, if there are broken links, 2 for wrong usage or input, 130 after Ctrl-C.
Commands that look at a crawl find its state file by themselves if the folder has only one.
"""


def sections(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[str]:
    """Yield the help of a command and of all commands below it, as Markdown."""
    context = click.Context(
        command, info_name=name, parent=parent, terminal_width=WIDTH, **command.context_settings
    )
    yield f"## {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            child = command.get_command(context, each)
            if child is not None:
                yield from sections(child, each, context)


def page() -> str:
    """Return the whole page."""
    return "\n".join([INTRODUCTION, *sections(shoal, "shoal")])


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page(), encoding="utf-8")
