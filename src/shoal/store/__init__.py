"""Where results live: `open_store` chooses the store by the name of the target."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from shoal.errors import ConfigError
from shoal.place import shown
from shoal.store.base import Store

if TYPE_CHECKING:
    from shoal.store.parts import Folder

BUCKETS = ("s3", "gs", "az")
_FORMS = ("jsonl", "jsonl.gz", "jsonl.zst", "parquet")
_OWN = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")
"""MODULE:NAME."""

FILE = re.compile(r"sqlite:.+|(?![a-z0-9]+:).+\.(jsonl|ndjson|csv)", re.IGNORECASE | re.DOTALL)
"""Targets that are one file on this machine."""

_KNOWN = (
    "FILE.jsonl, FILE.ndjson, FILE.csv, sqlite:FILE, parquet:DIR, postgresql://..., "
    "s3://BUCKET/NAME.jsonl, .jsonl.gz, .jsonl.zst or .parquet (or gs://, az://), or MODULE:CLASS"
)


def open_store(
    target: str,
    *,
    crawl: str,
    fields: Sequence[str] = (),
    csv_safe: bool = False,
    sync: bool = True,
    worker: str = "",
) -> Store:
    """The store for a target; it is not opened yet.

    target: FILE.jsonl, FILE.ndjson, FILE.csv, sqlite:FILE, parquet:DIR, postgresql://..., or, of an object
    store, s3://BUCKET/NAME.jsonl, .jsonl.gz, .jsonl.zst or .parquet (or gs://, az://), or MODULE:CLASS.

    fields: the columns, in their order, if they are known.
    csv_safe: defuse formulas in CSV (see `shoal.store.csv.to_csv`).
    sync: whether rows survive a power cut as well (see `shoal.store.file`).
    worker: the name of the worker that writes, as the frontier knows it (see `shoal.store.parts`).
    Raises ConfigError for any other target, and if a package for it is missing.
    """
    kind, colon, path = target.partition(":")
    if kind in ("postgresql", "postgres") and path.startswith("//"):
        try:
            from shoal.store.postgres import PostgresStore
        except ImportError:
            raise missing("PostgreSQL", "postgres") from None
        return PostgresStore(target, crawl, fields, sync=sync)
    if colon and kind == "sqlite" and path and not path.startswith("//"):
        from shoal.store.sqlite import SqliteStore

        return SqliteStore(path, crawl, fields, sync=sync)
    if (colon and kind == "parquet" and path) or (kind in BUCKETS and path.startswith("//")):
        form = form_of_parts(target)
        if form is not None:
            return _parts(form, folder_of(path if kind == "parquet" else target, sync=sync), worker)
    elif _OWN.fullmatch(target):
        return made_store(_imported(target), crawl)
    match PurePath(target).suffix.lower() if "://" not in target else "":
        case ".jsonl" | ".ndjson":
            from shoal.store.jsonl import JsonlStore

            return JsonlStore(target, sync=sync)
        case ".csv":
            from shoal.store.csv import CsvStore

            return CsvStore(target, fields, safe=csv_safe, sync=sync)
    raise ConfigError(f"cannot tell what to write to '{shown(target)}': name it {_KNOWN}")


def open_archive(target: str, *, worker: str = "", sync: bool = True) -> Store:
    """The archive of raw pages in a folder or below a URL of a bucket; it is not opened yet.

    Raises ConfigError if a package for it is missing.
    """
    try:
        from shoal.store.warc import WarcArchive
    except ImportError:
        raise missing("an archive", "warc") from None
    return WarcArchive(folder_of(target, sync=sync), worker)


def folder_of(place: str, *, sync: bool = True) -> Folder:
    """A folder for parts: on this machine, or a URL of a bucket. Raises ConfigError as `open_store`."""
    if place.partition("://")[0] not in BUCKETS or "://" not in place:
        from shoal.store.folder import LocalFolder

        return LocalFolder(place, sync=sync)
    try:
        from shoal.store.objects import Bucket
    except ImportError:
        raise missing("an object store", "objects") from None
    return Bucket(place)


def form_of_parts(target: str) -> str | None:
    """What the names of parts there end in; None: shoal writes nothing of that kind."""
    if target.startswith("parquet:"):
        return "parquet"
    name = target.lower()
    return next((form for form in _FORMS if name.endswith(f".{form}")), None)


def _parts(form: str, folder: Folder, worker: str) -> Store:
    if form != "parquet":
        from shoal.store.jsonl import JsonlParts

        return JsonlParts(folder, worker, form)
    try:
        from shoal.store.parquet import ParquetStore
    except ImportError:
        raise missing("Parquet", "parquet") from None
    return ParquetStore(folder, worker)


def missing(what: str, extra: str) -> ConfigError:
    """The error for a package that is needed and not there."""
    return ConfigError(f"{what} needs another package: pip install 'shoal[{extra}]'")


# --- stores of the user's own --------------------------------------------------------------------


def made_store(own: object, crawl: str) -> Store:
    """A store as it is, or what makes one, called with the name of the crawl.

    Raises ConfigError for what makes none, and whatever the code that makes it raises itself.
    """
    try:
        made = own(crawl) if callable(own) else own
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # by a line of its own
        raise ConfigError(f"{store_name(own)} cannot be called with a crawl's name: {error}") from error
    if not isinstance(made, Store):
        raise ConfigError(f"{store_name(own)} is no store: derive it from shoal.store.base.Store")
    return made


def store_name(own: object) -> str:
    """What a store of the user's own is called."""
    kind = own if hasattr(own, "__qualname__") else type(own)
    return f"{kind.__module__}:{kind.__qualname__}"


def _imported(target: str) -> object:
    module, _, name = target.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)  # which is not there in programs that were installed
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ConfigError(f"cannot import the store {target}: {error}") from error
    except AttributeError:
        raise ConfigError(f"cannot import the store {target}: {module} has no '{name}'") from None
    finally:
        sys.path.remove(here)
