"""What servers do to crawlers, by accident or on purpose, and how a crawl must take it.

Each is a host of its own. Its `/` is a page of a crawl that gives up at the first failure, with the limits of
`LIMITS`; that page must end in the state and for the reason given here. The crawl reads robots.txt only where
the case is about it.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Literal, TypeAlias

import brotli
from msgspec import Struct
from tests.servers import RESET, Pause, Step

from shoal.model import State

Door: TypeAlias = Literal["open", "closed", "full", "rude", "tls", "tls only", "mute"]
Steps: TypeAlias = Callable[[], Iterable[Step]]
"""Steps may be endless, so they are made for each answer."""

LIMITS = {
    "connect_timeout_s": 5.0,
    "read_timeout_s": 5.0,
    "total_timeout_s": 10.0,
    "max_body_bytes": 400_000,
    "retries": 0,
}


class Misbehaviour(Struct, frozen=True):
    """One way to be a bad server, and the outcome."""

    state: State
    reason: str
    """With " or " between two that depend on which side is faster."""
    answer: Steps
    """To any request but that for robots.txt."""
    robots: Steps | None = None
    """To that for robots.txt; None: there is none."""
    door: Door = "open"
    """open: HTTP. closed: nobody listens. full: connections are not accepted. rude: `answer` comes before
    anything was asked. tls: HTTPS. tls only: HTTPS behind an http URL. mute: an https URL gets `answer` in
    place of TLS."""

    def has(self, state: str, reason: str, *, reasons: bool = True) -> bool:
        """Whether this is its outcome. reasons: whether these are known."""
        return state == self.state and (not reasons or reason in self.reason.split(" or "))


OK = b"HTTP/1.1 200 OK\r\n"
HTML = OK + b"Content-Type: text/html\r\n"
CHUNKED = HTML + b"Transfer-Encoding: chunked\r\n\r\n"
TO = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: "
BLOCK = b"x" * 65_536


def _says(*steps: Step) -> Steps:
    return lambda: steps


def _page(body: bytes, *headers: bytes) -> Steps:
    head = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers]
    if not any(header.lower().startswith(b"content-type") for header in headers):
        head.append(b"Content-Type: text/html")
    return _says(b"\r\n".join((*head, b"", body)))


def _endless(start: bytes, piece: bytes, pause_s: float = 0.0) -> Steps:
    def steps() -> Iterator[Step]:
        yield start
        while True:
            yield piece
            if pause_s:
                yield Pause(pause_s)

    return steps


@cache
def _bomb(coding: str) -> bytes:
    if coding == "br":
        return bytes(brotli.compress(bytes(12_000_000), quality=5))
    wbits = {"gzip": 31, "deflate": 15}[coding]
    deflate = zlib.compressobj(9, zlib.DEFLATED, wbits)
    return b"".join([*(deflate.compress(bytes(1_000_000)) for _ in range(12)), deflate.flush()])


def _coded(coding: str, body: Callable[[], bytes]) -> Steps:
    def steps() -> Iterator[Step]:
        data = body()
        yield (
            HTML + b"Content-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (coding.encode(), len(data)) + data
        )

    return steps


def _gzip(data: bytes, layers: int = 1) -> bytes:
    for _ in range(layers):
        deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
        data = deflate.compress(data) + deflate.flush()
    return data


_numbers = itertools.count()


def _onward() -> Iterator[Step]:
    """A redirect to an address that was never seen before."""
    yield TO + b"/on/%d\r\n\r\n" % next(_numbers)


def _dead(reason: str, answer: Steps, **more: object) -> Misbehaviour:
    return Misbehaviour("dead", reason, answer, **more)  # type: ignore[arg-type]


def _done(answer: Steps, reason: str = "", **more: object) -> Misbehaviour:
    return Misbehaviour("done", reason, answer, **more)  # type: ignore[arg-type]


NOTHING = _says()
GOOD = _page(b"<title>fine</title>")
SILENCE = _says(Pause(60))

CONNECTIONS = {
    "nobody listens": _dead("connection refused", NOTHING, door="closed"),
    "connections are never accepted": _dead("timeout", NOTHING, door="full"),
    "closed right after it was accepted": _dead("connection reset", NOTHING, door="rude"),
    "reset right after it was accepted": _dead("connection reset", _says(RESET), door="rude"),
    "silence after the request": _dead("timeout", SILENCE),
    "closed after the request": _dead("connection reset", NOTHING),
    "reset after the request": _dead("connection reset", _says(RESET)),
    "reset in the head": _dead("connection reset", _says(OK, RESET)),
    "an answer without reading the request": _done(_says(Pause(2), OK + b"\r\nhello"), door="rude"),
    "another protocol: SSH": _dead(
        "broken HTTP or connection reset", _says(b"SSH-2.0-OpenSSH_9.2\r\n", Pause(5)), door="rude"
    ),
    "another protocol: SMTP": _dead(
        "broken HTTP or connection reset", _says(b"220 mx.test ESMTP\r\n", Pause(5)), door="rude"
    ),
    "another protocol: HTTP/2": _dead("broken HTTP", _says(b"\0\0\x12\4\0\0\0\0\0" + bytes(18), Pause(5))),
    "TLS behind an http URL": _dead("connection reset", NOTHING, door="tls only"),
    "a certificate that nobody trusts": _dead("TLS certificate", GOOD, door="tls"),
    "plain HTTP behind an https URL": _dead("TLS", _says(b"HTTP/1.1 400 Bad\r\n\r\n"), door="mute"),
    "a TLS handshake that never goes on": _dead("timeout", SILENCE, door="mute"),
    "a TLS handshake that is garbage": _dead("TLS", _says(b"\x16\x03\x03\xff\xff" + BLOCK), door="mute"),
    "a TLS handshake that is closed": _dead("connection reset", NOTHING, door="mute"),
    "a TLS handshake that is reset": _dead("connection reset", _says(RESET), door="mute"),
    "a TLS handshake that drips": _dead(
        "timeout", _endless(b"\x16\x03\x03\x40\0\2", b"\0", 0.1), door="mute"
    ),
}

HEADS = {
    "not HTTP at all": _dead("broken HTTP", _says(b"hello\r\n\r\n")),
    "binary noise": _dead("broken HTTP", _says(bytes(range(256)) * 4)),
    "HTTP/0.9": _dead("broken HTTP", _says(b"<title>old</title>")),
    "HTTP/9.9": _dead("broken HTTP", _says(b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n")),
    "a status of two digits": _dead("broken HTTP", _says(b"HTTP/1.1 20 OK\r\n\r\n")),
    "a status of four digits": _dead("broken HTTP", _says(b"HTTP/1.1 2000 OK\r\n\r\n")),
    "a negative status": _dead("broken HTTP", _says(b"HTTP/1.1 -200 OK\r\n\r\n")),
    "status 999": _dead("HTTP 999", _says(b"HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n")),
    "status 000": _dead("HTTP 0", _says(b"HTTP/1.1 000 No\r\nContent-Length: 0\r\n\r\n")),
    "a status line without end": _dead("broken HTTP", _endless(b"HTTP/1.1 200 ", BLOCK)),
    "a header without end": _dead("broken HTTP", _endless(OK + b"X: ", BLOCK)),
    "headers without end": _dead("broken HTTP", _endless(OK, b"X: y\r\n" * 10_000)),
    "headers that drip": _dead("timeout", _endless(OK, b"X: y\r\n", 0.1)),
    "a status line that drips": _dead("timeout", _endless(b"HTTP/1.1 200 ", b"O", 0.1)),
    "empty lines without end": _dead("broken HTTP", _endless(b"", b"\r\n" * 10_000)),
    "2,000 headers": _dead("broken HTTP", _says(OK, b"X: y\r\n" * 2_000 + b"\r\n")),
    "a header of 100,000 bytes": _dead("broken HTTP", _says(OK, b"X: " + b"y" * 100_000 + b"\r\n\r\n")),
    "NUL in a header": _dead("broken HTTP", _says(OK + b"X: a\0b\r\nContent-Length: 0\r\n\r\n")),
    "a header without a colon": _dead("broken HTTP", _says(OK + b"nonsense\r\nContent-Length: 0\r\n\r\n")),
    "a blank in a header's name": _dead("broken HTTP", _says(OK + b"X Y: z\r\nContent-Length: 0\r\n\r\n")),
    "CR alone in a header": _dead("broken HTTP", _says(OK + b"X: a\rSet-Cookie: b\r\n\r\n")),
    "100 Continue without end": _dead("broken HTTP", _endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000)),
    "100 Continue now and then": _dead("timeout", _endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.5)),
    "a switch of protocols": _dead(
        "broken HTTP", _says(b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n")
    ),
    "1,000 cookies": _done(_page(b"", *(b"Set-Cookie: c%d=%d" % (n, n) for n in range(900)))),
    "a cookie of 60,000 bytes": _done(_page(b"", b"Set-Cookie: c=" + b"x" * 60_000)),
    "a cookie for everybody": _done(_page(b"", b"Set-Cookie: c=1; Domain=com", b"Set-Cookie: d=1; Domain=.")),
    "a cookie of control characters": _done(_page(b"", b"Set-Cookie: c=\1\2\x7f")),
    "a cookie in bad UTF-8": _done(
        _page(b"", b"Set-Cookie: \xff\xfe=\xc3\x28; Max-Age=9e999; Expires=never")
    ),
}

LENGTHS = {
    "a body that is closed early": _dead("truncated body", _says(HTML + b"Content-Length: 99\r\n\r\nhalf")),
    "a body that is reset early": _dead(
        "connection reset", _says(HTML + b"Content-Length: 99\r\n\r\nhalf", Pause(0.1), RESET)
    ),
    "a body that stalls": _dead("timeout", _says(HTML + b"Content-Length: 99\r\n\r\nhalf", Pause(60))),
    "a body that drips": _dead("timeout", _endless(HTML + b"\r\n", b"x", 0.1)),
    "a body without end": _dead("too large", _endless(HTML + b"\r\n", BLOCK)),
    "a length beyond the limit": _dead(
        "too large", _says(HTML + b"Content-Length: 9999999\r\n\r\n", Pause(60))
    ),
    "a length beyond all bounds": _dead("broken HTTP", _says(HTML + b"Content-Length: %d\r\n\r\n" % 10**30)),
    "a negative length": _dead("broken HTTP", _says(HTML + b"Content-Length: -1\r\n\r\n")),
    "a length that is no number": _dead(
        "broken HTTP", _says(HTML + b"Content-Length: 1_0\r\n\r\n1234567890")
    ),
    "two lengths": _dead(
        "broken HTTP", _says(HTML + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", Pause(5))
    ),
    "length and chunks": _dead(
        "broken HTTP", _says(HTML + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    ),
    "chunks without end": _dead("too large", _endless(CHUNKED, b"10000\r\n" + BLOCK + b"\r\n")),
    "chunks of one byte without end": _dead("broken HTTP", _endless(CHUNKED, b"1\r\nx\r\n" * 10_000)),
    "chunks that drip": _dead("timeout", _endless(CHUNKED, b"1\r\nx\r\n", 0.1)),
    "a chunk beyond all bounds": _dead("broken HTTP", _says(CHUNKED + b"f" * 40 + b"\r\nx", Pause(5))),
    "a negative chunk": _dead("broken HTTP", _says(CHUNKED + b"-5\r\nhello\r\n", Pause(5))),
    "a chunk longer than it says": _dead("broken HTTP", _says(CHUNKED + b"2\r\nhello\r\n", Pause(5))),
    "chunks that are cut off": _dead("truncated body", _says(CHUNKED + b"ff\r\nhalf")),
    "chunks without the last one": _dead("truncated body", _says(CHUNKED + b"4\r\nbody\r\n")),
    "a size of a chunk without end": _dead("broken HTTP", _endless(CHUNKED, b"0" * 65_536)),
    "a chunk extension without end": _dead("broken HTTP", _endless(CHUNKED + b"5;", BLOCK)),
    "chunk extensions without end": _dead("broken HTTP", _endless(CHUNKED, b"1;" + BLOCK + b"\r\nx\r\n")),
    "trailers without end": _dead("broken HTTP", _endless(CHUNKED + b"0\r\n", b"X: y\r\n" * 10_000)),
    "a transfer coding that nobody knows": _dead(
        "broken content coding", _says(HTML + b"Transfer-Encoding: magic\r\n\r\nbody")
    ),
    "more than the body": _done(_says(HTML + b"Content-Length: 4\r\n\r\nbody" + OK + b"\r\nsmuggled")),
    "204 with a body": _done(_says(b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nbody")),
}

CODINGS = {
    "a gzip bomb": _dead("too large", _coded("gzip", lambda: _bomb("gzip"))),
    "a deflate bomb": _dead("too large", _coded("deflate", lambda: _bomb("deflate"))),
    "a brotli bomb": _dead("too large", _coded("br", lambda: _bomb("br"))),
    "a bomb in a bomb": _dead("too large", _coded("gzip, gzip", lambda: _gzip(_bomb("gzip")))),
    "a bomb in an error page": _dead(
        "HTTP 500",
        lambda: [b"HTTP/1.1 500 Oops\r\nContent-Encoding: gzip\r\n\r\n", _bomb("gzip")],
    ),
    "gzip of nothing, 15,000 times": _dead(
        "broken content coding", _coded("gzip", lambda: _gzip(b"") * 15_000)
    ),
    "six codings": _dead("broken content coding", _coded("gzip, " * 5 + "gzip", lambda: _gzip(b"x", 6))),
    "a coding that nobody knows": _dead("broken content coding", _coded("magic", lambda: b"abracadabra")),
    "gzip that is none": _dead("broken content coding", _coded("gzip", lambda: b"<html>plain</html>")),
    "brotli that is none": _dead("broken content coding", _coded("br", lambda: b"<html>plain</html>")),
    "zstd that is none": _dead("broken content coding", _coded("zstd", lambda: b"<html>plain</html>")),
    "gzip that is cut off": _dead("truncated body", _coded("gzip", lambda: _gzip(b"x" * 9_999)[:-12])),
    "a gzip header without end": _dead(
        "broken content coding", _coded("gzip", lambda: b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 200_000)
    ),
}

ANSWERS = {
    "a redirect to itself": _dead("redirect loop", _says(TO + b"/\r\n\r\n")),
    "redirects without end": _done(_onward, "redirect"),
    "a redirect to nowhere": _dead("redirect without a location", _says(TO + b"\r\n\r\n")),
    "a redirect to a URL that is none": _dead(
        "redirect to an invalid URL", _says(TO + b"http://[::1\r\n\r\n")
    ),
    "a redirect to a script": _dead("redirect to an invalid URL", _says(TO + b"javascript:alert(1)\r\n\r\n")),
    "a redirect to a file": _dead("redirect to an invalid URL", _says(TO + b"file:///etc/passwd\r\n\r\n")),
    "a redirect to another protocol": _dead(
        "redirect to an invalid URL", _says(TO + b"gopher://127.0.0.1:6379/_FLUSHALL\r\n\r\n")
    ),
    "a redirect of 60,000 bytes": _dead(
        "redirect to an invalid URL", _says(TO + b"/" + b"x" * 60_000 + b"\r\n\r\n")
    ),
    "a redirect to secrets of the cloud": _done(
        _says(TO + b"http://169.254.169.254/latest/meta-data/\r\n\r\n"), "redirect out of scope"
    ),
    "a redirect that would split the request": _done(
        _says(TO + b"/%0d%0aHost:%20evil\tx\r\n\r\n"), "redirect"
    ),
    "304 that nobody asked for": _dead("HTTP 304", _says(b"HTTP/1.1 304 Not Modified\r\n\r\n")),
    "429 for a hundred years": _dead(
        "HTTP 429", _says(b"HTTP/1.1 429 No\r\nContent-Length: 0\r\nRetry-After: 3153600000\r\n\r\n")
    ),
    "503 with an error page without end": _dead("HTTP 503", _endless(b"HTTP/1.1 503 No\r\n\r\n", BLOCK)),
    "404 with an error page that stalls": _dead(
        "HTTP 404", _says(b"HTTP/1.1 404 No\r\nContent-Length: 9\r\n\r\nhalf", Pause(60))
    ),
}

ROBOTS = {
    "robots.txt: silence": _dead("robots.txt unreachable", GOOD, robots=SILENCE),
    "robots.txt: 500": _dead("robots.txt unreachable", GOOD, robots=_says(b"HTTP/1.1 500 No\r\n\r\n")),
    "robots.txt without end": _done(GOOD, robots=_endless(OK + b"\r\n", b"# more and more\n" * 4_000)),
    "robots.txt that drips": _dead("robots.txt unreachable", GOOD, robots=_endless(OK + b"\r\n", b"# ", 0.1)),
    "robots.txt: a bomb": _done(GOOD, robots=lambda: [OK + b"Content-Encoding: gzip\r\n\r\n", _bomb("gzip")]),
    "robots.txt: a redirect to itself": _done(GOOD, robots=_says(TO + b"/robots.txt\r\n\r\n")),
    "robots.txt: secrets of the cloud": _dead(
        "blocked address", GOOD, robots=_says(TO + b"http://169.254.169.254/\r\n\r\n")
    ),
    "robots.txt: binary noise": _done(GOOD, robots=_page(bytes(range(256)) * 1_000)),
    "robots.txt: one line of 500 KB": _done(
        GOOD, robots=_page(b"User-agent: *\nDisallow: /" + b"*a" * 250_000)
    ),
    "robots.txt: 20,000 rules": _done(
        GOOD, robots=_page(b"User-agent: *\n" + b"".join(b"Disallow: /*%d*\n" % n for n in range(20_000)))
    ),
    "robots.txt: closed": Misbehaviour(
        "skipped", "robots.txt", GOOD, robots=_page(b"User-agent: *\nDisallow: /")
    ),
}

_ENTITIES = b"".join(b'<!ENTITY e%d "%s">' % (n, b"&e%d;" % (n - 1) * 10) for n in range(1, 30))

PAGES = {
    "50,000 open tags": _done(_page(b"<div>" * 50_000)),
    "15,000 formatting tags": _done(_page(b"<b><i><a href=/x>" * 15_000)),
    "15,000 tables": _done(_page(b"<table><tr><td>" * 15_000)),
    "a tag of 30,000 attributes": _done(
        _page(b"<a " + b" ".join(b"a%d=1" % n for n in range(30_000)) + b">")
    ),
    "an attribute of 300 KB": _done(_page(b'<a href="/' + b"x" * 300_000 + b'">x</a>')),
    "20,000 links": _done(_page(b"<a href=/x>x</a>" * 20_000)),
    "a comment without end": _done(_page(b"<!--" * 75_000)),
    "a script without end": _done(_page(b"<script>" + b"<!--<script>" * 25_000)),
    "angle brackets only": _done(_page(b"<" * 300_000)),
    "ampersands only": _done(_page(b"&" * 300_000)),
    "NULs only": _done(_page(bytes(300_000))),
    "an encoding that nobody knows": _done(_page(b"\xff\xfe\x00", b"Content-Type: text/html; charset=magic")),
    "an encoding that is a codec": _done(_page(b"<p>x", b"Content-Type: text/html; charset=zlib_codec")),
    "a script as the base of all links": _done(_page(b'<base href="javascript:alert(1)"><a href="x">x</a>')),
    "links that would split the request": _done(
        _page(b'<a href="/x&#13;&#10;GET /evil HTTP/1.1&#13;&#10;&#13;&#10;">x</a>')
    ),
    "a refresh header to itself": _done(_page(b"", b"Refresh: 0;url=/")),
    "a refresh header of nonsense": _done(_page(b"", b"Refresh: " + b"9" * 30_000 + b" ;" * 5_000)),
    "a refresh to itself": _done(_page(b'<meta http-equiv=refresh content="0;url=/">')),
    "entities that grow": _done(
        _page(
            b'<!DOCTYPE x [<!ENTITY e0 "ha">' + _ENTITIES + b"]><x>&e29;</x>",
            b"Content-Type: application/xml",
        )
    ),
    "a type that is not read": Misbehaviour(
        "skipped", "content type image/png", _endless(OK + b"Content-Type: image/png\r\n\r\n", BLOCK)
    ),
    "a type of 50,000 bytes": Misbehaviour(
        "skipped",
        f"content type {'x' * 50_000}",
        _page(b"", b"Content-Type: " + b"x" * 50_000),
    ),
}

MISBEHAVIOURS: dict[str, Misbehaviour] = {
    **CONNECTIONS, **HEADS, **LENGTHS, **CODINGS, **ANSWERS, **ROBOTS, **PAGES,
}  # fmt: skip

TWO_CRAWLS = {
    True: [name for name, case in MISBEHAVIOURS.items() if case.robots],
    False: [name for name, case in MISBEHAVIOURS.items() if not case.robots],
}
"""Those for a crawl that obeys robots.txt, and those for one that does not."""
