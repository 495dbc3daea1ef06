"""Waiting for what happens by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 30.0


def until(true: Callable[[], Any], seconds: float = PATIENCE_S, what: str = "it") -> Any:
    """Wait until it is true, and return what it is then; fail after so long."""
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.02)
    return found
