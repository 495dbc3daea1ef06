"""shoal with other times, run by tests as a program: hasty_redis.py MODULE:NAME=SECONDS,... ARGUMENT...

The arguments are those of `shoal`.
"""

from __future__ import annotations

import importlib
import sys

from shoal.cli import main

if __name__ == "__main__":
    times, *arguments = sys.argv[1:]
    for place, seconds in (each.split("=") for each in times.split(",")):
        module_name, _, name = place.partition(":")
        module = importlib.import_module(module_name)
        assert hasattr(module, name)
        setattr(module, name, float(seconds))
    main(arguments)
