"""From requests to links and back, without a crawl."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest

from shoal.model import Lease, Link
from shoal.scrapy.requests import PRIORITIES, Codec, is_plain_retry
from shoal.scrapy.values import NotStorable
from shoal.urls import Spelling


class Shop(Spider):
    name = "shop"

    def parse(self, response):
        """Nothing."""

    def detail(self, response):
        """Nothing."""

    renamed = detail
    not_a_method = 3


SHOP = Shop()
CODEC = Codec(SHOP, Spelling(sort_query=True))


def leased(link: Link, attempt: int = 1) -> Lease:
    """A lease of what a frontier has kept of a link."""
    meta = None if link.meta is None else msgspec.json.decode(msgspec.json.encode(link.meta))
    return Lease(1, 2, msgspec.structs.replace(link, meta=meta), "x", attempt)


def back(request: Request) -> Request:
    """The request that comes out of a frontier."""
    return CODEC.request(leased(CODEC.link(request)))


@pytest.mark.parametrize(
    "request_",
    [
        Request("http://x.example/?b=1&a=2#part", SHOP.detail, errback=SHOP.parse),
        Request("http://x.example/", method="DELETE", headers={"A": ["1", "2"], b"B": b"\xff"}),
        Request("http://x.example/", cookies=[{"name": b"n", "value": True, "domain": "x.example"}]),
        Request("http://x.example/", cookies={"a": 1.5}, meta={"x": (1, {2})}, cb_kwargs={"y": b"z"}),
        Request("http://x.example/ü", priority=-7, dont_filter=True, encoding="latin-1", flags=["f"]),
        FormRequest("http://x.example/", formdata={"a": "b"}),
        JsonRequest("http://x.example/", data={"a": [1]}, dumps_kwargs={"indent": 1}),
    ],
    ids=str,
)
def test_requests_come_back_as_they_were(request_):
    """With their class and all of their attributes."""
    copy = back(request_)
    assert type(copy) is type(request_)
    assert copy.to_dict(spider=SHOP) == request_.to_dict(spider=SHOP)


def test_a_plain_request_is_no_more_than_its_url():
    """A frontier with millions of them is not to grow for anything that says nothing."""
    link = CODEC.link(Request("http://x.example/a", meta={"depth": 3}))
    assert link == Link("http://x.example/a", priority=4, depth=3)
    assert CODEC.request(leased(link)).meta == {"depth": 3}


def test_what_other_programs_add_becomes_a_request_for_parse():
    """Their meta is the meta of the request."""
    request = CODEC.request(leased(Link("http://x.example/", meta={"colour": "red"})))
    assert (request.callback, request.meta) == (None, {"colour": "red"})


@given(st.integers(), st.integers())
def test_priorities_keep_their_order(one, other):
    """Whatever they are, they become 0 to 9, and the higher never becomes the lower."""
    low, high = sorted((one, other))
    first, second = (CODEC.link(Request("http://x.example/", priority=n)).priority for n in (low, high))
    assert 0 <= first <= second <= 9


def test_usual_priorities_are_told_apart():
    """The steps are where spiders have theirs."""
    given = (-100, -10, -5, -1, 0, 1, 2, 5, 10, 100)
    assert [CODEC.link(Request("http://x.example/", priority=n)).priority for n in given] == [*range(10)]
    assert len(PRIORITIES) == 9


def test_attempts_are_retries():
    """The frontier counts the attempts, and the retry middleware goes on from there."""
    assert CODEC.request(leased(Link("http://x.example/"), attempt=3)).meta == {"retry_times": 2}


def test_identity_is_that_of_scrapy():
    """URL without fragment and with sorted parameters, method and body; headers do not matter."""

    def identity(*args, **kwargs):
        link = CODEC.link(Request(*args, **kwargs))
        return link.url, link.key

    plain = identity("http://x.example/?a=1&b=2")
    assert identity("http://x.example/?b=2&a=1#f", headers={"A": "1"}, meta={"x": 1}) == plain
    assert identity("http://x.example/?a=1&b=2", method="POST") != plain
    assert identity("http://x.example/?a=1&b=2", body="x") != identity("http://x.example/?a=1&b=2", body="y")


def test_a_fingerprinter_of_ones_own_tells_requests_apart():
    """As for requests that differ in something that only it knows."""

    class ByMeta:
        def fingerprint(self, request):
            return request.meta["n"].to_bytes(1, "big")

    codec = Codec(SHOP, Spelling(), fingerprinter=ByMeta())
    keys = [codec.link(Request("http://x.example/", meta={"n": n})).key for n in (1, 2, 1)]
    assert keys == ["01", "02", "01"]


def test_methods_are_found_under_whatever_name():
    """A method that the class has under another name, as a decorator may leave it."""
    odd = Shop()
    odd.detail.__func__.__name__ = "wrapped"
    try:
        link = Codec(odd, Spelling()).link(Request("http://x.example/", odd.detail))
        assert CODEC.request(leased(link)).callback in (SHOP.detail, SHOP.renamed)
    finally:
        odd.detail.__func__.__name__ = "detail"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"callback": print}, "its callback print is no method of the spider shop"),
        ({"errback": Shop().detail}, "its errback Shop.detail is no method of the spider shop"),
        ({"meta": {"x": [object()]}}, "meta['x'] is a object, which cannot be kept"),
        ({"cb_kwargs": {"item": Shop}}, "cb_kwargs['item'] is a type, which cannot be kept"),
        ({"url": "ftp://x.example/"}, "not an http(s) URL"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_a_reason(given, complaint):
    """One line, which names the request and what is wrong with it."""
    with pytest.raises(NotStorable) as raised:
        CODEC.link(Request(**{"url": "http://x.example/", **given}))
    assert str(raised.value).startswith("<GET ")
    assert complaint in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "stored",
    [
        {"callback": "__init__"},
        {"callback": "not_a_method"},
        {"callback": "gone"},
        {"kind": "subprocess:Popen"},
        {"kind": "scrapy:Spider"},
        {"unknown": 1},
        {"headers": 3},
        [],
    ],
)
def test_what_others_have_written_makes_no_other_calls(stored):
    """Callbacks are methods of the spider, classes are requests."""
    with pytest.raises(NotStorable):
        CODEC.request(leased(Link("http://x.example/", meta={"scrapy": stored})))


def test_a_plain_retry_is_told_from_a_request_that_was_changed():
    """The former is another attempt, the latter a request of its own."""
    request = Request("http://x.example/", SHOP.detail, meta={"download_slot": "x", "page": object()})
    again = request.replace(dont_filter=True, priority=-1, meta={**request.meta, "retry_times": 1})
    assert is_plain_retry(request, again)
    assert not is_plain_retry(request, again.replace(url="http://x.example/other"))
    assert not is_plain_retry(request, again.replace(meta={**again.meta, "proxy": "http://p.example"}))
    assert not is_plain_retry(request, request.copy())
