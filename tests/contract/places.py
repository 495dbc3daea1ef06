"""Where the stores of a test live, and how other programs see what is in them."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from itertools import count
from pathlib import Path

import psycopg
from ledger import TARGETS, Ledger
from psycopg import sql
from psycopg.rows import dict_row

from shoal.store import open_store
from shoal.store.base import Store


class Place(ABC):
    """One place, with as many stores on it as separate processes would have, and their ledger."""

    def __init__(self, kind: str, target: str) -> None:
        self.kind = kind
        self.target = target
        self.ledger = Ledger()
        self._stores: list[Store] = []

    def store(self, crawl: str = "shop", target: str | None = None) -> Store:
        """One more store, not opened."""
        store = open_store(target or self.target, crawl=crawl)
        self._stores.append(store)
        return store

    def open(self, *, fresh: bool = False, crawl: str = "shop") -> Store:
        return self.ledger.open(self.store(crawl), fresh=fresh)

    @abstractmethod
    def read(self) -> list[dict[str, object]]:
        """The rows as any other program reads them, in their order."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether there is anything."""

    @abstractmethod
    def remove(self) -> None:
        """Take everything away."""

    def rows(self) -> list[tuple[str, int]]:
        return [(str(row["url"]), int(str(row["n"]))) for row in self.read()]

    def close_stores(self) -> None:
        for store in self._stores:
            store.close()
        self._stores.clear()

    def close(self) -> None:
        self.close_stores()
        self.ledger.close()


class FilePlace(Place):
    """A file."""

    def __init__(self, kind: str, folder: Path) -> None:
        scheme, _, name = TARGETS[kind].rpartition(":")
        self.path = folder / name
        super().__init__(kind, f"{scheme}:{self.path}" if scheme else str(self.path))

    def read(self) -> list[dict[str, object]]:
        return read_file(self.kind, self.path)

    def exists(self) -> bool:
        return self.path.exists()

    def remove(self) -> None:
        self.path.unlink()

    def disk(self) -> dict[Path, bytes]:
        """What is on the disk now."""
        return {path: path.read_bytes() for path in (self.path, self._wal) if path.exists()}

    def crash(self, disk: dict[Path, bytes]) -> None:
        """All processes die, and this is what they leave."""
        self.close_stores()
        for path in (self.path, self._wal, self.path.with_name(self.path.name + "-shm")):
            path.unlink(missing_ok=True)
        for path, content in disk.items():
            path.write_bytes(content)

    @property
    def _wal(self) -> Path:
        return self.path.with_name(self.path.name + "-wal")


def read_file(kind: str, path: Path) -> list[dict[str, object]]:
    """The rows of a file as any other program reads them, in their order."""
    if kind == "sqlite":
        with closing(sqlite3.connect(path)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute("SELECT * FROM items ORDER BY _position")]
    text = path.read_bytes().decode()
    if kind == "csv":
        return list(csv.DictReader(io.StringIO(text, newline="")))
    return [json.loads(line) for line in text.split("\n")[:-1]]


class PostgresPlace(Place):
    """A schema of its own in a database."""

    _numbers = count(1)

    def __init__(self, url: str) -> None:
        self.schema = f"place {next(self._numbers)}"
        super().__init__("postgresql", f"{url}?schema={self.schema.replace(' ', '%20')}")
        self.db = psycopg.connect(url, autocommit=True, row_factory=dict_row)
        """A connection whose search path leads here."""
        self.db.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.schema)))
        self.db.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(self.schema)))

    def read(self) -> list[dict[str, object]]:
        return self.db.execute("SELECT * FROM items ORDER BY token, idx").fetchall()

    def columns(self) -> dict[str, str]:
        """The columns of the fields, with their types."""
        found = self.db.execute(
            """SELECT attname AS name, format_type(atttypid, atttypmod) AS type FROM pg_attribute
               WHERE attrelid = 'items'::regclass AND attnum > 6 AND NOT attisdropped ORDER BY attnum"""
        )
        return {row["name"]: row["type"] for row in found}

    def exists(self) -> bool:
        return bool(self.db.execute("SELECT FROM pg_tables WHERE schemaname = %s", [self.schema]).rowcount)

    def remove(self) -> None:
        self.db.execute("DROP TABLE items, items_pages, items_crawls")

    def close(self) -> None:
        super().close()
        self.db.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(self.schema)))
        self.db.close()


def rows_of(*tokens: int, rows: int = 2) -> list[tuple[str, int]]:
    """What `Place.rows` gives for the pages of these tokens."""
    return [(f"https://shop.example/{token}", n) for token in tokens for n in range(rows)]
