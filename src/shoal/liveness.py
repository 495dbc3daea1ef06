"""Workers of this machine: their names, and which of them are dead."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from shoal.frontier import Frontier


def worker_name(part: str = "") -> str:
    """The name of a worker in this process: host, pid, and when the process was started.

    part: sets apart the workers that one process has, at once or one after the other.
    """
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}" + (f"/{part}" if part else "")


def reap_dead(frontier: Frontier) -> int:
    """Take back the leases of workers of this machine that are no more; returns how many."""
    return sum(frontier.reap(each.name) for each in frontier.workers() if each.leases and is_dead(each.name))


def is_dead(name: str) -> bool:
    """Whether this names a worker of this machine whose process is no more."""
    process, _, started = name.partition("/")[0].rpartition(":")
    host, _, pid = process.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    return _started(int(pid)) != started


def _started(pid: int) -> str:
    """When the process was started, in the kernel's clock ticks; empty if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return "" if Path("/proc/self").exists() else _started_without_proc(pid)
    state, *fields = stat.rpartition(")")[2].split()
    return "" if state in "ZX" else fields[18]


def _started_without_proc(pid: int) -> str:
    """Systems without /proc: only whether the process lives."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
