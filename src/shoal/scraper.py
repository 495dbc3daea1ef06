"""Load the crawl that a user's Python file defines."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from shoal.crawl import Crawl
from shoal.errors import ConfigError


def load(target: str) -> Crawl:
    """Import "FILE.py" or "FILE.py:NAME" and return its Crawl.

    Raises ConfigError: no such file, it does not import (with the traceback of the user's own code),
    it defines no crawl or several.
    """
    path, colon, name = target.rpartition(":") if ".py:" in target else (target, "", "")
    if colon and not name:
        raise ConfigError(f"{target} names no crawl: write {path}:NAME, or {path} alone")
    module = _import(Path(path))
    crawls = {key: value for key, value in vars(module).items() if isinstance(value, Crawl)}
    if name:
        if name not in crawls:
            raise ConfigError(f"{path} has no crawl called '{name}': it has {_listed(crawls)}")
        return crawls[name]
    if not crawls:
        raise ConfigError(f'{path} defines no crawl: write crawl = shoal.Crawl("NAME", seeds=[...]) in it')
    if len({id(crawl) for crawl in crawls.values()}) > 1:
        raise ConfigError(
            f"{path} defines several crawls: name one, as in {path}:{min(crawls)} ({_listed(crawls)})"
        )
    return next(iter(crawls.values()))


def _listed(crawls: dict[str, Crawl]) -> str:
    return ", ".join(crawls) or "none"


def _import(path: Path) -> ModuleType:
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name the Python file in it that defines the crawl")
    if not path.exists():
        raise ConfigError(f"there is no scraper file {path}")
    spec = importlib.util.spec_from_file_location(_module_name(path), path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file (its name must end in .py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except ConfigError as error:
        raise ConfigError(f"{error}{_where(error, path)}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{path} does not import: {_words(error)}{_where(error, path)}") from error
    return module


def _module_name(path: Path) -> str:
    """The file's own, unless a module has it: `shoal run json.py` must not replace that one."""
    return f"scraper_{path.stem}" if path.stem in sys.modules else path.stem


def _words(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it ends the program (sys.exit({error.code or ''!r}))"
    return traceback.format_exception_only(error)[-1].strip()


def _where(error: BaseException, path: Path) -> str:
    """Where in the user's own code it came up: the way to it, on one line."""
    own = [
        f"{Path(frame.filename).name}:{frame.lineno}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if _is_beside(frame.filename, path)
    ]
    if isinstance(error, SyntaxError) and error.filename:
        own.append(f"{Path(error.filename).name}:{error.lineno}: {(error.text or '').strip()}")
    return f" [{' -> '.join(own)}]" if own else ""


def _is_beside(file: str, path: Path) -> bool:
    return not file.startswith("<") and Path(file).resolve().parent == path.resolve().parent
