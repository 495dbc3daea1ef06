"""Which links belong to a crawl, and why the others do not; and the patterns that users write for URLs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Literal, Protocol, TypeAlias, get_args
from urllib.parse import quote

from msgspec import Struct

from shoal.errors import ConfigError
from shoal.model import Politeness
from shoal.urls import Wildcard, host_key, normalize, path_query, respell_escapes

Mode: TypeAlias = Literal["host", "domain", "any"]


class Glob(Struct, frozen=True):
    """A pattern for URLs, made by `compile_glob`."""

    pattern: str
    """As the user wrote it."""
    part: Literal["path", "url", "url or host"]
    """What it is matched with, as a whole."""
    wildcard: Wildcard

    def matches(self, url: str) -> bool:
        """Whether it matches this normalized URL. Linear in the URL's length."""
        matches = self.wildcard.matches
        if self.part == "path":
            return matches(path_query(url))
        if self.part == "url":
            return matches(url)
        key = host_key(url)
        return matches(url) or matches(key) or matches(_without_port(key))


def compile_glob(pattern: str) -> Glob:
    """A pattern in which `*` stands for any characters, "/" included, and all else for itself, case included.

    "/blog/*"                      starts with "/": matched with path and query ("/a?b=c")
    "https://*.pdf", "*/private/*"  matched with the whole URL
    "*.example.com", "*.pdf"       no "/": matched with the whole URL, and the host with and without its port

    Raises ConfigError for a pattern that can match nothing.
    """
    part: Literal["path", "url", "url or host"]
    if pattern.startswith("/"):
        part = "path"
    elif "/" not in pattern:
        part = "url or host"
    else:
        part = "url"
    if not pattern or (part == "url" and not pattern.startswith(("http://", "https://", "http*", "*"))):
        raise ConfigError(f"pattern {pattern!r} can match no URL: start it with '/', 'http://' or '*'")
    if "#" in pattern:
        raise ConfigError(f"pattern {pattern!r} can match no URL: the part from '#' is never fetched")
    spelled = respell_escapes(quote(pattern, safe=_PRINTABLE, errors="surrogatepass"))
    return Glob(pattern, part, Wildcard.of(spelled))


class Scope(Struct, frozen=True):
    """Which URLs belong to a crawl."""

    mode: Mode
    homes: frozenset[str]
    """The seeds' host keys, or their registrable domains; empty if any host will do, or without seeds."""
    allow: tuple[Glob, ...] = ()
    deny: tuple[Glob, ...] = ()
    external: bool = False
    """Links to other hosts or domains are followed too, but these pages are not read."""

    @classmethod
    def of(
        cls,
        seeds: Sequence[str],
        mode: Mode = "host",
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        *,
        external: bool = False,
    ) -> Scope:
        """The scope around some seeds.

        mode: "host" = the same host and port, whether http or https; "domain" = the same registrable
        domain (`registrable_domain`), on any port; "any" = every host.
        allow: if given, a URL must match one of these patterns; deny: it must match none of these.
        Raises ConfigError for a seed that is not an http(s) URL, an unknown mode or a bad pattern.
        """
        if mode not in get_args(Mode):
            raise ConfigError(f"unknown scope {mode!r}: choose host, domain or any")
        keys = [_seed_key(seed) for seed in seeds]
        if mode == "host":
            homes = frozenset(keys)
        elif mode == "domain":
            homes = frozenset(map(registrable_domain, keys))
        else:
            homes = frozenset()
        return cls(mode, homes, tuple(map(compile_glob, allow)), tuple(map(compile_glob, deny)), external)

    @property
    def takes_all(self) -> bool:
        """Whether every URL belongs."""
        return self.mode == "any" and not self.allow and not self.deny

    def follows(self, url: str, page: str = "") -> bool:
        """Whether a link to a normalized URL is followed: it belongs, or is looked at all the same."""
        return self.reason(url, page) is None or (self.external and self.is_elsewhere(url))

    def is_elsewhere(self, url: str) -> bool:
        """Whether it leads to another host or domain than the seeds', and no pattern denies it."""
        key = host_key(url) if self.mode == "host" else registrable_domain(host_key(url))
        return bool(self.homes) and key not in self.homes and not any(glob.matches(url) for glob in self.deny)

    def reason(self, url: str, page: str = "") -> str | None:
        """Why a normalized URL does not belong, in words that can be grouped; None if it belongs.

        page: where it was found, which stands for the seeds if there are none.
        """
        if self.mode == "host":
            homes = self.homes or {host_key(each) for each in (page,) if each}
            if host_key(url) not in homes:
                return "scope: other host"
        elif self.mode == "domain":
            homes = self.homes or {registrable_domain(host_key(each)) for each in (page,) if each}
            if registrable_domain(host_key(url)) not in homes:
                return "scope: other domain"
        for glob in self.deny:
            if glob.matches(url):
                return f"scope: denied by {glob.pattern}"
        if self.allow and not any(glob.matches(url) for glob in self.allow):
            return "scope: not allowed"
        return None


def registrable_domain(key: str) -> str:
    """The domain that somebody registered and this host key lies in: "a.example.co.uk:81" -> "example.co.uk".

    By the Public Suffix List with its private part, so that neighbours on shared hosting ("me.github.io")
    are strangers. The host itself if it has none: an IP address, a single label, a public suffix.
    """
    host = _without_port(key)
    return _public_suffixes().registrable_domain(host) or host


def host_name(url: str) -> str:
    """The host of a normalized URL, without its port."""
    return _without_port(host_key(url))


def domain_key(url: str) -> str:
    """The registrable domain of a normalized URL; hosts that have none keep to themselves, whatever port."""
    return registrable_domain(host_key(url))


HOST_KEYS: Mapping[Politeness, Callable[[str], str]] = {"host": host_key, "domain": domain_key}
"""The host key of a normalized URL, by what politeness is about, where the URL alone tells it."""


class _PublicSuffixes(Protocol):
    def registrable_domain(self, host: str, /) -> str: ...


@cache
def _public_suffixes() -> _PublicSuffixes:
    """The list comes with publicsuffixlist; upa_url reads and asks it some ten times faster. Takes 8 ms."""
    from publicsuffixlist import PSLFILE
    from upa_url import PSL

    suffixes: _PublicSuffixes = PSL(PSLFILE)
    return suffixes


_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


def _without_port(key: str) -> str:
    return key if ":" not in key or key.endswith("]") else key[: key.rindex(":")]


def _seed_key(seed: str) -> str:
    url = normalize(seed)
    if url is None:
        raise ConfigError(f"seed {seed!r} is not an http(s) URL")
    return host_key(url)
