"""The archive of raw pages, as other programs read it."""

from __future__ import annotations

import gzip
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from fastwarc import ArchiveIterator
from tests.e2e.shell import Shell
from tests.faults.crawling import assert_archived
from tests.servers import NOT_FOUND, Request, ScriptedServer, page, reply
from tests.site import Site
from warcio.archiveiterator import ArchiveIterator as WarcioIterator
from warcio.checker import Checker

from shoal.cli import shoal as command
from shoal.store.warc import WarcArchive

LINKS = b"".join(
    b"<a href='/%s'>x</a>" % name for name in (b"gzip", b"same", b"gone", b"moved", b"chunks", b"pdf")
)
GZIPPED = gzip.compress(b"<title>packed</title>", mtime=0)
CHUNKED = (
    "HTTP/1.1 200 Fine by me\r\nContent-Type: text/html\r\nX-Name: caf\xe9\r\n"
    "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
).encode("latin-1") + b"5\r\n<p>it\r\n4\r\n</p>\r\n0\r\n\r\n"
SITE = {
    "/robots.txt": NOT_FOUND,
    "/": page(LINKS),
    "/gzip": page(GZIPPED, "200 OK", "Content-Encoding: gzip"),
    "/same": page(LINKS, "200 OK", "Set-Cookie: a=b"),
    "/gone": page(b"nothing", "404 Not Found"),
    "/moved": page(b"", "301 Moved Permanently", "Location: /gzip"),
    "/chunks": reply(CHUNKED),
    "/pdf": page(b"%PDF", "200 OK", "Content-Type: application/pdf"),
}


def files(folder: Path) -> list[Path]:
    """The archive."""
    return sorted(folder.glob("date=*/*.warc.gz"))


def check(paths: Iterable[Path]) -> None:
    """Warcio finds every digest right."""
    inputs = [str(path) for path in paths]
    assert inputs
    assert Checker(SimpleNamespace(inputs=inputs, verbose=False)).process_all() == 0


def records(paths: Iterable[Path]) -> list[tuple[str, dict[str, str], bytes]]:
    """Type, headers and block of each record, by FastWARC."""
    found = []
    for path in paths:
        with path.open("rb") as stream:
            for record in ArchiveIterator(stream, parse_http=False):
                kind = record.headers["WARC-Type"]
                found.append((kind, dict(record.headers), record.reader.read()))
    return found


def test_pages_are_archived_as_they_were_received(shoal: Shell) -> None:
    """With their headers and content coding; requests come along, without what may be secret."""
    with ScriptedServer(SITE) as server:
        shoal("crawl", server.url(), "--archive", "warc", "--header", "X-Api-Key: secret", "-q")
    paths = files(shoal.folder / "warc")
    check(paths)
    found = records(paths)
    answers = {
        headers["WARC-Target-URI"].removeprefix(server.url("")): (kind, headers, block)
        for kind, headers, block in found
        if kind in ("response", "revisit")
    }
    assert sorted(answers) == ["/", "/chunks", "/gone", "/gzip", "/moved", "/same"]
    head, _, body = answers["/gzip"][2].partition(b"\r\n\r\n")
    assert body == GZIPPED
    assert b"\r\nContent-Encoding: gzip\r\n" in head
    assert answers["/gone"][2].startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert answers["/chunks"][2] == (
        b"HTTP/1.1 200 Fine by me\r\nContent-Type: text/html\r\nX-Name: caf\xe9\r\n"
        b"X-Archive-Orig-Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n<p>it</p>"
    )
    requests = [block for kind, _, block in found if kind == "request"]
    assert len(requests) == len(answers)
    assert all(block.startswith(b"GET /") and b"\r\nHost: 127.0.0.1:" in block for block in requests)
    assert not any(b"secret" in block or b"Cookie" in block for block in requests)
    assert [kind for kind, _, _ in found].count("warcinfo") == 1
    with paths[0].open("rb") as stream:
        assert {record.rec_headers.protocol for record in WarcioIterator(stream)} == {"WARC/1.1"}


def test_duplicates_are_revisit_records(shoal: Shell) -> None:
    """They say where the payload is, and have the headers of their own response."""
    with ScriptedServer(SITE) as server:
        shoal("crawl", server.url(), "--archive", "warc", "-q")
    found = records(files(shoal.folder / "warc"))
    [(headers, block)] = [(headers, block) for kind, headers, block in found if kind == "revisit"]
    first = next(headers for kind, headers, _ in found if kind == "response")
    assert headers["WARC-Target-URI"] == server.url("/same")
    assert headers["WARC-Profile"].endswith("/identical-payload-digest")
    assert headers["WARC-Refers-To-Target-URI"] == server.url()
    assert headers["WARC-Refers-To-Date"] == first["WARC-Date"]
    assert headers["WARC-Payload-Digest"] == first["WARC-Payload-Digest"]
    assert b"Set-Cookie: a=b" in block
    assert LINKS not in block


def test_what_is_not_modified_is_a_revisit_record(shoal: Shell) -> None:
    """A page that is visited again and has not changed is archived as such."""

    def answer(request: Request):
        if request.target == "/robots.txt":
            return NOT_FOUND
        if "if-none-match" in request.headers:
            return reply(b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\n\r\n', keep=True)
        return page(b"<p>it</p>", "200 OK", 'ETag: "1"')

    with ScriptedServer(answer) as server:
        for _ in range(2):
            shoal("crawl", server.url(), "--archive", "warc", "-q", "--revisit", "0.01s")
    check(files(shoal.folder / "warc"))
    found = records(files(shoal.folder / "warc"))
    profiles = [headers["WARC-Profile"].rpartition("/")[2] for kind, headers, _ in found if kind == "revisit"]
    assert profiles == ["server-not-modified"]


def test_a_killed_crawl_archives_each_page_once(shoal: Shell) -> None:
    """Also with several workers, one of which is killed."""
    with Site(pages=150, hosts=3, latency_s=0.02) as site:
        crawl = ("crawl", site.url, "--scope", "any", "--archive", "warc", "--processes", "2", "-q")
        run = shoal.start(*crawl, start_new_session=True)
        while len(files(shoal.folder / "warc")) < 4:
            assert run.poll() is None
        run.send_signal(signal.SIGKILL)
        run.communicate()
        shoal(*crawl)
        assert_archived(shoal.folder / "warc", site.urls)


def test_an_archive_in_a_bucket(s3, shoal: Shell) -> None:
    """The same below a URL."""
    with ScriptedServer(SITE) as server:
        shoal.alone("crawl", server.url(), "--archive", f"s3://{s3.BUCKET}/archive", "-q")
    paths = files(s3.data / s3.BUCKET / "archive")
    check(paths)
    assert Counter(kind for kind, _, _ in records(paths)) == {
        "warcinfo": 1,
        "response": 5,
        "revisit": 1,
        "request": 6,
    }


def test_files_are_rotated(shoal: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a size there is another file, and each begins with a warcinfo record."""
    monkeypatch.setattr(WarcArchive, "most_bytes", 20_000)
    with Site(pages=60, hosts=2) as site:
        archive = shoal.folder / "warc"
        arguments = ["crawl", site.url, "--scope", "any", "--archive", str(archive), "-q"]
        result = CliRunner().invoke(command, [*arguments, "--state", str(shoal.folder / "s.shoal")])
        assert result.exit_code == 0, result.output
        assert_archived(archive, site.urls)
    assert len(files(archive)) > 1
    assert all(records([path])[0][0] == "warcinfo" for path in files(archive))
    assert all(path.stat().st_size < 20_000 for path in files(archive))
