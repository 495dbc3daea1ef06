"""Spider traps: URLs that lead on for ever. Which rule cuts a URL, and what shape it has. Decisions only.

| rule | cuts a URL |
| --- | --- |
| URL too long | longer than `max_url_length`: 2048, as sitemaps.org has it |
| repeated segments | in whose path the same segments come `max_repeats` times in a row, or one segment more |
| | often (of digits: more than twice as often); or in whose query one parameter comes more often |
| calendar | of a calendar, by its words and its date, more than `years_ahead` or `years_back` from now |
| too many of one shape | beyond `max_per_shape` of its host: /a/17/x-9?p=1 and /a/4/y-2?p=8 are /a/#/*?p |
| too many queries | beyond `max_per_path` with that path and any query |

The first three look at one URL alone. The last two need counts, which the frontier keeps.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from shoal.model import Link, Quota
from shoal.urls import digest, path_query

TOO_LONG = "trap: URL too long"
REPEATS = "trap: repeated segments"
CALENDAR = "trap: calendar"
SHAPE = "trap: too many of one shape"
QUERIES = "trap: too many queries"
DUPLICATE = "trap: duplicate content"


class Rules(Struct, frozen=True):
    """The rules in force; None means no such rule."""

    max_url_length: int | None = 2_048
    max_repeats: int | None = 3
    years_ahead: int | None = 5
    years_back: int | None = None
    max_per_shape: int | None = None
    max_per_path: int | None = None

    def cut(self, url: str, year: int) -> str:
        """The rule that cuts a normalized URL for its looks alone, in the year `year`; "" if none does."""
        if self.max_url_length is not None and len(url) > self.max_url_length:
            return TOO_LONG
        if self.max_repeats is not None and repeats(url, self.max_repeats):
            return REPEATS
        shown = calendar_year(url) if self.years_ahead is not None or self.years_back is not None else None
        if shown is not None:
            too_late = self.years_ahead is not None and shown > year + self.years_ahead
            too_early = self.years_back is not None and shown < year - self.years_back
            if too_late or too_early:
                return CALENDAR
        return ""

    def quotas(self, url: str) -> tuple[Quota, ...]:
        """What a normalized URL counts towards."""
        quotas = []
        if self.max_per_shape is not None and (form := shape(url)) is not None:
            quotas.append(Quota(SHAPE, digest(f"shape {form}".encode()), self.max_per_shape))
        if self.max_per_path is not None and "?" in url:
            path = path_query(url).partition("?")[0]
            quotas.append(Quota(QUERIES, digest(f"path {path}".encode()), self.max_per_path))
        return tuple(quotas)

    def marked(self, link: Link, year: int) -> Link:
        """The link, with what they say of it in the year `year`."""
        trap, quotas = self.cut(link.url, year), self.quotas(link.url)
        return replace(link, trap=trap, quotas=quotas) if trap or quotas else link


def repeats(url: str, most: int) -> bool:
    """Whether the path or the query of a normalized URL repeats itself: see the table."""
    if url.count("/") < most + 2 and url.count("&") < most:
        return False  # most URLs end here
    path, _, query = path_query(url).partition("?")
    return _path_repeats(path.split("/")[1:], most) or (
        query.count("&") >= most and max(Counter(query.split("&")).values()) > most
    )


def _path_repeats(segments: list[str], most: int) -> bool:
    if len(segments) - len(set(segments)) < most - 1:
        return False
    places: dict[str, list[int]] = {}
    for at, segment in enumerate(segments):
        if segment:
            places.setdefault(segment, []).append(at)
    for segment, found in places.items():
        if len(found) > (2 * most if segment.isdigit() else most):
            return True
    words = (found for segment, found in places.items() if len(found) >= most and not segment.isdigit())
    return any(_in_a_row(segments, found, most) for found in words)


def _in_a_row(segments: list[str], found: list[int], most: int) -> bool:
    """Whether what begins at the first of these places comes `most` times in a row."""
    start, step = found[0], found[1] - found[0]
    unit = segments[start : start + step]
    return segments[start : start + step * most] == unit * most


_WORD = "calendar|kalender|calendrier|agenda|schedule|date|day|week|month|year"
_MONTH, _DAY, _END = "(?:0[1-9]|1[0-2])", "[0-3][0-9]", "(?![0-9a-z-])"
_DATED = re.compile("[0-9]{4}[-/][01]?[0-9]")
_CALENDAR = re.compile(
    rf"(?<![a-z])(?:(?:{_WORD}|events?)(?![a-z]).{{0,80}}?(?<![0-9])"
    rf"([0-9]{{4}})(?:-{_MONTH}(?:-{_DAY})?|/{_MONTH}/{_DAY}){_END}"
    rf"|(?:{_WORD})(?![a-z]).{{0,80}}?/([0-9]{{4}})/(?:[1-9]|{_MONTH}){_END}"
    rf"|year=([0-9]{{4}})(?![0-9]))",
    re.IGNORECASE,
)


def calendar_year(url: str) -> int | None:
    """The year that a page of a calendar is about, None if it is none.

    /calendar/2031/5, ?month=2031-05, ?year=2031: only where a word for it stands in front, since
    /thread/2031/5 is page 5 of a discussion.
    """
    if "year=" not in url and _DATED.search(url) is None:
        return None  # most URLs end here
    found = _CALENDAR.search(url, url.index("/", 8))
    return None if found is None else int(found[1] or found[2] or found[3])


_PLAIN = re.compile("[A-Za-z]{0,20}")


def shape(url: str) -> str | None:
    """What a normalized URL has in common with others of its kind; None if it has nothing that varies.

    Segments of digits become `#`, others `*` unless they are one short word of letters; of a query the
    names are left.
    """
    path, mark, query = path_query(url).partition("?")
    form = "/".join(map(_segment_shape, path.split("/")))
    if mark:
        form += "?" + "&".join(_names(query.split("&")))
    return form if mark or "#" in form or "*" in form else None


def _segment_shape(segment: str) -> str:
    if segment.isdigit():
        return "#"
    return segment if _PLAIN.fullmatch(segment) else "*"


def _names(params: Iterable[str]) -> Iterable[str]:
    return (param.partition("=")[0] for param in params)
