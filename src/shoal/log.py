"""Logging: lines for people, or one JSON object a line. Set up once, by the command line."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_CONTROL = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160))}


def visible(text: str) -> str:
    """The text with its control characters written out, so that no page can forge lines or colours."""
    return text.translate(_CONTROL)


class PeopleFormatter(logging.Formatter):
    """`12:30:05 warning: text`."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{at} {record.levelname.lower()}: {visible(record.getMessage())}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object: time (seconds since 1970), level, logger, message, and the record's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever stderr is at the time: a live display puts itself in its place."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """There is nothing to set."""


def set_up(*, as_json: bool, quiet: bool, verbose: bool) -> None:
    """Send shoal's log to stderr: all but single pages; only errors if quiet; every page if verbose."""
    handler = _Stderr()
    handler.setFormatter(JsonFormatter() if as_json else PeopleFormatter())
    logger = logging.getLogger("shoal")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO)
