"""Where a crawl is: the frontier that options name, and the files that belong to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from shoal.errors import ConfigError

if TYPE_CHECKING:
    from shoal.frontier import Frontier

SUFFIX = ".shoal"


def place_of(state: str | None, frontier: str | None) -> str | None:
    """The URL of the frontier that the options name. A state file goes before the environment's frontier."""
    if state is not None:
        given = click.get_current_context().get_parameter_source("frontier")
        if given is click.core.ParameterSource.COMMANDLINE:
            raise ConfigError("--state and --frontier both say where the URLs are: give one of them")
        return f"sqlite:{state}"
    return frontier


def find_state() -> str:
    """The URL of the only state file in this folder. Raises ConfigError if there is none, or several."""
    found = sorted(str(path) for path in Path().glob(f"*{SUFFIX}"))
    if len(found) == 1:
        return f"sqlite:{found[0]}"
    if not found:
        raise ConfigError(f"there is no state file (*{SUFFIX}) in this folder: name it with --state FILE")
    raise ConfigError(f"there are several state files, name one with --state: {', '.join(found)}")


def open_crawl(place: str, name: str | None, *, any_of: bool = False) -> Frontier:
    """A crawl that exists: that of the name, or the only one, or with `any_of` the first one."""
    from shoal import words
    from shoal.frontier import crawl_names, open_frontier

    if place.startswith("sqlite:") and (file := Path(place.removeprefix("sqlite:"))).exists():
        check_file(str(file), "the state file", "--state")
    names = crawl_names(place)
    shown, option = words.shown(place), words.option(place)
    if not names:
        raise ConfigError(f"there is no crawl in {shown} yet: `shoal crawl URL {option}` starts one")
    if name is None and len(names) > 1 and not any_of:
        raise ConfigError(f"{shown} has several crawls, name one with --crawl: {', '.join(names)}")
    return open_frontier(place, crawl=name or names[0], create=False)


def is_same_file(one: str, other: str) -> bool:
    """Whether both name one file, in whatever way; each may stand behind "sqlite:"."""
    first, second = (Path(each.removeprefix("sqlite:")).resolve() for each in (one, other))
    return first == second


def check_file(file: str, what: str, option: str) -> None:
    """Raise ConfigError unless the file, which `option` names, can be written."""
    path = Path(file)
    if path.is_dir():
        raise ConfigError(f"{what} {file} is a folder: name a file in it with {option}")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder for {what} {file}: make it, or choose another with {option}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(
            f"you may not write {what} {file}: change its permissions, or choose another with {option}"
        )
