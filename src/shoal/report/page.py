"""Findings as one HTML page that needs nothing else: no script, no font, no picture from anywhere.

Everything that comes from the crawl is strangers' text. It passes through `_text` or `_link`, which leave no
markup and no control characters, and the page's own Content-Security-Policy allows nothing but its style.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path

from shoal.log import visible
from shoal.model import Minute
from shoal.progress import clock, count, size
from shoal.report.findings import LATENCIES_S, Broken, Chain, Findings, LinkedFrom

MOST_SHOWN = 1_000
"""So many broken links and redirects are on the page."""
PAGES_AT_FIRST = 5
MOST_BARS = 90
MINUTE_S = 60


def page(findings: Findings) -> str:
    """The whole page."""
    style, policy = _style()
    sections = [
        ("broken", "Broken links", _broken(findings)),
        ("redirects", "Redirects", _redirects(findings)),
        ("throughput", "Throughput", _throughput(findings.history)),
        ("answers", "Answers", _answers(findings)),
        ("slow", "Slowest pages", _slowest(findings)),
        ("errors", "Errors by reason", _reasons(findings)),
        ("skipped", "Skipped by rule", _skipped(findings)),
        ("hosts", "Hosts", _hosts(findings)),
    ]
    shown = [each for each in sections if each[2]]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in shown)
    title = f"{_text(findings.crawl)}: crawl report"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="robots" content="noindex">\n'
        f"<title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<header>\n<h1>{_text(findings.crawl)}</h1>\n{_seeds(findings.seeds)}<nav>{links}</nav>\n</header>\n"
        f"<main>\n{_verdict(findings)}{_tiles(findings)}"
        + "".join(f'<section id="{name}">\n{content}</section>\n' for name, _, content in shown)
        + f"</main>\n<footer>{_when(findings.at)} · shoal report</footer>\n</body>\n</html>\n"
    )


@cache
def _style() -> tuple[str, str]:
    """The style sheet, and the policy that allows it alone."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    return style, f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


# --- strangers' text ------------------------------------------------------------------------


def _text(value: object) -> str:
    return escape(visible(str(value)))


def _link(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        return _text(url)
    return f'<a href="{_text(url)}" rel="noreferrer nofollow">{_text(url)}</a>'


# --- the top --------------------------------------------------------------------------------


def _seeds(seeds: Sequence[str]) -> str:
    shown = ", ".join(map(_link, seeds[:5]))
    more = f" and {len(seeds) - 5:,} more" if len(seeds) > 5 else ""
    return f'<p class="seeds">from {shown}{more}</p>\n' if seeds else ""


def _verdict(findings: Findings) -> str:
    stats = findings.stats
    left = stats.queued + stats.overflow + stats.leased
    notes = []
    if not stats.finished:
        state = "paused" if stats.paused else "still going on"
        notes.append(f"The crawl is {state}: {count(left, 'URL')} to go.")
    elif left:
        notes.append(f"The crawl ended at its limit of pages, with {count(left, 'URL')} unread.")
    if findings.surveyed < stats.done:
        notes.append(
            f"Of {count(stats.done - findings.surveyed, 'page')} it is not known to which they link: "
            "crawl with --report or --survey to have all."
        )
    if findings.broken:
        kind, text = "bad", count(len(findings.broken), "broken link")
        if findings.linking_pages:
            text += f", found in {count(findings.linking_pages, 'place')}"
    elif not stats.done:
        kind, text = "bad", "No page was fetched"
    else:
        kind, text = "good" if stats.finished else "open", "No broken links"
    return f'<p class="verdict {kind}">{text}{"".join(f"<span>{note}</span>" for note in notes)}</p>\n'


def _tiles(findings: Findings) -> str:
    stats = findings.stats
    tiles = {
        "pages": f"{stats.done:,}",
        "dead letters": f"{stats.dead:,}",
        "redirects": f"{findings.redirected:,}",
        "skipped": f"{stats.skipped:,}",
        "hosts": f"{stats.hosts:,}",
        "rows": f"{stats.items:,}",
        "attempts": f"{stats.fetches:,}",
        "fetched": size(stats.size_bytes),
    }
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles.items())
    return f'<dl class="tiles">{shown}</dl>\n'


# --- links ----------------------------------------------------------------------------------


def _broken(findings: Findings) -> str:
    broken = findings.broken
    items = "".join(f"<li>{_broken_link(each)}</li>\n" for each in broken[:MOST_SHOWN])
    return _titled("Broken links", len(broken), f'<ul class="found">\n{items}</ul>\n{_rest(len(broken))}')


def _broken_link(link: Broken) -> str:
    error = f' <span class="soft">{_text(_last_line(link.error))}</span>' if link.error else ""
    tries = f' <span class="soft">after {link.attempts} attempts</span>' if link.attempts > 1 else ""
    through = "".join(
        f'<span class="hop soft">↳ through the redirect {_link(url)}</span>' for url in link.through[:10]
    )
    found = _linked_from(link.linked_from)
    if not found:
        found = f"first found on {_link(link.found_on)}" if link.found_on else "no page is known to link here"
        found = f'<span class="from">{found}</span>'
    return (
        f'<span class="label bad">{_text(link.reason)}</span>{_link(link.url)}{error}{tries}{through}{found}'
    )


def _redirects(findings: Findings) -> str:
    chains = findings.redirects
    items = "".join(f"<li>{_chain(each)}</li>\n" for each in chains[:MOST_SHOWN])
    return _titled("Redirects", len(chains), f'<ul class="found">\n{items}</ul>\n{_rest(len(chains))}')


def _chain(chain: Chain) -> str:
    first, *more = chain.hops
    kind = "good" if chain.end == "HTTP 200" else "bad" if chain.end else ""
    end = f'<span class="label {kind}">{_text(chain.end)}</span>' if chain.end else ""
    steps = [(hop.url, f'<span class="label">{hop.status}</span>') for hop in more] + [(chain.target, end)]
    hops = "".join(f'<span class="hop">→ {label}{_link(url)}</span>' for url, label in steps)
    return (
        f'<span class="label">{first.status}</span>{_link(first.url)}{hops}{_linked_from(chain.linked_from)}'
    )


def _linked_from(linked: LinkedFrom) -> str:
    if not linked.count:
        return ""
    first, more = linked.pages[:PAGES_AT_FIRST], linked.pages[PAGES_AT_FIRST:]
    text = f'<span class="from">linked from {count(linked.count, "page")}</span>{_list(first)}'
    if more:
        rest = linked.count - PAGES_AT_FIRST
        unnamed = linked.count - len(linked.pages)
        note = f'<p class="soft">and {unnamed:,} that are not listed</p>' if unnamed else ""
        text += f"<details><summary>{rest:,} more</summary>{_list(more)}{note}</details>"
    return text


def _list(urls: Iterable[str]) -> str:
    return '<ul class="pages">' + "".join(f"<li>{_link(url)}</li>" for url in urls) + "</ul>"


def _rest(number: int) -> str:
    hidden = number - MOST_SHOWN
    return f'<p class="soft">and {hidden:,} more: see `shoal report --json`</p>\n' if hidden > 0 else ""


# --- numbers --------------------------------------------------------------------------------


def _throughput(history: Sequence[Minute]) -> str:
    if len(history) < 2:
        return ""
    bars, step = _bars(history)
    most = max(1, *(pages + trouble for pages, trouble in bars))
    width, height, top, base = 720, 230, 30, 200
    pitch, scale = width / len(bars), (base - top) / most
    shapes = []
    for at, (pages, trouble) in enumerate(bars):
        x, wide, high = at * pitch, max(0.8, pitch - 1), base - pages * scale
        when = _when(history[0].at + at * step * MINUTE_S)
        title = f"<title>{when}: {pages:,} pages, {trouble:,} failed attempts</title>"
        shapes.append(
            f'<g>{title}<rect class="pages" x="{x:.1f}" y="{high:.1f}" width="{wide:.1f}"'
            f' height="{pages * scale:.1f}"/>'
            f'<rect class="trouble" x="{x:.1f}" y="{high - trouble * scale:.1f}" width="{wide:.1f}"'
            f' height="{trouble * scale:.1f}"/></g>'
        )
    span = "a minute" if step == 1 else f"{step} minutes"
    lasted_s = history[-1].at + MINUTE_S - history[0].at
    total = sum(minute.done for minute in history)
    key = '<svg class="key" aria-hidden="true"><rect class="{}"/></svg>{}'
    return (
        f"<h2>Throughput<small>{total:,} pages in {clock(lasted_s)}</small></h2>\n"
        f'<svg class="chart" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="Pages and failed attempts over time, up to {most:,} in {span}">\n'
        f'<line x1="0" y1="{base}" x2="{width}" y2="{base}"/>'
        f'<line x1="0" y1="{top}" x2="{width}" y2="{top}"/><text x="0" y="{top - 8}">{most:,}</text>'
        f'<text x="0" y="{height - 8}">{_when(history[0].at)}</text>'
        f'<text x="{width}" y="{height - 8}" text-anchor="end">{_when(history[-1].at + MINUTE_S)}</text>\n'
        + "\n".join(shapes)
        + f'\n</svg>\n<p class="soft">{key.format("blue", f"pages in {span}")} &nbsp;'
        f" {key.format('bad', 'failed attempts')}</p>\n"
    )


def _bars(history: Sequence[Minute]) -> tuple[list[tuple[int, int]], int]:
    """Pages done and failed attempts, for each so many minutes; and how many these are."""
    start = history[0].at
    minutes = int((history[-1].at - start) // MINUTE_S) + 1
    step = -(-minutes // MOST_BARS)
    pages, trouble = [0] * -(-minutes // step), [0] * -(-minutes // step)
    for minute in history:
        at = int((minute.at - start) // MINUTE_S) // step
        pages[at] += minute.done
        trouble[at] += minute.dead + minute.retries
    return list(zip(pages, trouble, strict=True)), step


def _answers(findings: Findings) -> str:
    if not findings.surveyed:
        return ""
    statuses = [(_status(status), number, _kind(status), "") for status, number in findings.statuses]
    classes = ["up to " + _seconds(most) for most in LATENCIES_S] + [f"over {_seconds(LATENCIES_S[-1])}"]
    latencies = [(name, number, "blue", "") for name, number in zip(classes, findings.latencies, strict=True)]
    return (
        f"<h2>Answers<small>{findings.surveyed:,}</small></h2>\n"
        f'<div class="pair">{_bar_table("status", statuses)}{_bar_table("time taken", latencies)}</div>\n'
    )


def _slowest(findings: Findings) -> str:
    if not findings.slowest:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{_link(each.url)}</th>{_cell("status", _status(each.status))}'
        f"{_cell('time', _seconds(each.elapsed_s))}{_cell('size', size(each.size_bytes))}</tr>\n"
        for each in findings.slowest
    )
    return f"<h2>Slowest pages</h2>\n{_table(('URL',), ('status', 'time', 'size'), rows)}"


def _reasons(findings: Findings) -> str:
    rows = [(reason, number, "bad", _link(url)) for reason, number, url in findings.reasons]
    return _titled(
        "Errors by reason", findings.stats.dead, _bar_table("reason", rows, "for example") if rows else ""
    )


def _skipped(findings: Findings) -> str:
    rows = []
    for each in findings.skipped:
        hosts = ", ".join(f"{_text(host)} ({number:,})" for host, number in each.hosts)
        rows.append((each.rule, each.pages, "warn", hosts))
    return _titled(
        "Skipped by rule", findings.stats.skipped, _bar_table("rule", rows, "most on") if rows else ""
    )


def _hosts(findings: Findings) -> str:
    if not findings.hosts:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{_text(each.host)}</th>{_cell("pages", f"{each.done:,}")}'
        f"{_cell('dead letters', f'{each.dead:,}')}{_cell('latency', _seconds(each.latency_s))}</tr>\n"
        for each in findings.hosts
    )
    hidden = findings.stats.hosts - len(findings.hosts)
    note = f'<p class="soft">and {hidden:,} with fewer pages</p>\n' if hidden > 0 else ""
    table = _table(("host",), ("pages", "dead letters", "latency"), rows)
    return _titled("Hosts", findings.stats.hosts, table + note)


# --- pieces ---------------------------------------------------------------------------------


def _titled(title: str, number: int, content: str) -> str:
    return f"<h2>{title}<small>{number:,}</small></h2>\n{content}" if number and content else ""


def _table(names: Iterable[str], numbers: Iterable[str], rows: str) -> str:
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    heads += "".join(f'<th scope="col" class="number">{name}</th>' for name in numbers)
    return f'<table class="stacked">\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n'


def _cell(label: str, text: str) -> str:
    return f'<td class="number" data-label="{label}">{text}</td>'


def _bar_table(name: str, rows: Sequence[tuple[str, int, str, str]], more: str = "") -> str:
    """Of each row its name, number, colour and, as HTML, what else there is to say."""
    most = max([1, *(number for _, number, _, _ in rows)])
    body = ""
    for label, number, colour, extra in rows:
        said = f'<br><span class="soft">{more} {extra}</span>' if extra else ""
        body += (
            f'<tr><th scope="row">{_text(label)}{said}</th><td class="wide">'
            '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect class="{colour}" width="{100 * number / most:.2f}" height="10"/></svg></td>'
            f'<td class="number">{number:,}</td></tr>\n'
        )
    head = f'<th scope="col">{name}</th><td></td><th scope="col" class="number">pages</th>'
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def _status(status: int) -> str:
    return str(status) if status else "no answer"


def _kind(status: int) -> str:
    return "good" if 200 <= status < 300 else "blue" if 300 <= status < 400 else "bad"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:,.3g} s"


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _last_line(error: str) -> str:
    return error.rstrip().rpartition("\n")[2]
