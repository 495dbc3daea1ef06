"""The site of benchmarks/site.py, served by nginx on loopback, as a context manager.

with BenchSite(folder, pages=2_000) as site:
    crawl(site.url)
    report = site.check(rows)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.services import ServiceMissing, free_port

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "site.py"
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


class BenchSite:
    """Pages with one product each, on 16 hosts; it knows what a crawl must have found."""

    def __init__(self, folder: Path, *, pages: int, kb: int = 8) -> None:
        """folder: is made, for the pages. Raises ServiceMissing without nginx."""
        if shutil.which("nginx", path=PATH) is None:
            raise ServiceMissing("nginx is missing: apt-get install nginx-light")
        self.folder, self.pages = folder, pages
        port = free_port()
        self.url = f"http://127.0.0.2:{port}/"
        _site("build", folder, "--pages", pages, "--kb", kb, "--port", port)

    def __enter__(self) -> Self:
        _site("serve", self.folder)
        return self

    def __exit__(self, *_: object) -> None:
        _site("stop", self.folder)

    def check(self, rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
        """Compare rows, and the server's log, with the truth; see `benchmarks/site.py check`."""
        items = self.folder / "items.jsonl"
        items.write_text("".join(json.dumps(row) + "\n" for row in rows))
        report: dict[str, int] = json.loads(_site("check", self.folder, items))
        return report


def _site(command: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, PROGRAM, command, *map(str, arguments)],
        env=os.environ | {"PATH": PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
