"""The command `shoal`: the first thing that it does is to see to Ctrl-C.

Python's own way, an exception, may come up in the middle of an import and be lost there. Ending at once is
always right until there is something to be tidied up: whatever a crawl needs survives any kill.
"""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130


def main() -> None:
    """Run a command and exit with its code."""
    signal.signal(signal.SIGINT, _end)

    from shoal.cli import main

    main()


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
