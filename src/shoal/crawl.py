"""What a user declares: where to start, which links belong, what to do with each page, how fast.

crawl = shoal.Crawl("books", seeds=["https://books.example/"])

@crawl.page("/catalogue/*")
def book(page):
yield {"title": page.css("h1::text").get()}
yield from page.links("a.next")
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args, overload

import msgspec

from shoal.errors import ConfigError
from shoal.model import SITEMAP, Item, Limits, Link, Politeness
from shoal.parse import Field, Page, extract
from shoal.policy import CAUSES, Retries, is_cause
from shoal.scope import Glob, Mode, Scope, compile_glob
from shoal.traps import Rules
from shoal.urls import (
    DEFAULT,
    MAX_URL_LENGTH,
    NORMALIZER_VERSION,
    Spelling,
    has_credentials,
    normalize,
    without_credentials,
)

if TYPE_CHECKING:
    from shoal.session import AsyncSession, Session

__version__ = "0.1.0"

Handler: TypeAlias = Callable[[Page], object]
"""Takes a page; returns or yields items and links, or nothing. May be async."""

Duplicates: TypeAlias = Literal["keep", "body", "text"]
"""Which pages are taken for the same: none, those with the same bytes, or those that read the same."""
LoginHandler: TypeAlias = "Callable[[Session], object] | Callable[[AsyncSession], Awaitable[object]]"
"""Takes a session, and uses it to log in. May be async."""

AnyHandler = TypeVar("AnyHandler", bound=Handler)
AnyLogin = TypeVar(
    "AnyLogin", bound="Callable[[Session], object] | Callable[[AsyncSession], Awaitable[object]]"
)

READABLE = (
    "text/*",
    "application/xhtml+xml",
    "application/xml",
    "application/json",
    "application/*+xml",
    "application/*+json",
)


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set about a crawl, with its default."""

    seeds: tuple[str, ...] = ()
    """URLs to start from."""
    scope: Mode = "host"
    """Follow links to the seeds' hosts, to their registrable domains, or to any host."""
    allow: tuple[str, ...] = ()
    """If given, only URLs that match one of these globs belong; a glob like /news/* is about the path."""
    deny: tuple[str, ...] = ()
    """URLs that match one of these globs do not belong."""
    external: bool = False
    """Fetch links that lead out of the scope too, to see whether they are dead; these pages are not read."""
    max_depth: int | None = None
    """Follow links at most this many steps from a seed."""
    max_pages: int | None = None
    """Get at most this many pages; those that fail or are skipped do not count."""
    max_pages_per_host: int | None = None
    """Of one host."""
    max_queued: int | None = None
    """Links that pages have beyond so many queued ones go to the overflow, and return when there is room."""
    sitemaps: tuple[str, ...] = ()
    """URLs of sitemaps or feeds to start from: the pages that they list count as seeds do."""
    robots_sitemaps: bool = False
    """Read the sitemaps that the robots.txt of each host names."""
    sitemap_priority: bool = False
    """Pages that a sitemap lists get the priority that it gives them: 0.0 is 0, 0.5 is 5, 1.0 is 9."""
    revisit_s: float | None = None
    """Visit finished pages again after so long; None: never. Rows say when they were seen and changed."""
    concurrency: int = 32
    """Fetches at once in one process."""
    per_host: int = 8
    """Fetches of one host at once, over all processes."""
    delay_s: float = 0.0
    """Least time between the starts of two fetches of a host; robots.txt can only raise it."""
    adapt: bool = True
    """Ask less of hosts that are slow, busy or failing: fewer fetches at once, and further apart."""
    politeness: Politeness = "host"
    """Whether delays and limits are about each host (with its port), a whole registrable domain, or all names
    that lead to one IP address."""
    host_pause_s: float = 5.0
    """The first pause of a host that is down, or busy without saying for how long; it doubles each time."""
    host_give_up: int = 8
    """After so many troubles in a row all queued pages of a host become dead letters; 0: never."""
    retries: int = 3
    """How often a failed fetch is tried again."""
    retries_by: Mapping[str, int] = {}
    """The same for single causes, such as {"dns": 1, "404": 2, "5xx": 0}."""
    retry_delay_s: float = 1.0
    """The first retry comes after up to so long, the next one after up to twice that, and so on."""
    user_agent: str = f"shoal/{__version__}"
    """What to call oneself; its first word is looked up in robots.txt."""
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with each request."""
    auth: dict[str, str] = {}
    """Credentials by host (HOST, HOST:PORT, https://HOST, *.HOST): USER:PASSWORD or "bearer TOKEN"; $NAME is
    a variable of the environment. They are sent to that host alone."""
    host_headers: dict[str, dict[str, str]] = {}
    """Headers by host, sent to that host alone."""
    obey_robots: bool = True
    """Obey robots.txt (RFC 9309) and its Crawl-delay."""
    max_crawl_delay_s: float = 60.0
    """A robots.txt that asks for a longer Crawl-delay gets this one."""
    obey_nofollow: bool = False
    """Ignore links marked rel=nofollow, and all links of pages marked so."""
    obey_noindex: bool = False
    """Store no rows of pages whose meta robots or X-Robots-Tag says noindex."""
    obey_canonical: bool = False
    """Leave a page that names another one as its rel=canonical unread, and follow that one instead."""
    follow_iframes: bool = False
    """Follow the addresses of frames too."""
    sort_query: bool = False
    """Take URLs that differ only in the order of query parameters for one."""
    drop_params: tuple[str, ...] = ()
    """Query parameters (globs) to drop from URLs, such as utm_*."""
    drop_sessions: bool = False
    """Drop session ids from URLs: PHPSESSID, ;jsessionid= and the like."""
    avoid_traps: bool = True
    """Cut the links that the trap rules below name (see shoal.traps); None leaves one out."""
    max_url_length: int | None = Rules().max_url_length
    """Cut links that are longer."""
    max_repeats: int | None = Rules().max_repeats
    """Cut links whose path has the same segments so many times in a row, or one of them more often."""
    years_ahead: int | None = Rules().years_ahead
    """Cut links to pages of calendars about a later year than so many from now."""
    years_back: int | None = Rules().years_back
    """Cut links to pages of calendars about an earlier year than so many ago."""
    max_per_shape: int | None = Rules().max_per_shape
    """Cut links beyond so many of one shape and host: /a/1/x-2 and /a/3/y-4 have the same."""
    max_per_path: int | None = Rules().max_per_path
    """Cut links with a query beyond so many that have the same path."""
    duplicates: Duplicates = "keep"
    """Skip pages with the same body, or the same text, as another page: no rows of them, and no links."""
    survey: bool = False
    """Keep of each page how it answered and to which pages it links, for `shoal report`."""
    cookies: bool = True
    """Keep cookies and send them back."""
    archive: str | None = None
    """A folder, or the URL of a bucket, in which raw responses are archived as WARC files."""
    cache: str | None = None
    """A folder in which responses are kept, and answered from: for the development of a scraper."""
    proxy: str | None = None
    """URL of the HTTP proxy to fetch through."""
    verify_tls: bool = True
    """Refuse servers whose certificate is not valid."""
    allow_private: bool = False
    """Fetch from addresses that are not public (private, loopback, ...) even if no seed is one."""
    connect_timeout_s: float = 10.0
    read_timeout_s: float = 20.0
    """Longest silence while a response is read."""
    total_timeout_s: float = 60.0
    handler_timeout_s: float | None = None
    """A handler that takes longer has failed, or a function that fetches itself; None: no limit."""
    max_body_bytes: int = 10_000_000
    """Longer bodies are not read to their end: the page becomes a dead letter."""
    max_bytes_in_flight: int = 256_000_000
    """A worker leases no more while the pages that it has in memory are larger than this."""
    content_types: tuple[str, ...] = READABLE
    """Globs; pages of other types are skipped, their bodies not read."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None:
                _check_number(name, value, least)
        for cause, count in self.retries_by.items():
            _check_cause(cause, count)
        for seed in (*self.seeds, *self.sitemaps):
            check_url(seed)
        if self.robots_sitemaps and not self.obey_robots:
            raise ConfigError("sitemaps cannot be taken from robots.txt if it is not read: choose one")
        if self.politeness == "address" and self.proxy is not None:
            raise ConfigError(
                "politeness by address cannot be had through a proxy, which looks names up itself: choose one"
            )
        for pattern in (*self.allow, *self.deny):
            compile_glob(pattern)
        if self.external and not (self.seeds or self.sitemaps):
            raise ConfigError("external links are those that lead away from the seeds: give some")

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__ if name not in SECRET)
        return f"Settings({', '.join(shown)})"


SECRET = frozenset({"headers", "auth", "host_headers", "proxy"})
"""Settings that may hold passwords: they are neither kept nor shown."""

MOST = 2**53
"""No number may be larger: what is beyond is not exact in Redis and in JSON."""

_LEAST: Mapping[str, float] = {
    "max_crawl_delay_s": 0,
    "max_depth": 0,
    "max_pages": 1,
    "max_pages_per_host": 1,
    "max_queued": 1,
    "max_url_length": 1,
    "max_repeats": 2,
    "years_ahead": 0,
    "years_back": 0,
    "max_per_shape": 1,
    "max_per_path": 1,
    "concurrency": 1,
    "per_host": 1,
    "delay_s": 0,
    "host_pause_s": 0.001,
    "host_give_up": 0,
    "retries": 0,
    "retry_delay_s": 0.001,
    "connect_timeout_s": 0.001,
    "read_timeout_s": 0.001,
    "total_timeout_s": 0.001,
    "handler_timeout_s": 0.001,
    "max_body_bytes": 1,
    "max_bytes_in_flight": 1,
    "revisit_s": 0.001,
}


class Crawl:
    """A crawl as its user declares it: a name, settings, and a handler for each kind of page."""

    def __init__(
        self, name: str, *, seeds: Iterable[str] = (), stores: Iterable[object] = (), **settings: object
    ) -> None:
        """Name it; for the settings see `Settings`. Raises ConfigError naming what is wrong.

        stores: where the items go besides the places that are named when it is run: a `Store` each, or
        what makes one when it is called with the name of the crawl, such as a class.
        """
        if not name:
            raise ConfigError("a crawl needs a name")
        self.name = name
        self.stores = tuple(stores)
        self.settings = _convert({"seeds": seeds, **settings})
        self._handlers: list[tuple[Glob, Handler]] = []
        self._fallback: Handler | None = None
        self.login_handler: LoginHandler | None = None
        self._login_pages: Glob | None = None

    def page(self, pattern: str | None = None) -> Callable[[AnyHandler], AnyHandler]:
        """Register a handler for the pages whose URL matches the glob; without one, for all the others.

        Of several patterns that match, the first one registered counts. Pages that nothing matches are
        read for links, which are followed.
        """

        def register(handler: AnyHandler) -> AnyHandler:
            if pattern is None:
                self._fallback = handler
            else:
                self._handlers.append((compile_glob(pattern), handler))
            return handler

        return register

    @overload
    def login(self, pages: AnyLogin, /) -> AnyLogin: ...
    @overload
    def login(self, pages: str, /) -> Callable[[AnyLogin], AnyLogin]: ...
    def login(self, pages: Any, /) -> Any:
        """Register what logs in: `@crawl.login`, or `@crawl.login("/login*")`.

        Each process calls it before its first request, with a `shoal.Session`, or a `shoal.AsyncSession` if
        it is async. It raises if it cannot log in, which ends the crawl. It is called again after a page has
        turned out to be for strangers, and that page is tried again: its handler raises
        `shoal.LoggedOut`, its status is 401, or it redirects to a URL that the glob matches.
        """

        def register(handler: AnyLogin) -> AnyLogin:
            self.login_handler = handler
            return handler

        if callable(pages):
            return register(pages)
        self._login_pages = compile_glob(pages)
        return register

    def is_login_page(self, url: str) -> bool:
        """Whether a page that redirects to this URL would have shown more to somebody who is logged in."""
        return self._login_pages is not None and self._login_pages.matches(url)

    def handler(self, url: str) -> Handler:
        """The handler for a page at this URL."""
        for glob, handler in self._handlers:
            if glob.matches(url):
                return handler
        return self._fallback or follow

    def change(self, **settings: object) -> None:
        """Replace settings; None leaves one as it is. Raises ConfigError naming what is wrong."""
        given = {name: value for name, value in settings.items() if value is not None}
        self.settings = _convert(msgspec.structs.asdict(self.settings) | given)

    # --- what the parts of the path need of it ----------------------------------------------

    def seeds(self) -> list[Link]:
        """Where to start: pages and sitemaps."""
        return [
            *(Link(url=url) for url in self.seed_urls()),
            *(Link(url=url, key=SITEMAP) for url in self.sitemap_urls()),
        ]

    def seed_urls(self) -> list[str]:
        """The seeds, normalized."""
        return [url for seed in self.settings.seeds if (url := normalize(seed, None, self.spelling()))]

    def sitemap_urls(self) -> list[str]:
        """The sitemaps, normalized."""
        return [url for each in self.settings.sitemaps if (url := normalize(each))]

    def start_urls(self) -> list[str]:
        """All URLs to start from: around them is the scope, and what they may reach is open to the crawl."""
        return self.seed_urls() + self.sitemap_urls()

    def scope(self) -> Scope:
        settings = self.settings
        starts, external = self.start_urls(), settings.external
        return Scope.of(starts, settings.scope, settings.allow, settings.deny, external=external)

    def spelling(self) -> Spelling:
        spelling = Spelling(
            sort_query=self.settings.sort_query,
            drop_params=self.settings.drop_params,
            drop_sessions=self.settings.drop_sessions,
        )
        return DEFAULT if spelling == DEFAULT else spelling  # for which urls.py has a short cut

    def traps(self) -> Rules | None:
        """The trap rules, if they are to be kept."""
        if not self.settings.avoid_traps:
            return None
        return Rules(**{name: getattr(self.settings, name) for name in Rules.__struct_fields__})

    def retries(self) -> Retries:
        return Retries(
            max_attempts=self.settings.retries + 1,
            by_cause={cause: count + 1 for cause, count in self.settings.retries_by.items()},
            base_s=self.settings.retry_delay_s,
            cap_s=max(Retries().cap_s, self.settings.retry_delay_s),
            pause_s=self.settings.host_pause_s,
        )

    def limits(self) -> Limits:
        settings = self.settings
        return Limits(
            max_pages=settings.max_pages,
            max_pages_per_host=settings.max_pages_per_host,
            max_depth=settings.max_depth,
            max_queued=settings.max_queued,
            per_host=settings.per_host,
            delay_s=settings.delay_s,
            adapt=settings.adapt,
            host_pause_s=settings.host_pause_s,
            host_give_up=settings.host_give_up,
            politeness=settings.politeness,
        )

    def public_settings(self) -> dict[str, object]:
        """The settings in a form that JSON can hold, without those that may hold a secret."""
        known: dict[str, object] = msgspec.to_builtins(self.settings)
        return {name: value for name, value in known.items() if name not in SECRET}

    def identity(self) -> dict[str, object]:
        """What must not change while the crawl lives: which URLs are the same page, or of the same host."""
        settings = self.settings
        return {
            "sort_query": settings.sort_query,
            "drop_params": list(settings.drop_params),
            "drop_sessions": settings.drop_sessions,
            "normalizer": NORMALIZER_VERSION,
            "politeness": settings.politeness,
        }


# --- handlers that need no code -----------------------------------------------------------


def follow(page: Page) -> Iterator[Link]:
    """Follow all links."""
    yield from page.links()


def summarize(page: Page) -> Iterator[Item | Link]:
    """One row about the page itself, and all its links."""
    yield {
        "url": page.url,
        "status": page.status,
        "title": page.title,
        "depth": page.depth,
        "fetched_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "text_length": len(page.text),
    }
    yield from page.links()


def select(fields: Iterable[Field]) -> Handler:
    """A handler that yields one row of these fields, where any is found, and all links."""
    wanted = tuple(fields)
    names = [field.name for field in wanted]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two fields are called '{name}'; give each a name of its own")

    def handler(page: Page) -> Iterator[Item | Link]:
        row = extract(page, wanted)
        if row is not None:
            yield row
        yield from page.links()

    return handler


# --- checks -------------------------------------------------------------------------------


def check_url(text: str) -> str:
    """The normalized URL. Raises ConfigError, with a suggestion, if it is none that can be crawled."""
    url = normalize(text)
    if url is not None:
        if has_credentials(text):
            raise ConfigError(
                f"leave user and password out of the URL, {url}, and give them for its host:"
                " --auth, or auth={...}"
            )
        return url
    if len(text) > MAX_URL_LENGTH:
        raise ConfigError(
            f"a URL may have {MAX_URL_LENGTH:,} characters: {without_credentials(text)[:60]}..."
        )
    guess = f"http://{text}"
    is_host = "." in text or text.startswith("localhost")
    if is_host and "://" not in text and "@" not in text and normalize(guess):
        raise ConfigError(f"not an http(s) URL: '{text}'; did you mean {guess} ?")
    raise ConfigError(f"not an http(s) URL: '{without_credentials(text)}'; write it like http://example.com/")


def _check_cause(cause: str, retries: int) -> None:
    if not is_cause(cause):
        raise ConfigError(
            f"'{cause}' is no cause of retries: there are {', '.join(CAUSES)}, and any HTTP status"
        )
    _check_number(f"the retries of '{cause}'", retries, 0)


def _check_number(what: str, value: float, least: float) -> None:
    if not least <= value < math.inf:
        kind = "" if value < least else "a number, and "
        raise ConfigError(f"{what} must be {kind}at least {least}, not {value}")
    if value > MOST:
        raise ConfigError(f"{what} must be at most {MOST}, not {value}")


def _convert(given: Mapping[str, object]) -> Settings:
    names = Settings.__struct_fields__
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(names)}"
            raise ConfigError(f"unknown setting '{name}': {hint}")
    values = {name: _plain(name, value) for name, value in given.items()}
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error), values)) from error


def _plain(name: str, value: object) -> object:
    """Headers may be given as a mapping, lists of words as any iterable."""
    if name == "headers" and isinstance(value, Mapping):
        return tuple(value.items())
    if name in {"seeds", "sitemaps", "allow", "deny", "drop_params", "content_types"}:
        if isinstance(value, str):
            raise ConfigError(f"{name} must be a list, not the string '{value}'; write ['{value}']")
        if isinstance(value, Iterable):
            return tuple(value)
    return value


_CHOICES = {"scope": Mode, "politeness": Politeness}


def _explain(problem: str, values: Mapping[str, object]) -> str:
    """For people, what msgspec says of a value: "Expected `int | null`, got `str` - at `$.max_pages`"."""
    what, _, where = problem.replace("`", "").partition(" - at $.")
    name = where.partition("[")[0]
    if name in _CHOICES:
        what = f"it must be one of {', '.join(get_args(_CHOICES[name]))}"
    for word, ours in {"Expected": "expected", "array": "list", " | null": "", "null": "None"}.items():
        what = what.replace(word, ours)
    shown = "" if name in SECRET else f"={values[name]!r}"
    return f"bad setting {name}{shown}: {what}"
