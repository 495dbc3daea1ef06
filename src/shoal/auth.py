"""Which requests carry credentials, or headers of their own: by host, and never to another one.

A host is written as HOST, HOST:PORT, or with `https://` in front to mean that scheme alone; `*.HOST` means
all hosts below it. Without a port, it is the scheme's own port: another one may be somebody else's.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from shoal.errors import ConfigError
from shoal.headers import Headers, is_sendable
from shoal.urls import host_key, normalize, origin

_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_TOKEN = re.compile(r"[!-~]+")
_SCHEMES = ("http", "https")


class Host(Struct, frozen=True):
    """The hosts that a user names."""

    keys: tuple[tuple[str, str], ...]
    """Scheme and host key."""
    below: bool
    """Whether the hosts below these are meant."""

    @classmethod
    def of(cls, text: str) -> Host:
        """As a user writes it. Raises ConfigError, without the text: it may be a misplaced secret."""
        scheme, separator, name = text.strip().rpartition("://")
        below = name.startswith("*.")
        name = name[2:] if below else name
        urls = {
            each: normalize(f"{each}://{name}/") for each in ((scheme.lower(),) if separator else _SCHEMES)
        }
        if not name or re.search(r"[@/?#*\\\s]", name) or not urls.keys() <= {*_SCHEMES}:
            raise _not_a_host()
        keys = tuple((each, host_key(url)) for each, url in urls.items() if url is not None)
        if not keys:
            raise _not_a_host()
        return cls(keys, below)

    def has(self, site: str) -> bool:
        """Whether it means the host of an origin."""
        scheme, _, key = site.partition("://")
        return any(
            scheme == ours and (key.endswith("." + name) if self.below else key == name)
            for ours, name in self.keys
        )


def _not_a_host() -> ConfigError:
    return ConfigError(
        "credentials and headers are for a host: write HOST, HOST:PORT, https://HOST or *.HOST"
    )


class HostHeaders:
    """The headers that requests to some hosts carry."""

    def __init__(
        self,
        auth: Mapping[str, str],
        headers: Mapping[str, Mapping[str, str]],
        environment: Mapping[str, str],
    ) -> None:
        """auth: credentials by host, see `authorization`. headers: names and values by host.

        A value, password or token that is written $NAME is that variable of the environment.
        Raises ConfigError for what cannot be sent; it never shows a secret.
        """
        rules = [(host, dict(given)) for host, given in headers.items()]
        rules += [
            (host, {"Authorization": authorization(value, environment)}) for host, value in auth.items()
        ]
        parsed = [(Host.of(host), _checked(given, environment)) for host, given in rules]
        self._rules = sorted(parsed, key=lambda rule: not rule[0].below)  # the more special one wins
        self._of_site = lru_cache(1024)(self._collect)

    def of(self, url: str) -> Headers:
        """For a request to this normalized URL."""
        return self._of_site(origin(url))

    def _collect(self, site: str) -> Headers:
        found = {
            name.lower(): (name, value)
            for host, given in self._rules
            if host.has(site)
            for name, value in given.items()
        }
        return tuple(found.values())


def authorization(value: str, environment: Mapping[str, str]) -> str:
    """The Authorization header for USER:PASSWORD (RFC 7617) or "bearer TOKEN" (RFC 6750)."""
    value = _read(value, environment).strip()
    scheme, _, token = value.partition(" ")
    if scheme.lower() == "bearer":
        token = _read(token.strip(), environment)
        if not _TOKEN.fullmatch(token):
            raise ConfigError("auth: a bearer token has printable characters, and no spaces")
        return f"Bearer {token}"
    user, colon, password = value.partition(":")
    if not colon:
        raise ConfigError("auth: write USER:PASSWORD or 'bearer TOKEN', or $NAME of a variable that holds it")
    return "Basic " + base64.b64encode(f"{user}:{_read(password, environment)}".encode()).decode()


def _read(text: str, environment: Mapping[str, str]) -> str:
    variable = _VARIABLE.fullmatch(text.strip())
    if variable is None:
        return text
    if variable[1] not in environment:
        raise ConfigError(f"the environment has no variable {variable[1]}, which the settings of a host name")
    return environment[variable[1]]


def _checked(headers: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    read = {name: _read(value, environment) for name, value in headers.items()}
    for name, value in read.items():
        if not is_sendable(name, value):
            raise ConfigError(f"the header {name!r} of a host cannot be sent; use printable characters")
    return read
