"""Which links this process knows to be seen, so that it need not ask the back end again.

Most links of a page are navigation that has been found a thousand times before; they end here.
"""

from __future__ import annotations

from collections.abc import Iterable

from shoal.model import Link

LONG = 512
"""Longer URLs are not kept: there are few of them, and they would fill the memory."""


class SeenCache:
    """The most recently used links, at most `capacity` of them.

    Two generations instead of a list in order of use: when the young one is full it becomes the old
    one, and what was in the old one and has not been used since is dropped. They hold the URLs themselves,
    whose hashes Python keeps: a fingerprint of each link would cost more than to look it up.
    """

    def __init__(self, capacity: int = 65_536) -> None:
        self._half = capacity // 2
        self._young: set[str] = set()
        self._old: set[str] = set()

    def unknown(self, links: Iterable[Link]) -> list[Link]:
        """Those of the links of which nothing is known."""
        found = []
        for link in links:
            name = _name(link) if link.key else link.url
            if name in self._young:
                continue
            if name in self._old:
                self._keep(name)
            else:
                found.append(link)
        return found

    def learn(self, links: Iterable[Link]) -> None:
        """These are known to be seen."""
        for link in links:
            if len(link.url) < LONG:
                self._keep(_name(link))

    def clear(self) -> None:
        """Something was forgotten: nothing is certain any more."""
        self._young, self._old = set(), set()

    def _keep(self, name: str) -> None:
        self._young.add(name)
        if len(self._young) > self._half:
            self._old, self._young = self._young, set()


def _name(link: Link) -> str:
    return f"{link.url} {link.key}" if link.key else link.url  # a normalized URL holds no space
