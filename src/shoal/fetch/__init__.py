"""One HTTP hop: a URL in, what the server answered or why it did not out. Nothing else talks to web sites."""

from shoal.fetch.fetcher import Fetcher, FetchSettings

__all__ = ["FetchSettings", "Fetcher"]
