"""Shared by all tests."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("default", deadline=None)  # machines are shared and noisy
settings.register_profile("thorough", deadline=None, max_examples=2_000, stateful_step_count=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
