"""Where the stores of a test live, and how other programs see what is in them."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import IO

import psycopg
import pyarrow.parquet as pq
from ledger import TARGETS, Ledger
from psycopg import sql
from psycopg.rows import dict_row

from shoal.store import open_store
from shoal.store.base import Store
from shoal.store.compress import zstd

_WORKERS = count(1)


class Place(ABC):
    """One place, with as many stores on it as separate processes would have, and their ledger."""

    def __init__(self, kind: str, target: str) -> None:
        self.kind = kind
        self.target = target
        self.ledger = Ledger()
        self._stores: list[Store] = []

    def store(self, crawl: str = "shop", target: str | None = None) -> Store:
        """One more store, not opened."""
        worker = f"here:{next(_WORKERS)}:0"
        store = open_store(target or self.target, crawl=crawl, worker=worker)
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


class PartsPlace(Place):
    """A folder of parts: on this machine, or below a bucket whose server keeps it as a folder."""

    _numbers = count(1)

    def __init__(self, kind: str, folder: Path, bucket: Path | None = None) -> None:
        self.form = kind.rpartition(" ")[2]
        self.path = folder / "items"
        target = f"{self.form}:{self.path}"
        if bucket is not None:
            name = f"place-{next(self._numbers)}/items.{self.form}"
            self.path = bucket / name
            target = f"s3://{bucket.name}/{name}"
        super().__init__(kind, target)

    def parts(self) -> list[Path]:
        return sorted(self.path.glob(f"date=*/*.{self.form}"))

    def read(self) -> list[dict[str, object]]:
        rows = [row for part in self.parts() for row in read_part(part)]
        return sorted(rows, key=lambda row: [str(value) for value in row.values()])

    def exists(self) -> bool:
        return bool(self.parts())

    def remove(self) -> None:
        shutil.rmtree(self.path)

    def tidy(self, store: Store, busy: Sequence[str] = ()) -> None:
        store.tidy(committed=self.ledger.position, busy=lambda: busy)


def read_part(path: Path) -> list[dict[str, object]]:
    """The rows of one part."""
    if path.suffix == ".parquet":
        return pq.read_table(path, partitioning=None).to_pylist()
    with _opened(path) as file:
        return [json.loads(line) for line in file]


def _opened(path: Path) -> IO[bytes]:
    """As its name says."""
    match path.suffix:
        case ".gz":
            return gzip.open(path)
        case ".zst":
            return zstd.open(path)
    return path.open("rb")


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
