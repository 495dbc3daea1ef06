"""May this URL be fetched? robots.txt, read once per origin and kept until it expires (RFC 9309).

Rules are about an origin (scheme, host, port), while politeness is about a host key.
"""

from __future__ import annotations

import asyncio
import time

from msgspec.structs import replace

from shoal.access import Access
from shoal.crawl import Settings
from shoal.model import Failure, Response
from shoal.policy import Retries, asked_pause_s, is_busy, location
from shoal.robots import MAX_BYTES, Rules, from_answer
from shoal.urls import normalize, origin

KEEP_S = 24 * 3600.0  # RFC 9309 2.4: not longer than 24 hours
MAX_REDIRECTS = 5  # RFC 9309 2.3.1.2
KEEP_FAILURE_S = 0.2  # shorter than any backoff: each attempt at a page asks again


class Gate:
    """The robots.txt rules of all origins that this process has met."""

    def __init__(self, access: Access, settings: Settings, retries: Retries) -> None:
        """retries: how long a pause a server may ask for."""
        self._access = access
        self._agent = settings.user_agent
        self._again = (
            settings.revisit_s is not None
        )  # then sites are asked, and their rules are those of today
        self._retries = retries
        self._known: dict[str, tuple[float, Rules | Failure]] = {}
        self._reading: dict[str, asyncio.Task[Rules | Failure]] = {}
        self._replayed: set[str] = set()

    def known(self, url: str) -> Rules | Failure | None:
        """The rules for the origin of `url`, if they have been read and have not expired."""
        found = self._known.get(origin(url))
        return found[1] if found and found[0] > time.monotonic() else None

    async def read(self, url: str) -> Rules | Failure:
        """Fetch robots.txt of the origin of `url`; callers who come meanwhile share the one fetch."""
        site = origin(url)
        reading = self._reading.get(site)
        if reading is None:
            reading = self._reading[site] = asyncio.ensure_future(self._fetch(site))
            reading.add_done_callback(lambda _: self._reading.pop(site, None))
        return await asyncio.shield(reading)

    def was_replayed(self, url: str) -> bool:
        """Whether the rules came out of a cache, so that the site has not been asked for anything."""
        return origin(url) in self._replayed

    async def _fetch(self, site: str) -> Rules | Failure:
        answer = await self._follow(f"{site}/robots.txt")
        rules = from_answer(answer, self._agent)
        if isinstance(answer, Response) and answer.replayed:
            self._replayed.add(site)
        if isinstance(rules, Failure) and isinstance(answer, Response):
            pause_s = asked_pause_s(answer, retries=self._retries, now=time.time())
            rules = replace(rules, busy=is_busy(answer), pause_s=pause_s)
        keep_s = KEEP_FAILURE_S if isinstance(rules, Failure) else KEEP_S
        self._known[site] = time.monotonic() + keep_s, rules
        return rules

    async def _follow(self, url: str) -> Response | Failure:
        """RFC 9309 2.3.1.2: follow at least five redirects, even to other hosts."""
        for _ in range(MAX_REDIRECTS + 1):
            answer = await self._access.fetch(url, max_body_bytes=2 * MAX_BYTES, cut=True, again=self._again)
            if isinstance(answer, Failure) or answer.status not in {301, 302, 303, 307, 308}:
                return answer
            target = normalize(location(answer), url)
            if target is None:
                return answer
            url = target
        return answer
