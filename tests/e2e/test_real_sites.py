"""Real sites: the HTML manuals of three Debian packages, served by nginx, against a walk over their files."""

from __future__ import annotations

import gzip
import html
import os
import re
import shutil
import socket
import subprocess
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, unquote, urljoin, urlsplit

import pytest
from msgspec import Struct
from tests.e2e.nursery import Nursery
from tests.e2e.shell import Shell

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LISTS = Path(__file__).parent.parent / "corpora" / "sites"
HTML = "text/html"


class Manual(Struct, frozen=True):
    """One of the manuals."""

    address: str
    root: Path
    version: str
    """Of the package, when its list of pages was made."""


MANUALS = {
    "postgresql-doc-15": Manual(
        "127.0.0.11", Path("/usr/share/doc/postgresql-doc-15/html"), "15.20-0+deb12u1"
    ),
    "sqlite3-doc": Manual("127.0.0.12", Path("/usr/share/doc/sqlite3"), "3.40.1-2+deb12u2"),
    "python3.11-doc": Manual("127.0.0.13", Path("/usr/share/doc/python3.11/html"), "3.11.2-6+deb12u9"),
}


# --- the walk over the files: no code of shoal's ----------------------------------------------

_DEAD_TEXT = re.compile(r"<!--.*?-->|<(script|style|textarea|title)\b.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<(?:a|area)\s((?:[^>\"']|\"[^\"]*\"|'[^']*')*)>", re.IGNORECASE)
_HREF = re.compile(r"(?:^|[\s\"'])href\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))", re.IGNORECASE)
_TITLE = re.compile(r"<title\b[^>]*>(.*?)</title", re.DOTALL | re.IGNORECASE)
_CHARSET = re.compile(rb"charset=[\"']?([\w-]+)", re.IGNORECASE)
_SAFE = "!$%&'()*+,-./:;=?@[]_~|"


def _text(body: bytes) -> str:
    charset = _CHARSET.search(body[:1024])
    return body.decode(charset[1].decode() if charset else "utf-8", "replace")


def _targets(text: str, path: str) -> set[str]:
    """The paths, with queries, that the links of a page lead to on the same site."""
    found = set()
    for tag in _TAG.finditer(_DEAD_TEXT.sub("", text)):
        href = _HREF.search(tag[1])
        if href is None:
            continue
        value = html.unescape(href[1] or href[2] or href[3] or "").strip(" \t\n\r\f")
        value = re.sub(r"[\t\n\r]", "", value).partition("#")[0]
        if re.match(r"[a-z][a-z0-9+.-]*:|//", value, re.IGNORECASE):
            continue  # all that is absolute leads elsewhere
        found.add(quote(urljoin(path, value.replace("\\", "/")), safe=_SAFE))
    return found


class Walk(Struct, frozen=True):
    """What can be reached by links from a start page."""

    titles: Mapping[str, str | None]
    """Of the pages, by path."""
    files: frozenset[str]
    """What is there, but no page."""
    missing: frozenset[str]


def walk(root: Path, start: str = "/index.html") -> Walk:
    """Breadth first, as if served with its index pages."""
    titles: dict[str, str | None] = {}
    files, missing, seen = set(), set(), {start}
    waiting = deque([start])
    while waiting:
        path = waiting.popleft()
        file = root / unquote(urlsplit(path).path).lstrip("/")
        if path.endswith("/"):
            file /= "index.html"
        if not file.is_file():
            missing.add(path)
        elif file.suffix != ".html":
            files.add(path)
        else:
            text = _text(file.read_bytes())
            title = _TITLE.search(text)
            titles[path] = (" ".join(html.unescape(title[1]).split()) or None) if title else None
            new = _targets(text, path) - seen
            seen |= new
            waiting.extend(new)
    return Walk(titles, frozenset(files), frozenset(missing))


# --- nginx ------------------------------------------------------------------------------------

CONFIG = """\
{user}
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
events {{ worker_connections 512; }}
http {{
  types {{ text/html html; text/plain txt; text/css css; image/png png; }}
  default_type application/octet-stream;
  log_format short '$server_addr $request_uri $status';
  access_log {folder}/access.log short;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  keepalive_requests 100000;
{servers}
}}
"""


class Nginx:
    """nginx, serving all manuals on one port of several loopback addresses."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder
        with socket.create_server(("127.0.0.11", 0)) as free:
            self.port: int = free.getsockname()[1]

    def __enter__(self) -> Self:
        config = self._folder / "nginx.conf"
        servers = "\n".join(
            f"  server {{ listen {manual.address}:{self.port}; root {manual.root}; }}"
            for manual in MANUALS.values()
        )
        user = "user root;" if os.geteuid() == 0 else ""
        config.write_text(CONFIG.format(folder=self._folder, servers=servers, user=user))
        errors = self._folder / "error.log"
        self._process = subprocess.Popen([self._program, "-c", config, "-p", self._folder, "-e", errors])
        while True:
            try:
                socket.create_connection(("127.0.0.11", self.port)).close()
            except ConnectionRefusedError:
                assert self._process.poll() is None, errors.read_text()
                time.sleep(0.02)
            else:
                return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait()

    def fetches(self, address: str) -> Counter[tuple[str, int]]:
        """How often each path was asked for, with the answer; robots.txt left out."""
        lines = (line.split(" ") for line in (self._folder / "access.log").read_text().splitlines())
        return Counter(
            (path, int(status)) for host, path, status in lines if host == address and path != "/robots.txt"
        )


def _missing(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI must run every test")
    pytest.skip(f"{what} is not installed")


class Crawled:
    """One crawl of all manuals."""

    def __init__(self, shoal: Shell, nginx: Nginx) -> None:
        self.nginx = nginx
        seeds = [f"http://{manual.address}:{nginx.port}/index.html" for manual in MANUALS.values()]
        self.ended = shoal("crawl", *seeds, "--per-host", "4")
        self.rows = shoal.rows()
        self.dead = shoal("dead", "--json").objects
        self.skipped = shoal("skipped", "--json").objects

    def of(self, records: list[dict[str, Any]], manual: Manual) -> dict[str, dict[str, Any]]:
        """Those of one manual, by path; each there once."""
        site = f"http://{manual.address}:{self.nginx.port}"
        own = [record for record in records if record["url"].startswith(site + "/")]
        found = {record["url"].removeprefix(site): record for record in own}
        assert len(found) == len(own)
        return found


@pytest.fixture(scope="module")
def crawled(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawled]:
    """The manuals, crawled while nginx serves them."""
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if program is None:
        _missing("nginx")
    for name, manual in MANUALS.items():
        if not (manual.root / "index.html").exists():
            _missing(name)
    assert program is not None
    with Nginx(program, tmp_path_factory.mktemp("nginx")) as nginx:
        yield Crawled(Shell(tmp_path_factory.mktemp("crawl"), nursery), nginx)


@pytest.fixture(scope="module", params=MANUALS)
def name(request: pytest.FixtureRequest) -> str:
    """Of a manual."""
    return str(request.param)


@pytest.fixture(scope="module")
def expected(crawled: Crawled, name: str) -> Walk:
    """What the walk over its files finds."""
    return walk(MANUALS[name].root)


def test_every_page_is_fetched_exactly_once(crawled: Crawled, name: str, expected: Walk) -> None:
    """All that links lead to, as the walk over the files finds it, was asked for once; and nothing else."""
    fetches = crawled.nginx.fetches(MANUALS[name].address)
    assert {path for path, _ in fetches} == {*expected.titles, *expected.files, *expected.missing}
    assert set(fetches.values()) == {1}


def test_every_page_gives_a_row_with_its_title(crawled: Crawled, name: str, expected: Walk) -> None:
    """One each, and status 200."""
    rows = crawled.of(crawled.rows, MANUALS[name])
    assert {path: row["title"] for path, row in rows.items()} == expected.titles
    assert {row["status"] for row in rows.values()} == {200}
    assert all(row["text_length"] > 0 for row in rows.values())


def test_dead_links_are_dead_letters(crawled: Crawled, name: str, expected: Walk) -> None:
    """Each with its reason."""
    dead = crawled.of(crawled.dead, MANUALS[name])
    assert dead.keys() == expected.missing
    assert {letter["reason"] for letter in dead.values()} <= {"HTTP 404"}
    assert {letter["attempts"] for letter in dead.values()} <= {1}


def test_what_is_no_page_is_skipped(crawled: Crawled, name: str, expected: Walk) -> None:
    """By its content type."""
    skipped = crawled.of(crawled.skipped, MANUALS[name])
    assert skipped.keys() == expected.files
    assert {record["reason"] for record in skipped.values()} <= {"content type application/octet-stream"}


def test_a_browser_reaches_the_same(crawled: Crawled, name: str) -> None:
    """Where the package is the one that the list was made from: its paths, statuses and depths."""
    if _installed_version(name) != MANUALS[name].version:
        pytest.skip("the list was made from another version of the package")
    lines = gzip.decompress((LISTS / f"{name}.tsv.gz").read_bytes()).decode().splitlines()[1:]
    truth = {
        path: (int(status), int(depth)) for path, status, depth, _ in (line.split("\t") for line in lines)
    }
    manual = MANUALS[name]
    assert crawled.nginx.fetches(manual.address).keys() == {
        (path, status) for path, (status, _) in truth.items()
    }
    records = crawled.rows + crawled.dead + crawled.skipped
    depths = {path: record["depth"] for path, record in crawled.of(records, manual).items()}
    assert all(depths[path] >= depth for path, (_, depth) in truth.items())


def test_nothing_went_wrong(crawled: Crawled) -> None:
    """No warning, no retry: only the summary."""
    assert "warning" not in crawled.ended.err
    assert "error" not in crawled.ended.err
    assert re.search(r"^finished after ", crawled.ended.err, re.MULTILINE)


def _installed_version(package: str) -> str:
    done = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True, check=True
    )
    return done.stdout
