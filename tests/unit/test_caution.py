"""How carefully a host is treated: each rule, and where the rules lead together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.caution import WELL, Caution, at_once, delay_s, is_given_up, learn, pause_s
from shoal.model import Limits, Sign

LIMITS = Limits()
SIGNS: tuple[Sign, ...] = get_args(Sign)


def _after(signs: Iterable[Sign], limits: Limits = LIMITS, caution: Caution = WELL) -> Caution:
    """One attempt after the other, none of which overlap."""
    for number, sign in enumerate(signs, int(caution.since) + 1):
        caution = learn(caution, sign, number, number + 0.5, limits)
    return caution


def _allowed(caution: Caution, limits: Limits = LIMITS) -> tuple[int, float]:
    return at_once(caution, 0.1, limits), delay_s(caution, limits)


# --- more careful -----------------------------------------------------------------------------


def test_of_a_host_that_is_well_nothing_is_remembered() -> None:
    """It gets as many fetches at once as the limits allow, and no delay."""
    assert _after(["fine", "", "fine"]) is WELL
    assert _allowed(WELL) == (8, 0.0)
    assert _allowed(WELL, Limits(per_host=3)) == (3, 0.0)


def test_a_busy_host_gets_half_at_once_and_a_delay_that_doubles() -> None:
    """From the first refusal on; three in a row leave it one at a time."""
    found = [_allowed(_after(["busy"] * times)) for times in (1, 2, 3, 4, 20)]
    assert found == [(4, 0.125), (2, 0.25), (1, 0.5), (1, 1.0), (1, 60.0)]


def test_a_failing_host_gets_a_delay_only_when_there_is_no_other_way() -> None:
    """First fewer at once; if it fails one at a time now and then, a delay; if it is down, pauses do more."""
    found = [_allowed(_after(["failing"] * times)) for times in (1, 2, 3, 4, 5)]
    assert found == [(4, 0.0), (2, 0.0), (1, 0.0), (1, 0.0), (1, 0.0)]
    now_and_then = ["failing", "fine"] * 6
    found = [_allowed(_after(now_and_then[: 2 * times])) for times in (1, 2, 3, 4, 5)]
    assert found == [(4, 0.0), (2, 0.0), (1, 0.0), (1, 0.125), (1, 0.25)]
    assert _allowed(_after(["failing"], Limits(per_host=1)), Limits(per_host=1)) == (1, 0.125)


def test_a_page_that_fails_again_tells_of_its_host_only_after_another_failure() -> None:
    """It may be the page; and never it brings a delay. A host that asks for less is heard each time."""
    for caution in (WELL, _after(["failing", "fine"])):
        assert learn(caution, "failing", 9.0, 9.1, LIMITS, again=True) is caution
        assert learn(caution, "busy", 9.0, 9.1, LIMITS, again=True).failures == 1
    failed = _after(["failing"], Limits(per_host=1))
    again = learn(failed, "failing", 9.0, 9.1, LIMITS, again=True)
    assert (again.failures, again.delay_s) == (2, failed.delay_s)


def test_what_fails_together_counts_once() -> None:
    """Attempts that began before the last trouble was noticed tell nothing new, good or bad."""
    caution = learn(WELL, "busy", 0.0, 10.0, LIMITS)
    for sign in SIGNS:
        assert learn(caution, sign, 9.9, 11.0, LIMITS) is caution
    assert learn(caution, "busy", 10.0, 11.0, LIMITS).failures == 2


def test_an_attempt_that_tells_nothing_changes_nothing() -> None:
    """Such as a page that robots.txt closes, which is never fetched."""
    caution = _after(["busy"])
    assert _after(["", ""], caution=caution) is caution


@pytest.mark.parametrize(
    ("latency_s", "expected"), [(0.0, 8), (1.0, 8), (1.5, 5), (2.0, 4), (7.0, 1), (60.0, 1)]
)
def test_a_slow_host_gets_fewer_at_once(latency_s: float, expected: int) -> None:
    """In proportion, if its answers take more than a second."""
    assert at_once(WELL, latency_s, LIMITS) == expected
    assert at_once(_after(["busy"]), latency_s, LIMITS) == min(expected, 4)
    assert at_once(WELL, latency_s, Limits(adapt=False)) == 8


def test_without_adapting_only_a_host_that_is_down_is_spared() -> None:
    """`adapt=False`: no delay and no fewer at once, but one page at a time to see whether it is up again."""
    limits = Limits(adapt=False)
    found = [_allowed(_after(["busy"] * times), limits) for times in (1, 2, 3)]
    assert found == [(8, 0.0), (8, 0.0), (1, 0.0)]


# --- less careful -----------------------------------------------------------------------------


def test_ten_fine_answers_are_one_step_back() -> None:
    """One more at once, and a delay that is a quarter shorter."""
    caution = _after(["busy", *["fine"] * 9])
    assert (_allowed(caution), caution.failures) == ((4, 0.125), 0)
    assert _allowed(_after(["fine"], caution=caution)) == (5, 0.75 * 0.125)


def test_a_delay_stops_above_the_one_that_was_too_short() -> None:
    """Refused at 0.125 s, it goes to 0.25 s, comes back to 8 % more than 0.125 s, and then creeps."""
    caution = _after(["busy", "busy"])
    delays = [delay_s(_after(["fine"] * 10 * steps, caution=caution), LIMITS) for steps in range(5)]
    assert delays == pytest.approx([0.25, 0.1875, 0.140625, 0.135, 0.135 * 0.9975])


def test_a_refusal_while_it_creeps_lengthens_the_delay_a_little() -> None:
    """It is close to what the server allows, so doubling would waste it."""
    creeping = _after(["fine"] * 40, caution=_after(["busy", "busy"]))
    refused = _after(["busy"], caution=creeping)
    assert refused.delay_s == pytest.approx(1.08 * creeping.delay_s)
    assert refused.refused_s == creeping.delay_s


def test_a_mark_is_forgotten_when_it_has_crept_far_below() -> None:
    """The limit is gone, so the rest of the way is quick."""
    caution = _after(["fine"] * 900, caution=_after(["busy", "busy"]))
    assert caution.refused_s == 0
    assert caution.delay_s < 0.1


@given(st.lists(st.sampled_from(SIGNS)), st.integers(1, 64))
def test_every_host_gets_well_again(signs: list[Sign], per_host: int) -> None:
    """After any troubles what it is given stays between the limits; fine answers bring it all back."""
    limits = Limits(per_host=per_host)
    caution = _after(signs, limits)
    most, delay = _allowed(caution, limits)
    assert 1 <= most <= per_host
    assert 0 <= delay <= 60
    assert _after(["fine"] * 3_000, limits, caution) is WELL


# --- pauses, and the end ------------------------------------------------------------------------


def _pauses(sign: Sign, asked_s: float, limits: Limits = LIMITS, times: int = 9) -> list[float]:
    return [pause_s(_after([sign] * n, limits), sign, asked_s, limits) for n in range(1, times + 1)]


def test_a_busy_host_that_does_not_say_how_long_is_paused_longer_each_time() -> None:
    """Up to five minutes."""
    assert _pauses("busy", 0.0, Limits(host_give_up=0)) == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_what_a_busy_host_asks_for_is_granted() -> None:
    """And more, if doing so three times in a row has not helped."""
    assert _pauses("busy", 8.0, Limits(host_give_up=0)) == [8, 8, 8, 10, 20, 40, 80, 160, 300]
    assert _pauses("busy", 900.0, Limits(host_give_up=0)) == [900] * 9


def test_a_host_is_down_after_three_failures_in_a_row() -> None:
    """Then it is paused, longer each time, until it is given up for an hour."""
    assert _pauses("failing", 0.0) == [0, 0, 5, 10, 20, 40, 80, 3600, 3600]
    assert _pauses("failing", 0.0, Limits(host_pause_s=0.5, host_give_up=4)) == [0, 0, 0.5, *[3600] * 6]


def test_a_host_is_given_up_until_its_pause_is_over() -> None:
    """With so many troubles in a row; never, if that is what the limits say."""
    caution = _after(["failing"] * 8)
    assert is_given_up(caution, 101.0, 100.0, LIMITS)
    assert not is_given_up(caution, 100.0, 100.0, LIMITS)
    assert not is_given_up(_after(["failing"] * 7), 101.0, 100.0, LIMITS)
    assert not is_given_up(_after(["failing"] * 99), 101.0, 100.0, Limits(host_give_up=0))
    assert not is_given_up(_after(["fine"], caution=caution), 101.0, 100.0, LIMITS)


# --- rate limits --------------------------------------------------------------------------------

PER_S = 5
Server = Callable[[float], bool]
"""Told the time of a request, answers whether it is let in."""


def _sliding() -> Server:
    """So many in any second."""
    taken: deque[float] = deque()

    def lets_in(now: float) -> bool:
        while taken and taken[0] <= now - 1:
            taken.popleft()
        if len(taken) < PER_S:
            taken.append(now)
            return True
        return False

    return lets_in


def _fixed() -> Server:
    """So many in each second of the clock."""
    counts: dict[int, int] = {}

    def lets_in(now: float) -> bool:
        counts[int(now)] = counts.get(int(now), 0) + 1
        return counts[int(now)] <= PER_S

    return lets_in


def _bucket() -> Server:
    """A token bucket that holds a second's worth."""
    tokens, filled_at = float(PER_S), 0.0

    def lets_in(now: float) -> bool:
        nonlocal tokens, filled_at
        tokens, filled_at = min(PER_S, tokens + (now - filled_at) * PER_S), now
        if tokens >= 1:
            tokens -= 1
            return True
        return False

    return lets_in


@pytest.mark.parametrize("make", [_sliding, _fixed, _bucket])
def test_it_settles_close_to_a_rate_limit(make: Callable[[], Server]) -> None:
    """After half a minute: few refusals, and most of what is allowed. Each refusal costs a pause of 1 s."""
    lets_in, caution, now, late_s = make(), WELL, 0.0, 0.004
    answers = []
    while now < 600:
        fine = lets_in(now)
        answers.append((now, fine))
        caution = learn(caution, "fine" if fine else "busy", now, now + 0.001, LIMITS)
        now += max(0.01 if fine else 1.0, delay_s(caution, LIMITS) + late_s)
    settled = [fine for at, fine in answers if at > 30]
    assert settled.count(False) < 0.01 * len(settled)
    assert settled.count(True) > 0.88 * PER_S * 570
