"""What can be read of a damaged state file is saved."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shoal.errors import ConfigError, FrontierError, ShoalError
from shoal.frontier.sqlite import SqliteFrontier
from shoal.frontier.sqlite_file import crawl_names
from shoal.frontier.sqlite_recover import recover
from shoal.model import Lease, Limits, Link, Outcome, Survey

PAGES = 3_000


def survey(lease: Lease) -> Survey:
    """What a report is to know of a page."""
    return Survey(lease.fingerprint, lease.link.url, 200, 0.5, 1000)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state file with pages that are done, dead and queued, and with items."""
    return made(tmp_path / "old.shoal", PAGES)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """The same, in which damage hits the tables and indexes themselves."""
    return made(tmp_path / "old.shoal", 60)


def made(path: Path, pages: int) -> Path:
    """Make the state file of a crawl that is half done."""
    with SqliteFrontier(str(path), "books") as frontier:
        frontier.configure(Limits(per_host=1_000, max_pages=10_000))
        frontier.describe({"output": None})
        frontier.claim([(1, "http://a.test/1")])
        frontier.add([Link(f"http://a.test/{number:05}") for number in range(pages)])
        while frontier.stats().done < pages // 2:
            leases = frontier.lease(pages // 15, 60, worker="ann").leases
            frontier.commit(
                [
                    Outcome(lease, "done", items=({"url": lease.link.url},), survey=survey(lease))
                    for lease in leases[1:]
                ]
                + [Outcome(lease, "dead", reason="HTTP 404") for lease in leases[:1]]
            )
    return path


def test_a_sound_file_is_saved_whole(state: Path, tmp_path: Path) -> None:
    """Every URL with its state, every item, limits and description."""
    target = str(tmp_path / "new.shoal")
    with SqliteFrontier(str(state), "books") as old:
        before, items, surveys = old.stats(), list(old.items()), list(old.surveys())
        minutes = old.history(0.0)
    assert recover(str(state), target) == (PAGES, before.items)
    with SqliteFrontier(target, "books", create=False) as frontier:
        after = frontier.stats()
        for name in ("queued", "done", "dead", "skipped", "items", "fetches"):
            assert getattr(after, name) == getattr(before, name), name
        assert list(frontier.items()) == items
        assert list(frontier.surveys()) == surveys
        assert frontier.history(0.0) == minutes
        assert frontier.limits.max_pages == 10_000
        assert frontier.describe() == {"output": None}
        assert frontier.claim([(1, "http://a.test/2")]) == ["http://a.test/1"]


@pytest.mark.parametrize("seed", range(4))
def test_most_of_a_damaged_file_is_saved_and_the_crawl_goes_on(
    state: Path, tmp_path: Path, seed: int
) -> None:
    """Overwritten blocks cost what was in them; the rest can be leased and committed."""
    damage = random.Random(seed)
    content = bytearray(state.read_bytes())
    for _ in range(6):
        start = damage.randrange(16 * 4096, len(content) - 4096) // 4096 * 4096
        content[start : start + 4096] = damage.randbytes(4096)
    state.write_bytes(content)
    target = str(tmp_path / "new.shoal")
    pages, _ = recover(str(state), target)
    assert pages > PAGES // 3
    with SqliteFrontier(target, "books", create=False) as frontier:
        while leases := frontier.lease(500, 60, worker="ann").leases:
            assert frontier.commit([Outcome(lease, "done") for lease in leases]) == frozenset()
        stats = frontier.stats()
        assert (stats.queued, stats.seen) == (0, pages)


ACTIONS = {
    "names": lambda path: crawl_names(path),
    "stats": lambda path: _opened(path, SqliteFrontier.stats),
    "lease": lambda path: _opened(path, lambda frontier: frontier.lease(500, 60, worker="ann")),
    "items": lambda path: _opened(path, lambda frontier: list(frontier.items())),
    "dead": lambda path: _opened(path, lambda frontier: frontier.dead()),
    "hosts": lambda path: _opened(path, lambda frontier: frontier.hosts()),
    "why": lambda path: _opened(path, lambda frontier: frontier.why("http://a.test/00001")),
    "history": lambda path: _opened(path, lambda frontier: frontier.history(0.0)),
}


def _opened(path: str, look: Callable[[SqliteFrontier], object]) -> object:
    with SqliteFrontier(path, "books", create=False) as frontier:
        return look(frontier)


@pytest.mark.parametrize("seed", range(40))
def test_no_damage_is_more_than_an_error_that_says_so(small: Path, tmp_path: Path, seed: int) -> None:
    """Bytes that are others anywhere, or a file that was cut off: it works, or is refused in words."""
    damage = random.Random(seed)
    content = bytearray(small.read_bytes())
    for _ in range(damage.randint(1, 5)):
        start = damage.randrange(len(content))
        length = min(damage.choice((1, 8, 100, 5000)), len(content) - start)
        content[start : start + length] = damage.randbytes(length)
    if damage.random() < 0.2:
        del content[damage.randrange(len(content)) :]
    for name, action in ACTIONS.items():
        path = tmp_path / f"{name}.shoal"
        path.write_bytes(content)
        with suppress(ShoalError):
            action(str(path))
    target = tmp_path / "new.shoal"
    small.write_bytes(content)
    try:
        pages, _ = recover(str(small), str(target))
    except ShoalError:
        assert not target.exists()
    else:
        assert 0 < _opened(str(target), SqliteFrontier.stats).seen == pages


def test_it_writes_to_new_files_only(state: Path, tmp_path: Path) -> None:
    """Neither over another file, nor from one that is not there or not ours."""
    with pytest.raises(ConfigError, match="exists already"):
        recover(str(state), str(state))
    with pytest.raises(ConfigError, match="no state file"):
        recover(str(tmp_path / "none"), str(tmp_path / "new"))
    (tmp_path / "text").write_text("hello " * 1000)
    with pytest.raises(FrontierError, match="nothing can be read"):
        recover(str(tmp_path / "text"), str(tmp_path / "new"))
