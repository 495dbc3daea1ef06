"""What an invocation brings: an event with URLs to add, in whatever envelopes it travelled. Pure.

    {"urls": ["https://a.example/", {"url": "https://b.example/", "priority": 9}], "priority": 3}

This is the order itself. A lone `{"url": ...}`, a list of URLs, and a text with one URL a line mean the same.

| envelope | where the order is |
| --- | --- |
| Amazon SQS | `Records[].body`; each message succeeds or fails on its own |
| Amazon SNS | `Records[].Sns.Message` |
| Amazon EventBridge | `detail` |
| Pub/Sub, pushed | `message.data`, in base64 |
| CloudEvents 1.0, structured | `data`, or `data_base64` |
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from shoal.errors import ShoalError
from shoal.intake import Entry, link_of
from shoal.model import Link
from shoal.urls import Spelling, without_credentials

MOST_ENVELOPES = 4  # one in the other, such as a Pub/Sub message in a CloudEvent
MOST_SHOWN = 200


class BadEvent(ShoalError, ValueError):  # noqa: N818 - named for what it says
    """An event that cannot be read: nothing of it was added. The message says what is wrong with it."""


class Rejected(Struct, frozen=True):
    """A message that cannot be read, among others that can."""

    message_id: str
    reason: str


class Order(Struct, frozen=True):
    """What an event asks for."""

    links: tuple[Link, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    is_batch: bool = False
    """Whether it came as messages that succeed or fail on their own."""


def read(event: object, spelling: Spelling) -> Order:
    """What an event asks for; without an order: nothing but to work. Raises BadEvent."""
    content = _unwrapped(event)
    if isinstance(content, Mapping) and "Records" in content:
        return _batch(content["Records"], spelling)
    return Order(links=_links(content, spelling))


def _batch(records: object, spelling: Spelling) -> Order:
    links: list[Link] = []
    rejected: list[Rejected] = []
    messages = [_message(record) for record in _list(records)]
    is_queue = any(message_id for message_id, _ in messages)
    for message_id, content in messages:
        try:
            links += _links(_unwrapped(content), spelling)
        except BadEvent as error:
            if not is_queue:
                raise
            rejected.append(Rejected(message_id, f"{error}: {_shown(content)}"))
    return Order(tuple(links), tuple(rejected), is_queue)


def _list(records: object) -> list[object]:
    if not isinstance(records, list):
        raise BadEvent("Records is not a list")
    return records


def _message(record: object) -> tuple[str, object]:
    """(The id, if it can fail on its own, what it says) of one record."""
    match record:
        case {"eventSource": "aws:sqs", "messageId": str(message_id), "body": body}:
            return message_id, body
        case {"EventSource": "aws:sns", "Sns": {"Message": message}}:
            return "", message
    raise BadEvent(f"a record that is of neither SQS nor SNS: {_shown(record)}")


def _unwrapped(content: object) -> object:
    """Out of its envelopes; texts that hold JSON are read."""
    for _ in range(MOST_ENVELOPES):
        match content:
            case bytes() | str():
                content = _read_text(content)
            case {"detail-type": _, **rest}:
                content = rest.get("detail")
            case {"message": {**message}}:
                content = _decoded(message.get("data") or "")
            case {"specversion": _, "data_base64": data}:
                content = _decoded(data)
            case {"specversion": _, **rest}:
                content = rest.get("data")
            case _:
                break
    return content


def _decoded(data: object) -> bytes:
    try:
        return base64.b64decode(data, validate=True)  # type: ignore[arg-type] # which is what it finds out
    except (binascii.Error, TypeError, ValueError):
        raise BadEvent(f"data is not base64: {_shown(data)}") from None


def _read_text(text: bytes | str) -> object:
    """What JSON says, else one URL a line."""
    try:
        plain = text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError:
        raise BadEvent("the event is not UTF-8") from None
    if plain.strip() == "null":
        return None
    if not plain.lstrip().startswith(("{", "[", '"')):
        return [line.strip() for line in plain.splitlines() if line.strip()]
    try:
        return msgspec.json.decode(plain)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadEvent(f"the event is not JSON: {error}") from None


class _Order(Struct, forbid_unknown_fields=True):
    urls: list[str | Entry] = []
    priority: Annotated[int, msgspec.Meta(ge=0, le=9)] = 0


def _links(content: object, spelling: Spelling) -> tuple[Link, ...]:
    order = _order(content)
    return tuple(_link(entry, spelling, order.priority) for entry in order.urls)


def _order(content: object) -> _Order:
    given: Any = content or {}
    if isinstance(given, Mapping) and "url" in given:
        given = [given]
    if isinstance(given, list):
        given = {"urls": given}
    try:
        return msgspec.convert(given, _Order)
    except msgspec.ValidationError as error:
        raise BadEvent(
            f"{error}; an event is like " + '{"urls": ["https://site.example/"], "priority": 9}, or empty'
        ) from None


def _link(entry: str | Entry, spelling: Spelling, priority: int) -> Link:
    given = Entry(url=entry) if isinstance(entry, str) else entry
    try:
        return link_of(given, spelling, priority)
    except ValueError as error:
        raise BadEvent(f"{error}: {_shown(given.url)}") from None


def _shown(content: object) -> str:
    """The beginning of it, in one line."""
    text = content if isinstance(content, str) else repr(content)
    return ascii(without_credentials(text)[:MOST_SHOWN])
