"""Places of frontiers and stores as people may see them."""

from __future__ import annotations

import re


def shown(place: str) -> str:
    """A place as it may be shown and kept: without a user and what looks like a password."""
    return re.sub(r"(?<=://).*@|(?<=password=)[^&]*", "", place)
