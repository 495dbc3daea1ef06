"""Lines for people and for machines."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator

import pytest

from shoal.liveness import worker_name
from shoal.log import JsonFormatter, PeopleFormatter, set_up, visible


def _record(
    message: str, *args: object, error: Exception | None = None, **extra: object
) -> logging.LogRecord:
    exc_info = None
    if error:
        try:
            raise error
        except Exception:
            exc_info = sys.exc_info()
    record = logging.LogRecord("shoal.visit", logging.WARNING, "visit.py", 1, message, args, exc_info)
    vars(record).update(extra)
    return record


def test_a_line_for_people_has_time_level_and_text() -> None:
    """Nothing else, and extra fields are left out."""
    line = PeopleFormatter().format(_record("%d pages", 3, url="http://a.example/"))
    assert line[8:] == " warning: 3 pages"
    assert line[:8].replace(":", "").isdigit()


def test_a_traceback_follows_on_lines_of_its_own() -> None:
    """As Python writes it, but moved to the right: no line of it looks like one of the log."""
    line = PeopleFormatter().format(_record("failed", error=ValueError("oh\n12:00:00 info: fine\x1b[2J")))
    first, *others = line.splitlines()
    assert first.endswith(" warning: failed")
    assert others[-2:] == ["    ValueError: oh", r"    12:00:00 info: fine\x1b[2J"]
    assert all(other.startswith("    ") for other in others)


def test_a_line_for_machines_is_one_json_object() -> None:
    """With the extra fields, and text as it is."""
    record = _record("a\n%s", "ü\x1b\x7f\x9b\u202e", url="http://a.example/", status=200, odd={1})
    line = JsonFormatter("books").format(record)
    assert line.isascii()
    assert line.isprintable()
    found = json.loads(line)
    assert found.pop("time") > 0
    assert found == {
        "crawl": "books",
        "worker": worker_name(),
        "level": "warning",
        "logger": "shoal.visit",
        "message": "a\nü\x1b\x7f\x9b\u202e",
        "url": "http://a.example/",
        "status": 200,
        "odd": "{1}",
    }


def test_a_traceback_is_a_field() -> None:
    """Of the one object."""
    found = json.loads(JsonFormatter().format(_record("failed", error=ValueError("oh"))))
    assert found["traceback"].endswith("ValueError: oh")


def test_a_line_may_say_itself_which_crawl_it_is_about() -> None:
    """As those about pages do: a process may work on several."""
    assert json.loads(JsonFormatter("books").format(_record("x", crawl="shop")))["crawl"] == "shop"
    assert "crawl" not in json.loads(JsonFormatter().format(_record("x")))


@pytest.mark.parametrize("formatter", [PeopleFormatter(), JsonFormatter()])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("at http://user:secret@h:80/a@b", "at http://***@h:80/a@b"),
        ("redis://:secret@h/0 and https://secret@x.example", "redis://***@h/0 and https://***@x.example"),
        ("http://u:se@cret@h/", "http://***@h/"),
        ("http://a.example/ of me@a.example", "http://a.example/ of me@a.example"),
        ("http://a.example/?mail=me@a.example", "http://a.example/?mail=me@a.example"),
    ],
)
def test_passwords_in_urls_are_masked(formatter: logging.Formatter, text: str, shown: str) -> None:
    """In messages, fields and tracebacks, wherever they come from; other uses of @ stay."""
    line = formatter.format(_record("%s", text, error=ValueError(text), url=text))
    assert "secret" not in line
    assert "cret" not in line
    assert shown in line


def test_masking_takes_no_longer_for_hostile_text() -> None:
    """It is linear: a megabyte of what may begin a URL is no matter."""
    began = time.process_time()
    for text in ("http://" * 150_000 + "@", "://" + "a" * 1_000_000, "@" + "://x" * 250_000):
        PeopleFormatter().format(_record("%s", text))
    assert time.process_time() - began < 10


def test_control_characters_are_written_out() -> None:
    """No page can move the cursor, colour the screen or begin a line; letters of any kind stay."""
    assert visible("a\nb\r\t\x1b[31m\x9b\x7f é 文") == r"a\nb\r\t\x1b[31m\x9b\x7f é 文"
    assert PeopleFormatter().format(_record("a\nshoal: b"))[8:] == r" warning: a\nshoal: b"


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """shoal's, put back as it was."""
    logger = logging.getLogger("shoal")
    before = logger.handlers, logger.propagate, logger.level
    yield logger
    logger.handlers, logger.propagate = before[:2]
    logger.setLevel(before[2])


@pytest.mark.parametrize(
    ("quiet", "verbose", "levels"),
    [(False, False, ["info", "error"]), (True, False, ["error"]), (False, True, ["debug", "info", "error"])],
)
def test_how_much_is_told(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], quiet: bool, verbose: bool, levels: list[str]
) -> None:
    """All but single pages; only errors; everything."""
    set_up(as_json=True, quiet=quiet, verbose=verbose)
    child = logger.getChild("visit")
    child.debug("a page")
    child.info("progress")
    child.error("trouble")
    out, err = capsys.readouterr()
    assert out == ""
    assert [json.loads(line)["level"] for line in err.splitlines()] == levels


def test_the_log_goes_to_what_stderr_is_at_the_time(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A live display puts itself in its place later; and nothing is told twice."""
    set_up(as_json=False, quiet=False, verbose=False)
    set_up(as_json=False, quiet=False, verbose=False)
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    logger.info("here")
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("info: here\n") == 1
