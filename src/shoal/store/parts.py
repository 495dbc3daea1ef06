"""Rows in many files, the parts, in a folder or in a bucket, which any number of workers share.

    date=2026-12-02/part-WRITER-0000000000-0000000031-TOKEN.parquet

Each worker is a writer of its own, whose rows are numbered from 0 on. A part holds the rows of one batch, as
its name says: from the first number up to the second. The position is the number after the last row that
is committed, kept for each writer under a name of its own. The name of a part is known before it is written
and ends in the token of the batch: a batch that is written again replaces its part, and no part ever
gets the name of another one.

A part is there as a whole or not at all. One whose rows were not committed is removed by its writer, as soon
as it knows; what a dead writer has left is removed by others (`tidy`), once it holds no lease with which it
could still commit. So when a crawl has ended each row is in the parts exactly once. While it runs, a reader
may see rows that are not committed yet, and for a moment, when small parts are put together to a larger one,
rows twice.

A file beside the parts tells whose they are: the frontier keeps its number under the name of the store.
"""

from __future__ import annotations

import logging
import re
import secrets
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Generic, NamedTuple, Protocol, Self, TypeVar

import xxhash

from shoal.errors import StoreError, StoreUnavailable
from shoal.model import Outcome
from shoal.store.base import Committed, Position, Store

FAN = 32  # so many parts of one size are put together
MARKER = "_shoal"

Batch = TypeVar("Batch")
log = logging.getLogger("shoal.store")


class Folder(Protocol):
    """Where the parts are. Raises StoreError and StoreUnavailable."""

    shown: str
    """For people."""
    name: str
    """The one spelling of its place."""

    def open(self, *, create: bool) -> None:
        """Come to it, before anything else; create: make it if it is not there."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a file if there is none of that name, whole or not at all; returns whether it was written."""

    def put(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all, and durably; it replaces one of that name."""

    def get(self, name: str) -> bytes | None:
        """What is in it; None: it is not there."""

    def names(self) -> list[str]:
        """All files, those in folders as "folder/file"."""

    def delete(self, name: str) -> None:
        """Remove the file, if it is there."""

    def close(self) -> None:
        """Let go of it."""


class Part(NamedTuple):
    """One file; its order is that of its rows."""

    writer: str
    start: int
    end: int
    token: int
    """The lowest one of its batch; 0 if it was put together from others."""
    day: str

    def name(self, suffix: str) -> str:
        return f"date={self.day}/part-{self.writer}-{self.start:010d}-{self.end:010d}-{self.token:x}.{suffix}"

    @classmethod
    def of(cls, name: str, suffix: str) -> Self | None:
        """What a name says; None: it is no part."""
        found = _NAME.fullmatch(name)
        if found is None or found[6] != suffix:
            return None
        return cls(found[2], int(found[3]), int(found[4]), int(found[5], 16), found[1])


_NAME = re.compile(
    r"date=(\d{4}-\d\d-\d\d)/part-([0-9a-f]+)-(\d{10,})-(\d{10,})-([0-9a-f]+)\.([a-z]+(?:\.(?:gz|zst))?)"
)


class _Own(NamedTuple):
    """A part of this writer, and how often its rows were put together."""

    part: Part
    size_bytes: int
    level: int = 0


class PartStore(Store, Generic[Batch]):
    """The rows of one crawl in parts. worker: by which the frontier knows who holds leases."""

    suffix: str
    """What the names of parts end in."""
    most_bytes = 32_000_000
    """Parts that would get larger are not put together."""

    def __init__(self, folder: Folder, worker: str = "") -> None:
        self._folder = folder
        self._place = place_name(folder, self.suffix)
        self._mark = _mark(worker)
        self._writer = self._mark + secrets.token_hex(4)
        self.name = self._named(self._writer)
        self._marker = b""
        self._own: list[_Own] = []
        self._doomed: list[Part] = []
        """To be removed before anything is written."""

    @property
    def place(self) -> str:
        """See `Store.place`."""
        return self._place

    @abstractmethod
    def _batch(self, outcomes: Sequence[Outcome]) -> tuple[int, Batch]:
        """The rows of `outcomes`, and how many."""

    @abstractmethod
    def _encode(self, batch: Batch) -> bytes:
        """A part of these rows."""

    @abstractmethod
    def _joined(self, contents: Iterable[bytes]) -> bytes:
        """One part with the rows of several, in their order."""

    @abstractmethod
    def _head(self, content: bytes, rows: int) -> bytes:
        """The part with its first rows only."""

    def _kept(self) -> None:
        """The batch that was encoded last is committed."""

    def _undone(self) -> None:
        """Something that was committed is not any more."""

    @contextmanager
    def open(self, *, committed: Committed, fresh: bool) -> Iterator[Position]:
        """See `Store.open`."""
        try:
            yield self._place, self._start(committed(self._place), fresh)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def write(self, outcomes: Sequence[Outcome], *, committed: Committed) -> Iterator[Position]:
        """See `Store.write`."""
        position = self._cut_own(committed)
        if not outcomes:
            self._folder.put(MARKER, self._marker)  # can it be written at all?
        count, batch = self._batch(outcomes)
        if not count:
            yield self.name, position
            return
        token = min(outcome.lease.token for outcome in outcomes)
        part = Part(self._writer, position, position + count, token, f"{datetime.now(UTC):%Y-%m-%d}")
        content = self._encode(batch)
        self._own.append(_Own(part, len(content)))  # from now on it may be there
        self._folder.put(part.name(self.suffix), content)
        try:
            yield self.name, part.end
        finally:
            if (committed(self.name) or 0) >= part.end:
                self._kept()
            else:
                self._own.pop()
                self._doomed.append(part)
                with suppress(StoreUnavailable):  # else it is removed before the next write
                    self._remove_doomed()

    def tidy(self, *, committed: Committed, busy: Callable[[], Collection[str]]) -> None:
        """See `Store.tidy`: removes what is not committed, and puts small parts of this writer together."""
        self._cut_own(committed)
        while self._join_small():
            pass
        self._remove_doomed()
        parts = self._parts()
        taken = {_mark(worker) for worker in busy()} | {self._mark}  # asked after the parts, and see `_mend`
        for writer in {part.writer for part in parts if not part.writer.startswith(tuple(taken))}:
            position = committed(self._named(writer)) or 0
            while not self._mend([part for part in parts if part.writer == writer], position):
                before, parts = parts, self._parts()
                if parts == before:
                    raise self._rows_missing()

    def close(self) -> None:
        """See `Store.close`."""
        self._folder.close()

    # --- whose it is ------------------------------------------------------------------------------

    def _start(self, recorded: int | None, fresh: bool) -> int:
        """The number of the crawl whose parts are here."""
        self._folder.open(create=fresh or recorded is None)
        marker = self._folder.get(MARKER)
        if fresh:
            for part in self._parts():
                self._folder.delete(part.name(self.suffix))
        elif recorded is None and self._parts():
            raise StoreError(
                f"{self._folder.shown} holds rows that this crawl did not write: "
                "name another place, or replace them with --fresh"
            )
        elif recorded is not None and marker != str(recorded).encode():
            raise self._rows_missing()
        self._own, self._doomed = [], []
        if marker is None:
            self._folder.create(MARKER, str(1 + secrets.randbelow(2**48)).encode())
            marker = self._folder.get(MARKER) or b"0"  # another one may have been quicker
        self._marker = marker
        return int(marker)

    def _named(self, writer: str) -> str:
        """Under which the position of a writer is kept."""
        return writer_name(self._place, writer)

    def _parts(self) -> list[Part]:
        """All that are there."""
        parts = (Part.of(name, self.suffix) for name in self._folder.names())
        return [part for part in parts if part is not None]

    # --- in order ---------------------------------------------------------------------------------

    def _cut_own(self, committed: Committed) -> int:
        """Remove what this writer has beyond its position, and put parts together; returns the position."""
        position = committed(self.name)
        if position is None and committed(self._place) is None:
            raise StoreError(
                f"the crawl that wrote {self._folder.shown} was removed meanwhile: start it again"
            )
        position = position or 0
        if self._own and self._own[-1].part.end > position:
            self._undone()
        while self._own and self._own[-1].part.end > position:
            part = self._own[-1].part
            if part.start < position:
                self._shorten(part, position, self._read(part))
                self._own.insert(-1, _Own(part._replace(end=position), self.most_bytes))
            self._own.pop()
            self._doomed.append(part)
        self._remove_doomed()
        self._join()
        return position

    def _join(self) -> None:
        """Put together what is of one size: like this a row is written again a few times at most."""
        while len(self._own) >= FAN:
            last = self._own[-FAN:]
            if len({(own.level, own.part.day) for own in last}) > 1 or _size(last) > self.most_bytes:
                return
            self._join_to(last)

    def _join_small(self) -> bool:
        """Put together neighbours that are small enough, whatever their sizes; returns whether there were."""
        run: list[_Own] = []
        for own in [*self._own, None]:
            if (
                own is not None
                and (not run or own.part.day == run[0].part.day)
                and (_size([*run, own]) <= self.most_bytes)
            ):
                run.append(own)
            elif len(run) > 1:
                self._join_to(run)
                return True
            else:
                run = [] if own is None else [own]
        return False

    def _join_to(self, parts: Sequence[_Own]) -> None:
        first, last = parts[0].part, parts[-1].part
        content = self._joined(self._read(own.part) for own in parts)
        joined = Part(self._writer, first.start, last.end, 0, first.day)
        self._folder.put(joined.name(self.suffix), content)
        at = self._own.index(parts[0])
        self._own[at : at + len(parts)] = [_Own(joined, len(content), parts[0].level + 1)]
        self._doomed += [own.part for own in parts]
        self._remove_doomed()

    def _mend(self, parts: Sequence[Part], position: int) -> bool:
        """Leave of a dead writer what is committed, once; returns False if some of that is not there.

        Others may be doing the same at the same time, and have replaced what was seen here. Only names are
        removed that nobody will ever use again.
        """
        end, kept, doomed = 0, set(), []
        for part in sorted(parts, key=lambda part: (part.start, -part.end)):
            if part.start >= position or part.end <= end:  # not committed, or within a larger one
                doomed.append(part)
            elif part.start > end:
                return False
            else:
                if part.end > position:
                    content = self._folder.get(part.name(self.suffix))
                    if content is None:
                        return False
                    self._shorten(part, position, content)
                    doomed.append(part)
                end = min(part.end, position)
                kept.add(part._replace(end=end))
        if end < position:
            return False
        for part in doomed:
            if part not in kept:
                log.info(
                    "removed from %s what was not committed: %s", self._folder.shown, part.name(self.suffix)
                )
                self._folder.delete(part.name(self.suffix))
        return True

    def _shorten(self, part: Part, position: int, content: bytes) -> None:
        """Write it again with less; the longer one stays for now."""
        head = self._head(content, position - part.start)
        self._folder.put(part._replace(end=position).name(self.suffix), head)

    def _read(self, part: Part) -> bytes:
        content = self._folder.get(part.name(self.suffix))
        if content is None:
            raise self._rows_missing()
        return content

    def _remove_doomed(self) -> None:
        while self._doomed:
            self._folder.delete(self._doomed[-1].name(self.suffix))
            self._doomed.pop()

    def _rows_missing(self) -> StoreError:
        return StoreError(
            f"rows are missing from {self._folder.shown} that this crawl had written: "
            "parts were changed or deleted; put them back, or start over with --fresh"
        )


def place_name(folder: Folder, suffix: str) -> str:
    """Under which the frontier keeps whose parts these are."""
    return f"{folder.name} ({suffix})"


def writer_name(place: str, writer: str) -> str:
    """Under which it keeps the position of a writer."""
    return f"{place}#{writer}"


def _mark(worker: str) -> str:
    """By which the writers of a process are known: what its workers are called before the slash."""
    return xxhash.xxh32_hexdigest(worker.partition("/")[0].encode())


def _size(parts: Sequence[_Own]) -> int:
    return sum(own.size_bytes for own in parts)
