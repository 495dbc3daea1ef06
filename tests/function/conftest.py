"""What the tests of cloud functions share: the runtimes of both clouds, run on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from threading import Thread, Timer
from typing import Any, NamedTuple

import pytest
from psycopg.rows import dict_row
from tests.bench_site import BenchSite
from tests.services import PostgresServer, RedisServer, ServiceMissing, free_port
from tests.site import Site

from shoal.frontier import open_frontier

NUMBERS = count()
START_S = 60.0  # of a process, on a machine that is busy

KILLS = 4

CRAWL = """\
import os
import shoal
import shoal.function

crawl = shoal.Crawl("site", seeds=os.environ["SEEDS"].split(), scope="any", per_host=16)

@crawl.page()
def page(page):
    yield {"id": page.css("article::attr(data-id)").get()}
    yield from page.links()
"""
"""What functions work on."""


class Answer(NamedTuple):
    """How an invocation ended."""

    kind: str
    """"response", "error", "killed", or "broken": it could not even be started."""
    content: Any = None

    @property
    def report(self) -> dict[str, Any]:
        """What it answered in good order."""
        assert self.kind == "response", self
        return dict(self.content)


class Lambda:
    """AWS Lambda: starts as many sandboxes as there are invocations at once, and kills those that are late.

    A sandbox is the real runtime client, `awslambdaric`, on a runtime API that is served here.
    """

    def __init__(
        self, folder: Path, handler: str, *, timeout_s: float, environment: Mapping[str, str]
    ) -> None:
        self._start = lambda: _Sandbox(folder, handler, timeout_s, environment)
        self._idle: deque[_Sandbox] = deque()
        self._all: list[_Sandbox] = []

    def invoke(self, event: object = None, *, kill_after_s: float | None = None) -> Answer:
        """Invoke it, and wait for the end. kill_after_s: SIGKILL to the sandbox so long after the event."""
        try:
            sandbox = self._idle.pop()
        except IndexError:
            sandbox = self._start()
            self._all.append(sandbox)
        answer = sandbox.invoke(event, kill_after_s)
        if sandbox.process.returncode is not None or answer.kind == "broken":
            sandbox.close()
        else:
            self._idle.append(sandbox)
        return answer

    @property
    def pids(self) -> list[int]:
        """Of all processes that were started."""
        return [sandbox.process.pid for sandbox in self._all]

    def said(self) -> str:
        """What all of them have written."""
        return "".join(sandbox.log.read_text(errors="replace") for sandbox in self._all)

    def close(self) -> None:
        for sandbox in self._all:
            sandbox.close()


class _Sandbox:
    """One process that takes one invocation after the other."""

    def __init__(self, folder: Path, handler: str, timeout_s: float, environment: Mapping[str, str]) -> None:
        self.timeout_s = timeout_s
        self.events: SimpleQueue[object] = SimpleQueue()
        self.taken: SimpleQueue[float] = SimpleQueue()  # the deadline
        self.answers: SimpleQueue[Answer] = SimpleQueue()
        self._api = ThreadingHTTPServer(("127.0.0.1", 0), _RuntimeApi)
        self._api.sandbox = self  # type: ignore[attr-defined]
        Thread(target=self._api.serve_forever, args=(0.05,), daemon=True).start()
        self.log = folder / f"sandbox-{next(NUMBERS)}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "awslambdaric", handler],
                cwd=folder,
                env=_environment(folder, environment)
                | {"AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._api.server_port}"},
                stdout=log,
                stderr=log,
            )

    def invoke(self, event: object, kill_after_s: float | None) -> Answer:
        self.events.put(event)
        try:
            deadline = self.taken.get(timeout=START_S)
        except Empty:
            raise AssertionError(self.log.read_text()) from None
        left_s = deadline - time.time()
        if kill_after_s is not None:
            left_s = min(left_s, kill_after_s)
        with suppress(Empty):
            return self.answers.get(timeout=max(0.0, left_s))
        self.process.kill()
        self.process.wait()
        with suppress(Empty):  # it had just come
            return self.answers.get_nowait()
        return Answer("killed")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.events.put(None)  # for the thread that waits for one
        self._api.shutdown()
        self._api.server_close()


class _RuntimeApi(BaseHTTPRequestHandler):
    """What Lambda offers to the process in a sandbox, version 2018-06-01."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        sandbox: _Sandbox = self.server.sandbox  # type: ignore[attr-defined]
        event = sandbox.events.get()
        deadline = time.time() + sandbox.timeout_s
        headers = {
            "Lambda-Runtime-Aws-Request-Id": f"request-{next(NUMBERS)}",
            "Lambda-Runtime-Deadline-Ms": str(int(deadline * 1000)),
            "Lambda-Runtime-Invoked-Function-Arn": "arn:aws:lambda:here:0:function:shoal",
            "Content-Type": "application/json",
        }
        with suppress(ConnectionError):  # of one that was closed meanwhile
            self._reply(200, json.dumps(event).encode(), headers)
            sandbox.taken.put(deadline)

    def do_POST(self) -> None:
        sandbox: _Sandbox = self.server.sandbox  # type: ignore[attr-defined]
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._reply(202, b"{}", {})
        if self.path.endswith("/init/error"):
            sandbox.taken.put(time.time() + sandbox.timeout_s)
            sandbox.answers.put(Answer("broken", content))
        else:
            sandbox.answers.put(Answer(self.path.rpartition("/")[2], content))

    def _reply(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Framework:
    """An instance of a Google Cloud function: functions-framework, as it is started in production."""

    def __init__(
        self, folder: Path, target: str, *, signature: str = "http", environment: Mapping[str, str]
    ) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/"
        self.log = folder / f"instance-{next(NUMBERS)}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "functions_framework",
                    "--target",
                    target,
                    "--source",
                    str(folder / "main.py"),
                    "--host",
                    "127.0.0.1",
                    "--port",
                    str(port),
                    "--signature-type",
                    signature,
                ],
                cwd=folder,
                env=_environment(folder, environment),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while self._try(urllib.request.Request(f"{self.url}robots.txt"))[0] == "killed":  # of no function
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, "it does not answer"
            time.sleep(0.05)

    def post(self, body: bytes = b"", headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        """(Status, answer); (0, None) if it was killed meanwhile."""
        request = urllib.request.Request(self.url, data=body, method="POST", headers=dict(headers or {}))
        kind, status, content = self._try(request)
        return status, json.loads(content) if kind == "json" else content

    def _try(self, request: urllib.request.Request) -> tuple[str, int, Any]:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return _kind(answer.headers), answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return _kind(error.headers), error.code, error.read()
        except OSError:
            return "killed", 0, None

    def said(self) -> str:
        """What it has written."""
        return self.log.read_text(errors="replace")

    def close(self) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL to all of its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """End it in good order; returns the exit code."""
        self.process.terminate()
        return self.process.wait(START_S)


class Cloud:
    """Google Cloud: starts as many instances as there are invocations at once."""

    def __init__(self, folder: Path, target: str, *, environment: Mapping[str, str]) -> None:
        self._start = lambda: Framework(folder, target, environment=environment)
        self._idle: deque[Framework] = deque()
        self._all: list[Framework] = []

    def invoke(self, event: object = None, *, kill_after_s: float | None = None) -> tuple[int, Any]:
        """Invoke it, and wait for the end. kill_after_s: SIGKILL to the instance so long after the event."""
        try:
            instance = self._idle.pop()
        except IndexError:
            instance = self._start()
            self._all.append(instance)
        timer = Timer(kill_after_s, instance.kill) if kill_after_s is not None else None
        if timer:
            timer.start()
        answer = instance.post(json.dumps(event).encode())
        if timer:
            timer.join()
        else:
            self._idle.append(instance)
        return answer

    def said(self) -> str:
        """What all of them have written."""
        return "".join(instance.said() for instance in self._all)

    def close(self) -> None:
        for instance in self._all:
            instance.kill()


def _kind(headers: Any) -> str:
    return "json" if headers.get_content_type() == "application/json" else "text"


def _environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])} | more


def drain(
    invoke: Callable[[float | None], Any], finished: Callable[[Any], bool], *, at_once: int, kill_s: float
) -> list[Any]:
    """Invoke it `at_once`, again and again until it is finished; every fifth is killed on its way.

    But only in the first KILLS rounds: a page that was lost once more would be taken for what kills workers.
    invoke: is told after how many seconds to kill, kill_s at most. finished: whether an answer says so.
    """
    rng, answers = Random(1), []
    with ThreadPoolExecutor(at_once) as threads:
        for turn in range(20):
            fatal = at_once // 5 if turn < KILLS else 0
            kills = [rng.uniform(0.1, kill_s) if number < fatal else None for number in range(at_once)]
            answers += threads.map(invoke, kills)
            if any(map(finished, answers[-at_once:])):
                return answers
            time.sleep(1.0)
    raise AssertionError("it does not finish")


def assert_all_once(site: Site, frontier: str, rows: Path) -> None:
    """Every page is done and has one row."""
    with open_frontier(frontier, crawl="site") as opened:
        stats = opened.stats()
    assert (stats.done, stats.dead, stats.skipped, stats.queued) == (site.pages, 0, 0, 0)
    ids = Counter(json.loads(line)["id"] for line in rows.read_text().splitlines())
    assert ids == Counter(row["id"] for row in site.rows().values())
    assert site.fetches().keys() == set(site.urls)


@contextmanager
def large_site(folder: Path) -> Iterator[BenchSite]:
    """2,000 pages, served by nginx."""
    try:
        site = BenchSite(folder / "site", pages=2_000)
    except ServiceMissing as missing:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(missing))
    with site:
        yield site


def assert_clean(report: Mapping[str, int], pages: int) -> None:
    """All pages and rows are there, each once."""
    for name in ("pages", "items", "pages_fetched"):
        assert report[name] == pages, report
    for name in ("missing", "duplicated", "wrong", "unknown", "broken", "never_fetched"):
        assert report[name] == 0, report


@pytest.fixture
def frontier(redis_server: RedisServer) -> str:
    """The URL of an empty one."""
    return f"{redis_server.url}?prefix=f{next(NUMBERS)}"


@pytest.fixture
def table(postgres: PostgresServer) -> Iterator[Table]:
    """An empty one for rows."""
    name = f"rows{next(NUMBERS)}"
    yield Table(postgres, name)
    with postgres.connect() as db:
        db.execute(f"DROP TABLE IF EXISTS {name}")


class Table(NamedTuple):
    """One of PostgreSQL, as a store."""

    server: PostgresServer
    name: str

    @property
    def url(self) -> str:
        return f"{self.server.url}?table={self.name}"

    def rows(self) -> list[dict[str, Any]]:
        """All that is in it."""
        with self.server.connect() as db, db.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(f"SELECT id, title, price, url FROM {self.name}").fetchall()
