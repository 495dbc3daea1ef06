"""What the documents show about stores works: queries of DuckDB, and a store of one's own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner
from tests.servers import NOT_FOUND, Reply, Request, ScriptedServer, page

from shoal.cli import shoal
from shoal.frontier import Frontier, open_frontier
from shoal.model import Link, Outcome
from shoal.settle import settle
from shoal.store import open_store
from shoal.store.base import Store
from shoal.store.folder import LocalFolder
from shoal.store.jsonl import JsonlParts
from shoal.store.parquet import ParquetStore

DOCS = Path(__file__).parents[2] / "docs" / "how-to"


def _blocks(document: str, language: str) -> list[str]:
    text = (DOCS / document).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def write_books(frontier: Frontier, stores: Sequence[Store]) -> None:
    """20 of them, one after the other."""
    for store in stores:
        with store.open(committed=frontier.position, fresh=False) as position:
            frontier.commit((), positions=[position])
    for number in range(20):
        frontier.add([Link(url=f"http://books.example/{number}")])
        (lease,) = frontier.lease(1, 60.0, worker="ann").leases
        row = {"title": f"Book {number}", "price": number * 1.5 if number % 2 else number}
        settle(frontier, stores, [Outcome(lease=lease, state="done", items=(row,))])


@pytest.mark.parametrize(("document", "queries"), [("parquet.md", 3), ("object-storage.md", 1)])
def test_queries_in_the_documents_run(
    document: str, queries: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB finds the rows that shoal has written, by each query of the page."""
    monkeypatch.chdir(tmp_path)
    stores = [ParquetStore(LocalFolder("books")), JsonlParts(LocalFolder("books.jsonl"))]
    with open_frontier(f"sqlite:{tmp_path}/state.shoal", crawl="books") as frontier, duckdb.connect() as db:
        write_books(frontier, stores)
        assert len(_blocks(document, "sql")) == queries
        for query in _blocks(document, "sql"):
            found = db.execute(query).fetchall()
            if "LIMIT 10" in query:
                assert len(found) == 10
            elif "GROUP BY" in query:
                assert [row[1:] for row in found] == [(20, 12.0)]
    assert found


def test_duckdb_reads_a_bucket_as_the_document_says(s3) -> None:
    """In place, both kinds of parts; what shoal keeps beside them is left out."""
    place = f"{s3.BUCKET}/document"
    stores = [open_store(f"s3://{place}/books.{form}", crawl="books") for form in ("jsonl", "parquet")]
    with open_frontier("sqlite::memory:", crawl="books") as frontier:
        write_books(frontier, stores)
    (code,) = _blocks("object-storage.md", "py")
    told = subprocess.run(
        [sys.executable, "-c", code.replace("bucket/shop", place)],
        env=os.environ | {"AWS_ALLOW_HTTP": "true"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert all(f"Book {number} " in told for number in (*range(9), 10))
    assert "12.0" in told


def test_the_webhook_of_the_documents_gets_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example runs as it stands: rows are posted, and a receiver that fails is waited for."""
    failures = ["503 Service Unavailable", "500 Internal Server Error"]

    def receive(_: Request) -> Reply:
        return page(b"", failures.pop()) if failures else page(b"")

    links = b"<a href='/product/1'>1</a><a href='/product/2'>2</a>"
    routes = {f"/product/{number}": page(b"<h1>Product %d</h1>" % number) for number in (1, 2)}
    shop = ScriptedServer({"/": page(links), "/robots.txt": NOT_FOUND, **routes})
    with shop, ScriptedServer(receive) as receiver:
        monkeypatch.setenv("WEBHOOK_URL", receiver.url("/rows"))
        monkeypatch.chdir(tmp_path)
        code = _blocks("write-a-store.md", "python")[0].replace("http://127.0.0.1:8765/", shop.url())
        (tmp_path / "webhooks.py").write_text(code, encoding="utf-8")
        result = CliRunner().invoke(shoal, ["run", "webhooks.py"])
    assert result.exit_code == 0, result.output
    assert "the webhook fails: HTTP Error 500" in result.output
    posts = [json.loads(request.body) for request in receiver.requests[2:]]
    rows = {(post["crawl"], post["page"], *(row["name"] for row in post["rows"])) for post in posts}
    assert sorted(name for _, _, name in rows) == ["Product 1", "Product 2"]
    assert {crawl for crawl, _, _ in rows} == {"shop"}
