"""Bytes from strangers, made up by atheris, which goes by what new lines of shoal they reach.

    python -m tests.fuzz.by_coverage robots -max_total_time=600

atheris is not among shoal's dependencies: `make fuzz` puts it into an environment of its own.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["shoal"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz the target named first until the time is over; libFuzzer has its own options."""
    name, *options = sys.argv[1:]
    atheris.Setup([sys.argv[0], "-timeout=10", "-max_len=20000", *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
