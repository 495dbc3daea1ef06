"""A crawl on the command line, in processes that can be killed, and what must be true of it at any time."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import duckdb
import psutil
from click.testing import CliRunner
from fastwarc import ArchiveIterator, WarcRecordType
from tests.contract.invariants import assert_nothing_lost
from tests.names import pid_of
from tests.site import Site
from warcio.checker import Checker

from shoal.cli import shoal
from shoal.frontier.sqlite import SqliteFrontier, crawl_names
from shoal.store.base import absolute

SHOAL = Path(sys.executable).with_name("shoal")
HERE = Path(__file__).parent
KINDS = {"state": None, "jsonl": "rows.jsonl", "csv": "rows.csv", "sqlite": "sqlite:rows.db"}
"""Where the rows go."""

PART_KINDS = {
    "parquet": "parquet:rows",
    "s3": "s3://rows/{folder}/rows.jsonl",
    "warc": None,
    "two": "parquet:rows",
}
"""The same, with many parts. With "warc" they stay in the state file, and the pages are archived; "two" has
a second output, which is a file."""

SELECTS = ("id=article::attr(data-id)", "title=h1", "price=[itemprop=price]::attr(content)")
POLL_S = 0.005

SCRAPER = """\
import os, signal, time
import shoal

crawl = shoal.Crawl("site", seeds=["{url}"])

@crawl.page()
def row(page):
    {fault}
    yield {{
        "url": page.url,
        "id": page.css("article::attr(data-id)").get(),
        "title": page.css("h1::text").get(),
        "price": page.css("[itemprop=price]::attr(content)").get(),
    }}
    yield from page.links()
"""

Row = Mapping[str, object]


class Running:
    """One process of a crawl, with the children that it has: a process group."""

    def __init__(self, command: Iterable[object], folder: Path, log: Path) -> None:
        self.log = log
        self._began = time.monotonic()
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*map(str, command)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send it to the main process alone; nothing happens if that has ended."""
        self._process.send_signal(number)

    def kill(self, *, whole: bool) -> bool:
        """SIGKILL for the main process or the whole group; returns whether it was still running."""
        if whole and not self.ended():
            os.killpg(self.pid, signal.SIGKILL)
        self.signal(signal.SIGKILL)
        return self.wait() == -signal.SIGKILL

    def wait(self, seconds: float = 100.0) -> int:
        """The exit code. Fails if it takes longer; tells what the process had to say."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            print(f"[{self.log.name}] still running after {seconds} s\n{self.said()}")
            raise
        print(
            f"[{self.log.name}] exit code {code} after {time.monotonic() - self._began:.2f} s\n{self.said()}"
        )
        return code

    def ended(self) -> bool:
        return self._process.poll() is not None

    def said(self) -> str:
        """What is on its stderr so far."""
        return self.log.read_text(errors="replace")

    def members(self) -> list[int]:
        """All living processes of the group."""
        return [process.pid for process in psutil.process_iter() if self._holds(process)]

    def _holds(self, process: psutil.Process) -> bool:
        try:
            return os.getpgid(process.pid) == self.pid and process.status() != psutil.STATUS_ZOMBIE
        except (ProcessLookupError, psutil.NoSuchProcess):
            return False

    def end(self) -> None:
        """Leave nothing behind."""
        if self._process.returncode is None or self.members():
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


class Crawling:
    """One crawl of a site, by the same command again and again.

    kind: where its rows go, one of KINDS.
    fault: a statement in the handler of a scraper, which is run instead of --select.
    state and rows: other folders for these files. bucket: where the object store keeps it.
    """

    def __init__(
        self,
        site: Site,
        kind: str,
        *options: object,
        folder: Path,
        fault: str = "",
        state: Path | None = None,
        rows: Path | None = None,
        bucket: Path | None = None,
    ) -> None:
        self.site, self.kind, self.folder = site, kind, folder
        self.state = (state or folder) / "state.shoal"
        scheme, colon, name = ((KINDS | PART_KINDS)[kind] or "").rpartition(":")
        self.output = (rows or folder) / name
        target = f"{scheme}{colon}{self.output}"
        if kind == "s3":
            target = f"{scheme}:{name.format(folder=f'{folder.parent.name}-{folder.name}')}"
            self.output = (bucket or folder).parent / target.removeprefix("s3://")
        self.archive = (rows or folder) / "archive"
        self._command: list[object] = ["crawl", site.url, *(f"--select={field}" for field in SELECTS)]
        self._runs: list[Running] = []
        folder.mkdir()
        if fault:
            (folder / "scraper.py").write_text(SCRAPER.format(url=site.url, fault=fault))
            self._command = ["run", "scraper.py"]
        if name:
            self._command += ["-o", target]
        if kind == "two":
            self._command += ["-o", (rows or folder) / "rows.csv"]
        if kind == "warc":
            self._command += ["--archive", self.archive]
        self._command += ["--scope", "any", "--state", self.state, *options]

    # --- running it -----------------------------------------------------------------------

    def start(self, program: str = "", *options: object) -> Running:
        """The command, as a user types it, or with another program: faulty.py or hasty.py."""
        shoal = [sys.executable, HERE / program, *options] if program else [SHOAL]
        log = self.folder / f"run-{len(self._runs)}.log"
        self._runs.append(Running([*shoal, *self._command], self.folder, log))
        return self._runs[-1]

    def finish(self) -> None:
        """Run the command to its end: then everything must be there, once and right."""
        assert self.start().wait() == 0
        self.assert_finished()

    def end(self) -> None:
        for run in self._runs:
            run.end()

    # --- looking at it --------------------------------------------------------------------

    def ask(self, query: str) -> list[tuple[object, ...]]:
        """Rows of the state file; none while there is nothing to ask.

        The connection is closed at once: it would keep alive what SQLite shares between processes, and a
        kill would not be what it is without it.
        """
        try:
            with closing(sqlite3.connect(f"file:{self.state}?mode=ro", uri=True)) as db:
                return db.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []

    def done(self) -> int:
        return sum(count for (count,) in self.ask("SELECT done FROM crawls"))

    def at_work(self) -> set[int]:
        """The pids of the processes that hold leases."""
        return {pid_of(name) for (name,) in self.ask("SELECT DISTINCT worker FROM leases")}

    def until(self, true: Callable[[], object], run: Running, seconds: float = 60.0) -> bool:
        """Wait until it is true; returns False if the run ended before."""
        deadline = time.monotonic() + seconds
        while not true():
            if run.ended():
                return False
            assert time.monotonic() < deadline, f"not within {seconds} s: {run.said()}"
            time.sleep(POLL_S)
        return True

    def status(self) -> dict[str, object]:
        """What `shoal status` prints."""
        return json.loads(self._printed("status", "--json"))

    def _printed(self, *arguments: str) -> str:
        """What another command of shoal prints about this crawl."""
        result = CliRunner().invoke(shoal, [*arguments, "--state", str(self.state)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    # --- what must be true ----------------------------------------------------------------

    def assert_finished(self) -> None:
        """All pages are done, their rows are there once and right, and the counters say so."""
        pages = self.site.pages
        wanted = {
            "queued": 0,
            "leased": 0,
            "delayed": 0,
            "done": pages,
            "items": pages,
            "dead": 0,
            "skipped": 0,
        }
        status = self.status()
        assert {name: status[name] for name in wanted} == wanted
        assert status["finished"]
        self.assert_rows(self.site.urls)
        self.assert_sound()
        if self.kind == "two":
            assert self._by_url(self._rows(self.output.with_name("rows.csv"), None)) == self._by_url(
                self._rows(self.output, None)
            )
        if self.kind == "warc":
            assert_archived(self.archive, self.site.urls)

    def assert_rows(self, urls: Iterable[str]) -> None:
        """There is one row for each of these pages, with what the page shows, and no other."""
        truth = self.site.rows()
        kept = self.kind in {"state", "warc"}
        rows = self._exported() if kept else self._rows(self.output, None)
        assert Counter(row["url"] for row in rows) == Counter(urls)
        assert [row for row in rows if row != {"url": row["url"], **truth[str(row["url"])]}] == []

    def assert_sound(self) -> None:
        """While nothing moves: every counter is right, and what is committed are the rows of the done pages.

        The children of a main process that was killed alone go on for a moment, before they see it.
        Looks at copies, so that a run to come finds what the last one left.
        """
        deadline = time.monotonic() + 30
        while any(run.members() for run in self._runs if run.ended()):
            assert time.monotonic() < deadline, "processes outlive their main process"
            time.sleep(POLL_S)
        copies = self.folder / "copies"
        shutil.rmtree(copies, ignore_errors=True)
        copies.mkdir()
        state = _copied(self.state, copies)
        for crawl in crawl_names(str(state)) if _has_tables(state) else ():
            with SqliteFrontier(str(state), crawl, create=False) as frontier:
                pages = _query(state, "SELECT url, state FROM pages")
                assert_nothing_lost(frontier, [(str(url), "") for url, _ in pages])
                done = Counter(url for url, its_state in pages if its_state == "done")
                assert Counter(row["url"] for row in self._committed(frontier, copies)) == done
                assert frontier.stats().items == done.total()

    def _committed(self, frontier: SqliteFrontier, copies: Path) -> Iterable[Row]:
        if self.kind in {"state", "warc"}:
            return frontier.items()
        if self.kind in PART_KINDS:
            return committed_rows(frontier, self.output)
        store = f"{'sqlite:' if self.kind == 'sqlite' else ''}{absolute(self.output)}"
        position = frontier.position(store)
        return self._rows(_copied(self.output, copies), position) if position and position > 0 else []

    @staticmethod
    def _by_url(rows: list[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: str(row["url"]))

    def _exported(self) -> list[Row]:
        return [json.loads(line) for line in self._printed("export", "--format", "jsonl").splitlines()]

    def _rows(self, path: Path, position: int | None) -> list[Row]:
        """The rows up to that position, or all."""
        if self.kind == "sqlite":
            where = "" if position is None else f"WHERE _position <= {position}"
            rows = _query(path, f"SELECT url, id, title, price FROM items {where} ORDER BY _position")
            return [dict(zip(("url", "id", "title", "price"), row, strict=True)) for row in rows]
        if path.is_dir():
            return [row for part in sorted(path.glob("date=*/*")) for row in read_part(part)]
        text = path.read_bytes()[:position].decode()
        assert text.endswith("\n")
        if path.suffix == ".csv":
            return list(csv.DictReader(text.splitlines()))
        return [json.loads(line) for line in text.splitlines()]


def read_part(path: Path) -> list[Row]:
    """The rows of one part, as DuckDB reads them."""
    with duckdb.connect() as db:
        found = db.execute(f"SELECT * EXCLUDE (date) FROM '{path}'")
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def committed_rows(frontier: SqliteFrontier, folder: Path) -> list[Row]:
    """What is committed of the parts in a folder, though dead workers may have left more."""
    rows: list[Row] = []
    place = absolute(folder) if folder.suffix != ".jsonl" else f"s3:/{str(folder).partition('/data')[2]}"
    suffix = "jsonl" if folder.suffix == ".jsonl" else "parquet"
    ends: Counter[str] = Counter()
    for path in sorted(folder.glob("date=*/part-*"), key=_order):
        _, writer, start, end, _ = path.name.split("-")
        position = frontier.position(f"{place} ({suffix})#{writer}") or 0
        if int(start) == ends[writer] < position:  # else within a larger one, or not committed
            ends[writer] = min(int(end), position)
            rows += read_part(path)[: ends[writer] - int(start)]
    return rows


def _order(path: Path) -> tuple[str, int, int]:
    _, writer, start, end, _ = path.name.split("-")
    return writer, int(start), -int(end)


def assert_archived(folder: Path, urls: Iterable[str]) -> None:
    """Each of these pages is in the archive once, with its request, as warcio and FastWARC read it."""
    files = sorted(folder.glob("date=*/*.warc.gz"))
    assert files
    assert Checker(SimpleNamespace(inputs=[str(file) for file in files], verbose=False)).process_all() == 0
    found: Counter[tuple[str, str]] = Counter()
    for file in files:
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream):
                if record.record_type != WarcRecordType.warcinfo:
                    kind = "request" if record.record_type == WarcRecordType.request else "response"
                    found[kind, record.headers["WARC-Target-URI"]] += 1
    assert found == Counter((kind, url) for url in urls for kind in ("request", "response"))


def _copied(path: Path, folder: Path) -> Path:
    """A file, if it is there, and what SQLite has beside it; but not what SQLite shares between processes."""
    for each in (path, path.with_name(path.name + "-wal")):
        if each.exists():
            shutil.copy(each, folder)
    return folder / path.name


def _has_tables(state: Path) -> bool:
    return state.exists() and bool(_query(state, "SELECT 1 FROM sqlite_master WHERE name = 'crawls'"))


def _query(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(query).fetchall()
