"""A real Prometheus scrapes a worker: what the documents and examples for it say is so."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.redis_shop import SCRAPER
from tests.e2e.shell import Shell
from tests.e2e.test_metrics_served import Working, scrape
from tests.services import free_port
from tests.site import Site
from tests.waiting import until

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "examples" / "monitoring"
DASHBOARD = json.loads((MONITORING / "grafana.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
RULES = re.findall(r"expr: (\S.*|\|\n(?: {10}.*\n)+)", (MONITORING / "alerts.yml").read_text())
RECIPE = re.findall(r"query: (.*)", (MONITORING / "keda.yaml").read_text())
NAME = re.compile(r"\bshoal_[a-z_]+")


@pytest.fixture
def working(shoal: Shell, tmp_path: Path) -> Iterator[str]:
    """Where the metrics of a worker are that has crawled a small site."""
    with Site(30, extras=["/missing"]) as site:
        shoal.write("shop.py", SCRAPER.format(name="books", url=site.url, settings=""))
        command = ("worker", "shop.py", "-o", "rows.jsonl", "--metrics-port", 0)
        with Working(shoal, tmp_path / "log", *command) as worker:
            (url,) = worker.urls()
            until(lambda: 'shoal_crawl_finished{crawl="books"} 1' in scrape(url))
            yield url


def names(texts: list[str]) -> set[str]:
    """The metrics that queries name, without what histograms append."""
    found = {name for text in texts for name in NAME.findall(text)}
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in found}


def told(text: str) -> set[str]:
    """The metrics that a scrape tells."""
    return set(re.findall(r"# TYPE (\S+)", text))


def test_the_reference_lists_what_is_told(working: str) -> None:
    """All of it, and nothing else."""
    rows = re.findall(r"^\| `(\w+)`", (ROOT / "docs/reference/metrics.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(told(scrape(working)))


def test_examples_ask_for_what_is_told(working: str) -> None:
    """Grafana's panels, the alerts and the recipe for scaling."""
    assert len(RULES) == 9
    assert names([*QUERIES, *RULES, *RECIPE]) - told(scrape(working)) == set()


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """One that scrapes the target each second, with our alerts; yields the URL of its API."""
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    config = (MONITORING / "prometheus.yml").read_text()
    config = re.sub(r"targets: .*", f'targets: ["{target}"]', config).replace(
        "scrape_interval: 15s", "scrape_interval: 1s\n  evaluation_interval: 1s"
    )
    (folder / "prometheus.yml").write_text(config)
    shutil.copy(MONITORING / "alerts.yml", folder)
    port = free_port()
    with ExitStack() as ending, (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stderr=log,
        )
        ending.callback(process.wait, 30)
        ending.callback(process.terminate)
        yield f"http://127.0.0.1:{port}/api/v1"


def ask(api: str, path: str, **query: str) -> Any:
    """What the API answers; None while it does not."""
    try:
        with urllib.request.urlopen(f"{api}/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it is starting
            return None
        raise
    except urllib.error.URLError:
        return None
    assert found["status"] == "success"
    return found["data"]


def test_prometheus_understands_metrics_alerts_and_panels(working: str, tmp_path: Path) -> None:
    """Every panel of the dashboard shows something, and every alert can be evaluated."""
    with prometheus(tmp_path, urllib.parse.urlsplit(working).netloc) as api:
        until(lambda: (ask(api, "query", query="shoal_crawl_finished == 1") or {}).get("result"))
        until(lambda: ask(api, "query", query="rate(shoal_loop_lag_seconds_count[1m]) > 0")["result"])
        for query in [*QUERIES, *RECIPE]:
            query = query.replace("$crawl", "books").replace("$__rate_interval", "1m")
            assert ask(api, "query", query=query)["result"], query
        until(lambda: all(rule["health"] != "unknown" for rule in rules(api)))
        assert [rule.get("lastError", "") for rule in rules(api)] == [""] * len(RULES)
        total = ask(api, "query", query="sum(shoal_pages_total)")["result"]
        assert total[0]["value"][1] == "31"


def rules(api: str) -> Any:
    """The alerts, with how their evaluation went."""
    return [rule for group in ask(api, "rules")["groups"] for rule in group["rules"]]
