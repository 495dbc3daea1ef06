"""shoal on Redis with a fault built in, run by tests as a program: faulty_redis.py STEP NTH ARGUMENT...

At the NTH time that it comes to the step, the process kills itself; the arguments are those of `shoal`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.faults.faulty import (
    Die,
    after,
    after_awaiting,
    after_context,
    before,
    countdown,
    half_a_write,
    inside,
)

from shoal import handle, worker
from shoal.cli import main
from shoal.fetch import Fetcher
from shoal.frontier.redis import RedisFrontier
from shoal.frontier.redis_server import Server
from shoal.store import file
from shoal.store.file import FileStore


def sent(verb: str) -> Callable[[Die], None]:
    """The script of a verb is on its way to Redis, which will run it; nobody waits for the answer."""

    def build(die: Die) -> None:
        call = Server.call

        def calling(self: Server, name: str, *args: Any, **options: Any) -> Any:
            if name != verb or self.client.connection is None:
                return call(self, name, *args, **options)
            connection = self.client.connection
            send = connection.send_packed_command

            def sending(*command: Any, **more: Any) -> Any:
                send(*command, **more)
                die()

            connection.send_packed_command = sending
            try:
                return call(self, name, *args, **options)
            finally:
                connection.send_packed_command = send

        Server.call = calling  # type: ignore[method-assign]

    return build


STEPS: dict[str, Callable[[Die], None]] = {
    "store opened": lambda die: inside(FileStore, "open", die, first=True),
    "start recorded": lambda die: inside(FileStore, "open", die, first=False),
    "before the limits": lambda die: before(RedisFrontier, "configure", die),
    "before the description": lambda die: before(RedisFrontier, "describe", die),
    "before the seeds": lambda die: before(RedisFrontier, "add", die),
    "seeds sent": sent("add"),
    "before a lease": lambda die: before(RedisFrontier, "lease", die),
    "lease sent": sent("lease"),
    "after a lease": lambda die: after(RedisFrontier, "lease", die),
    "before a fetch": lambda die: before(Fetcher, "fetch", die),
    "after a fetch": lambda die: after_awaiting(Fetcher, "fetch", die),
    "before the handler": lambda die: before(handle, "run", die),
    "after the handler": lambda die: after_awaiting(handle, "run", die),
    "after the visit": lambda die: after_awaiting(worker.Worker, "_visit", die),
    "before the write": lambda die: before(FileStore, "write", die),
    "in the middle of the write": half_a_write,
    "before the rows are on disk": lambda die: before(file, "_sync", die),
    "after the write": lambda die: inside(FileStore, "write", die, first=True),
    "before the commit": lambda die: before(RedisFrontier, "commit", die),
    "commit sent": sent("commit"),
    "after the commit": lambda die: after(RedisFrontier, "commit", die),
    "before the rows are let go": lambda die: inside(FileStore, "write", die, first=False),
    "after the rows are let go": lambda die: after_context(FileStore, "write", die),
    "before the leases are extended": lambda die: before(RedisFrontier, "extend", die),
    "before the end": lambda die: before(RedisFrontier, "release", die),
    "after the end": lambda die: after(RedisFrontier, "release", die),
}
"""What happens on the path of a page, in order: each builds its fault in."""


if __name__ == "__main__":
    step, nth, *arguments = sys.argv[1:]
    STEPS[step](countdown(int(nth)))
    main(arguments)
