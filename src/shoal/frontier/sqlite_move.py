"""A crawl out of a state file and into one: the two sides of `shoal migrate`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

import msgspec

from shoal.caution import Caution
from shoal.frontier.history import in_ms
from shoal.frontier.snapshot import CrawlState, HostState, PageState
from shoal.frontier.sqlite_step import Step, marks, pack_extra, read_link, read_visit, to_json
from shoal.model import Link, Survey

_PAGE = (
    "crawl",
    "fingerprint",
    "host",
    "url",
    "state",
    "priority",
    "fresh",
    "depth",
    "attempts",
    "losses",
    "not_before",
    "extra",
    "added_at",
    "finished_at",
    "status",
    "reason",
    "error",
    "visit",
)


def dump_crawl(step: Step) -> CrawlState:
    """The row of the crawl."""
    (description,) = step.db.execute("SELECT description FROM crawls WHERE id = ?", (step.id,)).fetchone()
    positions = step.db.execute("SELECT store, length FROM positions WHERE crawl = ?", (step.id,))
    return CrawlState(
        description=msgspec.json.decode(description),
        limits=step.limits,
        paused=bool(step.crawl.paused),
        positions=dict(positions.fetchall()),
        items=step.crawl.items,
        size_bytes=step.crawl.size_bytes,
        fetches=step.crawl.fetches,
        losses=step.crawl.losses,
        token=step.crawl.token,
        retries=step.crawl.retries,
        elapsed_s=step.crawl.elapsed_ms / 1000,
        history=tuple(step.history(-inf)),
    )


def load_crawl(step: Step, crawl: CrawlState) -> None:
    """Make the crawl as it was, but paused."""
    step.limits = crawl.limits
    step.crawl.paused = 1
    step.crawl.items = crawl.items
    step.crawl.size_bytes = crawl.size_bytes
    step.crawl.fetches = crawl.fetches
    step.crawl.losses = crawl.losses
    step.crawl.token = max(step.crawl.token, crawl.token)
    step.crawl.retries = crawl.retries
    step.crawl.elapsed_ms = in_ms(crawl.elapsed_s)
    for store, length in crawl.positions.items():
        step.record_position(store, length)


def load_hosts(step: Step, hosts: Iterable[HostState]) -> None:
    """Make these hosts."""
    for state in hosts:
        host = step.host_named(state.host)
        host.done = state.done
        host.known = int(state.known)
        host.crawl_delay_s = state.crawl_delay_s
        host.started_at = state.started_at
        host.paused_until = state.paused_until
        host.latency_s = state.latency_s
        if state.caution is not None:
            host.caution = state.caution
        host.set_delay_s = state.set_delay_s
        host.error_rate = state.error_rate
        step.cuts.load(host.id, state.cuts, state.shapes)


def introduce(step: Step, keys: Mapping[str, str]) -> None:
    """Write down the host keys of these hosts, but for those that have one already."""
    step.db.executemany(
        "INSERT OR IGNORE INTO names VALUES (?, ?, ?)", [(step.id, name, key) for name, key in keys.items()]
    )


def load_pages(step: Step, pages: Iterable[PageState]) -> None:
    """Make these pages, and queue those that are queued."""
    step.db.executemany(
        f"INSERT INTO pages ({', '.join(_PAGE)}) VALUES ({marks(_PAGE)})",
        [_loaded_page(step, page) for page in pages],
    )


def _loaded_page(step: Step, page: PageState) -> tuple[Any, ...]:
    link = page.link or Link(url="")
    host = step.host_named(step.host_key(link.url)) if page.link else None
    state = page.state
    if page.state == "queued" and host is not None:
        delayed, retrying = page.not_before is not None, page.attempts > 0
        step.queue(host, link.priority, page.added_at, delayed=delayed, retrying=retrying)
    elif page.state == "overflow" and host is not None:
        state = step.put_back(host, link.priority, page.added_at)
    else:
        step.crawl.count(page.state, 1)
    return (
        step.id,
        page.fingerprint,
        0 if host is None else host.id,
        link.url,
        state,
        link.priority,
        int(page.fresh),
        link.depth,
        page.attempts,
        page.losses,
        page.not_before,
        pack_extra(link),
        page.added_at,
        page.finished_at,
        page.status,
        page.reason,
        page.error,
        None if page.visit is None else to_json(page.visit),
    )


def dumped_host(row: sqlite3.Row, cuts: Mapping[str, int], shapes: Mapping[int, int]) -> HostState:
    """A row of hosts, with what trap rules have cut and counted of it."""
    return HostState(
        host=row["host"],
        done=row["done"],
        known=bool(row["known"]),
        crawl_delay_s=row["crawl_delay_s"],
        started_at=row["started_at"],
        paused_until=row["paused_until"],
        latency_s=row["latency_s"],
        caution=None if row["troubles"] is None else msgspec.json.decode(row["troubles"], type=Caution),
        cuts=cuts,
        shapes=shapes,
        set_delay_s=row["set_delay_s"],
        error_rate=row["error_rate"],
    )


def dumped_survey(row: sqlite3.Row) -> Survey:
    """A row of surveys."""
    return msgspec.msgpack.decode(row["data"], type=Survey)


def dumped_page(row: sqlite3.Row) -> PageState:
    """A row of pages."""
    link = read_link(row["url"], row["priority"], row["depth"], row["extra"]) if row["url"] else None
    return PageState(
        fingerprint=row["fingerprint"],
        state="queued" if row["state"] == "leased" else row["state"],
        link=link,
        fresh=bool(row["fresh"]),
        attempts=row["attempts"],
        losses=row["losses"],
        not_before=row["not_before"],
        added_at=row["added_at"],
        finished_at=row["finished_at"],
        status=row["status"],
        reason=row["reason"],
        error=row["error"],
        visit=read_visit(row["visit"]),
    )
