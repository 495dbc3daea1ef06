"""`shoal export`: the rows of a crawl, wherever they are, in any format, each of them once."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow.parquet as pq
import pytest
from tests.e2e.shell import Ended, Shell
from tests.site import Site

from shoal.decode import zstd

SELECT = ("--select", "id=article::attr(data-id)", "--select", "title=h1")


def _jsonl(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def _csv(content: bytes) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def _sqlite(content: bytes) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.deserialize(content)
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute("SELECT * FROM items")]


def _parquet(content: bytes) -> list[dict[str, Any]]:
    return list(pq.read_table(io.BytesIO(content)).to_pylist())


FORMATS: dict[str, Callable[[bytes], list[dict[str, Any]]]] = {
    "rows.jsonl": _jsonl,
    "rows.csv": _csv,
    "rows.db": _sqlite,
    "rows.parquet": _parquet,
    "rows.jsonl.gz": lambda content: _jsonl(gzip.decompress(content)),
    "rows.csv.zst": lambda content: _csv(zstd.decompress(content)),
}
"""By the name of the file, how another program reads it."""


@pytest.fixture(params=["state", "jsonl", "csv", "sqlite", "parquet", "postgres", "s3", "s3.gz", "s3.zst"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, ...]]:
    """Options that say where rows go: to each of the stores."""
    kind = request.param
    if kind == "state":
        yield ()
    elif kind == "postgres":
        server = request.getfixturevalue("postgres")
        schema = f"export{time.monotonic_ns()}"
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(f'CREATE SCHEMA "{schema}"')
            yield ("-o", f"{server.url}?schema={schema}")
            db.execute(f'DROP SCHEMA "{schema}" CASCADE')
    elif kind.startswith("s3"):
        request.getfixturevalue("s3")
        yield ("-o", f"s3://rows/export{time.monotonic_ns()}.jsonl{kind[2:]}")
    else:
        yield ("-o", {"sqlite": "sqlite:kept.db", "parquet": "parquet:kept"}.get(kind, f"kept.{kind}"))


@pytest.fixture
def run(shoal: Shell, place: tuple[str, ...]) -> Callable[..., Ended]:
    """The command, with the environment of the test."""
    return shoal if "s3://" not in "".join(place) else Shell(shoal.folder, shoal._nursery).alone


def test_every_store_gives_every_format(
    shoal: Shell, site: Site, place: tuple[str, ...], run: Callable[..., Ended]
) -> None:
    """All rows, once, as other programs read them."""
    processes = 1 if "s3://" in "".join(place) else 2
    run("crawl", site.url, *SELECT, *place, "--processes", processes, "--state", "crawl.shoal")
    expected = sorted((url, row["id"], row["title"]) for url, row in site.rows().items())
    source = ("--from", place[1]) if place and place[1].startswith("postgres") else ()
    for name, read in FORMATS.items():
        assert f"20 rows in {name}" in run("export", "-o", name, "--state", "crawl.shoal", *source).out
        found = read((shoal.folder / name).read_bytes())
        assert sorted((row["url"], row["id"], row["title"]) for row in found) == expected
    [(count,)] = duckdb.sql(f"SELECT count(*) FROM '{shoal.folder / 'rows.parquet'}'").fetchall()
    assert count == 20
    if source:  # its password is not kept with the crawl
        assert "name the place with --from PLACE" in run("export", "--state", "crawl.shoal", code=2).err
    if place:  # a place can be read without the state file, too
        (shoal.folder / "crawl.shoal").unlink()
        run("export", "--from", place[1], "-o", "again.jsonl")
        assert len(shoal.read("again.jsonl").splitlines()) == 20


@pytest.mark.parametrize("output", ["rows.jsonl", "rows.csv", "parquet:rows"])
def test_of_pages_visited_again_the_last_rows_count(shoal: Shell, output: str) -> None:
    """Files keep the rows of earlier visits: --history gives these as well."""
    with Site(12) as site:
        command = ("crawl", site.url, *SELECT, "-o", output, "--revisit", "1s")
        shoal(*command)
        time.sleep(1.5)
        site.editions.update(range(3))
        shoal(*command)
        rows = shoal("export").objects
        assert {row["url"]: row["title"] for row in rows} == {
            url: row["title"] for url, row in site.rows().items()
        }
        assert len(rows) == 12
        assert len(shoal("export", "--history").objects) == 15


def test_what_is_not_committed_is_not_exported(shoal: Shell, site: Site) -> None:
    """Neither rows behind the last commit nor the beginning of one; without a frontier, all whole rows."""
    shoal("crawl", site.url, *SELECT, "-o", "rows.jsonl", "--state", "crawl.shoal")
    with (shoal.folder / "rows.jsonl").open("a") as file:
        file.write('{"url": "not committed"}\n{"url": "half')
    assert len(shoal("export").objects) == 20
    assert len(shoal("export", "--from", "rows.jsonl").objects) == 21


def test_a_row_in_two_parts_is_exported_once(shoal: Shell, site: Site) -> None:
    """As when small parts are just being put together, or a dead worker has left one behind."""
    shoal("crawl", site.url, *SELECT, "-o", "parquet:rows", "--state", "crawl.shoal")
    [part] = (shoal.folder / "rows").rglob("*.parquet")
    writer, _, end, _ = part.name.removeprefix("part-").split("-")
    (part.parent / f"part-{writer}-{0:010d}-{5:010d}-abc.parquet").write_bytes(part.read_bytes())
    (part.parent / f"part-{writer}-{end}-{int(end) + 20:010d}-abc.parquet").write_bytes(part.read_bytes())
    (part.parent / f"part-00000000-{0:010d}-{20:010d}-abc.parquet").write_bytes(part.read_bytes())
    urls = [row["url"] for row in shoal("export").objects]
    assert sorted(urls) == sorted(site.urls)


def test_numbers_and_lists_stay_what_they_are(shoal: Shell) -> None:
    """Parquet has types; SQLite keeps numbers as numbers and lists as JSON."""
    rows = [{"n": 1, "price": 2.5, "ok": True, "tags": ["a", "b"], "none": None}, {"n": 2**70, "new": "x"}]
    shoal.write("in.jsonl", "\n".join(map(json.dumps, rows)) + "\n")
    shoal("export", "--from", "in.jsonl", "-o", "out.parquet")
    first, second = _parquet((shoal.folder / "out.parquet").read_bytes())
    assert (first["price"], first["ok"], first["tags"], second["new"]) == (2.5, True, ["a", "b"], "x")
    shoal("export", "--from", "in.jsonl", "-o", "sqlite:out.db")
    first, second = _sqlite((shoal.folder / "out.db").read_bytes())
    assert (first["n"], first["price"], first["tags"], second["n"]) == (1, 2.5, '["a","b"]', str(2**70))


def test_several_crawls_in_one_database_are_told_apart(shoal: Shell) -> None:
    """Which one is asked if there are several."""
    for _ in range(2):
        with Site(3) as site:
            shoal("crawl", site.url, *SELECT, "-o", "sqlite:all.db")
            name = f"127.0.0.1:{site.port}"
    command = ("export", "--from", "sqlite:all.db")
    assert "name one with --crawl" in shoal(*command, code=2).err
    assert "has no rows of a crawl 'x'" in shoal(*command, "--crawl", "x", code=2).err
    assert len(shoal(*command, "--crawl", name).objects) == 3


BAD: dict[str, tuple[list[str], str]] = {
    "no file": (["--from", "no.jsonl"], "there is no file no.jsonl"),
    "no folder": (["--from", "parquet:no"], "there are no rows in parquet:no"),
    "no store": (["--from", "no.xml"], "cannot read rows from 'no.xml'"),
    "not ours": (["--from", "sqlite:other.db"], "other.db is no database of rows that shoal wrote"),
    "no row": (["--from", "bad.jsonl"], "line 2 of bad.jsonl is no row"),
    "not compressed": (["--from", "bad.jsonl.gz"], "cannot read bad.jsonl.gz"),
    "compressed Parquet": (["--from", "bad.jsonl", "-o", "a.parquet.gz"], "is not compressed as a whole"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_said_in_one_line(shoal: Shell, name: str) -> None:
    """And no file is left behind."""
    shoal.write("bad.jsonl", '{"a": 1}\nno\n')
    shoal.write("bad.jsonl.gz", "no")
    with closing(sqlite3.connect(shoal.folder / "other.db")) as db:
        db.execute("CREATE TABLE other (x)")
        db.commit()
    arguments, message = BAD[name]
    before = shoal.files()
    ended = shoal("export", "-o", "out.jsonl", *arguments, code=2)
    [line] = ended.err.splitlines()
    assert message in line
    assert shoal.files() == before


MEASURED = """
import sys
from pathlib import Path
from shoal.cli import main
try:
    main(sys.argv[1:])
finally:
    print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""


@pytest.mark.parametrize("output", ["out.jsonl", "out.csv.gz", "out.db", "out.parquet"])
def test_memory_does_not_grow_with_the_rows(tmp_path: Path, output: str) -> None:
    """Twenty times as many, 80 MB of them, take hardly more; revisited ones included."""
    peaks = []
    for rows in (4_000, 80_000):
        with (tmp_path / "in.jsonl").open("w") as file:
            for number in range(rows):
                row = {"url": f"http://a.test/{number % (rows // 2)}", "text": f"{number} " * 150}
                file.write(json.dumps(row | {"last_changed": f"2026-12-0{1 + 2 * number // rows}"}) + "\n")
        ended = subprocess.run(
            [sys.executable, "-c", MEASURED, "export", "--from", "in.jsonl", "-o", output],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert f"{rows // 2:,} rows in {output}" in ended.stdout
        peaks.append(int(ended.stderr))
    group = 64_000 if output.endswith(".parquet") else 0  # kB: what is written at once
    assert peaks[1] < 1.3 * peaks[0] + group
