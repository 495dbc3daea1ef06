"""shoal with other times, run by tests as a program: hasty.py NAME=SECONDS,... ARGUMENT...

The names are those of `shoal.worker`, such as LEASE_S; the arguments are those of `shoal`.
"""

from __future__ import annotations

import sys

from shoal import worker
from shoal.cli import main

if __name__ == "__main__":
    times, *arguments = sys.argv[1:]
    for name, seconds in (each.split("=") for each in times.split(",")):
        assert hasattr(worker, name)
        setattr(worker, name, float(seconds))
    main(arguments)
