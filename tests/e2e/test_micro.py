"""The gate that keeps the steps of a page as cheap as they are: `python -m benchmarks.micro --gate`."""

from __future__ import annotations

import json

from benchmarks.micro import KEPT, WORSE, Figure, dearer, measure

KEPT_RATIOS = json.loads(KEPT.read_text())


def test_a_step_that_has_become_dearer_is_told():
    """By name, with what it is measured by; one that is a little dearer is not."""
    figures = {
        "worse": Figure(step_us=4.0, reference="that", reference_us=1.0),
        "a little worse": Figure(step_us=2 * WORSE - 0.1, reference="that", reference_us=1.0),
    }
    (told,) = dearer(figures, dict.fromkeys(figures, 2.0))
    assert told == "worse: 4.00 times that, and not 2.00"


def test_all_steps_have_a_ratio_that_they_are_held_to():
    """None is measured in vain, and none is kept that is no more."""
    figures = measure(repeats=1)
    assert figures.keys() == KEPT_RATIOS.keys()
    assert all(figure.ratio > 0 for figure in figures.values())
