"""One page, from its lease to its outcome: may it be fetched, fetch it, judge the answer, read it."""

from __future__ import annotations

import asyncio
import logging
import random
import time
import traceback
from functools import lru_cache, partial
from pathlib import Path

from msgspec.structs import replace

from shoal import guard, handle, revisit
from shoal.access import Access
from shoal.crawl import Crawl
from shoal.errors import LoggedOut, LoginFailed
from shoal.gate import Gate
from shoal.listing import Lister, of_robots
from shoal.load import Load
from shoal.model import (
    SITEMAP,
    Capture,
    Failure,
    Item,
    Lease,
    Link,
    Outcome,
    Response,
    Sign,
    State,
    Survey,
    Visit,
)
from shoal.parse import Page
from shoal.policy import Dead, Read, Redirect, Retries, Retry, Verdict, follow, judge, retry, sign_of
from shoal.robots import Rules
from shoal.sitemap import MAX_BYTES
from shoal.threads import HandlerThreads
from shoal.urls import Wildcard, digest, fingerprint, normalize, path_query, without_credentials

REDIRECTED = "redirect"
REDIRECTED_AWAY = "redirect out of scope"
BY_ROBOTS = "robots.txt"
CANONICAL = "canonical elsewhere"
NOINDEX = "noindex"
EXTERNAL = "external"
UNCHANGED = "not modified"
GONE = "gone"
LOGGED_OUT = "logged out"
TOO_SLOW = "handler too slow"
REPLAYED_S = 86_400.0  # a page out of a cache says that its host was asked so long ago
SLOW_S = 60.0  # a handler that has run for so long may hang: it is said
MOST_ERROR_CHARS = 4_000  # of a traceback, kept with the dead letter

log = logging.getLogger("shoal.visit")


class Visitor:
    """Visits the pages of one crawl. Made inside the event loop; `threads` runs plain handlers."""

    def __init__(self, crawl: Crawl, access: Access, threads: HandlerThreads, load: Load) -> None:
        """load: is told what is in memory."""
        self._crawl = crawl
        self._settings = crawl.settings
        self._retries = crawl.retries()
        self._spelling = crawl.spelling()
        self._scope = crawl.scope()
        self._sorter = handle.Sorter(crawl)
        self._load = load
        self._lister = Lister(crawl)
        self._listing = asyncio.Lock()  # one at a time: a long one takes much memory
        self._access = access
        self._gate = Gate(access, crawl.settings, self._retries)
        self._threads = threads
        readable = [Wildcard.of(pattern) for pattern in crawl.settings.content_types]
        self._readable = lru_cache(256)(lambda kind: not kind or any(each.matches(kind) for each in readable))

    async def visit(self, lease: Lease) -> Outcome:
        """Fetch and read the leased page. Raises LoginFailed, nothing else; it may be cancelled."""
        attempt = Attempt(lease)
        try:
            outcome = await self._visit(attempt)
        except LoginFailed:
            raise
        except Exception as error:
            log.exception("shoal itself failed on %s", lease.link.url)
            outcome = attempt.again("internal error", self._retries, traceback_of(error))
        finally:
            if attempt.size_bytes is not None:
                self._load.drop(attempt.size_bytes)
        if self._settings.survey:
            outcome = replace(outcome, survey=attempt.survey(outcome))
        if log.isEnabledFor(logging.DEBUG):
            _log_page(outcome, self._crawl.name)
        if outcome.pause_s > 0:
            log.info("%s asks to be left alone for %g s", lease.host, outcome.pause_s)
        return outcome

    async def _visit(self, attempt: Attempt) -> Outcome:
        lease, url = attempt.lease, attempt.lease.link.url
        if self._settings.obey_robots:
            rules = self._gate.known(url) or await self._read_rules(url)
            if isinstance(rules, Failure):
                attempt.sign = sign_of(rules)
                return attempt.end(self._judge_failure(rules, lease), rules.detail)
            attempt.crawl_delay_s = self._crawl_delay_s(rules)
            if self._settings.robots_sitemaps and rules.sitemaps:
                attempt.links = (of_robots(url),)
            if not rules.allows(path_query(url)):
                return attempt.skip(BY_ROBOTS)
        attempt.started_at, attempt.login = time.monotonic(), self._access.login
        answer = await self._fetch(lease)
        attempt.answered(answer)
        if attempt.size_bytes is not None:
            self._load.hold(attempt.size_bytes)
        if isinstance(answer, Failure):
            return attempt.end(self._judge_failure(answer, lease), answer.detail)
        if self._settings.revisit_s is None:
            return await self._judge(answer, attempt)
        return await self._compare(answer, attempt)

    async def _fetch(self, lease: Lease) -> Response | Failure:
        asked, again = revisit.conditions(revisit.before(lease)), lease.visit is not None
        if lease.link.key == SITEMAP:
            return await self._access.fetch(
                lease.link.url, headers=asked, max_body_bytes=MAX_BYTES, cut=True, again=again
            )
        accepts = _nothing if self._is_external(lease.link) else self._readable
        return await self._access.fetch(lease.link.url, headers=asked, accepts=accepts, again=again)

    def _is_external(self, link: Link) -> bool:
        return self._settings.external and self._scope.is_elsewhere(link.url)

    async def _compare(self, answer: Response, attempt: Attempt) -> Outcome:
        """Judge the answer for a page that is to be revisited: it need not be read if it is as it was."""
        now, visit = float(int(time.time())), attempt.lease.visit
        before = revisit.before(attempt.lease)
        if before is not None and revisit.is_unchanged(before, answer):
            return attempt.unchanged(revisit.seen_again(before, answer, now))
        if visit is not None and answer.status in revisit.GONE:
            return attempt.gone(revisit.gone(visit, now))
        outcome = await self._judge(answer, attempt)
        if outcome.state != "done":
            return outcome
        return replace(outcome, visit=revisit.read_anew(visit, answer, outcome.items, now))

    async def _judge(self, answer: Response, attempt: Attempt) -> Outcome:
        lease = attempt.lease
        verdict = judge(answer, lease.attempt, retries=self._retries, now=time.time(), draw=random.random())
        if self._crawl.login_handler is not None and self._is_for_strangers(answer, verdict):
            return self._log_in_again(attempt)
        if isinstance(verdict, Read) and lease.link.key == SITEMAP:
            return await self._list(answer, attempt)
        if isinstance(verdict, Read) and self._is_external(lease.link):
            return attempt.done(EXTERNAL)
        if isinstance(verdict, Read):
            return await self._read(answer, attempt)
        if isinstance(verdict, Redirect):
            return self._redirect(verdict, answer, attempt)
        return attempt.end(verdict)

    def _is_for_strangers(self, answer: Response, verdict: Verdict) -> bool:
        target = normalize(verdict.location, answer.url) if isinstance(verdict, Redirect) else None
        return answer.status == 401 or (target is not None and self._crawl.is_login_page(target))

    def _log_in_again(self, attempt: Attempt) -> Outcome:
        self._access.logged_out(attempt.lease.link.url, attempt.login)
        return attempt.again(LOGGED_OUT, self._retries)

    async def _read_rules(self, url: str) -> Rules | Failure:
        """Fetch robots.txt; the page itself is the next request to that host, so it keeps its distance."""
        rules = await self._gate.read(url)
        if self._gate.was_replayed(url):
            return rules
        await asyncio.sleep(max(self._settings.delay_s, self._crawl_delay_s(rules)))
        return rules

    def _crawl_delay_s(self, rules: Rules | Failure) -> float:
        asked_s = 0.0 if isinstance(rules, Failure) else rules.crawl_delay_s or 0.0
        return min(asked_s, self._settings.max_crawl_delay_s)

    def _judge_failure(self, failure: Failure, lease: Lease) -> Retry | Dead:
        return judge(failure, lease.attempt, retries=self._retries, now=time.time(), draw=random.random())

    def _redirect(self, verdict: Redirect, answer: Response, attempt: Attempt) -> Outcome:
        """The target is a link of its own: scope, seen, robots.txt and politeness are asked about it too."""
        link = attempt.lease.link
        target = normalize(verdict.location, link.url, self._spelling)
        cookie = link.cookie or answer.header("set-cookie") is not None
        via = (
            () if attempt.lease.visit and link.key != SITEMAP else link.via
        )  # where it once came from is past
        hop = follow(target, link.url, via, set_cookie=cookie)
        if isinstance(hop, Dead):
            return attempt.end(hop, f"to {without_credentials(verdict.location)}")
        attempt.target = hop.url
        if not self._may_follow(hop.url, link):
            if link.depth == 0:
                log.warning("%s redirects to %s, which is out of scope", link.url, hop.url)
            return attempt.done(REDIRECTED_AWAY, f"to {hop.url}")
        further = Link(
            url=hop.url,
            priority=link.priority,
            depth=link.depth,
            key=SITEMAP if link.key == SITEMAP else hop.key,
            via=hop.via,
            cookie=cookie,
            meta=link.meta,
        )
        return attempt.done(REDIRECTED, f"to {hop.url}", links=(further,))

    def _may_follow(self, url: str, link: Link) -> bool:
        if link.key == SITEMAP:
            return self._lister.may_read(url, link.url)
        return self._scope.follows(url, link.url)

    async def _list(self, answer: Response, attempt: Attempt) -> Outcome:
        """Read a sitemap, in a thread: a long one takes seconds."""
        link = attempt.lease.link
        async with self._listing:
            links = await self._threads.run(partial(self._lister.links, answer.body, link))
        if not links:
            log.warning("%s lists no pages that belong to the crawl", link.url)
        return attempt.done(SITEMAP, f"it lists {len(links)}", links=links)

    async def _read(self, answer: Response, attempt: Attempt) -> Outcome:
        page = Page(
            answer,
            attempt.lease.link,
            self._spelling,
            obey_nofollow=self._settings.obey_nofollow,
            iframes=self._settings.follow_iframes,
        )
        if not self._readable(page.content_type):
            return attempt.skip(f"content type {page.content_type}")
        if self._settings.obey_canonical and page.canonical not in {None, page.url}:
            return self._canonical(page, attempt)
        try:
            if self._settings.survey:
                attempt.found = self._in_scope(page)
            slow = asyncio.get_running_loop().call_later(SLOW_S, _say_slow, page.url)
            try:
                results = await handle.run(
                    self._crawl.handler(page.url), page, self._threads.run, self._settings.handler_timeout_s
                )
            finally:
                slow.cancel()
            items, links = self._sorter.sort(results, page)
            if self._settings.duplicates != "keep":
                attempt.digest = digest(self._content(page))
        except handle.Ended as decision:
            return attempt.decided(decision)
        except guard.TooSlow as error:
            log.warning("the handler of %s was %s", page.url, error)
            return attempt.again(TOO_SLOW, self._retries, str(error))
        except LoggedOut:
            return self._log_in_again(attempt)
        except Exception as error:
            return attempt.raised("handler", error, self._retries)
        if self._settings.obey_noindex and "noindex" in page.robots_directives:
            return attempt.done(NOINDEX, links=links)
        return attempt.done(items=items, links=links)

    def _in_scope(self, page: Page) -> list[Link]:
        """All links that belong, whatever the handler makes of the page."""
        return [link for link in page.links() if self._scope.follows(link.url, page.url)]

    def _content(self, page: Page) -> bytes:
        """What makes the page another one; the whole of it if there is nothing to read on it."""
        text = page.css("body").text if self._settings.duplicates == "text" else None
        return text.encode("utf-8", "surrogatepass") if text else page.body

    def _canonical(self, page: Page, attempt: Attempt) -> Outcome:
        link, url = attempt.lease.link, page.canonical or ""
        links = () if self._scope.reason(url, link.url) else (replace(link, url=url, key="", via=()),)
        return attempt.done(CANONICAL, f"is {url}", links=links)


class Attempt:
    """What is known so far of one attempt; each of its ends makes the outcome."""

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.started_at = time.monotonic()
        self.login = 0
        self.crawl_delay_s: float | None = None
        self.size_bytes: int | None = None
        """Of the body; None if there was no answer."""
        self.digest: int | None = None
        self.sign: Sign = ""
        self.links: tuple[Link, ...] = ()
        """What was found on the way to the page, however it ends."""
        self.target = ""
        """Where it redirects to."""
        self.found: list[Link] = []
        """What there is on it, if that is to be kept."""
        self._status = 0
        self._elapsed_s = 0.0
        self._capture: Capture | None = None

    def answered(self, answer: Response | Failure) -> None:
        self.sign = sign_of(answer)
        self._elapsed_s = answer.elapsed_s
        if isinstance(answer, Response):
            self._status = answer.status
            self._capture = answer.capture
            self.size_bytes = len(answer.body)
            if answer.replayed:
                self.started_at -= REPLAYED_S

    def survey(self, outcome: Outcome) -> Survey | None:
        """What a report is to know of the page; None if it was not asked for, or nothing came of it."""
        if outcome.state == "queued" or outcome.unchanged or not outcome.elapsed_s:
            return None
        links = [*self.found, *(link for link in outcome.links if link not in self.links)]
        return Survey(
            fingerprint=self.lease.fingerprint,
            url=self.lease.link.url,
            status=outcome.status,
            elapsed_s=outcome.elapsed_s,
            size_bytes=outcome.size_bytes,
            target=self.target,
            links=tuple({fingerprint(link.url, link.key): None for link in links}),
        )

    def done(
        self,
        reason: str = "",
        error: str = "",
        *,
        items: tuple[Item, ...] = (),
        links: tuple[Link, ...] = (),
    ) -> Outcome:
        return self._outcome("done", reason, error, items=items, links=links)

    def unchanged(self, visit: Visit) -> Outcome:
        """The page is as its last visit found it."""
        return replace(self._outcome("done", UNCHANGED), visit=visit, unchanged=True)

    def gone(self, visit: Visit) -> Outcome:
        """The page was there, and is not any more."""
        return replace(self._outcome("dead", GONE, f"HTTP {self._status}"), visit=visit)

    def skip(self, reason: str) -> Outcome:
        return self._outcome("skipped", reason)

    def end(self, verdict: Retry | Dead, error: str = "") -> Outcome:
        """An attempt that failed: there is another one, or a dead letter."""
        if isinstance(verdict, Retry):
            return self._outcome(
                "queued", verdict.reason, error, retry_s=verdict.delay_s, pause_s=verdict.pause_s
            )
        return self._outcome("dead", verdict.reason, error, pause_s=verdict.pause_s)

    def again(self, reason: str, retries: Retries, error: str = "") -> Outcome:
        """An attempt that failed in the code of the crawl: there is another one, or a dead letter."""
        return self.end(
            retry(reason, self.lease.attempt, "handler", retries=retries, draw=random.random()), error
        )

    def raised(self, what: str, error: Exception, retries: Retries) -> Outcome:
        """The code of the crawl, a "handler" or "function", has raised this: see `guard.guarded`."""
        own = guard.raised(error)
        name = type(own).__name__
        log.warning("the %s of %s raised %s: %s", what, self.lease.link.url, name, one_line(own))
        return self.again(f"{what} raised {name}", retries, traceback_of(own))

    def decided(self, decision: handle.Ended) -> Outcome:
        """The handler has said itself how it ends."""
        cause = decision.__cause__
        error = traceback_of(cause) if cause is not None else ""
        return self._outcome(decision.state, storable(decision.reason), error, retry_s=decision.retry_s)

    def _outcome(
        self,
        state: State,
        reason: str,
        error: str = "",
        *,
        retry_s: float = 0.0,
        pause_s: float = 0.0,
        items: tuple[Item, ...] = (),
        links: tuple[Link, ...] = (),
    ) -> Outcome:
        return Outcome(
            lease=self.lease,
            state=state,
            reason=reason,
            error=error,
            retry_s=retry_s,
            status=self._status,
            size_bytes=self.size_bytes or 0,
            elapsed_s=self._elapsed_s,
            age_s=time.monotonic() - self.started_at,
            crawl_delay_s=self.crawl_delay_s,
            sign=self.sign,
            pause_s=pause_s,
            links=(*self.links, *links) if self.links else links,
            items=items,
            digest=self.digest if state == "done" else None,
            capture=self._capture,
        )


def _nothing(content_type: str) -> bool:
    """Says of every type that it is not to be read."""
    return False


def traceback_of(error: BaseException) -> str:
    """The end of the traceback, from the handler's own code on."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [at for at, frame in enumerate(frames) if not frame.filename.startswith(_MACHINERY)]
    if not own and error.__cause__ is not None:  # as Python makes an error of a handler's StopIteration
        frames = traceback.extract_tb(error.__cause__.__traceback__)
    lines = traceback.format_list(frames[own[0] if own else 0 :])
    return storable("".join([*lines, *traceback.format_exception_only(error)])[-MOST_ERROR_CHARS:].rstrip())


def storable(text: str) -> str:
    """Text that UTF-8 can hold: a page may lead a handler to say half a character."""
    return text.encode("utf-8", "backslashreplace").decode()


_MACHINERY = str(Path(__file__).parent)


def one_line(error: BaseException) -> str:
    """What it says, for a log that may be written by anybody: it can quote a page, so nothing in it acts."""
    return repr(str(error))[1:-1]


def _say_slow(url: str) -> None:
    log.warning("the handler of %s has been running for %g s; its page is kept until it ends", url, SLOW_S)


def _log_page(outcome: Outcome, crawl: str) -> None:
    """One line about a page, for people, and its fields for machines."""
    lease, latency_ms = outcome.lease, round(outcome.elapsed_s * 1000)
    reason = f": {outcome.reason}" if outcome.reason else ""
    fields = {
        "crawl": crawl,
        "url": lease.link.url,
        "host": lease.host,
        "attempt": lease.attempt,
        "outcome": outcome.state,
        "reason": outcome.reason,
        "status": outcome.status,
        "latency_ms": latency_ms,
    }
    log.debug("%s %s (%d ms)%s", outcome.state, lease.link.url, latency_ms, reason, extra=fields)
