"""RabbitMQ for tests: a node with its own ports, cookie and data, which can be killed and started again."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import amqp
from tests.services import Server, ServiceMissing, free_port

READY_S = 180.0
"""Erlang takes its time on a machine that is busy."""

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class RabbitServer(Server):
    """Debian's RabbitMQ, with the user guest."""

    def __init__(self) -> None:
        if not PROGRAM.exists():
            raise ServiceMissing("RabbitMQ is missing: apt-get install rabbitmq-server")
        super().__init__()
        self._epmd_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Of the default virtual host."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def start(self) -> None:
        """See `Server.start`. Erlang's name server is started first, or it would start a daemon itself."""
        if self._epmd is None:
            self._epmd = subprocess.Popen(
                ["epmd", "-port", str(self._epmd_port), "-address", "127.0.0.1"], env=self._environment
            )
        with (self.folder / "log").open("ab") as log:
            self._process = self._launch(log.fileno())
        deadline = time.monotonic() + READY_S
        while not self._answers():
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.1)

    def stop(self, *_: object) -> None:
        """End it at once: its data is of no interest."""
        if self._process is not None:
            self.kill()

    def close(self) -> None:
        """See `Server.close`."""
        super().close()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()

    @property
    def _environment(self) -> dict[str, str]:
        (self.folder / "plugins").write_text("[].")
        return os.environ | {
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"shoal{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(self._dist_port()),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log-files"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "no-such-file"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none"
            " -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _dist_port(self) -> int:
        if not hasattr(self, "_dist"):
            self._dist = free_port()
        return self._dist

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [PROGRAM], env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
        )

    def _answers(self) -> bool:
        connection = amqp.Connection(f"127.0.0.1:{self.port}", connect_timeout=2)
        try:
            connection.connect()
        except (OSError, amqp.AMQPError):
            return False
        connection.close()
        return True
