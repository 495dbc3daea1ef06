"""Which fingerprints this process knows to be seen, so that it need not ask the back end again.

Most links of a page are navigation that has been found a thousand times before; they end here.
"""

from __future__ import annotations

from collections.abc import Iterable


class SeenCache:
    """The most recently used fingerprints, at most `capacity` of them.

    Two generations instead of a list in order of use: when the young one is full it becomes the old
    one, and what was in the old one and has not been used since is dropped.
    """

    def __init__(self, capacity: int = 65_536) -> None:
        self._half = capacity // 2
        self._young: set[int] = set()
        self._old: set[int] = set()

    def __contains__(self, fingerprint: int) -> bool:
        if fingerprint in self._young:
            return True
        if fingerprint in self._old:
            self.update((fingerprint,))
            return True
        return False

    def update(self, fingerprints: Iterable[int]) -> None:
        """These are known to be seen."""
        self._young.update(fingerprints)
        if len(self._young) > self._half:
            self._old, self._young = self._young, set()

    def clear(self) -> None:
        """Something was forgotten: nothing is certain any more."""
        self._young, self._old = set(), set()
