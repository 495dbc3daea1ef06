"""Links as other programs write them: a URL, or a JSON object with url, priority, depth, meta."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from shoal.model import Link
from shoal.urls import DEFAULT, MAX_URL_LENGTH, Spelling, normalize


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A link in the words of others."""

    url: str
    priority: Annotated[int, msgspec.Meta(ge=0, le=9)] | None = None
    depth: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    meta: dict[str, object] | None = None


def read_link(entry: bytes, spelling: Spelling = DEFAULT, priority: int = 0) -> Link:
    """One entry of an inbox, or one line of a file; `priority` for those that do not name one.

    Raises ValueError with the reason why it is no link.
    """
    text = entry.strip()
    is_json = text.startswith(b"{")
    try:  # not strict: some programs know no integers, and write 9.0 or "9"
        given = msgspec.json.decode(text, type=Entry, strict=False) if is_json else Entry(url=text.decode())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return link_of(given, spelling, priority)


def link_of(given: Entry, spelling: Spelling = DEFAULT, priority: int = 0) -> Link:
    """The same of an entry that was read already. Raises ValueError for what is no URL."""
    url = normalize(given.url, None, spelling)
    if url is None and len(given.url) > MAX_URL_LENGTH:
        raise ValueError(f"longer than {MAX_URL_LENGTH:,} characters")
    if url is None:
        raise ValueError("not an http(s) URL")
    wanted = priority if given.priority is None else given.priority
    return Link(url=url, priority=wanted, depth=given.depth, meta=given.meta)


def spelling_of(description: Mapping[str, object]) -> Spelling:
    """How a crawl spells its URLs, from what its frontier says of it."""
    known = {name: description[name] for name in Spelling.__struct_fields__ if name in description}
    return msgspec.convert(known, Spelling)
