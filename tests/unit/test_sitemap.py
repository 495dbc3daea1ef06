"""Sitemaps and feeds: from bytes to entries."""

from __future__ import annotations

import gzip
import time
import tracemalloc
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.model import PRIORITIES
from shoal.sitemap import MAX_BYTES, MAX_ENTRIES, Entry, Sitemap, parse, priority_of
from shoal.urls import normalize

URL = "http://a.test/maps/1.xml"


def _parse(document: str | bytes, url: str = URL) -> Sitemap:
    return parse(document.encode() if isinstance(document, str) else document, url)


def _pages(document: str | bytes) -> list[str]:
    return [entry.url.removeprefix("http://a.test") for entry in _parse(document).links]


def _urlset(entries: str) -> str:
    return f"<urlset>{entries}</urlset>"


# --- what is read -------------------------------------------------------------------------------


def test_urlset() -> None:
    """The pages of a urlset come in its order, with their dates and priorities."""
    assert _parse("""<?xml version="1.0" encoding="UTF-8"?>
        <urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">
          <url><loc>http://a.test/b</loc><lastmod>2026-01-02</lastmod><priority>0.8</priority></url>
          <url><changefreq>daily</changefreq><loc> http://b.test/a </loc></url>
        </urlset>""") == Sitemap((Entry("http://a.test/b", "2026-01-02", 0.8), Entry("http://b.test/a")))


def test_index() -> None:
    """An index lists sitemaps, which are no pages."""
    assert _parse("""<sitemapindex>
          <sitemap><loc>http://a.test/2.xml.gz</loc><lastmod>2026-01-02</lastmod></sitemap>
          <sitemap><loc>3.xml</loc></sitemap>
        </sitemapindex>""") == Sitemap(children=("http://a.test/2.xml.gz", "http://a.test/maps/3.xml"))


def test_rss() -> None:
    """Of a feed in RSS its items count, not the channel; a guid that is a URL stands in for a link."""
    assert _parse("""<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>
          <link>http://a.test/</link><image><url>http://a.test/logo.png</url><link>/</link></image>
          <item><title>One</title><link>/1</link><guid>http://a.test/g1</guid>
            <pubDate>Sun, 06 Sep 2009 16:20:00 +0000</pubDate></item>
          <item><atom:link href="http://a.test/feed" rel="self"/><link/><guid>http://a.test/g2</guid></item>
          <item><guid isPermaLink="false">7bd204c6</guid>text</item>
          <item><link>/4</link><link>/5</link></item>
        </channel></rss>""").links == (
        Entry("http://a.test/1", "Sun, 06 Sep 2009 16:20:00 +0000"),
        Entry("http://a.test/g2"),
        Entry("http://a.test/4"),
    )


def test_rss_1() -> None:
    """The items of RSS 1.0 stand beside its channel, under a root with a prefix."""
    assert _pages("""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">
        <channel rdf:about="/"><link>/</link></channel><item><link>/1</link></item></rdf:RDF>""") == ["/1"]


def test_atom() -> None:
    """Of a feed in Atom, the first link of an entry to the page itself counts, and none of its source."""
    assert _parse("""<feed xmlns="http://www.w3.org/2005/Atom"><link href="/"/>
          <entry>
            <source><link href="/source"/><updated>2001-01-01T00:00:00Z</updated></source>
            <link rel="edit" href="/edit"/><link href="/1?a=1&amp;b=2" title="a > b"/>
            <link rel="alternate" href="/1.html"/><updated>2026-01-02T03:04:05Z</updated>
          </entry>
          <entry><link rel='alternate' type="text/html" href='/2'></link></entry>
          <entry><id>http://a.test/3</id><link rel="enclosure" href="/3.mp3"/></entry>
        </feed>""").links == (
        Entry("http://a.test/1?a=1&b=2", "2026-01-02T03:04:05Z"),
        Entry("http://a.test/2"),
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_text(end: str) -> None:
    """Of text, each line that is an absolute URL is one."""
    lines = (
        "\ufeffhttp://a.test/1",
        "",
        " \tHTTPS://A.test/2  ",
        "# http://a.test/3",
        "/4",
        "a.test/5",
        "http://",
    )
    assert _parse(end.join(lines)).links == (Entry("http://a.test/1"), Entry("https://a.test/2"))


@pytest.mark.parametrize(
    "document",
    [
        "",
        " \n",
        "<!DOCTYPE html><html><body><a href='/x'>not found</a>",
        "<html><pre>\nhttp://a.test/x\n</pre>",
        '<svg xmlns="http://www.w3.org/2000/svg"><url><loc>http://a.test/x</loc></url></svg>',
        '{"urls": ["http://a.test/x"]}',
        "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'>\nhttp://a.test/x\n</urlset>",
        "<!-- <urlset><url><loc>/x</loc></url></urlset> -->",
    ],
)
def test_other_documents_list_nothing(document: str) -> None:
    """What is neither sitemap nor feed has no entries, whatever URLs are in it."""
    assert _parse(document) == Sitemap()


@pytest.mark.parametrize(
    ("loc", "pages"),
    [
        ("/x#top", ["/x"]),
        ("x", ["/maps/x"]),
        ("HTTP://A.test:80/%7e/../x", ["/x"]),
        ("//a.test/x", ["/x"]),
        ("/x y", ["/x%20y"]),
        ("/ü?ü", ["/%C3%BC?%C3%BC"]),
        ("/x\n  /y", ["/x%20%20/y"]),
        ("mailto:x@a.test", []),
        ("javascript:x()", []),
        ("http://", []),
        ("/" + "x" * 9000, []),
    ],
)
def test_urls_are_normalized(loc: str, pages: list[str]) -> None:
    """URLs are joined to that of the document and normalized; what is not to be fetched is left out."""
    assert _pages(_urlset(f"<url><loc>{loc}</loc></url>")) == pages


def test_a_url_that_comes_again_is_listed_once() -> None:
    """Of several entries for one page the first one counts."""
    assert _parse(
        _urlset(
            "<url><loc>/x</loc><priority>1.0</priority></url><url><loc>/y</loc></url>"
            "<url><loc>http://a.test/x#z</loc><lastmod>2026</lastmod></url>"
        )
    ).links == (Entry("http://a.test/x", None, 1.0), Entry("http://a.test/y"))


def test_a_document_without_a_proper_url() -> None:
    """Without the URL of the document nothing can be told of those in it."""
    assert _parse(_urlset("<url><loc>http://a.test/x</loc></url>"), "nonsense") == Sitemap()


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("0.5", 0.5), ("1", 1.0), ("1.0", 1.0), ("0", 0.0), ("0.0", 0.0), (".7", 0.7), (" 0.25\n", 0.25),
        ("0.6400000000000000133", 0.64), ("1.1", None), ("-0.1", None), ("2", None), ("0,5", None),
        ("nan", None), ("inf", None), ("1e-1", None), ("high", None), ("", None), ("9" * 5000, None),
    ],
)  # fmt: skip
def test_priorities(text: str, priority: float | None) -> None:
    """A priority is a decimal from 0 to 1; anything else is none."""
    (entry,) = _parse(_urlset(f"<url><loc>/x</loc><priority>{text}</priority></url>")).links
    assert entry.priority == priority


@pytest.mark.parametrize(
    ("text", "lastmod"),
    [(" 2026-01-02\n", "2026-01-02"), ("yesterday", "yesterday"), ("", None), ("9" * 65, None)],
)
def test_dates(text: str, lastmod: str | None) -> None:
    """A date is handed on as it stands there, unless it is too long for one."""
    (entry,) = _parse(_urlset(f"<url><loc>/x</loc><lastmod>{text}</lastmod></url>")).links
    assert entry.lastmod == lastmod


def test_priorities_of_shoal() -> None:
    """The first decimal of a sitemap's priority is the one of shoal; the default lies in the middle."""
    assert [priority_of(tenth / 10) for tenth in range(11)] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9]
    assert [priority_of(value) for value in (0.55, 0.99, -1.0, 7.0, float("nan"))] == [5, 9, 0, 9, 0]


@given(st.floats(allow_nan=False), st.floats(0, 1))
def test_priorities_of_shoal_keep_the_order(one: float, other: float) -> None:
    """A higher priority never becomes a lower one, and all are in 0..9."""
    low, high = sorted((one, other))
    assert priority_of(low) <= priority_of(high)
    assert {priority_of(low), priority_of(high)} <= set(PRIORITIES)


# --- what is not well-formed --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loc", "pages"),
    [
        ("/x?a=1&b=2", ["/x?a=1&b=2"]),
        ("/x?a=1&amp;b=2", ["/x?a=1&b=2"]),
        ("/x?a=1&#38;b=2&#x26;c=3", ["/x?a=1&b=2&c=3"]),
        ("/x?a=1&copy=2&lt=3", ["/x?a=1&copy=2&lt=3"]),
        ("/x?q=caf&eacute;", ["/x?q=caf%C3%A9"]),
        ("/x?a&;&&#;&#x;", ["/x?a&;&&"]),
        ("/x&unknown;", []),
        ("/x&my-own.entity;", []),
        ("/x&#xD800;", []),
        ("/x&#99999999;", []),
        ("/x?a=&#" + "9" * 5000 + ";", ["/x?a=&"]),
        ("<![CDATA[ /x?a=1&b=2 ]]>", ["/x?a=1&b=2"]),
        ("<![CDATA[/x?a=1&amp;b=2]]>", ["/x?a=1&amp;b=2"]),
        ("/x<![CDATA[?a=<1>]]>&amp;b", ["/x?a=%3C1%3E&b"]),
        ("/x<!-- <loc>/y</loc> -->/z", ["/x/z"]),
        ("/x<!---->/z", ["/x/z"]),
        ("/x<3", ["/x%3C3"]),
        ("/x<br/>y", ["/x"]),
        ("/x<b>y</b>z", ["/x"]),
        ("/\x01x\x00y", ["/%01x%00y"]),
    ],
)
def test_text_of_a_url(loc: str, pages: list[str]) -> None:
    """References, CDATA and comments mean what they do in XML; other ampersands stand for themselves.

    A reference that means nothing leaves a hole: the URL is not listed.
    """
    assert _pages(_urlset(f"<url><loc>{loc}</loc></url>")) == pages


@pytest.mark.parametrize(
    "entries",
    [
        "<url><loc>/1</loc><url><loc>/2</loc>",
        "<url><loc>/1<loc></url><url><loc>/2</loc></url>",
        "<url><loc>/1</lock></url></b></url><url><loc>/2</loc></url>",
        "<url><x><y></x><loc>/0</loc></url><url><loc>/1</loc></url><url><loc>/2</loc></url>",
        "<url><loc>/1</loc></url><url/><loc>/3</loc><url></url><url><loc>/2</loc></url>",
        "</x></url><url><loc>/1</loc><image:image></url><url><loc>/2</loc></url>",
        "<url><loc a=1 b='>' c=\"'>\">/1</loc></url><url><loc x = '1'>/2</loc></url>",
        "<url><loc>/1</loc></url><url><loc>/2</loc></url></urlset></urlset> rubbish <p>",
        "<url><loc>/1</loc><loc>/2</loc></url>",
        "<url><loc>/1</loc><x><url>http://a.test/3</url></x></url><url><loc>/2</loc></url>",
        "<url>http://a.test/1</url><url>2</url><url>\n\thttp://a.test/2\n</url>",
        "<url><loc>/1</loc></url><url><loc>/2</loc>",
        "<url><loc>/1</loc></url><url><loc>/2</loc></url><url><loc>/3",
        "<url><loc>/1</loc></url><url><loc>/2</loc></url><url><loc>/3</lo",
        "<url><loc>/1</loc></url><url><loc>/2</loc></url><url><loc><![CDATA[/3",
        "<url><loc>/1</loc></url><url><loc>/2</loc></url><!-- <url><loc>/3</loc></url>",
        '<url><loc>/1</loc></url><url><x y="><loc>/2</loc></url>',
    ],
)
def test_broken_markup(entries: str) -> None:
    """A mistake costs one entry at most, and the end of a document only what it cuts in two."""
    assert _pages(f"<urlset>{entries}") == ["/1", "/2"]


@pytest.mark.parametrize(
    "extension",
    [
        '<image:image><image:loc>/no</image:loc></image:image>',
        '<image:loc>/no</image:loc>',
        '<image xmlns="http://www.google.com/schemas/sitemap-image/1.1"><loc>/no</loc></image>',
        '<video:video><video:content_loc>/no</video:content_loc><video:url>/no</video:url></video:video>',
        '<news:news><news:publication_date>2001-01-01</news:publication_date></news:news>',
        '<xhtml:link rel="alternate" hreflang="de" href="/no"/>',
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_extensions_are_passed_over(extension: str, first: bool) -> None:
    """Only the URL of the page itself is one, whatever else an entry has before it or after it."""
    loc = "<loc>/1</loc>"
    entry = extension + loc if first else loc + extension
    assert _pages(_urlset(f"<url>{entry}</url><url><loc>/2</loc></url>")) == ["/1", "/2"]


def test_a_prefix_is_that_of_the_root() -> None:
    """The names of entries and of what is in them have the prefix of the root element."""
    assert _pages(
        "<s:urlset><s:url><image:loc>/0</image:loc><s:loc>/1</s:loc></s:url><x:url><x:loc>/2</x:loc></x:url></s:urlset>"
    ) == ["/1"]


def test_rubbish_before_the_root() -> None:
    """What a broken server writes before the document does not hide it."""
    document = _urlset("<url><loc>/1</loc></url>")
    assert _pages("<br />\n<b>Warning</b>: http://php.test/ <?xml version='1.0'?>" + document) == ["/1"]
    assert _pages("<!-- <feed> --><![CDATA[<rss>]]>" + document) == ["/1"]


def test_declared_entities_are_never_expanded() -> None:
    """A document type changes nothing: neither files nor bombs come out of it, nor what is declared in it."""
    for value in ("'x'", "SYSTEM 'file:///etc/hostname'", "'<url><loc>/no</loc></url>'", "'&e;&e;'"):
        doctype = f"<?xml version='1.0'?><!DOCTYPE urlset SYSTEM 'http://b.test/x.dtd' [<!ENTITY e {value}>]>"
        assert _pages(doctype + _urlset("<url><loc>/&e;</loc></url>&e;<url><loc>/1</loc></url>")) == ["/1"]


# --- bytes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "declared", "mark"),
    [
        ("utf-8", "", b""),
        ("utf-8", "utf-8", b"\xef\xbb\xbf"),
        ("utf-8", "utf-16", b""),
        ("utf-8", "nonsense", b""),
        ("cp1252", "iso-8859-1", b""),
        ("shift_jis", "Shift_JIS", b""),
        ("gb18030", "gb2312", b""),
        ("utf-16-le", "utf-16", b"\xff\xfe"),
        ("utf-16-be", "", b"\xfe\xff"),
        ("utf-16-le", "utf-16", b""),
        ("utf-16-be", "utf-16", b""),
    ],
)
def test_encodings(encoding: str, declared: str, mark: bytes) -> None:
    """The encoding is that of the byte order mark, or else the declared one, or else UTF-8."""
    letter = "ü" if encoding == "cp1252" else "\N{GREEK SMALL LETTER ALPHA}"
    declaration = f'<?xml version="1.0" encoding="{declared}"?>' if declared else ""
    document = declaration + _urlset(f"<url><loc>/{letter}</loc></url>")
    page = normalize(f"http://a.test/{letter}")
    assert [entry.url for entry in _parse(mark + document.encode(encoding)).links] == [page]


def test_bytes_that_are_no_text() -> None:
    """A URL with bytes that its encoding does not know is left out, the others are kept."""
    assert _pages(b"<urlset><url><loc>/\xfc</loc></url><url><loc>/1</loc></url></urlset>") == ["/1"]
    assert _pages(b"http://a.test/1\nhttp://a.test/\xfc\nhttp://a.test/2") == ["/1", "/2"]


def test_gzip() -> None:
    """Packed documents are known by their bytes: in several members, twice, with a broken trailer."""
    document = _urlset("<url><loc>/1</loc></url><url><loc>/2</loc></url>").encode()
    packed = gzip.compress(document)
    members = gzip.compress(document[:30]) + gzip.compress(document[30:])
    for body in (packed, members, gzip.compress(packed), packed[:-8] + bytes(8), packed + bytes(512)):
        assert _pages(body) == ["/1", "/2"]
    assert _parse(gzip.compress(gzip.compress(packed))) == Sitemap()


def test_gzip_that_ends_early() -> None:
    """Of a packed document that is cut, whatever came before is listed, but no part of a URL."""
    lines = b"".join(b"http://a.test/%d\n" % (number**7) for number in range(2000))
    urlset = b"<urlset>%s" % lines.replace(b"http", b"</loc></url><url><loc>http")
    for document in (lines, urlset):
        whole, packed = _pages(document), gzip.compress(document)
        for size in range(len(packed) // 2, len(packed) // 2 + 12):
            part = _pages(packed[:size])
            assert 500 < len(part) < 1500
            assert part == whole[: len(part)]


def test_gzip_that_is_none() -> None:
    """Bytes that only begin like gzip, or break off at once, list nothing."""
    for body in (b"\x1f\x8b", b"\x1f\x8b\x08\x00http://a.test/1\n", gzip.compress(b"")):
        assert _parse(body) == Sitemap()


# --- limits -------------------------------------------------------------------------------------


def test_the_rest_of_a_large_document_is_not_read() -> None:
    """Reading stops at MAX_BYTES, packed or not; a line that goes on behind it is no URL."""
    document = b"http://a.test/1\n%b\nhttp://a.test/2345678" % (b"#" * (MAX_BYTES - 30))
    for body in (document, gzip.compress(document, 1)):
        assert _pages(body) == ["/1"]


def test_as_many_urls_as_are_read() -> None:
    """More URLs than sitemaps.org allows are read, up to MAX_ENTRIES."""
    lines = b"".join(b"http://a.test/%d\n" % number for number in range(MAX_ENTRIES + 1))
    listed = _parse(lines).links
    assert len(listed) == MAX_ENTRIES
    assert listed[-1] == Entry(f"http://a.test/{MAX_ENTRIES - 1}")


SIZE = 300_000
HOSTILE = {
    "deep": ("<urlset>", "<a>"),
    "deep in an entry": ("<urlset><url>", "<a>"),
    "entries": ("<urlset>", "<url>"),
    "URLs in one entry": ("<urlset><url>", "<loc>x</loc>"),
    "no end of a tag": ("<urlset>", "<a "),
    "no end of a name": ("<urlset><", "x"),
    "no end of a value": ("<urlset>", '<a b="'),
    "mixed quotes": ("<urlset>", "<a b=\"'"),
    "no end of comments": ("<urlset>", "<!--"),
    "no end of CDATA": ("<urlset><url><loc>", "<![CDATA["),
    "CDATA": ("<urlset><url><loc>", "<![CDATA[]]>"),
    "a long attribute": ('<feed><entry><link href="', "x"),
    "a long name of an attribute": ("<feed><entry><link ", "x"),
    "attributes": ("<feed><entry><link ", 'x="" '),
    "no values": ("<feed><entry><link ", "x "),
    "equals signs": ("<feed><entry><link ", "x = "),
    "declarations": ("<!DOCTYPE urlset [", '<!ENTITY a "&a;&a;">'),
    "references": ("<urlset><url><loc>", "&amp;"),
    "references in pieces": ("<urlset><url><loc>", "&amp;" * 5000 + "<!---->"),
    "ampersands": ("<urlset><url><loc>", "&"),
    "a long reference": ("<urlset><url><loc>&", "x"),
    "a long number": ("<urlset><url><loc>&#", "9"),
    "a long URL": ("<urlset><url><loc>http://", "x"),
    "a long host": ("http://", "\N{LATIN SMALL LETTER U WITH DIAERESIS}."),
    "signs": ("", "<"),
    "blanks": ("x", " "),
    "lines": ("x", "\n"),
    "lines with blanks": ("x", "\r\t"),
    "schemes": ("", "http"),
    "NULs": ("", "\0"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_take_no_time(name: str) -> None:
    """The time is linear in the size, whatever it is and whether it ends well: here, a tenth of a second."""
    head, unit = HOSTILE[name]
    document = head + unit * (SIZE // len(unit))
    began = time.process_time()
    for end in ("", "/></loc></url>", '"/></loc></url>'):
        assert len(_parse(document + end).links) <= 1
    assert time.process_time() - began < 2


def test_entities_that_multiply_take_no_time() -> None:
    """Entities that expand to gigabytes are left as they are, and nothing is listed with them."""
    entities = "".join(f"<!ENTITY e{level + 1} '{f'&e{level};' * 10}'>" for level in range(10))
    document = f"<!DOCTYPE urlset [<!ENTITY e0 'ha'>{entities}]>" + _urlset("<url><loc>/&e10;</loc></url>")
    began = time.process_time()
    assert _parse(document) == Sitemap()
    assert time.process_time() - began < 1


# --- anything -----------------------------------------------------------------------------------

PIECES = (
    "<urlset>", "<sitemapindex>", "<rss>", "<feed>", "<s:urlset>", "</urlset>", "<url>", "<sitemap>",
    "<item>", "<entry>", "<s:url>", "</url>", "</item>", "<url/>", "<loc>", "<link>", "<guid>", "</loc>",
    "<lastmod>", "<priority>", "<loc/>", "<link href='/l'/>", "<link rel='self' href=\"/m\">", "<x>", "</x>",
    "http://b.test/x?a=1&b=2", "/y", "mailto:z", "0.5", "2026-01-02", "&amp;", "&x;", "&", "<", ">", "'", '"',
    "<!--", "-->", "<![CDATA[", "]]>", "<!DOCTYPE x [", "<?xml version='1.0' encoding='utf-16'?>",
    " ", "\n", "\0", "\ufeff", "\ufffd", "\ud800", "ü",
)  # fmt: skip
documents = (
    st.lists(st.sampled_from(PIECES)).map("".join).map(lambda text: text.encode("utf-8", "surrogatepass"))
)


@given(st.binary() | documents | documents.map(gzip.compress) | st.binary().map(b"\x1f\x8b\x08".__add__))
def test_any_bytes(body: bytes) -> None:
    """Any bytes give a sitemap: normalized URLs, each once, priorities from 0 to 1."""
    listed = _parse(body)
    for urls in ([entry.url for entry in listed.links], list(listed.children)):
        assert len(set(urls)) == len(urls)
        assert [normalize(url) for url in urls] == urls
    assert all(entry.priority is None or 0 <= entry.priority <= 1 for entry in listed.links)


@given(documents, st.text())
def test_any_url(body: bytes, url: str) -> None:
    """The URL of the document may be anything too."""
    assert isinstance(_parse(body, url), Sitemap)


@given(st.data())
def test_any_part(data: st.DataObject) -> None:
    """The start of a urlset lists the start of what all of it lists."""
    entries = data.draw(
        st.lists(st.sampled_from(["<loc>/1?a&b</loc>", "<loc><![CDATA[/2]]></loc>", "<loc>/3</loc>"]))
    )
    document = _urlset("".join(f"<url><x/>{entry}</url>\n" for entry in entries))
    pages, part = _pages(document), _pages(document[: data.draw(st.integers(0, len(document)))])
    assert part == pages[: len(part)]


@given(
    st.lists(st.text(st.characters(exclude_categories=["C"], exclude_characters="\ufffd"))),
    st.sampled_from(["utf-8", "us-ascii", "utf-16", "iso-8859-1", "koi8-r"]),
)
def test_any_well_formed_document(texts: list[str], encoding: str) -> None:
    """What an XML writer wrote is read as it was meant, in any encoding, whatever stands in attributes."""
    urlset = ElementTree.Element("urlset", note="".join(texts))
    for text in texts:
        url = ElementTree.SubElement(urlset, "url")
        ElementTree.SubElement(url, "note", note=text).text = text
        ElementTree.SubElement(url, "loc", note=text).text = text
    pages = [normalize(text.strip(), URL) for text in texts if text.strip()]
    listed = _parse(ElementTree.tostring(urlset, encoding)).links
    assert [entry.url for entry in listed] == list(dict.fromkeys(filter(None, pages)))


# --- long ones ----------------------------------------------------------------------------------


def test_a_long_document_is_read_in_pieces() -> None:
    """As it would be as a whole, wherever the pieces end: in comments, CDATA and letters of several bytes."""
    junk = [
        "<!-- <url><loc>/no</loc></url> -->",
        "<image:image><![CDATA[<loc>/no</loc> é]]></image:image>",
        "日",
    ]
    entries = [f"<url>{junk[n % 3] * (n % 50)}<loc>/{n}é</loc></url>" for n in range(12_000)]
    document = _urlset("".join(entries)).encode()
    assert len(document) > 5 * 2**20
    assert _pages(document) == [f"/{n}%C3%A9" for n in range(12_000)]


def test_a_comment_longer_than_a_piece() -> None:
    """It hides what is in it, and takes no longer than it must."""
    long = f"<!-- {'<url><loc>/no</loc></url>' * 400_000} -->"
    assert _pages(_urlset(f"<url><loc>/a</loc></url>{long}<url><loc>/b</loc></url>")) == ["/a", "/b"]
    assert _pages(_urlset(f"<url><loc>/a</loc></url>{long[:-4]}")) == ["/a"]


def test_a_long_document_takes_little_more_memory_than_its_bytes() -> None:
    """As text as a whole it would take four times as much."""
    filler = "<image:title>\N{FISH}" + "x" * 10_000 + "</image:title>"
    document = _urlset("".join(f"<url>{filler}<loc>/{n}</loc></url>" for n in range(3_000))).encode()
    tracemalloc.start()
    assert len(_parse(document).links) == 3_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < len(document)
