"""OpenTelemetry spans of Celery workers: `celery worker --otel`. Each process of the pool sends its own.

The parent decides whether, before it has children; what sends them is made in the children: it has a thread,
of which a fork would know nothing.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from shoal.errors import ConfigError
from shoal.meter import Meter

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

VARIABLE = "SHOAL_OTEL"

OPTION = click.Option(
    ["--otel"], is_flag=True, help="Send an OpenTelemetry span for each page, as the OTEL_* variables say."
)

_sending = ExitStack()
_tracer: Tracer | None = None


def announce(wanted: bool) -> None:
    """In the worker's parent, before it has children. Raises UsageError if the library is not there."""
    os.environ.pop(VARIABLE, None)
    if wanted:
        try:
            import shoal.otel  # noqa: F401 - it needs an extra
        except ConfigError as error:
            raise click.UsageError(str(error)) from error
        os.environ[VARIABLE] = "1"


def begin() -> None:
    """Be ready to send those of this process, if that is wanted."""
    global _tracer
    if VARIABLE in os.environ:
        from shoal.otel import tracing

        _tracer = _sending.enter_context(tracing())


def meter(crawl: str) -> Meter:
    """What counts the pages of a crawl in this process, and makes spans of them if that is wanted."""
    if _tracer is None:
        return Meter()
    from shoal.otel import SpanMeter

    return SpanMeter(crawl, _tracer)


def stop() -> None:
    """Send what there is; the process ends."""
    _sending.close()
