"""What a worker has on its hands: how much more it may take, and how well it keeps up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shoal.meter import Meter
from shoal.model import Outcome

LOOK_S = 0.25  # how often the event loop is looked at
MOST_SETTLE_S = 10.0  # a batch that takes longer is cut: leases are not extended meanwhile
SLOWLY = 0.05  # how fast pages are taken to be smaller after a large one


class Load:
    """The load of one worker. It belongs to the event loop; only `settled` is for the frontier's thread."""

    def __init__(self, concurrency: int, max_bytes: int, meter: Meter | None = None) -> None:
        """concurrency: fetches at once. max_bytes: in bodies fetched, handled or waiting to be stored.

        meter: what counts, by default a new one.
        """
        self._concurrency = concurrency
        self._max_bytes = max_bytes
        self._bodies = 0
        self._body_bytes = 0
        self._typical_bytes = max_bytes / concurrency
        self._page_s = 0.0
        self._lag_s = 0.0
        self.settle_s = 0.0
        """How long storing and committing a batch takes, on average."""
        self.meter = meter or Meter()
        """What was done so far."""

    def hold(self, size_bytes: int) -> None:
        """A body was read, and is in memory."""
        self._bodies += 1
        self._body_bytes += size_bytes
        smaller_bytes = self._typical_bytes + (size_bytes - self._typical_bytes) * SLOWLY
        self._typical_bytes = max(size_bytes, smaller_bytes)  # the next ones are not to come as a surprise

    def drop(self, size_bytes: int) -> None:
        """It is no longer needed."""
        self._bodies -= 1
        self._body_bytes -= size_bytes

    def bytes_in_flight(self, finished: Sequence[Outcome]) -> int:
        """In bodies that handlers have; of finished pages, whose rows and links wait, what was read."""
        return self._body_bytes + sum(outcome.size_bytes for outcome in finished)

    def room(self, fetching: int, finished: Sequence[Outcome]) -> int:
        """How many more pages may be leased.

        No more than are fetched at once, and as many again that wait to be stored; and none that would
        bring more bytes than allowed, if those that are being read turn out like those before. One page is
        always possible.
        """
        held = fetching + len(finished)
        coming_bytes = (fetching - self._bodies) * self._typical_bytes
        left_bytes = self._max_bytes - self.bytes_in_flight(finished) - coming_bytes
        room = min(
            self._concurrency - fetching,
            2 * self._concurrency - held,
            int(left_bytes / max(1.0, self._typical_bytes)),
        )
        return max(room, 0 if held else 1)

    def batch(self) -> int:
        """How many pages to store and commit at once."""
        return max(1, int(MOST_SETTLE_S / self._page_s)) if self._page_s else self._concurrency

    def settled(self, pages: int, seconds: float) -> None:
        """A batch has been stored and committed."""
        if pages:
            self.settle_s = _average(self.settle_s, seconds)
            self._page_s = _average(self._page_s, seconds / pages)

    async def watch(self) -> None:
        """Measure how late the event loop is, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LOOK_S
            await asyncio.sleep(LOOK_S)
            late_s = max(0.0, loop.time() - due)
            self._lag_s = max(self._lag_s, late_s)
            self.meter.lags.observe(late_s)

    def take_lag_s(self) -> float:
        """How late it was at worst since this was asked last."""
        lag_s, self._lag_s = self._lag_s, 0.0
        return lag_s


def _average(before: float, value: float) -> float:
    return 0.8 * before + 0.2 * value if before else value
