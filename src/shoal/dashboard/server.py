"""The dashboard's HTTP: assets, JSON for the views, the stream of events, actions, metrics."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from itertools import chain
from math import inf
from typing import Annotated, TypeVar

import msgspec
from aiohttp import web

from shoal import metrics
from shoal.dashboard import views
from shoal.dashboard.actions import AnyAction
from shoal.dashboard.desk import Desk
from shoal.dashboard.guard import SECURITY_HEADERS, Guard
from shoal.dashboard.rows import Latest
from shoal.errors import ConfigError, ShoalError
from shoal.frontier import crawl_names
from shoal.frontier.history import MINUTES
from shoal.log import visible

EVENT_S = 1.0
NAMES_S = 60.0  # so much later new crawls may appear among the metrics
SAMPLE_S = 5.0
MOST_STREAMS = 64
MOST_ROWS = 50
FAILED_LOGIN_S = 0.5
MOST_BODY_BYTES = 4_000_000

_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Asked = TypeVar("Asked")

log = logging.getLogger("shoal.dashboard")


class Asset:
    """A file of the page, compressed beforehand."""

    def __init__(self, name: str, content: bytes) -> None:
        self.type = _TYPES[name.rpartition(".")[2]]
        self.etag = hashlib.sha256(content).hexdigest()[:16]
        self.content = content
        self.packed = gzip.compress(content, 9, mtime=0)

    def response(self, request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == f'"{self.etag}"':
            return web.Response(status=304)
        headers = {"ETag": f'"{self.etag}"', "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        packed = "gzip" in request.headers.get("Accept-Encoding", "")
        if packed:
            headers["Content-Encoding"] = "gzip"
        body = self.packed if packed else self.content
        return web.Response(body=body, content_type=self.type, charset="utf-8", headers=headers)


class Dashboard:
    """The application over one frontier."""

    def __init__(
        self, place: str, guard: Guard, *, crawls: tuple[str, ...] = (), latest: Latest | None = None
    ) -> None:
        """crawls: those that are shown, all if empty; latest: reads the rows of a store."""
        self._place = place
        self._guard = guard
        self._crawls = crawls
        self._latest = latest
        self._known: list[str] = []
        self._known_at = -inf
        self._desks: dict[str, Desk] = {}
        self._streams = 0
        self._over = asyncio.Event()
        folder = files("shoal.dashboard") / "web"
        self._assets = {each.name: Asset(each.name, each.read_bytes()) for each in folder.iterdir()}

    def application(self) -> web.Application:
        """What aiohttp serves."""
        app = web.Application(middlewares=[_as_answers, self._protect], client_max_size=MOST_BODY_BYTES)
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/login", self._login_page),
                web.post("/login", self._login),
                web.post("/logout", self._logout),
                web.get("/web/{name}", self._asset),
                web.get("/favicon.ico", self._icon),
                web.get("/metrics", self._metrics),
                web.get("/api/session", self._session),
                web.get("/api/overview", self._overview),
                web.get("/api/history", self._history),
                web.get("/api/hosts", self._hosts),
                web.get("/api/dead", self._dead),
                web.get("/api/skipped", self._skipped),
                web.get("/api/page", self._why),
                web.get("/api/items", self._items),
                web.get("/api/settings", self._settings),
                web.get("/api/events", self._events),
                web.post("/api/act", self._act),
            ]
        )
        app.cleanup_ctx.append(self._running)
        app.on_shutdown.append(self._end_streams)
        return app

    async def _running(self, app: web.Application) -> AsyncIterator[None]:
        sampling = asyncio.create_task(self._sample())
        yield
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        for desk in self._desks.values():
            await desk.close()

    async def _end_streams(self, app: web.Application) -> None:
        self._over.set()

    async def _sample(self) -> None:
        """Keep the charts of the last minutes going while nobody looks."""
        while True:
            for desk in list(self._desks.values()):
                with suppress(ShoalError):
                    await desk.pulse()
            await asyncio.sleep(SAMPLE_S)

    # --- who may -------------------------------------------------------------------------

    @web.middleware
    async def _protect(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        if not self._guard.knows_host(host):
            raise web.HTTPMisdirectedRequest(
                text="this dashboard is not served under that name: start it with --name NAME"
            )
        if request.method not in ("GET", "HEAD"):
            if not self._guard.is_own(request.headers.get("Origin"), host):
                raise web.HTTPForbidden(text="only pages of this dashboard may do that")
            if request.path != "/login" and not self._guard.knows_csrf(request.headers.get("X-Shoal-Csrf")):
                raise web.HTTPForbidden(text="the page is out of date: load it again")
        if not (request.path == "/login" or request.path.startswith("/web/")) and not self._admits(request):
            if request.path == "/":
                raise web.HTTPSeeOther("/login")
            raise web.HTTPUnauthorized(text="log in first", headers={"WWW-Authenticate": "Bearer"})
        return await handler(request)

    def _admits(self, request: web.Request) -> bool:
        cookie = request.cookies.get(self._cookie(request))
        return self._guard.admits(cookie, request.headers.get("Authorization"))

    def _cookie(self, request: web.Request) -> str:
        """Its name: browsers do not keep ports of a host apart."""
        return f"shoal_{request.url.port or 0}"

    async def _login_page(self, request: web.Request) -> web.Response:
        if self._admits(request):
            raise web.HTTPSeeOther("/")
        return self._assets["login.html"].response(request)

    async def _login(self, request: web.Request) -> web.StreamResponse:
        given = (await request.post()).get("token")
        if not isinstance(given, str) or not self._guard.is_token(given.strip()):
            log.warning("a login with a wrong token from %s", request.remote)
            await asyncio.sleep(FAILED_LOGIN_S)
            raise web.HTTPSeeOther("/login?wrong")
        answer = _elsewhere("/")
        answer.set_cookie(
            self._cookie(request),
            self._guard.cookie(),
            httponly=True,
            samesite="Strict",
            secure=request.secure,
            path="/",
        )
        return answer

    async def _logout(self, request: web.Request) -> web.Response:
        answer = web.json_response({"said": "logged out"})
        answer.del_cookie(self._cookie(request), path="/")
        return answer

    # --- the page ------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.Response:
        return self._assets["index.html"].response(request)

    async def _asset(self, request: web.Request) -> web.Response:
        asset = self._assets.get(request.match_info["name"])
        if asset is None:
            raise web.HTTPNotFound
        return asset.response(request)

    async def _icon(self, request: web.Request) -> web.Response:
        return self._assets["icon.svg"].response(request)

    # --- what the views show -------------------------------------------------------------

    async def _session(self, request: web.Request) -> web.Response:
        return _json(
            {"csrf": self._guard.csrf, "crawls": await self._names(), "login": self._guard.needs_token}
        )

    async def _names(self) -> list[str]:
        found = await asyncio.to_thread(crawl_names, self._place)
        self._known = [name for name in found if not self._crawls or name in self._crawls]
        self._known_at = time.monotonic()
        return self._known

    async def _desk(self, request: web.Request) -> Desk:
        name = request.query.get("crawl", "")
        if name not in self._desks:
            if name not in await self._names():
                raise web.HTTPNotFound(text=f"there is no crawl '{visible(name)}'")
            self._desks.setdefault(name, Desk(self._place, name))
        return self._desks[name]

    async def _overview(self, request: web.Request) -> web.Response:
        return _json(views.overview(await (await self._desk(request)).pulse()))

    async def _history(self, request: web.Request) -> web.Response:
        minutes = _asked(request, _Since).minutes
        return _json(await views.history(await self._desk(request), minutes))

    async def _hosts(self, request: web.Request) -> web.Response:
        return _json(await views.hosts(await self._desk(request), _asked(request, views.HostsAsked)))

    async def _dead(self, request: web.Request) -> web.Response:
        return _json(await views.ended(await self._desk(request), "dead", _asked(request, views.EndedAsked)))

    async def _skipped(self, request: web.Request) -> web.Response:
        asked = _asked(request, views.EndedAsked)
        return _json(await views.ended(await self._desk(request), "skipped", asked))

    async def _why(self, request: web.Request) -> web.Response:
        desk, url = await self._desk(request), request.query.get("url", "")
        return _json(await desk.slow.ask(lambda frontier: views.page(frontier, url)))

    async def _settings(self, request: web.Request) -> web.Response:
        return _json(await (await self._desk(request)).quick.ask(views.settings))

    async def _items(self, request: web.Request) -> web.Response:
        desk = await self._desk(request)
        if self._latest is not None:
            return _json(views.Items(await asyncio.to_thread(self._latest, desk.crawl, MOST_ROWS), ""))
        return _json(await desk.quick.ask(views.items))

    async def _metrics(self, request: web.Request) -> web.Response:
        found = []
        stale = time.monotonic() - self._known_at > NAMES_S  # Redis looks through all its keys for them
        for name in await self._names() if stale else self._known:
            desk = self._desks.setdefault(name, Desk(self._place, name))
            found.append(await desk.quick.ask(lambda frontier: list(metrics.frontier_families(frontier))))
        text = metrics.render(chain.from_iterable(found))
        return web.Response(text=text, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """How the crawl stands, each second, until the browser goes away."""
        desk = await self._desk(request)
        if self._streams >= MOST_STREAMS:
            raise web.HTTPServiceUnavailable(text="too many pages are open")
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"} | SECURITY_HEADERS)
        await stream.prepare(request)
        self._streams += 1
        try:
            while not self._over.is_set():
                await stream.write(await _event(desk))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), EVENT_S)
        except ConnectionError:
            pass
        finally:
            self._streams -= 1
        return stream

    async def _act(self, request: web.Request) -> web.Response:
        desk = await self._desk(request)
        try:
            action = msgspec.json.decode(await request.read(), type=AnyAction)
        except msgspec.DecodeError as error:
            raise ConfigError(f"this cannot be done: {error}") from None
        said = await desk.slow.ask(action.on)
        desk.forget_cached()
        log.info("%s of %s: %s", type(action).__name__.lower(), desk.crawl, said)
        return _json({"said": said})


class _Since(msgspec.Struct):
    minutes: Annotated[int, msgspec.Meta(ge=1, le=MINUTES)] = 60


async def _event(desk: Desk) -> bytes:
    try:
        return b"event: overview\ndata: %b\n\n" % _packed(views.overview(await desk.pulse()))
    except ShoalError as error:
        return b"event: trouble\ndata: %b\n\n" % _packed(str(error))


@web.middleware
async def _as_answers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors for people, and the headers that keep browsers from harm, on everything."""
    try:
        answer = await handler(request)
    except web.HTTPException as error:
        answer = (
            _elsewhere(error.headers["Location"])
            if isinstance(error, web.HTTPRedirection)
            else _said(error.status, error.text or "", error.headers.get("WWW-Authenticate"))
        )
    except ShoalError as error:
        answer = _said(400 if isinstance(error, ConfigError) else 503, str(error))
    except Exception:
        log.exception("a request failed")
        answer = _said(500, "the dashboard failed: its log says more")
    if not answer.prepared:
        for name, value in SECURITY_HEADERS.items():
            answer.headers.setdefault(name, value)
    return answer


def _elsewhere(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path})


def _said(status: int, text: str, challenge: str | None = None) -> web.Response:
    answer = _json({"error": text}, status)
    if challenge:
        answer.headers["WWW-Authenticate"] = challenge
    return answer


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=_packed(value), status=status, content_type="application/json")


def _packed(value: object) -> bytes:
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:  # half a character, as JSON of strangers may have it
        return json.dumps(msgspec.to_builtins(value, enc_hook=str)).encode()


def _asked(request: web.Request, kind: type[Asked]) -> Asked:
    """The query of a request. Raises ConfigError if it asks for what there is not."""
    try:
        return msgspec.convert(dict(request.query), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"this cannot be shown: {error}") from None


@asynccontextmanager
async def serving(dashboard: Dashboard, host: str, port: int) -> AsyncIterator[str]:
    """Serve it meanwhile; yields its URL. Raises ConfigError if the address cannot be had."""
    runner = web.AppRunner(dashboard.application(), access_log=None, shutdown_timeout=2)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"the dashboard cannot be served at {host}:{port}"
                f" ({getattr(error, 'strerror', None) or error}): choose another --host or --port"
            ) from error
        address = runner.addresses[0]
        name = f"[{host}]" if ":" in host else host
        yield f"http://{name}:{address[1]}/"
    finally:
        await runner.cleanup()


def serve(dashboard: Callable[[], Dashboard], host: str, port: int, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C; `ready` is told the URL."""

    async def run() -> None:
        async with serving(dashboard(), host, port) as url:
            ready(url)
            await asyncio.Event().wait()

    asyncio.run(run())
