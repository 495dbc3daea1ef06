"""A site with links that are broken in every way, and what a report on it has to say of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.servers import RESET, Answer, Pause, ScriptedServer, page, reply

CROWD = 120
"""Pages that are alike: all link to /gone."""

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31mred\x9b0m\"'&"


def _links(*targets: str, title: str = "") -> bytes:
    anchors = "".join(f'<a href="{target}">{target}</a>' for target in targets)
    return f"<title>{title}</title>{anchors}".encode()


def _to(target: str, status: str = "302 Found") -> Any:
    return page(b"", status, f"Location: {target}")


@contextmanager
def broken_site() -> Iterator[tuple[ScriptedServer, ScriptedServer]]:
    """The site, and another one to which it links."""
    with ScriptedServer({"/there": page(_links("/not-looked-at"))}) as other:
        crowd = {f"/crowd/{at}": page(_links("/gone", "/gone#again")) for at in range(CROWD)}
        routes: Mapping[str, Answer] = {
            "/robots.txt": page(
                b"User-agent: *\nDisallow: /private/\n", "200 OK", "Content-Type: text/plain"
            ),
            "/": page(
                _links(
                    *("/a", "/b", "/gone", "/old", "/hop1", "/slow", "/private/x", "/loop1", "/reset"),
                    *("/x/x/x/x/x/x", other.url("/there"), other.url("/nowhere")),
                    *crowd,
                    title=HOSTILE,
                )
            ),
            "/a": page(_links("/gone", "/missing?q=<script>alert(2)</script>", "/b")),
            "/b": page(_links("/gone", "/hop1", "/hop2", "/500", "/old", "/a")),
            "/gone": page(b"", "410 Gone"),
            "/500": page(b"", "500 Internal Server Error"),
            "/old": _to("/new", "301 Moved Permanently"),
            "/new": page(_links("/")),
            "/hop1": _to("/hop2"),
            "/hop2": _to("/end", "307 Temporary Redirect"),
            "/loop1": _to("/loop2"),
            "/loop2": _to("/loop1"),
            "/reset": reply(RESET),
            "/slow": reply(Pause(0.6), *page(_links("/")).steps),
            **crowd,
        }
        with ScriptedServer(routes) as server:
            yield server, other


def truth(site: ScriptedServer, other: ScriptedServer, *, external: bool) -> dict[str, Any]:
    """Broken links with their reasons, how many pages link there, and through which redirects."""
    start, crowd = site.url("/"), [site.url(f"/crowd/{at}") for at in range(CROWD)]
    a, b = site.url("/a"), site.url("/b")
    broken = {
        site.url("/gone"): ("HTTP 410", [start, a, b, *crowd], []),
        site.url("/missing?q=%3Cscript%3Ealert(2)%3C/script%3E"): ("HTTP 404", [a], []),
        site.url("/500"): ("HTTP 500", [b], []),
        site.url("/end"): ("HTTP 404", [start, b], [site.url("/hop1"), site.url("/hop2")]),
        site.url("/loop2"): ("redirect loop", [start], [site.url("/loop1")]),
        site.url("/reset"): ("connection reset", [start], []),
    }
    if external:
        broken[other.url("/nowhere")] = ("HTTP 404", [start], [])
    return broken
