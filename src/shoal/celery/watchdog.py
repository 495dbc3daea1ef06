"""What runs in the parent of a worker: it says how many slices there is room for, and makes up for lost ones.

Everything here is quick and opens no connection for longer than a moment, since the parent forks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

import click
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from billiard.process import current_process
from celery import Celery, bootsteps, signals
from celery.worker.control import inspect_command
from celery.worker.state import reserved_requests

from shoal.celery import drain, metrics, slices, spans
from shoal.celery.office import SLICE, Office, offices
from shoal.due import revisit_due
from shoal.errors import FrontierUnavailable, ShoalError, StoreUnavailable
from shoal.frontier.tickets import Ticket
from shoal.liveness import worker_name
from shoal.local import prepare
from shoal.slice import longest_s

GREEN = ("gevent", "eventlet")
SETTINGS = {
    "worker_prefetch_multiplier": 1,  # with more, a worker that comes later finds all tickets taken
    "broker_connection_retry_on_startup": True,
}
REDIS_BROKER = {"socket_timeout": 30, "socket_connect_timeout": 5, "socket_keepalive": True}
"""Without these a connection that is gone but not closed is never noticed."""

log = logging.getLogger("shoal.celery")
_installed: WeakSet[Celery] = WeakSet()


def install(app: Celery) -> None:
    """Let every worker of this app have one."""
    _installed.add(app)
    app.steps["worker"].add(Watchdog)
    app.user_options["worker"].update((*metrics.OPTIONS, spans.OPTION))
    for signal, receiver in _RECEIVERS:
        signal.connect(receiver, weak=False)
    inspect_command()(shoal)


class Watchdog(bootsteps.StartStopStep):  # type: ignore[misc]
    """Ticks for all crawls of the app, every few seconds."""

    requires = ("celery.worker.components:Timer", "celery.worker.components:Pool")

    def __init__(
        self,
        worker: Any,
        metrics_port: int | None = None,
        metrics_host: str = "",
        otel: bool = False,
        **options: Any,
    ) -> None:
        pool = worker.pool_cls.__module__.rpartition(".")[2]
        if pool in GREEN:
            raise click.UsageError(
                f"shoal does not work in the {pool} pool: use --pool=prefork, threads or solo; each process"
                " fetches many pages at once anyway"
            )
        super().__init__(worker, **options)
        self._ticks: list[Any] = []
        self._unprepared = [*offices(worker.app).values()]
        drain.make()
        metrics.announce(metrics_port, metrics_host)
        spans.announce(otel)
        worker.shoal = self
        _tell_limits(worker)
        _drain_before_soft_shutdown(worker)

    def start(self, worker: Any) -> None:
        """The pool has started, the consumer has not."""
        self._prepare()
        if not worker.pool_cls.__module__.endswith(".prefork"):
            metrics.serve(worker.app, 0)  # slices run in this process
            spans.begin()
        for office in offices(worker.app).values():
            self._ticks.append(
                worker.timer.call_repeatedly(office.pace.tick_s, self.tick, args=(worker, office))
            )

    def stop(self, worker: Any) -> None:
        """The worker ends: nobody is to wait for its slices."""
        for tick in self._ticks:
            tick.cancel()
        for office in offices(worker.app).values():
            _safely(office, lambda desk: desk.tick(worker_name(worker.hostname), 0))
        drain.remove()

    terminate = stop  # after a cold shutdown

    def tick(self, worker: Any, office: Office) -> None:
        """Never raises."""
        room = capacity(worker, office.queue_name)
        if room is None:
            return
        if office in self._unprepared:
            self._prepare()

        def tick(desk: Any) -> None:
            revisit_due(desk.frontier, office.job.crawl)
            desk.tick(worker_name(worker.hostname), 0 if drain.is_set() else room)
            for slot in desk.crew().slots:
                slices.progress[office.name, slot.ticket.slot] = {"state": slot.state, "pages": slot.pages}

        _safely(office, tick)

    def _prepare(self) -> None:
        """Limits, seeds, a store that can be written. What cannot work ends the worker, what may passes."""
        for office in [*self._unprepared]:
            try:
                prepare(office.job)
            except (FrontierUnavailable, StoreUnavailable) as error:
                log.warning("%s; trying again", error)
            except ShoalError as error:
                log.critical("%s", error)
                raise SystemExit(2) from error
            else:
                self._unprepared.remove(office)


def capacity(worker: Any, queue: str) -> int | None:
    """How many slices the worker may run at once; None: not known just now, while there is no broker."""
    consumer = getattr(worker.consumer, "task_consumer", None)
    if consumer is None:
        return None
    if not consumer.consuming_from(queue):
        return 0
    if worker.pool_cls.__module__.endswith(".solo"):
        return 1
    return int(worker.max_concurrency if worker.autoscale else worker.pool.num_processes)


def _tell_limits(worker: Any) -> None:
    """Those of its command line hold for the app, as slices see it; and say what they leave of the time."""
    conf = worker.app.conf
    conf.task_time_limit, conf.task_soft_time_limit = worker.time_limit, worker.soft_time_limit
    for office in offices(worker.app).values():
        usual_s = longest_s(*slices.times(office, None, None))
        left_s = longest_s(*slices.times(office, worker.time_limit, worker.soft_time_limit))
        if left_s < usual_s:
            log.warning(
                "time limits: a page of the crawl '%s' may take %.1f s and not %.1f s, its handler included;"
                " what takes longer fails",
                office.name,
                left_s,
                usual_s,
            )


def _safely(office: Office, work: Callable[[Any], None]) -> None:
    try:
        with office.watch() as desk:
            work(desk)
    except ShoalError as error:
        log.warning("%s", error)
    except Exception:
        log.exception("the watchdog itself failed")


def _drain_before_soft_shutdown(worker: Any) -> None:
    """The signal `worker_shutting_down` comes only after Celery's soft shutdown period."""
    wait = getattr(worker, "wait_for_soft_shutdown", None)
    if wait is not None:

        def drain_and_wait() -> Any:
            drain.set_()
            return wait()

        worker.wait_for_soft_shutdown = drain_and_wait


def _let_go_of_lost_connections(consumer: Any) -> None:
    """Celery 5.7 with Redis ends when it uses what is left of a connection that is lost (AttributeError).

    It would put unacknowledged messages back over it, and acknowledge them later. Redis keeps them, and
    delivers them again after the visibility timeout; tickets are worth nothing by then.
    """
    tell = consumer.on_connection_error_after_connected

    def lost(error: Exception) -> None:
        channel: Any = getattr(consumer.task_consumer, "channel", None)
        kept = hasattr(channel, "do_restore")  # as by Redis
        if kept:
            channel.do_restore = False
        tell(error)
        if kept:
            for request in [*reserved_requests]:
                request.acknowledged = True

    consumer.on_connection_error_after_connected = lost


# --- what Celery tells -----------------------------------------------------------------------


def _configure(instance: Any = None, conf: Any = None, **_: Any) -> None:
    """Set what the user has not set."""
    if instance is None or instance.app not in _installed:
        return
    for name, value in SETTINGS.items():
        if _is_default(conf, name):
            conf[name] = value
    if str(conf.broker_url or conf.broker_read_url or "").startswith(("redis", "sentinel")):
        conf.broker_transport_options = {**REDIS_BROKER, **(conf.broker_transport_options or {})}


def _is_default(conf: Any, name: str) -> bool:
    return not any(name in each for each in conf.maps[:-1])


def _ready(sender: Any = None, **_: Any) -> None:
    """`sender` is the consumer."""
    worker = getattr(sender, "controller", None)
    watchdog = getattr(worker, "shoal", None)
    if worker is not None and watchdog is not None:
        _let_go_of_lost_connections(sender)
        for office in offices(worker.app).values():
            watchdog.tick(worker, office)


def _drain(**_: Any) -> None:
    drain.set_()


def _failed(sender: Any = None, exception: Any = None, args: Any = None, **_: Any) -> None:
    """In the parent: the process of a slice is no more. A slice that fails otherwise sees to itself."""
    if isinstance(exception, WorkerLostError | TimeLimitExceeded):
        _lost(sender, args)


def _revoked(sender: Any = None, request: Any = None, terminated: bool = False, **_: Any) -> None:
    if terminated:
        _lost(sender, getattr(request, "args", None))


def _lost(task: Any, args: Any) -> None:
    if getattr(task, "name", "") == SLICE and args and len(args) == 3:
        crawl, slot, generation = args
        office = offices(task.app).get(crawl)
        if office is not None:
            _safely(office, lambda desk: desk.fail(Ticket(slot, generation), lost=True))


def _child_begins(**_: Any) -> None:
    """A process of a pool that forks or spawns."""
    number = getattr(current_process(), "index", 0)
    for app in [*_installed]:
        metrics.serve(app, number)
    spans.begin()


def _close(**_: Any) -> None:
    """A process that has run slices ends."""
    metrics.stop()
    for app in [*_installed]:
        for office in offices(app).values():
            try:
                office.close_benches()
            except Exception:
                log.exception("closing what slices have used failed")
    spans.stop()


def shoal(state: Any) -> dict[str, Any]:
    """Tickets, nodes and counters of the crawls: `celery inspect shoal`."""
    found: dict[str, Any] = {}
    for office in offices(state.app).values():

        def look(desk: Any, name: str = office.name) -> None:
            crew, stats = desk.crew(), desk.frontier.stats()
            found[name] = {
                "slots": [[each.ticket.slot, each.state, each.owner, each.pages] for each in crew.slots],
                "nodes": dict(crew.nodes),
                "queued": stats.queued,
                "leased": stats.leased,
                "done": stats.done,
                "dead": stats.dead,
            }

        _safely(office, look)
    return found


_RECEIVERS = (
    (signals.celeryd_init, _configure),
    (signals.worker_ready, _ready),
    (signals.worker_shutting_down, _drain),
    (signals.task_failure, _failed),
    (signals.task_revoked, _revoked),
    (signals.worker_process_init, _child_begins),
    (signals.worker_process_shutdown, _close),
    (signals.worker_shutdown, _close),
)
