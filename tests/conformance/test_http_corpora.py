"""HTTP as servers really speak it, right and wrong: one hop of each recorded case, over real sockets."""

from __future__ import annotations

import functools
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from shoal.fetch import Fetcher, FetchSettings
from shoal.model import Failure, Response
from tests.servers import RESET, Pause, Reply, Request, ScriptedServer, Step, page

CORPORA = Path(__file__).parent.parent / "corpora"
SETTINGS = FetchSettings(
    allow_loopback=True, connect_timeout_s=1, read_timeout_s=0.5, total_timeout_s=1.2, max_body_bytes=5_000_000
)
NEXT = page(b"ok")
TRANSIENT_STATUS = {408, 425, 429, 500, 502, 503, 504}
TRANSIENT_KIND = {"dns", "refused", "reset", "timeout", "truncated"}

Outcome = Response | Failure


def load(name: str, key: str) -> dict[str, dict[str, Any]]:
    cases = json.loads((CORPORA / name).read_text(encoding="utf-8"))[key]
    return {case["id"]: case for case in cases}


def fetch(*urls: str) -> list[Outcome]:
    """Fetch one after the other, as a crawl would, with one set of connections and cookies."""

    async def main() -> list[Outcome]:
        async with Fetcher(SETTINGS) as fetcher:
            return [await fetcher.fetch(url) for url in urls]

    return uvloop.run(main())


# --- http-cases.json: what a crawler should make of it

CASES = load("http-cases.json", "cases")


@functools.cache
def gzip_zeros(megabytes: int) -> bytes:
    """A gzip member that inflates to so many MiB of zeros, from one piece that is repeated."""
    block = bytes(1 << 20)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    piece = deflate.compress(block) + deflate.flush(zlib.Z_FULL_FLUSH)
    checksum = functools.reduce(lambda crc, _: zlib.crc32(block, crc), range(megabytes), 0)
    size = (megabytes << 20) & 0xFFFFFFFF
    return b"\x1f\x8b\x08\0\0\0\0\0\2\xff" + piece * megabytes + b"\x03\0" + struct.pack("<II", checksum, size)


def scripted(steps: list[dict[str, Any]], server: ScriptedServer) -> Iterator[Step]:
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
            body = gzip_zeros(step["gzip_zeros_mb"])
            yield f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            yield body
        else:
            assert step == {"rst": True}
            yield RESET


def routed(case: Mapping[str, Any], server: Callable[[], ScriptedServer]) -> Callable[[Request], Reply]:
    def answer(request: Request) -> Reply:
        route = case["routes"].get(request.target)
        if route is None:
            return NEXT if request.target == "/next" else page(b"", "404 Not Found")
        name, steps = route.get("if_cookie", (None, None))
        chosen = steps if name and name in request.headers.get("cookie", "") else route["steps"]
        return Reply(scripted(chosen, server()), keep=route.get("keep", False))

    return answer


def run_case(case: Mapping[str, Any]) -> tuple[Outcome, Outcome, ScriptedServer]:
    """What became of the case's page, and of another page fetched right after it."""
    with ScriptedServer(routed(case, lambda: server)) as server:
        first, second = fetch(server.url(case["path"]), server.url("/next"))
    return first, second, server


def sent(case: Mapping[str, Any], server: ScriptedServer, name: str) -> str | None:
    """The first header of that name in the case's own bytes."""
    raw = b"".join(step for step in scripted(case["routes"]["/"]["steps"], server) if isinstance(step, bytes))
    for line in raw.split(b"\r\n\r\n")[0].split(b"\r\n"):
        if line.lower().startswith(name.encode() + b":"):
            return line.partition(b":")[2].strip().decode("latin-1")
    return None


def is_ok(outcome: Outcome, expect: Mapping[str, Any]) -> bool:
    return (
        isinstance(outcome, Response)
        and outcome.status == expect.get("status", 200)
        and (b'href="/next"' in outcome.body or expect.get("links") != ["/next"])
    )


def is_fail(outcome: Outcome, expect: Mapping[str, Any]) -> bool:
    if isinstance(outcome, Response):
        return outcome.status >= 400 and outcome.status not in TRANSIENT_STATUS
    return outcome.kind not in TRANSIENT_KIND


def is_retry(outcome: Outcome, expect: Mapping[str, Any]) -> bool:
    if isinstance(outcome, Response):
        return outcome.status in TRANSIENT_STATUS
    return outcome.kind in TRANSIENT_KIND


def is_redirect(outcome: Outcome, expect: Mapping[str, Any]) -> bool:
    return isinstance(outcome, Response) and outcome.status in {300, 301, 302, 303, 307, 308}


JUDGES: Mapping[str, Callable[[Outcome, Mapping[str, Any]], bool]] = {
    "any": lambda outcome, expect: True,
    "ok": is_ok,
    "refresh_to": is_ok,  # what the page asks for is for those who read it
    "redirect_to": is_redirect,
    "redirect_offsite": is_redirect,
    "redirect": is_redirect,
    "retry": is_retry,
    "fail": is_fail,
    "partial": lambda outcome, expect: isinstance(outcome, Failure) and outcome.kind == "truncated",
    "too_large": lambda outcome, expect: isinstance(outcome, Failure) and outcome.kind == "too_large",
}

if __name__=="__main__":
    import sys,time
    for id, case in CASES.items():
        t=time.time()
        a,b,server=run_case(case)
        outs=[case["expect"]["outcome"]] if case["expect"]["outcome"] in JUDGES else case["expect"]["outcome"].split("_or_")
        good=[o for o in outs if JUDGES[o](a,case["expect"])]
        leak = isinstance(b,Response) and (b.status==200 and b.body==b"ok")
        n=server.count(case["path"])
        d=time.time()-t
        if not good or not leak or n!=1 or d>0.3 or isinstance(a,Failure): print(id, outs, good, str(a)[:200], 'NEXT' if not leak else '', '' if leak else str(b)[:100], n, round(d,2))
