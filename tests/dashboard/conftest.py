"""A browser, dashboards to look at, and a crawl that goes on meanwhile."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.dashboard.browser import Watched
from tests.dashboard.crawls import Crawl, live_crawl

from shoal.dashboard.guard import Guard
from shoal.dashboard.server import Dashboard, serving

PATIENCE_S = 30
_numbers = count()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Debian's Chromium; where it is missing, CI fails and others skip the test.

    For one module only: while it is open, its event loop runs in this thread, and no other one can.
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "Chromium is missing: install chromium"
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def look(chromium: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages at an address; at the end nothing may have gone wrong in any of them."""
    with ExitStack() as opened:

        def look(url: str, **options: object) -> Page:
            return opened.enter_context(Watched(chromium, url, options))

        yield look


@contextmanager
def served(*options: object, folder: Path) -> Iterator[str]:
    """A `shoal dashboard`, ended with the context; its URL."""
    command = [sys.executable, "-m", "shoal", "dashboard", "--port", "0", *map(str, options)]
    environment = os.environ | {"PYTHONWARNINGS": "error"}
    with (folder / f"dashboard-{next(_numbers)}.log").open("w+") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=log
        )
        try:
            line = process.stdout.readline()
            found = re.search(r"http://\S+/", line)
            assert found, (line, log.seek(0), log.read())
            yield found[0]
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)
        log.seek(0)
        assert "Traceback" not in log.read()


@contextmanager
def served_here(
    place: str, token: str | None = None, names: Sequence[str] = (), **options: Any
) -> Iterator[str]:
    """The same in a thread of this process; its URL."""
    started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        over = asyncio.Event()
        async with serving(Dashboard(place, Guard(token, names), **options), "127.0.0.1", 0) as url:
            started.set_result((url, asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    url, loop, over = started.result(PATIENCE_S)
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Serves dashboards of a place; returns their URLs."""
    with ExitStack() as running:
        yield lambda *place, **options: running.enter_context(served_here(*place, **options))


@pytest.fixture(scope="package")
def live(redis_server, tmp_path_factory) -> Iterator[Crawl]:
    """A crawl on Redis with two workers, and its dashboard."""
    folder = tmp_path_factory.mktemp("live")
    with live_crawl(redis_server.url, folder) as crawl:
        options = ("--frontier", crawl.place, "--store", folder / "rows.jsonl")
        with served(*options, folder=folder) as crawl.url:
            yield crawl
