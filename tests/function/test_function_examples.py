"""The examples of the guide: what a schedule starts, and what they say of themselves."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.site import Site

import shoal

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "cloud-functions.md").read_text(encoding="utf-8")
AWS = ROOT / "examples" / "aws_lambda"
GOOGLE = ROOT / "examples" / "google_cloud"


class Context:
    """Of an invocation on AWS."""

    @staticmethod
    def get_remaining_time_in_millis() -> int:
        return 20_000


class Request:
    """To a function on Google Cloud."""

    method = "POST"

    @staticmethod
    def get_data() -> bytes:
        return b""


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What was asked of the cloud, by libraries that only note it."""
    noted: list[tuple[Any, ...]] = []

    class Client:
        def __init__(self, service: str) -> None:
            self._service = service

        def __getattr__(self, name: str) -> Any:
            return lambda **arguments: noted.append((self._service, name, arguments))

    class Session:
        def __init__(self, credentials: object) -> None:
            pass

        def post(self, url: str, json: object, timeout: float) -> Any:
            noted.append((url, json))
            return self

        def raise_for_status(self) -> None:
            pass

    def module(name: str, **content: object) -> ModuleType:
        made = ModuleType(name)
        vars(made).update(content)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    module("boto3", client=Client)
    auth = module("google.auth", default=lambda scopes: ("credentials", "project"))
    module("google", auth=auth)
    module(
        "google.auth.transport", requests=module("google.auth.transport.requests", AuthorizedSession=Session)
    )
    return noted


def _loaded(file: Path, site: Site, frontier: str, rows: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    settings = {
        "SEEDS": site.url,
        "SITES": f"{site.url}*",
        "FRONTIER": frontier,
        "STORE": str(rows),
        "MOST": "3",
    }
    place = {"WORK": "work", "SCHEDULE": "schedule", "TOPIC": "projects/p/topics/t"}
    for name, value in (settings | place).items():
        monkeypatch.setenv(name, value)
    spec = importlib.util.spec_from_file_location("example", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_schedule_on_aws_starts_slices_until_the_end(
    calls: list[Any], frontier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as are worth it, and then it is disabled."""
    with Site(20) as site:
        example = _loaded(AWS / "scraper.py", site, frontier, tmp_path / "rows.jsonl", monkeypatch)
        assert example.start({}, Context) == {"finished": False, "started": 1}
        invoke = {"FunctionName": "work", "InvocationType": "Event", "Payload": b"{}"}
        assert calls == [("lambda", "invoke", invoke)]
        assert example.work(json.loads(invoke["Payload"]), Context)["finished"]
        calls.clear()
        assert example.start({}, Context) == {"finished": True}
        assert calls == [("events", "disable_rule", {"Name": "schedule"})]
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == site.pages


def test_a_schedule_on_google_cloud_starts_slices_until_the_end(
    calls: list[Any], frontier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By messages without URLs, as many as are worth it, and then it is paused."""
    with Site(20) as site:
        example = _loaded(GOOGLE / "main.py", site, frontier, tmp_path / "rows.jsonl", monkeypatch)
        assert example.start(Request) == {"finished": False, "started": 1}
        ((url, content),) = calls
        assert url == "https://pubsub.googleapis.com/v1/projects/p/topics/t:publish"
        assert [base64.b64decode(each["data"]) for each in content["messages"]] == [b"{}"]
        body, status, _ = example.work(Request)
        assert (status, json.loads(body)["finished"]) == (200, True)
        calls.clear()
        assert example.start(Request) == {"finished": True}
        assert calls == [("https://cloudscheduler.googleapis.com/v1/schedule:pause", {})]


@pytest.mark.parametrize("file", [AWS / "scraper.py", GOOGLE / "main.py"], ids=lambda file: file.name)
def test_the_guide_shows_the_example(file: Path) -> None:
    """Word for word."""
    assert f"```py\n{file.read_text(encoding='utf-8')}```" in GUIDE


def test_what_is_deployed_is_there() -> None:
    """The handlers of the template, the entry points of the script, and the version of the wheel."""
    code = (AWS / "scraper.py").read_text()
    handlers = re.findall(r"Handler: scraper\.(\w+)", (AWS / "template.yaml").read_text())
    assert handlers == ["work", "start"]
    points = re.findall(r"^deploy shoal-\w+ (\w+)", (GOOGLE / "deploy.sh").read_text(), re.MULTILINE)
    assert points == ["work", "start"]
    for text in (code, (GOOGLE / "main.py").read_text()):
        assert re.search(r"^work = ", text, re.MULTILINE)
        assert re.search(r"^def start\(", text, re.MULTILINE)
    assert f"/shoal-{shoal.__version__}-py3-none-any.whl" in (GOOGLE / "requirements.txt").read_text()
