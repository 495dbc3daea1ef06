"""The shop on a socket: a few lines of aiohttp.web around `shoal.shop.pages.answer`."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import Future
from typing import Self

from aiohttp import web

from shoal.shop.pages import answer

PORT = 8765
"""Where `python -m shoal.shop` serves."""


def application(latency_s: float = 0.0) -> web.Application:
    """Make the shop; each answer takes `latency_s` longer than it would on this machine."""
    visits: Counter[str] = Counter()

    async def handle(request: web.Request) -> web.Response:
        visits[request.path_qs] += 1
        reply = answer(request.rel_url.raw_path, request.query.get("page", ""), visits[request.path_qs])
        await asyncio.sleep(latency_s + reply.delay_s)
        return web.Response(
            text=reply.body,
            status=reply.status,
            content_type=reply.content_type,
            headers={"Location": reply.location} if reply.location else None,
        )

    app = web.Application()
    app.router.add_get("/{path:.*}", handle)
    return app


def serve(port: int = PORT, latency_s: float = 0.1) -> None:
    """Serve the shop on 127.0.0.1 until Ctrl-C."""
    web.run_app(application(latency_s), host="127.0.0.1", port=port, access_log=None)


class Server:
    """An application on a free port of loopback, served by a thread of its own while the context is open."""

    url: str
    """The start page, once the context is open."""

    def __init__(self, app: web.Application, addresses: tuple[str, ...] = ("127.0.0.1",)) -> None:
        self._app = app
        self._addresses = addresses

    def __enter__(self) -> Self:
        self._started: Future[int] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self.port = self._started.result()
        self.url = f"http://{self._addresses[0]}:{self.port}/"
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            self._started.set_result(await self._listen(runner))
            await self._stop.wait()
        except OSError as problem:
            self._started.set_exception(problem)
        finally:
            await runner.cleanup()

    async def _listen(self, runner: web.AppRunner) -> int:
        """Listen on all addresses at one port, and return it."""
        port = 0
        for address in self._addresses:
            await web.TCPSite(runner, address, port).start()
            port = runner.addresses[0][1]
        return port
