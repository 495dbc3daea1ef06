"""What manners and bounds cost in a whole crawl: `python -m benchmarks.features`.

The same crawl with none of caution, traps, overflow and politeness by address, and with one after the other.
They take turns, since the machine is not the same from minute to minute; each is compared with the one in its
round that has none of it.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import Cost, Site, crawl, median, serving, shoal_command
from benchmarks.report import machine, publish, table, versions

OFF = ("--ignore-traps", "--no-adapt")
FEATURES: dict[str, tuple[object, ...]] = {
    "all of it off": OFF,
    "caution": ("--ignore-traps",),
    "trap rules that look at a URL": ("--no-adapt",),
    "trap rules that count, too": ("--no-adapt", "--max-per-shape", 1_000_000, "--max-per-path", 1_000_000),
    "overflow, the queue bounded to 500": (*OFF, "--max-queued", 500),
    "politeness by address": (*OFF, "--politeness", "address"),
    "what is on by default": (),
    "all of it on": (
        *("--max-per-shape", 1_000_000, "--max-per-path", 1_000_000, "--max-queued", 500),
        *("--politeness", "address"),
    ),
}
NONE = next(iter(FEATURES))


def take_turn(name: str, site: Site) -> Cost:
    """Crawl the whole site; every page must come out once, and right."""
    with TemporaryDirectory() as folder:
        cost = crawl([*shoal_command(site.start, Path(folder)), *FEATURES[name]], site)
        report = site.check(Path(folder) / "items.jsonl")
    if report["missing"] or report["wrong"] or report["pages_fetched_again"]:
        raise SystemExit(f"the crawl is not right, so its speed says nothing: {report}")
    print(f"{name}: {cost.cpu_ms_per_page:.3f} ms/page, other load {cost.others_cores:.2f}", flush=True)
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pages", type=int, default=10_000)
    args = parser.parse_args()
    costs: dict[str, list[Cost]] = {name: [] for name in FEATURES}
    with serving(args.pages) as site:
        for _ in range(args.rounds):
            for name, taken in costs.items():
                taken.append(take_turn(name, site))
    head = ["", "CPU ms per page", "more than off", "of it, all rounds", "other load"]
    rows = [_row(name, taken, costs[NONE]) for name, taken in costs.items()]
    text = f"{args.rounds} rounds, {args.pages:,} pages. {machine()}Versions: {versions('shoal')}.\n"
    publish("features", f"{table(head, rows)}\n{text}")


def _row(name: str, costs: list[Cost], without: list[Cost]) -> list[str]:
    more = [taken.cpu_ms_per_page - off.cpu_ms_per_page for taken, off in zip(costs, without, strict=True)]
    return [
        name,
        f"{median(costs, 'cpu_ms_per_page'):.3f}",
        f"{statistics.median(more):+.3f}",
        ", ".join(f"{each:+.3f}" for each in more),
        f"{median(costs, 'others_cores'):.2f}",
    ]


if __name__ == "__main__":
    main()
