"""Who may ask the dashboard what. Decisions only: no I/O.

A browser on this machine sends requests for any site that it shows, so three things are checked besides
the token: the Host header (a site whose name is made to lead here by DNS still has its own name in it), the
Origin of what changes something, and a secret that only a page from here can have read.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from shoal.errors import ConfigError

LEAST_TOKEN = 16
"""A shorter token could be guessed."""

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none at all, forms have no Origin either
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def check_bind(host: str, token: str | None) -> None:
    """Raise ConfigError if anybody could use it: an address others reach needs a token, and a long one."""
    if token is not None and len(token) < LEAST_TOKEN:
        raise ConfigError(f"the token of the dashboard is too short: take {LEAST_TOKEN} characters or more")
    if token is None and not is_loopback(host):
        raise ConfigError(
            f"--host {host} lets other machines in: give --token, or SHOAL_DASHBOARD_TOKEN in the environment"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """The checks of one dashboard."""

    def __init__(self, token: str | None, names: Collection[str] = ()) -> None:
        """names: host names, besides IP addresses and localhost, under which it is served."""
        self._token = token
        self._names = frozenset(name.lower() for name in names) | {"localhost"}
        self.csrf = secrets.token_urlsafe(32)
        """What a page from here sends back with all that changes something."""

    @property
    def needs_token(self) -> bool:
        return self._token is not None

    def knows_host(self, host: str) -> bool:
        """Whether the Host header names this dashboard: an address, which DNS cannot forge, or a name."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

    def is_own(self, origin: str | None, host: str) -> bool:
        """Whether a request comes from a page of the dashboard itself."""
        return origin is not None and urlsplit(origin).netloc.lower() == host.lower()

    def knows_csrf(self, given: str | None) -> bool:
        return given is not None and _same(given, self.csrf)

    def is_token(self, given: str) -> bool:
        return self._token is not None and _same(given, self._token)

    def admits(self, cookie: str | None, authorization: str | None) -> bool:
        """Whether somebody has shown the token: by the cookie of a login, or as "Bearer TOKEN"."""
        if self._token is None:
            return True
        kind, _, given = (authorization or "").partition(" ")
        if kind.lower() == "bearer" and self.is_token(given.strip()):
            return True
        return cookie is not None and _same(cookie, self.cookie())

    def cookie(self) -> str:
        """What a login leaves in the browser: it follows from the token, and does not tell it."""
        return hmac.new((self._token or "").encode(), b"shoal dashboard login", hashlib.sha256).hexdigest()


def _same(one: str, other: str) -> bool:
    """Compared in a time that tells nothing."""
    return hmac.compare_digest(one.encode(), other.encode())
