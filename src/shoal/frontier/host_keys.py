"""The host keys of a crawl whose politeness is by address: a table of hosts, kept by the back end.

What a name means changes with time, and from machine to machine. So the first answer that any worker gets is
written down, and holds for as long as the crawl lives: the links of a host are in one queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from shoal.lookup import Lookups
from shoal.scope import host_name

CAPACITY = 50_000

HostKey = Callable[[str], str]
"""The host key of a normalized URL: see `shoal.scope.HOST_KEYS`."""

Recall = Callable[[Set[str]], Mapping[str, str]]
Introduce = Callable[[Mapping[str, str]], Mapping[str, str]]


class ByAddress:
    """Gives URLs their host keys: the address of their host, or its name if it has none."""

    def __init__(self, recall: Recall, introduce: Introduce, lookups: Lookups) -> None:
        """recall: what the table has of these hosts.

        introduce: write these down, but for those that it has already, and return what it has of all of them.
        """
        self._recall = recall
        self._introduce = introduce
        self._known: dict[str, str] = {}
        self._lookups = lookups

    def of(self, url: str) -> str:
        """The host key of a normalized URL; `meet` or `recall` has to have seen it."""
        name = host_name(url)
        return self._known.get(name, name)

    def meet(self, urls: Iterable[str]) -> None:
        """These come in: look up the hosts that nobody has looked up yet. Takes some seconds at most."""
        if new := self.recall(urls):
            self._known.update(self._introduce(self._lookups.of(new)))

    def recall(self, urls: Iterable[str]) -> set[str]:
        """Learn the keys of their hosts from the table; returns the hosts that it does not have."""
        names = {host_name(url) for url in urls}
        if len(self._known) > CAPACITY:
            self.forget()
        if new := names - self._known.keys():
            self._known.update(self._recall(new))
        return new - self._known.keys()

    def forget(self) -> None:
        """The table may have been emptied."""
        self._known.clear()
