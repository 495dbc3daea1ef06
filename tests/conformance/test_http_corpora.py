"""HTTP as servers really speak it, right and wrong: one hop of each recorded case, over real sockets.

What takes several hops, or a look into the page, stands in `LATER`: here only the facts of its first hop are
checked. The recorded redirects of Scrapy (scrapy-redirects.json) are all of that kind.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from tests.servers import RESET, Pause, Reply, Request, ScriptedServer, Step, page

from shoal.fetch import Fetcher, FetchSettings
from shoal.model import Failure, Response

CORPORA = Path(__file__).parent.parent / "corpora"
SETTINGS = FetchSettings(allow=frozenset({"loopback"}), max_body_bytes=5_000_000)
IMPATIENT = msgspec.structs.replace(SETTINGS, read_timeout_s=0.7, total_timeout_s=1.2)
NEVER_ENDING = {"conn/never-answers", "frame/slow-headers-forever"}
NEXT = page(b"ok")
TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
TRANSIENT_KIND = {"dns", "refused", "reset", "timeout", "truncated"}

Outcome = Response | Failure
Case = Mapping[str, Any]


def _load(name: str, key: str) -> dict[str, Case]:
    cases = json.loads((CORPORA / name).read_text(encoding="utf-8"))[key]
    return {case["id"]: case for case in cases}


def _fetch(*urls: str, settings: FetchSettings = SETTINGS) -> list[Outcome]:
    """Fetch one after the other, as a crawl would, with one set of connections and cookies."""

    async def main() -> list[Outcome]:
        async with Fetcher(settings) as fetcher:
            return [await fetcher.fetch(url) for url in urls]

    return uvloop.run(main())


def _fetch_raw(response: bytes, **changes: Any) -> Outcome:
    """Fetch from a server that sends these bytes and closes the connection."""
    settings = msgspec.structs.replace(SETTINGS, **changes)
    with ScriptedServer(lambda request: Reply([response])) as server:
        return _fetch(server.url(), settings=settings)[0]


# --- http-cases.json: what a crawler should make of it

CASES = _load("http-cases.json", "cases")


@functools.cache
def _gzip_zeros(megabytes: int) -> bytes:
    """A gzip member (its checksum left out) that inflates to so many MiB of zeros."""
    block = bytes(1 << 20)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    piece = deflate.compress(block) + deflate.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\2\xff" + piece * megabytes + b"\x03\0" + bytes(8)


def _scripted(steps: list[Case], server: ScriptedServer) -> Iterator[Step]:
    for step in steps:
        if "s" in step:
            text = step["s"].replace("{host}", server.address).replace("{hostname}", server.host)
            yield from [text.encode("latin-1")] * step.get("repeat", 1)
        elif "fill" in step:
            size, block = step["n"], step["fill"].encode("latin-1") * 65_536
            for left in range(size, 0, -len(block)):
                yield block[:left]
        elif "sleep" in step:
            yield Pause(step["sleep"])
        elif "gzip_zeros_mb" in step:
            body = _gzip_zeros(step["gzip_zeros_mb"])
            yield f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            yield body
        else:
            assert step == {"rst": True}
            yield RESET


def _routed(case: Case, server: Callable[[], ScriptedServer]) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        route = case["routes"].get(request.target)
        if route is None:
            return NEXT if request.target == "/next" else page(b"", "404 Not Found")
        name, steps = route.get("if_cookie", (None, None))
        chosen = steps if name and name in request.headers.get("cookie", "") else route["steps"]
        return Reply(_scripted(chosen, server()), keep=route.get("keep", False))

    return answer


def _first_head(case: Case, server: ScriptedServer) -> tuple[int, dict[str, str]]:
    """Status and headers (of several with one name the first) as the case sends them."""
    first = next(_scripted(case["routes"]["/"]["steps"], server))
    assert isinstance(first, bytes)
    head, *lines = first.split(b"\r\n\r\n")[0].split(b"\r\n")
    pairs = [line.decode("latin-1").partition(":")[::2] for line in reversed(lines)]
    return int(head.split()[1]), {name.lower(): value.strip() for name, value in pairs}


def _is_ok(outcome: Outcome, case: Case) -> bool:
    expect = case["expect"]
    return (
        isinstance(outcome, Response)
        and outcome.status == expect.get("status", 200)
        and (expect.get("links") != ["/next"] or b'href="/next"' in outcome.body)
    )


def _is_fail(outcome: Outcome, case: Case) -> bool:
    if isinstance(outcome, Response):
        return outcome.status >= 400 and outcome.status not in TRANSIENT_STATUS
    return outcome.kind not in TRANSIENT_KIND


def _is_retry(outcome: Outcome, case: Case) -> bool:
    if isinstance(outcome, Response):
        return outcome.status in TRANSIENT_STATUS
    return outcome.kind in TRANSIENT_KIND


def _is_kind(kind: str) -> Callable[[Outcome, Case], bool]:
    return lambda outcome, case: isinstance(outcome, Failure) and outcome.kind == kind


JUDGES: Mapping[str, Callable[[Outcome, Case], bool]] = {
    "any": lambda outcome, case: True,
    "ok": _is_ok,
    "retry": _is_retry,
    "fail": _is_fail,
    "partial": _is_kind("truncated"),
    "too_large": _is_kind("too_large"),
}

LATER = {
    **dict.fromkeys(
        [
            "redir/302",
            "redir/303",
            "redir/300-with-location",
            "redir/query-only",
            "redir/dot-segments",
            "redir/proto-relative-same",
            "redir/absolute",
            "redir/absolute-upper-scheme",
            "redir/fragment",
            "redir/space-in-location",
            "redir/utf8-bytes",
            "redir/latin1-bytes",
            "redir/backslashes",
            "redir/pipe",
            "redir/encoded-absolute",
            "redir/empty-location",
            "redir/no-location",
            "redir/two-locations",
            "redir/bad-url",
            "redir/scheme-javascript",
            "redir/scheme-file",
            "redir/scheme-data",
            "redir/scheme-mailto",
            "redir/self-loop",
            "redir/self-with-cookie",
            "redir/chain-9",
            "redir/endless-new-urls",
            "redir/relative-links-after",
            "redir/body-has-links",
            "redir/connection-closed-cl-wrong",
            "redir/auth-cross-host",
        ],
        "multi-hop",
    ),
    **dict.fromkeys(
        [
            "refresh/meta-upper",
            "refresh/meta-quoted",
            "refresh/meta-no-url-key",
            "refresh/meta-float",
            "refresh/meta-relative",
            "refresh/meta-self",
            "refresh/meta-javascript",
            "refresh/meta-unclosed-quote",
            "refresh/header",
            "refresh/in-noscript",
        ],
        "what the page asks for is found by those who read it",
    ),
}


@pytest.mark.parametrize("id_", [id_ for id_ in CASES if id_ not in LATER])
def test_one_hop_has_the_outcome_that_a_crawler_should_reach(id_: str) -> None:
    """The outcome is the expected one, after one request, and the next response is not mixed up with it."""
    case = CASES[id_]
    with ScriptedServer(_routed(case, lambda: server)) as server:
        settings = IMPATIENT if id_ in NEVER_ENDING else SETTINGS
        outcome, after = _fetch(server.url(case["path"]), server.url("/next"), settings=settings)
    expected = case["expect"]["outcome"]
    assert any(JUDGES[name](outcome, case) for name in expected.split("_or_")), (expected, outcome)
    assert server.count(case["path"]) == 1
    assert isinstance(after, Response)
    assert after.body == b"ok"
    if "next_cookie" in case["expect"]:
        assert server.requests[-1].headers.get("cookie") == case["expect"]["next_cookie"]


@pytest.mark.parametrize("id_", LATER)
def test_the_first_hop_of_a_longer_way_is_reported_as_it_was_sent(id_: str) -> None:
    """Status, Location and Refresh arrive byte for byte (latin-1), and nothing is followed."""
    case = CASES[id_]
    with ScriptedServer(_routed(case, lambda: server)) as server:
        [outcome] = _fetch(server.url(case["path"]))
        status, headers = _first_head(case, server)
    assert isinstance(outcome, Response)
    assert outcome.status == status
    assert outcome.header("location") == headers.get("location")
    assert outcome.header("refresh") == headers.get("refresh")
    assert [request.target for request in server.requests] == [case["path"]]


# --- llhttp: responses that a strict parser accepts or refuses

LLHTTP = _load("http-llhttp-curl.json", "llhttp")

_BEHIND = "bytes behind a complete response are dropped together with the connection, as in browsers"
_BARE_LF = "lines that end in LF alone are read (RFC 9112 section 2.2), as in browsers"
_STOPS = "the parser's test stops before the end of the body, and here the connection is closed there"
_FIRST = "one request gets one response, the first; the recorded one is the last"
_LENIENT = "a leniency that browsers do not have either"
_UNKNOWN_CODING = "a body in an unknown transfer coding cannot be read (RFC 9112 section 6.1)"

LLHTTP_DIFFERS = {
    "llhttp/connection/HTTP/1.1 with keep-alive disabled and 204 status": _BEHIND,
    "llhttp/connection/HTTP/1.1 with keep-alive disabled, content-length": _BEHIND,
    "llhttp/invalid/Only LFs present and no body": _BARE_LF,
    "llhttp/invalid/Only LFs present": _BARE_LF,
    "llhttp/sample/No carriage ret": _BARE_LF,
    "llhttp/connection/HTTP 200 response with Upgrade header and Transfer-Encoding": _STOPS,
    "llhttp/connection/HTTP 103 first, then 200": _STOPS,
    "llhttp/content-length/Content-Length-X": _STOPS,
    "llhttp/content-length/Content-Length reset when no body is received": _STOPS,
    "llhttp/sample/Spaces in header value": _STOPS,
    "llhttp/transfer-encoding/Chunk extensions": _STOPS,
    "llhttp/transfer-encoding/Chunk extensions quoting": _STOPS,
    "llhttp/connection/HTTP 304 with Content-Length": _FIRST,
    "llhttp/connection/HTTP 304 with Transfer-Encoding": _FIRST,
    "llhttp/pipelining/Should parse multiple events": _FIRST,
    "llhttp/invalid/Bare CR after response line (lenient)": _LENIENT,
    "llhttp/lenient-version/Invalid HTTP version (lenient)": _LENIENT,
    "llhttp/transfer-encoding/`chunked` before other transfer-encoding": _UNKNOWN_CODING,
    "llhttp/transfer-encoding/`chunkedchunked` transfer-encoding does not enable chunked enconding": (
        _UNKNOWN_CODING
    ),
    "llhttp/transfer-encoding/Invalid OBS fold after chunked value": _UNKNOWN_CODING,
}


@pytest.mark.parametrize("id_", LLHTTP)
def test_what_the_parser_accepts_is_a_response(id_: str) -> None:
    """Accepted with its status, or a Failure; a head that is cut off is neither: the connection was lost."""
    case = LLHTTP[id_]
    raw = case["raw"].encode("latin-1")
    outcome = _fetch_raw(raw)
    if case["parse_error"] is not None:
        agrees = isinstance(outcome, Failure)
    elif re.search(rb"\r?\n\r?\n", raw):
        agrees = isinstance(outcome, Response) and outcome.status == case["status"]
    else:
        agrees = isinstance(outcome, Failure) and outcome.kind == "reset"
    assert agrees == (id_ not in LLHTTP_DIFFERS), outcome


# --- curl: the replies of its test server, and how curl ended

CURL = _load("http-llhttp-curl.json", "curl")
CURL_EXITS: Mapping[int, set[str]] = {
    0: {"response"},
    1: {"protocol"},
    8: {"protocol"},
    18: {"truncated"},
    22: {"response"},  # told to fail on an error status
    47: {"response"},  # too many redirects
    56: {"protocol"},
    61: {"decoding", "protocol"},
    63: {"too_large"},
}

_BARE_LF_CHUNKS = "chunk lines end in CRLF (RFC 9112 section 7.1); browsers and smugglers alike rely on it"
_BOTH_LENGTHS = "Transfer-Encoding together with Content-Length may be refused (RFC 9112 section 6.3)"

CURL_DIFFERS = {
    "curl/test1116": _BARE_LF_CHUNKS,
    "curl/test1124": _BARE_LF_CHUNKS,
    "curl/test1125": _BARE_LF_CHUNKS,
    "curl/test1170": _BARE_LF_CHUNKS,
    "curl/test1171": _BARE_LF_CHUNKS,
    "curl/test1417": _BARE_LF_CHUNKS,
    "curl/test1617": _BARE_LF_CHUNKS,
    "curl/test1122": _BOTH_LENGTHS,
    "curl/test1494": _BOTH_LENGTHS,
    "curl/test365": _BOTH_LENGTHS,
    "curl/test66": "HTTP/0.9 is not spoken",
    "curl/test1479": "curl failed on a second reply, which speaks HTTP/0.9",
    "curl/test2106": "trailers are not looked at, so a NUL in one does no harm",
    "curl/test2305": "gzip members one after the other are one body (RFC 1952 section 2.2)",
}


def _curl_reply(case: Case) -> bytes:
    text: str = case["replies"]["0"]
    for name, value in (("%CR", "\r"), ("%SP", " "), ("%HOSTIP", "127.0.0.1"), ("%HTTPPORT", "80")):
        text = text.replace(name, value)
    return text.encode("latin-1")


@pytest.mark.parametrize("id_", CURL)
def test_what_curl_accepts_is_a_response(id_: str) -> None:
    """The first reply gives a response where curl got one, and the same kind of failure where it did not."""
    case = CURL[id_]
    limit = re.search(r"--max-filesize[ =](\d+)", case["command"])
    changes = {"max_body_bytes": int(limit[1])} if limit else {}
    outcome = _fetch_raw(_curl_reply(case), **changes)
    ending = "response" if isinstance(outcome, Response) else outcome.kind
    assert (ending in CURL_EXITS.get(case["exit"], set())) == (id_ not in CURL_DIFFERS), outcome


# --- compressed/: real compressed bodies, whole, broken, and bombs

_PAGE = "e977807478e7f2940e29b12e3033bd5060269a2ab73501f2ae659a04af458cbf"
_PAGE_DEFLATED = "35bc90a965632e0d661e3d891e11b5c551c25e9255e80ffdc4a54afa71203599"
COMPRESSED = {
    "bomb-br.bin": ("br", "too_large"),
    "bomb-deflate.bin": ("deflate", "too_large"),
    "bomb-gzip.bin": ("gzip", "too_large"),
    "bomb-zstd.bin": ("zstd", "too_large"),
    "html-br.bin": ("br", _PAGE),
    "html-gzip-deflate-gzip.bin": ("gzip, deflate, gzip", _PAGE),
    "html-gzip-deflate.bin": ("gzip, deflate", _PAGE),
    "html-gzip.bin": ("gzip", _PAGE),
    "html-rawdeflate.bin": ("deflate", _PAGE_DEFLATED),
    "html-zlibdeflate.bin": ("deflate", _PAGE_DEFLATED),
    "html-zstd-static-content-size.bin": ("zstd", _PAGE),
    "html-zstd-static-no-content-size.bin": ("zstd", _PAGE),
    "html-zstd-streaming-no-content-size.bin": ("zstd", _PAGE),
    "truncated-crc-error-short.gz": ("gzip", "truncated"),
    "truncated-crc-error.gz": ("gzip", "truncated"),
    "unexpected-eof.gz": (
        "gzip",
        hashlib.sha256(
            (CORPORA / "compressed" / "unexpected-eof-output.txt").read_text("utf-8").encode("latin-1")
        ).hexdigest(),
    ),
}


def test_all_compressed_files_are_used() -> None:
    """No file of the corpus is left out."""
    folder = CORPORA / "compressed"
    assert {path.name for path in folder.iterdir() if path.suffix in {".bin", ".gz"}} == set(COMPRESSED)


@pytest.mark.parametrize("name", COMPRESSED)
def test_a_compressed_body_is_decoded_or_refused(name: str) -> None:
    """The body has the right digest, or the Failure the right kind."""
    coding, expected = COMPRESSED[name]
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\n".encode()
    outcome = _fetch_raw(head + (CORPORA / "compressed" / name).read_bytes())
    if isinstance(outcome, Response):
        assert hashlib.sha256(outcome.body).hexdigest() == expected
    else:
        assert outcome.kind == expected
