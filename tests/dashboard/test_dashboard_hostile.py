"""Crawled text is hostile: markup, terminal codes and what turns text around stay text, everywhere."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from tests.dashboard.browser import VIEWS, WIDE, comes, shown

from shoal.dashboard.rows import latest_rows
from shoal.frontier import open_frontier
from shoal.model import Beat, Link, Outcome

MARKUP = (
    "<script>alert(1)</script><img src=x onerror=alert(2)><svg/onload=alert(3)>"
    "<style>*{display:none}</style><base href=//evil.example/><a href=javascript:alert(4)>x</a></pre>"
    "<iframe srcdoc=x></iframe>\"'><b onmouseover=alert(5)>{{7*7}}${alert(6)}"
)
ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\x00\u202egnp.exe\u2066"
EVIL = MARKUP + ESCAPES
URL = "http://evil.test/<script>alert(7)</script>?q=\"'><img/src=x/onerror=alert(8)>"
REASON = f"reason={quote(EVIL, safe='')}"
FOREIGN = """() => [...document.querySelectorAll(
    "body script, iframe, base, style, b[onmouseover], img:not([src='/web/icon.svg']),"
    + "svg[onload], [onerror],"
    + "a[href^='javascript:']")].map(element => element.outerHTML)"""
"""What markup would have become."""


@pytest.fixture
def hostile(tmp_path):
    """The place of a crawl in which all that can be is hostile, its name too."""
    place, name = f"sqlite:{tmp_path}/evil.shoal", "<img src=x onerror=alert(9)>"
    with open_frontier(place, crawl=name) as frontier:
        frontier.add([Link(f"{URL}{number}") for number in range(8)])
        for number in range(8):
            (lease,) = frontier.lease(1, 60, worker=EVIL).leases
            state = ("dead", "skipped", "queued", "done")[number % 4]
            item = {"title": EVIL, EVIL: EVIL, "url": "javascript:alert(10)", "list": [EVIL, {EVIL: EVIL}]}
            outcome = Outcome(lease, state, reason=EVIL, error=f"Traceback\n{EVIL}\n{EVIL}", sign="fine")
            outcome = outcome if state != "done" else Outcome(lease, "done", items=(item,), sign="fine")
            frontier.commit([outcome])
        frontier.lease(1, 60, worker=EVIL)
        frontier.beat(Beat(EVIL, 1, 0.0, 1.0), 1e9)
        frontier.add([Link(f"http://<b>{number}.test/") for number in range(2)])
        frontier.describe({"output": EVIL, "settings": {"seeds": [EVIL]}})
    return place


@pytest.mark.parametrize("state", ["dead", "skipped", "queued", "done"])
def test_no_view_runs_or_shows_markup(hostile, serve, look, state):
    """No dialog, no request, no element that the page did not make itself, and no violation of its policy."""
    page = look(serve(hostile))
    page.evaluate(
        "window.violations = [];"
        "document.addEventListener('securitypolicyviolation', e => violations.push(e.violatedDirective))"
    )
    url = f"{URL}{('dead', 'skipped', 'queued', 'done').index(state)}"
    chosen = (f"pages?url={quote(url, safe='')}", f"dead?{REASON}", f"skipped?{REASON}")
    for view in (*VIEWS, *chosen):
        shown(page, view)
        page.wait_for_timeout(100)
        assert page.evaluate(FOREIGN) == [], view
        assert not set(page.inner_text("body")) & set("\x1b\x07\x9b\x00\u202e\u2066"), view
    shown(page, "dead")
    assert "<script>alert(1)</script>" in page.inner_text("main")
    assert "\\u001b[2J" in page.inner_text("main")
    shown(page, "items")
    comes(page, "() => document.querySelector('main').innerText.includes('<img src=x onerror=alert(2)>')")
    assert page.evaluate("violations") == []


def test_actions_on_hostile_names_work(hostile, serve, look):
    """What is sent back is what was there, to the letter."""
    page = shown(look(serve(hostile)), f"dead?{REASON}")
    page.click("[aria-label='Letters'] button:text-is('Redrive')")
    page.wait_for_selector(".notice:has-text('1 dead letter queued')")
    page.click("[aria-label='By reason'] button:text-is('Redrive')")
    page.click("dialog button:text-is('Redrive')")
    page.wait_for_selector("text=No page was given up.")


def test_rows_of_stores_are_text(tmp_path, serve, look, hostile):
    """Whatever they hold, and whatever their columns are called."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(json.dumps({"title": EVIL, EVIL: number, "broken": "\ud800"}) + "\n" for number in range(3))
    )
    page = shown(look(serve(hostile, latest=latest_rows(str(rows)))), "items")
    comes(page, "() => document.querySelector('main').innerText.includes('<svg/onload=alert(3)>')")
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert WIDE["width"] >= page.evaluate("document.documentElement.scrollWidth")
