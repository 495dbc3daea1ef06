"""The pages that a sitemap or a feed lists: bytes of one document in, entries out. Nothing is fetched here.

Read are the forms of sitemaps.org (urlset, sitemapindex, text with a URL on each line), RSS and Atom.

XML parsers give up at the first mistake, and the most common one stands in the URLs themselves: a bare `&`.
So markup is only followed as far as it takes to tell which text belongs to which entry, in one pass that
takes any text. It knows no DTD: what a document declares is never expanded, and nothing outside is opened.
A URL with a part that is not known (such an entity, bytes that are not text) is left out: without that part
it would be another URL.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from html.entities import html5
from itertools import islice

from msgspec import Struct

from shoal import encoding as encodings
from shoal.decode import Body, FetchError
from shoal.model import PRIORITIES
from shoal.urls import Base

MAX_BYTES = 50 * 1024 * 1024
"""As much of a document, uncompressed, as is read: all that sitemaps.org allows. The rest is ignored."""

MAX_ENTRIES = 200_000
"""As many URLs of one document as are read, doubles included: four times what sitemaps.org allows."""

DEFAULT_PRIORITY = 0.5
"""Of a page for which none is given, says sitemaps.org."""

_MAX_TOKENS = 4_000_000  # tags, or lines: more than are in MAX_BYTES of anything honest
_MAX_DATE_LENGTH = 64
_MAX_GZIP_LAYERS = 2  # one too many is a common mistake; there are files that unpack to themselves
_STEP_BYTES = 65_536
_PIECE_BYTES = 1_048_576  # of a document, as text at once

_GZIP = b"\x1f\x8b"
_UTF_16 = {b"<\0": "utf-16le", b"\0<": "utf-16be"}  # without a byte order mark: XML 1.0, appendix F
_HOLE = "\N{REPLACEMENT CHARACTER}"

_ROOTS = {
    "urlset": ("url", "sitemap"),
    "sitemapindex": ("url", "sitemap"),
    "rss": ("item",),
    "RDF": ("item",),
    "feed": ("entry",),
}
"""The names of root elements, and of the elements that are entries in them."""

_FIELDS = ("loc", "link", "guid", "lastmod", "pubDate", "updated", "priority")
_OWN_TEXT = ""

# Each part of it ends at the next "<", or for good: the time is linear in the text, whatever it is.
_TOKEN = re.compile(
    r"""(?:<(?P<close>/?)(?P<name>[^\s<>/!?]++)(?P<attributes>(?:[^<>"']++|"[^<"]*+"|'[^<']*+')*+)>"""
    r"|<!\[CDATA\[(?P<cdata>.*?)(?:\]\]>|\Z)"
    r"|<!--.*?(?:-->|\Z)"
    r"|(?P<stray><))?(?P<text>[^<]*+)",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""(?<!\S)([^\s=]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""")
_REFERENCE = re.compile(r"&(?:#[0-9]{1,9}|#[xX][0-9A-Fa-f]{1,8}|([A-Za-z_:][\w.:-]*+));")
_PRIORITY = re.compile(r"0?\.[0-9]{1,30}|1\.0{1,30}|[01]")
_ABSOLUTE = re.compile(r"https?://", re.IGNORECASE)
_LINE = re.compile(r"[^\r\n]++")
_MARKUP = re.compile(r"\s*+<")


class Entry(Struct, frozen=True):
    """A page that is listed."""

    url: str
    """Normalized (`shoal.urls.normalize`); a relative one is joined to the URL of the document."""
    lastmod: str | None = None
    """When it changed, as it stands there: W3C Datetime, in RSS an RFC 822 date, or what else they wrote.

    No crawl relies on it: it is often the time at which the sitemap was made.
    """
    priority: float | None = None
    """0.0 to 1.0, the higher the more important among the pages of its site."""


class Child(Struct, frozen=True):
    """A sitemap that an index names. It may well be the index itself."""

    url: str
    """Normalized, as that of an entry."""


class Sitemap(Struct, frozen=True):
    """What one document lists, in its order, each URL once."""

    links: tuple[Entry, ...] = ()
    children: tuple[str, ...] = ()
    """URLs of the sitemaps that an index names."""


def parse(body: bytes, url: str) -> Sitemap:
    """The entries of the document at `url`. Never raises: of broken ones, whatever can be made out.

    body: as fetched, content codings removed. If it is gzip (by its first bytes, whatever its name and type)
    that is taken off too. The encoding is that of the byte order mark or the XML declaration, else UTF-8 as
    sitemaps.org asks. HTML lists nothing.
    """
    links: dict[str, Entry] = {}
    children: dict[str, None] = {}
    for entry in entries(body, url):
        if isinstance(entry, Child):
            children.setdefault(entry.url)
        else:
            links.setdefault(entry.url, entry)
    return Sitemap(tuple(links.values()), tuple(children))


def entries(body: bytes, url: str) -> Iterator[Entry | Child]:
    """As `parse`, but one by one, and doubles are not left out."""
    base = Base(url)
    found = ((listing, href) for listing in _listings(*_unpacked(body)) for href in listing.hrefs)
    for listing, href in islice(found, MAX_ENTRIES):
        target = None if _HOLE in href else base.join(href)
        if target is not None and listing.kind == "sitemap":
            yield Child(target)
        elif target is not None:
            yield Entry(target, listing.lastmod, listing.priority)


def priority_of(value: float) -> int:
    """The priority 0..9 of shoal for one of a sitemap, 0.0..1.0: its first decimal, and 9 for 1.0.

    So the 0.5 of sitemaps.org for pages that name none becomes 5, and only 0.9 and 1.0 become equal.
    Values outside are taken for the nearest inside.
    """
    return min(int(min(max(0.0, value), 1.0) * 10), PRIORITIES[-1])


# --- bytes to text ------------------------------------------------------------------------------


def _unpacked(body: bytes) -> tuple[bytes, bool]:
    """A document without gzip, and whether its end is missing."""
    cut = False
    for _ in range(_MAX_GZIP_LAYERS):
        if body.startswith(_GZIP):
            body, short = _gunzipped(body)
            cut = cut or short
    cut = cut or len(body) > MAX_BYTES
    return body[:MAX_BYTES].lstrip(), cut


def _gunzipped(body: bytes) -> tuple[bytes, bool]:
    """What is in a gzip body, at most MAX_BYTES, and whether its end is missing."""
    unpacked = Body("gzip", limit_bytes=MAX_BYTES)
    try:
        for start in range(0, len(body), _STEP_BYTES):
            unpacked.feed(body[start : start + _STEP_BYTES])
        return unpacked.finish(), False
    except FetchError:
        return unpacked.so_far(), True


def _encoding(body: bytes) -> str:
    declared = encodings.in_xml_declaration(body) or "utf-8"
    return _UTF_16.get(body[:2]) or encodings.of_text(body, declared)


def _texts(body: bytes) -> Iterator[str]:
    """The text, in pieces if it is UTF-8: as a whole it may take four times the memory of the bytes."""
    encoding, start = _encoding(body), 0
    while encoding == "utf-8" and len(body) - start > _PIECE_BYTES:
        end = body.rfind(b"<", start + 1, start + _PIECE_BYTES)
        if end < 0:
            break
        yield encodings.decode(body[start:end], encoding)
        start = end
    yield encodings.decode(body[start:], encoding)


# --- text to entries ----------------------------------------------------------------------------


class _Listing(Struct):
    """One entry as it was read."""

    kind: str
    """The name of its element, without prefix."""
    fields: dict[str, list[str]] = {}
    """The texts of those children that are among _FIELDS; _OWN_TEXT is that of the element itself."""

    @property
    def hrefs(self) -> list[str]:
        """Where it leads. Several links of one item lead to forms of the same page: the first will do."""
        hrefs = self.fields.get("loc") or self.fields.get("link", [])[:1]
        named = self.fields.get("guid") or self.fields.get(_OWN_TEXT) or []
        return hrefs or [text for text in named if _ABSOLUTE.match(text)]

    @property
    def lastmod(self) -> str | None:
        text = self._first("lastmod") or self._first("pubDate") or self._first("updated")
        return text if text and len(text) <= _MAX_DATE_LENGTH else None

    @property
    def priority(self) -> float | None:
        text = self._first("priority")
        return float(text) if _PRIORITY.fullmatch(text) else None

    def _first(self, name: str) -> str:
        return self.fields.get(name, ("",))[0]


def _listings(body: bytes, cut: bool) -> Iterator[_Listing]:
    """The entries of a document. Only of text does it matter whether it is cut: elements end with a tag."""
    tokens = islice(_tokens(_texts(body)), _MAX_TOKENS)
    root = next((token["name"] for token in tokens if _local(token["name"]) in _ROOTS), None)
    if root:
        yield from _in_markup(tokens, _Outline(root))
        return
    text = encodings.decode(body, _encoding(body))
    if not _MARKUP.match(text):
        yield from _in_lines(text[: max(text.rfind("\n"), text.rfind("\r")) + 1] if cut else text)


def _tokens(texts: Iterator[str]) -> Iterator[re.Match[str]]:
    """The tokens of a text that comes in pieces, as if it came as a whole."""
    rest = ""
    for text in texts:
        text = rest + text + _as_much(texts, len(rest))  # so that what does not end is not read too often
        rest = ""
        for token in _TOKEN.finditer(text):
            if token.end() == len(text):  # there may be more of it
                rest = token[0]
                break
            yield token
    yield from _TOKEN.finditer(rest)


def _as_much(texts: Iterator[str], length: int) -> str:
    """The next pieces: at least so many characters, if there are."""
    pieces: list[str] = []
    while length > 0 and (text := next(texts, "")):
        pieces.append(text)
        length -= len(text)
    return "".join(pieces)


def _in_lines(text: str) -> Iterator[_Listing]:
    for line in islice(_LINE.finditer(text), _MAX_TOKENS):
        href = line[0].strip()
        if _ABSOLUTE.match(href):
            yield _Listing("url", {"loc": [href]})


def _in_markup(tokens: Iterator[re.Match[str]], outline: _Outline) -> Iterator[_Listing]:
    for token in tokens:
        close, name, attributes, cdata, stray, text = token.groups()
        if name:
            ended = outline.tag(close, name, attributes)
            if ended:
                yield ended
        if outline.reads_text:
            outline.text((cdata or stray or "") + _resolved(text))
    if outline.listing:
        yield outline.listing


class _Outline:
    """Where in the document we are, as far as entries go.

    Nothing is kept of what lies outside of entries. Within one, its children are told from what is deeper by
    counting tags; the count starts afresh with each entry, so that a mistake costs no more than one.
    """

    def __init__(self, root: str) -> None:
        local = _local(root)
        prefix = "" if local == "RDF" else root.removesuffix(local)
        self._entries = {prefix + name: name for name in _ROOTS[local]}
        self._fields = {prefix + name: name for name in _FIELDS}
        self.listing: _Listing | None = None
        self._element = ""  # the tag of the listing
        self._depth = 0  # 1 in a child of it
        self._field: str | None = None  # what the text is read for
        self._texts: list[str] = []

    @property
    def reads_text(self) -> bool:
        """Whether text at this place counts."""
        return self._field is not None

    def text(self, text: str) -> None:
        """Some more of the text at this place."""
        self._texts.append(text)

    def tag(self, close: str, name: str, attributes: str) -> _Listing | None:
        """Any tag. Returns the entry that ends with it."""
        self._end_text()
        ended = self._close(name) if close else self._open(name, attributes)
        if self.listing and not self._depth:
            self._field = _OWN_TEXT
        return ended

    def _open(self, name: str, attributes: str) -> _Listing | None:
        empty = attributes.endswith("/")
        if not self._depth and name in self._entries and not empty:
            ended, self.listing, self._element = self.listing, _Listing(self._entries[name]), name
            return ended
        field = self._fields.get(name) if self.listing and not self._depth else None
        if field == "link":
            self._add(field, _href(attributes))
        if self.listing and not empty:
            self._depth += 1
            self._field = field
        return None

    def _close(self, name: str) -> _Listing | None:
        if name != self._element:
            self._depth = max(self._depth - 1, 0)
            return None
        ended, self.listing, self._depth = self.listing, None, 0
        return ended

    def _end_text(self) -> None:
        """Whatever tag comes, it ends the field's text: what is nested in a URL is no part of it."""
        if self._field is not None:
            self._add(self._field, "".join(self._texts))
            self._texts.clear()
            self._field = None

    def _add(self, field: str, text: str) -> None:
        text = text.strip()
        if text and self.listing:
            self.listing.fields.setdefault(field, []).append(text)


def _local(name: str | None) -> str:
    """The name of a tag without namespace prefix."""
    return (name or "").rpartition(":")[2]


def _href(attributes: str) -> str:
    """Where a link of Atom leads, if that is the page itself (RFC 4287 section 4.2.7.2)."""
    found = {name: double or single for name, double, single in _ATTRIBUTE.findall(attributes)}
    return _resolved(found.get("href", "")) if found.get("rel", "alternate") == "alternate" else ""


def _resolved(text: str) -> str:
    """Text with its references resolved: those of XML and HTML. An ampersand that starts none is one."""
    return _REFERENCE.sub(_referenced, text) if "&" in text else text


def _referenced(reference: re.Match[str]) -> str:
    name = reference[1]
    return html5.get(f"{name};", _HOLE) if name else html.unescape(reference[0])
