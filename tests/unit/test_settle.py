"""Storing and committing a batch, when some of it cannot be."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from shoal.errors import StoreError, StoreUnavailable
from shoal.frontier import Frontier, open_frontier
from shoal.model import Item, Lease, Link, Outcome, Visit
from shoal.settle import NOT_STORABLE, settle
from shoal.store import open_store
from shoal.store.base import Store
from shoal.store.folder import LocalFolder

URLS = [f"http://{number}.example/" for number in range(4)]  # a new host gives one page at a time


@pytest.fixture
def frontier(tmp_path: Path) -> Iterator[Frontier]:
    """With four pages queued."""
    with open_frontier(f"sqlite:{tmp_path}/state.shoal", crawl="books") as frontier:
        frontier.add([Link(url) for url in URLS])
        yield frontier


def _opened(frontier: Frontier, target: Path, fields: Sequence[str] = ()) -> Store:
    store = open_store(str(target), crawl="books", fields=fields)
    with store.open(committed=frontier.position, fresh=False) as position:
        frontier.commit((), positions=[position])
    return store


def _leases(frontier: Frontier, count: int = 4) -> tuple[Lease, ...]:
    leases = frontier.lease(count, 60.0, worker="w").leases
    assert len(leases) == count
    return leases


def _done(lease: Lease, *items: Item) -> Outcome:
    return Outcome(lease=lease, state="done", items=items or ({"url": lease.link.url},))


def test_rows_and_outcomes_go_together(frontier: Frontier, tmp_path: Path) -> None:
    """The pages are done, and their rows are in the file, in the order of the batch."""
    store = _opened(frontier, tmp_path / "rows.jsonl")
    settle(frontier, [store], [_done(lease) for lease in _leases(frontier)])
    store.close()
    assert frontier.stats().done == 4
    rows = [json.loads(line)["url"] for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows == URLS


def test_without_a_store_the_frontier_keeps_the_rows(frontier: Frontier) -> None:
    """In the same step."""
    settle(frontier, (), [_done(lease) for lease in _leases(frontier)])
    assert [row["url"] for row in frontier.items()] == URLS


def test_nothing_to_settle_is_fine(frontier: Frontier) -> None:
    """An empty batch does nothing."""
    settle(frontier, (), [])
    assert frontier.stats().queued == 4


def test_what_was_lost_is_dropped(
    frontier: Frontier, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A page whose lease was taken back is somebody else's; the others of the batch are done, once."""
    store = _opened(frontier, tmp_path / "rows.jsonl")
    leases = _leases(frontier)
    frontier.release([leases[1].token])
    with caplog.at_level(logging.WARNING, "shoal.settle"):
        settle(frontier, [store], [_done(lease) for lease in leases])
        settle(frontier, [store], [_done(lease) for lease in leases])  # an error made it unclear: once more
    store.close()
    assert (frontier.stats().done, frontier.stats().queued) == (3, 1)
    rows = [json.loads(line)["url"] for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert rows == [URLS[0], URLS[2], URLS[3]]
    assert caplog.messages[0] == "leases lost: 1; their pages are done again"


def test_a_row_that_does_not_fit_costs_its_page_only(
    frontier: Frontier, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It becomes a dead letter with the store's words, without its rows and with its links."""
    store = _opened(frontier, tmp_path / "rows.csv", ["url"])
    first, second, third, fourth = _leases(frontier)
    bad = Outcome(
        lease=second,
        state="done",
        items=({"url": second.link.url}, {"url": "x", "extra": 1}),
        links=(Link("http://books.example/new", depth=1),),
    )
    with caplog.at_level(logging.ERROR, "shoal.settle"):
        settle(frontier, [store], [_done(first), bad, _done(third), _done(fourth)])
    store.close()
    assert (tmp_path / "rows.csv").read_text().split() == ["url", URLS[0], URLS[2], URLS[3]]
    [letter] = frontier.dead()
    assert (letter.url, letter.reason) == (URLS[1], NOT_STORABLE)
    assert 'it has no "extra"' in letter.error
    assert caplog.messages == [letter.error]
    assert (frontier.stats().done, frontier.stats().queued) == (3, 1)


@pytest.mark.parametrize("refused", ["row", "duplicate"])
def test_a_visit_without_its_rows_is_not_recorded(frontier: Frontier, tmp_path: Path, refused: str) -> None:
    """Else the page would count as unchanged the next time, though its rows were never stored."""
    store = _opened(frontier, tmp_path / "rows.csv", ["n"])
    first, second, *_ = _leases(frontier)
    visit = Visit(1.0, 2.0, 1.0, digest=7, rows=1)
    if refused == "row":
        settle(frontier, [store], [Outcome(lease=second, state="done", items=({"m": 1},), visit=visit)])
    else:
        settle(
            frontier,
            [store],
            [Outcome(lease=each, state="done", digest=7, visit=visit) for each in (first, second)],
        )
    store.close()
    record = frontier.why(URLS[1])
    assert record is not None
    assert (record.state, record.visit) == ("dead" if refused == "row" else "skipped", None)


def test_a_store_that_is_gone_stops_the_work(frontier: Frontier, tmp_path: Path) -> None:
    """No page is given up for it: all of them are still leased, and can be released."""
    target = tmp_path / "rows.jsonl"
    store = _opened(frontier, target)
    leases = _leases(frontier)
    target.unlink()
    with pytest.raises(StoreError, match=r"rows are missing from .*rows\.jsonl"):
        settle(frontier, [store], [_done(lease) for lease in leases])
    store.close()
    assert (frontier.stats().leased, frontier.stats().dead) == (4, 0)


def test_a_row_that_one_of_two_stores_refuses_is_in_neither(frontier: Frontier, tmp_path: Path) -> None:
    """Its page becomes a dead letter; the others are in both."""
    csv = _opened(frontier, tmp_path / "rows.csv", ["url"])
    jsonl = _opened(frontier, tmp_path / "rows.jsonl")
    first, second, *others = _leases(frontier)
    bad = Outcome(lease=second, state="done", items=({"url": URLS[1], "other": 1},))
    settle(frontier, [jsonl, csv], [_done(first), bad, *map(_done, others)])
    jsonl.close()
    csv.close()
    kept = [url for url in URLS if url != URLS[1]]
    assert (tmp_path / "rows.csv").read_text().split() == ["url", *kept]
    assert [json.loads(line)["url"] for line in (tmp_path / "rows.jsonl").read_text().splitlines()] == kept
    assert [letter.url for letter in frontier.dead()] == [URLS[1]]


def test_a_store_that_is_down_takes_its_rows_from_the_others(frontier: Frontier, tmp_path: Path) -> None:
    """Nothing is committed; when it is back all have every row once."""
    jsonl = _opened(frontier, tmp_path / "rows.jsonl")
    other = _opened(frontier, tmp_path / "other.jsonl")
    outcomes = [_done(lease) for lease in _leases(frontier)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other, "_append", _down)
        with pytest.raises(StoreUnavailable):
            settle(frontier, [jsonl, other], outcomes)
    assert ((tmp_path / "rows.jsonl").read_text(), frontier.stats().leased) == ("", 4)
    settle(frontier, [jsonl, other], outcomes)
    jsonl.close()
    other.close()
    assert (tmp_path / "rows.jsonl").read_bytes() == (tmp_path / "other.jsonl").read_bytes() != b""
    assert frontier.stats().done == 4


def _down(*_: object) -> int:
    raise StoreUnavailable("the store is down")


def test_a_place_that_is_closed_meanwhile_stops_the_work(frontier: Frontier, tmp_path: Path) -> None:
    """If nothing can be written at all, no page is given up for it."""
    store = open_store(f"parquet:{tmp_path}/rows", crawl="books")
    with store.open(committed=frontier.position, fresh=False) as position:
        frontier.commit((), positions=[position])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalFolder, "put", _closed)
        with pytest.raises(StoreError, match="forbidden"):
            settle(frontier, [store], [_done(lease) for lease in _leases(frontier)])
    assert (frontier.stats().leased, frontier.stats().dead) == (4, 0)


def _closed(*_: object) -> None:
    raise StoreError("cannot write rows: forbidden")
