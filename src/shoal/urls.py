"""One spelling of a URL, its fingerprint, and the parts that politeness and robots.txt go by.

Parsing and joining are those of browsers (the WHATWG URL Standard, by upa_url). On top of it come only
the rewrites that RFC 3986 section 6.2 calls equivalent for every server, and one more: an empty query is
left out ("/a?" is "/a"), though section 6.2.3 lets a server tell them apart; none is known that does.
What merely tends to be the same page (order of parameters, tracking parameters) is up to `Spelling`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote_from_bytes, unquote_plus

from msgspec import Struct
from upa_url import URL
from xxhash import xxh3_64_digest

NORMALIZER_VERSION = 1
"""Changes whenever `normalize` spells any URL differently: old fingerprints no longer fit then."""

MAX_URL_LENGTH = 8192
"""Longer URLs are dropped: they come from traps and broken pages, and servers refuse them."""

TRACKING_PARAMS = (
    "utm_*", "fbclid", "gclid", "gclsrc", "gbraid", "wbraid", "gad_source", "srsltid", "_ga", "_gl", "dclid",
    "msclkid", "yclid", "ysclid", "twclid", "ttclid", "li_fat_id", "igshid", "igsh", "mc_cid", "mc_eid",
    "mkt_tok", "_hsenc", "_hsmi", "vero_id", "oly_anon_id", "oly_enc_id", "wickedid", "_openstat",
)  # fmt: skip
"""For `Spelling.drop_params`: parameters that tell where a visitor came from and not which page it is."""


SESSION_PARAMS = (
    "jsessionid", "phpsessid", "aspsessionid*", "sessionid", "session_id", "sessid", "cfid", "cftoken",
    "oscsid", "zenid",
)  # fmt: skip
"""For `Spelling.drop_sessions`: parameters, in any case of letters, that name the session of a visitor."""


class Spelling(Struct, frozen=True):
    """Rewrites that may merge different pages, so they are off unless the user knows the site."""

    sort_query: bool = False
    """Sort the parameters by name; those of one name keep their order."""
    drop_params: tuple[str, ...] = ()
    """Names of parameters to leave out; `*` stands for any characters."""
    drop_sessions: bool = False
    """Leave out session ids: SESSION_PARAMS, `sid` and `s` with a long value; `;jsessionid=` and the like in
    the path; the /(S(...)) of ASP.NET."""


DEFAULT = Spelling()


class _Url(Protocol):
    @property
    def href(self) -> str: ...
    @property
    def username(self) -> str: ...
    @property
    def password(self) -> str: ...


class _Parse(Protocol):
    def __call__(self, url: str, base: _Url | None = None, /) -> _Url | None: ...


_parse: _Parse = URL.parse


def normalize(url: str, base: str | None = None, spelling: Spelling = DEFAULT) -> str | None:
    """The one spelling of an http(s) URL, without fragment; a relative one is joined to `base`.

    A user and a password are dropped: they are no part of what a page is, would be kept and logged with it,
    and a page must not choose whom the crawler claims to be.
    None if it is not a URL to fetch: another scheme, not parsable, no host, over MAX_URL_LENGTH.
    Never raises. The result is ASCII, and normalizing it again changes nothing.
    """
    if base is not None:
        return Base(base, spelling).join(url)
    return _normalized(url, None, spelling)


class Base:
    """A base URL, parsed once for all the links of its page."""

    __slots__ = ("_charset", "_spelling", "_url")

    def __init__(self, url: str, spelling: Spelling = DEFAULT, charset: str = "utf-8") -> None:
        """charset: the page's encoding, as a Python codec; browsers write the query of a link in it."""
        self._url = _parsed(url)
        self._spelling = spelling
        self._charset = None if charset.lower().startswith("utf") else charset

    def join(self, href: str) -> str | None:
        """The normalized URL that an attribute's value means here, or None as for `normalize`."""
        if self._url is None:
            return None
        if self._charset is not None and not href.isascii():
            href = _query_in_charset(href, self._charset)
        return _normalized(href, self._url, self._spelling)


def fingerprint(url: str, key: str = "") -> int:
    """The identity of a normalized URL: signed 64 bits (XXH3), the same on every machine.

    `key` sets apart what has the same URL.
    """
    identity = url.encode()
    if key:
        identity += b"\0" + key.encode("utf-8", "surrogatepass")  # a normalized URL holds no NUL
    return digest(identity)


def digest(content: bytes) -> int:
    """The identity of some bytes: signed 64 bits (XXH3), the same on every machine."""
    return int.from_bytes(xxh3_64_digest(content), "big", signed=True)


def host_key(url: str) -> str:
    """The politeness group of a normalized URL: its host, with the port unless it is the scheme's own."""
    return url[8 if url[4] == "s" else 7 : url.index("/", 8)]


def origin(url: str) -> str:
    """Scheme, host and port of a normalized URL: "http://example.com:8080"."""
    return url[: url.index("/", 8)]


def has_credentials(text: str) -> bool:
    """Whether a URL, not normalized yet, names a user or a password."""
    parsed = _parsed(text)
    return parsed is not None and bool(parsed.username or parsed.password)


def without_credentials(text: str) -> str:
    """What may or may not be a URL, as it can be shown and kept: all that might be a password is masked."""
    at = text.rfind("@")
    start = _AUTHORITY.search(text, 0, at) if at >= 0 else None
    return f"{text[: start.end()]}***{text[at:]}" if start else text


def path_query(url: str) -> str:
    """What follows the origin of a normalized URL: "/a?b=c". Rules of robots.txt are matched with it."""
    return url[url.index("/", 8) :]


def respell_escapes(text: str) -> str:
    """Percent-encoding as `normalize` writes it: upper-case digits, and none for letters, digits and `-._~`.

    RFC 3986 sections 6.2.2.1 and 6.2.2.2. This cannot make dot segments: the parser has resolved those
    written with %2E. Behind a stray `%` nothing is decoded, as "%%32%35" would become the escape "%%25".
    """
    return _RESPELLED.sub(_respell, text)


class Wildcard(Struct, frozen=True):
    """A pattern in which `*` stands for any characters and all else for itself."""

    head: str
    pieces: tuple[str, ...]
    tail: str | None
    """None if there is no `*`: then the head is all."""

    @classmethod
    def of(cls, pattern: str) -> Wildcard:
        """The pattern as written by a user."""
        head, *rest = pattern.split("*")
        return cls(head, tuple(filter(None, rest[:-1])), rest[-1] if rest else None)

    def matches(self, text: str) -> bool:
        """Whether it matches the whole text. The leftmost place of each piece will do, so this is linear."""
        if self.tail is None:
            return text == self.head
        if not (text.startswith(self.head) and text.endswith(self.tail)):
            return False
        at = len(self.head)
        for piece in self.pieces:
            at = text.find(piece, at)
            if at < 0:
                return False
            at += len(piece)
        return at <= len(text) - len(self.tail)


def _normalized(text: str, base: _Url | None, spelling: Spelling) -> str | None:
    parsed = _parsed(text, base)
    if parsed is None:
        return None
    url = parsed.href
    if not url.startswith(_SCHEMES):
        return None
    if "#" in url:
        url = url[: url.index("#")]
    if "@" in url:
        url = _without_credentials(url)
    if "%" in url:
        url = respell_escapes(url)
    if "?" in url:
        url = _with_query_spelled(url, spelling)
    elif spelling.drop_sessions:
        url = _SESSION_IN_PATH.sub("", url)
    return url if len(url) <= MAX_URL_LENGTH else None


_SCHEMES = ("http://", "https://")


# --- parsing whatever a page may hold -----------------------------------------------------------

_LONG = 1024
"""Longer than any host with its credentials, and than nearly every URL."""
_LONG_HOST = re.compile(rf"(?:https?:[/\\]*|[/\\]{{2,}})[^/\\?#]{{{_LONG}}}", re.IGNORECASE)
_AUTHORITY = re.compile(r"https?:[/\\]*+|[/\\]{2}[/\\]*+", re.IGNORECASE)
_C0_OR_SPACE = "".join(map(chr, range(0x21)))
_NO_TAB_OR_NEWLINE = str.maketrans("", "", "\t\n\r")


def _parsed(text: str, base: _Url | None = None) -> _Url | None:
    if len(text) > _LONG:
        text = _essence(text)
        if len(text) > MAX_URL_LENGTH or _LONG_HOST.match(text):  # IDNA costs the square of a host's length
            return None
    try:
        return _parse(text, base)
    except TypeError:  # lone surrogates: browsers replace them before they parse (Web IDL, USVString)
        units = text.encode("utf-16-le", "surrogatepass")
        return _parse(units.decode("utf-16-le", "replace"), base)


def _essence(text: str) -> str:
    """A long href without what the parser ignores (WHATWG URL 4.4 steps 1 and 3) and without fragment."""
    return text.strip(_C0_OR_SPACE).translate(_NO_TAB_OR_NEWLINE).partition("#")[0]


_NON_ASCII = re.compile(r"[^\x00-\x7f]+")
_SAFE_IN_QUERY = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) not in "\"#<>'&;")


def _query_in_charset(href: str, charset: str) -> str:
    """The href with its query percent-encoded from the page's encoding (WHATWG URL 5.1, 4.4 query state)."""

    def escape(run: re.Match[str]) -> str:
        # "&#8224;" for what the encoding lacks, escaped: no other byte of a non-ASCII run is "&" or ";"
        return quote_from_bytes(run[0].encode(charset, "xmlcharrefreplace"), _SAFE_IN_QUERY)

    path, mark, query = href.partition("?")
    try:
        return path + mark + _NON_ASCII.sub(escape, query)
    except (LookupError, ValueError):  # not an encoding that a page can have
        return href


# --- spelling -----------------------------------------------------------------------------------

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_RESPELLED = re.compile(
    "%(?<!%%)(?<!%[0-9A-Fa-f]%)(?:"  # not behind a stray percent sign, which the digits would complete
    "[a-f][0-9A-Fa-f]|[0-9A-F][a-f]"
    "|2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])"
)
"""The escapes that have another spelling; the rest need no look."""


def _respell(escape: re.Match[str]) -> str:
    char = chr(int(escape[0][1:], 16))
    return char if char in _UNRESERVED else escape[0].upper()


def _with_query_spelled(url: str, spelling: Spelling) -> str:
    if spelling is DEFAULT:
        return url if url.index("?") < len(url) - 1 else url[:-1]
    page, _, query = url.partition("?")
    params = query.split("&")
    if spelling.drop_sessions:
        page = _SESSION_IN_PATH.sub("", page)
        params = [param for param in params if not _is_session(param)]
    if spelling.drop_params:
        params = [param for param in params if not _is_dropped(_name(param), spelling.drop_params)]
    if spelling.sort_query and len(params) > 1:
        params.sort(key=_name)
    return f"{page}?{query}" if (query := "&".join(params)) else page


@lru_cache(maxsize=256)
def _is_dropped(name: str, patterns: tuple[str, ...]) -> bool:
    return any(Wildcard.of(pattern).matches(name) for pattern in patterns)


_SESSION_IN_PATH = re.compile(
    r";(?:jsessionid|phpsessid|sessionid|session_id|sessid|sid)=[^/;]*|/\((?:[A-Z]\([0-9a-z_-]+\))+\)(?=/)",
    re.IGNORECASE,
)
_LONG_ID = re.compile("[0-9A-Za-z]{16,}")


def _is_session(param: str) -> bool:
    name, _, value = param.partition("=")
    name = name.lower()
    return _is_dropped(name, SESSION_PARAMS) or (name in {"sid", "s"} and bool(_LONG_ID.fullmatch(value)))


def _name(param: str) -> str:
    name = param.partition("=")[0]
    return unquote_plus(name) if "%" in name or "+" in name else name


def _without_credentials(url: str) -> str:
    start, end = url.index("//") + 2, url.index("/", 8)
    return url[:start] + url[url.rfind("@", start, end) + 1 or start :]
