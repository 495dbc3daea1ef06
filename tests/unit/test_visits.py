"""Pages that are visited again: what is asked, what counts as unchanged, what is remembered."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shoal.model import Lease, Link, Response, Visit
from shoal.revisit import before, conditions, gone, is_unchanged, read_anew, seen_again

URL = "http://a.test/"


def _answer(body: bytes = b"text", status: int = 200, **headers: str) -> Response:
    named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
    return Response(URL, status, named, body)


def _visit(answer: Response | None = None, *items: dict[str, object], now: float = 10.0) -> Visit:
    return read_anew(None, answer or _answer(), items, now)


def test_a_first_visit() -> None:
    """It was seen, and changed, when it was seen first."""
    visit = _visit(_answer(etag='"a"', last_modified="Mon, 06 Jul 2026 10:00:00 GMT"), {"n": 1})
    assert (visit.first_seen, visit.last_seen, visit.last_changed, visit.rows) == (10, 10, 10, 1)
    assert conditions(visit) == (
        ("If-None-Match", '"a"'),
        ("If-Modified-Since", "Mon, 06 Jul 2026 10:00:00 GMT"),
    )


@pytest.mark.parametrize("value", ["", '"\xe9"', '"a\x00"', " ", '"' + "x" * 300 + '"'])
def test_validators_that_cannot_be_sent_back_are_forgotten(value: str) -> None:
    """As are those that are too long to be kept with every page."""
    assert conditions(_visit(_answer(etag=value))) == ()


def test_nothing_is_asked_without_a_visit() -> None:
    """The page is fetched as it is."""
    assert conditions(None) == ()
    assert not is_unchanged(None, _answer())


@pytest.mark.parametrize(
    ("answer", "unchanged"),
    [
        (_answer(b"", 304), True),
        (_answer(b"text"), True),
        (_answer(b"other"), False),
        (_answer(b"text", 500), False),
        (_answer(b"text", 404), False),
    ],
)
def test_what_is_unchanged(answer: Response, unchanged: bool) -> None:
    """The server says so, or the body is the same."""
    assert is_unchanged(_visit(_answer(etag='"a"')), answer) is unchanged


def test_a_304_that_nobody_asked_for_says_nothing() -> None:
    """Without a validator there was no condition."""
    assert not is_unchanged(_visit(), _answer(b"", 304))


def test_seen_again() -> None:
    """Only the time moves, and validators that are new."""
    visit = _visit(_answer(etag='"a"', last_modified="then"))
    assert seen_again(visit, _answer(b"", 304), 20.0) == replace(visit, last_seen=20.0)
    assert seen_again(visit, _answer(etag='"b"'), 20.0).etag == '"b"'


@pytest.mark.parametrize(
    ("rows", "body", "changed"),
    [
        ([{"n": 1}], b"text", False),
        ([{"n": 1}], b"other", False),
        ([{"n": 2}], b"other", True),
        ([{"n": 1}, {"n": 2}], b"other", True),
        ([], b"other", True),
    ],
)
def test_a_page_has_changed_if_its_rows_have(rows: Any, body: bytes, changed: bool) -> None:
    """A token in a form that is new each time is no change."""
    visit = read_anew(_visit(_answer(), {"n": 1}), _answer(body), rows, 20.0)
    assert (visit.first_seen, visit.last_seen) == (10.0, 20.0)
    assert visit.last_changed == (20.0 if changed else 10.0)


def test_a_page_without_rows_has_changed_if_its_content_has() -> None:
    """Of a redirect, where it leads."""
    assert read_anew(_visit(), _answer(), (), 20.0).last_changed == 10.0
    assert read_anew(_visit(), _answer(b"other"), (), 20.0).last_changed == 20.0
    moved = _visit(_answer(b"x", 301, location="/a"))
    assert read_anew(moved, _answer(b"y", 301, location="/a"), (), 20.0).last_changed == 10.0
    assert read_anew(moved, _answer(b"x", 301, location="/b"), (), 20.0).last_changed == 20.0


def test_a_page_that_is_gone_is_read_when_it_comes_back() -> None:
    """Even if it is what it was: its rows are gone too."""
    visit = gone(_visit(_answer(etag='"a"'), {"n": 1}), 20.0)
    assert (visit.first_seen, visit.last_seen, visit.last_changed, visit.rows) == (10, 10, 20, 0)
    assert conditions(visit) == ()
    assert not is_unchanged(visit, _answer())
    assert gone(visit, 30.0).last_changed == 20.0
    assert read_anew(visit, _answer(), [{"n": 1}], 40.0).last_changed == 40.0


def test_after_a_lost_lease_the_page_is_read() -> None:
    """Its rows may be those of a visit that was never recorded."""
    lease = Lease(1, 2, Link(URL), "a.test", 1, visit=_visit())
    assert before(lease) is not None
    assert before(replace(lease, losses=1)) is None
