"""Every misbehaviour of a server has the outcome that it should, and costs nobody else anything."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.hostile.crawls import crawled
from tests.hostile.hosts import Hosts
from tests.hostile.misbehaviours import MISBEHAVIOURS, TWO_CRAWLS
from tests.site import Site

from shoal.frontier import Frontier

Outcomes = Mapping[str, tuple[str, str]]
"""States and reasons, by name or URL."""


def _outcome(frontier: Frontier, url: str) -> tuple[str, str]:
    record = frontier.why(url)
    return (record.state, record.reason) if record else ("unknown", "")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """All bad servers, and some good ones, in one crawl, and those with a bad robots.txt in another one.

    The crawls come to their ends and leave nothing behind.
    """
    found: dict[str, tuple[str, str]] = {}
    for obey, names in TWO_CRAWLS.items():
        with Hosts(names) as hosts, Site(200, hosts=10) as site:
            urls = {name: hosts.url(name) for name in names}
            seeds = [*urls.values(), *site.urls[:10]]
            folder = tmp_path_factory.mktemp("hostile")
            with crawled(seeds, folder, concurrency=200, obey_robots=obey) as frontier:
                assert frontier.stats().finished
                found |= {name: _outcome(frontier, url) for name, url in urls.items()}
                found |= {url: _outcome(frontier, url) for url in site.urls}
    return found


@pytest.mark.parametrize("name", MISBEHAVIOURS)
def test_a_misbehaviour_has_its_outcome(name: str, outcomes: Outcomes) -> None:
    """The page has the right state and reason."""
    assert MISBEHAVIOURS[name].has(*outcomes[name]), outcomes[name]


def test_all_at_once_do_no_harm_to_others(outcomes: Outcomes) -> None:
    """Every page of the good servers is done."""
    good = [outcome for name, outcome in outcomes.items() if name not in MISBEHAVIOURS]
    assert set(good) == {("done", "")}
    assert len(good) == 400
