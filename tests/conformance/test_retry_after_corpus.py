"""Retry-After in all its forms (RFC 9110, section 10.2.3)."""

import json
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from shoal.model import Response
from shoal.policy import Retries, asked_pause_s, retry_after_s

CORPUS = json.loads((Path(__file__).parent.parent / "corpora" / "retry-after.json").read_text("utf-8"))
NOW = parsedate_to_datetime(CORPUS["now"]).timestamp()


def test_the_corpus_is_whole() -> None:
    """All 37 forms are here, and the clock they refer to."""
    assert len(CORPUS["cases"]) == 37
    assert datetime.fromisoformat("2026-12-01T12:00:00+00:00").timestamp() == NOW


@pytest.mark.parametrize("case", CORPUS["cases"], ids=lambda case: f"{case['status']} {case['value']}")
def test_the_pause_asked_for(case: dict) -> None:
    """The host is left alone as long as the header says, up to the limit; not at all if it says nothing."""
    retries = Retries(max_retry_after_s=3600.0)
    answer = Response("http://a.example/", case["status"], (("retry-after", case["value"]),), b"")
    capped = case.get("policy") == "cap"
    expected_s = 3600.0 if capped else case["delay_s"] or 0.0
    assert asked_pause_s(answer, retries=retries, now=NOW) == expected_s
    if case["status"] in (429, 503) and not capped:
        assert retry_after_s(case["value"], NOW) == case["delay_s"]
