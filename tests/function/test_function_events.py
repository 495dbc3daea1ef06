"""What events say, in all their envelopes: pure."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.function.events import BadEvent, read
from shoal.model import Link
from shoal.urls import DEFAULT

URL = "http://a.test/"
ORDER = {"urls": [URL, {"url": f"{URL}b", "priority": 0, "depth": 2, "meta": {"n": 1}}], "priority": 9}
LINKS = (Link(URL, priority=9), Link(f"{URL}b", depth=2, meta={"n": 1}))


def _encoded(content: object) -> str:
    return base64.b64encode(json.dumps(content).encode()).decode()


def _sqs(*bodies: str) -> dict[str, Any]:
    return {
        "Records": [
            {"eventSource": "aws:sqs", "messageId": f"m{number}", "body": body}
            for number, body in enumerate(bodies)
        ]
    }


CLOUD_EVENT = {"specversion": "1.0", "type": "t", "source": "s", "id": "1"}


@pytest.mark.parametrize(
    "event",
    [
        ORDER,
        json.dumps(ORDER),
        f"\n {json.dumps(ORDER)}".encode(),
        _sqs(json.dumps(ORDER)),
        {"Records": [{"EventSource": "aws:sns", "Sns": {"Message": json.dumps(ORDER)}}]},
        {"version": "0", "detail-type": "Scheduled Event", "source": "aws.events", "detail": ORDER},
        {"message": {"data": _encoded(ORDER), "messageId": "7", "attributes": {}}, "subscription": "s"},
        CLOUD_EVENT | {"data": {"message": {"data": _encoded(ORDER)}}},
        CLOUD_EVENT | {"data": ORDER},
        CLOUD_EVENT | {"data_base64": _encoded(ORDER)},
    ],
    ids=["direct", "text", "bytes", "SQS", "SNS", "EventBridge", "push", "CloudEvent", "data", "data_base64"],
)
def test_an_order_is_found_in_its_envelopes(event: object) -> None:
    """With its URLs, its priority, and what single URLs say otherwise."""
    assert read(event, DEFAULT).links == LINKS


@pytest.mark.parametrize(
    "event",
    [{"url": URL}, [URL], [{"url": URL}], URL, f"{URL}\n", json.dumps(URL), json.dumps([URL]), _sqs(URL)],
)
def test_single_urls_need_no_order(event: object) -> None:
    """As a text, an object, or in a list."""
    assert read(event, DEFAULT).links == (Link(URL),)


def test_a_text_may_have_a_url_on_each_line() -> None:
    """Lines without one do not count."""
    assert read(f"{URL}\r\n\n  {URL}b\n", DEFAULT).links == (Link(URL), Link(f"{URL}b"))


@pytest.mark.parametrize(
    "event",
    [
        *(None, {}, [], "", b"", " \n", "null", "{}", b"[]", {"urls": []}, _sqs()),
        {"detail-type": "Scheduled Event", "detail": {}},
        {"message": {"attributes": {"a": "b"}, "messageId": "7"}},
        {"message": {"data": "e30="}},
        CLOUD_EVENT,
    ],
)
def test_an_event_without_an_order_adds_nothing(event: object) -> None:
    """It only starts a slice."""
    assert read(event, DEFAULT).links == ()


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({"urls": URL}, "Expected `array`, got `str` - at `$.urls`; an event is like"),
        ({"urls": [1]}, "Expected `str | object`, got `int` - at `$.urls[0]`"),
        ({"urls": [{"url": URL, "prio": 1}]}, "unknown field `prio`"),
        ({"urls": [URL], "priority": 10}, "Expected `int` <= 9 - at `$.priority`"),
        ({"urls": [URL], "priority": True}, "Expected `int`, got `bool`"),
        ({"url": URL, "urls": []}, "unknown field `urls`"),
        (7, "Expected `object`, got `int`"),
        (["mailto:a@b.test"], "not an http(s) URL: 'mailto:a@b.test'"),
        (["ftp://me:secret@b.test/"], "not an http(s) URL: 'ftp://***@b.test/'"),
        ("{'urls': []}", "the event is not JSON"),
        ("[" * 100_000, "the event is not JSON"),
        (b"\xff\xfe", "the event is not UTF-8"),
        ({"message": {"data": "a"}}, "data is not base64: 'a'"),
        ({"message": {"data": 5}}, "data is not base64: '5'"),
        ({"Records": {}}, "Records is not a list"),
        ({"Records": [{"eventSource": "aws:s3", "s3": {}}]}, "of neither SQS nor SNS"),
        ({"Records": [{"EventSource": "aws:sns", "Sns": {"Message": "x"}}]}, "not an http(s) URL: 'x'"),
    ],
)
def test_a_bad_event_says_what_is_wrong(event: object, says: str) -> None:
    """In one line, without secrets, as a ValueError."""
    with pytest.raises(BadEvent) as raised:
        read(event, DEFAULT)
    assert isinstance(raised.value, ValueError)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_messages_of_a_queue_fail_on_their_own() -> None:
    """Those that can be read are added all the same."""
    order = read(_sqs(URL, "nonsense", json.dumps({"url": f"{URL}b"}), "{}", "{"), DEFAULT)
    assert order.is_batch
    assert [link.url for link in order.links] == [URL, f"{URL}b"]
    assert [(each.message_id, each.reason.partition(":")[0]) for each in order.rejected] == [
        ("m1", "not an http(s) URL"),
        ("m4", "the event is not JSON"),
    ]


NAMES = (
    *("urls", "url", "priority", "Records", "message", "data", "body", "detail-type", "detail"),
    *("specversion", "data_base64", "eventSource", "messageId", "Sns"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=12,
)


@given(JSON | st.binary())
def test_whatever_comes_is_read_or_refused(event: object) -> None:
    """No event raises anything else than BadEvent, whether it comes as an object or as JSON."""
    for form in (event, event if isinstance(event, bytes) else json.dumps(event)):
        with suppress(BadEvent):
            read(form, DEFAULT)
