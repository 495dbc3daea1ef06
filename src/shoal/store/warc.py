"""An archive of raw pages: WARC/1.1 files (ISO 28500:2017), in many parts (`shoal.store.parts`).

Of each page that ended there is a response record and, after it, a request record, each compressed by itself;
each file begins with a warcinfo record. The block of a response is what was received, with its content
codings; chunks are taken off, and the header that tells of them is renamed. Requests are without headers that
may hold a secret.

A response whose payload this worker has archived already becomes a revisit record, which refers to the
first one (profile identical-payload-digest); so does a 304 (profile server-not-modified). What a worker
remembers of this is bounded, and not shared, so that some duplicates are stored in full.

The position counts pages: two records each.
"""

from __future__ import annotations

import hashlib
import zlib
from base64 import b32encode
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from io import BytesIO
from itertools import islice
from uuid import NAMESPACE_URL, uuid5

from warcio.recordloader import ArcWarcRecord
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from shoal.crawl import __version__
from shoal.model import Capture, Outcome
from shoal.store.parts import Folder, PartStore

REMEMBERED = 50_000  # payloads of a worker, some 15 MB

_PROFILE = "http://netpreserve.org/warc/1.1/revisit/"
_INFO = {
    "software": f"shoal/{__version__}",
    "format": "WARC File Format 1.1",
    "conformsTo": "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
}


class WarcArchive(PartStore[list[Outcome]]):
    """The raw pages of one crawl."""

    suffix = "warc.gz"
    most_bytes = 64_000_000

    def __init__(self, folder: Folder, worker: str = "") -> None:
        super().__init__(folder, worker)
        self._payloads: dict[str, tuple[str, str]] = {}
        """Of those that are committed: by digest the URL and the date of the first record."""
        self._new: dict[str, tuple[str, str]] = {}
        """Of the batch that was encoded last."""

    def _batch(self, outcomes: Sequence[Outcome]) -> tuple[int, list[Outcome]]:
        """Pages that will be fetched once more come when they have ended."""
        ended = [each for each in outcomes if each.capture is not None and each.state != "queued"]
        return len(ended), ended

    def _encode(self, batch: list[Outcome]) -> bytes:
        self._new = {}
        target = BytesIO()
        writer = WARCWriter(target, gzip=True, warc_version="1.1")
        info = "".join(f"{name}: {value}\r\n" for name, value in _INFO.items()).encode()
        self._write(
            writer, "warcinfo", f"{batch[0].lease.token}/info", info, {"WARC-Date": _date(_at(batch[0]))}
        )
        for outcome in batch:
            if outcome.capture is not None:
                self._write_page(writer, outcome, outcome.capture)
        return target.getvalue()

    def _joined(self, contents: Iterable[bytes]) -> bytes:
        """One after the other; of their warcinfo records the first one is enough."""
        first, *others = contents
        return b"".join([first, *(content[len(next(_records(content))) :] for content in others)])

    def _head(self, content: bytes, rows: int) -> bytes:
        return b"".join(islice(_records(content), 1 + 2 * rows))

    def _kept(self) -> None:
        self._payloads.update(self._new)
        for digest in list(islice(self._payloads, max(0, len(self._payloads) - REMEMBERED))):
            del self._payloads[digest]

    def _undone(self) -> None:
        self._payloads = {}

    # --- records ----------------------------------------------------------------------------------

    def _write_page(self, writer: WARCWriter, outcome: Outcome, capture: Capture) -> None:
        url, token, date = outcome.lease.link.url, outcome.lease.token, _date(capture.at)
        common = {"WARC-Target-URI": url, "WARC-Date": date}
        digest = _digest(capture.body)
        earlier = self._payloads.get(digest) or self._new.get(digest)
        about = {**common, "WARC-Payload-Digest": digest}
        kind, block = "response", capture.head + capture.body
        if outcome.status == 304:
            kind, about = "revisit", {**common, "WARC-Profile": f"{_PROFILE}server-not-modified"}
            about["WARC-Refers-To-Target-URI"] = url
        elif capture.body and earlier:
            kind, block = "revisit", capture.head
            about["WARC-Profile"] = f"{_PROFILE}identical-payload-digest"
            about["WARC-Refers-To-Target-URI"], about["WARC-Refers-To-Date"] = earlier
        else:
            self._new[digest] = url, date
        answer = self._write(writer, kind, f"{token}/{kind}", block, about)
        asked = {**common, "WARC-Concurrent-To": answer}
        self._write(writer, "request", f"{token}/request", capture.request, asked)

    def _write(self, writer: WARCWriter, kind: str, name: str, block: bytes, headers: dict[str, str]) -> str:
        """One record; returns its id, which is the same when it is written again."""
        record_id = f"<{uuid5(NAMESPACE_URL, f'{self.name}/{name}').urn}>"
        every = {
            "WARC-Type": kind,
            "WARC-Record-ID": record_id,
            **headers,
            "WARC-Block-Digest": _digest(block),
            "Content-Type": _CONTENT_TYPES[kind],
        }
        described = StatusAndHeaders("", list(every.items()), protocol="WARC/1.1")
        length = len(block)
        # Of no other type does warcio write the block as it is, and no digest besides.
        record = ArcWarcRecord(
            "warc", "warcinfo", described, BytesIO(block), None, _CONTENT_TYPES[kind], length
        )
        record.payload_length = length
        writer.write_record(record)
        return record_id


_CONTENT_TYPES = {
    "warcinfo": "application/warc-fields",
    "response": "application/http; msgtype=response",
    "revisit": "application/http; msgtype=response",
    "request": "application/http; msgtype=request",
}


def _records(content: bytes) -> Iterator[bytes]:
    """The compressed records, one by one (RFC 1952: members of a gzip file)."""
    rest = memoryview(content)
    while rest:
        reader = zlib.decompressobj(wbits=31)
        reader.decompress(rest)
        size_bytes = len(rest) - len(reader.unused_data)
        yield bytes(rest[:size_bytes])
        rest = rest[size_bytes:]


def _at(outcome: Outcome) -> float:
    return outcome.capture.at if outcome.capture is not None else 0.0


def _date(at: float) -> str:
    """As WARC/1.1 has it, to the microsecond."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _digest(content: bytes) -> str:
    """As archives spell it: SHA-1 in base 32."""
    return f"sha1:{b32encode(hashlib.sha1(content, usedforsecurity=False).digest()).decode()}"
