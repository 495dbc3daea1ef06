"""What trap rules have cut, and what they count, in the SQLite frontier."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from shoal.frontier.base import MOST_CUT, MOST_SHAPES
from shoal.model import Quota


class Cuts:
    """The counters of one crawl, within one transaction."""

    def __init__(self, db: sqlite3.Connection, crawl: int) -> None:
        self._db = db
        self._crawl = crawl

    def count(self, host: int, rule: str) -> bool:
        """A link is cut: whether it is to be remembered."""
        (count,) = self._db.execute(
            "INSERT INTO cuts VALUES (?, ?, ?, 1)"
            " ON CONFLICT DO UPDATE SET count = count + 1 RETURNING count",
            (self._crawl, host, rule),
        ).fetchone()
        return bool(count <= MOST_CUT)

    def counts(self) -> dict[tuple[str, str], int]:
        """How many links were cut, by rule and host."""
        rows = self._db.execute(
            "SELECT rule, hosts.host, count FROM cuts JOIN hosts ON hosts.id = cuts.host"
            " WHERE cuts.crawl = ?",
            (self._crawl,),
        )
        return {(rule, host): count for rule, host, count in rows}

    def full(self, host: int, quotas: Iterable[Quota]) -> str:
        """The rule of a quota that is full; without one, "", and the link counts towards all of them."""
        for quota in quotas:
            row = self._db.execute(
                "SELECT count FROM shapes WHERE crawl = ? AND host = ? AND shape = ?",
                (self._crawl, host, quota.shape),
            ).fetchone()
            if row is not None and row[0] >= quota.most:
                return quota.rule
        for quota in quotas:
            self._count_shape(host, quota.shape)
        return ""

    def _count_shape(self, host: int, shape: int) -> None:
        where = (self._crawl, host, shape)
        counted = self._db.execute(
            "UPDATE shapes SET count = count + 1 WHERE crawl = ? AND host = ? AND shape = ?", where
        )
        if counted.rowcount == 0:
            self._make_room(host)
            self._db.execute("INSERT INTO shapes VALUES (?, ?, ?, 1)", where)

    def _make_room(self, host: int) -> None:
        """For one more shape; see MOST_SHAPES."""
        where = (self._crawl, host)
        shapes, least = self._db.execute(
            "SELECT count(*), min(count) FROM shapes WHERE crawl = ? AND host = ?", where
        ).fetchone()
        if shapes >= MOST_SHAPES:
            self._db.execute(
                "UPDATE shapes SET count = count - ? WHERE crawl = ? AND host = ?", (least, *where)
            )
            self._db.execute("DELETE FROM shapes WHERE crawl = ? AND host = ? AND count = 0", where)

    def of(self, host: int) -> tuple[dict[str, int], dict[int, int]]:
        """How many links of a host each rule has cut, and how many it has had of each shape."""
        where = "FROM {} WHERE crawl = ? AND host = ?"
        cuts = self._db.execute(f"SELECT rule, count {where.format('cuts')}", (self._crawl, host))
        shapes = self._db.execute(f"SELECT shape, count {where.format('shapes')}", (self._crawl, host))
        return dict(cuts.fetchall()), dict(shapes.fetchall())

    def load(self, host: int, cuts: Mapping[str, int], shapes: Mapping[int, int]) -> None:
        """What `of` gave, for a new host."""
        self._db.executemany(
            "INSERT OR REPLACE INTO cuts VALUES (?, ?, ?, ?)",
            [(self._crawl, host, *each) for each in cuts.items()],
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO shapes VALUES (?, ?, ?, ?)",
            [(self._crawl, host, *each) for each in shapes.items()],
        )

    def claim(self, contents: Sequence[tuple[int, str]]) -> list[str]:
        """Which URL had each content first."""
        self._db.executemany(
            "INSERT OR IGNORE INTO contents VALUES (?, ?, ?)",
            [(self._crawl, digest, url) for digest, url in contents],
        )
        query = "SELECT url FROM contents WHERE crawl = ? AND digest = ?"
        return [self._db.execute(query, (self._crawl, digest)).fetchone()[0] for digest, _ in contents]
