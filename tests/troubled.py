"""Hosts that limit, stall or refuse, and how well a crawl has dealt with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tests.servers import Pause, Reply, Request, page, reply
from tests.site import Site

PER_S = 5
WARM_UP_S = 25.0
MEASURED_S = 45.0


class Limiter:
    """A site that lets in so many requests in any second, and answers the others 429, `Retry-After: 1`."""

    LASTS_S = WARM_UP_S + MEASURED_S + 2
    """How long to ask for pages."""

    def __init__(self) -> None:
        self.answers: list[tuple[float, bool]] = []
        self._let_in: deque[float] = deque()

    def __call__(self, request: Request) -> Reply:
        while self._let_in and self._let_in[0] <= request.at - 1:
            self._let_in.popleft()
        lets_in = len(self._let_in) < PER_S
        self.answers.append((request.at, lets_in))
        if not lets_in:
            return page(b"", "429 Too Many Requests", "Retry-After: 1")
        self._let_in.append(request.at)
        number = len(self.answers)
        return page(f'<a href="/{2 * number}">a</a><a href="/{2 * number + 1}">b</a>'.encode())

    def assert_well_used(self) -> None:
        """Few requests were refused, and most of what is allowed was asked for."""
        began = self.answers[0][0] + WARM_UP_S
        settled = [let_in for at, let_in in self.answers if began <= at < began + MEASURED_S]
        refused, used = settled.count(False) / len(settled), settled.count(True) / PER_S / MEASURED_S
        print(f"refused: {refused:.1%}, used: {used:.1%}")
        assert refused < 0.03
        assert used >= 0.85


NUISANCES: dict[str, Callable[[Request], Reply]] = {
    "silent": lambda request: reply(Pause(1_000.0)),
    "slow": lambda request: Reply([Pause(5.0), *page(b"").steps]),
    "refusing": lambda request: page(b"", "429 Too Many Requests"),
}
"""What one host among many may do."""


def assert_little_lost(nuisance: str, alone: Site, beside: Site) -> None:
    """Of two crawls at the same time, the one that met a bad host as well was hardly slower."""
    times = [[fetch.at for fetch in site.log[1:]] for site in (alone, beside)]
    began, ended = max(each[0] for each in times) + 1.0, min(each[-1] for each in times) - 1.0
    both_run = [[at for at in each if began <= at < ended] for each in times]
    rates = [(len(each) - 1) / (each[-1] - each[0]) for each in both_run]
    lost = 1 - rates[1] / rates[0]
    print(f"{nuisance}: {rates[0]:.1f} pages/s without it, {rates[1]:.1f} with it: {lost:.1%} lost")
    assert len(both_run[0]) > alone.pages / 2
    assert lost < 0.05
