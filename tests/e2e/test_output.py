"""What a crawl gives: rows, wherever they go; and nothing else on standard output."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.e2e.shell import COMMAND, PATIENCE_S, Shell
from tests.servers import ScriptedServer, page
from tests.site import Site

SELECT = (
    "--select",
    "id=article::attr(data-id)",
    "--select",
    "title=h1",
    "--select",
    "price=[itemprop=price]::attr(content)",
)


def _expected(site: Site) -> list[dict[str, str]]:
    rows = [{"url": url, **fields} for url, fields in site.rows().items()]
    return sorted(rows, key=lambda row: row["url"])


def _by_url(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(rows, key=lambda row: row["url"])


# --- which rows -----------------------------------------------------------------------------


def test_without_select_each_page_gives_a_row_about_itself(shoal: Shell) -> None:
    """url, status, title, depth, fetched_at and text_length."""
    before = datetime.now(UTC) - timedelta(seconds=1)
    body = "<title> A\n title </title><p>Größe <a href='/b'>b</a>"
    with ScriptedServer(
        {"/": page(body.encode()), "/b": page(b"<p>no title</p>", "203 Non-Authoritative")}
    ) as server:
        shoal("crawl", server.url())
        first, second = shoal.rows()
    assert list(first) == ["url", "status", "title", "depth", "fetched_at", "text_length"]
    fetched_at = datetime.fromisoformat(first.pop("fetched_at"))
    assert before <= fetched_at <= datetime.now(UTC)
    assert first == {
        "url": server.url(),
        "status": 200,
        "title": "A title",
        "depth": 0,
        "text_length": len(body),
    }
    assert (second["status"], second["title"], second["depth"]) == (203, None, 1)


def test_select_gives_the_fields_asked_for(shoal: Shell, site: Site) -> None:
    """One row for each page, its url first, then the fields in their order."""
    shoal("crawl", site.url, *SELECT)
    rows = shoal.rows()
    assert all(list(row) == ["url", "id", "title", "price"] for row in rows)
    assert _by_url(rows) == _expected(site)


def test_selectors_mean_what_they_mean_in_scrapy(shoal: Shell) -> None:
    """::text is the default, ::attr(x) an attribute, and the first place that matches counts."""
    body = """
        <h1> The <b>big</b>
        book</h1><h1>Another</h1>
        <a class=buy href="/buy?a=1&amp;b=2" data-note=" as it is "> Buy </a><p class=empty></p>
    """
    selects = {
        "plain": "h1",
        "text": "h1::text",
        "href": "a.buy::attr(href)",
        "note": "a.buy::attr(data-note)",
        "list": ".nothing, .buy",
        "empty": ".empty",
        "missing": "h2",
        "missing_attr": "h1::attr(id)",
    }
    options = [option for name, css in selects.items() for option in ("--select", f"{name}={css}")]
    with ScriptedServer({"/": page(body.encode())}) as server:
        shoal("crawl", server.url(), *options)
        [row] = shoal.rows()
    assert row == {
        "url": server.url(),
        "plain": "The big book",
        "text": "The big book",
        "href": "/buy?a=1&b=2",
        "note": " as it is ",
        "list": "Buy",
        "empty": "",
        "missing": None,
        "missing_attr": None,
    }


def test_a_page_where_nothing_matches_gives_no_row(shoal: Shell) -> None:
    """But its links are followed; one field that matches is enough."""
    with ScriptedServer(
        {
            "/": page(b"<p><a href='/a'>a</a>"),
            "/a": page(b"<h1>A</h1><a href='/b'>b</a>"),
            "/b": page(b"<h2>B</h2>"),
        }
    ) as server:
        shoal("crawl", server.url(), "--select", "one=h1", "--select", "two=h2")
        assert shoal.rows() == [
            {"url": server.url("/a"), "one": "A", "two": None},
            {"url": server.url("/b"), "one": None, "two": "B"},
        ]


def test_text_is_decoded_as_browsers_do_it(shoal: Shell) -> None:
    """By the header, by a meta element, and by detection."""
    pages = {
        "/": page(b"<a href=/a>1</a><a href=/b>2</a>"),
        "/a": page(
            "<h1>Grüße</h1>".encode("latin-1"), "200 OK", "Content-Type: text/html; charset=iso-8859-1"
        ),
        "/b": page(
            "<meta charset=windows-1251><h1>Привет</h1>".encode("cp1251"), "200 OK", "Content-Type: text/html"
        ),
    }
    with ScriptedServer(pages) as server:
        shoal("crawl", server.url(), "--select", "title=h1")
        assert {row["title"] for row in shoal.rows()} == {"Grüße", "Привет"}


# --- where they go --------------------------------------------------------------------------


def test_rows_in_json_lines(shoal: Shell, site: Site) -> None:
    """One object a line."""
    ended = shoal("crawl", site.url, *SELECT, "-o", "rows.jsonl")
    assert ended.out == ""
    assert ended.err.endswith("the rows are in rows.jsonl\n")
    rows = [json.loads(line) for line in shoal.read("rows.jsonl").splitlines()]
    assert _by_url(rows) == _expected(site)


def test_rows_in_csv(shoal: Shell, site: Site) -> None:
    """A header, and the columns in the order of the options."""
    shoal("crawl", site.url, *SELECT, "--output", "rows.csv")
    text = (shoal.folder / "rows.csv").read_bytes().decode()
    assert text.startswith("url,id,title,price\r\n")
    assert _by_url(list(csv.DictReader(io.StringIO(text)))) == _expected(site)


def test_rows_in_sqlite(shoal: Shell, site: Site) -> None:
    """A table called items with a column for each field."""
    shoal("crawl", site.url, *SELECT, "-o", "sqlite:rows.db")
    with closing(sqlite3.connect(shoal.folder / "rows.db")) as db:
        db.row_factory = sqlite3.Row
        rows = [dict(row) for row in db.execute("SELECT url, id, title, price FROM items")]
    assert _by_url(rows) == _expected(site)


def test_rows_in_a_file_that_is_empty_or_in_another_folder(shoal: Shell, site: Site) -> None:
    """An empty file is nobody's; folders are fine if they are there."""
    shoal.write("rows.csv", "")
    (shoal.folder / "out").mkdir()
    shoal("crawl", site.url, "-o", "rows.csv", "--state", "a.shoal")
    shoal("crawl", site.url, "-o", shoal.folder / "out" / "rows.jsonl", "--state", "out/b.shoal")
    assert len(shoal.read("rows.csv").splitlines()) == 21
    assert len(shoal.read("out/rows.jsonl").splitlines()) == 20


# --- export ---------------------------------------------------------------------------------


def test_export_writes_the_rows_that_the_state_file_keeps(shoal: Shell, site: Site) -> None:
    """To a file by its name, to standard output as JSON lines or CSV; the same rows each time."""
    shoal("crawl", site.url, *SELECT)
    assert shoal("export", "-o", "rows.jsonl").out == "20 rows in rows.jsonl\n"
    assert shoal("export", "-o", "rows.csv").out == "20 rows in rows.csv\n"
    assert shoal("export", "-o", "rows.txt", "--format", "csv").out == "20 rows in rows.txt\n"
    assert _by_url(shoal.rows()) == _expected(site)
    assert [json.loads(line) for line in shoal.read("rows.jsonl").splitlines()] == shoal.rows()
    text = shoal("export", "--format", "csv").out
    assert text.splitlines()[0] == "url,id,title,price"
    assert _by_url(list(csv.DictReader(io.StringIO(text)))) == _expected(site)
    assert shoal.read("rows.csv").splitlines() == shoal.read("rows.txt").splitlines() == text.splitlines()


def test_export_replaces_a_file(shoal: Shell, site: Site) -> None:
    """As copying does; what was there before is gone."""
    shoal("crawl", site.url, "--depth", "0")
    shoal.write("rows.csv", "old\n" * 1000)
    shoal("export", "-o", "rows.csv")
    assert len(shoal.read("rows.csv").splitlines()) == 2


def test_export_can_defuse_formulas(shoal: Shell) -> None:
    """With --csv-safe, what a spreadsheet would run gets an apostrophe in front."""
    with ScriptedServer({"/": page(b"<h1>=1+1</h1>")}) as server:
        shoal("crawl", server.url(), "--select", "title=h1")
    assert shoal("export", "--format", "csv").out.splitlines()[1].endswith(",=1+1")
    assert shoal("export", "--format", "csv", "--csv-safe").out.splitlines()[1].endswith(",'=1+1")


def test_a_crawl_can_defuse_formulas(shoal: Shell) -> None:
    """With --csv-safe, the rows of a CSV file get the apostrophe too; by default none do."""
    with ScriptedServer({"/": page(b"<h1>@SUM(A1)</h1>")}) as server:
        shoal("crawl", server.url(), "--select", "title=h1", "-o", "rows.csv")
        assert shoal.read("rows.csv").splitlines()[1].endswith(",@SUM(A1)")
        shoal("crawl", server.url(), "--select", "title=h1", "-o", "rows.csv", "--csv-safe", "--fresh")
    assert shoal.read("rows.csv").splitlines()[1].endswith(",'@SUM(A1)")


def test_export_of_rows_that_are_gone_says_where_they_were(shoal: Shell, site: Site) -> None:
    """They are not in the state file."""
    shoal("crawl", site.url, "-o", "rows.csv")
    (shoal.folder / "rows.csv").unlink()
    assert shoal("export", code=2).err == "shoal: there is no file rows.csv\n"


def test_export_into_a_pipe_that_closes_ends_quietly(shoal: Shell) -> None:
    """`shoal export | head -1` is no error."""
    with Site(3) as site:
        shoal.write(
            "many.py",
            f"""
            import shoal

            crawl = shoal.Crawl("many", seeds=["{site.url}"])

            @crawl.page()
            def rows(page):
                return [{{"text": "x" * 1000, "number": number}} for number in range(1000)]
            """,
        )
        shoal("run", "many.py", "-q")
    process = shoal.start("export")
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["number"] == 0
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE_S) == 0


def test_values_that_json_lacks_have_one_form_everywhere(shoal: Shell, site: Site) -> None:
    """Dates, decimals, bytes, lists and the like, in JSON lines, CSV, SQLite and the state file."""
    shoal.write(
        "odd.py",
        f"""
        import shoal
        from datetime import UTC, date, datetime
        from decimal import Decimal

        crawl = shoal.Crawl("odd", seeds=["{site.url}"], max_depth=0)

        @crawl.page()
        def row(page):
            return {{
                "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
                "day": date(2026, 1, 2),
                "price": Decimal("1.10"),
                "raw": b"\\x00\\xff",
                "tags": ("a", "b"),
                "none": None,
                "yes": True,
                "big": 2**70,
                "nan": float("nan"),
            }}
        """,
    )
    row = {
        "at": "2026-01-02T03:04:05Z",
        "day": "2026-01-02",
        "price": "1.10",
        "raw": "AP8=",
        "tags": ["a", "b"],
        "none": None,
        "yes": True,
        "big": 2**70,
        "nan": None,
    }
    shoal("run", "odd.py", "--state", "a.shoal")
    assert shoal.rows("--state", "a.shoal") == [row]
    shoal("run", "odd.py", "--state", "b.shoal", "-o", "rows.jsonl")
    assert json.loads(shoal.read("rows.jsonl")) == row
    shoal("run", "odd.py", "--state", "c.shoal", "-o", "rows.csv")
    [cells] = csv.DictReader(io.StringIO(shoal.read("rows.csv")))
    assert cells == {
        **row,
        "tags": '["a","b"]',
        "none": "",
        "yes": "true",
        "big": str(2**70),
        "nan": "",
    }
    shoal("run", "odd.py", "--state", "d.shoal", "-o", "sqlite:rows.db")
    with closing(sqlite3.connect(shoal.folder / "rows.db")) as db:
        found = db.execute("SELECT at, day, price, raw, tags, none, yes, big, nan FROM items").fetchall()
    assert found == [
        ("2026-01-02T03:04:05Z", "2026-01-02", "1.10", "AP8=", '["a","b"]', None, 1, str(2**70), None)
    ]


# --- what else is written -------------------------------------------------------------------


def test_quiet_says_nothing(shoal: Shell) -> None:
    """Neither on standard output nor on standard error, dead letters or not, finished or not."""
    with Site(5, extras=["/status/410"]) as site:
        for _ in range(2):
            ended = shoal("crawl", site.url, "-q")
            assert (ended.out, ended.err) == ("", "")


def test_errors_are_told_even_if_quiet(shoal: Shell) -> None:
    """A quiet command that fails says why."""
    assert shoal("crawl", "books", "--quiet", code=2).err.startswith("shoal: not an http(s) URL")


def test_the_log_may_be_json_lines(shoal: Shell) -> None:
    """Every line on standard error is an object; the last summary carries the counters."""
    with Site(5, extras=["/status/410", "/private/x"]) as site:
        ended = shoal("crawl", site.url, "--log-json", "--verbose")
        again = shoal("crawl", site.url, "--log-json")
    lines = [json.loads(line) for line in ended.err.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    visits = {line["url"]: line for line in lines if line["logger"] == "shoal.visit"}
    assert set(visits) == {*site.urls, f"{site.url}status/410", f"{site.url}private/x"}
    dead = visits[f"{site.url}status/410"]
    assert (dead["outcome"], dead["reason"], dead["status"], dead["attempt"]) == ("dead", "HTTP 410", 410, 1)
    assert isinstance(dead["latency_ms"], int)
    [summary] = [line for line in lines if line["message"].startswith("finished after")]
    assert (summary["done"], summary["dead"], summary["skipped"], summary["items"]) == (5, 1, 1, 5)
    first, *_ = [json.loads(line) for line in again.err.splitlines()]
    assert first["message"].startswith("already finished: 5 pages")


def test_verbose_gives_a_line_for_each_page(shoal: Shell, site: Site) -> None:
    """With what became of it."""
    ended = shoal("crawl", site.url, "-v")
    assert sum(" debug: done http://" in line for line in ended.err.splitlines()) == 20


def test_what_a_page_says_cannot_forge_lines_of_the_log(shoal: Shell) -> None:
    """Control characters are written out."""
    shoal.write(
        "forge.py",
        """
        from pathlib import Path
        import shoal

        crawl = shoal.Crawl("forge", seeds=[Path("url").read_text()], retries=0)

        @crawl.page()
        def row(page):
            raise ValueError("first\\nshoal: second\\x1b[31m")
        """,
    )
    with ScriptedServer({"/": page(b"")}) as server:
        shoal.write("url", server.url())
        ended = shoal("run", "forge.py", code=1)
    [line] = [line for line in ended.err.splitlines() if "warning" in line]
    assert line.endswith(r"raised ValueError: first\nshoal: second\x1b[31m")
    shown = ended.err + shoal("dead", "--errors").out + shoal("why", server.url()).out
    assert "\x1b" not in shown


def test_commands_print_what_python_can_encode(shoal: Shell, tmp_path: Path) -> None:
    """In a terminal that knows ASCII only, too."""
    with ScriptedServer({"/": page("<h1>Größe</h1>".encode())}) as server:
        shoal("crawl", server.url(), "--select", "title=h1")
    done = subprocess.run(
        [*COMMAND, "export"],
        cwd=tmp_path,
        env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert json.loads(done.stdout)["title"] == "Größe"


@pytest.mark.parametrize("command", ["status", "dead", "skipped", "why"])
def test_data_may_be_printed_as_json(shoal: Shell, command: str) -> None:
    """Every line of --json is an object."""
    with Site(3, extras=["/status/410", "/private/x"]) as site:
        shoal("crawl", site.url, "-q")
        args = [site.url] if command == "why" else []
        objects = shoal(command, *args, "--json").objects
    assert objects
    assert all(isinstance(each, dict) for each in objects)
