"""Serves metrics by HTTP, from threads of its own: a busy event loop does not make a scrape late."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer

from shoal.errors import ConfigError
from shoal.metrics import CONTENT_TYPE, Address

TIMEOUT_S = 5.0
END_S = 0.05  # the end of a crawl waits for the server so long at most; its own default is half a second

log = logging.getLogger("shoal.exporter")


@contextmanager
def exporting(address: Address, text: Callable[[], str]) -> Iterator[str]:
    """Serve `text()` at /metrics meanwhile, and yield the URL. Raises ConfigError if that is not possible."""
    server = _serve(address, text)
    url = f"http://{_shown(address.host)}:{server.server_address[1]}/metrics"
    log.info("metrics are at %s", url, extra={"metrics": url})
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()


def _serve(address: Address, text: Callable[[], str]) -> _Server:
    try:
        server = _Server(address, text)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"metrics cannot be served at {_shown(address.host)}:{address.port}"
            f" ({getattr(error, 'strerror', None) or error}): choose another --metrics-port"
        ) from error
    threading.Thread(target=server.serve_forever, args=(END_S,), name="shoal-metrics", daemon=True).start()
    return server


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: Address, text: Callable[[], str]) -> None:
        self.text = text
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        super().__init__((address.host, address.port), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        log.warning("a scrape of the metrics failed", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        """Answer a scrape."""
        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404, "look at /metrics")
            return
        body = self.server.text().encode()
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it has there
        """A scrape is no event."""
