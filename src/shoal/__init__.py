"""shoal: a distributed web crawler whose queue survives anything."""

from shoal.crawl import Crawl, __version__
from shoal.errors import ConfigError, FrontierError, ShoalError, StoreError
from shoal.model import Link
from shoal.parse import Page

__all__ = ["ConfigError", "Crawl", "FrontierError", "Link", "Page", "ShoalError", "StoreError", "__version__"]
