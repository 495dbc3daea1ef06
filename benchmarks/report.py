"""Where results go: into pages of docs/, one part per benchmark."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path

from tests.services import RedisServer

from benchmarks.measure import PEERS_PYTHON, ROOT

PAGES = (ROOT / "docs" / "reference" / "benchmarks.md", ROOT / "docs" / "explanation" / "speed.md")


def publish(part: str, text: str) -> None:
    """Print a result, and put it in its place: between the comments that name the part, in one page."""
    print(text)
    start, end = f"<!-- {part}: begin -->\n", f"<!-- {part}: end -->"
    (page,) = (page for page in PAGES if start in page.read_text(encoding="utf-8"))
    before, rest = page.read_text(encoding="utf-8").split(start)
    after = rest.split(end)[1]
    page.write_text(f"{before}{start}{text.strip()}\n{end}{after}", encoding="utf-8")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Write a Markdown table; the first column is text, the others are numbers."""
    ruler = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ruler, *rows]) + "\n"


def machine() -> str:
    """Return in one line what it was measured on."""
    return (
        f"Machine: {_cpu_model()}, {os.cpu_count()} cores, {platform.system()} {_kernel()}, "
        f"Python {platform.python_version()}.\n"
    )


def versions(*packages: str) -> str:
    """Return the versions of installed packages."""
    return ", ".join(f"{package} {version(package)}" for package in packages)


def peer_versions() -> str:
    """Return the versions of those that shoal is compared with."""
    code = (
        "from importlib.metadata import version as v; import sys;"
        "print(', '.join(f'{p} {v(p)}' for p in sys.argv[1:]))"
    )
    names = ("Scrapy", "scrapy-redis", "crawlee", "celery", "Twisted", "lxml", "selectolax", "uvloop")
    return subprocess.check_output([PEERS_PYTHON, "-c", code, *names], text=True).strip()


def nginx_version() -> str:
    answer = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr
    return answer.strip().removeprefix("nginx version: ")


def redis_version() -> str:
    with RedisServer() as server, server.client() as client:
        return f"redis-server {client.info('server')['redis_version']}"


def _kernel() -> str:
    return ".".join(platform.release().split(".")[:2])


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    match = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return match[1] if match else platform.machine()
