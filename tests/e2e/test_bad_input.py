"""What cannot work ends with one line that names the thing and says what to do, and changes nothing."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from tests.e2e.shell import Shell
from tests.site import Site

URL = "http://127.0.0.1:1/"  # nothing is fetched here

# --- options --------------------------------------------------------------------------------

OPTIONS = {
    "no URL": ([], r"Missing argument 'URL\.\.\.'"),
    "not a URL": (["books"], r"not an http\(s\) URL: 'books'; write it like http://example\.com/"),
    "no scheme": (["example.com/a"], r"'example\.com/a'; did you mean http://example\.com/a \?"),
    "no scheme, a port": (["localhost:80"], r"'localhost:80'; did you mean http://localhost:80 \?"),
    "another scheme": (["ftp://a.example/"], r"not an http\(s\) URL: 'ftp://a\.example/'"),
    "one bad URL of two": ([URL, "mailto:a@b"], r"not an http\(s\) URL: 'mailto:a@b'"),
    "bad selector": ([URL, "--select", "t=div > h1["], r"invalid CSS selector 'div > h1\[': .* position 9"),
    "unknown pseudo-element": ([URL, "--select", "t=h1::html"], r"'h1::html': only ::text and ::attr.* 2"),
    "no name": ([URL, "--select", "h1"], r"not NAME=CSS: 'h1'; write for example title=h1"),
    "a name that is taken": ([URL, "--select", "url=h1"], r"'url=h1': .*choose another name"),
    "a name twice": ([URL, "--select", "t=h1", "--select", "t=h2"], r"two fields are called 't'"),
    "unknown option": ([URL, "--speed", "9"], r"No such option '--speed'"),
    "unknown choice": ([URL, "--scope", "all"], r"'--scope': 'all' is not one of 'host', 'domain', 'any'"),
    "concurrency": ([URL, "--concurrency", "0"], r"'--concurrency': 0 is not in the range x>=1"),
    "per-host": ([URL, "--per-host", "0"], r"'--per-host': 0 is not in the range x>=1"),
    "processes": ([URL, "--processes", "0"], r"'--processes': 0 is not in the range 1<=x<=1024"),
    "too many processes": ([URL, "--processes", "1025"], r"'--processes': 1025 is not in the range"),
    "a number without sense": ([URL, "--concurrency", str(2**63 - 1)], r"9223372036854775807 is more than"),
    "retries without sense": ([URL, "--retry", f"dns={2**64}"], r"the retries of 'dns' must be at most"),
    "a delay without sense": ([URL, "--delay", "1e300"], r"delay_s must be at most 9007199254740992"),
    "delay": ([URL, "--delay", "-1"], r"'--delay': -1\.0 is not in the range x>=0"),
    "delay is no number": ([URL, "--delay", "1s"], r"'--delay': '1s' is not a valid number"),
    "delay is not a number": ([URL, "--delay", "nan"], r"delay_s must be a number, and at least 0, not nan"),
    "delay without end": ([URL, "--delay", "inf"], r"delay_s must be a number, and at least 0, not inf"),
    "depth": ([URL, "--depth", "x"], r"'--depth': 'x' is not a valid whole number"),
    "depth below 0": ([URL, "--depth", "-1"], r"'--depth': -1 is not in the range x>=0"),
    "max-pages": ([URL, "--max-pages", "0"], r"'--max-pages': 0 is not in the range x>=1"),
    "max-pages-per-host": ([URL, "--max-pages-per-host", "0"], r"'--max-pages-per-host': 0 is not in"),
    "retries": ([URL, "--retries", "-1"], r"'--retries': -1 is not in the range x>=0"),
    "timeout": ([URL, "--timeout", "0"], r"'--timeout': 0\.0 is not in the range x>0"),
    "retries without a number": ([URL, "--retry", "dns"], r"not a number of retries: 'dns'; write CAUSE=N"),
    "retries of nothing known": (
        [URL, "--retry", "rain=1"],
        r"'rain' is no cause of retries: there are .*dns",
    ),
    "politeness of nothing known": (
        [URL, "--politeness", "ip"],
        r"'ip' is not one of 'host', 'domain', 'address'",
    ),
    "no header": ([URL, "--header", "X-Key"], r"not a header: 'X-Key'; write 'NAME: VALUE'"),
    "bad header": ([URL, "--header", "X Key: 1"], r"the header 'X Key': '1' cannot be sent"),
    "bad header value": ([URL, "--header", "X-Key: 1\r\nB: 2"], r"the header 'X-Key': .* cannot be sent"),
    "bad user agent": ([URL, "--user-agent", "a\nb"], r"the header 'User-Agent': 'a\\nb' cannot be sent"),
    "bad proxy": ([URL, "--proxy", "127.0.0.1:80"], r"the proxy '127\.0\.0\.1:80' is not an http"),
    "bad proxy, several processes": (
        [URL, "--proxy", "socks5://a", "--processes", "2"],
        r"the proxy 'socks5://a' is not an http",
    ),
    "bad glob": ([URL, "--allow", "news/*"], r"pattern 'news/\*' can match no URL: start it with '/'"),
    "glob of a fragment": ([URL, "--deny", "/a#b"], r"pattern '/a#b' can match no URL"),
    "unknown kind of output": ([URL, "-o", "rows.xml"], r"'rows\.xml': name it FILE\.jsonl, .* sqlite:FILE"),
    "a store of the wrong kind": ([URL, "-o", "collections:Counter"], r"collections:Counter is no store"),
    "what makes no store": ([URL, "-o", "math:sqrt"], r"math:sqrt cannot be called with a crawl's name: "),
    "a store that wants more": ([URL, "-o", "fractions:gcd"], r"cannot import the store fractions:gcd"),
    "two places for the URLs": (
        [URL, "--state", "a.shoal", "--frontier", "redis://127.0.0.1:1/0"],
        r"--state and --frontier both say where the URLs are: give one of them",
    ),
    "a database that is no number": (
        [URL, "--frontier", "redis://127.0.0.1:1/shop"],
        r"not a Redis URL: redis://127\.0\.0\.1:1/shop \(the database is a number: redis://HOST:PORT/0\)",
    ),
    "a file where a folder should be": (
        [URL, "-o", "/dev/null/rows.csv"],
        r"no folder .*/dev/null/rows\.csv",
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_a_bad_option_of_crawl_is_refused(shoal: Shell, case: str) -> None:
    """The line names the option or its value, and what would be right."""
    args, message = OPTIONS[case]
    assert re.search(message, shoal.refused("crawl", *args))


OTHERS = {
    "unknown command": (["crwal"], r"No such command 'crwal'"),
    "dead limit": (["dead", "--limit", "0"], r"'--limit': 0 is not in the range x>=1"),
    "why what": (["why"], r"Missing argument 'URL'"),
    "format": (["export", "--format", "xlsx"], r"'xlsx' is not one of 'jsonl', 'csv', 'sqlite', 'parquet'"),
    "no scraper": (["run"], r"Missing argument 'SCRAPER\.py\[:NAME\]'"),
    "no state file": (
        ["status"],
        r"there is no state file \(\*\.shoal\) in this folder: name it with --state",
    ),
    "no such state file": (["status", "--state", "a.shoal"], r"there is no state file a\.shoal"),
    "no state file to export": (["export"], r"there is no state file"),
    "no state file to look in": (["why", URL], r"there is no state file"),
    "no state file to forget in": (["forget", URL], r"there is no state file"),
    "no state file to pause": (["pause"], r"there is no state file"),
    "no state file to resume": (["resume"], r"there is no state file"),
    "no state file to redrive": (["redrive", "--all"], r"there is no state file"),
    "no state file to list": (["dead"], r"there is no state file"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_bad_option_of_another_command_is_refused(shoal: Shell, case: str) -> None:
    """The line names what is missing or wrong."""
    args, message = OTHERS[case]
    assert re.search(message, shoal.refused(*args))


def test_redrive_has_to_be_told_what(shoal: Shell, site: Site) -> None:
    """It queues nothing by accident."""
    shoal("crawl", site.url, "-q")
    ended = shoal("redrive", code=2)
    assert ended.err == "shoal: which dead letters? Give URLs, --host, --reason or --all\n"


def test_the_command_alone_shows_its_help(shoal: Shell) -> None:
    """Without a command there is the list of them, as text, and exit code 2."""
    ended = shoal(code=2)
    assert re.search(r"^  crawl +Crawl the sites", ended.err, re.MULTILINE)
    assert ended.out == ""


# --- scrapers -------------------------------------------------------------------------------

CRAWL = f'shoal.Crawl("a", seeds=["{URL}"]'
SCRAPERS = {
    "syntax": (
        "import shoal\ncrawl = (\n",
        r"a\.py does not import: SyntaxError: .*never closed \[a\.py:2: ",
    ),
    "import": (
        "import shoal\nimport no_such_thing\n",
        r"a\.py does not import: ModuleNotFoundError: No module named 'no_such_thing' \[a\.py:2: import no_",
    ),
    "exception": (
        "def setting():\n    return {}['key']\n\nsetting()\n",
        r"does not import: KeyError: 'key' \[a\.py:4: setting\(\) -> a\.py:2: return \{\}\['key'\]\]$",
    ),
    "its own helper": (
        "import helper\n",
        r"ZeroDivisionError: .* \[a\.py:1: import helper -> helper\.py:1: 1 / 0\]$",
    ),
    "exit": (
        "import sys\nsys.exit('enough')\n",
        r"it ends the program \(sys\.exit\('enough'\)\) \[a\.py:2: ",
    ),
    "no crawl": ("import shoal\n", r"a\.py defines no crawl: write crawl = shoal\.Crawl\("),
    "two crawls": (
        f"import shoal\none = {CRAWL})\ntwo = {CRAWL})\n",
        r"a\.py defines several crawls: name one, as in a\.py:one \(one, two\)",
    ),
    "unknown setting": (
        f"import shoal\ncrawl = {CRAWL}, max_page=3)\n",
        r"^unknown setting 'max_page': did you mean 'max_pages'\? \[a\.py:2: crawl = ",
    ),
    "a setting like no other": (
        f"import shoal\ncrawl = {CRAWL}, zzz=3)\n",
        r"^unknown setting 'zzz': there are seeds, scope, .*, content_types \[a\.py:2: ",
    ),
    "a setting of another type": (
        f"import shoal\ncrawl = {CRAWL}, max_pages='many')\n",
        r"^bad setting max_pages='many': expected int, got str \[a\.py:2: ",
    ),
    "a setting out of range": (
        f"import shoal\ncrawl = {CRAWL}, concurrency=0)\n",
        r"^concurrency must be at least 1, not 0 \[a\.py:2: ",
    ),
    "an unknown scope": (
        f"import shoal\ncrawl = {CRAWL}, scope='all')\n",
        r"^bad setting scope='all': it must be one of host, domain, any \[a\.py:2: ",
    ),
    "seeds in one string": (
        f"import shoal\ncrawl = shoal.Crawl('a', seeds='{URL}')\n",
        rf"^seeds must be a list, not the string '{URL}'; write \['{URL}'\] \[a\.py:2: ",
    ),
    "a bad seed": (
        "import shoal\ncrawl = shoal.Crawl('a', seeds=['example.com'])\n",
        r"^not an http\(s\) URL: 'example\.com'; did you mean http://example\.com \? \[a\.py:2: ",
    ),
    "a bad pattern": (
        f"import shoal\ncrawl = {CRAWL})\n@crawl.page('a/b')\ndef b(page): ...\n",
        r"^pattern 'a/b' can match no URL: start it with '/', 'http://' or '\*' \[a\.py:3: ",
    ),
    "no seeds": ("import shoal\ncrawl = shoal.Crawl('a')\n", r"^the crawl 'a' has no seeds: write seeds=\["),
    "no name": (
        f"import shoal\ncrawl = shoal.Crawl('', seeds=['{URL}'])\n",
        r"^a crawl needs a name \[a\.py:2: ",
    ),
    "politeness about nothing known": (
        f"import shoal\ncrawl = {CRAWL}, politeness='ip')\n",
        r"bad setting politeness='ip': it must be one of host, domain, address",
    ),
    "retries below 0": (
        f"import shoal\ncrawl = {CRAWL}, retries_by={{'dns': -1}})\n",
        r"the retries of 'dns' must be at least 0, not -1",
    ),
    "a header that cannot be sent": (
        f"import shoal\ncrawl = {CRAWL}, headers={{'X-Key': 'a\\nb'}})\n",
        r"^the header 'X-Key': 'a\\nb' cannot be sent",
    ),
}


@pytest.mark.parametrize("case", SCRAPERS)
def test_a_scraper_that_cannot_be_used_is_refused(shoal: Shell, case: str) -> None:
    """The line says what is wrong, and where in the user's own code; frames of others are left out."""
    text, message = SCRAPERS[case]
    shoal.write("a.py", text)
    shoal.write("helper.py", "1 / 0\n")
    line = shoal.refused("run", "a.py")
    assert re.search(message, line), line
    assert "frozen" not in line


def test_a_scraper_that_is_not_there_is_refused(shoal: Shell) -> None:
    """No such file, a folder, not a Python file, no crawl of that name."""
    (shoal.folder / "folder.py").mkdir()
    shoal.write("notes.txt", "hello")
    shoal.write("a.py", f"import shoal\ncrawl = {CRAWL})\n")
    assert shoal.refused("run", "b.py") == "there is no scraper file b.py"
    folder = "is a folder: name the Python file in it that defines the crawl"
    assert shoal.refused("run", "folder.py") == f"folder.py {folder}"
    assert shoal.refused("run", "") == f". {folder}"
    assert shoal.refused("run", "notes.txt") == "notes.txt is not a Python file (its name must end in .py)"
    assert shoal.refused("run", "a.py:") == "a.py: names no crawl: write a.py:NAME, or a.py alone"
    assert shoal.refused("run", "a.py:books") == "a.py has no crawl called 'books': it has crawl"


# --- outputs --------------------------------------------------------------------------------

KINDS = ("rows.jsonl", "rows.csv", "sqlite:rows.db")


@pytest.mark.parametrize("output", KINDS)
def test_an_output_in_a_missing_folder_is_refused(shoal: Shell, output: str) -> None:
    """The line names the file, and the folder is not made."""
    target = output.replace("rows", "missing/rows")
    line = shoal.refused("crawl", URL, "-o", target)
    assert line == (
        f"there is no folder for the output file {target.removeprefix('sqlite:')}:"
        " make it, or choose another with --output"
    )


@pytest.mark.parametrize("output", KINDS)
def test_an_output_that_is_a_folder_is_refused(shoal: Shell, output: str) -> None:
    """The line says so."""
    name = output.removeprefix("sqlite:")
    (shoal.folder / name).mkdir()
    line = shoal.refused("crawl", URL, "-o", output)
    assert line == f"the output file {name} is a folder: name a file in it with --output"


@pytest.mark.parametrize("output", ["rows.jsonl", "rows.csv", "sqlite:rows.db"])
def test_an_output_of_somebody_else_is_refused(shoal: Shell, output: str) -> None:
    """A file that is there already stays as it is."""
    name = output.removeprefix("sqlite:")
    if output.startswith("sqlite:"):
        with closing(sqlite3.connect(shoal.folder / name)) as db:
            db.execute("CREATE TABLE items (name TEXT)")
    else:
        shoal.write(name, "name,price\nlamp,3\n")
    line = shoal.refused("crawl", URL, "-o", output)
    assert line.startswith(name)
    assert "name another file" in line


def test_a_text_file_for_a_sqlite_output_is_refused(shoal: Shell) -> None:
    """It is not taken for a database, and stays as it is."""
    shoal.write("rows.db", "name,price\nlamp,3\n" * 100)
    assert "rows.db" in shoal.refused("crawl", URL, "-o", "sqlite:rows.db")


def test_the_state_file_is_no_output(shoal: Shell) -> None:
    """It keeps the rows by itself."""
    line = shoal.refused("crawl", URL, "--state", "a.shoal", "-o", "sqlite:a.shoal")
    assert line == "a.shoal is the state file, which keeps the rows by itself: leave --output out"


@pytest.fixture
def unprivileged() -> tuple[str, ...]:
    """What to put before a command to make permissions count, for root too."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everything here")
    return ("setpriv", "--inh-caps=-all", "--bounding-set=-all")


@pytest.mark.parametrize("output", KINDS)
def test_an_output_that_may_not_be_written_is_refused(
    shoal: Shell, output: str, unprivileged: tuple[str, ...]
) -> None:
    """The line says that it is about permissions."""
    name = output.removeprefix("sqlite:")
    shoal.write(name, "").chmod(0o444)
    line = shoal.refused("crawl", URL, "-o", output, wrapper=unprivileged)
    assert line.startswith(f"you may not write the output file {name}: change its permissions")


def test_a_folder_that_may_not_be_written_is_refused(shoal: Shell, unprivileged: tuple[str, ...]) -> None:
    """Neither state nor output can be made there."""
    closed = shoal.folder / "closed"
    closed.mkdir(mode=0o555)
    in_state = shoal.refused("crawl", URL, "--state", "closed/a.shoal", wrapper=unprivileged)
    in_output = shoal.refused("crawl", URL, "-o", "closed/a.csv", wrapper=unprivileged)
    assert in_state.startswith("you may not write the state file closed/a.shoal: ")
    assert in_output.startswith("you may not write the output file closed/a.csv: ")


def test_an_export_that_cannot_be_written_is_refused(shoal: Shell, site: Site) -> None:
    """Missing folder, a folder, a kind of file that is not known: nothing is left behind."""
    shoal("crawl", site.url, "-q", "--state", "a.shoal")
    (shoal.folder / "folder.csv").mkdir()
    for name, message in {
        "missing/rows.csv": "cannot write missing/rows.csv: No such file or directory",
        "folder.csv": "cannot write folder.csv: Is a directory",
        "rows.xml": "what kind of file is rows.xml? Name it *.jsonl, *.csv, *.db or *.parquet, or"
        " give --format",
        "sqlite:": "-o sqlite: names no file: write *.jsonl, *.csv, sqlite:FILE or *.parquet",
        "": "-o '' names no file: write *.jsonl, *.csv, sqlite:FILE or *.parquet",
    }.items():
        assert shoal("export", "-o", name, code=2).err == f"shoal: {message}\n"
    assert {name for name in shoal.files() if not name.startswith("a.shoal")} == {"folder.csv"}


LIMITED = """
import resource, signal, sys
from shoal.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
main(sys.argv[1:])
"""


@pytest.mark.parametrize("name", ["rows.db", "rows.parquet", "rows.csv", "rows.jsonl"])
def test_an_export_that_finds_no_room_is_refused(shoal: Shell, name: str) -> None:
    """In one line, and nothing of it is left; a limit on the size of files is like a full disk."""
    noise = Random(1)
    shoal.write("many.jsonl", "".join(f'{{"word": "{noise.randbytes(250).hex()}"}}\n' for _ in range(2_000)))
    command = [sys.executable, "-c", LIMITED, "export", "--from", "many.jsonl", "-o", name]
    done = subprocess.run(command, cwd=shoal.folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith(f"shoal: cannot write {name}: ")
    assert set(shoal.files()) == {"many.jsonl"}


def test_standard_output_that_is_full_is_one_line(shoal: Shell, site: Site) -> None:
    """No traceback, neither of the command nor of the interpreter's end."""
    shoal("crawl", site.url, "-q", "--state", "a.shoal")
    command = [sys.executable, "-m", "shoal", "export", "--state", "a.shoal"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, cwd=shoal.folder, stdout=full, stderr=subprocess.PIPE, text=True)
    message = "shoal: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, message)


@pytest.mark.parametrize("option", ["-o", "--select", "--user-agent"])
def test_what_is_not_utf_8_is_refused(shoal: Shell, site: Site, option: str) -> None:
    """It could not be kept with the crawl; the line shows the bytes."""
    command: list[str | bytes] = [sys.executable, "-m", "shoal", "crawl", site.url, "-q"]
    value = {"-o": b"o\xff.jsonl", "--select": b"x\xff=h1"}.get(option, b"x\xff")
    done = subprocess.run(
        [*command, option, value], cwd=shoal.folder, capture_output=True, text=True, errors="replace"
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "\\xff" in done.stderr


def test_an_export_over_what_belongs_to_the_crawl_is_refused(shoal: Shell, site: Site) -> None:
    """Neither over the state file nor over the rows that the crawl writes, however they are spelled."""
    shoal("crawl", site.url, "-q", "--state", "a.shoal", "-o", "rows.jsonl")
    before = {name: (shoal.folder / name).read_bytes() for name in ("a.shoal", "rows.jsonl")}
    for name in ("a.shoal", "rows.jsonl"):
        line = shoal.refused("report", "-o", name)
        assert line == f"a report is an HTML page: name it FILE.html with --output, not {name}"
    for name in ("a.shoal", "rows.jsonl", "./rows.jsonl", str(shoal.folder / "rows.jsonl")):
        line = shoal.refused("export", "--format", "jsonl", "-o", name)
        assert line == f"{name} belongs to the crawl: export its rows to another file"
    line = shoal.refused("export", "--from", "rows.jsonl", "-o", "rows.jsonl")
    assert line == "rows.jsonl belongs to the crawl: export its rows to another file"
    assert {name: (shoal.folder / name).read_bytes() for name in before} == before


# --- state files ----------------------------------------------------------------------------

READERS = ("status", "dead", "skipped", "export", "pause", "resume")
ANY_COMMAND = pytest.mark.parametrize("command", [("crawl", URL), *((name,) for name in READERS)])


@pytest.fixture
def done(shoal: Shell, site: Site) -> Path:
    """The state file of a crawl that is finished; all its pages are in the file itself."""
    shoal("crawl", site.url, "--state", "done.shoal", "-q")
    path = shoal.folder / "done.shoal"
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@ANY_COMMAND
def test_a_file_that_is_no_state_file_is_refused(shoal: Shell, command: tuple[str, ...]) -> None:
    """Text is not taken for a database."""
    shoal.write("notes.txt", "Remember the milk.\n" * 100)
    line = shoal.refused(*command, "--state", "notes.txt")
    assert line == "notes.txt is not a state file of shoal: name another one"


@ANY_COMMAND
def test_a_database_of_something_else_is_refused(shoal: Shell, command: tuple[str, ...]) -> None:
    """Somebody else's database is not touched, not by a byte."""
    with closing(sqlite3.connect(shoal.folder / "shop.db")) as db:
        db.execute("CREATE TABLE products (name TEXT)")
    line = shoal.refused(*command, "--state", "shop.db")
    assert line == "shop.db is a SQLite file, but not a state file of shoal: name another one"


@ANY_COMMAND
def test_a_state_file_that_is_a_folder_is_refused(shoal: Shell, command: tuple[str, ...]) -> None:
    """The line says so."""
    (shoal.folder / "folder").mkdir()
    line = shoal.refused(*command, "--state", "folder")
    assert line == "the state file folder is a folder: name a file in it with --state"


def test_a_state_file_in_a_missing_folder_is_refused(shoal: Shell) -> None:
    """The folder is not made."""
    line = shoal.refused("crawl", URL, "--state", "missing/a.shoal")
    assert line.startswith("there is no folder for the state file missing/a.shoal: make it")


def test_an_empty_state_file_has_no_crawl_to_look_at(shoal: Shell) -> None:
    """A file that somebody touched: the line says how to begin."""
    shoal.write("a.shoal", "")
    ended = shoal("status", code=2)
    assert ended.err == (
        "shoal: there is no crawl in a.shoal yet: `shoal crawl URL --state a.shoal` starts one\n"
    )


@pytest.mark.parametrize("command", [("crawl", URL), ("status",), ("export",)])
def test_a_state_file_of_a_newer_version_is_refused(
    shoal: Shell, done: Path, command: tuple[str, ...]
) -> None:
    """The line gives both versions and says to upgrade."""
    with closing(sqlite3.connect(done)) as db:
        db.execute("PRAGMA user_version = 99")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    line = shoal.refused(*command, "--state", "done.shoal")
    assert re.fullmatch(
        r"done\.shoal was written by a newer shoal \(format 99, .* \d+\): upgrade shoal", line
    )


def _damage(path: Path) -> None:
    """Overwrite some pages of the database, not the first one."""
    content = bytearray(path.read_bytes())
    for start in (4096, 8192, 12288):
        content[start : start + 4000] = b"\xff" * 4000
    path.write_bytes(content)


@pytest.mark.parametrize("command", [("crawl", URL), ("status",), ("export",)])
def test_a_damaged_state_file_is_refused(shoal: Shell, done: Path, command: tuple[str, ...]) -> None:
    """The line says how to save what can be read."""
    _damage(done)
    line = shoal.refused(*command, "--state", "done.shoal")
    assert line.startswith("the state file done.shoal is damaged (")
    assert "save what can be read with `shoal recover done.shoal saved.shoal`" in line


def test_half_a_state_file_is_refused(shoal: Shell, done: Path) -> None:
    """A file that was cut off, too."""
    content = done.read_bytes()
    done.write_bytes(content[: len(content) // 2])
    assert shoal.refused("crawl", URL, "--state", "done.shoal").startswith(
        "the state file done.shoal is damaged"
    )


def test_a_state_file_that_may_not_be_written_is_refused(
    shoal: Shell, done: Path, unprivileged: tuple[str, ...]
) -> None:
    """The line says that it is about permissions."""
    done.chmod(0o444)
    for command in (("crawl", URL), ("status",)):
        line = shoal.refused(*command, "--state", "done.shoal", wrapper=unprivileged)
        assert line.startswith("you may not write the state file done.shoal: change its permissions")


def test_several_state_files_or_crawls_have_to_be_named(shoal: Shell, site: Site) -> None:
    """The line lists them."""
    shoal("crawl", site.url, "--state", "a.shoal", "-q")
    shoal("crawl", site.url, "--state", "b.shoal", "-q")
    assert shoal.refused("status") == "there are several state files, name one with --state: a.shoal, b.shoal"
    shoal.write("books.py", f"import shoal\ncrawl = shoal.Crawl('books', seeds=['{site.url}'])\n")
    shoal("run", "books.py", "--state", "a.shoal", "-q")
    name = site.url.removeprefix("http://").rstrip("/")
    assert shoal.refused("status", "--state", "a.shoal") == (
        f"a.shoal has several crawls, name one with --crawl: {name}, books"
    )
    assert shoal.refused("status", "--state", "b.shoal", "--crawl", "books") == (
        f"b.shoal has no crawl 'books': it has '{name}'"
    )


# --- another crawl --------------------------------------------------------------------------

DIFFERENT = {
    "select": (
        ["--select", "title=h1"],
        ["--select", "title=h2"],
        r'with select \["title=h1"\], not \["title=h2"\]',
    ),
    "no select": (["--select", "title=h1"], [], r'with select \["title=h1"\], not \[\]'),
    "output": (["-o", "a.csv"], ["-o", "b.csv"], r'with output "a\.csv", not "b\.csv"'),
    "no output": (["-o", "a.csv"], [], r'with output "a\.csv", not without'),
    "an output, now": ([], ["-o", "a.csv"], r'without output, not with "a\.csv"'),
    "spelling": ([], ["--sort-query"], r"with sort_query false, not true"),
    "tracking": (["--drop-tracking"], [], r'with drop_params \["utm_\*".*\], not \[\]'),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_the_state_of_a_crawl_with_other_options_is_refused(shoal: Shell, site: Site, case: str) -> None:
    """What decides about pages and rows must not change half-way; the line says which, and what to do."""
    before, after, message = DIFFERENT[case]
    shoal("crawl", site.url, "-q", *before)
    line = shoal.refused("crawl", site.url, *after)
    assert re.search(f"was started {message}: ", line), line
    assert "give the same to resume it, --fresh to start again, or another --state FILE to keep both" in line


def test_the_state_of_a_crawl_with_other_seeds_is_refused(shoal: Shell, site: Site) -> None:
    """Other seeds, though not the same ones in another spelling."""
    shoal("crawl", site.url, "-q", "--state", "a.shoal")
    shoal("crawl", site.url.rstrip("/") + "/./#top", "-q", "--state", "a.shoal")
    line = shoal.refused("crawl", site.url, site.url + "p/1", "--state", "a.shoal")
    assert f'was started with seeds ["{site.url}"], not ["{site.url}","{site.url}p/1"]: ' in line


@pytest.mark.parametrize("output", KINDS)
def test_an_output_that_is_not_as_it_was_left_is_refused(shoal: Shell, site: Site, output: str) -> None:
    """Rows that were written are missing: the crawl does not go on as if they were there."""
    shoal("crawl", site.url, "-q", "-o", output)
    for file in shoal.folder.glob("rows.*"):
        file.unlink()
    line = shoal.refused("crawl", site.url, "-o", output)
    assert line.startswith(f"rows are missing from {output.removeprefix('sqlite:')}")
    assert "put it back, or start over with --fresh" in line


def test_rows_that_do_not_fit_the_columns_end_as_dead_letters(shoal: Shell, site: Site) -> None:
    """A CSV file keeps its columns: a page with other fields is given up, by name, and the others go on."""
    shoal.write(
        "odd.py",
        f"""
        import shoal

        crawl = shoal.Crawl("odd", seeds=["{site.url}"])

        @crawl.page()
        def row(page):
            yield {{"title": page.title, **({{"extra": 1}} if page.url.endswith("/p/7") else {{}})}}
            yield from page.links()
        """,
    )
    ended = shoal("run", "odd.py", "-o", "rows.csv", "--concurrency", "1")
    assert 'the columns of rows.csv do not fit: it has no "extra", only title' in ended.err
    [letter] = shoal("dead", "--json").objects
    assert letter["url"].endswith("/p/7")
    assert letter["reason"] == "item cannot be stored"
    assert len(shoal.read("rows.csv").splitlines()) == 1 + 19
    shoal("run", "odd.py", "-o", "rows.csv", "--strict", code=1)
