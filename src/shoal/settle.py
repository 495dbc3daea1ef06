"""Store and commit: the protocol that stores each row exactly once, whatever dies in between."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from msgspec.structs import replace

from shoal.errors import StoreError
from shoal.frontier import Frontier
from shoal.meter import Meter
from shoal.model import Outcome
from shoal.store.base import Position, Store
from shoal.traps import DUPLICATE

NOT_STORABLE = "item cannot be stored"

log = logging.getLogger("shoal.settle")


def settle(
    frontier: Frontier, store: Store | None, outcomes: Sequence[Outcome], meter: Meter | None = None
) -> None:
    """Store the items of `outcomes` and commit them. Without a store the frontier keeps the items.

    meter: is told what was committed, as it was committed.

    Outcomes whose lease was lost are dropped: their pages are being done by somebody else. So it does no
    harm to settle outcomes again after an error. A page whose items the store refuses becomes a dead letter.
    One whose content another page had before is skipped, and brings no items and no links.
    Raises FrontierUnavailable and StoreUnavailable, and StoreError if the store itself cannot be used.
    """
    meter = meter or Meter()
    outcomes = _without_duplicates(frontier, outcomes)
    while outcomes:
        try:
            lost = _write_and_commit(frontier, store, outcomes, meter)
        except StoreError as error:
            _settle_one_by_one(frontier, store, outcomes, meter, error)
            return
        if not lost:
            return
        meter.lost(len(lost))
        log.warning("leases lost: %d; their pages are done again", len(lost))
        outcomes = [outcome for outcome in outcomes if outcome.lease.token not in lost]


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
    frontier: Frontier, store: Store | None, outcomes: Sequence[Outcome], meter: Meter
) -> frozenset[int]:
    if store is None:
        return _commit(frontier, outcomes, None, meter)
    began = time.perf_counter()
    with store.write(outcomes, committed=lambda: frontier.position(store.name)) as position:
        return _commit(frontier, outcomes, position, meter, store_s=time.perf_counter() - began)


def _commit(
    frontier: Frontier,
    outcomes: Sequence[Outcome],
    position: Position | None,
    meter: Meter,
    store_s: float = 0.0,
) -> frozenset[int]:
    began = time.perf_counter()
    lost = frontier.commit(outcomes, position=position)
    if not lost:
        meter.committed(outcomes, store_s, time.perf_counter() - began)
    return lost


def _settle_one_by_one(
    frontier: Frontier, store: Store | None, outcomes: Sequence[Outcome], meter: Meter, error: StoreError
) -> None:
    """Some row of the batch does not fit: let the other pages through, and bury the page that has it."""
    if len(outcomes) > 1:
        for outcome in outcomes:
            settle(frontier, store, [outcome], meter)
    elif outcomes[0].items and store is not None:
        with store.write((), committed=lambda: frontier.position(store.name)):
            pass  # the store as a whole is usable: it raises again if not
        log.error("%s", error)
        refused = replace(
            outcomes[0], state="dead", reason=NOT_STORABLE, error=str(error), items=(), visit=None
        )
        settle(frontier, store, [refused], meter)
    else:
        raise error
