"""Content codings: every one undone, whatever the pieces, never past the cap."""

from __future__ import annotations

import functools
import gzip
import itertools
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from random import Random

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.decode import ACCEPT_ENCODING, Body, FetchError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LIMIT = 1_000_000
TEXT = b"".join(b"line %d of a page that repeats itself\n" % number for number in range(3_000))


def _raw_deflate(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflate.compress(data) + deflate.flush()


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate ": _raw_deflate,  # the blank sets the two apart, and is dropped by the reader
    "br": functools.partial(brotli.compress, quality=4),
    "zstd": zstd.compress,
}
codings = pytest.mark.parametrize("coding", ENCODERS)


def _decode(coding: str, *pieces: bytes, limit_bytes: int = LIMIT) -> bytes:
    body = Body(coding, limit_bytes=limit_bytes)
    for piece in pieces:
        body.feed(piece)
    return body.finish()


def _fault(coding: str, *pieces: bytes, limit_bytes: int = LIMIT) -> str:
    with pytest.raises(FetchError) as caught:
        _decode(coding, *pieces, limit_bytes=limit_bytes)
    assert "\n" not in caught.value.detail
    return caught.value.kind


def _bytes_of(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


@codings
def test_a_coding_is_undone(coding: str) -> None:
    """What was encoded comes back, in one piece or fed byte by byte, in any case of letters."""
    encoded = ENCODERS[coding](TEXT)
    assert _decode(coding.upper(), encoded) == TEXT
    assert _decode(coding, *_bytes_of(encoded)) == TEXT


def test_all_that_is_announced_can_be_read() -> None:
    """The value for Accept-Encoding names codings that work, and all of them."""
    assert {name.strip() for name in ACCEPT_ENCODING.split(",")} == {"gzip", "deflate", "br", "zstd"}
    for name in ACCEPT_ENCODING.split(", "):
        assert _decode(name, ENCODERS[name](TEXT)) == TEXT


@given(
    data=st.binary(max_size=2_000),
    names=st.lists(st.sampled_from(sorted(ENCODERS)), max_size=4),
    cuts=st.lists(st.integers(0, 3_000), max_size=6),
)
def test_codings_are_undone_in_reverse_however_the_bytes_arrive(
    data: bytes, names: list[str], cuts: list[int]
) -> None:
    """Any stack of codings over any bytes, cut into any pieces, gives the bytes."""
    encoded = data
    for name in names:
        encoded = ENCODERS[name](encoded)
    edges = [0, *sorted(cuts), len(encoded)]
    pieces = [encoded[start:end] for start, end in itertools.pairwise(edges)]
    assert _decode(", ".join(names), *pieces) == data


@given(data=st.binary(max_size=500), coding=st.sampled_from(sorted(ENCODERS)))
def test_garbage_is_a_fault_or_a_body_and_nothing_else(data: bytes, coding: str) -> None:
    """No bytes raise anything but a FetchError."""
    try:
        _decode(coding, data)
    except FetchError as fault:
        assert fault.kind in {"decoding", "truncated", "too_large"}  # noqa: PT017 - either way is right


@codings
def test_a_body_that_is_cut_is_truncated(coding: str) -> None:
    """Wherever it is cut, up to the last byte of the compressed data, it is never taken for a whole one."""
    encoded = ENCODERS[coding](TEXT)
    trailer = {"gzip": 8, "x-gzip": 8, "deflate": 4}.get(coding, 0)
    for size in range(1, len(encoded) - trailer, 7):
        assert _fault(coding, encoded[:size]) == "truncated"
    assert _fault(coding, encoded[: -trailer - 1]) == "truncated"


def test_an_outer_coding_that_is_cut_is_truncated() -> None:
    """Of stacked codings each must have its end."""
    assert _fault("gzip, br", brotli.compress(gzip.compress(TEXT))[:-1]) == "truncated"
    assert _fault("br, gzip", gzip.compress(brotli.compress(TEXT)[:-1])) == "truncated"


@codings
def test_no_bytes_are_an_empty_body(coding: str) -> None:
    """Servers send Content-Encoding with empty bodies, too."""
    assert _decode(coding) == b""
    assert _decode(coding, b"") == b""


@codings
def test_a_bomb_stops_at_the_cap(coding: str) -> None:
    """A body that grows past the limit is too large, however little of it came in; at the limit it is not."""
    encoded = ENCODERS[coding](bytes(LIMIT + 1))
    assert len(encoded) < LIMIT / 100
    assert _fault(coding, encoded) == "too_large"
    assert _decode(coding, encoded, limit_bytes=LIMIT + 1) == bytes(LIMIT + 1)


@codings
def test_a_bomb_does_not_take_memory(coding: str) -> None:
    """Little more than the limit is ever held, while the body would be forty times as large."""
    encoded = ENCODERS[coding](bytes(40 * LIMIT))
    tracemalloc.start()
    assert _fault(coding, encoded) == "too_large"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * LIMIT


def test_a_bomb_inside_does_not_take_memory() -> None:
    """The cap holds for what each coding gives, also if the last one would make little of it."""
    empty_member = b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * 2_000 + b"\0\x03\0" + bytes(8)  # with a long name
    assert _fault("gzip, gzip", gzip.compress(empty_member * 900)) == "too_large"


def test_encoded_bytes_are_capped() -> None:
    """What comes in counts like what comes out, with a coding and without."""
    noise = Random(1).randbytes(2_000)
    assert _fault("", noise, limit_bytes=1_999) == "too_large"
    assert _fault("gzip", gzip.compress(b"") * 100, limit_bytes=1_999) == "too_large"
    assert _decode("", noise, limit_bytes=2_000) == noise


@codings
def test_broken_data_is_a_decoding_fault(coding: str) -> None:
    """Data that are not of the coding are refused."""
    assert _fault(coding, b"\xff\xfe<!doctype html><title>not compressed at all</title>") == "decoding"


@pytest.mark.parametrize(
    "name", ["compress", "aes128gcm", "dcb", "bz2", "hex", "gzip2", "g\xfczip", "\udc80"]
)
def test_an_unknown_coding_is_refused(name: str) -> None:
    """A body that cannot be read is a fault, and not a page of noise."""
    assert _fault(name) == "decoding"


@pytest.mark.parametrize(
    "name", ["", "identity", "UTF-8", "iso-8859-1", "windows-1251", "none", "binary", ", ,"]
)
def test_what_is_no_coding_changes_nothing(name: str) -> None:
    """A charset is often sent for a coding by mistake: the body is plain, also inside of a real coding."""
    assert _decode(name, TEXT) == TEXT
    assert _decode(f"{name}, gzip", gzip.compress(TEXT)) == TEXT


def test_a_tower_of_codings_is_refused() -> None:
    """Five are read, six are not."""
    encoded = TEXT
    for _ in range(5):
        encoded = gzip.compress(encoded)
    assert _decode("gzip," * 5, encoded) == TEXT
    assert _fault("gzip," * 6, gzip.compress(encoded)) == "decoding"


def test_gzip_members_are_one_body() -> None:
    """Members follow each other (RFC 1952 section 2.2), also if the cut is in a header or trailer."""
    encoded = gzip.compress(TEXT) + gzip.compress(b"") + gzip.compress(b"end")
    assert _decode("gzip", encoded) == TEXT + b"end"
    assert _decode("gzip", *_bytes_of(encoded)) == TEXT + b"end"
    assert _fault("gzip", gzip.compress(TEXT) + gzip.compress(b"end")[:5]) == "truncated"


@pytest.mark.parametrize("rubbish", [b"\0" * 100, b"<!-- served by x -->"])
def test_what_follows_the_last_gzip_member_is_ignored(rubbish: bytes) -> None:
    """As in browsers, whatever piece it comes in."""
    assert _decode("gzip", gzip.compress(TEXT) + rubbish[:1], rubbish[1:]) == TEXT


def test_a_wrong_or_missing_checksum_is_not_looked_at() -> None:
    """As in browsers: the compressed data have an end of their own."""
    for encoder, coding, trailer in ((gzip.compress, "gzip", 8), (zlib.compress, "deflate", 4)):
        encoded = encoder(TEXT)
        assert _decode(coding, encoded[:-trailer]) == TEXT
        assert _decode(coding, encoded[:-trailer] + bytes(trailer)) == TEXT


def test_all_fields_of_a_gzip_header_are_skipped() -> None:
    """Extra field, name, comment and header checksum (RFC 1952 section 2.3), in any pieces."""
    member = gzip.compress(TEXT)
    head = b"\x1f\x8b\x08\x1e" + member[4:10] + b"\x03\x00abc" + b"a name\0" + b"a comment\0" + b"hc"
    assert _decode("gzip", head + member[10:]) == TEXT
    assert _decode("gzip", *_bytes_of(head + member[10:])) == TEXT
    assert _fault("gzip", head[:-3]) == "truncated"


def test_an_endless_gzip_header_is_refused() -> None:
    """A name that goes on and on is not collected up to the cap."""
    assert _fault("gzip", b"\x1f\x8b\x08\x08" + bytes(6), *[b"a" * 10_000] * 10) == "decoding"


def test_zstd_frames_are_one_body() -> None:
    """Frames follow each other (RFC 8878 section 3.1), skippable ones included."""
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0skip"
    encoded = zstd.compress(TEXT) + skippable + zstd.compress(b"end")
    assert _decode("zstd", encoded) == TEXT + b"end"
    assert _decode("zstd", *_bytes_of(encoded)) == TEXT + b"end"


def test_a_zstd_window_beyond_8_mb_is_refused() -> None:
    """RFC 9659: more is not to be used on the web, and would take the memory of the reader."""
    options: dict[int, int] = {
        zstd.CompressionParameter.window_log: 24,
        zstd.CompressionParameter.content_size_flag: 0,
    }
    compressor = zstd.ZstdCompressor(options=options)
    encoded = compressor.compress(TEXT) + compressor.flush()
    assert _fault("zstd", encoded) == "decoding"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_body_of_very_many_members_is_broken(coding: str) -> None:
    """Each member is a few bytes to send and far more work to open, so there is an end to them."""
    member = ENCODERS[coding](b"")
    assert _decode(coding, member * 1_000) == b""
    assert _fault(coding, member * 100_000, limit_bytes=10_000_000) == "decoding"
