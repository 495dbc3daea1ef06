"""The latest rows of every store that the dashboard reads."""

from __future__ import annotations

import pytest

from shoal.dashboard.rows import TAIL_BYTES, latest_rows
from shoal.errors import ConfigError, StoreError, StoreUnavailable
from shoal.model import Lease, Link, Outcome
from shoal.store import open_store


def stored(target, rows, crawl="shop"):
    """Write rows with a store, one page each."""
    recorded: list[int | None] = [None]
    store = open_store(target, crawl=crawl)
    with store.open(committed=lambda name: recorded[0], fresh=False) as position:
        recorded[0] = position[1]
    for number, row in enumerate(rows, 1):
        lease = Lease(
            token=number, fingerprint=number, link=Link(f"http://a.test/{number}"), host="a.test", attempt=1
        )
        outcomes = [Outcome(lease, "done", items=(row,))]
        with store.write(outcomes, committed=lambda name: recorded[0]) as position:
            recorded[0] = position[1]
    store.close()


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "sqlite:rows.db"])
def test_the_latest_rows_come_first(tmp_path, monkeypatch, name):
    """As they were stored, whatever is in their text."""
    monkeypatch.chdir(tmp_path)
    texts = [f'row {number}, "quoted"' for number in range(5)]
    stored(name, [{"text": text} for text in texts])
    assert [row["text"] for row in latest_rows(name)("shop", 3)] == texts[:1:-1]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
def test_only_the_end_of_a_file_is_read(tmp_path, name):
    """Rows that are cut, or are being written, are left out."""
    target = str(tmp_path / name)
    stored(target, [{"text": f"{number}" + "x" * 1000} for number in range(400)])
    with open(target, "a") as file:  # noqa: PTH123 - it may be either name
        file.write('{"text": "half')
    found = latest_rows(target)("shop", 1000)
    assert found[0]["text"] == "399" + "x" * 1000
    assert TAIL_BYTES / 1100 < len(found) < TAIL_BYTES / 1000


def test_the_latest_rows_of_postgresql_come_first(postgres):
    """Those of the crawl alone."""
    target = f"{postgres.url}?table=dashboard_rows"
    stored(target, [{"n": number} for number in range(5)])
    stored(target, [{"n": 99}], crawl="other")
    assert [row["n"] for row in latest_rows(target)("shop", 3)] == [4, 3, 2]


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "parquet"])
def test_the_latest_rows_of_parts_come_first(s3, tmp_path, form):
    """In a folder and in a bucket, as each batch comes."""
    target = f"s3://{s3.BUCKET}/{tmp_path.name}/rows.{form}" if form != "parquet" else f"parquet:{tmp_path}/r"
    latest = latest_rows(target)
    assert latest("shop", 3) == []
    stored(target, [{"n": number} for number in range(5)])
    assert [row["n"] for row in latest("shop", 3)] == [4, 3, 2]
    assert [row["n"] for row in latest("shop", 50)] == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_parts_that_were_put_together_are_read_from_their_end(s3, tmp_path, form):
    """And only once, however often somebody looks."""
    target = f"s3://{s3.BUCKET}/{tmp_path.name}/rows.{form}"
    stored(target, [{"n": number} for number in range(50)])  # 32 of them become one, 18 are as they were
    latest = latest_rows(target)
    found = [row["n"] for row in latest("shop", 30)]
    assert found == [*range(49, 19, -1)]
    folder = s3.data / target.removeprefix("s3://")
    for part in folder.glob("date=*/*"):
        part.write_bytes(b"")
    assert [row["n"] for row in latest("shop", 30)] == found


def test_what_cannot_be_read_is_told(s3, tmp_path):
    """In a sentence: another kind of store, no such file, no such table, no server."""
    with pytest.raises(ConfigError, match="cannot show rows"):
        latest_rows("s3://bucket/rows")
    with pytest.raises(StoreError, match="no such bucket"):
        latest_rows("s3://nowhere/rows.jsonl")("shop", 1)
    for target in (f"{tmp_path}/none.jsonl", f"{tmp_path}/none.csv", f"sqlite:{tmp_path}/none.db"):
        with pytest.raises(StoreUnavailable, match="cannot read"):
            latest_rows(target)("shop", 1)
    with pytest.raises(StoreUnavailable, match="cannot read"):
        latest_rows("postgresql://127.0.0.1:1/none")("shop", 1)
