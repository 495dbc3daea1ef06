"""Being logged in: the crawl's own login, before the first request and whenever a page asks for it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal import guard
from shoal.errors import LoginFailed, ShoalError
from shoal.session import AsyncSession, Session
from shoal.threads import HandlerThreads

LEAST_S = 2.0  # between two logins: a scraper that takes all pages for those of strangers asks for many
_HERE = str(Path(__file__).parent)

log = logging.getLogger("shoal.login")


class Login:
    """One login at a time, for all pages of this process."""

    def __init__(
        self, handler: Callable[[Any], object], session: AsyncSession, threads: HandlerThreads
    ) -> None:
        """Used inside the event loop. handler: plain, and then run in a thread, or async."""
        self._handler = handler
        self._session = session
        self._threads = threads
        self._began_at = time.monotonic() - LEAST_S
        self._running: asyncio.Task[None] | None = None
        self.number = 1
        """Of the login that requests go with from now on."""

    async def ready(self) -> None:
        """Return when logged in. Raises LoginFailed, now and from now on, if that cannot be."""
        if self._running is None:
            self._running = asyncio.create_task(self._log_in())
        if self._running.done():
            self._running.result()
        else:
            await asyncio.shield(self._running)

    def over(self, number: int) -> None:
        """The login of this number is worth nothing any more; there may be another one already."""
        if number == self.number:
            self.number += 1
            self._running = None

    async def _log_in(self) -> None:
        await asyncio.sleep(self._began_at + LEAST_S - time.monotonic())
        self._began_at = time.monotonic()
        try:
            await guard.guarded(self._call())
        except Exception as error:
            own = guard.raised(error)
            raise LoginFailed(f"the login failed: {_words(own)}{_where(own)}") from own
        log.info("logged in")

    async def _call(self) -> None:
        if inspect.iscoroutinefunction(self._handler):
            await self._handler(self._session)
            return
        session = Session(self._session, asyncio.get_running_loop())
        await self._threads.run(lambda: self._handler(session))


def _words(error: BaseException) -> str:
    text = str(error) if isinstance(error, ShoalError) else ""
    return text or traceback.format_exception_only(error)[-1].strip()


def _where(error: BaseException) -> str:
    """The last line of the scraper on the way to it; not what it says, which may be a password."""
    frames = traceback.extract_tb(error.__traceback__)
    files = [frame.filename for frame in frames if not frame.filename.startswith((_HERE, "<"))]
    if not files:
        return ""
    last = [frame for frame in frames if frame.filename == files[0]][-1]
    return f" [{Path(last.filename).name}:{last.lineno}]"
