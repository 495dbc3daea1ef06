"""The one task whose messages really travel: a slice."""

from __future__ import annotations

from typing import Any

from celery import Celery, Task
from celery.worker.request import Request

from shoal.celery import drain
from shoal.celery.office import Office, office_of
from shoal.frontier.tickets import Ticket

STALE = "stale ticket"
BEFORE_HARD_S = 5.0
BEFORE_SOFT_S = 2.0  # soft limits come as exceptions in any line, so they must not come at all

progress: dict[tuple[str, int], dict[str, object]] = {}
"""What running slices have said at the last tick, by crawl and slot: for `celery inspect active`."""


class SliceRequest(Request):  # type: ignore[misc]
    """A slice as the worker's parent sees it."""

    def info(self, safe: bool = False) -> dict[str, Any]:
        """With what the slice has done so far."""
        found: dict[str, Any] = super().info(safe=safe)
        crawl, slot, *_ = self.args
        return found | {"progress": progress.get((crawl, slot), {})}


def register(app: Celery, name: str) -> None:
    """Make it known to an app."""
    app.task(
        _run,
        bind=True,
        name=name,
        shared=False,
        acks_late=True,
        ignore_result=True,
        max_retries=0,
        reject_on_worker_lost=False,
        Request=f"{__name__}:{SliceRequest.__name__}",
    )


def _run(self: Task, crawl: str, slot: int, generation: int) -> dict[str, int] | str:
    """Work for one slice; returns how many pages ended in which state."""
    office = office_of(self.app, crawl)
    hard, soft = self.request.timelimit or (None, None)
    slice_s, grace_s = times(office, hard or self.time_limit, soft or self.soft_time_limit)
    ends = office.bench().run(
        Ticket(slot, generation), draining=drain.is_set, slice_s=slice_s, grace_s=grace_s
    )
    return STALE if ends is None else ends


def times(office: Office, hard: float | None, soft: float | None) -> tuple[float, float]:
    """How long to lease, and how long what has begun may take then: all before any time limit of Celery."""
    limits_s = [hard - BEFORE_HARD_S if hard else None, soft - BEFORE_SOFT_S if soft else None]
    whole_s = max(1.0, min((each for each in limits_s if each is not None), default=float("inf")))
    grace_s = min(office.pace.drain_s, whole_s / 4)
    slice_s = min(office.pace.slice_s, whole_s - grace_s)
    return slice_s, whole_s - slice_s if office.patient else grace_s
