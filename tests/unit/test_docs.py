"""The documents: links lead somewhere, generated pages are current, and code in them can be loaded."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from shoal import scraper

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
BLOCKS = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in PAGES
    for number, code in enumerate(PYTHON.findall(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """Each relative link of a page names a file that exists."""
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    relative = [target for target in targets if not target.startswith(("http:", "https:"))]
    assert [target for target in relative if not (page.parent / target).exists()] == []


def test_every_page_is_in_the_index() -> None:
    """The index links to all other pages of docs/."""
    docs = ROOT / "docs"
    targets = re.findall(r"\]\(([^)]+)\)", (docs / "index.md").read_text(encoding="utf-8"))
    assert {docs / target for target in targets} == {*docs.rglob("*.md")} - {docs / "index.md"}


def test_the_page_of_the_command_line_is_current() -> None:
    """`docs/reference/cli.md` is what `make docs` would write."""
    made = runpy.run_path(str(ROOT / "docs" / "reference" / "cli.py"))["page"]()
    assert (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8") == made


@pytest.mark.parametrize("code", BLOCKS)
def test_scrapers_in_the_documents_load(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Python example is a scraper file that `shoal run` accepts."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "example", sys)  # taken out again at the end
    file = tmp_path / "example.py"
    file.write_text(code, encoding="utf-8")
    assert scraper.load(str(file)).seeds()
