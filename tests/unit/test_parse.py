"""`Page`, selectors, fields: what a handler sees of the bytes that a server sent."""

import json
import subprocess
import sys
import time

import pytest
import turbohtml
from hypothesis import given
from hypothesis import strategies as st

from shoal import parse
from shoal.errors import ConfigError
from shoal.model import Link, Response
from shoal.parse import Page, compile_selector, extract, parse_field
from shoal.urls import Spelling

URL = "http://a.test/dir/page"
HTML = "text/html; charset=utf-8"


def page(body="", content_type=HTML, *, headers=(), link=None, **options):
    """A page with this body."""
    raw = body if isinstance(body, bytes) else body.encode()
    given = (("content-type", content_type),) if content_type is not None else ()
    return Page(Response(url=URL, status=200, headers=(*given, *headers), body=raw), link, **options)


def urls(links):
    """The URLs, shortened where they are of this site."""
    return [link.url.removeprefix("http://a.test") for link in links]


# --- the response -----------------------------------------------------------------------------


def test_a_page_shows_its_response():
    """URL, status, headers and body are those of the response."""
    response = Response(url=URL, status=404, headers=(("x-a", "1"), ("x-b", "2"), ("x-a", "3")), body=b"\0")
    seen = Page(response)
    assert (seen.url, seen.status, seen.headers, seen.body) == (URL, 404, response.headers, b"\0")
    assert (seen.header("X-A"), seen.header("x-b"), seen.header("x-c")) == ("1", "2", None)


def test_a_page_shows_its_link():
    """Depth, priority and meta are those of the link, and nothing without one."""
    leased = page(link=Link(url=URL, priority=7, depth=3, meta={"shelf": "a"}))
    assert (leased.depth, leased.priority, leased.meta) == (3, 7, {"shelf": "a"})
    assert (page().depth, page().priority, dict(page().meta)) == (0, 0, {})
    assert dict(page(link=Link(url=URL)).meta) == {}


def test_nothing_is_parsed_before_it_is_asked_for(monkeypatch):
    """The tree is made on first use, once."""
    parsed = []
    real = turbohtml.parse
    monkeypatch.setattr(turbohtml, "parse", lambda *args, **more: parsed.append(1) or real(*args, **more))
    shown = page("<title>t</title><a href=x>")
    assert (shown.url, shown.body, shown.content_type, shown.depth) == (URL, shown.body, "text/html", 0)
    assert not parsed
    assert (shown.title, urls(shown.links()), shown.css("a::attr(href)").get()) == ("t", ["/dir/x"], "x")
    assert len(parsed) == 1


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "essence"),
    [
        ("text/html", "text/html"),
        ("Text/HTML ; charset=x", "text/html"),
        ("application/json;", "application/json"),
        ("", ""),
        (None, ""),
    ],
)
def test_content_type(header, essence):
    """The content type is the media type without parameters, in lower case; empty if there is none."""
    assert page(content_type=header).content_type == essence


@pytest.mark.parametrize(
    ("body", "content_type", "encoding", "text"),
    [
        (b"\xef\xbb\xbf\xc3\xa9", "text/html; charset=koi8-r", "utf-8", "é"),
        (b"\xff\xfe\xe9\0", "text/html; charset=utf-8", "utf-16le", "é"),
        (b"\xfe\xff\0\xe9", "text/plain", "utf-16be", "é"),
        (b"\xe9", "text/html; charset=latin1", "windows-1252", "é"),
        (b"\xe9", 'text/html; charset="ISO-8859-2"', "iso-8859-2", "é"),
        (b"\xe9", "text/html; x=y; CHARSET = 'iso-8859-2' ; charset=utf-8", "iso-8859-2", "é"),
        (b"<meta charset=utf-8>\xe9", "text/html; charset=iso-8859-2", "iso-8859-2", "<meta charset=utf-8>é"),
        (b"<meta charset=koi8-r>\xc1", "text/html", "koi8-r", "<meta charset=koi8-r>а"),
        (b"<meta charset=koi8-r>\xc1", None, "koi8-r", "<meta charset=koi8-r>а"),
        (b"<meta charset=koi8-r>\xc1", "text/html; charset=nonsense", "koi8-r", "<meta charset=koi8-r>а"),
        (b"\xc3\xa9", "text/html", "utf-8", "é"),
        (b"\xe9", "text/html", "windows-1252", "é"),
        (b"plain", "text/html", "windows-1252", "plain"),
        (b"plain", "text/plain", "utf-8", "plain"),
        (b"caf\xe9", "text/csv", "windows-1252", "café"),
        (b"<meta charset=koi8-r>\xc3\xa9", "text/plain", "utf-8", "<meta charset=koi8-r>é"),
        (b"<?xml version='1.0' encoding='ISO-8859-2'?>\xe9", "text/html", "iso-8859-2", None),
        (b"<?xml version='1.0' encoding='ISO-8859-2'?>\xe9", "text/xml", "iso-8859-2", None),
        (b"<?xml version='1.0' encoding='UTF-16'?>\xc3\xa9", "application/xml", "utf-8", None),
        (b"<?xml version='1.0' encoding='nonsense'?>\xc3\xa9", "application/xhtml+xml", "utf-8", None),
        (b"<?xml encoding='koi8-r'?><meta charset=iso-8859-2>", "text/html", "iso-8859-2", None),
        (b"\xff\xc3(\xe9", "text/html; charset=utf-8", "utf-8", "\ufffd\ufffd(\ufffd"),
        (b"a\x81", "text/html; charset=shift_jis", "shift_jis", "a\ufffd"),
        (b"anything", "text/html; charset=iso-2022-kr", "replacement", "\ufffd"),
        (b"\xe9", "text/html; charset=x-user-defined", "x-user-defined", "\uf7e9"),
        (b"", "text/html", "windows-1252", ""),
        (b"", "application/json", "utf-8", ""),
    ],
)
def test_encoding_and_text(body, content_type, encoding, text):
    """Best evidence first: byte order mark, Content-Type, what the document says, what it looks like."""
    shown = page(body, content_type)
    assert shown.encoding == encoding
    assert text is None or shown.text == text


@pytest.mark.parametrize("label", ["\0", "é", "utf-8\0", "x" * 100_000, " ", '"', "nope" + " " * 9_000])
def test_a_broken_charset_is_no_charset(label):
    """What is no label in Content-Type counts as not said."""
    assert page("é", f"text/html; charset={label}").encoding == "utf-8"


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title> A\n  &amp;\tb </title><title>no</title>", "A & b"),
        ("<svg><title>no</title></svg><title>yes</title>", "yes"),
        ("<template><title>no</title></template><p><title>yes</title>", "yes"),
        ("<title> </title>", None),
        ("<h1>no</h1>", None),
        ("", None),
    ],
)
def test_title(html, title):
    """The title is that of the first HTML title element, white space collapsed."""
    assert page(html).title == title


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": [1, null, "\xc3\xa9"]}',
        b'\xef\xbb\xbf{"a": [1, null, "\xc3\xa9"]}',
        '\ufeff{"a": [1, null, "é"]}'.encode("utf-16-le"),
        b'{"a": [1, null, "\xe9"]}',
    ],
)
def test_json(body):
    """JSON is read in the encoding it comes in."""
    assert page(body, "application/json").json() == {"a": [1, None, "é"]}


@pytest.mark.parametrize(
    ("body", "content_type", "message"),
    [
        ("<p>", HTML, f"not JSON: {URL} (text/html): Expecting value: line 1 column 1 (char 0)"),
        ("", None, f"not JSON: {URL} (no content type): Expecting value: line 1 column 1 (char 0)"),
        ('{"a":\n}', "text/json", f"not JSON: {URL} (text/json): Expecting value: line 2 column 1 (char 6)"),
        ("[" * 100_000, "text/json", f"not JSON: {URL} (text/json): nested too deeply"),
    ],
)
def test_what_is_not_json(body, content_type, message):
    """What is not JSON is a ValueError with one line that says where."""
    with pytest.raises(ValueError, match="not JSON") as caught:
        page(body, content_type).json()
    assert str(caught.value) == message


# --- selectors ----------------------------------------------------------------------------------

SHELF = """<ul id=u title=shelf><li class="a  b">A <a href=1 title=t>one</a> tail
<ul><li>B<!--c--> <a href=2>two</a></li></ul> end</li><li></li></ul>"""


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("a", ['<a href="1" title="t">one</a>', '<a href="2">two</a>']),
        ("a::text", ["one", "two"]),
        ("a::attr(href)", ["1", "2"]),
        ("a::attr(title)", ["t"]),
        ("A::attr( 'HREF' )", ["1", "2"]),
        ("li::text", ["A ", " tail\n", "B", " ", " end"]),
        ("li ::text", ["A ", "one", " tail\n", "B", " ", "two", " end"]),
        ("ul > li > ::text", ["one", "two"]),
        ("::text", ["A ", "one", " tail\n", "B", " ", "two", " end"]),
        ("::attr(title)", ["shelf", "t"]),
        ("#u ::attr(title)", ["shelf", "t"]),
        ("a::text, li li::text", ["one", "B", " ", "two"]),
        ("a::attr(title), a::attr(href)", ["t", "1", "2"]),
        ("li li, a[title]::text", ['<li>B<!--c--> <a href="2">two</a></li>', "one"]),
        ("a[href='1,::text']::text", []),
        ("a:not([title])::text", ["two"]),
        ("li:nth-child(2)", ["<li></li>"]),
        ("b", []),
        ("b::text", []),
    ],
)
def test_css(selector, found):
    """Selectors find what they find in Scrapy: elements, the text directly in them, attributes."""
    selection = page(SHELF).css(selector)
    assert selection.getall() == found
    assert selection.get() == (found[0] if found else None)
    assert selection.get("nothing") == (found[0] if found else "nothing")
    assert len(selection) == len(found)
    assert bool(selection) == bool(found)
    assert [one.get() for one in selection] == found


def test_a_selection_is_a_sequence():
    """Items and slices of a selection are selections."""
    texts = page(SHELF).css("a::text")
    assert (texts[0].get(), texts[-1].get(), texts[1:].getall()) == ("one", "two", ["two"])
    with pytest.raises(IndexError):
        texts[2]


def test_css_within_elements():
    """Within an element a selector finds the element itself, too, and the empty one all that is in it."""
    first, second, _ = page(SHELF).css("li")
    assert first.css("a::attr(href)").getall() == ["1", "2"]
    assert second.css("::text").getall() == ["B", " ", "two"]
    assert second.css("li").getall() == second.getall()
    assert second.css("a").css("::attr(href)").get() == "2"
    assert second.css(":scope > a::text").get() == "two"
    assert second.css("#u li a::text").getall() == ["two"]
    assert first.css("li ::text").getall() == first.css("::text").getall()
    assert page(SHELF).css("ul").css("ul > li > a::text").getall() == ["one", "two", "two"]
    assert second.css("a::text").css("a").getall() == []


def test_attributes():
    """The attributes of the first element come as written; of none, or of strings, there are none."""
    shown = page(SHELF + "<input disabled value='a &amp; b' class=' x  y '>")
    assert shown.css("li").attrib == {"class": "a  b"}
    assert shown.css("input").attrib == {"disabled": "", "value": "a & b", "class": " x  y "}
    assert shown.css("b").attrib == shown.css("a::text").attrib == {}


def test_text_as_it_reads():
    """The text of an element is one line, with a blank where the page has a break."""
    shown = page("<div> A\n<b>B</b>c<br>d<p>e</p><ul><li>f<li>g</ul></div><table><td>h<td>i</table><p></p>")
    assert shown.css("div, table").text == "A Bc d e f g"
    assert shown.css("table").text == "h i"
    assert shown.css("p + p").text == shown.css("none").text is None
    assert shown.css("body > p").text == ""
    assert shown.css("div::text").text == "A"


def test_html_that_repeats_itself_is_bounded(monkeypatch):
    """The HTML of many elements, one in another, is refused before it fills the memory."""
    nested = page("<div>" * 100).css("div")
    monkeypatch.setattr(parse, "MAX_HTML_LENGTH", 10_000)
    with pytest.raises(ValueError, match="the HTML of 100 elements, one in another, is too long"):
        nested.getall()
    assert len(nested.get()) == 1100


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("div[", "'div[': expected an identifier at position 4"),
        ("", "'': expected a selector at position 0"),
        ("a,,b", "'a,,b': expected a selector at position 2"),
        ("h1::text, b[", "'h1::text, b[': expected an identifier at position 12"),
        ("a > ", "'a > ': expected a selector at position 4"),
        ("a::before", "'a::before': only ::text and ::attr(name) are known, at position 1"),
        ("a::texts", "'a::texts': only ::text and ::attr(name) are known, at position 1"),
        ("a::attr", "'a::attr': only ::text and ::attr(name) are known, at position 1"),
        ("a::attr()", "'a::attr()': only ::text and ::attr(name) are known, at position 1"),
        ("a::text b", "'a::text b': nothing may follow ::text, at position 7"),
        ("a::text::text", "'a::text::text': nothing may follow ::text, at position 7"),
        ("a:not(b::text)", "'a:not(b::text)': expected an identifier at position 8"),
        ("a:nope", "'a:nope': unknown pseudo-class at position 6"),
        ("a\n{", "'a\\n{': expected a combinator or the end of the selector at position 2"),
        (":not(" * 10_000, None),
    ],
)
def test_selectors_that_are_not_valid(selector, message):
    """A selector that is not valid is a ConfigError of one line that shows the place."""
    with pytest.raises(ConfigError) as caught:
        compile_selector(selector)
    assert "\n" not in str(caught.value)
    if message is not None:
        assert str(caught.value) == f"invalid CSS selector {message}"


def test_pages_refuse_selectors_that_are_not_valid():
    """All that takes a selector says what is wrong with it, on an empty page, too."""
    for ask in (page().css, page().css("body").css, page().links):
        with pytest.raises(ConfigError, match="invalid CSS selector 'a\\['"):
            ask("a[")


# --- links --------------------------------------------------------------------------------------


def test_links():
    """Links are those of a, area and link rel=next, normalized, in order, each URL once."""
    shown = page(
        """<link rel=stylesheet href=no><link rel="prefetch NEXT" href="?p=2"><a href="../up#x">u</a>
        <a href="HTTP://B.test:80/%7ex">b</a><map><area href=/area></map><a href="/up#y">again</a><a>none</a>
        <a href="mailto:x@y">m</a><a href="javascript:void(0)">j</a><a href="http://[">bad</a>
        <svg><a href=s1></a><a xlink:href=s2></a></svg><a xlink:href=no></a><iframe src=no></iframe>
        <a href="">self</a>""",
        link=Link(url=URL, priority=5, depth=2),
    )
    found = shown.links()
    assert urls(found) == [
        "/dir/page?p=2", "/up", "http://b.test/~x", "/area", "/dir/s1", "/dir/s2", "/dir/page"
    ]  # fmt: skip
    assert {(link.depth, link.priority, link.meta) for link in found} == {(3, 0, None)}


def test_links_carry_what_they_are_given():
    """Priority and meta of links are the arguments."""
    (link,) = page("<a href=x>").links(priority=9, meta={"shelf": 1})
    assert (link.priority, link.meta, link.depth) == (9, {"shelf": 1}, 1)
    for priority in (-1, 10):
        with pytest.raises(ValueError, match=f"priority {priority} is not in 0..9"):
            page().links(priority=priority)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("a", ["/dir/1", "/dir/2", "/dir/3"]),
        ("li.next a", ["/dir/2"]),
        ("li", ["/dir/1", "/dir/2"]),
        ("li.next, p, #n", ["/dir/2", "/dir/3"]),
        ("ul, li", ["/dir/1", "/dir/2"]),
        ("iframe", ["/dir/f"]),
        ("a::attr(href)", ["/dir/1", "/dir/2", "/dir/3"]),
        ("img::attr(src), li::attr(data-u)", ["/dir/i", "/dir/u"]),
        ("code::text", ["/dir/t"]),
        ("b", []),
    ],
)
def test_links_of_a_selector(selector, found):
    """A selector gives the links that match, those within what matches, or what an attribute says."""
    html = """<ul><li data-u=u><a href=1>1</a></li><li class=next><b></b><a href=2>2</a><a>no</a></li></ul>
    <p><a id=n href=3>3</a></p><iframe src=f></iframe><img src=i><code>t</code>"""
    assert urls(page(html).links(selector)) == found


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<base href=/b/><base href=/c/><a href=x>", "/b/x"),
        ("<base target=x><base href=/c/><a href=x>", "/c/x"),
        ("<a href=x></a><base href=b/>", "/dir/b/x"),
        ("<base href=http://c.test/b/?q><a href=''>", "http://c.test/b/?q"),
        ("<base href='data:,x'><a href=x>", "/dir/x"),
        ("<base href='http://['><a href=x>", "/dir/x"),
        ("<svg><base href=/b/></svg><a href=x>", "/dir/x"),
        ("<template><base href=/b/></template><a href=x>", "/dir/x"),
    ],
)
def test_base(html, found):
    """Links are joined to the first base with a href, if that is a URL to fetch."""
    assert urls(page(html).links()) == urls(page(html).links("a")) == [found]


def test_templates_hold_no_links():
    """What is in a template is not there until a script uses it; a declared shadow root is there."""
    html = """<template><a href=1></a><template><a href=2></a></template></template><a href=3></a>
    <div><template shadowrootmode=open><a href=4></a><template><a href=5></a></template></template></div>"""
    assert urls(page(html).links()) == ["/dir/3", "/dir/4"]
    for selector in ("a", "a::attr(href)", "template, template a, :root"):
        assert urls(page(html).links(selector)) == ["/dir/3", "/dir/4"]


def test_frames_are_links_by_option():
    """Frames are links if the page, or the call, is told so."""
    html = "<iframe src=f></iframe><a href=x></a><iframe></iframe>"
    assert urls(page(html).links(iframes=True)) == ["/dir/f", "/dir/x"]
    assert urls(page(html, iframes=True).links()) == ["/dir/f", "/dir/x"]
    assert urls(page(html, iframes=True).links(iframes=False)) == urls(page(html).links()) == ["/dir/x"]
    assert urls(page("<frameset><frame src=f>").links(iframes=True)) == ["/dir/f"]


def test_nofollow_is_obeyed_by_option():
    """Links and pages marked nofollow give no links if the page, or the call, is told to obey."""
    html = "<a href=x></a><a rel='external NoFollow' href=y></a><a rel=nofollower href=z></a>"
    assert urls(page(html).links()) == ["/dir/x", "/dir/y", "/dir/z"]
    assert urls(page(html).links(obey_nofollow=True)) == ["/dir/x", "/dir/z"]
    assert urls(page(html, obey_nofollow=True).links("a")) == ["/dir/x", "/dir/z"]
    assert urls(page(html).links("a::attr(href)", obey_nofollow=True)) == ["/dir/x", "/dir/z"]
    assert page(html, obey_nofollow=True).links(obey_nofollow=False) == page(html).links()
    forbidden = page("<meta name=robots content='noindex, NoFollow'>" + html)
    assert (forbidden.links(obey_nofollow=True), len(forbidden.links())) == ([], 3)
    assert page(html, headers=(("x-robots-tag", "none"),)).links(obey_nofollow=True) == []


@pytest.mark.parametrize(
    ("content", "target"),
    {
        "0;url=/t": "/t",
        "0; URL=/t": "/t",
        "5 ; url = '/t'": "/t",
        '0;url="/t': "/t",
        "0,/t": "/t",
        "0 /t": "/t",
        ".5;/t": "/t",
        "0;url=../t": "/t",
        "0;url='/t' and more": "/t",
        "0": None,
        "0;": None,
        "0x;url=/t": None,
        ";url=/t": None,
        "url=/t": None,
        "0;url=javascript:1": None,
        " " * 100_000 + "0" * 100_000 + " " * 100_000: None,
    }.items(),
)
def test_a_refresh_is_a_link(content, target):
    """It is where browsers would go, whatever the order of the attributes; without a target there is none."""
    meta = f'<meta content="{content.replace(chr(34), "&quot;")}" http-equiv="Refresh">'
    assert urls(page(meta).links()) == ([target] if target else [])
    assert urls(page("", headers=(("refresh", content),)).links()) == ([target] if target else [])


def test_the_refresh_header_knows_no_base_element():
    """Browsers obey it before they read the page (HTML standard 7.5.1); it is the first of the links."""
    shown = page("<base href='/elsewhere/'><a href=a>", headers=(("refresh", "3; url=next?x=1#y"),))
    assert urls(shown.links()) == ["/dir/next?x=1", "/elsewhere/a"]
    assert urls(shown.links("a")) == ["/elsewhere/a"]


def test_links_are_spelled_as_the_crawl_wants():
    """The crawl's spelling applies to all links of the page."""
    shown = page("<a href='?b=1&a=2&utm_x=3'>", spelling=Spelling(sort_query=True, drop_params=("utm_*",)))
    assert urls(shown.links()) == ["/dir/page?a=2&b=1"]


@pytest.mark.parametrize(
    ("charset", "query"),
    [
        ("utf-8", "%C3%A9"),
        ("utf-16le", "%C3%A9"),
        ("windows-1252", "%E9"),
        ("iso-8859-8-i", "%26%23233%3B"),
        ("windows-874", "%26%23233%3B"),
        ("x-mac-cyrillic", "%26%23233%3B"),
        ("big5", "%88m"),
        ("gbk", "%A8%A6"),
        ("x-user-defined", "%C3%A9"),
        ("iso-2022-kr", None),
    ],
)
def test_queries_are_in_the_encoding_of_the_page(charset, query):
    """Browsers write the path of a link in UTF-8 and its query in the encoding of the page."""
    html = "<a href='/&eacute;?&eacute;'>".encode("utf-16-le" if charset == "utf-16le" else "ascii")
    found = [] if query is None else [f"/%C3%A9?{query}"]
    assert urls(page(html, f"text/html; charset={charset}").links()) == found


@pytest.mark.parametrize(
    ("html", "canonical"),
    [
        ("<link rel='x CANONICAL' href='/c#f'><link rel=canonical href=/no>", "http://a.test/c"),
        ("<base href=http://c.test/><link rel=canonical><link rel=canonical href=c>", "http://c.test/c"),
        ("<link rel=canonical href='mailto:x'>", None),
        ("<template><link rel=canonical href=/no></template><a rel=canonical href=/no>", None),
        ("", None),
    ],
)
def test_canonical(html, canonical):
    """The canonical URL is that of the first link rel=canonical, normalized."""
    assert page(html).canonical == canonical


@pytest.mark.parametrize(
    ("html", "headers", "directives"),
    [
        ("", [], set()),
        (
            "<meta name=' Robots ' content='NoIndex,x , '><meta name=robots content=y>",
            [],
            {"noindex", "x", "y"},
        ),
        ("<meta name=googlebot content=noindex><meta name=robots>", [], set()),
        ("<meta name=robots content=none>", [], {"none", "noindex", "nofollow"}),
        ("", ["noindex", "noarchive, nofollow"], {"noindex", "noarchive", "nofollow"}),
        ("", ["otherbot: noindex, nofollow", "max-snippet: 50, noindex"], {"max-snippet: 50", "noindex"}),
        ("<template><meta name=robots content=noindex></template>", [], set()),
    ],
)
def test_robots_directives(html, headers, directives):
    """Directives come from meta robots and X-Robots-Tag; those for one robot by name are left out."""
    shown = page(html, headers=[("x-robots-tag", value) for value in headers])
    assert shown.robots_directives == directives


def test_pages_that_are_not_html():
    """Text of any kind can be read, and XML can be selected from."""
    sitemap = page("<?xml version='1.0'?><urlset><url><loc>http://a.test/é</loc></url></urlset>", "text/xml")
    assert sitemap.css("url > loc::text").getall() == ["http://a.test/é"]
    assert urls(sitemap.links("loc::text")) == ["/%C3%A9"]
    table = page("a,b\n1,é\n", "text/csv")
    assert (table.text, table.links(), table.title) == ("a,b\n1,é\n", [], None)


# --- fields -------------------------------------------------------------------------------------

PRODUCT = """<title>Lamp - shop</title><article class=product data-id=P1><h1>Desk <b>lamp</b>
</h1><p>Price: <span itemprop=price content="9.50">&euro;9.50</span></p><p></p></article>"""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("t=title", "Lamp - shop"),
        ("t = h1", "Desk lamp"),
        ("t=h1::text", "Desk lamp"),
        ("t=h1 ::text", "Desk lamp"),
        ("t=article.product::attr(data-id)", "P1"),
        ("t=[itemprop=price]::attr(content)", "9.50"),
        ("t=p", "Price: €9.50"),
        ("t=p + p", ""),
        ("t=h2, h1", "Desk lamp"),
        ("t=h1::attr(title), h1::text", "Desk lamp"),
        ("og:title x=h1", "Desk lamp"),
    ],
)
def test_fields(field, value):
    """A field is the whole text of the first place that matches, on one line, or an attribute."""
    parsed = parse_field(field)
    assert extract(page(PRODUCT), [parsed]) == {"url": URL, parsed.name: value}


def test_rows():
    """A row holds the URL and all fields in their order; where none is found there is no row."""
    fields = [parse_field(text) for text in ("price=.no", "title=h1", "id=.no::attr(x)")]
    row = extract(page(PRODUCT), fields)
    assert row == {"url": URL, "price": None, "title": "Desk lamp", "id": None}
    assert list(row) == ["url", "price", "title", "id"]
    assert extract(page(PRODUCT), fields[::2]) is extract(page(""), fields) is extract(page(""), []) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h1", "not NAME=CSS: 'h1'; write for example title=h1"),
        ("=h1", "not NAME=CSS: '=h1'; write for example title=h1"),
        ("a[href=x]", "not NAME=CSS: 'a[href=x]'; write for example title=h1"),
        ("url=h1", "'url=h1': every row has the page's url already; choose another name"),
        ("t=", "invalid CSS selector '': expected a selector at position 0"),
        ("t=a[", "invalid CSS selector 'a[': expected an identifier at position 2"),
    ],
)
def test_fields_that_are_not_valid(text, message):
    """A field that is not valid is a ConfigError of one line."""
    with pytest.raises(ConfigError) as caught:
        parse_field(text)
    assert str(caught.value) == message


# --- hostile input ------------------------------------------------------------------------------

ASK_ALL = """
import sys, threading
from shoal.model import Response
from shoal.parse import Page, extract, parse_field

SELECTORS = ("div", "div::text", "div ::text", "::attr(title)", "div div p a, p::text", ".x ~ b a:not(div *)")

def ask():
    page = Page(Response(url="http://a.test/", status=200, headers=(), body=body))
    page.title, page.encoding, page.text, page.canonical, page.robots_directives
    page.links(iframes=True, obey_nofollow=True)
    page.css("*").text, page.css("p, a").attrib, page.links("a::attr(href)")
    for selector in SELECTORS:
        found = page.css(selector)
        found.get(), found[-1:].css("a::text").getall(), page.links(selector)
        if "::" in selector:
            found.getall()
    extract(page, [parse_field("x=div"), parse_field("y=div ::text"), parse_field("z=p::attr(title)")])
    try:
        page.json()
    except ValueError:
        pass

body = sys.stdin.buffer.read()
threading.stack_size(512 * 1024)
thread = threading.Thread(target=ask)
thread.start()
thread.join()
del thread
"""

HOSTILE = {
    "a million nested tags": lambda: b"<div>t" * 1_000_000 + b"<a href=x>y</a>",
    "nested templates": lambda: b"<template>" * 100_000 + b"<a href=x>y</a>",
    "nested links": lambda: b"<svg><a href=x>" * 100_000,
    "nested tables": lambda: b"<table>" * 200_000 + b"x<a href=x>y</a>",
    "nested lists": lambda: b"<ul><li>" * 100_000,
    "formatting": lambda: b"".join(b"<b n%d><i n%d>" % (n, n) for n in range(20_000)) + b"<p>x" * 20_000,
    "misnested formatting": lambda: b"<a href=x><b><p></a>" * 50_000,
    "attributes": lambda: b"<p " + b" ".join(b"a%d=1" % n for n in range(300_000)) + b"><a href=x>y</a>",
    "a long attribute": lambda: b"<div title='" + b"b" * 10_000_000 + b"'><a href=x>y</a>",
    "a long link": lambda: b"<a rel='" + b"nofollow " * 500_000 + b"' href='?" + b"\xe9" * 5_000_000 + b"'>",
    "long names": lambda: b"<" + b"d" * 5_000_000 + b" " + b"e" * 5_000_000 + b">",
    "NUL bytes": lambda: b"\0" * 2_000_000 + b"<a href=x\0>y</a>",
    "binary": lambda: bytes(range(256)) * 8_000,
    "nothing": lambda: b"",
    "only openings": lambda: b"<" * 2_000_000,
    "entities": lambda: b"&NotEqualTilde;&#x110000;&" * 200_000,
    "siblings": lambda: b"<i></i><p></p>" * 200_000,
    "landmarks": lambda: b"<base href=/a><meta name=robots content=none><link rel=next href=a>" * 50_000,
    "declarations": lambda: b"<?xml encoding='" * 200_000 + b"<meta charset=" * 200_000,
    "UTF-16": lambda: b"\xff\xfe" + b"<\0a\0>\0\0\xd8" * 200_000,
    "brackets": lambda: b"[" * 1_000_000,
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pages(body):
    """Whatever a page holds, all that can be asked is answered: no crash, no error, no endless work.

    On a small stack, as nothing may be recursive. With quadratic work each of these would take hours.
    """
    done = subprocess.run(
        [sys.executable, "-c", ASK_ALL], input=body(), timeout=110, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "selector",
    [
        "section p",
        ".x .y b",
        "i ~ b",
        "div:not(div div) > b",
        "p:nth-last-child(2n+1)",
        "div:has(b)",
        "div ::text",
    ],
)
def test_selectors_take_linear_time(selector):
    """Eight times the page takes about eight times as long, not sixty-four."""
    small, large = (page("<div class=x><i></i><p></p>" * n) for n in (4_000, 32_000))
    assert _seconds(large, selector) < 30 * max(_seconds(small, selector), 0.005)


def _seconds(shown, selector):
    shown.css("x")
    times = []
    for _ in range(3):
        start = time.process_time()
        shown.css(selector)
        shown.links(selector)
        times.append(time.process_time() - start)
    return min(times)


PIECES = [
    "<a href=x>", "</a>", "<p>", "<b>", "</b>", "<template>", "</template>", "<svg>", "</svg>", "<table>",
    "<td>", "<base href=/b>", "<title>", "</title>", "<meta charset=utf-16>", "<link rel=next href=n>",
    "<iframe src=f>", "<!--", "-->", "text", "&amp;", "<", ">", '"', " ", "\u00e9", "\0", "\ud800",
]  # fmt: skip
MARKUP = st.lists(st.sampled_from(PIECES)).map(lambda parts: "".join(parts).encode("utf-8", "surrogatepass"))


@given(
    st.one_of(MARKUP, st.binary(max_size=200)), st.sampled_from([HTML, "text/html", "text/plain", "", None])
)
def test_any_bytes_make_a_page(body, content_type):
    """Whatever the bytes are, there is a page, and its links are URLs that can be written down."""
    shown = page(body, content_type)
    assert not any("\ud800" <= char <= "\udfff" for char in shown.text)
    found = shown.links(iframes=True)
    assert all(link.url.isascii() and link.url.startswith("http://") for link in found)
    assert {link.url for link in shown.links("a, area")} <= {link.url for link in found}
    assert shown.css("::text").getall() == [text for one in shown.css("::text") for text in one.getall()]
    assert json.dumps([shown.title, shown.canonical, sorted(shown.robots_directives)])
