"""Loading the crawl that a Python file defines."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.crawl import Crawl
from shoal.errors import ConfigError
from shoal.scraper import load

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a scraper file and return its path; what loading it does to Python is undone afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    def write_file(text: str) -> str:
        file = tmp_path / "books.py"
        file.write_text(textwrap.dedent(text), encoding="utf-8")
        return str(file)

    return write_file


ONE = 'import shoal\ncrawl = shoal.Crawl("books", seeds=["http://a.example/"])\n'


def test_the_only_crawl_of_a_file_is_found(write: Write) -> None:
    """Whatever its name, and though it has a second one."""
    crawl = load(write(ONE + "same = crawl\n"))
    assert isinstance(crawl, Crawl)
    assert crawl.name == "books"


def test_one_of_several_is_named(write: Write) -> None:
    """By the name of its variable."""
    path = write(ONE + 'other = shoal.Crawl("other")\n')
    assert load(f"{path}:other").name == "other"
    with pytest.raises(ConfigError, match=r"defines several crawls: name one, .*\(crawl, other\)"):
        load(path)
    with pytest.raises(ConfigError, match="no crawl called 'books': it has crawl, other"):
        load(f"{path}:books")


def test_what_a_scraper_defines_can_be_found_again(write: Write) -> None:
    """Dataclasses and pydantic look up the module of a class by its name."""
    crawl = load(
        write(
            """
            from __future__ import annotations
            from dataclasses import dataclass, field
            from typing import ClassVar
            import pydantic
            import shoal

            class Price(pydantic.BaseModel):
                pounds: Pounds

            @dataclass
            class Book:
                shelf: ClassVar[str] = "a"
                tags: list[str] = field(default_factory=list)

            class Pounds(pydantic.BaseModel):
                number: int

            Price.model_rebuild()
            crawl = shoal.Crawl(Price(pounds={"number": 3}).pounds.number and "books")
            """
        )
    )
    assert crawl.name == "books"
    assert sys.modules["books"].Book().tags == []


def test_a_file_that_has_the_name_of_a_module_replaces_nothing(write: Write) -> None:
    """`shoal run json.py` must not put itself in the place of Python's own."""
    import json

    path = Path(write(ONE))
    named = path.rename(path.with_name("json.py"))
    assert load(str(named)).name == "books"
    assert sys.modules["json"] is json


FAULTS = {
    "syntax": (
        "crawl = (\n",
        r"books\.py does not import: SyntaxError: '\(' was never closed \[books\.py:1: crawl = \(\]$",
    ),
    "indentation": ("if True:\nx = 1\n", r"IndentationError: .* \[books\.py:2: x = 1\]$"),
    "import": (
        "import no_such\n",
        r"ModuleNotFoundError: No module named 'no_such' \[books\.py:1: import no_such\]$",
    ),
    "exception": (
        "def f():\n    raise ValueError('a\\nb')\nf()\n",
        r"books\.py does not import: ValueError: a.*b \[books\.py:3: f\(\) -> books\.py:2: raise ValueError",
    ),
    "exit": ("raise SystemExit(3)\n", r"it ends the program \(sys\.exit\(3\)\) \[books\.py:1: "),
    "setting": (
        "import shoal\nshoal.Crawl('a', max_page=1)\n",
        r"^unknown setting 'max_page': did you mean 'max_pages'\? \[books\.py:2: shoal\.Crawl",
    ),
    "none": (
        "import shoal\n",
        r'defines no crawl: write crawl = shoal\.Crawl\("NAME", seeds=\[\.\.\.\]\) in it$',
    ),
    "null bytes": (
        "x = '\0'\n",
        r"books\.py does not import: (SyntaxError|ValueError): source code .* null bytes",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_file_that_cannot_be_used_is_refused(write: Write, case: str) -> None:
    """With what went wrong and where in the user's own code, frames of Python and shoal left out."""
    text, message = FAULTS[case]
    with pytest.raises(ConfigError, match=f"(?s){message}") as refused:
        load(write(text))
    assert "importlib" not in str(refused.value)
    assert "crawl.py" not in str(refused.value)


def test_no_file(tmp_path: Path) -> None:
    """Missing, a folder, or not Python."""
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    for name, message in {
        "books.py": "there is no scraper file .*books.py",
        "folder.py": "folder.py is a folder: name the Python file in it that defines the crawl",
        "notes.txt": r"notes.txt is not a Python file \(its name must end in .py\)",
    }.items():
        with pytest.raises(ConfigError, match=message):
            load(str(tmp_path / name))
