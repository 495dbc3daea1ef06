"""What the Celery tests share: brokers, users' projects, and workers as one starts them on a command line."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.celery.rabbit import RabbitServer
from tests.services import RedisServer, ServiceMissing
from tests.waiting import until

from shoal.celery.office import offices

NUMBERS = count()
HEADER = """\
from celery import Celery
import shoal.celery

app = Celery("scraper", broker={broker!r})
app.conf.worker_hijack_root_logger = False
PACE = shoal.celery.Pace(slice_s=3, drain_s=3, running_s=6, queued_s=6, tick_s=0.5, beat_s=0.5)
PLACE = dict(frontier={frontier!r}, store={store!r}, pace=PACE, allow_private=True)
"""
FOLLOW = """\
@shoal.celery.scraper(app, **PLACE, name="scrape", per_host=32)
def scrape(page):
    yield {"id": page.css("article::attr(data-id)").get(), "title": page.css("h1::text").get()}
    yield from page.links()
"""


class Running:
    """A `celery worker` with its children: a process group."""

    def __init__(self, project: Project, *options: str, environment: dict[str, str] | None = None) -> None:
        self.name = f"w{next(NUMBERS)}@here"
        self.log = project.folder / f"{self.name}.log"
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            project.name,
            "worker",
            "-n",
            self.name,
            "-l",
            "info",
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, "--without-mingle", "--without-gossip", *options],
                cwd=project.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join([str(project.folder), *sys.path])}
                | (environment or {}),
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        """What it has written so far."""
        return self.log.read_text(errors="replace")

    def children(self) -> list[int]:
        """The processes of its pool."""
        out = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.pid)], capture_output=True, text=True, check=False
        )
        return [int(pid) for pid in out.stdout.split()]

    def ready(self, seconds: float = 60.0) -> Running:
        until(
            lambda: " ready." in self.said() or self.process.poll() is not None, seconds, "the worker's start"
        )
        assert self.process.poll() is None, self.said()
        return self

    def stop(self, how: signal.Signals = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Tell it to end, and wait for that; returns the exit code."""
        self.process.send_signal(how)
        return self.process.wait(seconds)

    def end(self) -> None:
        """Leave nothing behind."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        print(f"--- {self.log.name}\n{self.said()[-20_000:]}")


class Project:
    """A user's module, in a folder, with its broker, frontier and rows."""

    def __init__(self, folder: Path, code: str, *, broker: str, frontier: str, store: str | None) -> None:
        self.folder, self.frontier = folder, frontier
        self.name = f"scraper_{next(NUMBERS)}"
        self.code = HEADER.format(broker=broker, frontier=frontier, store=store) + code
        (folder / f"{self.name}.py").write_text(self.code)
        self.rows = folder / "rows.jsonl"
        self._workers = ExitStack()
        self._module: ModuleType | None = None

    @property
    def module(self) -> Any:
        """The module, imported here as a producer would."""
        if self._module is None:
            sys.path.insert(0, str(self.folder))
            try:
                self._module = importlib.import_module(self.name)
            finally:
                sys.path.remove(str(self.folder))
        return self._module

    def worker(self, *options: str, **more: Any) -> Running:
        """Start a worker; it is not waited for."""
        worker = Running(self, *options, **more)
        self._workers.callback(worker.end)
        return worker

    @property
    def offices(self) -> list[Any]:
        """What shoal keeps of each crawl."""
        return [*offices(self.module.app).values()]

    @property
    def office(self) -> Any:
        """That of the only crawl."""
        (office,) = self.offices
        return office

    def stats(self) -> Any:
        return self.office.desk().frontier.stats()

    def slots(self) -> Any:
        return self.office.desk().crew().slots

    def finish(self, seconds: float = 90.0, *, most: int | None = None) -> None:
        """Wait until all crawls are finished and no ticket is out; at no time are more out than `most`."""
        desks = [office.desk() for office in self.offices]

        def finished() -> bool:
            slots = [slot for desk in desks for slot in desk.crew().slots]
            assert most is None or len(slots) <= most, slots
            return not slots and all(desk.frontier.stats().finished for desk in desks)

        until(finished, seconds, "the end of the crawl")

    def close(self) -> None:
        self._workers.close()
        if self._module is not None:
            self._module.app.close()
            for office in self.offices:
                office.desk().frontier.close()


class Brokers:
    """One server of each kind for all tests; those of Redis use a database each in turn."""

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._servers: dict[str, Any] = {}

    def server(self, kind: str) -> Any:
        if kind not in self._servers:
            made = RabbitServer() if kind == "rabbitmq" else RedisServer("--databases", "1000")
            self._servers[kind] = self._opened.enter_context(made)
        return self._servers[kind]

    def url(self, kind: str) -> str:
        """An empty place on it."""
        server = self.server(kind)
        if kind == "redis":
            return f"redis://127.0.0.1:{server.port}/{next(NUMBERS) % 1000}"
        return str(server.url)

    def close(self) -> None:
        self._opened.close()


@pytest.fixture(scope="session")
def brokers() -> Iterator[Brokers]:
    """The servers of this run."""
    made = Brokers()
    yield made
    made.close()


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest, brokers: Brokers) -> str:
    """The kind of broker: both, in turn."""
    try:
        brokers.server(request.param)
    except ServiceMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}, and CI must run every test")
        pytest.skip(str(missing))
    return str(request.param)


@pytest.fixture
def new_project(tmp_path: Path, brokers: Brokers) -> Iterator[Callable[..., Project]]:
    """Makes projects; each has a frontier of its own."""
    with ExitStack() as ended:

        def new(code: str = FOLLOW, *, broker: str = "redis", url: str = "", **more: str) -> Project:
            """broker: its kind; url: of another one."""
            code = f"app.conf.task_default_queue = 'queue{next(NUMBERS)}'\n{code}"
            place = {"broker": url or brokers.url(broker), "store": "rows.jsonl"} | more
            if "frontier" not in more:
                port = brokers.server("redis").port
                place["frontier"] = f"redis://127.0.0.1:{port}/0?prefix=t{next(NUMBERS)}"
            project = Project(tmp_path, code, **place)
            ended.callback(project.close)
            return project

        yield new
