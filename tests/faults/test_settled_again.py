"""A commit that was made, though the worker was told that it was not (or was not told that it was)."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from shoal.frontier import open_frontier
from shoal.model import Link, Outcome
from shoal.settle import settle
from shoal.store import open_store

pytestmark = pytest.mark.faults

TARGETS = {"jsonl": "rows.jsonl", "csv": "rows.csv", "sqlite": "sqlite:rows.db"}
URLS = [f"http://{number}.example/" for number in range(3)]


@pytest.mark.parametrize("kind", TARGETS)
def test_settling_again_keeps_the_rows(tmp_path, monkeypatch, kind):
    """The leases are lost the second time, because they were committed the first time: the rows stay."""
    monkeypatch.chdir(tmp_path)
    with open_frontier("sqlite:state.shoal", crawl="again", keep_items=False) as frontier:
        store = open_store(TARGETS[kind], crawl="again")
        with store.open(committed=frontier.position, fresh=False) as position:
            frontier.commit((), positions=[position])
        frontier.add(map(Link, URLS))
        leases = frontier.lease(3, 60.0, worker="w").leases
        outcomes = [Outcome(lease, "done", items=({"url": lease.link.url},)) for lease in leases]
        for part in (outcomes[:1], outcomes, outcomes):
            settle(frontier, [store], part)
        store.close()
        assert frontier.stats().done == 3
        assert read(kind) == URLS


def read(kind: str) -> list[object]:
    """The URLs in the rows."""
    if kind == "sqlite":
        with closing(sqlite3.connect("rows.db")) as db:
            return [url for (url,) in db.execute("SELECT url FROM items ORDER BY _position")]
    text = Path(TARGETS[kind]).read_text()
    if kind == "csv":
        return [row["url"] for row in csv.DictReader(text.splitlines())]
    return [json.loads(line)["url"] for line in text.splitlines()]
