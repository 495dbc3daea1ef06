"""Bytes in, `Page` out: what a handler sees of a response. Pure; nothing is parsed before it is asked for.

Documents are read as browsers read them, scripting off: the tree of the HTML standard, its encodings,
its `<base>`. CSS selectors are those of Scrapy: `h1::text`, `a::attr(href)`, `.get()`, `.getall()`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, overload

import turbohtml
from msgspec import Struct
from turbohtml import CData, Document, Element, Namespace, PlainText, SelectorSyntaxError, Text

from shoal import encoding as encodings
from shoal.errors import ConfigError
from shoal.model import PRIORITIES, Link, Response
from shoal.urls import DEFAULT, Base, Spelling, normalize

MAX_HTML_LENGTH = 1 << 26
"""`Selection.getall` refuses to write more characters: nested elements repeat each other's HTML."""

_HTML = frozenset({"", "text/html"})
_NO_META: Mapping[str, object] = MappingProxyType({})

Default = TypeVar("Default")


class Page:
    """A fetched document, as handlers get it.

    iframes, obey_nofollow: what `links` does unless it is told otherwise.
    """

    def __init__(
        self,
        response: Response,
        link: Link | None = None,
        spelling: Spelling = DEFAULT,
        *,
        iframes: bool = False,
        obey_nofollow: bool = False,
    ) -> None:
        self._response = response
        self._link = link
        self._spelling = spelling
        self._iframes = iframes
        self._obey_nofollow = obey_nofollow

    def __repr__(self) -> str:
        return f"<Page {self.status} {self.url}>"

    # --- the response -----------------------------------------------------------------

    @property
    def url(self) -> str:
        """The URL that answered, normalized."""
        return self._response.url

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """All headers in the order received, names in lower case."""
        return self._response.headers

    def header(self, name: str) -> str | None:
        """The first header of that name, in any case, or None."""
        return self._response.header(name.lower())

    @property
    def body(self) -> bytes:
        """The body as received, content codings removed."""
        return self._response.body

    @property
    def depth(self) -> int:
        """Links followed since the seed."""
        return self._link.depth if self._link else 0

    @property
    def priority(self) -> int:
        """The priority that the page was queued with."""
        return self._link.priority if self._link else 0

    @property
    def key(self) -> str:
        """What sets it apart from other pages of the same URL, if that was given with its link."""
        return self._link.key if self._link else ""

    @property
    def meta(self) -> Mapping[str, object]:
        """The user's data that came with the link; empty if there are none."""
        return (self._link.meta if self._link else None) or _NO_META

    # --- the document -----------------------------------------------------------------

    @cached_property
    def content_type(self) -> str:
        """The media type without parameters, in lower case ("text/html"); empty if the server named none."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    @cached_property
    def encoding(self) -> str:
        """The encoding of the body, by its name in the Encoding standard in lower case ("utf-8")."""
        if self.content_type in _HTML:
            return (self._tree.encoding or "utf-8").lower()
        return encodings.of_text(self.body, self._charset)

    @cached_property
    def text(self) -> str:
        """The body as text; bytes that its encoding does not know are U+FFFD."""
        return encodings.decode(self.body, self.encoding)

    @cached_property
    def title(self) -> str | None:
        """What `<title>` says, white space collapsed; None if there is none or it is empty."""
        title = next((e for e in self._all("title") if e.namespace is Namespace.HTML), None)
        return (" ".join(title.text.split()) or None) if title else None

    @cached_property
    def canonical(self) -> str | None:
        """The normalized URL of `<link rel=canonical>`, or None."""
        links = (e for e in self._all("link") if _is_marked(e, "canonical"))
        href = next((href for _, href in _hrefs(links, _href)), None)
        return None if href is None else self._base.join(href)

    @cached_property
    def robots_directives(self) -> frozenset[str]:
        """What `<meta name=robots>` and X-Robots-Tag ask of all robots, in lower case ("noindex").

        "none" also gives the two that it stands for. What is meant for a named robot is left out.
        """
        values = [v for name, v in self.headers if name == "x-robots-tag" and not _is_for_one_robot(v)]
        values.extend(
            meta.attr("content") or ""
            for meta in self._all("meta")
            if (meta.attr("name") or "").strip().lower() == "robots"
        )
        directives = {part.strip().lower() for value in values for part in value.split(",")} - {""}
        return frozenset(directives | {"noindex", "nofollow"} if "none" in directives else directives)

    def json(self) -> Any:
        """The body read as JSON. Raises ValueError, with one line that says where it is not."""
        try:
            return json.loads(self.text)
        except RecursionError:
            reason = "nested too deeply"
        except ValueError as error:
            reason = str(error)
        raise ValueError(f"not JSON: {self.url} ({self.content_type or 'no content type'}): {reason}")

    def css(self, selector: str) -> Selection:
        """All that matches: elements, or with `::text` and `::attr(name)` strings.

        `h1::text` gives the text directly in each h1; `h1 ::text` that of all elements in it, too.
        Raises ConfigError if the selector is not valid.
        """
        return Selection(compile_selector(selector).nodes(self._tree))

    def links(
        self,
        selector: str | None = None,
        *,
        priority: int = 0,
        meta: Mapping[str, object] | None = None,
        iframes: bool | None = None,
        obey_nofollow: bool | None = None,
    ) -> list[Link]:
        """The links of the page, one per URL, in the order of the document, one step deeper than the page.

        Without a selector: `a`, `area`, `link rel=next`, Refresh header, `meta` refresh; `iframes`: frames.
        With one: the elements that match, or the `a` and `area` in those that are no links; with
        `::attr(name)`, what the attribute says.
        What is in a `<template>` is no link, what is not http(s) is left out.
        `obey_nofollow` leaves out links marked so, and all links of a page marked so.
        Raises ValueError for a priority outside 0..9, ConfigError if the selector is not valid.
        """
        if priority not in PRIORITIES:
            raise ValueError(f"priority {priority} is not in 0..9")
        obey_nofollow = self._obey_nofollow if obey_nofollow is None else obey_nofollow
        if obey_nofollow and "nofollow" in self.robots_directives:
            return []
        hrefs: Iterable[str]
        if selector is None:
            hrefs = self._hrefs(self._iframes if iframes is None else iframes, obey_nofollow)
        else:
            inert = self._inert
            leads = (lead for lead in compile_selector(selector).leads(self._tree) if lead[0] not in inert)
            hrefs = (href for lead, href in leads if not (obey_nofollow and _is_marked(lead, "nofollow")))
        urls = dict.fromkeys(map(self._base.join, dict.fromkeys(hrefs)))
        depth = self.depth + 1
        return [Link(url, priority, depth, "", (), False, meta) for url in urls if url is not None]

    def form(self, selector: str | None = None) -> Form:
        """The first form that matches, to be sent by a session; by default the first one with a password.

        Raises ValueError if there is none, ConfigError if the selector is not valid.
        """
        nodes = compile_selector(selector or "form:has(input[type=password])").nodes(self._tree)
        found = next((node for node in nodes if isinstance(node, Element) and node.tag == "form"), None)
        if found is None:
            raise ValueError(f"there is no form {selector or 'with a password'} on {self.url}")
        action = found.attr("action")
        return Form(
            page_url=self.url,
            url=(self._base.join(action) if action else self.url) or self.url,
            method="post" if (found.attr("method") or "").strip().lower() == "post" else "get",
            fields=tuple(found.form_data()),
        )

    # --- what the above is made from --------------------------------------------------

    @property
    def _charset(self) -> str | None:
        return encodings.in_content_type(self.header("content-type") or "")

    @cached_property
    def _tree(self) -> Document:
        if self.content_type not in _HTML:
            return _parse(self.body, self.encoding)
        tree = _parse(self.body, self._charset)
        if tree.encoding_confidence == "tentative" and (named := encodings.in_xml_declaration(self.body)):
            return _parse(self.body, named)
        return tree

    @cached_property
    def _inert(self) -> frozenset[Element]:
        """What is in templates: it is not part of the document. A declared shadow root will be."""
        inert: set[Element] = set()
        for template in self._tree.find_all("template"):
            if template not in inert and template.attr("shadowrootmode") is None:
                inert.update(template.iter_elements())
        return frozenset(inert)

    def _all(self, tag: str) -> list[Element]:
        """The elements of the document with that tag, in order. The tree keeps an index of them."""
        found = self._tree.find_all(tag)
        inert = self._inert
        return [element for element in found if element not in inert] if inert else found

    @cached_property
    def _base(self) -> Base:
        """What links are joined to (HTML standard 2.4.1: the first base that has a href)."""
        hrefs = (e.attr("href") for e in self._all("base") if e.namespace is Namespace.HTML)
        href = next((href for href in hrefs if href is not None), None)
        url = self.url if href is None else normalize(href, self.url) or self.url
        return Base(url, self._spelling, encodings.python_codec(self.encoding))

    def _hrefs(self, iframes: bool, obey_nofollow: bool) -> list[str]:
        """What the links say, in the order of the document; it is walked only if not all of them are `a`."""
        tags = ("area", "link", "meta", "iframe", "frame") if iframes else ("area", "link", "meta")
        others = {e for tag in tags for e in self._all(tag) if tag != "link" or _is_marked(e, "next")}
        leading = {element for element in others if _href(element) is not None}
        found = self._all("a")
        if leading:
            leading.update(found)
            found = [e for e in self._tree.iter_elements(("a", *tags)) if e in leading]
        if obey_nofollow:
            found = [element for element in found if not _is_marked(element, "nofollow")]
        quick = not leading  # nearly all are an `a` with a href
        hrefs = [href for e in found if (href := (e.attr("href") if quick else None) or _href(e)) is not None]
        target = _refresh(self.header("refresh") or "")
        url = None if target is None else Base(self.url, self._spelling).join(target)
        return hrefs if url is None else [url, *hrefs]  # browsers obey the header first


class Form(Struct, frozen=True):
    """A form of a page, as far as it is filled in (HTML standard 4.10.21)."""

    page_url: str
    url: str
    """Where it is sent to, normalized."""
    method: Literal["get", "post"]
    fields: tuple[tuple[str, str], ...]
    """Names and values, hidden ones included."""

    def filled(self, fields: Mapping[str, str]) -> list[tuple[str, str]]:
        """All that is sent if these fields are filled in."""
        others = [(name, value) for name, value in self.fields if name not in fields]
        return [*others, *fields.items()]


class Selection(Sequence["Selection"]):
    """What a selector found: elements, or strings, in order. Each one of them is a selection of one."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes

    def __repr__(self) -> str:
        return f"<Selection of {len(self)}>"

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, index: int) -> Selection: ...
    @overload
    def __getitem__(self, index: slice) -> Selection: ...
    def __getitem__(self, index: int | slice) -> Selection:
        return Selection(self._nodes[index] if isinstance(index, slice) else (self._nodes[index],))

    def __iter__(self) -> Iterator[Selection]:
        return (Selection((node,)) for node in self._nodes)

    @overload
    def get(self) -> str | None: ...
    @overload
    def get(self, default: Default) -> str | Default: ...
    def get(self, default: object = None) -> object:
        """The first string, or the outer HTML of the first element; `default` if nothing was found."""
        return next(map(_string, self._nodes), default)

    def getall(self) -> list[str]:
        """All strings, or the outer HTML of all elements. Raises ValueError over MAX_HTML_LENGTH in all."""
        strings: list[str] = []
        length = 0
        for node in self._nodes:
            strings.append(_string(node))
            length += len(strings[-1])
            if length > MAX_HTML_LENGTH:
                raise ValueError(
                    f"the HTML of {len(self)} elements, one in another, is too long to be written"
                )
        return strings

    @property
    def text(self) -> str | None:
        """The text of the first one as it reads, white space collapsed; None if nothing was found."""
        return next(map(_plain, self._nodes), None)

    @property
    def attrib(self) -> dict[str, str]:
        """The attributes of the first element; empty if there is none."""
        first = next(iter(self._nodes), None)
        if not isinstance(first, Element):
            return {}
        attributes = first.attrs.copy()
        return {k: v if isinstance(v, str) else first.attr(k) or "" for k, v in attributes.items()}

    def css(self, selector: str) -> Selection:
        """All that matches within these elements, themselves included.

        As in browsers, elements around them may take part: `.css("main a")` finds what is in a main.
        """
        compiled = compile_selector(selector)
        return Selection(
            [f for node in self._nodes if isinstance(node, Element) for f in compiled.nodes(node)]
        )


# --- selectors ------------------------------------------------------------------------------

Node: TypeAlias = Element | str
Pseudo: TypeAlias = Literal["", "text", "attr"]


class Part(Struct, frozen=True):
    """The branches of a selector that ask for the same of an element."""

    css: str
    """What an element must match."""
    pseudo: Pseudo = ""
    name: str = ""
    """Of the attribute."""
    deep: bool = False
    """Ask the elements within, too."""

    def nodes(self, root: Document | Element) -> Sequence[Node]:
        """What this part asks for, in the order of the document."""
        elements = self._elements(root)
        if self.pseudo == "text":
            return self._texts(elements)
        if self.pseudo == "attr":
            return [value for element in elements if (value := element.attr(self.name)) is not None]
        return elements

    def leads(self, root: Document) -> Iterator[tuple[Element | None, str]]:
        """The links that this part means, each with its element, if that can tell how to treat it."""
        elements = self._elements(root)
        if self.pseudo == "text":
            yield from ((None, text) for text in self._texts(elements))
        elif self.pseudo == "attr":
            yield from _hrefs(elements, lambda element: element.attr(self.name))
        else:
            yield from self._leads(elements)

    def _elements(self, root: Document | Element) -> list[Element]:
        """What matches in the tree below `root`, and `root` itself, in the order of the document."""
        elements = root.select(self.css)
        if isinstance(root, Element) and root.matches(self.css):
            elements.insert(0, root)
        if self.deep and self.pseudo == "attr":
            return [inner for outer in _outermost(elements) for inner in outer.iter_elements(None, True)]
        return elements

    def _leads(self, elements: Iterable[Element]) -> Iterator[tuple[Element, str]]:
        inside: set[Element] = set()
        for element in elements:
            if (href := _href(element)) is not None:
                yield element, href
            elif element not in inside:
                inside.update(element.iter_elements())
                yield from _hrefs(element.iter_elements(("a", "area")), _href)

    def _texts(self, elements: list[Element]) -> list[str]:
        outer = _outermost(elements)
        if self.deep:
            return [text for element in outer for text in element.strings]
        if len(outer) == len(elements):
            return [child.data for e in elements for child in e.children if isinstance(child, Text | CData)]
        chosen = set(elements)
        inner = (node for element in outer for node in element.descendants)
        return [node.data for node in inner if isinstance(node, Text | CData) and node.parent in chosen]


class Selector(Struct, frozen=True):
    """A compiled CSS selector, made by `compile_selector`."""

    parts: tuple[Part, ...]

    def nodes(self, root: Document | Element) -> Sequence[Node]:
        """All it finds in the tree of `root`: elements or strings. Part by part, if there are several."""
        if len(self.parts) == 1:
            return self.parts[0].nodes(root)
        return [node for part in self.parts for node in part.nodes(root)]

    def leads(self, root: Document) -> Iterator[tuple[Element | None, str]]:
        """The links it means, not yet joined to the base, each with its element."""
        return (lead for part in self.parts for lead in part.leads(root))

    def reading(self, root: Document) -> str | None:
        """What a person would read in the place found first: its whole text, or the attribute."""
        for part in self.parts:
            if part.pseudo == "attr":
                values = part.nodes(root)
                if values:
                    return _string(values[0])
            elif (element := root.select_one(part.css)) is not None:
                return _plain(element)
        return None


@lru_cache(maxsize=1024)
def compile_selector(text: str) -> Selector:
    """A CSS selector, in which each branch may end in `::text` or `::attr(name)`.

    Branches that ask for the same give their finds in the order of the document; otherwise those of an
    earlier branch come first. Raises ConfigError with one line that says what is wrong and where.
    """
    asked: dict[tuple[Pseudo, str, bool], list[str]] = {}
    for css, pseudo, name, deep in _branches(text):
        asked.setdefault((pseudo, name, deep), []).append(css)
    return Selector(tuple(Part(", ".join(css), *wish) for wish, css in asked.items()))


_TOKEN = re.compile(
    r"""
    "(?:[^"\\]|\\.)*"? | '(?:[^'\\]|\\.)*'? | \\. | (?P<open>[(\[]) | (?P<close>[)\]]) | (?P<comma>,)
    | :: (?: (?P<pseudo>text | attr\( \s* ["']? (?P<name>[^\s()"']+) ["']? \s* \) ) (?![\w(-]) )?
    | [^"'\\()\[\],:]+ | .
    """,
    re.VERBOSE | re.DOTALL,
)


def _branches(text: str) -> Iterator[tuple[str, Pseudo, str, bool]]:
    """The branches of a selector list: (what an element must match, pseudo-element, its name, deep)."""
    start, depth = 0, 0
    pseudo: re.Match[str] | None = None
    for token in _TOKEN.finditer(text):
        depth += bool(token["open"]) - bool(token["close"])
        if depth == 0 and token["comma"]:
            yield _branch(text, start, token.start(), pseudo)
            start, pseudo = token.end(), None
        elif depth == 0 and token[0].startswith("::"):
            if token["pseudo"] is None:
                raise _invalid(text, f"only ::text and ::attr(name) are known, at position {token.start()}")
            pseudo = pseudo or token
    yield _branch(text, start, len(text), pseudo)


def _branch(text: str, start: int, end: int, pseudo: re.Match[str] | None) -> tuple[str, Pseudo, str, bool]:
    if pseudo is None:
        return _checked(text, start, end), "", "", False
    if text[pseudo.end() : end].strip():
        raise _invalid(text, f"nothing may follow {pseudo[0]}, at position {pseudo.end()}")
    kind: Pseudo = "attr" if pseudo["name"] else "text"
    name = pseudo["name"] or ""
    css = text[start : pseudo.start()]
    if not css.strip():
        return ":scope", kind, name, True
    if css.rstrip().endswith((">", "+", "~")):
        return _checked(text, start, pseudo.start(), "*"), kind, name, False
    css = _checked(text, start, pseudo.start())
    return css, kind, name, text[pseudo.start() - 1].isspace()


def _checked(text: str, start: int, end: int, suffix: str = "") -> str:
    """The selector text[start:end], found to be valid."""
    css = text[start:end] + suffix
    try:
        _EMPTY.select_one(" " * start + css)  # so that the position is one in `text`
    except SelectorSyntaxError as error:
        raise _invalid(text, str(error).rpartition('": ')[2]) from None
    return css.strip()


def _invalid(text: str, reason: str) -> ConfigError:
    return ConfigError(f"invalid CSS selector {text!r}: {reason}")


# --- fields ---------------------------------------------------------------------------------


class Field(Struct, frozen=True):
    """One column of the rows that `extract` makes."""

    name: str
    selector: Selector


def parse_field(text: str) -> Field:
    """A column as written on the command line, `NAME=CSS`: "id=article.product::attr(data-id)".

    Raises ConfigError with one line that says what is wrong.
    """
    name, equals, css = (part.strip() for part in text.partition("="))
    if not equals or not _FIELD_NAME.fullmatch(name):
        raise ConfigError(f"not NAME=CSS: {text!r}; write for example title=h1")
    if name == "url":
        raise ConfigError(f"{text!r}: every row has the page's url already; choose another name")
    return Field(name, compile_selector(css))


def extract(page: Page, fields: Iterable[Field]) -> dict[str, str | None] | None:
    """One row: `url`, then the fields, None where nothing matched. None if nothing matched at all.

    A field is what a person would read in the first place that matches: with or without `::text` its
    whole text on one line, "A B" of `<h1>A <b>B</b></h1>`; with `::attr(name)` the attribute as it is.
    """
    row = {field.name: field.selector.reading(page._tree) for field in fields}
    return None if all(value is None for value in row.values()) else {"url": page.url, **row}


# --- helpers --------------------------------------------------------------------------------

_FIELD_NAME = re.compile(r"[^\s\[\](){}\"'<>~+*#,]+(?: [^\s\[\](){}\"'<>~+*#,]+)*")
_VALUED_DIRECTIVES = frozenset({"max-image-preview", "max-snippet", "max-video-preview", "unavailable_after"})
_ONE_LINE = PlainText(layout="strict", bullet="", table_cell_separator=" ")


def _parse(body: bytes, encoding: str | None) -> Document:
    return turbohtml.parse(
        body,
        encoding=encoding,
        detect_encoding=True,
        positions=False,
        allow_declarative_shadow_roots=False,  # or what is in them could not be found
    )


_EMPTY = _parse(b"", None)


def _href(element: Element) -> str | None:
    tag = element.tag
    if tag != "a":  # most are one
        if tag == "iframe" or tag == "frame":
            return element.attr("src")
        if tag == "meta":
            is_refresh = (element.attr("http-equiv") or "").lower() == "refresh"
            return _refresh(element.attr("content") or "") if is_refresh else None
    href = element.attr("href")
    if href is None and element.namespace is Namespace.SVG:
        return element.attr("xlink:href")
    return href


def _refresh(content: str) -> str | None:
    """Where it sends browsers to (HTML standard 4.2.5.3, "shared declarative refresh steps")."""
    found = _REFRESH.match(content)
    return next(filter(None, found.groups()), None) if found else None


_REFRESH = re.compile(
    r"""[\t\n\f\r ]*+(?:[0-9]|(?=\.))[0-9.]*+(?:[\t\n\f\r ]+[;,]?|[;,])[\t\n\f\r ]*+"""
    r"""(?:url[\t\n\f\r ]*+=[\t\n\f\r ]*+)?+"""
    r"""(?:"([^"]*)|'([^']*)|(.*))""",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)


def _outermost(elements: list[Element]) -> list[Element]:
    """Those that are in none of the others; in the order of the document."""
    if len(elements) < 2:
        return elements
    outer: list[Element] = []
    inside: set[Element] = set()
    for element in elements:
        if element not in inside:
            outer.append(element)
            inside.update(element.iter_elements())
    return outer


def _hrefs(
    elements: Iterable[Element], href: Callable[[Element], str | None]
) -> Iterator[tuple[Element, str]]:
    return ((element, value) for element in elements if (value := href(element)) is not None)


def _is_marked(element: Element | None, mark: str) -> bool:
    """Whether it has the link type `mark` (HTML standard 4.6.7: tokens, case ignored)."""
    return element is not None and mark in (element.attr("rel") or "").lower().split()


def _is_for_one_robot(value: str) -> bool:
    """Whether an X-Robots-Tag begins with the name of a robot: "otherbot: noindex"."""
    name, colon, _ = value.partition(",")[0].partition(":")
    return bool(colon) and name.strip().lower() not in _VALUED_DIRECTIVES


def _string(node: Node) -> str:
    return node if isinstance(node, str) else node.html


def _plain(node: Node) -> str:
    text = node if isinstance(node, str) else node.to_text(_ONE_LINE)
    return " ".join(text.split())
