"""Encodings against the data of html5lib-tests, the labels of the standard, and the answers of Scrapy."""

import json
from pathlib import Path

from shoal.model import Response
from shoal.parse import Page

CORPORA = Path(__file__).parent.parent / "corpora"

HTML5LIB = {82: ("windows-1252", "a script writes the meta element; nothing runs scripts here")}

GBK = "browsers decode gbk and gb18030 alike; the page's own label is the one that its queries are written in"
SCRAPY = {
    59: ("gbk", GBK),
    60: ("gbk", GBK),
    80: ("windows-1252", "nothing tells cp1250 from windows-1252 in one letter; browsers guess the latter"),
    85: ("gbk", GBK),
}
SCRAPY_NAMES = {"cp1252": "windows-1252", "cp932": "shift_jis"}
"""Scrapy gives the names of Python's codecs."""


def test_encodings_of_html5lib():
    """A document's encoding is found as html5lib-tests say, but for the listed one."""
    cases = _load("encoding-html5lib.json")["cases"]
    answers = [(_page(case["data"]).encoding, case["canonical"]) for case in cases]
    assert len(cases) == 83
    assert _differences(answers) == _ours(HTML5LIB)


def test_encodings_of_scrapy():
    """Where nobody tells Scrapy the encoding, it finds the same one, but for the listed cases."""
    cases = _load("scrapy-encoding.json")["cases"]
    answers = [
        (_page(case["body"]["latin1_bytes"], *case["headers"].get("Content-Type", ())).encoding, _name(case))
        if case["explicit"] is None
        else (None, None)
        for case in cases
    ]
    assert len(cases) == 94
    assert sum(got is not None for got, _ in answers) == 71
    assert _differences(answers) == _ours(SCRAPY)


def test_every_label_of_the_encoding_standard():
    """Each of the 228 labels is understood in Content-Type, in any case and with blanks around it."""
    labels = _load("encoding-labels.json")["labels"]
    assert len(labels) == 228
    for spelled in (str, str.upper, "  {} ".format, '"{}"'.format):
        found = {label: _page("x", f"text/html; charset={spelled(label)}").encoding for label in labels}
        assert found == labels


def test_every_label_in_meta():
    """Each label is understood in a meta element; UTF-16 there means UTF-8, x-user-defined windows-1252."""
    labels = _load("encoding-labels.json")["labels"]
    told = {"utf-16le": "utf-8", "utf-16be": "utf-8", "x-user-defined": "windows-1252"}
    found = {label: _page(f"<meta charset='{label}'>").encoding for label in labels}
    assert found == {label: told.get(name, name) for label, name in labels.items()}


def _page(latin1: str, content_type: str = "") -> Page:
    headers = (("content-type", content_type),) if content_type else ()
    return Page(Response(url="http://a.test/", status=200, headers=headers, body=latin1.encode("latin-1")))


def _name(case):
    return SCRAPY_NAMES.get(case["encoding"], case["encoding"])


def _differences(answers):
    return {n: got for n, (got, expected) in enumerate(answers) if got != expected}


def _ours(listed):
    return {key: answer for key, (answer, _) in listed.items()}


def _load(name):
    return json.loads((CORPORA / name).read_bytes())
