"""Lines for people and for machines."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator

import pytest

from shoal.log import JsonFormatter, PeopleFormatter, set_up, visible


def _record(message: str, *args: object, error: bool = False, **extra: object) -> logging.LogRecord:
    exc_info = None
    if error:
        try:
            raise ValueError("oh")
        except ValueError:
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
    """As Python writes it."""
    line = PeopleFormatter().format(_record("failed", error=True))
    assert line.splitlines()[0].endswith(" warning: failed")
    assert line.splitlines()[-1] == "ValueError: oh"


def test_a_line_for_machines_is_one_json_object() -> None:
    """With the extra fields, and text as it is."""
    line = JsonFormatter().format(_record("a\n%s", "ü\x1b", url="http://a.example/", status=200, odd={1}))
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("time") > 0
    assert found == {
        "level": "warning",
        "logger": "shoal.visit",
        "message": "a\nü\x1b",
        "url": "http://a.example/",
        "status": 200,
        "odd": "{1}",
    }


def test_a_traceback_is_a_field() -> None:
    """Of the one object."""
    found = json.loads(JsonFormatter().format(_record("failed", error=True)))
    assert found["traceback"].endswith("ValueError: oh")


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
