"""Spiders that run on the frontier: what becomes of their requests, in every way that these can end."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from typing import Any

import pytest
from scrapy import FormRequest, Request, Spider, signals
from scrapy.exceptions import CloseSpider, DontCloseSpider, IgnoreRequest
from tests.servers import RESET, ScriptedServer, page, reply
from tests.site import Site

PAGE = page(b"<p>hello</p>")


def targets(server: ScriptedServer) -> Counter[str]:
    """How often each was asked for."""
    return Counter(request.target for request in server.requests)


class Base(Spider):
    """Starts with the URLs that it is given."""

    name = "test"

    def __init__(self, urls: list[str], **more: Any) -> None:
        super().__init__(**more)
        self.start_urls = urls


class Follow(Base):
    """Follows all links, and yields a row for each page."""

    def parse(self, response):
        yield {"id": response.css("article::attr(data-id)").get(), "title": response.css("h1::text").get()}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)


def test_a_site_is_crawled_once_and_the_end_is_exact(any_place):
    """Each page is fetched once, each row stored once, and the spider ends by itself."""
    with Site(pages=60, hosts=2) as site:
        crawler = any_place.crawl(Follow, given={"urls": [site.url]}, **any_place.stored)
        assert site.fetches() == Counter(site.urls)
    assert crawler.stats.get_value("finish_reason") == "finished"
    assert sorted(row["id"] for row in any_place.rows()) == sorted(f"P{n}" for n in range(60))
    stats = any_place.stats()
    assert (stats.done, stats.items, stats.leased, stats.queued, stats.finished) == (60, 60, 0, 0, True)


def test_rows_stay_in_a_state_file_if_no_store_is_named(place):
    """As with shoal's own crawls, and they are exported in the same way."""
    with Site(pages=8) as site:
        place.crawl(Follow, given={"urls": [site.url]}, ITEM_PIPELINES={"shoal.scrapy.StorePipeline": 900})
    with place.frontier() as frontier:
        assert sorted(item["id"] for item in frontier.items()) == [f"P{n}" for n in range(8)]


def test_a_finished_crawl_stays_finished_until_it_is_to_be_fresh(any_place):
    """A second run does nothing and does not even ask `start()`; SHOAL_FRESH begins anew."""
    with Site(pages=5) as site:
        for settings in ({}, {}, {"SHOAL_FRESH": True}):
            any_place.crawl(Follow, given={"urls": [site.url]}, **any_place.stored, **settings)
        assert set(site.fetches().values()) == {2}
    assert len(any_place.rows()) == 5


# --- what a request carries -----------------------------------------------------------------------


def test_a_request_arrives_with_all_that_it_carries(any_place):
    """Method, body, headers, cookies, meta, cb_kwargs and the names of its callbacks."""
    came = {}

    class Carrying(Base):
        def parse(self, response):
            yield Request(
                response.urljoin("/put"),
                self.put,
                method="PUT",
                body=b"\xff\x00body",
                headers={"X-One": "1", "X-Bytes": b"\xe9"},
                cookies={"taste": "sweet"},
                meta={"place": ("a", 1), "when": b"\x00"},
                cb_kwargs={"numbers": {1, 2}},
                priority=3,
                flags=["f"],
            )
            yield FormRequest(response.urljoin("/form"), self.form, formdata={"q": "ü"}, errback=self.failed)

        def put(self, response, numbers):
            request = response.request
            came["put"] = numbers, response.meta["place"], response.meta["when"], request.priority
            came["flags"] = request.flags

        async def form(self, response):
            came["form"] = type(response.request), response.request.errback == self.failed

        def failed(self, failure):
            """Not called."""

    with ScriptedServer(dict.fromkeys(("/", "/put", "/form"), PAGE)) as server:
        any_place.crawl(Carrying, given={"urls": [server.url()]})
        put = next(request for request in server.requests if request.target == "/put")
        form = next(request for request in server.requests if request.target == "/form")
    assert came == {
        "put": ({1, 2}, ("a", 1), b"\x00", 3),
        "flags": ["f"],
        "form": (FormRequest, True),
    }
    assert (put.method, put.body, put.headers["x-one"], put.headers["x-bytes"]) == (
        "PUT",
        b"\xff\x00body",
        "1",
        "é",
    )
    assert put.headers["cookie"] == "taste=sweet"
    assert put.headers["referer"] == server.url()
    assert (form.method, form.body) == ("POST", b"q=%C3%BC")


def test_requests_differ_by_method_and_body(any_place):
    """Two forms that are sent to one URL are two requests, and the same form is one."""

    class Posting(Base):
        def parse(self, response):
            if response.request.method == "GET":
                for word in ("a", "b", "a"):
                    yield FormRequest(response.url, formdata={"q": word})

    with ScriptedServer({"/": PAGE}) as server:
        any_place.crawl(Posting, given={"urls": [server.url()]})
        assert Counter(request.body for request in server.requests) == {b"": 1, b"q=a": 1, b"q=b": 1}


def test_urls_are_the_same_as_scrapy_takes_them_to_be(any_place):
    """The order of parameters and the fragment do not matter; it is fetched as it was written first."""

    class Spelling(Base):
        def parse(self, response):
            for target in ("/x?b=1&a=2#here", "/x?a=2&b=1", "/x?b=1&a=2"):
                yield response.follow(target, self.leaf)

        def leaf(self, response):
            """Nothing."""

    with ScriptedServer({"/": PAGE, "/x?b=1&a=2": PAGE}) as server:
        any_place.crawl(Spelling, given={"urls": [server.url()]})
        assert targets(server) == {"/": 1, "/x?b=1&a=2": 1}


def test_depth_is_counted_and_limited(any_place):
    """DEPTH_LIMIT holds, and meta['depth'] is as in any crawl."""
    depths = {}

    class Deep(Base):
        def parse(self, response):
            depths[response.url] = response.meta["depth"]
            yield response.follow(f"/{len(depths)}")

    with ScriptedServer(lambda request: PAGE) as server:
        any_place.crawl(Deep, given={"urls": [server.url()]}, DEPTH_LIMIT=3)
    assert depths == {server.url(f"/{n or ''}"): n for n in range(4)}


def test_each_request_that_is_not_to_be_filtered_is_one_of_its_own(any_place):
    """`dont_filter` fetches a known URL again, as often as it is asked for; start URLs are not doubled."""

    class Again(Base):
        def parse(self, response):
            if response.meta.get("round", 0) < 2:
                for _ in range(2):
                    yield Request(
                        response.url, dont_filter=True, meta={"round": response.meta.get("round", 0) + 1}
                    )
            yield Request(response.url)  # known

    with ScriptedServer({"/": PAGE}) as server:
        any_place.crawl(Again, given={"urls": [server.url()]})
        assert targets(server) == {"/": 1 + 2 + 4}
    assert any_place.stats().done == 7


def test_higher_priorities_run_sooner(any_place):
    """In the order of their priorities, and of equal ones the first that was yielded."""

    class Ordered(Base):
        def parse(self, response):
            for priority in (0, 5, -20, 1, 0, 200):
                self.n = getattr(self, "n", 0) + 1
                yield response.follow(f"/{priority}/{self.n}", self.leaf, priority=priority)

        def leaf(self, response):
            """Nothing."""

    with ScriptedServer(lambda request: PAGE) as server:
        any_place.crawl(
            Ordered, given={"urls": [server.url()]}, CONCURRENT_REQUESTS=1, CONCURRENT_REQUESTS_PER_DOMAIN=1
        )
        order = [request.target for request in server.requests]
    assert order == ["/", "/200/6", "/5/2", "/1/4", "/0/1", "/0/5", "/-20/3"]


def test_a_request_that_cannot_be_kept_makes_its_page_a_dead_letter(any_place, caplog):
    """The error says what and where; what else the page has yielded is kept."""

    class Unkept(Base):
        def parse(self, response):
            yield response.follow("/good", self.leaf)
            yield response.follow("/lambda", lambda response: None)
            yield response.follow("/meta", self.leaf, meta={"deep": [{"here": object()}]})
            yield Request("data:,hello", self.leaf)

        def leaf(self, response):
            """Nothing."""

    with ScriptedServer({"/": PAGE, "/good": PAGE}) as server:
        any_place.crawl(Unkept, given={"urls": [server.url()]})
        assert targets(server) == {"/": 1, "/good": 1}
        assert any_place.dead() == {server.url(): "request cannot be kept"}
        record = any_place.why(server.url())
    assert "its callback test_a_request" in record.error
    assert "no method of the spider test" in record.error
    assert "meta['deep'] is a object" in caplog.text or "is a object, which cannot be kept" in caplog.text
    assert "not an http(s) URL" in caplog.text


def test_requests_of_start_that_cannot_be_kept_are_told_about(any_place, caplog):
    """There is no page that could become a dead letter for it; the others are crawled."""

    class Unkept(Base):
        async def start(self):
            yield Request(self.start_urls[0], lambda response: None)
            yield Request(self.start_urls[0] + "b")

        def parse(self, response):
            """Nothing."""

    with ScriptedServer({"/b": PAGE}) as server:
        crawler = any_place.crawl(Unkept, given={"urls": [server.url()]})
        assert targets(server) == {"/b": 1}
    assert "cannot be kept in the frontier: its callback" in caplog.text
    assert crawler.stats.get_value("shoal/not_kept") == 1


# --- how a request can end --------------------------------------------------------------------------


def test_retries_are_another_attempt_of_the_same_page(any_place):
    """As often as Scrapy's middleware says; the page keeps its identity and counts its attempts."""
    times = []

    class Retrying(Base):
        def parse(self, response):
            times.append(response.meta["retry_times"])

    with Site(pages=1) as site:
        any_place.crawl(Retrying, given={"urls": [f"{site.url}flaky/2/x"]})
        assert site.fetches() == {f"{site.url}flaky/2/x": 3}
    assert times == [2]
    stats = any_place.stats()
    assert (stats.done, stats.fetches, stats.seen) == (1, 3, 1)


def test_what_fails_for_good_is_a_dead_letter_that_can_be_redriven(any_place):
    """With its reason: the status after all retries, an error of the network, a 404."""

    class Failing(Base):
        def parse(self, response):
            for target in ("/503", "/404", "/reset"):
                yield response.follow(target)

    routes = {
        "/": PAGE,
        "/503": page(b"", "503 Out"),
        "/404": page(b"", "404 No"),
        "/reset": reply(RESET),
    }
    with ScriptedServer(routes) as server:
        quick = {"SHOAL_SETTINGS": {"adapt": False, "host_pause_s": 0.01}}
        any_place.crawl(Failing, given={"urls": [server.url()]}, **quick)
        assert (server.count("/503"), server.count("/404")) == (3, 1)
        assert any_place.dead() == {
            server.url("/503"): "HTTP 503",
            server.url("/404"): "HTTP 404",
            server.url("/reset"): "connection reset",
        }
        record = any_place.why(server.url("/503"))
        assert (record.attempts, record.status) == (3, 503)
        assert any_place.why(server.url("/reset")).attempts == 3  # Twisted itself may try once more
        with any_place.frontier() as frontier:
            assert frontier.redrive(url=server.url("/503")) == 1
        routes["/503"] = PAGE
        any_place.crawl(Failing, given={"urls": [server.url()]}, **quick)
        assert targets(server)["/503"] == 4
        assert server.url("/503") not in any_place.dead()


def test_an_errback_that_yields_something_has_dealt_with_the_failure(any_place):
    """One that yields nothing has only looked: then it stays a dead letter."""
    looked = []

    class Handling(Base):
        def parse(self, response):
            yield response.follow("/404", self.parse, errback=self.instead)
            yield response.follow("/410", self.parse, errback=self.look)
            yield response.follow("/reset", self.parse, errback=self.instead)
            yield response.follow("/raise", self.parse, errback=self.wrong)

        def instead(self, failure):
            yield {"failed": failure.request.url}
            yield Request(failure.request.url + "/other", self.leaf)

        def look(self, failure):
            looked.append(failure.value.response.status)

        def wrong(self, failure):
            raise KeyError("no")

        def leaf(self, response):
            """Nothing."""

    routes = {"/": PAGE, "/reset": reply(RESET), "/404/other": PAGE, "/reset/other": PAGE}
    with ScriptedServer(routes) as server:
        any_place.crawl(Handling, given={"urls": [server.url()]}, **any_place.stored, RETRY_ENABLED=False)
        assert targets(server)["/404/other"] == targets(server)["/reset/other"] == 1
        assert any_place.dead() == {
            server.url("/410"): "HTTP 404",
            server.url("/raise"): "callback raised KeyError",
        }
    assert looked == [404]
    assert sorted(row["failed"] for row in any_place.rows()) == [server.url("/404"), server.url("/reset")]


def test_a_callback_that_raises_makes_a_dead_letter_with_its_traceback(any_place):
    """The requests that it had yielded are kept, its items are not: they come with the next try."""

    class Raising(Base):
        def parse(self, response):
            yield {"n": 1}
            yield response.follow("/b", self.leaf)
            raise ValueError("so there")

        def leaf(self, response):
            yield {"n": 2}

    with ScriptedServer({"/": PAGE, "/b": PAGE}) as server:
        any_place.crawl(Raising, given={"urls": [server.url()]}, **any_place.stored)
        record = any_place.why(server.url())
    assert (record.state, record.reason) == ("dead", "callback raised ValueError")
    assert record.error.endswith("ValueError: so there")
    assert 'raise ValueError("so there")' in record.error
    assert any_place.rows() == [{"n": 2}]


def test_redirects_are_links_of_their_own(any_place):
    """The target is fetched once, whoever leads to it; a redirect to a known page ends there."""
    seen = []

    class Redirected(Base):
        def parse(self, response):
            for target in ("/old", "/older", "/new"):
                yield response.follow(target, self.leaf)

        def leaf(self, response):
            seen.append(response.url)

    moved = page(b"", "302 Found", "Location: /new")
    with ScriptedServer({"/": PAGE, "/old": moved, "/older": moved, "/new": PAGE}) as server:
        any_place.crawl(Redirected, given={"urls": [server.url()]})
        assert targets(server) == {"/": 1, "/old": 1, "/older": 1, "/new": 1}
        assert seen == [server.url("/new")]
    stats = any_place.stats()
    assert (stats.done, stats.dead) == (4, 0)


def test_what_middlewares_refuse_is_skipped(any_place):
    """An IgnoreRequest, as for robots.txt, is the reason."""

    class Refusing:
        def process_request(self, request):
            if request.url.endswith("/no"):
                raise IgnoreRequest("not today")

    class Asking(Base):
        custom_settings = {"DOWNLOADER_MIDDLEWARES": {Refusing: 100}}

        def parse(self, response):
            yield response.follow("/no")
            yield response.follow("/private")

    robots = page(b"User-agent: *\nDisallow: /private\n", "200 OK", "Content-Type: text/plain")
    with ScriptedServer({"/": PAGE, "/robots.txt": robots}) as server:
        any_place.crawl(Asking, given={"urls": [server.url()]}, ROBOTSTXT_OBEY=True)
        assert targets(server) == {"/robots.txt": 1, "/": 1}
        with any_place.frontier() as frontier:
            reasons = {record.url: record.reason for record in frontier.skipped()}
    assert reasons == {server.url("/no"): "not today", server.url("/private"): "Forbidden by robots.txt"}


def test_a_middleware_may_replace_a_request_or_answer_it_itself(any_place):
    """A replacement is a request of its own; an answer that nobody was asked for is read like any other."""
    from scrapy.http import HtmlResponse

    seen = []

    class Acting:
        def process_request(self, request):
            if request.url.endswith("/swap"):
                return request.replace(url=request.url + "ped", method="POST", body=b"x")
            if request.url.endswith("/made"):
                return HtmlResponse(request.url, body=b"<p>made up</p>", request=request)
            return None

    class Asking(Base):
        custom_settings = {"DOWNLOADER_MIDDLEWARES": {Acting: 100}}

        def parse(self, response):
            yield response.follow("/swap", self.leaf)
            yield response.follow("/made", self.leaf)

        def leaf(self, response):
            seen.append((response.url, response.request.method, response.css("p::text").get()))

    with ScriptedServer({"/": PAGE, "/swapped": PAGE}) as server:
        any_place.crawl(Asking, given={"urls": [server.url()]})
        assert targets(server) == {"/": 1, "/swapped": 1}
        assert sorted(seen) == [
            (server.url("/made"), "GET", "made up"),
            (server.url("/swapped"), "POST", "hello"),
        ]
    assert any_place.stats().done == 4


def test_a_retry_that_changes_the_request_replaces_it(any_place):
    """What a middleware has changed for the next try is kept."""
    headers = []

    class Changing:
        def process_response(self, request, response):
            if response.status == 403:
                again = request.replace(dont_filter=True)
                again.headers["X-Try"] = "2"
                return again
            return response

    class Asking(Base):
        custom_settings = {"DOWNLOADER_MIDDLEWARES": {Changing: 100}}

        def parse(self, response):
            headers.append(response.request.headers.get("X-Try"))

    with ScriptedServer(
        lambda request: PAGE if "x-try" in request.headers else page(b"", "403 No")
    ) as server:
        any_place.crawl(Asking, given={"urls": [server.url()]})
        assert targets(server) == {"/": 2}
    assert headers == [b"2"]
    assert any_place.stats().done == 2


def test_a_host_that_asks_to_be_left_alone_is_left_alone(any_place):
    """Retry-After holds for the whole host, and the retry comes after it."""

    class Patient(Base):
        def parse(self, response):
            """Nothing."""

    with Site(pages=1) as site:
        any_place.crawl(Patient, given={"urls": [f"{site.url}limit/1/x"]})
        first, second = (fetch.at for fetch in site.log)
    assert second - first >= 1.0


def test_async_callbacks_are_done_when_they_have_ended(any_place):
    """What they yield after waiting, and the requests that they make on the way, belongs to them."""
    inline = []

    class Waiting(Base):
        async def parse(self, response):
            await asyncio.sleep(0.05)
            yield {"n": 1}
            answer = await self.crawler.engine.download_async(Request(response.urljoin("/inline")))
            inline.append(answer.status)
            yield response.follow("/b", self.leaf)

        async def leaf(self, response):
            await asyncio.sleep(0.05)
            return [{"n": 2}]

    with ScriptedServer(dict.fromkeys(("/", "/b", "/inline"), PAGE)) as server:
        any_place.crawl(Waiting, given={"urls": [server.url()]}, **any_place.stored)
        assert targets(server) == {"/": 1, "/b": 1, "/inline": 1}
    assert inline == [200]
    assert sorted(row["n"] for row in any_place.rows()) == [1, 2]
    assert any_place.stats().done == 2


def test_what_comes_from_the_side_is_crawled_before_the_end(any_place):
    """A handler of `spider_idle` may add requests when all is done, and the crawl goes on."""

    class Adding(Base):
        rounds = 0

        @classmethod
        def from_crawler(cls, crawler, *args, **kwargs):
            spider = super().from_crawler(crawler, *args, **kwargs)
            crawler.signals.connect(spider.idle, signals.spider_idle)
            return spider

        def idle(self):
            if self.rounds < 2:
                self.rounds += 1
                self.crawler.engine.crawl(Request(self.start_urls[0], dont_filter=True))
                raise DontCloseSpider

        def parse(self, response):
            """Nothing."""

    with ScriptedServer({"/": PAGE}) as server:
        any_place.crawl(Adding, given={"urls": [server.url()]})
        assert targets(server) == {"/": 3}
    assert any_place.stats().done == 3


def test_items_that_cannot_be_stored_bury_their_page(any_place):
    """The reason names the field."""

    class Wrong(Base):
        def parse(self, response):
            yield {"thing": object()}

    with ScriptedServer({"/": PAGE}) as server:
        any_place.crawl(Wrong, given={"urls": [server.url()]}, **any_place.stored)
        record = any_place.why(server.url())
    assert (record.state, record.reason) == ("dead", "item cannot be stored")
    assert '"thing"' in record.error


# --- beginning and ending -----------------------------------------------------------------------------


def test_start_is_asked_once_in_a_crawl(any_place):
    """By whoever is first; what it yields twice is fetched twice only if it is not to be filtered."""
    asked = []

    class Starting(Base):
        async def start(self):
            asked.append(1)
            for _ in range(2):
                yield Request(self.start_urls[0])
                yield Request(self.start_urls[0] + "again", dont_filter=True)

        def parse(self, response):
            """Nothing."""

    with ScriptedServer(lambda request: PAGE) as server:
        for _ in range(2):
            any_place.crawl(Starting, given={"urls": [server.url()]})
        assert targets(server) == {"/": 1, "/again": 2}
    assert asked == [1]


def test_a_slow_start_keeps_the_crawl_open(any_place):
    """Another process that has nothing to do waits for what is to come, and does its share."""
    ended = []

    class Slow(Base):
        async def start(self):
            yield Request(self.start_urls[0] + "1")
            await asyncio.sleep(1.5)
            yield Request(self.start_urls[0] + "2")

        def parse(self, response):
            """Nothing."""

        def closed(self, reason):
            ended.append(time.monotonic())

    with ScriptedServer(lambda request: PAGE) as server:
        began = time.monotonic()
        both = [any_place.begin(Slow, given={"urls": [server.url()]}) for _ in range(2)]
        for wait in both:
            wait(30.0)
        assert targets(server) == {"/1": 1, "/2": 1}
    assert min(ended) - began >= 1.5
    assert any_place.stats().finished


def test_start_is_asked_again_if_it_was_cut_short(any_place):
    """A spider that was closed before it had told all has the rest asked by the next one."""

    class Cut(Base):
        async def start(self):
            for n in range(3):
                yield Request(self.start_urls[0] + str(n))
                if n == 1 and self.crawler.settings.getbool("CUT"):
                    raise CloseSpider("cut")

        def parse(self, response):
            """Nothing."""

    with ScriptedServer(lambda request: PAGE) as server:
        for cut in (True, False):
            any_place.crawl(Cut, given={"urls": [server.url()]}, CUT=cut)
        assert targets(server) == {"/0": 1, "/1": 1, "/2": 1}


def test_a_spider_that_is_closed_gives_back_what_it_holds(any_place):
    """CLOSESPIDER_PAGECOUNT ends one process; the next one goes on where it was, and nothing is doubled."""
    with Site(pages=80, latency_s=0.01) as site:
        first = any_place.crawl(
            Follow, given={"urls": [site.url]}, **any_place.stored, CLOSESPIDER_PAGECOUNT=20
        )
        assert first.stats.get_value("finish_reason") == "closespider_pagecount"
        stats = any_place.stats()
        assert (stats.leased, stats.finished) == (0, False)
        assert 20 <= stats.done < 80
        assert len(any_place.rows()) == stats.done
        any_place.crawl(Follow, given={"urls": [site.url]}, **any_place.stored)
        assert site.fetches() == Counter(site.urls)
    assert len(any_place.rows()) == 80


def test_spiders_that_share_a_crawl_end_together(any_place):
    """All wait while work is leased elsewhere, and share what there is."""
    with Site(pages=60, latency_s=0.02) as site:
        three = [any_place.begin(Follow, given={"urls": [site.url]}, **any_place.stored) for _ in range(3)]
        counts = [wait(60.0).stats.get_value("response_received_count", 0) for wait in three]
        assert site.fetches() == Counter(site.urls)
    assert sum(counts) == 60
    assert len(any_place.rows()) == 60


def test_a_spider_that_is_kept_alive_waits_for_more(any_place):
    """URLs of other programs arrive in `parse`, with their meta; nothing else ends the spider."""
    came = []

    class Living(Base):
        def parse(self, response):
            came.append((response.url, response.meta.get("colour"), response.request.priority))
            if response.url.endswith("/last"):
                raise CloseSpider("enough")

    from shoal.model import Link

    with ScriptedServer(lambda request: PAGE) as server:
        wait = any_place.begin(Living, given={"urls": []}, SHOAL_KEEP_ALIVE=True)
        time.sleep(1.0)
        with any_place.frontier() as frontier:
            frontier.add([Link(server.url("/a"), meta={"colour": "red"}, priority=9)])
            while not came:
                time.sleep(0.02)
            frontier.add([Link(server.url("/last"))])
        crawler = wait(30.0)
    assert came == [(server.url("/a"), "red", 0), (server.url("/last"), None, 0)]
    assert crawler.stats.get_value("finish_reason") == "enough"


def test_what_is_pushed_to_redis_arrives_in_parse(redis_server, redis_place):
    """Plain URLs and JSON, with nothing but LPUSH."""
    came = []

    class Living(Base):
        def parse(self, response):
            came.append((response.url, response.meta.get("n")))

    with ScriptedServer(lambda request: PAGE) as server:
        with redis_server.client() as client:
            entry = json.dumps({"url": server.url("/json"), "meta": {"n": 1}})
            pushed = [server.url("/plain"), entry]
            client.lpush(f"{redis_place.prefix}:{{test}}:inbox", *pushed)
        redis_place.crawl(Living, given={"urls": []})
    assert sorted(came) == [(server.url("/json"), 1), (server.url("/plain"), None)]


def test_a_delay_holds_for_all_spiders_together(any_place):
    """DOWNLOAD_DELAY becomes the frontier's; Scrapy's own is still there, or off."""

    class Many(Base):
        async def start(self):
            for n in range(12):
                yield Request(f"{self.start_urls[0]}{n}")

        def parse(self, response):
            """Nothing."""

    for own in (True, False):
        with ScriptedServer(lambda request: PAGE) as server:
            settings = {"DOWNLOAD_DELAY": 0.2} if own else {"SHOAL_SETTINGS": {"delay_s": 0.2}}
            name, began = f"delayed{own}", time.monotonic()
            both = [
                any_place.begin(Many, given={"urls": [server.url()]}, SHOAL_CRAWL=name, **settings)
                for _ in range(2)
            ]
            for wait in both:
                wait(60.0)
            times = [request.at for request in server.requests]
        assert len(times) == 12
        assert max(times) - began >= 11 * 0.2


def test_a_lost_lease_is_not_committed(place):
    """If somebody else has been given a page meanwhile, what this spider makes of it counts for nothing."""

    class Slow(Base):
        async def parse(self, response):
            with place.frontier() as frontier:
                for worker in frontier.workers():
                    frontier.reap(worker.name)
                grant = frontier.lease(1, 60.0, worker="other")
                frontier.release([lease.token for lease in grant.leases])
            yield {"n": 1}
            self.parse = self.second

        async def second(self, response):
            yield {"n": 2}

    with ScriptedServer({"/": PAGE}) as server:
        place.crawl(Slow, given={"urls": [server.url()]}, **place.stored)
        assert targets(server) == {"/": 2}
    assert place.rows() == [{"n": 2}]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"SHOAL_FRONTIER": ""}, "SHOAL_FRONTIER is not set"),
        ({"SHOAL_FRONTIER": "mysql://x"}, "unknown frontier 'mysql://x'"),
        ({"SHOAL_SETTINGS": {"per_hosts": 3}}, "did you mean 'per_host'"),
        ({"SHOAL_PRIORITIES": [1, 2]}, "SHOAL_PRIORITIES must be nine numbers that grow"),
        ({"SHOAL_STORE": "rows.jsonl"}, "ITEM_PIPELINES needs shoal.scrapy.StorePipeline"),
        (
            {
                "SCHEDULER": "scrapy.core.scheduler.Scheduler",
                "ITEM_PIPELINES": {"shoal.scrapy.StorePipeline": 1},
            },
            "StorePipeline needs SCHEDULER = 'shoal.scrapy.Scheduler'",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(place, settings, complaint):
    """With a line that says what to do."""
    from shoal.errors import ConfigError

    with pytest.raises(ConfigError) as raised:
        place.crawl(Base, given={"urls": []}, **settings)
    assert complaint in str(raised.value)
