"""Every button: it is pressed in the browser, and what it did is seen in the frontier."""

from __future__ import annotations

import pytest
from tests.dashboard.browser import notice, shown
from tests.dashboard.crawls import NAME
from tests.waiting import until

from shoal.frontier import open_frontier
from shoal.model import Limits, Link, Outcome

HOST = "shop.test"
NOW = 1_000_000_000.0


@pytest.fixture
def frontier(tmp_path, redis_server):
    """A crawl that nobody works on: two dead letters of each of two reasons, and three URLs queued."""
    place = f"{redis_server.url}?prefix=actions-{tmp_path.name}"
    with open_frontier(place, crawl=NAME) as frontier:
        frontier.place = place
        frontier.add([Link(f"http://{HOST}/{number}") for number in range(4)])
        for number in range(4):
            (lease,) = frontier.lease(1, 60, worker="ann").leases
            reason = ("HTTP 404", "timeout")[number % 2]
            frontier.commit([Outcome(lease, "dead", reason=reason, error="no more", sign="fine")])
        frontier.add([Link(f"http://{HOST}/q{number}", priority=3) for number in range(3)])
        yield frontier


@pytest.fixture
def page(frontier, serve, look):
    """Its dashboard."""
    return look(serve(frontier.place))


def host_of(frontier):
    """What is known of the host."""
    return frontier.hosts_named([HOST])[0]


def test_the_crawl_is_paused_and_goes_on(frontier, page):
    """And the page says how it stands."""
    shown(page, "controls")
    page.click("[aria-label='Pause and resume'] button:text-is('Pause')")
    notice(page, "Paused")
    assert frontier.stats().paused
    page.wait_for_selector("#state :text('paused')")
    page.click("[aria-label='Pause and resume'] button:text-is('Resume')")
    notice(page, "goes on")
    assert not frontier.stats().paused
    page.wait_for_selector("#state :text('running')")


def test_a_host_is_paused_and_goes_on(frontier, page):
    """For as long as is chosen."""
    shown(page, "hosts")
    page.click(f"[aria-label='Pause {HOST}']")
    page.select_option("dialog select", "6 hours")
    page.click("dialog button:text-is('Pause')")
    notice(page, "rests for 6:00:00")
    until_ = host_of(frontier).paused_until
    assert until_ is not None
    page.wait_for_selector("td:has-text('by hand')")
    page.click(f"[aria-label='Resume {HOST}']")
    notice(page, "goes on")
    assert host_of(frontier).paused_until is None
    page.wait_for_selector(f"[aria-label='Pause {HOST}']")


def test_the_delay_of_a_host_is_set_and_taken_back(frontier, page):
    """An empty one is that of the limits."""
    shown(page, "hosts")
    for typed, expected in (("2.5", 2.5), ("0", 0.0), ("", None)):
        page.click(f"[aria-label='Set the delay of {HOST}']")
        page.fill("dialog input", typed)
        page.click("dialog button:text-is('Set')")
        page.wait_for_selector("dialog[open]", state="detached")
        assert host_of(frontier).set_delay_s == expected
    page.click(f"[aria-label='Set the delay of {HOST}']")
    page.fill("dialog input", "9")
    page.click("dialog button:text-is('Cancel')")
    assert host_of(frontier).set_delay_s is None


def test_dead_letters_are_redriven_one_by_one_by_group_and_all(frontier, page):
    """What is left is shown at once."""
    shown(page, "dead")
    page.click(f"[aria-label='Redrive http://{HOST}/0']")
    notice(page, "1 dead letter queued")
    assert frontier.why(f"http://{HOST}/0").state == "queued"
    page.click(".group:text-is('timeout')")
    page.click(f"[aria-label='Redrive {HOST}']")
    page.click("dialog button:text-is('Cancel')")
    page.click(f"[aria-label='Redrive {HOST}']")
    page.click("dialog button:text-is('Redrive')")
    notice(page, "2 dead letters queued")
    assert frontier.tally("dead") == {"HTTP 404": 1}
    page.click("text=Redrive all")
    page.click("dialog button:text-is('Redrive')")
    page.wait_for_selector("text=No page was given up.")
    assert frontier.stats().dead == 0
    assert frontier.stats().queued == 7


def test_a_reason_is_redriven(frontier, page):
    """With all of its hosts."""
    shown(page, "dead")
    page.click("[aria-label='Redrive HTTP 404']")
    page.click("dialog button:text-is('Redrive')")
    notice(page, "2 dead letters queued")
    assert frontier.tally("dead") == {"timeout": 2}


def test_urls_are_added(frontier, page):
    """With their priority; what is no URL is told, and what is known is left out."""
    shown(page, "controls")
    form = "form[aria-label='Add URLs']"
    page.fill(f"{form} textarea", f"http://{HOST}/new\n\nhttp://{HOST}/q0\nnonsense\n<b>")
    page.fill(f"{form} [name=priority]", "7")
    page.click(f"{form} button")
    notice(page, "1 URL added, 1 known before. 2 lines rejected: nonsense: not an http(s) URL; <b>: not an")
    assert frontier.why(f"http://{HOST}/new").priority == 7
    frontier.configure(Limits(max_queued=2))
    page.fill(f"{form} textarea", f"http://{HOST}/more")
    page.click(f"{form} button")
    notice(page, "the queue is full")
    assert frontier.why(f"http://{HOST}/more") is None


def test_the_priority_of_a_url_is_changed(frontier, page):
    """In the controls, and where a page is looked up."""
    shown(page, "controls")
    form = "form[aria-label='Change priority']"
    page.fill(f"{form} [name=url]", f"http://{HOST}/q1")
    page.fill(f"{form} [name=priority]", "8")
    page.click(f"{form} button")
    notice(page, "has priority 8")
    assert frontier.why(f"http://{HOST}/q1").priority == 8
    shown(page, f"pages?url=http://{HOST}/q2")
    page.click("text=Change priority")
    page.fill("dialog [name=priority]", "5")
    page.click("dialog button:text-is('Change')")
    notice(page, "has priority 5")
    assert frontier.why(f"http://{HOST}/q2").priority == 5
    page.wait_for_selector(".record div:has-text('Priority') dd:text-is('5')")


def test_a_page_is_forgotten_and_redriven_where_it_is_looked_up(frontier, page):
    """Forgetting asks first."""
    shown(page, f"pages?url=http://{HOST}/0")
    page.click("button:text-is('Redrive')")
    notice(page, "1 dead letter queued")
    assert frontier.why(f"http://{HOST}/0").state == "queued"
    page.click("button:text-is('Forget')")
    page.click("dialog button:text-is('Forget')")
    page.wait_for_selector("text=was never seen")
    assert frontier.why(f"http://{HOST}/0") is None


def test_the_limits_are_set(frontier, page):
    """Those that are shown are those in force, and what is not shown stays."""
    frontier.configure(Limits(max_pages=500, per_host=3, host_pause_s=7.0))
    shown(page, "controls")
    form = "[aria-label=Limits] form"
    assert page.input_value(f"{form} [name=max_pages]") == "500"
    for name, value in {"max_pages": "", "max_queued": "90", "delay_s": "1.5", "max_depth": "0"}.items():
        page.fill(f"{form} [name={name}]", value)
    page.uncheck(f"{form} [name=adapt]")
    page.click(f"{form} button")
    notice(page, "in force")
    assert frontier.limits == Limits(
        max_queued=90, max_depth=0, delay_s=1.5, per_host=3, host_pause_s=7.0, adapt=False
    )


def test_one_chooses_among_several_crawls(tmp_path, serve, look):
    """Those of one frontier, or of them those that were named."""
    place = f"sqlite:{tmp_path}/two.shoal"
    for name, urls in (("north", 2), ("south", 5)):
        with open_frontier(place, crawl=name) as frontier:
            frontier.add([Link(f"http://{name}.test/{number}") for number in range(urls)])
    page = shown(look(serve(place)), "overview")
    queued = ".tile:has-text('Queued') strong"
    page.wait_for_selector(f"{queued}:text-is('2')")
    page.select_option("#crawl select", "south")
    page.wait_for_selector(f"{queued}:text-is('5')")
    assert "crawl=south" in page.url
    page.reload()
    page.wait_for_selector(f"{queued}:text-is('5')")
    page = shown(look(serve(place, crawls=("south",))), "overview")
    page.wait_for_selector(f"{queued}:text-is('5')")
    assert page.query_selector("#crawl select") is None


def test_a_crawl_is_paused_while_it_runs(live, look):
    """Its workers finish what they fetch, and go on when it is resumed."""
    page = shown(look(live.url), "controls")
    page.click("[aria-label='Pause and resume'] button:text-is('Pause')")
    until(lambda: live.frontier.stats().leased == 0)
    done = live.frontier.stats().done
    page.click("[aria-label='Pause and resume'] button:text-is('Resume')")
    until(lambda: live.frontier.stats().done > done)
