"""What the name of a worker tells: see `shoal.liveness.worker_name`."""

from __future__ import annotations


def pid_of(name: str | bytes) -> int:
    """The process that it names."""
    text = name.decode() if isinstance(name, bytes) else name
    return int(text.split(":")[-2])
