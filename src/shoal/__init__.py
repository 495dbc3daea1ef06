"""shoal: a distributed web crawler whose queue survives anything."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.crawl import Crawl, __version__
    from shoal.errors import ConfigError, FrontierError, LoggedOut, ShoalError, StoreError
    from shoal.model import Link
    from shoal.parse import Page
    from shoal.session import AsyncSession, Session

__all__ = [
    "AsyncSession",
    "ConfigError",
    "Crawl",
    "FrontierError",
    "Link",
    "LoggedOut",
    "Page",
    "Session",
    "ShoalError",
    "StoreError",
    "__version__",
]

_HOMES = {
    "Crawl": "crawl",
    "__version__": "crawl",
    "ConfigError": "errors",
    "FrontierError": "errors",
    "LoggedOut": "errors",
    "ShoalError": "errors",
    "StoreError": "errors",
    "Link": "model",
    "Page": "parse",
    "AsyncSession": "session",
    "Session": "session",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: the command line starts in half the time."""
    if name not in _HOMES:
        raise AttributeError(f"module 'shoal' has no attribute '{name}'")
    return getattr(import_module(f"shoal.{_HOMES[name]}"), name)
