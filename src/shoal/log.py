"""Logging: lines for people, or one JSON object a line. Set up once, by the command line.

What pages say stays text: it can neither begin a line nor act on a terminal. Passwords in URLs are masked.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from functools import cache
from typing import TextIO

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_CREDENTIALS = re.compile(r"""(?<=://)[^/?#\s\\"]*@""")
_CONTROL_CODES = (
    *range(32),
    *range(127, 160),
    *(0x061C, 0x200E, 0x200F, 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),
)  # those that act on terminals, and those that turn the direction of text
_CONTROL = {code: repr(chr(code))[1:-1] for code in _CONTROL_CODES}
_IN_JSON = {code: f"\\u{code:04x}" for code in _CONTROL_CODES if code > 31}


def visible(text: str) -> str:
    """The text with its control characters written out, so that no page can forge lines or colours."""
    return text.translate(_CONTROL)


def visible_lines(text: str) -> str:
    """The same for text of several lines."""
    return "\n".join(map(visible, text.split("\n")))


def visible_json(text: str) -> str:
    """The same for JSON, which stays what it is."""
    return text.translate(_IN_JSON)


def masked(text: str) -> str:
    """The text with users and passwords of URLs masked, wherever they stand in it."""
    return _CREDENTIALS.sub("***@", text) if "@" in text else text


class PeopleFormatter(logging.Formatter):
    """`12:30:05 warning: text`."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        line = f"{at} {record.levelname.lower()}: {visible(masked(record.getMessage()))}"
        if record.exc_info:  # moved to the right, so that it cannot look like lines of the log
            lines = visible_lines(masked(self.formatException(record.exc_info)))
            line = f"{line}\n{lines}".replace("\n", "\n    ")
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object: time (seconds since 1970), level, logger, message, worker, and further fields.

    For logging configurations of one's own, too, as in `logging.config.dictConfig`.
    """

    def __init__(self, crawl: str | None = None) -> None:
        """crawl: of lines that do not say so themselves."""
        super().__init__()
        self._crawl = {} if crawl is None else {"crawl": crawl}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "worker": _worker(record.process),
            **self._crawl,
        }
        line |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return masked(json.dumps(line, default=str))


@cache
def _worker(pid: int | None) -> str:
    """As the frontier knows this process. pid: its own, so that a fork has another name."""
    from shoal.liveness import worker_name  # brings the frontier with it, which lines for people do not need

    return worker_name()


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to whatever stderr is at the time: a live display puts itself in its place."""

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        """There is nothing to set."""


def set_up(*, as_json: bool, quiet: bool, verbose: bool, crawl: str | None = None) -> None:
    """Send shoal's log to stderr: all but single pages; only errors if quiet; every page if verbose.

    crawl: what this process works on.
    """
    handler = _Stderr()
    handler.setFormatter(JsonFormatter(crawl) if as_json else PeopleFormatter())
    logger = logging.getLogger("shoal")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if verbose else logging.ERROR if quiet else logging.INFO)
