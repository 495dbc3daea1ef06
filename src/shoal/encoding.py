"""Bytes to text as browsers do it: which encoding, by what evidence, and the codecs for it.

The evidence, best first: a byte order mark, the charset of Content-Type, what the document says of
itself, what the bytes look like (HTML standard, 13.2.3.2). Encodings are those of the Encoding standard
and go by its names in lower case. Bytes that an encoding does not know become U+FFFD, never an error.
"""

from __future__ import annotations

import re
from functools import lru_cache

import turbohtml
from turbohtml.detect import detect

_BOMS = {b"\xef\xbb\xbf": "utf-8", b"\xfe\xff": "utf-16be", b"\xff\xfe": "utf-16le"}
_CHARSET = re.compile(r";[ \t]*charset[ \t]*=[ \t]*(\"[^\"]*\"?|[^;]*)", re.IGNORECASE)
_XML = re.compile(rb"<\?xml[^>]*?encoding[\x00-\x20]*=[\x00-\x20]*([\"'])([^\x00-\x20]*?)\1")
_XML_PEEK_BYTES = 1024
_LABEL_LENGTH = 64
"""Longer than any label."""

_PYTHON_CODECS = {
    "big5": "big5hkscs",
    "euc-kr": "cp949",
    "gbk": "gb18030",
    "iso-8859-8-i": "iso-8859-8",
    "replacement": "utf-8",
    "shift_jis": "cp932",
    "windows-874": "cp874",
    "x-mac-cyrillic": "mac_cyrillic",
    "x-user-defined": "utf-8",
}


@lru_cache(maxsize=512)
def named(label: str) -> str | None:
    """The encoding that a label means ("Latin1" is windows-1252), or None (Encoding standard, 4.2)."""
    try:
        return (turbohtml.parse(b"", encoding=label).encoding or "").lower() or None
    except (LookupError, ValueError):
        return None


def in_content_type(value: str) -> str | None:
    """The encoding that a Content-Type names, or None. The first charset counts, as in browsers."""
    charset = _CHARSET.search(value)
    return None if charset is None else named(charset[1].strip(" \t\"'")[:_LABEL_LENGTH])


def in_xml_declaration(body: bytes) -> str | None:
    """The encoding that `<?xml ... encoding="..."?>` names (HTML standard, "get an XML encoding")."""
    declaration = _XML.match(body[:_XML_PEEK_BYTES])
    encoding = None if declaration is None else named(declaration[2].decode("latin-1"))
    return "utf-8" if encoding is not None and encoding.startswith("utf-16") else encoding


def of_text(body: bytes, declared: str | None = None) -> str:
    """The encoding of text that is not HTML; `declared` is what Content-Type says."""
    mark = next((encoding for bom, encoding in _BOMS.items() if body.startswith(bom)), None)
    return mark or declared or in_xml_declaration(body) or _guess(body)


def decode(body: bytes, encoding: str) -> str:
    """The text, without a byte order mark."""
    return body.decode(f"whatwg-{encoding}").removeprefix("\ufeff")


def python_codec(encoding: str) -> str:
    """The codec of Python with which a browser's encoder is matched best, for queries of URLs."""
    return _PYTHON_CODECS.get(encoding, encoding)


def _guess(body: bytes) -> str:
    try:
        body.decode()
    except UnicodeDecodeError:
        return (detect(body).encoding or "windows-1252").lower()
    return "utf-8"
