"""The store on PostgreSQL, which replaces rows instead of cutting them off.

What all stores promise is tested in test_store_contract.py.
"""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Barrier, Semaphore
from urllib.parse import quote

import ledger as ledger_module
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger import Ledger, outcome, page
from places import PostgresPlace, rows_of
from psycopg import sql

from services import PostgresServer, RedisServer, free_port
from shoal.errors import ConfigError, ShoalError, StoreError, StoreUnavailable
from shoal.frontier import open_frontier
from shoal.model import Link, Outcome, State
from shoal.settle import NOT_STORABLE, settle
from shoal.store import open_store, shown
from shoal.store.base import Store
from shoal.store.postgres_columns import column_name


@pytest.fixture
def place(postgres: PostgresServer) -> Iterator[PostgresPlace]:
    """An empty schema, and stores on it."""
    with closing(PostgresPlace(postgres.url)) as place:
        yield place


def write(store: Store, *outcomes) -> None:
    """Write what nobody commits."""
    with store.write(outcomes, committed=lambda _: None):
        pass


def found(place: PostgresPlace, crawl: str = "shop") -> list[tuple[int, int, int]]:
    """The rows: page, token and number in the page."""
    return [(row["fingerprint"], row["token"], row["idx"]) for row in place.read() if row["crawl"] == crawl]


numbers = count(1)


# --- rows are replaced -------------------------------------------------------------------------------


def test_what_a_row_consists_of(place: PostgresPlace):
    """Each row tells crawl, page, number, lease, URL and time before its fields."""
    place.ledger.write(place.open(), [outcome(5, {"title": "A"}, {"price": 1.5}, page=7)])
    first, second = place.read()
    assert list(first) == ["crawl", "fingerprint", "idx", "token", "url", "stored_at", "title", "price"]
    assert list(first.values())[:5] == ["shop", 7, 0, 5, "https://shop.example/7"]
    assert first["stored_at"].tzinfo is not None
    assert (second["idx"], second["title"], second["price"]) == (1, None, 1.5)


@pytest.mark.parametrize("rows", [3, 2, 1, 0])
def test_a_page_done_again_replaces_its_rows(place: PostgresPlace, rows: int):
    """A higher token replaces all rows of its page, whatever their number, and no others."""
    store = place.open()
    place.ledger.write(store, [page(1, rows=2), page(2)])
    place.ledger.write(store, [outcome(3, *({"n": n} for n in range(rows)), page=1)])
    assert found(place) == [(2, 2, 0), (2, 2, 1), *((1, 3, n) for n in range(rows))]


@pytest.mark.parametrize("state", ["done", "dead", "skipped"])
def test_rows_of_a_lost_lease_go_when_the_page_ends(place: PostgresPlace, state: State):
    """What a worker wrote and did not commit is gone once the page has ended, however it did."""
    store = place.open()
    write(store, page(1), page(2))
    place.ledger.write(store, [outcome(3, page=1, state=state)])
    assert found(place) == [(2, 2, 0), (2, 2, 1)]


def test_another_attempt_leaves_rows_alone(place: PostgresPlace):
    """A page that is queued again has not ended."""
    store = place.open()
    write(store, page(1))
    place.ledger.write(store, [outcome(2, page=1, state="queued")])
    assert place.rows() == rows_of(1)


@pytest.mark.parametrize("rows", [2, 0])
@pytest.mark.parametrize("state", ["done", "dead", "skipped"])
def test_a_zombie_changes_nothing(place: PostgresPlace, rows: int, state: State):
    """A lower token neither replaces nor adds rows, also where the higher one has brought none."""
    first, second = place.open(), place.open()
    items = [{"n": n} for n in range(rows if state == "done" else 0)]
    place.ledger.write(first, [outcome(9, *items, page=1, state=state)])
    place.ledger.write(second, [page(8), outcome(3, {"n": 5}, {"n": 6}, {"n": 7}, page=1)], lost={3})
    assert found(place) == [(8, 8, 0), (8, 8, 1), *((1, 9, n) for n in range(len(items)))]


def test_writing_again_changes_nothing(place: PostgresPlace):
    """The same batch may be written any number of times: nobody knows whether a lost connection did it."""
    store = place.open()
    for _ in range(3):
        write(store, page(1), outcome(2))
    place.ledger.write(store, [page(1), outcome(2)])
    assert found(place) == [(1, 1, 0), (1, 1, 1)]


def test_a_page_may_be_in_a_batch_twice(place: PostgresPlace):
    """A worker that lost a lease and got the same page again: the later lease counts, in any order."""
    store = place.open()
    write(store, outcome(3, {}, page=1), outcome(2, {}, {}, page=1), outcome(1, {}, page=1))
    assert found(place) == [(1, 3, 0)]


def test_nobody_waits_for_a_commit(place: PostgresPlace):
    """While one worker commits, others write, and new ones come."""
    first = place.open()
    with first.write([page(1)], committed=place.ledger.position) as position:
        place.ledger.write(place.open(), [page(2)])
        place.ledger.commit([page(1)], positions=[position])
    assert place.rows() == rows_of(1, 2)


def test_an_error_in_the_commit_comes_through(place: PostgresPlace):
    """The store works on after it."""
    store = place.open()
    with (
        pytest.raises(RuntimeError, match="no frontier"),
        store.write([page(1)], committed=place.ledger.position),
    ):
        raise RuntimeError("no frontier")
    place.ledger.write(store, [page(1), page(2)])
    assert place.rows() == rows_of(1, 2)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 1),  # which store
        st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=3, unique_by=lambda pair: pair[0]),
        st.sampled_from(["commit", "commit", "lose", "crash", "late"]),
    ),
    max_size=10,
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_any_history_ends_with_the_rows_of_the_last_leases(place: PostgresPlace, steps):
    """Commits, lost leases, crashes and zombies that write late: a page done in the end has its rows."""
    crawl = f"crawl {next(numbers)}"
    with closing(Ledger()) as ledger, ExitStack() as opened:

        def another() -> Store:
            return ledger.open(opened.enter_context(closing(open_store(place.target, crawl=crawl))))

        stores = [another(), another()]
        expected: dict[int, list[tuple[int, int, int]]] = {}
        late: list[tuple[Store, list[Outcome]]] = []
        token = 0
        for who, pages, fate in [*steps, (0, [(number, 1) for number in range(5)], "commit")]:
            outcomes = []
            for number, rows in pages:
                token += 1
                outcomes.append(outcome(token, *({"n": n} for n in range(rows)), page=number))
                if fate == "commit":
                    expected[number] = [(number, token, n) for n in range(rows)]
            if fate == "late":
                late.append((stores[who], outcomes))
            elif fate == "commit":
                ledger.write(stores[who], outcomes)
            else:
                write(stores[who], *outcomes)
            if fate == "crash":
                stores[who] = another()
        for store, outcomes in late:
            write(store, *outcomes)
    assert sorted(found(place, crawl)) == sorted(row for rows in expected.values() for row in rows)


# --- several processes -----------------------------------------------------------------------------


def worker(
    place: PostgresPlace, ledger: Path, first: int, count: int, die: str = ""
) -> subprocess.Popen[bytes]:
    """A process of its own that does pages first .. first + count - 1."""
    arguments = [place.target, str(ledger), str(first), str(count), die]
    return subprocess.Popen([sys.executable, ledger_module.__file__, *arguments])


@pytest.mark.parametrize("die", ["before", "after"])
def test_a_killed_worker_costs_nothing(place: PostgresPlace, tmp_path: Path, die: str):
    """Killed before or after its commit: the page is done again, if need be, and has its rows once."""
    path = tmp_path / "ledger"
    assert worker(place, path, 1, 1, die).wait() == -signal.SIGKILL
    with closing(Ledger(str(path))) as ledger, closing(place.store()) as store:
        ledger.open(store)
        assert place.rows() == rows_of(1)
        if die == "before":
            ledger.write(store, [outcome(2, *page(1).items, page=1)])
    assert place.rows() == rows_of(1)


def test_processes_share_a_table(place: PostgresPlace, tmp_path: Path):
    """Two processes that begin at the same moment make one table, and all their rows are there."""
    path = tmp_path / "ledger"
    with closing(Ledger(str(path))):
        workers = [worker(place, path, first, 40) for first in (100, 200)]
        assert [process.wait() for process in workers] == [0, 0]
    assert place.rows() == rows_of(*range(100, 140), *range(200, 240))


def test_writers_of_the_same_pages_do_not_block_each_other(place: PostgresPlace):
    """Four writers at the same pages, in any order: of each page the rows of its highest token stay."""
    stores = [place.open() for _ in range(4)]
    rng = random.Random(1)
    numbers = list(range(20))

    def plan() -> list[list[tuple[int, int]]]:
        """Batches of pairs: token and page."""
        return [[(rng.randrange(1000), page) for page in rng.sample(numbers, 20)] for _ in range(5)]

    def work(store: Store, batches: list[list[tuple[int, int]]]) -> None:
        for batch in batches:
            write(store, *(outcome(token, *[{}] * (token % 3), page=page) for token, page in batch))

    plans = [plan() for _ in stores]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, stores, plans))
    pairs = [pair for batches in plans for batch in batches for pair in batch]
    highest = {page: max(token for token, other in pairs if other == page) for page in numbers}
    expected = [(page, token, n) for page, token in highest.items() for n in range(token % 3)]
    assert sorted(found(place)) == sorted(expected)


# --- the crawl of the rows ---------------------------------------------------------------------------


def test_crawls_are_kept_apart(place: PostgresPlace):
    """Two crawls share a table, with pages in common; `fresh` touches the rows of one only."""
    with closing(Ledger()) as other:
        films = other.open(place.store("films"))
        place.ledger.write(place.open(), [page(1), page(2)])
        other.write(films, [page(1, rows=1), outcome(3, page=2)])
        place.ledger.write(place.open(fresh=True), [page(4)])
    assert [(row["crawl"], row["token"]) for row in place.read()] == [("films", 1), ("shop", 4), ("shop", 4)]


def test_low_tokens_count_after_a_fresh_start(place: PostgresPlace):
    """A frontier that starts again may start again with its tokens."""
    place.ledger.write(place.open(), [page(9)])
    store = place.open(fresh=True)
    place.ledger.write(store, [outcome(1, {"url": "u", "n": 0}, page=9)])
    assert place.rows() == [("u", 0)]


def test_a_worker_that_missed_a_fresh_start_is_refused(place: PostgresPlace):
    """It changes nothing, however high its tokens are."""
    old = place.open()
    place.ledger.write(old, [page(1)])
    place.ledger.write(place.open(fresh=True), [page(2)])
    with pytest.raises(StoreError, match=r'"shop" was started afresh .* meanwhile'):
        place.ledger.write(old, [outcome(50, page=2), page(51)])
    assert place.rows() == rows_of(2)


def test_a_store_that_was_opened_but_not_used_is_no_obstacle(place: PostgresPlace):
    """A crash before the first page, or before the position was recorded, leaves nothing in the way."""
    place.open()
    place.ledger.purge()
    place.ledger.write(place.open(), [page(1)])
    assert place.rows() == rows_of(1)


def test_a_table_put_back_to_an_earlier_generation_is_refused(place: PostgresPlace):
    """A frontier finds other rows than those that it knows: some are missing."""
    place.ledger.write(place.open(), [page(1)])
    place.db.execute("UPDATE items_crawls SET generation = generation + 1")
    with pytest.raises(StoreError, match=r"rows are missing from postgresql://.*--fresh"):
        place.open()
    assert place.rows() == rows_of(1)


def test_the_server_may_be_reached_in_any_way(place: PostgresPlace):
    """The frontier keeps one position for a table, however its server is called."""
    other = place.target.replace("127.0.0.1", "localhost").replace("postgresql:", "postgres:")
    assert place.store(target=other).name == place.store().name
    assert place.store(target=place.target + "&table=other").name != place.store().name


# --- columns -----------------------------------------------------------------------------------------


def values_of(place: PostgresPlace, column: str) -> list[str]:
    """What is in a column, with the difference between 1 and true."""
    return [repr(row[column]) for row in place.read()]


@pytest.mark.parametrize(
    ("values", "column_type"),
    [
        (["a", ""], "text"),
        ([True, None, False], "boolean"),
        ([-(2**63), 2**63 - 1], "bigint"),
        ([0.1, 1e300, 5e-324], "double precision"),
        ([[1, {"a": None, "b": 0.1}], {"c": []}], "jsonb"),
        ([1, "a", True, None, [2], 2**70], "jsonb"),
    ],
)
def test_a_new_column_has_the_type_of_its_values(place: PostgresPlace, values: list, column_type: str):
    """And all values come back from it."""
    place.ledger.write(place.open(), [outcome(1, *({"a": value} for value in values))])
    assert place.columns() == {"a": column_type}
    assert values_of(place, "a") == list(map(repr, values))


def test_numbers_of_all_sizes_are_exact(place: PostgresPlace):
    """Where no type of the machine holds all of them, numeric does."""
    place.ledger.write(place.open(), [outcome(1, {"a": 2**64}, {"a": 0.1}, {"a": 2**53 + 1})])
    assert place.columns() == {"a": "numeric"}
    assert [str(row["a"]) for row in place.read()] == ["18446744073709551616", "0.1", "9007199254740993"]


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([1, 0.5, "n/a", [2]], ["bigint", "numeric", "jsonb", "jsonb"]),
        ([0.1 + 0.2, 5, 2**60 + 1, True], ["double precision", "double precision", "numeric", "jsonb"]),
        ([True, "yes", None], ["boolean", "jsonb", "jsonb"]),
        (["a", 1.5], ["text", "jsonb"]),
        ([[1], "a", 2], ["jsonb", "jsonb", "jsonb"]),
    ],
)
def test_a_column_is_widened_for_values_that_do_not_fit(place: PostgresPlace, values: list, types: list[str]):
    """What was in it stays what it was."""
    store = place.open()
    for token, (value, column_type) in enumerate(zip(values, types, strict=True)):
        place.ledger.write(store, [outcome(token, {"a": value})])
        assert place.columns() == {"a": column_type}
    assert values_of(place, "a") == list(map(repr, values))


def test_a_url_of_ones_own_may_be_anything(place: PostgresPlace):
    """The column of the page's URL is like any other when a row brings its own."""
    place.ledger.write(place.open(), [outcome(1, {"url": ["a"]}, {"n": 1})])
    assert values_of(place, "url") == ["['a']", "'https://shop.example/1'"]


def test_stores_keep_up_with_columns_that_others_change(place: PostgresPlace):
    """Added, widened and dropped columns are noticed when they get in the way."""
    first, second = place.open(), place.open()
    place.ledger.write(first, [outcome(1, {"a": 1, "b": "x"})])
    place.ledger.write(second, [outcome(2, {"a": "text", "c": 1})])
    place.ledger.write(first, [outcome(3, {"a": 2, "b": "y", "c": 0.5})])
    place.db.execute("ALTER TABLE items DROP COLUMN b")
    place.ledger.write(second, [outcome(4, {"a": 3, "b": ["z"]})])
    place.ledger.write(first, [outcome(5, {"b": "back"})])
    assert place.columns() == {"a": "jsonb", "c": "numeric", "b": "jsonb"}
    assert values_of(place, "a") == ["1", "'text'", "2", "3", "None"]
    assert values_of(place, "b") == ["None", "None", "None", "['z']", "'back'"]


def test_many_stores_may_add_the_same_columns_at_once(place: PostgresPlace):
    """Four workers that find the same new fields, of different types, make one column for each."""
    stores = [place.open() for _ in range(4)]
    start = threading.Barrier(4)

    def work(who: int) -> None:
        for number in range(5):
            start.wait()
            write(
                stores[who], outcome(10 * number + who, {f"field {number}": [who, "text", 0.5, [who]][who]})
            )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert place.columns() == {f"field {number}": "jsonb" for number in range(5)}
    assert len(place.read()) == 20


ODD_NAMES = [
    'say "hi"',
    "it's",
    "100%",
    "%s %(a)s %%",
    "$1",
    "{items}",
    "a;b--c",
    '"; DROP TABLE items; --',
    "ключ 鍵 🔑",
    "with\nline",
    "back\\slash",
    "",
    "_",
    "x" * 100,
    "é" * 40,
    "token",
    "token_",
    "ctid",
    "idx",
    "select",
    "item",
    "TITLE",
    "title",
]


def test_fields_may_have_any_name(place: PostgresPlace):
    """Names are quoted, told apart and shortened, never run."""
    row = {name: number for number, name in enumerate(ODD_NAMES)}
    store = place.open()
    place.ledger.write(store, [outcome(1, row)])
    place.ledger.write(store, [outcome(2, {name: str(number) for name, number in row.items()})])
    first, second = place.read()
    assert [first[column_name(name)] for name in ODD_NAMES] == list(row.values())
    assert [second[column_name(name)] for name in ODD_NAMES] == list(map(str, row.values()))
    assert place.columns() == {column_name(name): "jsonb" for name in ODD_NAMES}


def test_tables_schemas_and_crawls_may_have_any_name(place: PostgresPlace):
    """The names in a target are quoted too."""
    name = "it's \"; DROP TABLE items; -- % $1 é"
    place.db.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
    try:
        target = f"{place.target.partition('?')[0]}?schema={quote(name)}&table={quote(name)}"
        with closing(open_store(target, crawl=name)) as store:
            place.ledger.write(place.ledger.open(store), [page(1)])
        table = sql.Identifier(name, name)
        rows = place.db.execute(sql.SQL("SELECT crawl, n FROM {} ORDER BY n").format(table)).fetchall()
        assert rows == [{"crawl": name, "n": 0}, {"crawl": name, "n": 1}]
    finally:
        place.db.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(name)))


def test_nul_is_replaced_wherever_it_is(place: PostgresPlace):
    """In text, in nested values and in their keys; a backslash before u0000 is only text."""
    place.ledger.write(
        place.open(), [outcome(1, {"a": "x\x00y", "b": [{"\x00": "\x00"}], "c": "\\u0000"}), page(2)]
    )
    row = place.read()[0]
    assert (row["a"], row["b"], row["c"]) == ("x\ufffdy", [{"\ufffd": "\ufffd"}], "\\u0000")


def test_given_fields_are_columns_from_the_start(place: PostgresPlace):
    """For text, as selectors find it; they give way to other values."""
    with closing(open_store(place.target, crawl="shop", fields=["url", "title", "token"])) as store:
        place.ledger.open(store)
        assert place.columns() == {"title": "text", "token_": "text"}
        place.ledger.write(store, [outcome(1, {"title": ["a", "b"], "token": "t"})])
    assert place.columns() == {"title": "jsonb", "token_": "text"}


MADE_BY_HAND = """CREATE TABLE items (
    crawl text, fingerprint bigint, idx integer, token bigint, url text, stored_at timestamptz DEFAULT now(),
    at timestamptz, sku varchar(5), price numeric(8,2), tags text[], source text DEFAULT 'web',
    PRIMARY KEY (crawl, fingerprint, idx))"""


def test_a_table_made_by_hand_keeps_its_types(place: PostgresPlace):
    """PostgreSQL turns values into the types that somebody chose, and fills in defaults."""
    place.db.execute(MADE_BY_HAND)
    place.ledger.write(
        place.open(),
        [outcome(1, {"at": datetime(2026, 12, 2, tzinfo=UTC), "price": 9.999, "tags": ["a", "b"]})],
    )
    (row,) = place.read()
    assert row["at"] == datetime(2026, 12, 2, tzinfo=UTC)
    assert (str(row["price"]), row["tags"], row["source"]) == ("10.00", ["a", "b"], "web")


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"price": 1, "sku": "123456"}, r'column "sku" \(character varying\(5\)\).*too long'),
        ({"sku": "1", "at": "yesterday-ish"}, r'column "at" \(timestamp with time zone\).*yesterday-ish'),
        ({"price": 10**9}, r'column "price" \(numeric\(8,2\)\).*overflow'),
    ],
)
def test_a_value_that_a_chosen_type_cannot_hold_is_named(place: PostgresPlace, item: dict, message: str):
    """StoreError names the column, and the batch changes nothing: it is one transaction."""
    place.db.execute(MADE_BY_HAND)
    store = place.open()
    place.ledger.write(store, [outcome(1, {"sku": "old"})])
    with pytest.raises(StoreError, match=message) as caught:
        place.ledger.write(store, [outcome(5, {"sku": "new"}, page=1), outcome(2, item)])
    assert "\n" not in str(caught.value)
    assert found(place) == [(1, 1, 0)]
    place.ledger.write(store, [outcome(4, {"sku": "newer"}, page=1)])
    assert found(place) == [(1, 4, 0)]


def test_a_column_that_cannot_be_had_is_named(place: PostgresPlace):
    """Too many columns, or something that is in the way of a wider type."""
    store = place.open()
    place.ledger.write(store, [outcome(1, {"price": 1})])
    place.db.execute("CREATE VIEW prices AS SELECT price FROM items")
    with pytest.raises(StoreError, match=r'"price" \(jsonb\).* used by a view'):
        place.ledger.write(store, [outcome(2, {"price": "n/a"})])
    place.db.execute("DROP VIEW prices")
    place.db.execute("ALTER TABLE items ALTER COLUMN price SET DEFAULT 7")
    with pytest.raises(StoreError, match=r'"price" \(jsonb\).* default for column "price" cannot be cast'):
        place.ledger.write(store, [outcome(2, {"price": "n/a"})])
    with pytest.raises(StoreError, match=r'"f0" \(bigint\), .*1600 columns'):
        place.ledger.write(store, [outcome(3, {f"f{number}": 1 for number in range(1600)})])
    place.ledger.write(store, [outcome(4, {"price": 2})])
    assert values_of(place, "price") == ["1", "2"]


def test_a_page_that_does_not_fit_is_a_dead_letter(place: PostgresPlace):
    """The other pages of its batch are stored and committed."""
    place.db.execute(MADE_BY_HAND)
    with open_frontier("sqlite::memory:", crawl="shop") as frontier, closing(place.store()) as store:
        with store.open(committed=frontier.position, fresh=False) as position:
            frontier.commit((), positions=[position])
        frontier.add(Link(f"https://shop{number}.example/") for number in range(3))
        leases = frontier.lease(3, 60, worker="w").leases
        items = [({"sku": "x" * 4 * number},) for number in range(3)]
        pairs = zip(leases, items, strict=True)
        settle(frontier, [store], [Outcome(lease, "done", items=own) for lease, own in pairs])
        (dead,) = frontier.dead()
    assert (dead.url, dead.reason) == (leases[2].link.url, NOT_STORABLE)
    assert 'column "sku"' in dead.error
    assert values_of(place, "sku") == ["''", "'xxxx'"]


# --- trouble -----------------------------------------------------------------------------------------


def test_a_connection_that_was_cut_is_made_again(place: PostgresPlace):
    """Nobody needs to hear of it."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    place.db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'shoal'"
    )
    place.ledger.write(store, [page(2)])
    assert place.rows() == rows_of(1, 2)


@pytest.mark.parametrize(
    ("sqlstate", "error"),
    [
        ("53100", StoreUnavailable),  # disk full
        ("53200", StoreUnavailable),  # out of memory
        ("40001", StoreUnavailable),  # serialization failure
        ("40P01", StoreUnavailable),  # deadlock
        ("55P03", StoreUnavailable),  # lock timeout
        ("57014", StoreUnavailable),  # statement canceled
        ("25006", StoreUnavailable),  # read-only: failover
        ("58030", StoreUnavailable),  # input/output error
        ("23514", StoreError),  # check constraint
        ("42501", StoreError),  # not allowed
        ("XX000", StoreError),  # internal error
    ],
)
def test_what_passes_is_told_from_what_does_not(place: PostgresPlace, sqlstate: str, error: type[ShoalError]):
    """Nothing is written either way, and once it has passed the same batch goes in."""
    store = place.open()
    place.ledger.write(store, [page(1)])
    place.db.execute(
        f"""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN RAISE EXCEPTION 'no can do' USING ERRCODE = '{sqlstate}', DETAIL = 'secret'; END$$"""
    )
    place.db.execute("CREATE TRIGGER refuse BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION refuse()")
    with pytest.raises(error, match=r"^cannot write to postgresql://127\.0\.0\.1:\d+/postgres: no can do$"):
        place.ledger.write(store, [page(2), page(3)])
    place.db.execute("DROP TRIGGER refuse ON items")
    place.ledger.write(store, [page(2), page(3)])
    assert place.rows() == rows_of(1, 2, 3)


def crawl(target: str, path: Path, tokens: range, begun: Barrier, turns: Semaphore) -> int:
    """Do pages as a worker does, whatever happens to the server; returns how often it was not there."""
    troubles = 0
    with closing(Ledger(str(path))) as ledger, closing(open_store(target, crawl="shop")) as store:
        ledger.open(store)
        begun.wait(30)
        for token in tokens:
            turns.acquire()
            while token not in ledger.done():
                try:
                    ledger.write(store, [page(token)])
                except StoreUnavailable:
                    troubles += 1
                    time.sleep(0.01)
    return troubles


@pytest.mark.usefixtures("postgres")  # skips where there is none
def test_a_killed_server_loses_nothing(tmp_path: Path):
    """PostgreSQL is killed twice in the middle of a crawl: workers wait, and every row is there once."""
    path, begun, turns = tmp_path / "ledger", Barrier(3), Semaphore(0)
    tokens = [range(100, 160), range(200, 260)]
    with PostgresServer() as server, closing(Ledger(str(path))) as ledger, ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(crawl, server.url, path, own, begun, turns) for own in tokens]
        begun.wait(30)
        for done in (10, 70):
            turns.release(60)
            while len(ledger.done()) < done:
                for ended in [job for job in jobs if job.done()]:
                    ended.result()
                time.sleep(0.001)
            server.kill()
            time.sleep(0.05)
            server.start()
        assert sum(job.result() for job in jobs) > 0
        with server.connect() as db:
            rows = db.execute("SELECT url, n FROM items ORDER BY token, idx").fetchall()
    assert rows == rows_of(*tokens[0], *tokens[1])


# --- targets that do not work ------------------------------------------------------------------------


def objection(target: str) -> str:
    """What opening the store raises: one line without secrets."""
    with (
        closing(open_store(target, crawl="shop")) as store,
        closing(Ledger()) as ledger,
        pytest.raises((StoreError, StoreUnavailable)) as caught,
    ):
        ledger.open(store)
    message = str(caught.value)
    assert message.startswith("cannot write to postgresql://127.0.0.1:")
    assert "\n" not in message
    assert "secret" not in message
    return message.partition(": ")[2]


def test_nobody_listens():
    """Connection refused, by whom. A crawl that has rows there may wait for it; for others it is wrong."""
    target = f"postgresql://user:secret@127.0.0.1:{free_port()}/shop"
    assert objection(target) == "Connection refused"
    store = open_store(target, crawl="shop")
    with closing(Ledger()) as ledger:
        with pytest.raises(StoreError):
            ledger.open(store)
        ledger.record((store.name, 7))
        with pytest.raises(StoreUnavailable):
            ledger.open(store)


@pytest.mark.parametrize(
    ("parts", "query", "message"),
    [
        ({"password": "secret"}, "", 'password authentication failed for user "postgres"'),
        ({"user": "nobody"}, "", 'password authentication failed for user "nobody"'),
        ({"database": "nowhere"}, "", 'database "nowhere" does not exist'),
        ({}, "schema=nowhere", 'schema "nowhere" does not exist'),
        ({}, "options=-c%20default_transaction_read_only%3Don", "read-only transaction"),
        ({}, "sslmode=require", "server does not support SSL, but SSL was required"),
    ],
)
def test_the_server_refuses(postgres: PostgresServer, parts: dict[str, str], query: str, message: str):
    """What PostgreSQL says is passed on."""
    assert message in objection(f"{postgres.url_for(**parts)}?{query}")


def test_the_server_is_something_else():
    """Whatever it may be."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.sendall(b"-ERR unknown command\r\n")
                connection.recv(1000)

        thread = threading.Thread(target=answer)
        thread.start()
        message = objection(f"postgresql://u:secret@127.0.0.1:{listener.getsockname()[1]}/shop")
        thread.join()
    assert "received invalid response" in message


def test_the_server_says_nothing(redis_server: RedisServer):
    """It is not waited for longer than the target says: a Redis waits for more, for example."""
    target = f"postgresql://u:secret@127.0.0.1:{redis_server.port}/shop?connect_timeout=2"
    assert objection(target) == "connection timeout expired"


@pytest.mark.parametrize(
    "definition", ["(id bigint, name text)", "(crawl text, fingerprint text, idx int, token bigint)"]
)
def test_a_table_of_something_else_is_refused(place: PostgresPlace, definition: str):
    """And nothing is made or changed."""
    place.db.execute(f"CREATE TABLE items {definition}")
    with pytest.raises(StoreError, match=r'postgresql://\S+ has a table "items" already.*\?table=NAME'):
        place.open()
    assert place.db.execute("SELECT FROM pg_tables WHERE schemaname = %s", [place.schema]).rowcount == 1
    with closing(open_store(f"{place.target}&table=rows", crawl="shop")) as store:
        place.ledger.write(place.ledger.open(store), [page(1)])
    assert place.db.execute("SELECT FROM rows").rowcount == 2


@pytest.fixture
def clerk(place: PostgresPlace, postgres: PostgresServer) -> Iterator[str]:
    """The target as a user sees it who may use the schema and no more."""
    place.db.execute("CREATE ROLE clerk LOGIN PASSWORD 'secret'")
    place.db.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO clerk").format(sql.Identifier(place.schema)))
    yield f"{postgres.url_for(user='clerk', password='secret')}?{place.target.partition('?')[2]}"
    place.db.execute("DROP OWNED BY clerk")
    place.db.execute("DROP ROLE clerk")


def test_a_user_who_may_not(place: PostgresPlace, clerk: str):
    """Make tables, or write: it is found out when the store is opened."""
    assert "permission denied for schema" in objection(clerk)
    place.open()
    assert "permission denied for table items" in objection(clerk)
    place.db.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON items_pages, items_crawls TO clerk")
    place.db.execute("GRANT SELECT, DELETE ON items TO clerk")
    assert objection(clerk) == "permission denied for table items"


def test_a_user_who_may_only_write(place: PostgresPlace, clerk: str):
    """Is enough, until a new column is needed."""
    place.ledger.write(place.open(), [page(1)])
    place.db.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON items, items_pages, items_crawls TO clerk")
    with closing(place.ledger.open(open_store(clerk, crawl="shop"))) as store:
        place.ledger.write(store, [page(2)])
        with pytest.raises(StoreError, match=r'the columns "new" \(text\) cannot be had: must be owner'):
            place.ledger.write(store, [outcome(3, {"new": "x"})])
    assert place.rows() == rows_of(1, 2)


def test_a_database_without_unicode_is_refused(postgres: PostgresServer):
    """Text would be lost in it."""
    with postgres.connect() as db:
        db.execute("CREATE DATABASE old ENCODING 'LATIN1' TEMPLATE template0")
        with pytest.raises(StoreError, match=r"postgresql://\S+/old is encoded in LATIN1"):
            Ledger().open(open_store(postgres.url_for(database="old"), crawl="shop"))
        db.execute("DROP DATABASE old")


@pytest.mark.parametrize(
    "target",
    [
        "postgresql://user:sec/ret@127.0.0.1:1/db",
        "postgresql://user:123/sec@127.0.0.1:1/db",
        "postgresql://user:sec%ret@127.0.0.1:1/db",
        "postgresql://user:sec@ret@127.0.0.1:1/db",
        "postgresql://user:sec?ret@127.0.0.1:1/db",
        "postgresql://127.0.0.1:sec/db",
        "postgresql://127.0.0.1/db?sec=ret",
        "postgresql://[127.0.0.1/sec",
    ],
)
def test_a_target_that_cannot_be_read(target: str):
    """ConfigError, which shows how it should be and nothing of how it is."""
    with pytest.raises(ConfigError, match="postgresql://USER:PASSWORD@HOST:PORT/DATABASE") as caught:
        open_store(target, crawl="shop")
    assert "sec" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["", "x" * 57, "é" * 29])
def test_a_table_needs_a_name_that_fits(name: str):
    """There must be room for the names of the other two tables."""
    with pytest.raises(ConfigError, match="cannot be the name of a table"):
        open_store(f"postgresql:///db?table={quote(name)}", crawl="shop")


@pytest.mark.parametrize(
    ("target", "public"),
    [
        ("postgresql://u:p@h:1/db?table=a", "postgresql://h:1/db?table=a"),
        ("postgresql://u:p/w@x?y@h/db", "postgresql://h/db"),
        (
            "postgresql://h/db?password=p&table=a&sslpassword=q",
            "postgresql://h/db?password=&table=a&sslpassword=",
        ),
        ("postgresql:///db", "postgresql:///db"),
        ("out/a@b.csv", "out/a@b.csv"),
    ],
)
def test_targets_are_shown_without_secrets(target: str, public: str):
    """For messages, logs and what the frontier remembers of a crawl."""
    assert shown(target) == public


def test_an_unknown_target_is_shown_without_secrets():
    """Other databases are no targets, but have passwords too."""
    with pytest.raises(ConfigError, match="'mysql://h/db'"):
        open_store("mysql://user:secret@h/db", crawl="shop")


def test_the_package_may_be_missing(monkeypatch: pytest.MonkeyPatch):
    """Then the message says what to install."""
    monkeypatch.setitem(sys.modules, "shoal.store.postgres", None)
    with pytest.raises(ConfigError, match=r"pip install 'shoal\[postgres\]'"):
        open_store("postgresql://h/db", crawl="shop")
