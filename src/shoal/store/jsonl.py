"""JSON Lines: one JSON object per line, in UTF-8, ended by a newline; `shoal.store.encode` gives the form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from itertools import islice

from shoal.model import Outcome
from shoal.store.compress import packed, reading
from shoal.store.encode import to_json
from shoal.store.file import FileStore
from shoal.store.parts import Folder, PartStore


class JsonlStore(FileStore):
    """Rows with any fields, each with its own."""

    def _render(self, outcomes: Sequence[Outcome], start: int) -> bytes:
        return b"".join(_lines(outcomes))


class JsonlParts(PartStore[list[bytes]]):
    """The same in many files, which may be compressed."""

    def __init__(self, folder: Folder, worker: str = "", suffix: str = "jsonl") -> None:
        """suffix: jsonl, jsonl.gz or jsonl.zst."""
        self.suffix = suffix
        super().__init__(folder, worker)

    def _batch(self, outcomes: Sequence[Outcome]) -> tuple[int, list[bytes]]:
        lines = _lines(outcomes)
        return len(lines), lines

    def _encode(self, batch: list[bytes]) -> bytes:
        return packed(b"".join(batch), self.suffix)

    def _joined(self, contents: Iterable[bytes]) -> bytes:
        return b"".join(contents)

    def _head(self, content: bytes, rows: int) -> bytes:
        with reading(self.suffix, BytesIO(content)) as lines:
            return packed(b"".join(islice(lines, rows)), self.suffix)


def _lines(outcomes: Sequence[Outcome]) -> list[bytes]:
    return [to_json(item) + b"\n" for outcome in outcomes for item in outcome.rows()]
