"""A folder on this machine, for parts (`shoal.store.parts`)."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shoal.errors import StoreError
from shoal.store.base import absolute
from shoal.store.file import os_error


class LocalFolder:
    """Files are written beside their place, under a name that begins with a dot, and then put into it.

    sync: whether they survive a power cut as well.
    """

    def __init__(self, path: str | os.PathLike[str], *, sync: bool = True) -> None:
        self._path = Path(path)
        self._sync = sync
        self._beside = self._path / f".{secrets.token_hex(8)}"
        self.shown = str(path)
        self.name = absolute(path)

    def open(self, *, create: bool) -> None:
        """Make it, if it may be made; its parent has to be there."""
        with self._translated():
            if create:
                self._path.mkdir(exist_ok=True)
            if not self._path.is_dir() and self._path.exists():
                raise StoreError(f"cannot write {self.shown}: it is a file, and no folder")

    def create(self, name: str, content: bytes) -> bool:
        """See `Folder.create`."""
        with self._translated(), self._written(content):
            try:
                (self._path / name).hardlink_to(self._beside)
            except FileExistsError:
                return False
            return True

    def put(self, name: str, content: bytes) -> None:
        """See `Folder.put`."""
        place = self._path / name
        with self._translated(), self._written(content):
            place.parent.mkdir(exist_ok=True)
            self._beside.replace(place)
            if self._sync:
                _sync_folder(place.parent)

    def get(self, name: str) -> bytes | None:
        """See `Folder.get`."""
        with self._translated(), suppress(FileNotFoundError):
            return (self._path / name).read_bytes()
        return None

    def names(self) -> list[str]:
        """See `Folder.names`."""
        with self._translated():
            found = (path for path in self._path.rglob("*") if path.is_file())
            return [path.relative_to(self._path).as_posix() for path in found]

    def delete(self, name: str) -> None:
        """See `Folder.delete`. A folder that is empty then stays."""
        with self._translated():
            (self._path / name).unlink(missing_ok=True)

    def close(self) -> None:
        """See `Folder.close`: nothing is held."""

    @contextmanager
    def _written(self, content: bytes) -> Iterator[None]:
        """With the content in the file beside, which is gone afterwards."""
        try:
            with self._beside.open("wb") as file:
                file.write(content)
                file.flush()
                if self._sync:
                    os.fsync(file.fileno())
            yield
        finally:
            with suppress(OSError):
                self._beside.unlink(missing_ok=True)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise os_error(exc, self.shown) from exc


def _sync_folder(path: Path) -> None:
    """So that the name of a new file is on the disk as well."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
