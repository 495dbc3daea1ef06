"""Why a fetch failed: an exception of the HTTP library in, kind and detail of a Failure out."""

from __future__ import annotations

import errno
import os
import re
import ssl
from typing import Final

import aiohttp

from shoal.decode import FetchError
from shoal.model import FailureKind

FORBIDDEN: Final = 10_000
"""The error number of an address that the settings forbid; no system has it."""

_SEVERAL: Final = re.compile(r"^Multiple exceptions: |\[Errno \d+\] ")


def explain(error: Exception) -> tuple[FailureKind, str]:
    """Kind and detail of a Failure. The detail names what happened, not where, so that it can be grouped."""
    match error:
        case FetchError():
            return error.kind, error.detail
        case aiohttp.ClientConnectorError():
            return _explain_connect(error)
        case OSError() if error.errno == FORBIDDEN:
            return "blocked", str(error.strerror)
        case aiohttp.ClientOSError() | aiohttp.ServerDisconnectedError():
            lost = dropped(error.__cause__)
            return lost.kind, lost.detail
        case aiohttp.ClientConnectionResetError():
            return "reset", "the connection was closed before the request was sent"
        case aiohttp.ClientHttpProxyError():
            return "refused", f"the proxy answered {error.status}"
        case aiohttp.ClientResponseError():
            return "protocol", brief(error.message)
        case aiohttp.ClientPayloadError():
            return "truncated", "the body ends early"
        case UnicodeError():
            return "dns", "the host name cannot be encoded"
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError() | ValueError():
            return "blocked", f"not a URL that can be fetched: {brief(str(error))}"
        case _:
            return "protocol", brief(f"{type(error).__name__}: {error}")


def dropped(error: BaseException | None) -> FetchError:
    """What it means that a connection ended, by this error or in an orderly way, before the response did."""
    if isinstance(error, ssl.SSLError):
        return FetchError("tls", _tls_detail(error))
    words = _words(error) if isinstance(error, OSError) else "the connection was closed"
    return FetchError("reset", f"{words} before the response was complete")


def brief(text: str) -> str:
    """The library's words without the offending bytes that it quotes below or behind them."""
    words = re.split(r"\n\n|:? b['\"]", text, maxsplit=1)[0]
    return " ".join(words.split())[:200].rstrip(":")


def _explain_connect(error: aiohttp.ClientConnectorError) -> tuple[FailureKind, str]:
    cause = error.os_error
    if cause.errno == FORBIDDEN:
        return "blocked", _SEVERAL.sub("", cause.strerror or "")
    proxy = "proxy: " if isinstance(error, aiohttp.ClientProxyConnectionError) else ""
    words = proxy + _words(cause)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "dns", words
    if isinstance(cause, ssl.SSLError):
        return "tls", _tls_detail(cause)
    if cause.errno == errno.ETIMEDOUT:
        return "timeout", words
    if isinstance(cause, ConnectionResetError | BrokenPipeError | ConnectionAbortedError):
        return "reset", words
    return "refused", words


def _words(error: OSError) -> str:
    """The system's words for it, without the address that some event loops add."""
    if not error.errno or error.errno < 0:
        return error.strerror or brief(str(error)) or type(error).__name__
    return os.strerror(error.errno)


def _tls_detail(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    return (error.reason or "unknown TLS error").replace("_", " ").lower()
