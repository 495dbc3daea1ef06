"""How carefully a host is treated after trouble. Decisions only; lua/caution.lua takes the same ones.

It is congestion control: one loss is enough to slow down, and speed comes back step by step.

| sign of an attempt | what changes |
| --- | --- |
| busy: the host said that it is asked too often | half as many fetches at once; a delay, or a longer one |
| failing: no answer, or one that tells of trouble | half as many at once; from one on, a delay |
| fine: any other answer | after every 10 of them one more at once, and a shorter delay |

The first refusal starts a delay of 0.125 s, which doubles until it is long enough. On its way down a refusal
takes it back to the last one that was good; then it stops a little above the one that was too short, and from
there it creeps: so it stays close to what a rate limit allows, at the price of one refusal in some hundred
fetches. Once it has crept well below, that mark is forgotten.

What began before the last trouble was noticed tells nothing new: eight fetches that fail together count once.
After 3 troubles in a row a host counts as down: it is paused, longer each time, and probed with one page.

A few pages that a server cannot give come back again and again, and tell nothing about the others. So a page
that fails again is no news as long as the page before it was fine, and never brings a delay; and a host that
is down is probed with a page that was never tried, if there is one.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from shoal.model import Limits, Sign

GIVEN_UP = "host down"
"""Why the links of a host that was given up are dead letters."""

STEP = 10  # fine answers for one step back
START_S = 0.125
LEAST_S = 0.01  # a shorter delay is none
ABOVE = 1.08  # how far above the delay that was too short it is safe, most likely
CREEP = 0.9975
MOST_S = 60.0
DOWN = 3  # troubles in a row
MOST_PAUSE_S = 300.0
GIVEN_UP_S = 3600.0  # so long a host that was given up is not asked again
RECENT = 0.1  # weight of the last attempt in the share of those that failed
LEAST_RATE = 0.001
PROMPT_S = 1.0  # a host that answers more slowly gets fewer fetches at once, in proportion


class Caution(Struct, frozen=True, array_like=True):
    """What is remembered of the troubles of a host."""

    failures: int = 0
    """Troubles in a row: since then, nothing was fine."""
    delay_s: float = 0.0
    refused_s: float = 0.0
    """The delay that was too short for the host the last time; 0: not known."""
    at_once: int = 0
    """How many of its links may be fetched at once; 0: as many as the limits allow."""
    fine: int = 0
    """Fine answers since the last step."""
    since: float = 0.0
    """When the last trouble was noticed."""
    good_s: float = 0.0
    """The last delay with which ten answers were fine, since then; 0: none yet."""


WELL = Caution()
"""Of most hosts there is nothing to remember."""


def learn(
    caution: Caution, sign: Sign, began: float, now: float, limits: Limits, *, again: bool = False
) -> Caution:
    """The caution after an attempt that began at `began` and ended with `sign`; the same if it is no news.

    again: the page had failed before.
    """
    if not sign or began < caution.since or (sign == "fine" and caution is WELL):
        return caution
    if sign == "fine":
        return _recover(caution, limits.per_host)
    if sign == "failing" and again and not caution.failures:
        return caution
    return _slow_down(caution, sign, now, limits.per_host, again=again)


def _slow_down(caution: Caution, sign: Sign, now: float, per_host: int, *, again: bool) -> Caution:
    failures, before = caution.failures + 1, min(caution.at_once or per_host, per_host)
    stubborn = before == 1 and failures < DOWN and not again  # once it is down its pauses do more
    return Caution(
        failures=failures,
        delay_s=_longer(caution) if sign == "busy" or stubborn else caution.delay_s,
        refused_s=caution.delay_s if sign == "busy" else caution.refused_s,
        at_once=1 if failures >= DOWN else max(1, before // 2),
        since=now,
    )


def _recover(caution: Caution, per_host: int) -> Caution:
    if caution.fine + 1 < STEP:
        return replace(caution, failures=0, fine=caution.fine + 1)
    delay_s, refused_s = _shorter(caution)
    at_once = caution.at_once + 1 if 0 < caution.at_once < per_host - 1 else 0
    if not (delay_s or at_once):
        return WELL
    return Caution(
        delay_s=delay_s, refused_s=refused_s, at_once=at_once, since=caution.since, good_s=caution.delay_s
    )


def _longer(caution: Caution) -> float:
    if caution.delay_s == 0:
        return START_S
    if caution.good_s > caution.delay_s:
        return min(MOST_S, max(caution.good_s, caution.delay_s * ABOVE))
    return min(MOST_S, caution.delay_s * (ABOVE if _is_near(caution.delay_s, caution.refused_s) else 2))


def _shorter(caution: Caution) -> tuple[float, float]:
    delay_s, refused_s = caution.delay_s, caution.refused_s
    if delay_s < 0.9 * refused_s:
        refused_s = 0.0
    if _is_near(delay_s, refused_s):
        delay_s *= CREEP
    else:
        delay_s = max(delay_s * 0.75, refused_s * ABOVE)
    return (delay_s, refused_s) if delay_s >= LEAST_S else (0.0, 0.0)


def _is_near(delay_s: float, refused_s: float) -> bool:
    return 0.9 * refused_s <= delay_s <= 1.1 * refused_s


def pause_s(caution: Caution, sign: Sign, asked_s: float, limits: Limits) -> float:
    """How long to leave the host alone after the trouble that led to `caution`.

    asked_s: what the server asks for. Without it, a busy host gets a pause that doubles with each trouble;
    and so does any host that is down, whatever it asks for.
    """
    if limits.host_give_up and caution.failures >= limits.host_give_up:
        return max(asked_s, GIVEN_UP_S)
    before = 1 if sign == "busy" and not asked_s else DOWN
    if caution.failures < before:
        return asked_s
    return max(asked_s, min(MOST_PAUSE_S, limits.host_pause_s * 2.0 ** min(caution.failures - before, 60)))


def at_once(caution: Caution, latency_s: float, limits: Limits) -> int:
    """How many links of the host may be fetched at once, between 1 and `per_host`."""
    if is_down(caution):
        return 1
    most = limits.per_host
    if not limits.adapt:
        return most
    if caution.at_once:
        most = min(most, caution.at_once)
    if latency_s > PROMPT_S:
        most = min(most, max(1, int(limits.per_host * PROMPT_S / latency_s)))
    return most


def is_down(caution: Caution) -> bool:
    """Whether the host is only probed."""
    return caution.failures >= DOWN


def delay_s(caution: Caution, limits: Limits) -> float:
    """Least time between the starts of two fetches of the host, as far as it follows from its troubles."""
    return caution.delay_s if limits.adapt else 0.0


def error_rate(before: float, *, failed: bool) -> float:
    """The moving average of failed attempts after one more; what is next to nothing is nothing."""
    after = before + RECENT * (failed - before)
    return after if after >= LEAST_RATE else 0.0


def is_given_up(caution: Caution, paused_until: float, now: float, limits: Limits) -> bool:
    """Whether the links of the host are given up. When its pause is over, the next one may try again."""
    return 0 < limits.host_give_up <= caution.failures and paused_until > now


def given_up_after(failures: int) -> str:
    """The details of its dead letters."""
    return f"given up after {failures} failures in a row"
