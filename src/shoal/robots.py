"""What a site allows in its robots.txt (RFC 9309): bytes in, rules out. Nothing is fetched here.

`from_answer` turns the answer for /robots.txt into `Rules`, or into a Failure that says: not now, ask
again later. `Rules.allows` then judges every URL of the same scheme, host and port.
"""

from __future__ import annotations

import re
from typing import TypeAlias

from msgspec import Struct

from shoal.model import Failure, Response
from shoal.urls import Wildcard

MAX_BYTES = 500 * 1024
"""As much of a file as is read (RFC 9309, section 2.5); there is no use in fetching more."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some files begin with a part of it
_LINE = re.compile(
    r"^[ \t]*(user-agent|allow|disallow|crawl-delay|sitemap)"
    r"(?:[ \t]*:([^\n#]*)|[ \t]++([^\s#]++)(?=[ \t]*(?:#|$)))",  # the colon may be missing before one word
    re.MULTILINE | re.IGNORECASE,
)
_TOKEN = re.compile(r"\*(?!\S)|[^\s/,;()*]*", re.ASCII)
_COMPATIBLE = re.compile(r"Mozilla/[^(]*\(compatible; *([^;)]+)", re.IGNORECASE)
_DELAY = re.compile(r"[0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9}")

# How paths are compared (RFC 9309, section 2.2.2): each of these characters equals its percent-encoding, and
# all others but "/" and "?" are encoded. "*" and "$" too, where they stand for themselves (section 2.2.3).
_DECODED = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!&'()+,;=:@[]"
_COMPARABLE = re.compile(rf"[{re.escape(_DECODED)}/?]*+")
_OCTET = re.compile(rf"%([0-9A-Fa-f]{{2}})|[^{re.escape(_DECODED)}/?]")

_Line: TypeAlias = tuple[str, str]
"""Key, in lower case, and value."""

_Rank: TypeAlias = tuple[int, bool]
"""The length of a rule and whether it allows: the highest rank decides, so Allow wins among equals."""


class _Pattern(Struct, frozen=True):
    rank: _Rank
    wildcard: Wildcard
    has_query: bool
    """Has a "?", so it is compared with the query form of a URL."""


class Rules(Struct, frozen=True):
    """What one robots.txt says to one crawler."""

    crawl_delay_s: float | None = None
    """The least time between two fetches that it asks for, as it stands there: any number from 0."""
    sitemaps: tuple[str, ...] = ()
    """The values of the Sitemap lines, as they stand there; they concern all crawlers."""
    _prefixes: dict[str, _Rank] = {}
    _lengths: tuple[int, ...] = ()
    """Of the prefixes, longest first."""
    _patterns: tuple[_Pattern, ...] = ()
    """All other rules: with "*", "?" or "$". Highest rank first."""

    def allows(self, path_query: str) -> bool:
        """Whether a URL may be fetched, given its path and query ("/a/b?x=1").

        The longest rule that matches decides, Allow among equals (RFC 9309, section 2.2.2). Without one,
        and for /robots.txt itself, the answer is True.
        """
        if path_query == "/robots.txt" or not (self._prefixes or self._patterns):
            return True
        text = _comparable(_octets(path_query))
        best = self._longest_prefix(text)
        query_form = _query_form(text) if self._patterns else text
        for pattern in self._patterns:
            if pattern.rank <= best:
                break
            if pattern.wildcard.matches(query_form if pattern.has_query else text):
                return pattern.rank[1]
        return best[1]

    def _longest_prefix(self, text: str) -> _Rank:
        for length in self._lengths:
            rank = self._prefixes.get(text[:length])
            if rank:
                return rank
        return 0, True


ALLOW_ALL = Rules()
"""Everything may be fetched."""

DISALLOW_ALL = Rules(_prefixes={"": (1, False)}, _lengths=(0,))
"""Nothing may be fetched, except /robots.txt."""


def from_answer(answer: Response | Failure, agent: str) -> Rules | Failure:
    """What the answer for /robots.txt means (RFC 9309, section 2.3.1), redirects having been followed.

    - 2xx: the rules in the body; a page of HTML holds none.
    - 3xx, one redirect too many or to nowhere: unavailable, so everything is allowed.
    - 4xx: unavailable, everything is allowed. But 429 means "later" on any URL, so it counts as a 5xx.
    - 5xx and failures: unreachable, nothing may be fetched for now: a Failure of kind "robots".
    - Failures of kind "blocked", "dns", "refused" and "tls" concern the host and not the file: every page
      would meet them too. They are returned as they are, and so keep their name.
    """
    if isinstance(answer, Failure):
        if answer.kind in ("blocked", "dns", "refused", "tls"):
            return answer
        return Failure("robots", f"robots.txt: {answer.kind}: {answer.detail}", answer.elapsed_s)
    if 200 <= answer.status < 300:
        return parse(answer.body, agent)
    if 300 <= answer.status < 500 and answer.status != 429:
        return ALLOW_ALL
    return Failure("robots", f"robots.txt: HTTP {answer.status}", answer.elapsed_s)


def parse(body: bytes, agent: str) -> Rules:
    """The rules for `agent`, a product token ("shoal") or a User-Agent header that begins with it.

    In "Mozilla/5.0 (compatible; shoal/1.0; ...)" the token is shoal. Any bytes will do: lines that are
    not understood are passed over. A last line that MAX_BYTES cuts in two is not read: half a path
    would be another rule.
    """
    if len(body) >= MAX_BYTES:
        body = body[: max(body.rfind(b"\n", 0, MAX_BYTES), body.rfind(b"\r", 0, MAX_BYTES), 0)]
    text = body.lstrip(_BYTE_ORDER_MARK).decode("latin-1").replace("\r", "\n")
    lines = [(line[1].lower(), (line[2] or line[3] or "").strip(" \t")) for line in _LINE.finditer(text)]
    sitemaps = [value.encode("latin-1").decode(errors="replace") for key, value in lines if key == "sitemap"]
    return _compile(_group(lines, _agent_token(agent)), tuple(dict.fromkeys(filter(None, sitemaps))))


def _agent_token(agent: str) -> str:
    """The product token of a crawler's own name; "*" if it has none."""
    compatible = _COMPATIBLE.match(agent)
    return _token(_octets(compatible[1] if compatible else agent.strip())) or "*"


def _token(value: str) -> str:
    """The product token that a value begins with, in lower case, or "*" (RFC 9309, section 2.2.1)."""
    token = _TOKEN.match(value)
    return token[0].lower() if token else ""


def _group(lines: list[_Line], token: str) -> list[_Line]:
    """The rules and crawl delays for `token`: of the groups that name it, or else of those for "*".

    A group ends where a User-agent line follows a rule; no other line ends one (section 2.2.1).
    """
    found: dict[str, list[_Line]] = {}
    agents: set[str] = set()
    naming = False
    for key, value in lines:
        if key == "user-agent":
            agents = agents if naming else set()
            agents.add(_token(value))
            found.setdefault(_token(value), [])
            naming = True
        elif key != "sitemap":
            for agent in agents & {token, "*"}:
                found[agent].append((key, value))
            naming = naming and key == "crawl-delay"
    return found.get(token, found.get("*", []))


def _compile(group: list[_Line], sitemaps: tuple[str, ...]) -> Rules:
    delays = (float(value) for key, value in group if key == "crawl-delay" and _DELAY.fullmatch(value))
    prefixes: dict[str, _Rank] = {}
    patterns: set[_Pattern] = set()
    for key, value in group:
        if key == "crawl-delay" or not value:
            continue
        if "*" in value or "?" in value or value.endswith("$"):
            patterns.add(_pattern(value, key == "allow"))
        else:
            prefix = _comparable(value)
            rank = len(prefix), key == "allow"
            prefixes[prefix] = max(rank, prefixes.get(prefix, rank))
    return Rules(
        crawl_delay_s=next(delays, None),
        sitemaps=sitemaps,
        _prefixes=prefixes,
        _lengths=tuple(sorted({len(prefix) for prefix in prefixes}, reverse=True)),
        _patterns=tuple(sorted(patterns, key=lambda pattern: pattern.rank, reverse=True)),
    )


def _pattern(value: str, allow: bool) -> _Pattern:
    """The rule that a path pattern stands for. Its length counts wildcards, as the octets that they are."""
    path = value.removesuffix("$")
    anchored = path != value
    spelled = "*".join(_comparable(piece) for piece in path.split("*"))
    wildcard = Wildcard.of(_query_form(spelled) + ("" if anchored else "*"))
    return _Pattern((len(spelled) + anchored, allow), wildcard, "?" in value)


def _octets(text: str) -> str:
    """A character for each octet of the UTF-8 form, which is how a robots.txt is read."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("latin-1")


def _comparable(octets: str) -> str:
    """One spelling for all that are equivalent: decoded where that is allowed, else encoded in upper case."""
    return octets if _COMPARABLE.fullmatch(octets) else _OCTET.sub(_comparable_octet, octets)


def _comparable_octet(octet: re.Match[str]) -> str:
    char = chr(int(octet[1], 16)) if octet[1] else octet[0]
    return char if char in _DECODED else f"%{ord(char):02X}"


def _query_form(text: str) -> str:
    """`text` with the slashes after its "?" encoded: ?u=/a and ?u=%2Fa are the same, as section 2.2.2 shows.

    In a path they differ, and a pattern without a "?" does not know where it meets the query; so only
    patterns with one are compared like this.
    """
    path, mark, query = text.partition("?")
    return path + mark + query.replace("/", "%2F")
