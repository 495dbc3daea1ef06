"""The site of the benchmarks, smaller: 16 hosts that link to each other, every URL spelled in many ways."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.shell import Shell

PAGES = 2_000
SITE = Path(__file__).parents[2] / "benchmarks" / "site.py"
ENVIRONMENT = os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def _run(command: str, *args: object) -> str:
    done = subprocess.run(
        [sys.executable, SITE, command, *map(str, args)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The folder of the site, and the port on which nginx serves it."""
    if shutil.which("nginx", path=ENVIRONMENT["PATH"]) is None:
        if os.environ.get("CI") == "true":
            pytest.fail("nginx is missing, and CI must run every test")
        pytest.skip("nginx is not installed")
    folder = tmp_path_factory.mktemp("site")
    with socket.create_server(("127.0.0.2", 0)) as free:
        number = free.getsockname()[1]
    _run("build", folder, "--pages", PAGES, "--kb", 8, "--port", number)
    _run("serve", folder)
    yield folder, number
    _run("stop", folder)


@pytest.fixture
def check(served: tuple[Path, int]) -> Callable[[Path], dict[str, Any]]:
    """The site's own check of a crawl; the log of the server begins anew with each test."""
    folder, _ = served
    _run("reset", folder)
    return lambda items: json.loads(_run("check", folder, items))


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["one process", "two processes"])
def test_every_page_is_fetched_once_and_every_item_is_right(
    shoal: Shell,
    served: tuple[Path, int],
    check: Callable[[Path], dict[str, Any]],
    options: tuple[str, ...],
) -> None:
    """Nothing missing, doubled or wrong, in the items and in the server's log."""
    shoal(
        *("crawl", f"http://127.0.0.2:{served[1]}/", "--scope", "any", "--sort-query", "--strict", *options),
        *("--select", "id=article.product::attr(data-id)", "--select", "title=article.product h1"),
        *("--select", "price=[itemprop=price]::attr(content)", "-o", "items.jsonl"),
    )
    report = check(shoal.folder / "items.jsonl")
    assert {name: report[name] for name in ("pages", "items", "fetches", "pages_fetched")} == {
        "pages": PAGES,
        "items": PAGES,
        "fetches": PAGES,
        "pages_fetched": PAGES,
    }
    wrong = ("missing", "duplicated", "wrong", "unknown", "broken", "never_fetched", "pages_fetched_again")
    assert {report[name] for name in (*wrong, "not_a_page")} == {0}
