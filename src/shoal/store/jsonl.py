"""JSON Lines: one JSON object per line, in UTF-8, ended by a newline; `shoal.store.encode` gives the form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.model import Outcome
from shoal.store.encode import to_json
from shoal.store.file import FileStore
from shoal.store.parts import PartStore


class JsonlStore(FileStore):
    """Rows with any fields, each with its own."""

    def _render(self, outcomes: Sequence[Outcome], start: int) -> bytes:
        return b"".join(_lines(outcomes))


class JsonlParts(PartStore[list[bytes]]):
    """The same in many files."""

    suffix = "jsonl"

    def _batch(self, outcomes: Sequence[Outcome]) -> tuple[int, list[bytes]]:
        lines = _lines(outcomes)
        return len(lines), lines

    def _encode(self, batch: list[bytes]) -> bytes:
        return b"".join(batch)

    def _joined(self, contents: Iterable[bytes]) -> bytes:
        return b"".join(contents)

    def _head(self, content: bytes, rows: int) -> bytes:
        return b"".join(content.splitlines(keepends=True)[:rows])


def _lines(outcomes: Sequence[Outcome]) -> list[bytes]:
    return [to_json(item) + b"\n" for outcome in outcomes for item in outcome.rows()]
