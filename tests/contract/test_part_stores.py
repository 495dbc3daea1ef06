"""What stores of many parts promise (`shoal.store.parts`): in a folder, and below a bucket."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import ledger as ledger_module
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger import PARTS, Ledger, outcome, page
from places import PartsPlace, read_part, rows_of

from shoal.errors import StoreError, StoreUnavailable
from shoal.store import open_store, parts
from shoal.store.folder import LocalFolder
from shoal.store.parquet import ParquetStore, to_row, to_table


@pytest.fixture(params=PARTS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PartsPlace]:
    """An empty place for each kind of store."""
    bucket = None
    if request.param.startswith("s3"):
        server = request.getfixturevalue("s3")
        bucket = server.data / server.BUCKET
    with closing(PartsPlace(request.param, tmp_path, bucket)) as place:
        yield place


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[PartsPlace]:
    """A folder of Parquet files."""
    with closing(PartsPlace("parquet", tmp_path)) as place:
        yield place


# --- written and committed, or not there ---------------------------------------------------------


def test_rows_that_are_not_committed_go(place: PartsPlace):
    """A context that ends without a commit leaves no trace: lost leases, an error, or nothing at all."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    place.ledger.write(store, [page(2)], lost={2})
    with store.write([page(3)], committed=place.ledger.position):
        assert len(place.parts()) == 2
    with (
        pytest.raises(RuntimeError),
        store.write([page(4)], committed=place.ledger.position),
    ):
        raise RuntimeError
    assert place.rows() == rows_of(1)
    place.ledger.write(store, [page(5)])
    assert place.rows() == rows_of(1, 5)


def test_writers_do_not_wait_for_each_other(place: PartsPlace):
    """Two workers write at the same time, and each keeps what it commits."""
    first, second = place.open(), place.open()
    with first.write([page(1)], committed=place.ledger.position) as position:
        place.ledger.write(second, [page(2)])
        place.ledger.commit([page(1)], positions=[position])
    assert place.rows() == rows_of(1, 2)


def test_a_batch_that_is_written_again_replaces_itself(place: PartsPlace):
    """Its part has the name that it had, whatever became of the first try."""
    store = place.open()
    names = []
    for _ in range(2):
        with store.write([page(1), page(2)], committed=place.ledger.position):
            names += [part.name for part in place.parts()]
    assert names[0] == names[1]


@pytest.mark.parametrize(("die", "survive"), [("before", []), ("after", [1])])
def test_a_killed_worker_leaves_what_is_committed(
    place: PartsPlace, tmp_path: Path, die: str, survive: list[int]
):
    """Killed before its commit, its rows are removed by the next one; killed after it they stay."""
    path = tmp_path / "ledger"
    command = [sys.executable, ledger_module.__file__, place.target, str(path), "1", "1", die]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert place.rows() == rows_of(1)
    with closing(Ledger(str(path))) as ledger, closing(place.store()) as store:
        ledger.open(store)
        store.tidy(committed=ledger.position, busy=list)
        assert place.rows() == rows_of(*survive)
        ledger.write(store, [page(7)])
    assert place.rows() == rows_of(*survive, 7)


def test_nothing_of_a_worker_that_may_still_commit_is_removed(place: PartsPlace):
    """While it is alive or holds leases, others leave its parts alone."""
    alive = place.ledger.open(open_store(place.target, crawl="shop", worker="there:1:2/0.1"))
    other = place.open()
    with closing(alive), alive.write([page(1)], committed=place.ledger.position) as position:
        place.tidy(other, busy=["there:1:2/5.1"])
        place.ledger.commit([page(1)], positions=[position])
    place.tidy(other)
    assert place.rows() == rows_of(1)


# --- a frontier that goes back -------------------------------------------------------------------


def test_what_the_frontier_no_longer_knows_goes(place: PartsPlace, monkeypatch: pytest.MonkeyPatch):
    """Parts beyond the position are removed; of one that was put together only the first rows stay."""
    monkeypatch.setattr(parts, "FAN", 4)
    store = place.open()
    for token in range(1, 6):
        place.ledger.write(store, [page(token)])
    assert len(place.parts()) == 2
    place.ledger.record((store.name, 6))
    place.ledger.write(store, [page(7)])
    assert place.rows() == rows_of(1, 2, 3, 7)


def test_what_a_dead_worker_had_beyond_its_position_goes(place: PartsPlace, monkeypatch: pytest.MonkeyPatch):
    """The same, when another one has to do it; and it may be done by several at once."""
    monkeypatch.setattr(parts, "FAN", 4)
    store = place.open()
    for token in range(1, 6):
        place.ledger.write(store, [page(token)])
    place.close_stores()
    place.ledger.record((store.name, 6))
    others = [place.open(), place.open()]
    tidying = [threading.Thread(target=place.tidy, args=(other,)) for other in others]
    for thread in tidying:
        thread.start()
    for thread in tidying:
        thread.join()
    place.tidy(others[0])
    assert place.rows() == rows_of(1, 2, 3)


FATES = st.sampled_from(["commit", "commit", "commit", "lose", "fail", "crash", "go back", "tidy"])
STEPS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), FATES), max_size=14)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_any_history_leaves_exactly_the_committed_rows(steps: list[tuple[int, int, str]]):
    """Two workers, any sequence of commits, lost leases, errors, crashes, roll-backs and tidying."""
    with (
        TemporaryDirectory() as folder,
        closing(PartsPlace("parquet", Path(folder))) as place,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(parts, "FAN", 3)
        workers = [Scripted(place), Scripted(place)]
        dead: list[Scripted] = []
        for token, (who, rows, fate) in enumerate(steps):
            if fate == "crash":
                dead.append(workers[who])
                workers[who].crash(token, rows)
                workers[who] = Scripted(place)
            elif fate == "tidy":
                place.tidy(workers[who].store, [workers[1 - who].name])
            else:
                workers[who].play(token, rows, fate)
        for worker in workers:
            place.tidy(worker.store, [other.name for other in workers])
        assert Counter(place.rows()) == Counter(row for each in [*workers, *dead] for row in each.kept)


class Scripted:
    """A worker, and what it has committed."""

    _numbers = count(1)

    def __init__(self, place: PartsPlace) -> None:
        self.name = f"host:{next(self._numbers)}:0"
        self.kept: list[tuple[str, int]] = []
        self._before: list[tuple[str, int]] = []
        self._place = place
        self.store = place.ledger.open(open_store(place.target, crawl="shop", worker=self.name))

    def play(self, token: int, rows: int, fate: str) -> None:
        ledger = self._place.ledger
        if fate == "go back":
            self.kept = list(self._before)
            ledger.record((self.store.name, len(self.kept)))
        elif fate == "lose":
            ledger.write(self.store, [page(token, rows)], lost={token})
        elif fate == "fail":
            with (
                pytest.raises(RuntimeError),
                self.store.write([page(token, rows)], committed=ledger.position),
            ):
                raise RuntimeError
        else:
            self._before = list(self.kept)
            ledger.write(self.store, [page(token, rows)])
            self.kept += rows_of(token, rows=rows)

    def crash(self, token: int, rows: int) -> None:
        """In the middle of a write: what was there then is what stays."""
        with self.store.write([page(token, rows)], committed=self._place.ledger.position):
            disk = {part: part.read_bytes() for part in self._place.parts()}
        for part, content in disk.items():
            part.write_bytes(content)


# --- sizes ---------------------------------------------------------------------------------------


def test_small_parts_are_put_together(place: PartsPlace):
    """However many batches there were, a worker leaves few parts, with every row once and in order."""
    store = place.open()
    for token in range(1, 101):
        place.ledger.write(store, [page(token)])
        assert len(place.parts()) < 2 * parts.FAN + 2
    assert sorted(place.rows()) == sorted(rows_of(*range(1, 101)))
    place.tidy(store)
    (part,) = place.parts()
    assert [(row["url"], row["n"]) for row in read_part(part)] == rows_of(*range(1, 101))


def test_parts_that_are_large_enough_are_left_alone(place: PartsPlace, monkeypatch: pytest.MonkeyPatch):
    """No part is made that is larger than a limit, so each row is written a few times at most."""
    monkeypatch.setattr(parts, "FAN", 2)
    monkeypatch.setattr(parts.PartStore, "most_bytes", 3_000)
    store = place.open()
    for token in range(1, 40):
        text = random.Random(token).randbytes(200).hex()
        place.ledger.write(store, [outcome(token, {"url": str(token), "n": 0, "text": text})])
    place.tidy(store)
    assert len(place.parts()) > 1
    assert all(part.stat().st_size <= 3_000 for part in place.parts())
    assert sorted(int(url) for url, _ in place.rows()) == [*range(1, 40)]


# --- trouble -------------------------------------------------------------------------------------


def test_parts_that_were_deleted_are_missed(place: PartsPlace):
    """Whoever tidies sees that rows are gone, instead of going on as if they had never been there."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    place.ledger.write(store, [page(2)])
    place.close_stores()
    place.parts()[0].unlink()
    with pytest.raises(StoreError, match=r"rows are missing from .*--fresh"):
        place.tidy(place.open())


def test_a_crawl_removed_meanwhile_is_an_error(place: PartsPlace):
    """When the frontier no longer knows the store, nothing is written."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    place.ledger.purge()
    with pytest.raises(StoreError, match="removed meanwhile"):
        place.ledger.write(store, [page(2)])
    assert place.rows() == rows_of(1)


def test_files_of_others_are_left_alone(place: PartsPlace):
    """What does not look like a part of this kind stays, even with --fresh."""
    place.ledger.write(place.open(), [page(1)])
    foreign = place.path / "notes.txt"
    foreign.write_text("mine")
    place.open(fresh=True)
    assert (place.rows(), foreign.read_text()) == ([], "mine")


def test_an_object_store_that_is_down_loses_nothing(s3, tmp_path: Path):
    """StoreUnavailable says where; the same batch goes in when it is back, also if its answer was lost."""
    with closing(PartsPlace("s3 jsonl", tmp_path, s3.data / s3.BUCKET)) as place:
        store = place.open()
        place.ledger.write(store, [page(1)])
        s3.kill()
        with pytest.raises(StoreUnavailable, match=rf"cannot write to {place.target}: "):
            place.ledger.write(store, [page(2)])
        with pytest.raises(StoreUnavailable, match="cannot write to s3://"):
            place.open()
        s3.start()
        place.ledger.write(store, [page(2)])
        with store.write([page(3)], committed=place.ledger.position):
            s3.kill()
        s3.start()
        place.ledger.write(store, [page(4)])
        assert place.rows() == rows_of(1, 2, 4)


def test_a_bucket_that_is_not_there(s3, tmp_path: Path):
    """Opening says so, in one line."""
    with closing(Ledger()) as ledger, pytest.raises(StoreError, match="there is no such bucket") as caught:
        ledger.open(open_store("s3://nowhere/rows.jsonl", crawl="shop"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("obstacle", ["parent", "file"])
def test_where_no_folder_can_be(folder: PartsPlace, obstacle: str):
    """Opening fails with one line that names the path."""
    path = folder.path / "rows" if obstacle == "parent" else folder.path
    if obstacle == "file":
        path.write_text("x")
    with pytest.raises(StoreError, match=rf"cannot write {path}") as caught:
        folder.ledger.open(folder.store(target=f"parquet:{path}"))
    assert "\n" not in str(caught.value)


def test_half_a_file_is_never_seen(folder: PartsPlace, monkeypatch: pytest.MonkeyPatch):
    """A write that breaks off leaves nothing that a reader takes for a part."""
    store = folder.open()
    monkeypatch.setattr("os.fsync", _full)
    with pytest.raises(StoreUnavailable, match="No space"):
        folder.ledger.write(store, [page(1)])
    assert [path for path in folder.path.rglob("*") if path.is_file()] == [folder.path / "_shoal"]
    monkeypatch.undo()
    folder.ledger.write(store, [page(1)])
    assert folder.rows() == rows_of(1)


def _full(_: int) -> None:
    raise OSError(28, "No space left on device")


# --- Parquet -------------------------------------------------------------------------------------


def _types(*rows: dict[str, object]) -> dict[str, str]:
    return {field.name: str(field.type) for field in to_table([to_row(row) for row in rows]).schema}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, None], "bool"),
        ([1, -(2**62)], "int64"),
        ([1, 2.5], "double"),
        (["a", None], "string"),
        ([datetime(2026, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2)))], "timestamp[us, tz=UTC]"),
        ([datetime(2026, 1, 2)], "timestamp[us]"),
        ([date(2026, 1, 2)], "date32[day]"),
        ([["a", "b"], []], "list<item: string>"),
        ([Decimal("1.10")], "string"),
        ([{"a": 1}], "string"),
        ([["a", 1]], "string"),
        ([1, "x"], "string"),
        ([2**80], "string"),
        ([None], "null"),
    ],
)
def test_columns_are_typed(values: list[object], kind: str):
    """Each value is of the type that people expect; what has none is text, JSON if it is no text itself."""
    assert _types(*({"x": value} for value in values)) == {"x": kind}


def test_values_come_back(folder: PartsPlace):
    """Values of all types are what they were; lists and mappings of mixed content are JSON."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    row = {"t": moment, "d": date(2026, 1, 2), "n": 1, "f": 0.5, "l": ["a"], "m": {"a": [1]}, "x": [1, "b"]}
    folder.ledger.write(folder.open(), [outcome(1, row)])
    assert read_part(folder.parts()[0]) == [{**row, "m": '{"a":[1]}', "x": '[1,"b"]'}]


def test_columns_get_wider(folder: PartsPlace):
    """New fields and new types of values are united when parts are put together, and by DuckDB before."""
    store = folder.open()
    batches: Sequence[dict[str, object]] = [
        {"a": 1, "b": None, "c": ["x"]},
        {"a": 1.5, "b": 7, "c": [2]},
        {"a": 2, "b": "text", "d": True},
    ]
    for token, row in enumerate(batches, 1):
        folder.ledger.write(store, [outcome(token, row)])
    found = duckdb.sql(
        f"SELECT a, b, d FROM read_parquet('{folder.path}/**/*.parquet', union_by_name = true) ORDER BY a"
    ).fetchall()
    assert found == [(1.0, None, None), (1.5, "7", None), (2.0, "text", True)]
    folder.tidy(store)
    (part,) = folder.parts()
    assert pq.read_schema(part).names == ["a", "b", "c", "d"]
    assert read_part(part) == [
        {"a": 1.0, "b": None, "c": ["x"], "d": None},
        {"a": 1.5, "b": "7", "c": ["2"], "d": None},
        {"a": 2.0, "b": "text", "c": None, "d": True},
    ]


def test_parts_are_partitioned_by_day(folder: PartsPlace):
    """Readers find the day on which a row was stored as a column."""
    folder.ledger.write(folder.open(), [page(1)])
    dataset = pyarrow.dataset.dataset(folder.path, partitioning="hive")
    days = set(dataset.to_table().column("date").to_pylist())
    assert days <= {f"{datetime.now(UTC) - timedelta(days=ago):%Y-%m-%d}" for ago in (0, 1)}


def test_row_groups_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Parts that are put together have row groups of a size that readers like."""
    monkeypatch.setattr("shoal.store.parquet.ROW_GROUP", 100)
    store = ParquetStore(LocalFolder(tmp_path / "rows"))
    with closing(Ledger()) as ledger:
        ledger.open(store)
        for token in range(1, 25):
            ledger.write(store, [page(token, rows=20)])
        store.tidy(committed=ledger.position, busy=list)
    (part,) = tmp_path.glob("rows/date=*/*.parquet")
    file = pq.ParquetFile(part).metadata
    assert [file.row_group(n).num_rows for n in range(file.num_row_groups)] == [100] * 4 + [80]
    assert pa.types.is_int64(pq.read_schema(part).field("n").type)
