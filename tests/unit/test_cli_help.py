"""The help: there for everything, and quick."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from shoal.cli import shoal


def _commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _commands(each, f"{path} {name}")


COMMANDS = dict(_commands(shoal, "shoal"))


def _installed_modules(*args: str) -> set[str]:
    """The top-level modules from outside the standard library that a command line imports."""
    code = (
        "import sys, json; before = set(sys.modules); sys.argv = ['shoal', *sys.argv[1:]]\n"
        "from shoal.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print('\\n' + json.dumps(sorted(new - sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("args", [["--help"], ["crawl", "--help"], ["--version"], ["no-such-command"]])
def test_help_imports_click_alone(args: list[str]) -> None:
    """Nothing that takes long to import is imported before it is needed."""
    assert _installed_modules(*args) == {"click", "shoal"}


def test_help_imports_little_of_the_standard_library() -> None:
    """Neither asyncio nor sqlite3."""
    code = "import sys, shoal.cli\nsys.stdout.write(str({'asyncio', 'sqlite3', 'ssl'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()"


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_and_option_has_help(path: str) -> None:
    """A sentence for the command, and one for each of its options, with a name for each value."""
    command = COMMANDS[path]
    assert command.help
    assert command.help.strip().partition("\n")[0].endswith(".")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name
            assert parameter.help.endswith((".", ")")), parameter.help
            assert parameter.is_flag or parameter.metavar or isinstance(parameter.type, click.Choice)
        else:
            assert parameter.metavar or parameter.name == "url"


def test_the_commands_are_those_that_are_documented() -> None:
    """At least: crawl, run, demo, and what looks at a crawl or puts it right."""
    assert {path.removeprefix("shoal ") for path in COMMANDS} >= {
        *("crawl", "run", "demo", "status", "dead", "skipped", "redrive", "why", "forget"),
        *("pause", "resume", "export"),
    }
