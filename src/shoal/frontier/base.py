"""The frontier: all URLs that a crawl knows, and their order. This is the contract of every back end.

    (new)   --add-->               queued; skipped if a trap rule cuts it
    (new)   --commit, as a link--> the same, but overflow if there is no room
    overflow  --when its host has nothing of its priority or higher left-->  queued
    queued  --lease-->             leased
    leased  --commit done-->       done
    leased  --commit dead-->       dead       (a dead letter, with its reason)
    leased  --commit skipped-->    skipped    (never to be fetched, with its reason)
    leased  --commit queued-->     queued     (another attempt, not before its time)
    leased  --release-->           queued     (as if it had never been leased)
    leased  --the deadline passes, or reap-->  queued; dead after `max_losses` such losses
    queued  --lease, if its host was given up-->  dead
    dead    --redrive-->           queued     (attempts start again)
    done, dead or skipped  --revisit-->  queued     (if a visit of it was recorded; attempts start again)
    any but leased  --forget-->    unknown

No state changes anywhere else. Counters change in the same step as the states that they count.

A lease is held until it is committed, released or taken back. Only `lease` and `reap` take leases back,
so a late commit is fine as long as nobody else has been given the page. Attempts are counted by `commit`:
neither a released nor a lost lease is an attempt.

Verbs are synchronous and take batches; one object belongs to one crawl and one thread.
`now` is the time in seconds; None, in production, means the clock of the back end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, Self, TypeAlias

from shoal.errors import ConfigError
from shoal.frontier.snapshot import Snapshot
from shoal.lookup import Lookups
from shoal.model import (
    MOST_DELAY_S,
    PRIORITIES,
    Beat,
    Grant,
    HostOrder,
    HostRecord,
    Item,
    Limits,
    Link,
    Minute,
    Outcome,
    PageRecord,
    Stats,
    Survey,
    WorkerRecord,
)

Sift: TypeAlias = Callable[[Link], Link]
"""Says what trap rules make of a link."""

MOST_CUT = 1_000
"""So many links that a rule cuts on a host are known, as skipped; further ones are counted and forgotten."""

MOST_SHAPES = 1_000
"""So many shapes are counted per host. For a new one beyond that, the least count is taken off all of them,
and those with none left are forgotten. So common shapes stay, and none is ever counted too high."""

AT_ONCE = 200
"""So many links return from the overflow in one go, at most."""


class Frontier(ABC):
    """One crawl's URLs. Every method either does all of what it says or nothing."""

    # --- what a worker needs -------------------------------------------------------------

    @abstractmethod
    def add(self, links: Iterable[Link], *, now: float | None = None) -> int:
        """Make links known and queue them; returns how many were new.

        A link whose fingerprint is known already is dropped, whatever its state.
        A link deeper than `max_depth` is dropped and not remembered.
        Does not look at `max_queued`: that is `open_producer`'s business.

        A link with a `trap`, or with a quota of which its host has had as many links as it allows, is cut:
        it counts in `cuts`, and becomes known as skipped for that rule, but no more than MOST_CUT do for
        a rule and host: the others are dropped and not remembered. A link that is not cut counts towards
        all of its quotas.

        With politeness by address, hosts that nobody has looked up yet are looked up, which takes a few
        seconds at most; the first answer is written down and holds. A host that has none is by itself.
        """

    @abstractmethod
    def lease(self, limit: int, seconds: float, *, worker: str, now: float | None = None) -> Grant:
        """Take up to `limit` links that may be fetched now, for `seconds`, in the name of `worker`.

        First, leases whose deadline has passed are taken back; at the deadline itself the holder still
        owns the lease. Links of hosts that were given up become dead letters, many at a time. Then the
        heads of all ready hosts compete: higher priority first, among equals the host that has waited
        longest. Within a host: higher priority first, then first-in first-out; a link that comes back goes
        before those of its priority that have never been leased.

        A host is ready if it has a queued link whose time has come, is not paused, and its limits allow:

        - fewer of its links are leased than its caution (`shoal.caution`) allows, `per_host` if it is well;
          one at a time if it has a delay of `Limits` or of robots.txt, and also until it has answered once
          (which tells its crawl delay);
        - its delay has passed since the start of its last fetch;
        - done + leased is below `max_pages_per_host`.

        Nothing is given while the crawl is paused or done + leased has reached `max_pages`.
        """

    @abstractmethod
    def commit(
        self,
        outcomes: Sequence[Outcome],
        *,
        positions: Sequence[tuple[str, int]] = (),
        sift: Sift | None = None,
        now: float | None = None,
    ) -> frozenset[int]:
        """Apply all outcomes with their links, or, if any lease is no longer held, none of them.

        Returns the tokens of the lost leases: an empty set means that everything was applied. The
        caller drops the lost ones (their pages are being done by somebody else) and commits the rest.

        `positions`, each (store, length), are recorded in the same step, see `position()`.
        Items are kept only by a frontier that is its own store (`keeps_items`).
        The outcome's links get the leased page as their parent. `sift` is asked about those that may be new,
        and they go in as it gives them. While `max_queued` are queued, a link goes to
        the overflow, unless it is delayed or its host has nothing queued that is due and of its priority or
        higher; so it does while others of its host and priority are there. Links return as soon as their
        host has nothing left that is due and of their priority or higher, first in first out: as many of one
        priority as there is room for, at least one and at most AT_ONCE. So every host goes on giving its
        best links, whatever the queue is full of.
        The visit of an outcome is recorded with its page, whatever the state, and comes with its next leases;
        an outcome without one leaves what was recorded. If it `keeps_rows`, so are the items.
        The survey of an outcome is kept instead of any earlier one of its page, until that is forgotten.
        The host's clock: the next fetch not before the start of this one (now - age_s) + delay, nor
        before now + pause_s. The delay is the largest of `Limits.delay_s`, the last crawl_delay_s told (of
        a domain: the longest) and that of its caution, which the sign of each outcome moves, as it may
        lengthen the pause. A host with `host_give_up` troubles in a row is given up until its pause is over.
        A lease that ends without a commit counts as a fetch that started at its end, and tells nothing.
        In times of caution, when several fetches may be under way, each lease counts as a start as well.
        """

    @abstractmethod
    def revisit(self, seconds: float, *, now: float | None = None) -> int:
        """Queue again the pages that ended `seconds` ago or earlier, if a visit of them was recorded.

        They come as those that come back do, with fresh attempts, and count as found now. Returns how many:
        a few hundred at most, the oldest first, so call it until it returns 0.
        """

    @abstractmethod
    def extend(self, tokens: Collection[int], seconds: float, *, now: float | None = None) -> frozenset[int]:
        """Move the deadline of held leases to now + seconds; returns the tokens no longer held."""

    @abstractmethod
    def release(self, tokens: Collection[int], *, now: float | None = None) -> None:
        """Give leases back unfinished: the attempt does not count. Tokens no longer held are ignored."""

    @abstractmethod
    def reap(self, worker: str, *, now: float | None = None) -> int:
        """Take back, before their deadline, all leases of a worker known to be dead; returns how many."""

    @abstractmethod
    def beat(self, worker: Beat, seconds: float, *, now: float | None = None) -> None:
        """Announce a worker: it is alive for the next `seconds`. Leases do not depend on it."""

    @abstractmethod
    def pause_host(self, host: str, seconds: float, *, now: float | None = None) -> None:
        """Give no link of this host for `seconds`. A shorter pause never cuts a longer one; 0 ends it."""

    @abstractmethod
    def set_delay(self, host: str, delay_s: float | None) -> None:
        """Set what stands for `Limits.delay_s` for this host; None: that limit again.

        robots.txt, and trouble, can still only raise it.
        """

    @abstractmethod
    def stats(self, *, now: float | None = None) -> Stats:
        """The counters. O(1): they are kept, not counted."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Block until somebody else may have brought work, or `wake`, or for `seconds`."""

    @abstractmethod
    def wake(self) -> None:
        """End the `wait` that is going on or comes next. The one verb for other threads."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the back end. Leases stay; nothing is lost."""

    # --- the crawl ------------------------------------------------------------------------

    crawl: str
    """Its name."""

    keeps_items: bool = False
    """Whether `commit` also keeps the outcomes' items, in the same step."""

    lookups: Lookups
    """Looks hosts up, if politeness is by address; any thread may `warm` it for links that are to come."""

    remembers_done: bool = True
    """Whether all is kept of pages that are done, and of every page where it was found.

    Without it `why` knows of a page that is done no more than that, unless a visit of it was recorded, and no
    `parent` of any; times of being added are whole seconds.
    """

    @property
    @abstractmethod
    def limits(self) -> Limits:
        """The limits in force."""

    @abstractmethod
    def configure(self, limits: Limits) -> None:
        """Set the limits, for all workers of the crawl; takes effect on the next lease, raised or lowered."""

    @abstractmethod
    def describe(self, description: Mapping[str, object] | None = None) -> Mapping[str, object]:
        """What the crawl is (seeds, scope, ...; JSON), after replacing it if one is given."""

    @abstractmethod
    def position(self, store: str) -> int | None:
        """The position that was recorded last for this store; None if none ever was."""

    @abstractmethod
    def open_producer(self, name: str, seconds: float, *, now: float | None = None) -> bool:
        """Announce (or extend) a producer: until it is closed or `seconds` pass, the crawl is not finished.

        Returns whether there is room to add: False while `max_queued` or more are queued or in the overflow.
        """

    @abstractmethod
    def close_producer(self, name: str) -> None:
        """The producer will add no more."""

    @abstractmethod
    def pause(self) -> None:
        """Give no leases until `resume`. What is being fetched is finished and committed."""

    @abstractmethod
    def resume(self) -> None:
        """End `pause`."""

    @abstractmethod
    def purge(self) -> None:
        """Forget the whole crawl: its URLs, items, limits, description. Others are untouched."""

    # --- for people -----------------------------------------------------------------------

    @abstractmethod
    def why(self, url: str, key: str = "") -> PageRecord | None:
        """What is known of a normalized URL; None if it was never seen."""

    @abstractmethod
    def dead(
        self, *, host: str | None = None, reason: str | None = None, limit: int | None = None
    ) -> list[PageRecord]:
        """Dead letters, the oldest first; of one host, or with this reason exactly, if given."""

    @abstractmethod
    def redrive(
        self,
        *,
        url: str | None = None,
        host: str | None = None,
        reason: str | None = None,
        now: float | None = None,
    ) -> int:
        """Queue dead letters again, with fresh attempts; returns how many. Without arguments: all.

        If their hosts were given up, these get another chance.
        """

    @abstractmethod
    def skipped(
        self, *, host: str | None = None, reason: str | None = None, limit: int | None = None
    ) -> list[PageRecord]:
        """Skipped pages, the oldest first; of one host, or with this reason exactly, if given."""

    @abstractmethod
    def cuts(self) -> dict[tuple[str, str], int]:
        """How many links each trap rule has cut, by (rule, host), those that are not remembered included."""

    @abstractmethod
    def surveys(self) -> Iterator[Survey]:
        """The surveys that `commit` kept, in no particular order."""

    @abstractmethod
    def history(self, since: float, *, now: float | None = None) -> list[Minute]:
        """The minutes from that of `since` (seconds since 1970) on in which something happened, in order.

        Each tells by how much the counters grew in it, in the same steps as they did; what is taken away from
        a counter (`redrive`, `revisit`, `forget`, `purge`) is not told. The last 3 days are kept.
        """

    @abstractmethod
    def claim(self, contents: Sequence[tuple[int, str]]) -> list[str]:
        """For each (digest, URL): the URL that claimed this content first, which may be this one."""

    @abstractmethod
    def forget(self, url: str, key: str = "") -> bool:
        """Un-see a URL, with its stored items, so that it may be found again; False if unknown or leased."""

    @abstractmethod
    def set_priority(self, url: str, priority: int, key: str = "") -> bool:
        """Change the priority of a URL that is queued, or in the overflow, which it leaves; False otherwise.

        Its place among those of its new priority is open.
        """

    @abstractmethod
    def tally(
        self, state: Literal["dead", "skipped"], *, reason: str | None = None, limit: int | None = None
    ) -> dict[str, int]:
        """How many pages are dead, or skipped, by reason; or, of one reason, by host. The most first.

        It is kept, or read off an index: it takes no longer for more pages, or hardly so.
        """

    @abstractmethod
    def hosts(
        self, *, limit: int = 20, by: HostOrder = "latency_s", ascending: bool = False, having: str = ""
    ) -> list[HostRecord]:
        """Hosts with `having` in their name, the slowest first (by average latency), or as `by` says.

        It goes through all of them: 1 or 2 ms for a thousand.
        """

    @abstractmethod
    def hosts_named(self, names: Sequence[str]) -> list[HostRecord]:
        """These hosts, in this order, without those that are not known."""

    @abstractmethod
    def workers(self, *, now: float | None = None) -> list[WorkerRecord]:
        """Workers that were heard of lately (`beat`) or hold leases, by name."""

    @abstractmethod
    def items(self) -> Iterator[Item]:
        """The items that `commit` kept, in the order of their commits; none unless `keeps_items`."""

    @abstractmethod
    def last_items(self, limit: int) -> list[Item]:
        """The items that `commit` kept last, the latest first; none unless `keeps_items`."""

    # --- moving to another back end -----------------------------------------------------------

    @abstractmethod
    def dump(self) -> Snapshot:
        """All that is known, for `load` of another back end. Pause the crawl meanwhile.

        Not carried: where pages were found, who works on the crawl and who feeds it, tickets, and items.
        """

    @abstractmethod
    def load(self, snapshot: Snapshot) -> None:
        """Take over a dumped crawl. This one must know nothing yet; it is paused until all is there.

        Not in one step: if it is broken off, `purge` and load again.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def worker_records(beats: Iterable[tuple[float, Beat]], held: Mapping[str, int]) -> list[WorkerRecord]:
    """Bring together who was heard of, and until when that counts, and who holds how many leases."""
    alive = {beat.name: (until, beat) for until, beat in beats}
    records = [
        WorkerRecord(
            name=name,
            leases=held.get(name, 0),
            alive=True,
            until=until,
            concurrency=beat.concurrency,
            since=beat.since,
            pages_per_s=beat.pages_per_s,
            bytes_in_flight=beat.bytes_in_flight,
            lag_s=beat.lag_s,
            settle_s=beat.settle_s,
            trouble=beat.trouble,
        )
        for name, (until, beat) in alive.items()
    ]
    records += [
        WorkerRecord(name=name, leases=count, alive=False)
        for name, count in held.items()
        if name not in alive
    ]
    return sorted(records, key=lambda record: record.name)


def check_priority(priority: int, url: str) -> None:
    """Raise ConfigError unless it is one of 0..9."""
    if priority not in PRIORITIES or isinstance(priority, bool):
        raise ConfigError(f"priority {priority} of {url} is not one of 0..9")


def check_link(link: Link) -> None:
    """Raise ConfigError unless its priority is one of 0..9, and its delay a time that will come."""
    check_priority(link.priority, link.url)
    if link.delay_s and not link.delay_s <= MOST_DELAY_S:
        raise ConfigError(f"a delay of {link.delay_s:g} s of {link.url} is no time that will come")
