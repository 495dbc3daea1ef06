"""Places of frontiers and stores as people may see them."""

from __future__ import annotations

import re


def shown(place: str) -> str:
    """A place as it may be shown and kept: without a user, what looks like a password, and timeouts."""
    return re.sub(r"(?<=://).*@|(?<=password=)[^&]*|[?&]socket_timeout=[0-9.]+", "", place)
