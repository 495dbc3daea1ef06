"""Drive workers on this machine: in this process, or in several.

One process works in the foreground while a thread shows the progress. Several are forked, watched and
replaced by a parent that does nothing else; they stop when it dies.
"""

from __future__ import annotations

import asyncio
import codecs
import gc
import logging
import multiprocessing
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import msgspec

from shoal.crawl import Crawl
from shoal.due import revisit_due
from shoal.errors import ConfigError, FrontierUnavailable, ShoalError, StoreUnavailable
from shoal.frontier import Frontier, open_frontier
from shoal.liveness import is_dead, reap_dead, worker_name
from shoal.meter import Meter
from shoal.metrics import Address, process_families, render
from shoal.model import SEEN_FIELDS, Stats
from shoal.moving import check_here
from shoal.place import shown
from shoal.store import made_store, open_archive, open_store, store_name
from shoal.store.base import Store
from shoal.traps import Rules
from shoal.worker import TROUBLE_S, Worker, load_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

WATCH_S = 0.25
MOST_BYTES = 65_536  # that a pipe holds
STOPS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130  # exit code of a process that was told to stop
FAILED = 3  # exit code of a child that has told why
NEVER_S = 1e10  # three centuries

SHARED = (
    *("scope", "allow", "deny", "max_depth", "max_pages", "max_pages_per_host", "max_queued"),
    *("per_host", "delay_s", "avoid_traps", *Rules.__struct_fields__, "duplicates"),
    *("adapt", "host_pause_s", "host_give_up"),
)
"""Settings in which the workers of a crawl should agree."""

T = TypeVar("T")
log = logging.getLogger("shoal.local")


class Job(msgspec.Struct, frozen=True):
    """What to run."""

    crawl: Crawl
    frontier: str
    """URL of the frontier."""
    outputs: tuple[str, ...] = ()
    """Where the items go, besides the stores of the crawl; without any, the frontier keeps them."""
    rows: bool = True
    """Whether there are items to keep at all."""
    fields: tuple[str, ...] = ()
    """The names of the items' fields, if they are known beforehand."""
    csv_safe: bool = False
    """Defuse formulas in CSV."""
    fixed: dict[str, object] = {}
    """What else has to be the same when the crawl is resumed, in the user's words."""
    processes: int = 1
    drain: bool = True
    """Return when the crawl is finished; otherwise wait for more work for ever."""
    fresh: bool = False
    """Forget what there is and start again."""
    metrics: Address | None = None
    """Where metrics are served; with several processes, by the first one, and by the others behind it."""
    otel: bool = False
    """Make an OpenTelemetry span of each page."""

    def open_frontier(self) -> Frontier:
        """One more connection to it."""
        return open_frontier(self.frontier, crawl=self.crawl.name, keep_items=not self.has_stores)

    @property
    def has_stores(self) -> bool:
        """Whether the items go elsewhere than into the frontier."""
        return bool(self.outputs or self.crawl.stores)

    def open_stores(self, worker: str = "") -> list[Store]:
        """The stores, not opened yet. worker: who will write, by default one of this process."""
        name, worker = self.crawl.name, worker or worker_name()
        seen = SEEN_FIELDS if self.fields and self.crawl.settings.revisit_s is not None else ()
        fields = (*self.fields, *seen)
        stores = [
            open_store(output, crawl=name, fields=fields, csv_safe=self.csv_safe, worker=worker)
            for output in self.outputs
        ]
        stores += [made_store(each, name) for each in self.crawl.stores]
        if self.crawl.settings.archive is not None:
            stores.append(open_archive(self.crawl.settings.archive, worker=worker))
        return stores


class Watch(Protocol):
    """Shows how the crawl is going."""

    def show(self, frontier: Frontier) -> None:
        """Called every quarter of a second, from one thread."""


def prepare(job: Job) -> Stats:
    """Make the crawl ready to be worked on: check everything, set the limits, add the seeds.

    Raises ConfigError, FrontierError, StoreError, and the two Unavailable ones.
    """
    with job.open_frontier() as frontier:
        if job.rows and not job.has_stores and not frontier.keeps_items:
            raise ConfigError("this frontier keeps no rows: say with -o where they go, such as rows.jsonl")
        if not job.fresh:
            check_here(frontier)
            before = frontier.describe()
            keep_revisits(job, before)
            _check_same(job, before)
            _tell_differences(job, before, frontier)
        with opened_stores(job, frontier, fresh=job.fresh):
            pass
        limits = job.crawl.limits()
        if limits.max_queued is None:  # then what producers have set holds on
            limits = msgspec.structs.replace(limits, max_queued=frontier.limits.max_queued)
        frontier.configure(limits)
        settings = job.crawl.public_settings()
        places = [shown(output) for output in job.outputs]
        frontier.describe({**_fixed(job), "outputs": places, "settings": settings})
        reap_dead(frontier)
        frontier.add(job.crawl.seeds())
        revisit_due(frontier, job.crawl, batches=None)
        return frontier.stats()


def apart(work: Callable[[], T]) -> T:
    """Do it in a process of its own, and return what it returns: for a parent that is going to fork.

    Libraries start threads, of which a fork would know nothing. Raises what it raises of ShoalErrors.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_tell, args=(work, theirs), name="shoal-begin")
    child.start()
    theirs.close()
    try:
        result, error = ours.recv()
    except EOFError:
        raise ShoalError("the crawl could not be begun; see the message above") from None
    finally:
        ours.close()
        child.join()
    if error is not None:
        raise error
    return cast("T", result)


def _tell(work: Callable[[], object], pipe: Connection) -> None:
    try:
        pipe.send((work(), None))
    except ShoalError as error:
        pipe.send((None, error))
    except KeyboardInterrupt:
        os._exit(INTERRUPTED)  # the parent was told, too


def _fixed(job: Job) -> dict[str, object]:
    """What must be the same whenever the crawl is resumed."""
    places = [*job.outputs, *map(store_name, job.crawl.stores)]
    output = ", ".join(map(shown, places)) or None
    archive = None if job.crawl.settings.archive is None else shown(job.crawl.settings.archive)
    revisits = True if job.crawl.settings.revisit_s is not None else None  # then more is kept of each page
    return {**job.fixed, **job.crawl.identity(), "output": output, "archive": archive, "revisit": revisits}


def keep_revisits(job: Job, description: Mapping[str, object]) -> None:
    """Without `--revisit` a crawl that once had it visits nothing again, but keeps what that takes."""
    if description.get("revisit") and job.crawl.settings.revisit_s is None:
        job.crawl.change(revisit_s=NEVER_S)


def _check_same(job: Job, before: Mapping[str, object]) -> None:
    if not before:
        return
    if job.crawl.settings.revisit_s is not None and not before.get("revisit"):
        raise ConfigError(
            f"the crawl '{job.crawl.name}' was started without --revisit, so too little is kept of its"
            " pages to visit them again: start it once more with --fresh and --revisit, or go on without"
        )
    for name, value in _fixed(job).items():
        if before.get(name) != value:
            raise ConfigError(
                f"the crawl '{job.crawl.name}' was started {_differs(name, before.get(name), value)}:"
                " give the same to resume it, --fresh to start again,"
                f" or another {_elsewhere(job)} to keep both"
            )


def _elsewhere(job: Job) -> str:
    """What to name for a frontier of its own."""
    return "--state FILE" if job.frontier.startswith("sqlite:") else "?prefix=NAME in --frontier"


def _tell_differences(job: Job, before: Mapping[str, object], frontier: Frontier) -> None:
    """Workers that are running know nothing of settings given only here: say so."""
    theirs = before.get("settings")
    ours = msgspec.json.decode(msgspec.json.encode(job.crawl.settings))  # as theirs: with lists, not tuples
    if not isinstance(theirs, Mapping) or not any(worker.alive for worker in frontier.workers()):
        return
    differing = [name for name in SHARED if theirs.get(name) != ours[name]]
    if differing:
        log.warning(
            "workers of the crawl '%s' are running with another %s: limits and delay are from now on those"
            " given here, for all; each worker keeps to its own scope",
            job.crawl.name,
            ", ".join(differing),
        )


def _differs(name: str, before: object, now: object) -> str:
    was, given = (msgspec.json.encode(value).decode() for value in (before, now))
    if before is None:
        return f"without {name}, not with {given}"
    return f"with {name} {was}, not {given if now is not None else 'without'}"


@contextmanager
def opened_stores(
    job: Job, frontier: Frontier, *, fresh: bool = False, worker: str = ""
) -> Iterator[list[Store]]:
    """The stores, ready to be written by `worker`; with `fresh`, they and the frontier are emptied first.

    What dead workers have left in them is put in order before, and after an end without an error.
    """
    with ExitStack() as opened:
        stores = [opened.enter_context(closing(store)) for store in job.open_stores(worker)]
        with ExitStack() as opening:
            positions = [
                opening.enter_context(store.open(committed=frontier.position, fresh=fresh))
                for store in stores
            ]
            if fresh:
                frontier.purge()
            frontier.commit((), positions=positions)
        _tidy(stores, frontier)
        yield stores
        _tidy(stores, frontier)


def _tidy(stores: Iterable[Store], frontier: Frontier) -> None:
    """Let the stores put in order what is nobody's any more; it waits if something is in the way."""

    def busy() -> Collection[str]:
        return [worker.name for worker in frontier.workers() if not is_dead(worker.name)]

    for store in stores:
        try:
            store.tidy(committed=frontier.position, busy=busy)
        except (FrontierUnavailable, StoreUnavailable) as error:
            log.warning("%s; %s is put in order next time", error, shown(store.place))


# --- work ---------------------------------------------------------------------------------


def run(job: Job, watch: Watch) -> bool:
    """Work until the crawl is finished, or until SIGINT or SIGTERM: returns whether it was stopped.

    Raises FrontierError and StoreError when frontier or store cannot be used any more.
    """
    if job.processes > 1:
        return _Parent(job, watch).run()
    with _watching(job, watch):
        return _work(job, parent=None)


def look_back(job: Job, look: Callable[[Frontier], T], *, patient: bool) -> T:
    """Look at the frontier once more when all is over. patient: wait until that can be done."""
    while True:
        try:
            with job.open_frontier() as frontier:
                return look(frontier)
        except FrontierUnavailable as error:
            if not patient:
                raise
            log.error("%s; trying again every %g s", error, TROUBLE_S)
            time.sleep(TROUBLE_S)


def _work(job: Job, parent: int | None, number: int = 0) -> bool:
    """Work in this process; returns whether it was stopped.

    parent: a pipe that closes when it dies. number: which of its children this is.
    """
    with (
        _metering(job) as meter,
        _exporting(job, meter, number),
        job.open_frontier() as frontier,
        opened_stores(job, frontier) as stores,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        gc.freeze()  # what was imported stays: the collector need not look at it again and again
        stopped = runner.run(_work_until_stopped(job, frontier, stores, parent, meter))
    gc.collect()  # upa_url complains on stderr about URLs that are left in cycles when the process ends
    return stopped


@contextmanager
def _metering(job: Job) -> Iterator[Meter]:
    """What counts in this process."""
    if not job.otel:
        yield Meter()
        return
    from shoal.otel import SpanMeter, tracing  # it needs an extra

    with tracing() as tracer:
        yield SpanMeter(job.crawl.name, tracer)


def _exporting(job: Job, meter: Meter, number: int) -> AbstractContextManager[object]:
    """Serve the metrics of this process meanwhile, if that is wanted."""
    if job.metrics is None:
        return nullcontext()
    from shoal.exporter import exporting  # it takes 10 ms, and few want it

    def text() -> str:
        return render(process_families(job.crawl.name, [meter], job.open_frontier))

    return exporting(job.metrics.of(number), text)


async def _work_until_stopped(
    job: Job, frontier: Frontier, stores: Sequence[Store], parent: int | None, meter: Meter
) -> bool:
    load = load_of(job.crawl, meter)
    worker = Worker(job.crawl, frontier, stores, name=worker_name(), drain=job.drain, load=load)
    loop = asyncio.get_running_loop()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        if stopped:
            os._exit(INTERRUPTED)  # asked twice: do not wait for anything; nothing is lost
        stopped = True
        worker.stop()

    def orphaned(lifeline: int) -> None:
        loop.remove_reader(lifeline)  # which would tell it again and again
        stop()

    loop.add_signal_handler(signal.SIGTERM, stop)
    if parent is None:
        loop.add_signal_handler(signal.SIGINT, stop)
    else:  # which passes SIGINT on, as SIGTERM
        loop.add_reader(parent, orphaned, parent)
    await worker.run()
    return stopped


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes event loops: the fastest kind that there is."""
    try:
        import uvloop
    except ImportError:  # not made for Windows
        return asyncio.new_event_loop
    return uvloop.new_event_loop


@contextmanager
def _watching(job: Job, watch: Watch) -> Iterator[None]:
    """Let `watch` look at the frontier, from a thread of its own with its own connection."""
    end = threading.Event()

    def look() -> None:
        ended = False
        while not ended:
            with suppress(ShoalError), job.open_frontier() as frontier:  # the worker tells about that
                while not end.wait(WATCH_S):
                    watch.show(frontier)
                watch.show(frontier)
            ended = end.wait(WATCH_S)

    thread = threading.Thread(target=look, name="shoal-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


class _Parent:
    """Forks workers, replaces those that crash, and shows the progress; all in one thread.

    It holds no connection to the frontier while it forks: SQLite's do not survive that. On a terminal, it
    shows what its children write to stderr, so that this does not come in between the display.
    """

    def __init__(self, job: Job, watch: Watch) -> None:
        self._job = job
        self._watch = watch
        self._context = multiprocessing.get_context("fork")
        self._lifeline, self._held_end = os.pipe()
        self._said, self._say = os.pipe()
        os.set_blocking(self._said, False)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._children: dict[int, BaseProcess] = {}  # by their numbers
        self._halted: set[BaseProcess] = set()  # that has been told
        self._ending = False  # one has ended because the crawl is finished
        self._stopped = False

    def run(self) -> bool:
        """Returns whether the children were stopped. Raises ShoalError if one cannot go on."""
        for stop in STOPS:
            signal.signal(stop, self._stop)
        for number in range(self._job.processes):
            self._fork(number)
        while self._children:
            time.sleep(WATCH_S)
            with suppress(FrontierUnavailable), self._job.open_frontier() as frontier:
                self._watch.show(frontier)
            self._pass_on()
            self._replace_the_dead()
            self._tell_of_the_halted()
        self._pass_on()
        return self._stopped

    def _pass_on(self) -> None:
        """Show what the children have written."""
        with suppress(BlockingIOError):
            while text := os.read(self._said, MOST_BYTES):
                sys.stderr.write(self._decode(text))

    def _fork(self, number: int) -> None:
        """Signals wait meanwhile, so that none comes to a child that is not listed or has our handlers."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        if not self._stopped:
            child = self._context.Process(target=self._child, args=(number,), name="shoal-worker")
            child.start()
            self._children[number] = child
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)

    def _child(self, number: int) -> None:
        os.close(self._held_end)
        os.close(self._said)
        if sys.stderr.isatty():
            sys.stderr = os.fdopen(self._say, "w", buffering=1)  # which is not ours to draw on
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent passes it on, as SIGTERM
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        try:
            self._work_through_trouble(number)
        except ShoalError as error:
            log.error("%s", error)
            raise SystemExit(FAILED) from None

    def _work_through_trouble(self, number: int) -> None:
        """Work; if a full disk or the like keeps it from starting, try again, unless the parent is gone."""
        orphaned: list[int] = []
        while not orphaned:
            try:
                _work(self._job, parent=self._lifeline, number=number)
                return
            except (FrontierUnavailable, StoreUnavailable) as error:
                log.error("%s; nothing is lost, trying again every %g s", error, TROUBLE_S)
                orphaned, _, _ = select.select([self._lifeline], [], [], TROUBLE_S)

    def _replace_the_dead(self) -> None:
        for number in [number for number, child in self._children.items() if not child.is_alive()]:
            child = self._children.pop(number)
            self._ending = self._ending or child.exitcode == 0
            if child.exitcode == FAILED:
                for other in self._children.values():
                    other.terminate()
                self._pass_on()
                raise ShoalError("a worker failed; see its message above")
            if child.exitcode and not self._stopped:
                log.warning("worker %s died (exit code %s); starting another one", child.pid, child.exitcode)
                with suppress(FrontierUnavailable), self._job.open_frontier() as frontier:
                    reap_dead(frontier)
                self._fork(number)

    def _tell_of_the_halted(self) -> None:
        """One that somebody has stopped (SIGSTOP) would be waited for without end; it has nothing to lose."""
        halted = {number: child for number, child in self._children.items() if _is_halted(child)}
        for child in halted.values():
            if child not in self._halted:
                log.warning("worker %s is stopped: `kill -CONT %s` lets it go on", child.pid, child.pid)
        self._halted.update(halted.values())
        if (self._ending or self._stopped) and len(halted) == len(self._children):
            for number, child in halted.items():
                log.warning("worker %s was killed: it was still stopped when all others had ended", child.pid)
                child.kill()
                child.join()
                del self._children[number]

    def _stop(self, *_: object) -> None:
        for child in self._children.values():
            child.kill() if self._stopped else child.terminate()
        if self._stopped:
            os._exit(INTERRUPTED)
        self._stopped = True


def _is_halted(child: BaseProcess) -> bool:
    """Whether a child of ours is stopped just now, and not ended."""
    assert child.pid is not None
    try:
        return os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # it has ended, and was waited for
        return False
