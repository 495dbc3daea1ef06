"""Where shoal's CPU time goes: the shares of its modules, and of their functions, in one crawl.

Shoal runs in this process. Every few milliseconds of CPU time a signal charges each thread's CPU clock
to the innermost function of shoal that the thread is in; the clocks are exact, only the place is sampled.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

import shoal
from benchmarks.measure import serving, shoal_command
from benchmarks.report import machine, publish, table
from shoal import cli

PAGES = 4_000
EVERY_S = 0.002
PACKAGE = str(Path(shoal.__file__).parent) + "/"
LEAST = 0.01  # modules with smaller shares are shown together
LEAST_FUNCTION = 0.02  # functions with smaller shares are not shown
NETWORK = ("aiohttp", "asyncio", "uvloop", "multidict", "yarl", "ssl", "selectors")


class Sampler:
    """While the context is open, charges the CPU seconds of all threads to the functions of shoal."""

    def __init__(self) -> None:
        self.spent: Counter[tuple[str, str]] = Counter()
        """By module and function."""
        self._clocks: dict[int, float] = {}

    def __enter__(self) -> Sampler:
        self._main = threading.get_ident()
        self._clocks = {ident: _cpu_s(ident) for ident in sys._current_frames()}
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
        return self

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _sample(self, number: int, interrupted: FrameType | None) -> None:
        for ident, frame in (sys._current_frames() | {self._main: interrupted}).items():
            now = _cpu_s(ident)
            self.spent[part(frame)] += now - self._clocks.get(ident, 0.0)
            self._clocks[ident] = now


def _cpu_s(thread: int) -> float:
    return time.clock_gettime(time.pthread_getcpuclockid(thread))


def part(frame: FrameType | None) -> tuple[str, str]:
    """Name the module and the function of shoal that a stack is in, by its innermost frame.

    Sockets are served by callbacks of the client library without a frame of shoal's, or by the event loop
    itself, right below `local`, which started it.
    """
    network = False
    while frame:
        file = frame.f_code.co_filename
        if file.startswith(PACKAGE):
            name = file.removeprefix(PACKAGE).split("/")[0].removesuffix(".py")
            if name == "local" and network:
                return "event loop", ""
            return f"`{name}`", f"`{frame.f_code.co_qualname}`"
        network = network or any(f"/{library}/" in file for library in NETWORK)
        frame = frame.f_back
    return ("`fetch`", "") if network else ("threads and start-up", "")


def rows(spent: Mapping[tuple[str, str], float]) -> list[list[str]]:
    """Modules by what they cost, each with its dearest functions."""
    total = sum(spent.values())
    modules: Counter[str] = Counter()
    for (module, _), seconds in spent.items():
        modules[module] += seconds
    shown, rest = [], total
    for module, seconds in modules.most_common():
        if seconds < LEAST * total:
            break
        rest -= seconds
        shown.append(_row(module, "", seconds, total))
        functions = Counter({name: each for (its, name), each in spent.items() if its == module and name})
        shown += [
            _row("", name, each, total)
            for name, each in functions.most_common()
            if each >= LEAST_FUNCTION * total and len(functions) > 1
        ]
    return [*shown, _row("the rest", "", rest, total), _row("all, start-up included", "", total, total)]


def _row(module: str, function: str, seconds: float, total: float) -> list[str]:
    return [module, function, f"{1e6 * seconds / PAGES:.0f}", f"{100 * seconds / total:.0f} %"]


def main() -> None:
    """Publish the shares."""
    with serving(PAGES) as site, tempfile.TemporaryDirectory() as folder, Sampler() as sampler:
        _program, *arguments = map(str, shoal_command(site.start, Path(folder)))
        with suppress(SystemExit):
            cli.main(arguments)
    head = ["part", "of it", "CPU µs per page", "share"]
    publish("profile", table(head, rows(sampler.spent)) + "\n" + machine())


if __name__ == "__main__":
    main()
