"""What every store promises (`shoal.store.base`), and then what only one of them does."""

from __future__ import annotations

import csv
import io
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import ledger as ledger_module
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger import PARTS, TARGETS, Ledger, outcome, page
from msgspec.structs import replace
from places import FilePlace, PartsPlace, Place, PostgresPlace, read_file, rows_of

from shoal.errors import ConfigError, StoreError, StoreUnavailable
from shoal.model import SEEN_FIELDS, Outcome, State, Visit
from shoal.store import open_store
from shoal.store.base import Store
from shoal.store.csv import CsvStore


@pytest.fixture(params=[*TARGETS, "postgresql", *PARTS])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty place for each kind of store."""
    if request.param == "postgresql":
        made: Place = PostgresPlace(request.getfixturevalue("postgres").url)
    elif request.param.startswith("s3"):
        server = request.getfixturevalue("s3")
        made = PartsPlace(request.param, tmp_path, server.data / server.BUCKET)
    elif request.param in PARTS:
        made = PartsPlace(request.param, tmp_path)
    else:
        made = FilePlace(request.param, tmp_path)
    with closing(made) as place:
        yield place


def place_of(kind: str) -> pytest.MarkDecorator:
    """Run the test on this kind only."""
    return pytest.mark.parametrize("place", [kind], indirect=True)


only_cutting = pytest.mark.parametrize("place", TARGETS, indirect=True)
"""Rows that nobody has committed are cut off; for others see test_postgres_store.py, test_part_stores.py."""

only_files = pytest.mark.parametrize("place", ["jsonl", "csv"], indirect=True)


# --- written and committed, or not there ---------------------------------------------------------


def test_committed_rows_stay(place: Place):
    """What is written and committed is there, in its order, after any number of restarts."""
    store = place.open()
    place.ledger.write(store, [page(1), page(2)])
    place.ledger.write(store, [page(3)])
    place.close_stores()
    place.ledger.write(place.open(), [page(4)])
    assert place.rows() == rows_of(1, 2, 3, 4)


def test_rows_are_written_before_the_commit(place: Place):
    """Inside the context others can read the rows already, so that no commit can come before them."""
    store = place.open()
    with store.write([page(1)], committed=place.ledger.position):
        assert place.rows() == rows_of(1)


@only_cutting
def test_rows_that_are_not_committed_go(place: Place):
    """A context that ends without a commit leaves no trace."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    with store.write([page(2)], committed=place.ledger.position):
        pass
    assert place.rows() == rows_of(1)


@only_cutting
def test_an_error_in_the_commit_leaves_no_trace(place: Place):
    """An error inside the context comes through, the rows are gone, and the store works on."""
    store = place.open()
    with (
        pytest.raises(RuntimeError, match="no frontier"),
        store.write([page(1)], committed=place.ledger.position),
    ):
        raise RuntimeError("no frontier")
    place.ledger.write(store, [page(2)])
    assert place.rows() == rows_of(2)


def test_an_error_after_the_commit_keeps_the_rows(place: Place):
    """What is committed stays, however the context ends."""
    store = place.open()
    outcomes = [page(1)]

    def commit_and_fail() -> None:
        with store.write(outcomes, committed=place.ledger.position) as position:
            place.ledger.commit(outcomes, positions=[position])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        commit_and_fail()
    assert place.rows() == rows_of(1)


@only_cutting
def test_lost_leases_are_left_out(place: Place):
    """A lost lease commits nothing; writing again without it stores the others once."""
    store = place.open()
    assert place.ledger.write(store, [page(1), page(2), page(3)], lost={2}) == {2}
    assert place.ledger.write(store, [page(1), page(3)]) == frozenset()
    assert place.rows() == rows_of(1, 3)


@only_cutting
def test_a_batch_that_is_lost_altogether_leaves_no_trace(place: Place):
    """Nobody needs to write again for the rows of lost leases to go."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    place.ledger.write(store, [page(2)], lost={2})
    assert place.rows() == rows_of(1)


def test_a_batch_without_items_is_committed_too(place: Place):
    """Pages without items change nothing in the store."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    before = place.ledger.position(store.name)
    place.ledger.write(store, [outcome(2), outcome(3, state="dead")])
    assert place.ledger.position(store.name) == before
    assert place.rows() == rows_of(1)


@only_cutting
def test_two_stores_take_turns(place: Place):
    """Two processes on one store keep each other's rows, whoever wrote last."""
    first, second = place.open(), place.open()
    place.ledger.write(first, [page(1)])
    place.ledger.write(second, [page(2)])
    place.ledger.write(second, [page(3)], lost={3})
    place.ledger.write(first, [page(4)])
    place.ledger.write(second, [page(5)])
    assert place.rows() == rows_of(1, 2, 4, 5)


@only_cutting
def test_a_write_waits_for_the_commit_of_another(place: Place):
    """The position is asked for under the lock: a commit that was under way is never cut off."""
    first, second = place.open(), place.open()
    other = threading.Thread(target=place.ledger.write, args=(second, [page(2)]))
    outcomes = [page(1)]
    with first.write(outcomes, committed=place.ledger.position) as position:
        other.start()
        other.join(0.05)
        assert other.is_alive()
        place.ledger.commit(outcomes, positions=[position])
    other.join()
    assert place.rows() == rows_of(1, 2)


@only_cutting
def test_opening_waits_for_the_commit_of_another(place: Place):
    """A process that starts while another one commits cuts off none of its rows."""
    first = place.open()
    other = threading.Thread(target=place.open)
    outcomes = [page(1)]
    with first.write(outcomes, committed=place.ledger.position) as position:
        other.start()
        other.join(0.05)
        assert other.is_alive()
        place.ledger.commit(outcomes, positions=[position])
    other.join()
    assert place.rows() == rows_of(1)


# --- crashes ---------------------------------------------------------------------------------


def worker(place: Place, ledger_path: Path, first: int, count: int, die: str = "") -> subprocess.Popen[bytes]:
    """A process of its own that does pages first .. first + count - 1."""
    arguments = [place.target, str(ledger_path), str(first), str(count), die]
    return subprocess.Popen([sys.executable, ledger_module.__file__, *arguments])


@only_cutting
@pytest.mark.parametrize(("die", "survive"), [("before", []), ("after", [1])])
def test_a_killed_worker_leaves_what_is_committed(place: Place, tmp_path: Path, die: str, survive: list[int]):
    """Killed before its commit a worker leaves no row, killed after it all of them."""
    path = tmp_path / "ledger"
    assert worker(place, path, 1, 1, die).wait() == -signal.SIGKILL
    with closing(Ledger(str(path))) as ledger, closing(place.store()) as store:
        ledger.open(store)
        assert place.rows() == rows_of(*survive)
        ledger.write(store, [page(7)])
    assert place.rows() == rows_of(*survive, 7)


@only_cutting
def test_processes_share_a_store(place: Place, tmp_path: Path):
    """Three processes write at once and one is killed: each committed row is there exactly once."""
    path = tmp_path / "ledger"
    with closing(Ledger(str(path))) as ledger:
        workers = [worker(place, path, first, 25) for first in (100, 200, 300)]
        while len(ledger.done()) < 20:
            time.sleep(0.002)
        workers[0].kill()
        codes = [process.wait() for process in workers]
        with closing(place.store()) as store:
            ledger.open(store)
        done = ledger.done()
    assert codes[1:] == [0, 0]
    assert len(done) >= 50
    assert sorted(place.rows()) == rows_of(*sorted(done))


FATES = st.sampled_from(["commit", "commit", "lose", "fail", "crash before", "crash after", "go back"])
STEPS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), FATES, st.floats(0, 1)), max_size=8)


@pytest.mark.parametrize("kind", TARGETS)
@settings(max_examples=25, deadline=None)
@given(steps=STEPS)
def test_any_history_leaves_exactly_the_committed_rows(kind: str, steps: list[tuple[int, int, str, float]]):
    """Two stores, any sequence of commits, lost leases, errors, crashes, torn writes and roll-backs."""
    with TemporaryDirectory() as folder, closing(FilePlace(kind, Path(folder))) as place:
        stores = [place.open(), place.open()]
        expected: list[tuple[str, int]] = []
        before: tuple[int, list[tuple[str, int]]] = (0, [])
        for token, (who, rows, fate, torn) in enumerate(steps):
            store = stores[who]
            if fate == "go back":  # the frontier loses its last commit
                place.ledger.record((store.name, before[0]))
                expected = before[1]
                continue
            earlier = place.ledger.position(store.name), list(expected)
            if play(place, store, token, rows, fate, torn):
                before = earlier
                expected = expected + rows_of(token, rows=rows)
            if fate.startswith("crash"):
                stores = [place.open(), place.open()]
        place.close_stores()
        place.open()
        assert place.rows() == expected


def play(place: FilePlace, store: Store, token: int, rows: int, fate: str, torn: float) -> bool:
    """One write and what becomes of it; returns whether it is committed."""
    outcomes = [page(token, rows)]
    start = place.ledger.position(store.name)
    committed = fate in ("commit", "crash after")
    disk: dict[Path, bytes] = {}
    try:
        with store.write(outcomes, committed=place.ledger.position) as position:
            if committed:
                place.ledger.commit(outcomes, positions=[position])
            disk = place.disk()
            if fate == "fail":
                raise RuntimeError
    except RuntimeError:
        assert fate == "fail"
    if fate == "crash before" and place.kind != "sqlite":  # SQLite's own transactions see to torn writes
        end = len(disk[place.path])
        disk[place.path] = disk[place.path][: start + round(torn * (end - start))]
    if fate.startswith("crash"):
        place.crash(disk)
    return committed


# --- opening ---------------------------------------------------------------------------------


@only_cutting
def test_a_new_store_starts_with_its_mark(place: Place):
    """Nothing recorded and nothing there: the store is made, and its position says that it has no rows."""
    store = place.store()
    with store.open(committed=lambda _: None, fresh=False) as (name, position):
        assert name == store.name
        assert position < -1
    assert place.path.exists()


def test_rows_of_somebody_else_are_refused(place: Place):
    """Nothing recorded, but rows there: the error names the file and the way out; nothing is changed."""
    place.ledger.write(place.open(), [page(1)])
    place.close_stores()
    place.ledger.purge()
    with pytest.raises(
        StoreError, match=r"(items\S*|postgresql://\S+) .*another (file|table|place).*--fresh"
    ):
        place.open()
    assert place.rows() == rows_of(1)


def test_fresh_replaces_what_is_there(place: Place):
    """With `fresh` the rows of somebody else go, and a recorded position does not count."""
    place.ledger.write(place.open(), [page(1)])
    place.close_stores()
    place.ledger.write(place.open(fresh=True), [page(2)])
    assert place.rows() == rows_of(2)
    place.close_stores()
    place.ledger.purge()
    place.ledger.write(place.open(fresh=True), [page(3)])
    assert place.rows() == rows_of(3)


@only_cutting
@pytest.mark.parametrize("prepared", [False, True])
def test_two_crawls_do_not_begin_one_file(place: Place, prepared: bool):
    """One of them goes on, even if both have found the file empty before either writes to it."""
    done: list[int] = []
    refusals: list[str] = []
    with closing(Ledger()) as other:
        crawls = [(place.ledger, place.store()), (other, place.store())]
        if prepared:
            for ledger, store in crawls:
                ledger.open(store).close()
        opened = []
        for crawl in crawls:
            with suppress_refusal(refusals):
                crawl[0].open(crawl[1])
                opened.append(crawl)
        for number, (ledger, store) in enumerate(opened):
            with suppress_refusal(refusals):
                ledger.write(store, [page(number)])
                done.append(number)
    assert len(done) == len(refusals) == 1
    assert "another crawl" in refusals[0]
    assert "name another file" in refusals[0]
    assert place.rows() == rows_of(*done)


@contextmanager
def suppress_refusal(refusals: list[str]) -> Iterator[None]:
    """Go on behind it, with what was said in the list."""
    try:
        yield
    except StoreError as error:
        refusals.append(str(error))


@pytest.mark.parametrize("place", ["jsonl", "csv"], indirect=True)
def test_fresh_leaves_a_file_alone_that_is_written_to(place: Place):
    """Whoever has it open would lose the rows that it has written."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    later = place.open()
    with closing(Ledger()) as other, pytest.raises(StoreError, match=r"another crawl is writing to .*stop"):
        other.open(place.store(), fresh=True)
    assert place.rows() == rows_of(1)
    later.close()
    store.close()
    place.ledger.write(place.open(fresh=True), [page(2)])
    assert place.rows() == rows_of(2)


@pytest.mark.parametrize("place", ["jsonl", "csv"], indirect=True)
def test_a_process_that_holds_a_file_up_is_not_waited_for_for_ever(place: Place, monkeypatch):
    """It may be stopped: those who wait say so, and can try again."""
    monkeypatch.setattr("shoal.store.file.BUSY_S", 0.2)
    first, second = place.open(), place.open()
    with first.write([page(1)], committed=place.ledger.position) as position:
        with pytest.raises(StoreUnavailable, match=r"locked by another process .* may be stopped"):
            place.ledger.write(second, [page(2)])
        place.ledger.commit([page(1)], positions=[position])
    place.ledger.write(second, [page(2)])
    assert place.rows() == rows_of(1, 2)


@only_cutting
def test_a_crash_at_the_very_start_can_be_resumed(place: Place):
    """The position 0 is recorded but nothing was made yet: the store is made now."""
    store = place.store()
    place.ledger.record((store.name, 0))
    place.ledger.write(place.open(), [page(1)])
    assert place.rows() == rows_of(1)


def test_missing_rows_are_an_error(place: Place):
    """A store that was deleted is not made anew as if nothing had been in it."""
    place.ledger.write(place.open(), [page(1)])
    place.close_stores()
    place.remove()
    with pytest.raises(StoreError, match=r"rows are missing from .*--fresh"):
        place.open()
    assert not place.exists()


@only_cutting
def test_an_older_copy_is_an_error(place: Place):
    """A store that was put back to an earlier state lacks rows, and says so."""
    place.ledger.write(place.open(), [page(1)])
    place.close_stores()
    copy = place.disk()
    place.ledger.write(place.open(), [page(2)])
    place.crash(copy)
    with pytest.raises(StoreError, match="rows are missing"):
        place.open()
    assert place.disk().keys() >= copy.keys()
    assert place.rows() == rows_of(1)


@pytest.mark.parametrize("place", [*TARGETS, "postgresql", "parquet"], indirect=True)
def test_a_store_deleted_meanwhile_is_an_error(place: Place):
    """Rows never go into a file that has no name any more."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    place.remove()
    with pytest.raises(StoreError, match=r"deleted|does not exist"):
        place.ledger.write(store, [page(2)])
    assert place.ledger.done() == {1}


@only_cutting
def test_a_crawl_removed_meanwhile_is_an_error(place: Place):
    """When the frontier no longer knows the store, nothing is written."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    place.ledger.purge()
    with pytest.raises(StoreError, match="removed meanwhile"):
        place.ledger.write(store, [page(2)])
    assert place.rows() == rows_of(1)


@only_cutting
def test_one_file_has_one_name(place: Place, monkeypatch: pytest.MonkeyPatch):
    """However a path is spelled, the frontier keeps one position for it."""
    monkeypatch.chdir(place.path.parent)
    scheme = place.target.removesuffix(str(place.path))
    spellings = [place.path.name, f"./{place.path.name}", f"../{place.path.parent.name}/{place.path.name}"]
    assert {place.store(target=scheme + spelling).name for spelling in spellings} == {place.store().name}


@contextmanager
def unprivileged() -> Iterator[None]:
    """Root may write everywhere: be somebody else for a moment."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def missing_directory(path: Path) -> None:
    """The directory is not there."""
    path.parent.rmdir()


def forbidden_directory(path: Path) -> None:
    """The directory is there, but nothing may be made in it."""
    path.parent.chmod(0o500)


def directory_itself(path: Path) -> None:
    """A directory has the name already."""
    path.mkdir()


@only_cutting
@pytest.mark.parametrize("obstacle", [missing_directory, forbidden_directory, directory_itself])
def test_where_nothing_can_be_written(place: Place, obstacle: Callable[[Path], None]):
    """Opening fails with one line that names the path."""
    folder = place.path.parent / "out"
    folder.mkdir()
    path = folder / place.path.name
    obstacle(path)
    store = place.store(target=place.target.replace(str(place.path), str(path)))
    with unprivileged(), pytest.raises(StoreError) as caught:
        place.ledger.open(store)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@contextmanager
def full_disk(size_bytes: int) -> Iterator[None]:
    """The system writes no file beyond this size, and refuses in earnest."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@only_cutting
def test_a_full_disk_loses_nothing(place: Place):
    """No room: StoreUnavailable, half a batch is never left, and the same batch goes in later."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    big = [page(token, rows=100) for token in range(2, 60)]
    with full_disk(100_000), pytest.raises(StoreUnavailable, match=r"cannot write .*items"):
        place.ledger.write(store, big)
    assert place.rows() == rows_of(1)
    place.ledger.write(store, big)
    assert place.rows() == [*rows_of(1), *rows_of(*range(2, 60), rows=100)]


def test_text_of_any_kind_is_stored(place: Place):
    """Quotes, separators, line ends, NUL, emoji and halves of surrogate pairs come back from the store.

    PostgreSQL has no place for NUL.
    """
    text = "a\"b,c;d\r\ne\rf\n\x00\u2028😀'=1"
    place.ledger.write(place.open(), [outcome(1, {"url": text, "n": 1, "half": "\ud800x"})])
    (row,) = place.read()
    stored = text.replace("\x00", "\ufffd") if place.kind == "postgresql" else text
    assert (row["url"], row["half"]) == (stored, "\ufffdx")


# --- targets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("a.jsonl", "JsonlStore"),
        ("a.NDJSON", "JsonlStore"),
        ("out/a.b.csv", "CsvStore"),
        ("sqlite:a.db", "SqliteStore"),
        ("sqlite:a.csv", "SqliteStore"),
        ("parquet:rows", "ParquetStore"),
        ("s3://bucket/rows.parquet", "ParquetStore"),
        ("gs://bucket/shop/rows.jsonl", "JsonlParts"),
        ("postgresql://shop.example/a.csv", "PostgresStore"),
        ("postgres://user:a%2Fb@shop.example:5433/db?table=rows&sslmode=require", "PostgresStore"),
    ],
)
def test_the_target_names_the_store(target: str, kind: str):
    """The ending of a file, or the scheme, says what is written; nothing is opened."""
    assert type(open_store(target, crawl="shop")).__name__ == kind
    assert not Path(target.removeprefix("sqlite:")).exists()


@pytest.mark.parametrize(
    "target",
    [
        "a",
        "a.json",
        "a.db",
        "-",
        "",
        "sqlite:",
        "sqlite:///a.db",
        ".csv",
        "parquet:",
        "s3://b/a.csv",
        "s4://b/a.jsonl",
    ],
)
def test_unknown_targets_are_refused(target: str):
    """Anything else is a ConfigError that names the target and the possible ones."""
    with pytest.raises(ConfigError) as caught:
        open_store(target, crawl="shop")
    assert f"'{target}'" in str(caught.value)
    assert "name it FILE.jsonl, FILE.ndjson, FILE.csv, sqlite:FILE, parquet:DIR," in str(caught.value)


def test_stores_are_imported_when_they_are_needed():
    """Choosing a store does not load the others."""
    code = (
        "import sys; from shoal.store import open_store; open_store('a.jsonl', crawl='x');"
        "print(sorted({'shoal.store.csv', 'shoal.store.sqlite'} & sys.modules.keys()))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# --- files only ----------------------------------------------------------------------------------


@only_files
def test_a_file_edited_by_another_program_is_refused(place: Place):
    """A file in which rows end elsewhere is not cut in the middle of somebody's row."""
    place.ledger.write(place.open(), [page(1)])
    place.close_stores()
    edited = place.path.read_bytes().replace(b"https://", b"http://longer.") + b"x"
    place.path.write_bytes(edited)
    with pytest.raises(StoreError, match=r"items\.\w+ was changed by another program.*--fresh"):
        place.open()
    assert place.path.read_bytes() == edited


@only_files
@pytest.mark.parametrize("sync", [True, False])
def test_rows_are_synced_before_the_commit(place: Place, monkeypatch: pytest.MonkeyPatch, sync: bool):
    """With `sync` each batch that has rows is synced once, whole and before its commit; without it never."""
    synced: list[bytes] = []
    monkeypatch.setattr("shoal.store.file._sync", lambda fd: synced.append(place.path.read_bytes()))
    with closing(open_store(place.target, crawl="shop", sync=sync)) as store:
        place.ledger.open(store)
        with store.write([page(1)], committed=place.ledger.position):
            assert synced == ([place.path.read_bytes()] if sync else [])
        place.ledger.write(store, [outcome(2)])
    assert len(synced) == sync


@only_files
def test_only_regular_files_are_written(place: Place):
    """What cannot be cut back (here a pipe) is refused."""
    os.mkfifo(place.path)
    with pytest.raises(StoreError, match="not a regular file"):
        place.open()


# --- jsonl ---------------------------------------------------------------------------------------


@place_of("jsonl")
def test_jsonl_takes_rows_with_different_fields(place: Place):
    """One object per line, values in their documented form."""
    place.ledger.write(place.open(), [outcome(1, {"a": "x\ny"}, {"b": [1, {"c": None}], "d": b"\xff"})])
    assert place.path.read_bytes() == b'{"a":"x\\ny"}\n{"b":[1,{"c":null}],"d":"/w=="}\n'


# --- csv -----------------------------------------------------------------------------------------


@pytest.fixture
def csv_store(tmp_path: Path) -> Iterator[Callable[..., CsvStore]]:
    """Makes CSV stores on one file, opened with one ledger."""
    stores: list[CsvStore] = []
    with closing(Ledger()) as ledger:

        def new(*fields: str, safe: bool = False) -> CsvStore:
            store = CsvStore(tmp_path / "items.csv", fields, safe=safe)
            stores.append(store)
            return ledger.open(store)

        new.ledger = ledger
        new.path = tmp_path / "items.csv"
        yield new
        for store in stores:
            store.close()


def test_csv_takes_its_header_from_the_first_row(csv_store):
    """Header, then rows, ended by CR LF; missing fields are empty, nested values are JSON."""
    items = {"a": "x", "b": 1.5, "c": None}, {"c": ["y", {"z": True}], "a": False}
    csv_store.ledger.write(csv_store(), [outcome(1, *items)])
    assert csv_store.path.read_bytes() == b'a,b,c\r\nx,1.5,\r\nfalse,,"[""y"",{""z"":true}]"\r\n'


def test_csv_columns_can_be_given(csv_store):
    """Given fields are the columns, in their order, whatever the first row has."""
    csv_store.ledger.write(csv_store("url", "title", "price"), [outcome(1, {"price": 5, "url": "u"})])
    assert csv_store.path.read_bytes() == b"url,title,price\r\nu,,5\r\n"


def test_csv_without_rows_is_empty(csv_store):
    """The header comes with the first row."""
    csv_store.ledger.write(csv_store("url"), [outcome(1)])
    assert csv_store.path.read_bytes() == b""


def test_csv_refuses_a_field_that_is_no_column(csv_store):
    """The error names the field, the columns and the way out; the other rows are not written either."""
    store = csv_store()
    csv_store.ledger.write(store, [outcome(1, {"a": 1, "b": 2})])
    with pytest.raises(StoreError, match=r'items\.csv .*no "colour", only a, b;.*\.jsonl'):
        csv_store.ledger.write(store, [outcome(2, {"a": 3}, {"a": 4, "colour": "red"})])
    assert csv_store.path.read_bytes() == b"a,b\r\n1,2\r\n"


def test_csv_goes_on_with_the_columns_of_the_file(csv_store):
    """After a restart the header is read back, line breaks and quotes in it included."""
    csv_store.ledger.write(csv_store(), [outcome(1, {'a\r\n"b"': 1, "é": 2})])
    csv_store.ledger.write(csv_store("é"), [outcome(2, {"é": 3})])
    rows = list(csv.reader(io.StringIO(csv_store.path.read_bytes().decode(), newline="")))
    assert rows == [['a\r\n"b"', "é"], ["1", "2"], ["", "3"]]


def test_csv_refuses_columns_that_do_not_fit(csv_store):
    """On resume every given field must be a column of the file; the file stays as it is."""
    csv_store.ledger.write(csv_store("url", "title"), [outcome(1, {"url": "u"})])
    before = csv_store.path.read_bytes()
    with pytest.raises(StoreError, match=r'items\.csv do not fit: it has no "price", only url, title'):
        csv_store("url", "price")
    assert csv_store.path.read_bytes() == before


def test_csv_forgets_a_header_that_was_not_committed(csv_store):
    """The columns are those of the first row that is committed, whoever wrote it."""
    first, second = csv_store(), csv_store()
    csv_store.ledger.write(first, [outcome(1, {"a": 1})], lost={1})
    csv_store.ledger.write(second, [outcome(2, {"b": 2})])
    csv_store.ledger.write(first, [outcome(3, {"b": 3})])
    assert csv_store.path.read_bytes() == b"b\r\n2\r\n3\r\n"


def test_csv_takes_a_new_header_when_all_is_undone(csv_store):
    """A frontier that went back to the very start takes the header with it."""
    store = csv_store()
    csv_store.ledger.write(store, [outcome(1, {"a": 1})])
    csv_store.ledger.write(store, [outcome(2, {"a": 2})])
    csv_store.ledger.record((store.name, 0))
    csv_store.ledger.write(store, [outcome(3, {"b": 3})])
    csv_store.ledger.write(store, [outcome(4, {"b": 4})])
    assert csv_store.path.read_bytes() == b"b\r\n3\r\n4\r\n"


def test_csv_defuses_formulas_on_request(csv_store):
    """`safe` puts an apostrophe before text that spreadsheets would run, never before numbers."""
    risky = {"=a": "=1+1", "b": "+1", "c": "-1", "d": "@x", "e": "\tx", "f": "\rx", "g": -1, "h": "a=b"}
    csv_store.ledger.write(csv_store(safe=True), [outcome(1, risky)])
    csv_store.ledger.write(csv_store("=a", safe=True), [outcome(2, risky)])
    lines = list(csv.reader(io.StringIO(csv_store.path.read_bytes().decode(), newline="")))
    assert lines[0] == ["'=a", "b", "c", "d", "e", "f", "g", "h"]
    assert lines[1] == lines[2] == ["'=1+1", "'+1", "'-1", "'@x", "'\tx", "'\rx", "-1", "a=b"]


def test_csv_leaves_text_alone_otherwise(csv_store):
    """Without `safe` the text is what was scraped."""
    csv_store.ledger.write(csv_store(), [outcome(1, {"a": "=1+1", "b": "-5"})])
    assert csv_store.path.read_bytes() == b"a,b\r\n=1+1,-5\r\n"


ROWS = st.lists(st.lists(st.text(), min_size=2, max_size=2), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(header=st.lists(st.text(), min_size=2, max_size=2, unique=True), rows=ROWS)
def test_csv_round_trip(header: list[str], rows: list[list[str]]):
    """Any text comes back from csv.reader, in the header and in the rows, also after a restart."""
    with TemporaryDirectory() as folder, closing(Ledger()) as ledger:
        path = Path(folder) / "items.csv"
        for token, row in enumerate(rows):
            with closing(CsvStore(path)) as store:
                ledger.open(store)
                ledger.write(store, [outcome(token, dict(zip(header, row, strict=True)))])
        with path.open(newline="", encoding="utf-8") as file:
            assert list(csv.reader(file)) == [header, *rows]


# --- sqlite --------------------------------------------------------------------------------------

TABLE = ["_position", "_crawl", "_fingerprint", "_idx", "_token", "url"]


@place_of("sqlite")
def test_sqlite_has_a_column_for_each_field(place: Place):
    """Columns appear with their fields; numbers stay numbers; `url` is the page's unless the row has one."""
    store = place.open()
    place.ledger.write(store, [outcome(5, {"title": "A", "price": 1.5, "stock": True, "none": None})])
    place.ledger.write(store, [outcome(6, {"tags": ["x"], "url": "u", "big": 2**64, "min": -(2**63)})])
    first, second = place.read()
    fields = ["title", "price", "stock", "none", "tags", "big", "min"]
    assert list(first) == TABLE + fields
    assert list(first.values()) == [1, "shop", 5, 0, 5, "https://shop.example/5", "A", 1.5, 1, *[None] * 4]
    assert [second[field] for field in fields] == [None] * 4 + ['["x"]', str(2**64), -(2**63)]
    assert second["url"] == "u"


@place_of("sqlite")
def test_sqlite_replaces_the_rows_of_a_page_done_again(place: Place):
    """A higher token replaces all rows of its page, also if there are fewer now."""
    store = place.open()
    place.ledger.write(store, [outcome(1, {"n": 1}, {"n": 2}, {"n": 3}, page=7), page(2)])
    place.ledger.write(store, [outcome(3, {"n": 4}, page=7)])
    rows = [(row["_fingerprint"], row["_idx"], row["_token"], row["n"]) for row in place.read()]
    assert rows == [(2, 0, 2, 0), (2, 1, 2, 1), (7, 0, 3, 4)]
    place.ledger.write(store, [outcome(4, page=7)])
    assert place.rows() == rows_of(2)


@place_of("sqlite")
def test_sqlite_keeps_the_rows_of_a_higher_token(place: Place):
    """What a lower token brings never replaces what a higher one has brought."""
    store = place.open()
    place.ledger.write(store, [outcome(9, {"n": 1}, page=7)])
    place.ledger.write(store, [outcome(3, {"n": 2}, {"n": 3}, page=7)])
    assert [(row["_token"], row["n"]) for row in place.read()] == [(9, 1)]


@place_of("sqlite")
@pytest.mark.parametrize("state", ["queued", "dead", "skipped"])
def test_sqlite_keeps_the_rows_of_a_page_that_failed_later(place: Place, state):
    """Only a page that was done replaces its rows by nothing."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    place.ledger.write(store, [outcome(2, page=1, state=state)])
    assert place.rows() == rows_of(1)


@place_of("sqlite")
def test_sqlite_gives_no_number_twice(place: Place):
    """A row never gets the number of a committed one that was replaced, so a cut finds it."""
    store = place.open()
    place.ledger.write(store, [page(1, rows=1)])
    place.ledger.write(store, [outcome(2, page=1)])
    place.ledger.write(store, [page(3)], lost={3})
    assert place.rows() == []


@place_of("sqlite")
def test_sqlite_keeps_crawls_apart(place: Place):
    """Two crawls share a file; a cut, or `fresh`, touches the rows of one only."""
    other = Ledger()
    with closing(other):
        books, films = place.open(), other.open(place.store("films"))
        place.ledger.write(books, [page(1)])
        other.write(films, [page(2)])
        place.ledger.write(books, [page(3)])
        other.write(films, [page(4)], lost={4})
        assert place.rows() == rows_of(1, 2, 3)
        place.ledger.write(place.open(fresh=True), [page(5)])
        assert place.rows() == rows_of(2, 5)


@place_of("sqlite")
def test_sqlite_writes_again_what_another_has_cut(place: Place):
    """A process that comes in while the rows are put on disk does not cost them."""
    first, second = place.open(), place.open()
    begun = 0

    def interfere(statement: str) -> None:
        nonlocal begun
        begun += statement == "BEGIN IMMEDIATE"
        if statement == "BEGIN IMMEDIATE" and begun == 2:
            place.ledger.write(second, [page(1)])

    first._db.set_trace_callback(interfere)  # there is no other way into the gap between its transactions
    place.ledger.write(first, [page(2)])
    assert begun > 3
    assert place.rows() == rows_of(1, 2)


@place_of("sqlite")
def test_sqlite_refuses_other_files(place: Place):
    """A file that is no database, and one with a table of that name, stay as they are."""
    place.path.write_bytes(b"not a database " * 100)
    with pytest.raises(StoreError, match=r"items\.db: file is not a database"):
        place.open()
    place.path.unlink()
    with closing(sqlite3.connect(place.path)) as db:
        db.execute("CREATE TABLE items (id, name)")
    before = place.disk()
    with pytest.raises(StoreError, match=r'items\.db has a table "items" already'):
        place.open()
    assert place.disk() == before


@place_of("sqlite")
@pytest.mark.parametrize("field", ["_token", "TITLE", "a\x00b"])
def test_sqlite_names_a_field_that_cannot_be_a_column(place: Place, field: str):
    """A field with a name that SQLite takes for another's is refused by name."""
    store = place.open()
    place.ledger.write(store, [outcome(1, {"title": "A"})])
    with pytest.raises(StoreError, match=r'the field ".*" cannot be a column, rename it'):
        place.ledger.write(store, [outcome(2, {"new": 1}, {field: "B"})])
    place.ledger.write(store, [outcome(3, {"new": 2})])
    assert [row["new"] for row in place.read()] == [None, 2]


@place_of("sqlite")
def test_sqlite_needs_no_sync(place: Place):
    """Without `sync` the rows are there as well."""
    with closing(open_store(place.target, crawl="shop", sync=False)) as store:
        place.ledger.write(place.ledger.open(store), [page(1)])
    assert place.rows() == rows_of(1)


def test_sqlite_columns_can_be_given(tmp_path: Path):
    """Given fields are columns from the start, quoted whatever they are called."""
    with (
        closing(Ledger()) as ledger,
        closing(
            open_store(f"sqlite:{tmp_path / 'a.db'}", crawl="shop", fields=["url", 'b"c', "select", ""])
        ) as store,
    ):
        ledger.open(store)
        ledger.write(store, [outcome(1, {"select": 1, "": 2, 'b"c': 3})])
    (row,) = read_file("sqlite", tmp_path / "a.db")
    assert list(row.items())[5:] == [("url", "https://shop.example/1"), ('b"c', 3), ("select", 1), ("", 2)]


# --- pages that are visited again -----------------------------------------------------------------

SEEN = Visit(1_000.0, 1_000.0, 1_000.0, rows=2)
LATER = replace(SEEN, last_seen=5_000.0)
replacing = pytest.mark.parametrize("place", ["sqlite", "postgresql"], indirect=True)


def visited(
    token: int, *rows: int, before: Visit | None = SEEN, state: State = "done", **fields: object
) -> Outcome:
    """How page 1 ended at this token, with so many rows."""
    found = outcome(token, *({"url": "u", "n": n} for n in rows), page=1, state=state)
    return replace(found, lease=replace(found.lease, visit=before), **fields)


def first_visit(place: Place) -> Store:
    """A store with two rows of page 1."""
    store = place.open()
    place.ledger.write(store, [visited(1, 0, 1, before=None, visit=SEEN)])
    return store


def seen(place: Place) -> list[tuple[str, ...]]:
    """What rows say of their visits, as text."""
    fields = ("n", *SEEN_FIELDS)
    found = [[row[name] for name in fields] for row in place.read()]
    return sorted(tuple(str(each)[:19].replace(" ", "T").replace("Z", "") for each in row) for row in found)


def test_rows_say_when_their_page_was_seen(place: Place):
    """In every store: first, last, and when it changed."""
    first_visit(place)
    at = datetime.fromtimestamp(1_000, UTC).isoformat()[:19]
    assert seen(place) == [("0", at, at, at), ("1", at, at, at)]


@replacing
def test_rows_of_an_unchanged_page_are_seen_again(place: Place):
    """By every store that can change rows; whoever had the page before changes nothing any more."""
    store = first_visit(place)
    place.ledger.write(store, [visited(3, visit=LATER, unchanged=True)])
    first, last = (datetime.fromtimestamp(at, UTC).isoformat()[:19] for at in (1_000, 5_000))
    assert seen(place) == [("0", first, last, first), ("1", first, last, first)]
    place.ledger.write(store, [visited(2, 7, visit=LATER)], lost=[2])
    assert [row[0] for row in seen(place)] == ["0", "1"]


@only_files
def test_files_keep_what_they_have(place: Place):
    """An unchanged page adds nothing, nor does one that is gone; a changed one adds its rows."""
    store = first_visit(place)
    place.ledger.write(store, [visited(2, visit=LATER, unchanged=True)])
    place.ledger.write(store, [visited(3, visit=LATER, state="dead")])
    assert place.rows() == [("u", 0), ("u", 1)]
    place.ledger.write(store, [visited(4, 5, visit=LATER)])
    assert place.rows() == [("u", 0), ("u", 1), ("u", 5)]


@replacing
def test_a_changed_page_replaces_its_rows(place: Place):
    """All of them, even if there are fewer now, or none."""
    store = first_visit(place)
    place.ledger.write(store, [visited(2, 5, visit=LATER)])
    assert place.rows() == [("u", 5)]
    place.ledger.write(store, [visited(3, visit=LATER)])
    assert place.rows() == []


@replacing
def test_a_page_that_is_gone_loses_its_rows(place: Place):
    """The rows are what the site shows now."""
    store = first_visit(place)
    place.ledger.write(store, [visited(2, visit=LATER, state="dead")])
    assert place.rows() == []


@replacing
@pytest.mark.parametrize("state", ["dead", "skipped", "queued"])
def test_a_page_that_could_not_be_read_again_keeps_its_rows(place: Place, state: State):
    """Nothing came of the visit."""
    store = first_visit(place)
    place.ledger.write(store, [visited(2, state=state)])
    assert place.rows() == [("u", 0), ("u", 1)]


@replacing
def test_a_page_without_rows_may_be_unchanged(place: Place):
    """Even if no row was ever seen before."""
    store = place.open()
    place.ledger.write(store, [visited(1, before=None, visit=SEEN)])
    place.ledger.write(store, [visited(2, visit=LATER, unchanged=True)])
    place.ledger.write(store, [visited(3, 4, visit=LATER)])
    assert place.rows() == [("u", 4)]


@place_of("postgresql")
def test_moments_are_moments_in_postgresql(place: PostgresPlace):
    """So that they can be compared with now(); but a column that is there already takes what it can."""
    first_visit(place)
    assert {place.columns()[name] for name in SEEN_FIELDS} == {"timestamp with time zone"}
    place.db.execute("ALTER TABLE items ALTER last_seen TYPE jsonb USING to_jsonb(last_seen)")
    place.db.execute("ALTER TABLE items ALTER first_seen TYPE text")
    store = place.open()
    place.ledger.write(store, [visited(2, visit=LATER, unchanged=True)])
    assert str(place.read()[0]["last_seen"]).startswith("1970-01-01T01:23:20")
    place.ledger.write(store, [visited(3, 1, visit=LATER)])
    assert place.rows() == [("u", 1)]
