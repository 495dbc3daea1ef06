"""Bytes from strangers, made up by Hypothesis: nothing raises, nothing takes a second.

`SHOAL_FUZZ_S` says for how many seconds each target is tried; without it one round has to do.
"""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz.targets import TARGETS, Target

FUZZ_S = float(os.environ.get("SHOAL_FUZZ_S", "0"))
EXAMPLES = 200 if FUZZ_S else 50
MOST_REPEATS = 5_000


@st.composite
def inputs(draw: st.DrawFn, target: Target) -> bytes:
    """Tokens of the target's language in any order, some of them many times over, with any bytes between."""
    token = st.one_of(st.sampled_from(target.tokens), st.binary(max_size=6))
    parts = draw(st.lists(token, max_size=40))
    if draw(st.booleans()):
        repeated = b"".join(draw(st.lists(token, min_size=1, max_size=4)))
        parts.insert(draw(st.integers(0, len(parts))), repeated * draw(st.integers(1, MOST_REPEATS)))
    return b"".join(parts)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.timeout(FUZZ_S + 240)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the server that stays for all tries
def test_bytes_from_strangers(name: str) -> None:
    """They are taken, or refused in the way that is foreseen, and soon."""
    target = TARGETS[name]

    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(inputs(target))
    def take(data: bytes) -> None:
        target(data)

    began = time.monotonic()
    rounds = 1
    take()
    while time.monotonic() - began < FUZZ_S:
        take()
        rounds += 1
    print(f"{name}: {rounds * EXAMPLES:,} inputs in {time.monotonic() - began:.0f} s")
