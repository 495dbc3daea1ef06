"""Every view during a live crawl, as it is seen, heard and used with a keyboard."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from tests.dashboard.browser import PHONE, VIEWS, WIDE, comes, shown
from tests.dashboard.crawls import NAME
from tests.waiting import until

MOST_BYTES = 200_000
SIZES = {"wide": WIDE, "phone": PHONE}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Where screenshots are kept for people: $SHOAL_SCREENSHOTS, or a folder that goes away."""
    folder = Path(os.environ.get("SHOAL_SCREENSHOTS") or tmp_path_factory.mktemp("pictures"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_fits_and_is_accessible(live, look, pictures, size, scheme):
    """Nothing is wider than the window, and axe finds nothing serious: contrast, names, roles, order."""
    page = look(live.url, viewport=SIZES[size], color_scheme=scheme, bypass_csp=True)
    for view in VIEWS:
        shown(page, view)
        page.wait_for_timeout(300)
        page.screenshot(path=pictures / f"{view}-{size}-{scheme}.png")
        assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size]["width"], view
        found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        told = [(each["id"], each["impact"], [node["html"] for node in each["nodes"]][:3]) for each in found]
        assert [each for each in told if each[1] in ("serious", "critical")] == [], view


def test_the_page_is_small(live, look):
    """All that a browser loads, not compressed, until every view was open."""
    page = look(live.url)
    for view in VIEWS:
        shown(page, view)
    page.wait_for_timeout(500)
    loaded = page.evaluate(
        "['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind))"
        ".map(entry => [entry.name, entry.decodedBodySize])"
    )
    assert sum("/web/" in url for url, _ in loaded) > 10
    assert sum(size for url, size in loaded if "/api/" not in url) < MOST_BYTES / 2
    assert sum(size for _, size in loaded) < MOST_BYTES


def test_the_overview_lives(live, look):
    """It shows what the frontier counts, and goes on without being loaded again."""
    page = shown(look(live.url), "overview")
    done = (
        "() => Number([...document.querySelectorAll('.tile')].find(t => t.textContent.startsWith('Done'))"
        "?.querySelector('strong').textContent.replace(/,/g, ''))"
    )
    before = until(lambda: page.evaluate(done))
    page.evaluate("window.stays = true")
    comes(page, f"before => ({done})() > before", arg=before)
    assert page.evaluate("window.stays")
    stats = live.frontier.stats()
    assert before <= page.evaluate(done) <= stats.done
    assert page.inner_text("#state") == "running"
    workers = page.inner_text("section[aria-label=Workers]")
    for worker in live.frontier.workers():
        assert worker.name in workers
    comes(page, "document.querySelector('.chart .line').getAttribute('d').length > 10")
    assert "pages per second" in page.get_attribute(".chart", "aria-label")
    page.click("text=3 days")
    comes(page, "document.querySelector('.chart .line').getAttribute('d').length > 500")


def test_the_chart_survives_the_dashboard(live, serve, look):
    """What was before another one was started is in it, too."""
    until(lambda: live.frontier.history(0))
    page = shown(look(serve(live.place)), "overview")
    page.click("text='1 h'")
    comes(
        page,
        "() => /([1-9][\\d.]*) at most/.test(document.querySelector('.chart')?.getAttribute('aria-label'))",
    )


def test_hosts_are_sorted_and_found(live, look):
    """By any column, up and down; a part of a name is enough to find one."""
    page = shown(look(live.url), "hosts")
    names = "() => [...document.querySelectorAll('#hosts-body tbody th')].map(cell => cell.textContent)"
    page.wait_for_selector("#hosts-body tbody tr:nth-child(3)")
    page.click(".sorter:has-text('Host')")
    page.wait_for_selector("[aria-sort=ascending]")
    comes(
        page, f"() => {{ const n = ({names})(); return n.length === 3 && n.join() === n.toSorted().join() }}"
    )
    page.click(".sorter:has-text('Host')")
    page.wait_for_selector("[aria-sort=descending]")
    comes(page, f"() => {{ const n = ({names})(); return n.join() === n.toSorted().reverse().join() }}")
    page.click(".sorter:has-text('Latency')")
    page.wait_for_selector("th[aria-sort=descending] :text('Latency')")
    page.fill("#host-search", "127.0.0.2")
    comes(page, f"() => ({names})().length === 1")
    assert page.evaluate(names)[0].startswith("127.0.0.2:")


def test_dead_letters_are_shown_by_reason_and_host(live, look):
    """With their attempts and last errors; a choice narrows them down, and its address can be kept."""
    page = shown(look(live.url), "dead")
    page.click(".group:text-is('HTTP 404')")
    page.wait_for_selector("h2:has-text('“HTTP 404” by host')")
    comes(page, "document.querySelectorAll('[aria-label=Letters] tbody tr').length === 1")
    assert "/status/404" in page.inner_text("[aria-label=Letters] tbody")
    assert "reason=HTTP+404" in page.url
    page.reload()
    page.wait_for_selector("h2:has-text('“HTTP 404” by host')")
    page.click("text=Show all")
    comes(page, "document.querySelectorAll('[aria-label=Letters] tbody tr').length >= 4")


def test_skipped_pages_are_shown_by_rule(live, look):
    """Here those that robots.txt forbids."""
    page = shown(look(live.url), "skipped")
    page.click(".group:has-text('robots')")
    comes(page, "document.querySelectorAll('[aria-label=Pages] tbody tr').length === 2")
    assert "/private/a" in page.inner_text("[aria-label=Pages]")


def test_a_page_tells_what_became_of_it(live, look):
    """As `shoal why` says it; also if it was never seen."""
    page = shown(look(live.url), "pages")
    page.fill("#url", f"{live.site.url}status/404")
    page.press("#url", "Enter")
    page.wait_for_selector(".record :text('HTTP 404')")
    page.fill("#url", "http://elsewhere.example/")
    page.click("button:has-text('Why?')")
    page.wait_for_selector("text=was never seen")


def test_the_latest_rows_are_shown(live, look):
    """Those of the store that was named."""
    page = shown(look(live.url), "items")
    page.wait_for_selector("[aria-label=Rows] tbody tr:nth-child(10)")
    assert page.inner_text("[aria-label=Rows] thead").split() == ["url", "title"]
    assert live.site.url in page.inner_text("[aria-label=Rows] tbody") or "127.0.0." in page.inner_text(
        "[aria-label=Rows] tbody"
    )


def test_everything_can_be_done_with_the_keyboard(live, look):
    """Skip link, views, sorting, a dialog and the way out of it, and the values of the chart."""
    page = shown(look(live.url), "overview")
    page.wait_for_selector(".chart .line[d^=M]")
    page.focus(".chart")
    page.keyboard.press("ArrowLeft")
    comes(page, "document.querySelector('.readout').textContent.includes('pages/s')")
    page.evaluate("document.activeElement.blur()")
    page.reload()
    page.wait_for_selector("nav a")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.focus("nav a[href^='#hosts']")
    page.keyboard.press("Enter")
    page.wait_for_selector("#hosts-body tbody tr")
    assert page.evaluate("document.activeElement.id") == "main"
    page.focus(".sorter:has-text('Done')")
    page.keyboard.press("Enter")
    page.wait_for_selector("th[aria-sort] :text('Done')")
    assert page.evaluate("document.activeElement.textContent").startswith("Done")
    pause = "#hosts-body tbody button:has-text('Pause')"
    label = page.get_attribute(pause, "aria-label")
    page.focus(pause)
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    assert page.evaluate("document.querySelector('dialog').contains(document.activeElement)")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog[open]", state="detached")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == label


def test_the_name_of_the_crawl_is_in_the_title(live, look):
    """So that tabs can be told apart."""
    page = shown(look(live.url), "hosts")
    assert page.title() == f"Hosts · {NAME} · shoal"
