"""Processes that have `shoal` imported when they begin: forked from one that did it once.

Importing takes several times as long as most commands do.
"""

from __future__ import annotations

import gc
import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self


class Nursery:
    """Runs one command after the other, each in a process of its own."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            (sys.executable, "-W", "error", __file__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()

    def run(self, args: Sequence[str], folder: Path, out: Path, err: Path, *, patience_s: float) -> int:
        """Run `shoal` with these arguments in a folder, its output going to two files; returns its exit code.

        Raises TimeoutError if it takes too long.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"args": args, "folder": str(folder), "out": str(out), "err": str(err)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], patience_s)[0]:
            self._process.kill()
            self.__enter__()  # one command that hangs is no reason for the others to fail
            raise TimeoutError(f"shoal {' '.join(args)}: {err.read_text()}")
        return int(self._process.stdout.readline())


def _serve() -> None:
    import pydantic  # noqa: F401 - scrapers use it

    import shoal.demo
    import shoal.export
    import shoal.frontier.sqlite
    import shoal.store.csv
    import shoal.store.jsonl
    import shoal.store.sqlite  # noqa: F401

    gc.freeze()  # what is here already is not collected at the end of each command
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if not child:
            _run(**order)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(args: list[str], folder: str, out: str, err: str) -> None:
    from shoal.cli import main

    os.chdir(folder)
    for number, path in enumerate((os.devnull, out, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["shoal", *args]
    main(args)


if __name__ == "__main__":
    _serve()
