"""How a crawl is going: redrawn in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import termios
import time
from collections.abc import Iterator
from typing import Self

import pytest
from tests.e2e.shell import PATIENCE_S, Shell
from tests.servers import ScriptedServer, page
from tests.site import Site

LINE = r"0:00:05 \d+\.\d pages/s: 1 done, 0 queued, 1 leased, 0 retrying, 0 dead, \d+ B"  # what a line says


class Terminal:
    """A terminal, to be the standard error of a command."""

    def __init__(self, columns: int = 100) -> None:
        self._ours, self.theirs = pty.openpty()
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.shown = ""
        """All that was written so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._ours)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._ours, text.encode())

    def read(self) -> Iterator[None]:
        """Read on, piece by piece, until the command has ended."""
        os.close(self.theirs)
        while True:
            try:
                self.shown += os.read(self._ours, 65_536).decode()
            except OSError:  # nobody holds the other end any more
                return
            yield


def _read_to_the_end(terminal: Terminal) -> None:
    for _ in terminal.read():
        pass


def test_elsewhere_than_on_a_terminal_there_is_a_line_now_and_then(shoal: Shell) -> None:
    """Every five seconds: pages/s, done, queued, leased, retrying, dead, bytes; as text, or as JSON lines."""
    with Site(1, extras=["/slow/5.8"]) as site:
        plain = shoal.start("crawl", site.url, "--state", "a.shoal")
        as_json = shoal.start("crawl", site.url, "--state", "b.shoal", "--log-json")
        quiet = shoal.start("crawl", site.url, "--state", "c.shoal", "--quiet")
        outputs = [process.communicate(timeout=PATIENCE_S) for process in (plain, as_json, quiet)]
    assert [out for out, _ in outputs] == [""] * 3
    texts = [err for _, err in outputs]
    line, *_ = texts[0].splitlines()
    assert re.fullmatch(rf"\d\d:\d\d:\d\d info: {LINE}", line)
    assert "\x1b" not in texts[0]
    record, *_ = map(json.loads, texts[1].splitlines())
    assert re.fullmatch(LINE, record["message"])
    assert record["logger"] == "shoal.progress"
    assert (record["done"], record["queued"], record["leased"], record["dead"]) == (1, 0, 1, 0)
    assert record["pages_per_s"] >= 0
    assert texts[2] == ""


@pytest.mark.parametrize("processes", ["1", "2"])
def test_on_a_terminal_the_display_is_redrawn_in_place(shoal: Shell, processes: str) -> None:
    """It shows how the crawl stands and gives way to the summary; files get no escape codes."""
    with Site(60, latency_s=0.3, extras=["/status/410", "/flaky/1/x"]) as site, Terminal() as terminal:
        process = shoal.start(
            "crawl", site.url, "-o", "rows.csv", "--processes", processes, stderr=terminal.theirs
        )
        _read_to_the_end(terminal)
        out, _ = process.communicate(timeout=PATIENCE_S)
        host = site.url.removeprefix("http://").rstrip("/")
    assert process.returncode == 0
    assert out == ""
    for shown in (
        rf"{host}   0:00:0\d",
        r"\d+\.\d pages/s   \d+ queued   \d+ leased",
        r"\d+ done   \d+ retrying   \d+ dead",
        r"\d+ rows   [\d.]+ k?B   0 skipped",
        rf"slowest: {host} \d+ ms",
    ):
        assert re.search(shown, terminal.shown, re.MULTILINE), shown
    assert "   1 retrying" in terminal.shown
    assert "   1 dead" in terminal.shown
    assert terminal.shown.count("\x1b[1A") > 10  # the cursor goes up
    *_, last = terminal.shown.split("\x1b[2K")
    assert last.startswith("finished after 0:00:0")
    assert terminal.shown.rfind("\x1b[?25h") > terminal.shown.rfind("\x1b[?25l")  # the cursor is to be seen
    assert "\x1b" not in shoal.read("rows.csv")


def test_the_display_says_which_hosts_are_paused(shoal: Shell) -> None:
    """And for how long: otherwise one would not know why nothing happens."""
    answers = iter([page(b"", "503 Service Unavailable", "Retry-After: 3"), page(b"<p>Hello")])
    with ScriptedServer({"/": lambda _: next(answers)}) as server, Terminal() as terminal:
        process = shoal.start("crawl", server.url(), "--ignore-robots", stderr=terminal.theirs)
        _read_to_the_end(terminal)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert re.search(r"  paused: 127\.0\.0\.1:\d+ for 0:00:0[123]", terminal.shown)


def test_warnings_stand_above_the_display(shoal: Shell, site: Site) -> None:
    """On lines of their own."""
    shoal.write(
        "bad.py",
        f"""
        import shoal

        crawl = shoal.Crawl("bad", seeds=["{site.url}"], retries=0)

        @crawl.page()
        def bad(page):
            raise ValueError("oh")
        """,
    )
    with Terminal(200) as terminal:
        process = shoal.start("run", "bad.py", stderr=terminal.theirs)
        _read_to_the_end(terminal)
        process.communicate(timeout=PATIENCE_S)
    assert re.search(
        r"\x1b\[(2K|\?25h)\d\d:\d\d:\d\d warning: the handler of \S+ raised ValueError: oh\r\n",
        terminal.shown,
    )


def test_no_terminal_gets_escape_codes_that_it_does_not_want(shoal: Shell) -> None:
    """Plain lines with --log-json, nothing with --quiet."""
    for option, pattern in (("--log-json", r"\{.*\}\r\n"), ("--quiet", "")):
        with Site(3) as site, Terminal() as terminal:
            process = shoal.start("crawl", site.url, "--state", f"a{option}", option, stderr=terminal.theirs)
            _read_to_the_end(terminal)
            process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert "\x1b" not in terminal.shown
        assert re.fullmatch(f"({pattern})*", terminal.shown)


def test_ctrl_c_in_a_terminal_ends_a_crawl_cleanly(shoal: Shell) -> None:
    """All of its processes are told at once; it says how to go on, within two seconds, and so it does."""
    with Site(200, latency_s=0.05) as site, Terminal() as terminal:
        command = ("crawl", site.url, "--state", "a.shoal", "--processes", "2")
        process = shoal.start(
            *command, wrapper=("setsid", "--ctty", "--wait"), stdin=terminal.theirs, stderr=terminal.theirs
        )
        typed_at = None
        for _ in terminal.read():
            if typed_at is None and len(site.log) > 30:
                terminal.type("\x03")
                typed_at = time.monotonic()
        process.communicate(timeout=PATIENCE_S)
        assert typed_at is not None
        assert time.monotonic() - typed_at < 2
        assert process.returncode == 130
        assert re.search(r"stopped after 0:00:0\d: \d+ pages", terminal.shown)
        assert re.search(r"\d+ URLs queued; the same command goes on from here\r\n$", terminal.shown)
        assert "Traceback" not in terminal.shown
        shoal(*command)
        assert len(shoal.rows()) == 200


def test_a_second_ctrl_c_kills(shoal: Shell) -> None:
    """It does not wait for what is being fetched."""
    with Site(1, extras=["/slow/30"]) as site, Terminal() as terminal:
        process = shoal.start(
            "crawl",
            site.url,
            "--state",
            "a.shoal",
            wrapper=("setsid", "--ctty", "--wait"),
            stdin=terminal.theirs,
            stderr=terminal.theirs,
        )
        typed_at = [0.0]
        for _ in terminal.read():
            if len(typed_at) < 3 and len(site.log) > 2 and time.monotonic() - typed_at[-1] > 0.2:
                terminal.type("\x03")
                typed_at.append(time.monotonic())
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130
        assert time.monotonic() - typed_at[-1] < 0.6


def test_warnings_of_several_processes_stand_above_the_display(shoal: Shell) -> None:
    """Whole, in lines of their own, and the display is not drawn by anybody else."""
    with Site(40, latency_s=0.1) as site, Terminal(200) as terminal:
        shoal.write(
            "bad.py",
            f"""
            import shoal

            crawl = shoal.Crawl("bad", seeds=["{site.url}"], retries=0)

            @crawl.page("/p/*")
            def bad(page):
                raise ValueError("ö" * 30)
            """,
        )
        process = shoal.start("run", "bad.py", "--processes", "2", stderr=terminal.theirs)
        _read_to_the_end(terminal)
        process.communicate(timeout=PATIENCE_S)
        children = len(site.links(0))
    whole = r"\d\d:\d\d:\d\d warning: the handler of \S+ raised ValueError:\s+ö{30}\r\n"  # it may be wrapped
    assert len(set(re.findall(whole, terminal.shown))) >= 4  # the start page has at least so many
    assert len(re.findall("warning:", terminal.shown)) == len(re.findall(whole, terminal.shown)) <= children
