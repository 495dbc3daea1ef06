"""Store and commit: the protocol that stores each row exactly once, whatever dies in between."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack

from msgspec.structs import replace

from shoal.errors import StoreError
from shoal.frontier import Frontier
from shoal.frontier.base import Sift
from shoal.meter import Meter
from shoal.model import Outcome
from shoal.store.base import Store
from shoal.traps import DUPLICATE

NOT_STORABLE = "item cannot be stored"

log = logging.getLogger("shoal.settle")


def settle(
    frontier: Frontier,
    stores: Sequence[Store],
    outcomes: Sequence[Outcome],
    meter: Meter | None = None,
    sift: Sift | None = None,
) -> None:
    """Store the items of `outcomes`, in each of the stores, and commit them.

    meter: is told what was committed, as it was committed. sift: see `Frontier.commit`.

    Outcomes whose lease was lost are dropped: their pages are being done by somebody else. So it does no
    harm to settle outcomes again after an error. A page whose items the store refuses becomes a dead letter.
    One whose content another page had before is skipped, and brings no items and no links.
    Raises FrontierUnavailable and StoreUnavailable, and StoreError if the store itself cannot be used.
    """
    meter = meter or Meter()
    outcomes = _without_duplicates(frontier, outcomes)
    while outcomes:
        try:
            lost = _write_and_commit(frontier, stores, outcomes, meter, sift)
        except StoreError as error:
            _settle_one_by_one(frontier, stores, outcomes, meter, sift, error)
            return
        if not lost:
            return
        say_lost(len(lost), meter)
        outcomes = [outcome for outcome in outcomes if outcome.lease.token not in lost]


def say_lost(leases: int, meter: Meter) -> None:
    """So many leases turned out to be held no more: count them, and say it."""
    if leases:
        meter.lost(leases)
        log.warning("leases lost: %d; their pages are done again", leases)


def _without_duplicates(frontier: Frontier, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    """Claim the contents that are to be told apart. Whoever was first stays it when this is done again."""
    contents = [(each.digest, each.lease.link.url) for each in outcomes if each.digest is not None]
    if not contents:
        return outcomes
    owners = iter(frontier.claim(contents))
    return [each if each.digest is None else _told_apart(each, next(owners)) for each in outcomes]


def _told_apart(outcome: Outcome, owner: str) -> Outcome:
    if owner == outcome.lease.link.url:
        return outcome
    return replace(
        outcome,
        state="skipped",
        reason=DUPLICATE,
        error=f"as {owner}",
        items=(),
        links=(),
        digest=None,
        visit=None,
    )


def _write_and_commit(
    frontier: Frontier,
    stores: Sequence[Store],
    outcomes: Sequence[Outcome],
    meter: Meter,
    sift: Sift | None,
) -> frozenset[int]:
    began = time.perf_counter()
    with ExitStack() as writing:
        positions = [
            writing.enter_context(store.write(outcomes, committed=frontier.position)) for store in stores
        ]
        written = time.perf_counter()
        lost = frontier.commit(outcomes, positions=positions, sift=sift)
        if not lost:
            store_s = written - began if stores else 0.0
            meter.committed(outcomes, store_s, time.perf_counter() - written)
        return lost


def _settle_one_by_one(
    frontier: Frontier,
    stores: Sequence[Store],
    outcomes: Sequence[Outcome],
    meter: Meter,
    sift: Sift | None,
    error: StoreError,
) -> None:
    """Some row of the batch does not fit: let the other pages through, and bury the page that has it."""
    if len(outcomes) > 1:
        for outcome in outcomes:
            settle(frontier, stores, [outcome], meter, sift)
    elif outcomes[0].items:
        for store in stores:
            with store.write((), committed=frontier.position):
                pass  # the store as a whole is usable: it raises again if not
        log.error("%s", error)
        refused = replace(
            outcomes[0], state="dead", reason=NOT_STORABLE, error=str(error), items=(), visit=None
        )
        settle(frontier, stores, [refused], meter, sift)
    else:
        raise error
