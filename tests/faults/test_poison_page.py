"""A page that kills the process that reads it, each time."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from tests.site import Site

pytestmark = pytest.mark.faults

POISON = 50  # a leaf: nothing is found by this page alone
FAULT = f"if page.url.endswith('/p/{POISON}'): os.kill(os.getpid(), signal.SIGKILL)"


@pytest.fixture
def site() -> Iterator[Site]:
    """A site with so many pages that the poison is read together with others."""
    with Site(pages=60, hosts=2, latency_s=0.02) as served:
        yield served


def assert_only_the_poison_is_dead(crawling):
    """It is a dead letter with a reason; all others are done, once."""
    status = crawling.status()
    assert {name: status[name] for name in ("done", "items", "dead", "queued", "leased")} == {
        "done": 59,
        "items": 59,
        "dead": 1,
        "queued": 0,
        "leased": 0,
    }
    [(url, reason)] = crawling.ask("SELECT url, reason FROM pages WHERE state = 'dead'")
    assert (url, reason) == (crawling.site.page_url(POISON), "lease lost")
    crawling.assert_rows(set(crawling.site.urls) - {url})
    crawling.assert_sound()


@pytest.mark.parametrize("kind", ["state", "jsonl"])
def test_a_poison_page_becomes_a_dead_letter(new_crawling, site, kind):
    """The workers that it kills are replaced, and all other pages are done, once."""
    crawling = new_crawling(site, kind, "--processes", 2, fault=FAULT)
    run = crawling.start()
    assert run.wait() == 0
    assert_only_the_poison_is_dead(crawling)


def test_a_poison_page_does_not_keep_a_single_process_from_the_end(new_crawling, site):
    """Started again as often as it is killed, the crawl gives the page up, and only that one."""
    crawling = new_crawling(site, "jsonl", fault=FAULT)
    codes = [crawling.start().wait()]
    while codes[-1] == -signal.SIGKILL and len(codes) < 10:
        codes.append(crawling.start().wait())
    assert codes[-1] == 0
    assert_only_the_poison_is_dead(crawling)
