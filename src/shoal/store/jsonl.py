"""JSON Lines: one JSON object per line, in UTF-8, ended by a newline; `shoal.store.encode` gives the form."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.model import Outcome
from shoal.store.encode import to_json
from shoal.store.file import FileStore


class JsonlStore(FileStore):
    """Rows with any fields, each with its own."""

    def _render(self, outcomes: Sequence[Outcome], start: int) -> bytes:
        return b"".join(to_json(item) + b"\n" for outcome in outcomes for item in outcome.rows())
