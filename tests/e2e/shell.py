"""The command `shoal`, run in a folder as a person would run it: a process of its own, text in, text out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.e2e.nursery import Nursery

COMMAND = (sys.executable, "-m", "shoal")
PATIENCE_S = 100.0
_STREAMS = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


class Ended(Struct, frozen=True):
    """A command that has come to its end."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[Any]:
        """What it printed, read as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class Shell:
    """Runs `shoal` in a folder. All of Python's warnings are errors."""

    def __init__(self, folder: Path, nursery: Nursery) -> None:
        self.folder = folder
        self._nursery = nursery
        # The command that users have does not look for modules in the current folder; `python -m` would.
        self._environment = os.environ | {"PYTHONWARNINGS": "error", "PYTHONSAFEPATH": "1"}

    def __call__(self, *args: object, code: int = 0) -> Ended:
        """Run a command to its end; it must exit with `code`."""
        with tempfile.TemporaryDirectory() as place:
            out, err = Path(place, "out"), Path(place, "err")
            found = self._nursery.run([*map(str, args)], self.folder, out, err, patience_s=PATIENCE_S)
            ended = Ended(found, out.read_text(), err.read_text())
        assert ended.code == code, ended
        return ended

    def alone(self, *args: object, code: int = 0, wrapper: tuple[str, ...] = ()) -> Ended:
        """The same in a fresh Python, with another command to start it if need be."""
        process = self.start(*args, wrapper=wrapper)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == code, (out, err)
        return Ended(process.returncode, out, err)

    def start(self, *args: object, wrapper: tuple[str, ...] = (), **options: Any) -> subprocess.Popen[str]:
        """Start a command; whoever calls ends it."""
        return subprocess.Popen(
            (*wrapper, *COMMAND, *map(str, args)),
            cwd=self.folder,
            env=self._environment,
            text=True,
            **(_STREAMS | options),
        )

    def refused(self, *args: object, wrapper: tuple[str, ...] = ()) -> str:
        """Run a command that cannot be right: it says so in one line, exits with 2 and changes nothing."""
        before = self.files()
        ended = self.alone(*args, code=2, wrapper=wrapper) if wrapper else self(*args, code=2)
        assert ended.out == ""
        assert self.files() == before
        [line] = ended.err.splitlines()
        assert line.startswith("shoal: ")
        return line.removeprefix("shoal: ")

    def rows(self, *args: object) -> list[dict[str, Any]]:
        """The rows that the state file keeps."""
        return self("export", *args).objects

    def status(self, *args: object) -> dict[str, Any]:
        """What `shoal status` says."""
        [found] = self("status", "--json", *args).objects
        return dict(found)

    def write(self, name: str, text: str) -> Path:
        """Make a file in the folder, indented text moved to the left.

        What Python has compiled goes: it takes the first of two files of one size and second for the other.
        """
        path = self.folder / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        shutil.rmtree(path.with_name("__pycache__"), ignore_errors=True)
        return path

    def read(self, name: str) -> str:
        """The text of a file in the folder."""
        return (self.folder / name).read_text(encoding="utf-8")

    def files(self) -> Mapping[str, bytes | None]:
        """All that is in the folder: names and contents; None for a folder."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes() if path.is_file() else None
            for path in self.folder.rglob("*")
            if "__pycache__" not in path.parts
        }
