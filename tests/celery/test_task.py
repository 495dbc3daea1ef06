"""The task as its callers see it: what they may say, and what they get. No worker runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery, group
from celery.exceptions import Ignore
from celery.exceptions import TimeoutError as CeleryTimeoutError
from kombu.exceptions import OperationalError
from tests.servers import Pause, ScriptedServer, page, reply
from tests.site import Site
from tests.waiting import until

import shoal
import shoal.celery
from shoal.celery.office import offices
from shoal.frontier import open_frontier
from shoal.model import Outcome

URL = "http://site.example/a"


@pytest.fixture
def app():
    """An app whose broker is in memory."""
    with Celery("scraper", broker="memory://") as app:
        yield app
        for office in offices(app).values():
            for desk in office._desks.of_this_process():
                desk.frontier.close()


@pytest.fixture
def place(tmp_path):
    """Where the frontier is."""
    return {"frontier": f"sqlite:{tmp_path / 'state.shoal'}", "allow_private": True}


@pytest.fixture
def scrape(app, place):
    """A task that takes pages."""

    @shoal.celery.scraper(app, **place, name="scrape")
    def scrape(page):
        return {"title": page.css("h1::text").get(), "meta": page.meta}

    return scrape


@pytest.fixture
def errand(app, place):
    """A task that fetches for itself."""

    @shoal.celery.scraper(app, **place, name="errand", fetch=False)
    def errand(url, depth=1, *, kind="page"):
        return {"url": url, "depth": depth, "kind": kind}

    return errand


@pytest.fixture
def site():
    """A small site."""
    with Site(pages=3, extras=["/status/410"]) as site:
        yield site


def queued(task):
    """What a worker would get: URL, priority and meta, best first."""
    leases = task.office.desk().frontier.lease(99, 60.0, worker="test").leases
    return [(lease.link.url, lease.link.priority, lease.link.meta) for lease in leases]


# --- adding -------------------------------------------------------------------------------------


def test_delay_says_whether_the_url_was_new(scrape):
    """The same URL, however it is spelled, is one page."""
    first, again = scrape.delay(URL), scrape.delay("http://SITE.example:80/b/../a#top")
    assert (first.new, again.new) == (True, False)
    assert first.id == again.id
    assert first.url == URL
    assert queued(scrape) == [(URL, 0, None)]


def test_priority_and_time(scrape):
    """`priority` orders; `countdown` and `eta` keep it back."""
    scrape.apply_async(args=[URL], priority=3)
    scrape.apply_async(args=["http://b.example/"], priority=9)
    scrape.apply_async(args=["http://c.example/"], countdown=60)
    scrape.apply_async(args=["http://d.example/"], eta=datetime.now(UTC) + timedelta(minutes=1))
    scrape.apply_async(args=["http://e.example/"], eta=datetime.now(UTC) - timedelta(minutes=1), priority=1)
    assert queued(scrape) == [("http://b.example/", 9, None), (URL, 3, None), ("http://e.example/", 1, None)]
    assert scrape.office.desk().frontier.stats().delayed == 2


def test_a_key_sets_scrapes_of_one_url_apart(scrape):
    """For scrapes that are repeated, by beat for instance."""
    assert [scrape.apply_async(args=[URL], key=key).new for key in ("mon", "tue", "mon")] == [
        True,
        True,
        False,
    ]


def test_keyword_arguments_are_found_as_meta(scrape):
    """By handlers, as `page.meta`."""
    scrape.delay(URL, category="books")
    assert queued(scrape) == [(URL, 0, {"category": "books"})]


def test_arguments_of_a_function_that_fetches_for_itself(errand):
    """However they are given."""
    errand.delay(URL, 3, kind="feed")
    errand.apply_async(kwargs={"url": "http://b.example/"})
    assert sorted(queued(errand), key=str) == [
        ("http://b.example/", 0, None),
        (URL, 0, {"depth": 3, "kind": "feed"}),
    ]


@pytest.mark.parametrize(
    "option",
    ["chain", "chord", "link", "link_error", "expires", "queue", "routing_key", "time_limit", "headers"],
)
def test_an_option_without_meaning_is_refused(scrape, option):
    """With its name, and what to do instead; nothing is added."""
    with pytest.raises(shoal.ConfigError, match=f"^{option}= has no meaning"):
        scrape.apply_async(args=[URL], **{option: "x"})
    assert queued(scrape) == []


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((), TypeError),
        ((URL, "more"), TypeError),
        (("site.example",), shoal.ConfigError),
        ((7,), shoal.ConfigError),
    ],
)
def test_wrong_arguments_are_refused(scrape, args, error):
    """Before anything is added."""
    with pytest.raises(error):
        scrape.delay(*args)


def test_a_priority_beyond_nine_is_refused(scrape):
    """Priorities are 0..9."""
    with pytest.raises(shoal.ConfigError, match=r"0\.\.9"):
        scrape.apply_async(args=[URL], priority=10)


@pytest.mark.parametrize(
    "option",
    [
        {"priority": True},
        {"priority": "9"},
        {"countdown": "3"},
        {"countdown": 1e18},
        {"countdown": float("inf")},
        {"countdown": float("nan")},
        {"eta": "2030-01-01"},
        {"eta": datetime(9000, 1, 1, tzinfo=UTC)},
        {"key": 3},
    ],
    ids=str,
)
def test_an_option_that_cannot_be_is_refused(scrape, option):
    """At the call."""
    with pytest.raises(shoal.ConfigError, match=r"^(priority|countdown=|eta=|key=)"):
        scrape.apply_async(args=[URL], **option)
    assert queued(scrape) == []


def test_what_would_pass_by_the_frontier_is_refused(scrape):
    """Celery's own ways to run a task for many arguments in one message."""
    for ask in (scrape.map, scrape.starmap, lambda urls: scrape.chunks(urls, 1)):
        with pytest.raises(shoal.ConfigError, match="use map_urls"):
            ask([URL])


@pytest.mark.parametrize(
    ("urls", "options"), [(URL, {}), ([URL], {"priority": True}), ([URL], {"countdown": float("inf")})]
)
def test_many_urls_that_cannot_be_are_refused(scrape, urls, options):
    """As one is."""
    with pytest.raises(shoal.ConfigError):
        scrape.map_urls(urls, **options)
    assert queued(scrape) == []


def test_many_urls_at_once(scrape):
    """How many were new, known, and no URLs."""
    counts = scrape.map_urls([URL, "http://b.example/", URL, "nothing", None, {}], priority=4)
    assert (counts.new, counts.known, counts.rejected) == (2, 1, 3)
    assert sorted(queued(scrape)) == [("http://b.example/", 4, None), (URL, 4, None)]


def test_many_urls_at_once_wait_for_room(app, place):
    """No more than `max_queued` are queued; the producer goes on when some have been taken."""
    task = shoal.celery.attach(app, shoal.Crawl("site", max_queued=3), frontier=place["frontier"])
    urls = [f"http://h{number}.example/" for number in range(7)]
    most = 0
    with open_frontier(place["frontier"], crawl="site") as frontier, ThreadPoolExecutor(1) as threads:
        adding = threads.submit(task.map_urls, urls)
        until(lambda: frontier.stats().queued, 30)
        while not adding.done() or frontier.stats().queued:
            most = max(most, frontier.stats().queued)
            leases = frontier.lease(3, 60.0, worker="test").leases
            frontier.commit([Outcome(lease=lease, state="done") for lease in leases])
        stats = frontier.stats()
    assert (adding.result().new, most, stats.done, stats.overflow) == (7, 3, 7, 0)


def test_a_group_adds_each_of_its_urls(scrape):
    """`group(...)` needs no result backend."""
    group(scrape.s(f"http://site.example/{n}") for n in range(3)).apply_async(priority=2)
    assert queued(scrape)[0] == ("http://site.example/0", 2, None)
    assert scrape.office.desk().frontier.stats().seen == 3


def test_a_broker_that_is_down_does_not_matter(place):
    """The URL is in the frontier; a worker makes up for the ticket."""
    with Celery("scraper", broker="redis://127.0.0.1:1/0") as app:
        task = shoal.celery.attach(app, shoal.Crawl("site"), frontier=place["frontier"])
        assert task.delay(URL).new
        assert task.delay("http://b.example/").new
        assert len(queued(task)) == 2
        assert task.office.desk().crew().slots == ()
        task.office.desk().frontier.close()


def test_a_frontier_that_is_down_raises_what_celery_would():
    """As a broker that is down does for other tasks."""
    with Celery("scraper", broker="memory://") as app:
        task = shoal.celery.attach(app, shoal.Crawl("site"), frontier="redis://127.0.0.1:1/0")
        with pytest.raises(OperationalError):
            task.delay(URL)


# --- results ------------------------------------------------------------------------------------


def test_a_result_follows_its_url(scrape):
    """From the queue to its end."""
    frontier, result = scrape.office.desk().frontier, scrape.delay(URL)
    assert (result.state, result.ready()) == ("PENDING", False)
    (lease,) = frontier.lease(1, 60.0, worker="test").leases
    assert result.state == "STARTED"
    with pytest.raises(CeleryTimeoutError):
        result.get(timeout=0, interval=0)
    frontier.commit([shoal.model.Outcome(lease, "queued", reason="timeout")])
    assert result.state == "RETRY"
    (lease,) = frontier.lease(1, 60.0, worker="test").leases
    frontier.commit([shoal.model.Outcome(lease, "dead", reason="HTTP 410")])
    assert (result.state, result.ready(), result.failed()) == ("FAILURE", True, True)
    with pytest.raises(shoal.ShoalError, match="HTTP 410"):
        result.get(timeout=1)


# --- calling ------------------------------------------------------------------------------------


def test_a_direct_call_returns_the_items(scrape, site):
    """It fetches here and now; the frontier knows nothing of it."""
    assert scrape(site.url) == [{"title": "Page 0", "meta": {}}]
    assert scrape.office.desk().frontier.stats().seen == 0


def test_a_direct_call_raises_what_is_wrong(scrape, site):
    """With the status, or the handler's own exception."""
    with pytest.raises(shoal.ShoalError, match="HTTP 410"):
        scrape(f"{site.url}status/410")
    with pytest.raises(shoal.ConfigError, match="not an http"):
        scrape("nothing")


def test_a_direct_call_of_an_errand_is_a_plain_call(errand):
    """With its arguments and its result."""
    assert errand(URL, 2) == {"url": URL, "depth": 2, "kind": "page"}


def test_eager_tasks_scrape_at_once(app, scrape, site):
    """`task_always_eager`, for tests of users."""
    app.conf.task_always_eager = True
    assert scrape.delay(site.url).get() == [{"title": "Page 0", "meta": {}}]


def test_a_bound_task_retries_as_celery_does_when_it_is_called(app, place):
    """Called directly, `self.retry` raises the exception it was given."""

    @shoal.celery.scraper(app, **place, fetch=False, bind=True)
    def fails(self, url):
        raise self.retry(exc=ConnectionError("gone"))

    with pytest.raises(ConnectionError, match="gone"):
        fails(URL)


def test_scrapes_of_one_url_at_once_are_told_apart(app, place):
    """What one of them decides is its own, whichever ends first."""

    @shoal.celery.scraper(app, **place, obey_robots=False)
    def scrape(page):
        raise Ignore(page.key)

    def answer(request):
        return reply(Pause(0.3), *page().steps) if server.count("/") == 2 else page()

    keys = ["mon", "tue", "wed"]
    with ScriptedServer(answer) as server:
        for key in keys:
            scrape.apply_async(args=[server.url()], key=key)
        desk, bench = scrape.office.desk(), scrape.office.bench()
        [slot] = desk.crew().slots
        assert bench.run(slot.ticket, draining=lambda: False, slice_s=1.0) == {"skipped": 3}
        assert sorted(each.reason for each in desk.frontier.skipped()) == keys
        bench.close()


# --- declaring ----------------------------------------------------------------------------------


def test_the_task_is_registered_as_celery_would(app, place):
    """By module and function, beside all other tasks."""

    @shoal.celery.scraper(app, **place)
    def listing(page):
        """Doc."""

    assert listing.name == f"{__name__}.listing"
    assert app.tasks[listing.name].run.__doc__ == "Doc."
    assert "shoal.slice" in app.tasks


def test_two_crawls_of_one_name_are_refused(app, place, scrape):
    """They would share a frontier by mistake."""
    with pytest.raises(shoal.ConfigError, match="already"):
        shoal.celery.attach(app, shoal.Crawl("scrape"), frontier=place["frontier"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"delays_s": 3}, "delay_s"),
        ({"retries": 3}, "max_retries"),
        ({"fetch": False, "revisit_s": 3.0}, "revisit_s has no meaning"),
    ],
)
def test_a_setting_that_cannot_be_is_named(app, place, settings, words):
    """As `shoal.Crawl` does, with what to write instead."""
    with pytest.raises(shoal.ConfigError, match=words):
        shoal.celery.scraper(app, **place, **settings)(lambda page: None)


def test_links_of_a_function_that_fetches_for_itself_may_be_traps(app, place):
    """They are cut as those of pages are."""

    @shoal.celery.scraper(app, **place, scope="any", fetch=False)
    def errand(url):
        return shoal.Link("http://site.example/x/x/x/x")

    errand.delay("http://site.example/")
    desk, bench = errand.office.desk(), errand.office.bench()
    [slot] = desk.crew().slots
    assert bench.run(slot.ticket, draining=lambda: False, slice_s=0.3) == {"done": 1}
    assert [each.reason for each in desk.frontier.skipped()] == ["trap: repeated segments"]
    bench.close()
