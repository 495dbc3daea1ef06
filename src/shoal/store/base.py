"""Where results live. This is the contract of every store.

The worker records where the store starts, and from then on writes each batch and commits it in the
frontier, with or without items:

    with store.open(committed=frontier.position, fresh=False) as position:
        frontier.commit((), positions=[position])

    with store.write(outcomes, committed=frontier.position) as position:
        lost = frontier.commit(outcomes, positions=[position])

If any lease was lost nothing was committed, and the caller writes again without the lost ones.

Every row has a place in an order: the byte where it ends in a file, its number in a database. The
frontier records, in the same step as the outcomes, up to which place rows are committed. What lies
behind it was left by a crash, a lost lease or a back end that went back to an earlier moment; it is
cut off when the store is opened, before each write and when the context ends. So a row is there
exactly if its page is committed. `committed` is asked while all others are kept out, since a
position read any earlier may be out of date, and cutting back to it would cut off rows of others.

A store that many machines share cannot keep all others out for so long. It replaces instead: a page that
ends, with or without items, takes away all rows that lower tokens have brought for it, and what a lower
token brings later is not taken. There rows of a lost lease stay until their page ends after all, and the
position never moves: it tells the rows of this crawl from those of another one with its name.

As long as a crawl has no rows in a file, its position is minus a number that was drawn for it, its mark:
so two crawls that begin together do not both take the empty file for theirs.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

from shoal.model import Outcome

Committed: TypeAlias = Callable[[str], int | None]
"""Asks the frontier for the position it recorded last under this name; None: this crawl never wrote there."""

Position: TypeAlias = tuple[str, int]
"""What `Frontier.commit` is to record: the store's name, and where its last row ends."""


class Store(ABC):
    """One place for the items of one crawl. Each process has its own, used by one thread at a time."""

    name: str
    """Under this name the frontier keeps the committed position."""

    @property
    def place(self) -> str:
        """What it writes to: of one place there must be one store in a process."""
        return self.name

    @abstractmethod
    def open(self, *, committed: Committed, fresh: bool) -> AbstractContextManager[Position]:
        """Check that rows can be written here, and cut off what is not committed.

        Yields the position to start from, for the caller to record before anything is written.
        Where nothing is recorded, rows that are there already belong to somebody else and are refused.
        With `fresh` they are removed, whatever is recorded.
        Raises StoreError (not writable, not ours, rows missing, columns that do not fit) and
        StoreUnavailable.
        """

    @abstractmethod
    def write(self, outcomes: Sequence[Outcome], *, committed: Committed) -> AbstractContextManager[Position]:
        """Write the items of `outcomes`, provisionally; inside the context the caller commits.

        The rows have left this process when the context begins, and it yields what `commit` must record with
        them. When it ends, with an exception or without, they are cut off again unless that is recorded;
        processes that share the store wait for each other while the context is open. (A store that
        replaces rows does neither.)
        Raises StoreError for rows that do not fit and StoreUnavailable (disk full): nothing is written.
        """

    def tidy(  # noqa: B027 - most stores have nothing to do
        self, *, committed: Committed, busy: Callable[[], Collection[str]]
    ) -> None:
        """Put in order what workers that are no more have left, where others cannot do it by the way.

        Called after `open`, and before `close` when all went well.
        busy: asks for the names of the workers that may still commit something.
        Raises StoreError and StoreUnavailable.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the store; it may be opened again."""


BUSY_S = 30.0
"""How long to wait for another process that is writing."""

MARKS = 2**48
"""All marks are below it; frontiers may keep numbers as doubles."""


def drawn_mark() -> int:
    """A number from 2 on, for one crawl in one place: a frontier may take -1 for no position."""
    return 2 + secrets.randbelow(MARKS - 2)


def absolute(path: str | os.PathLike[str]) -> str:
    """The one spelling of a path, so that a file never has two positions; plain text, whatever its bytes."""
    return os.fsencode(os.path.realpath(path)).decode("utf-8", "backslashreplace")
