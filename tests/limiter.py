"""A site with a rate limit, which says how well a crawl has kept to it."""

from __future__ import annotations

from collections import deque

from tests.servers import Reply, Request, page

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
