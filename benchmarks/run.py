"""Shoal and its rivals, and what makes its cost: `make bench`. It writes docs/reference/benchmarks.md.

    python -m benchmarks.run --rounds 1 --pages 2000 --slow-pages 500    # a quick look
    python -m benchmarks.run micro growth                                # only these

The other parts of that page are measured by the modules that it names.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial

from benchmarks import footprint, frontier, memory, micro, profile, speed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=speed.ROUNDS)
    parser.add_argument("--pages", type=int, default=speed.PAGES, help="size of the site")
    parser.add_argument(
        "--slow-pages", type=int, default=speed.SLOW_PAGES, help="size of the site that slow crawlers get"
    )
    parser.add_argument("--large", action="store_true", help="growth: up to 10,000,000 known URLs")
    parser.add_argument("part", nargs="*", help="speed, micro, growth, footprint, memory, profile")
    given = parser.parse_args()
    parts: Mapping[str, Callable[[], None]] = {
        "speed": partial(speed.main, given.rounds, given.pages, given.slow_pages),
        "micro": micro.main,
        "growth": partial(frontier.main, given.large),
        "footprint": partial(footprint.main, given.rounds),
        "memory": memory.main,
        "profile": profile.main,
    }
    if unknown := [name for name in given.part if name not in parts]:
        parser.error(f"there is no part {unknown[0]}: {', '.join(parts)}")
    for name in given.part or parts:
        parts[name]()


if __name__ == "__main__":
    main()
