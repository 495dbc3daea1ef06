"""Where results live: `open_store` chooses the store by the name of the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from shoal.errors import ConfigError
from shoal.place import shown
from shoal.store.base import Store


def open_store(
    target: str, *, crawl: str, fields: Sequence[str] = (), csv_safe: bool = False, sync: bool = True
) -> Store:
    """The store for a target: FILE.jsonl, FILE.ndjson, FILE.csv, sqlite:FILE or postgresql://...

    It is not opened yet.

    fields: the columns, in their order, if they are known.
    csv_safe: defuse formulas in CSV (see `shoal.store.csv.to_csv`).
    sync: whether rows survive a power cut as well (see `shoal.store.file`).
    Raises ConfigError for any other target, and if a package for it is missing.
    """
    if target.startswith(("postgresql://", "postgres://")):
        try:
            from shoal.store.postgres import PostgresStore
        except ImportError:
            raise ConfigError("PostgreSQL needs another package: pip install 'shoal[postgres]'") from None
        return PostgresStore(target, crawl, fields, sync=sync)
    kind, colon, path = target.partition(":")
    if colon and kind == "sqlite" and path and not path.startswith("//"):
        from shoal.store.sqlite import SqliteStore

        return SqliteStore(path, crawl, fields, sync=sync)
    match PurePath(target).suffix.lower():
        case ".jsonl" | ".ndjson":
            from shoal.store.jsonl import JsonlStore

            return JsonlStore(target, sync=sync)
        case ".csv":
            from shoal.store.csv import CsvStore

            return CsvStore(target, fields, safe=csv_safe, sync=sync)
    raise ConfigError(
        f"cannot tell what to write to '{shown(target)}': name it "
        "FILE.jsonl, FILE.ndjson, FILE.csv, sqlite:FILE or postgresql://..."
    )
