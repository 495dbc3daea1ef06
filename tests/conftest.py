"""Shared by all tests."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings

pytest.register_assert_rewrite(
    "tests.contract.invariants", "tests.dashboard.browser", "tests.faults.crawling", "tests.troubled"
)
settings.register_profile("default", deadline=None)  # machines are shared and noisy
settings.register_profile("thorough", deadline=None, max_examples=2_000, stateful_step_count=100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(autouse=True)
def _loggers_as_before() -> Iterator[None]:
    """What a test, or a library that it uses, does to the loggers of shoal ends with it."""
    loggers = [
        logging.getLogger(name) for name in list(logging.root.manager.loggerDict) if name.startswith("shoal")
    ]
    before = [(each.level, each.propagate, each.disabled, each.handlers[:]) for each in loggers]
    yield
    for logger, (level, propagate, disabled, handlers) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.propagate, logger.disabled, logger.handlers[:] = propagate, disabled, handlers


@pytest.fixture(scope="session")
def postgres() -> Iterator[object]:
    """A PostgreSQL server (`services.PostgresServer`). Make what you need in it, and take it away again."""
    from services import PostgresServer

    with _running(PostgresServer) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[object]:
    """A server of Redis or Valkey (`services.RedisServer`), shared too: use keys of your own."""
    from services import RedisServer

    with _running(RedisServer) as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[object]:
    """An object store (`services.S3Server`) that the environment leads to; use a prefix of your own."""
    from services import S3Server

    with _running(S3Server) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@contextmanager
def _running(service: Callable[[], object]) -> Iterator[object]:
    """A service; where it is missing, CI fails and others skip the test."""
    from services import ServiceMissing

    try:
        server = service()
    except ServiceMissing as missing:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(str(missing))
    with server:
        yield server
