"""Metrics of Celery workers: `celery worker --metrics-port N`. Each process of the pool serves its own.

The parent decides where, before it has children; these, forked or spawned, read it from the environment.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack

import click
from celery import Celery

from shoal.celery.office import offices
from shoal.errors import ConfigError
from shoal.exporter import exporting
from shoal.metrics import Address, Family, process_families, render

VARIABLE = "SHOAL_METRICS"

OPTIONS = (
    click.Option(
        ["--metrics-port"],
        type=click.IntRange(0, 65_535),
        help="Serve metrics for Prometheus at http://127.0.0.1:N/metrics: the pool's first process at N, the"
        " others at the ports behind it; 0: any free ones.",
    ),
    click.Option(["--metrics-host"], default="127.0.0.1", help="Serve metrics there instead."),
)

log = logging.getLogger("shoal.celery")
_serving = ExitStack()


def announce(port: int | None, host: str) -> None:
    """In the worker's parent, before it has children."""
    os.environ.pop(VARIABLE, None)
    if port is not None:
        os.environ[VARIABLE] = f"{port} {host}"


def serve(app: Celery, number: int) -> None:
    """Serve those of this process from now on, if that is wanted; a port that is taken is told."""
    port, _, host = os.environ.get(VARIABLE, "").partition(" ")
    if not port:
        return
    try:
        _serving.enter_context(exporting(Address(int(port), host).of(number), lambda: _text(app)))
    except ConfigError as error:
        log.error("%s", error)


def stop() -> None:
    """Serve no more: the process ends."""
    _serving.close()


def _text(app: Celery) -> str:
    def families() -> Iterator[Family]:
        for office in offices(app).values():
            yield from process_families(office.name, office.meters(), office.job.open_frontier)

    return render(families())
