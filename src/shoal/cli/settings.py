"""Options of the command line as settings of a crawl."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.errors import ConfigError


def settings_of(
    *,
    allow: Sequence[str],
    deny: Sequence[str],
    retries_by: Sequence[str],
    no_adapt: bool,
    ignore_robots: bool,
    ignore_traps: bool,
    drop_tracking: bool,
    sitemaps: Sequence[str] = (),
    **others: Any,
) -> dict[str, object]:
    """The options as settings; None where nothing was given."""
    from shoal.urls import TRACKING_PARAMS

    return {
        **fetch_settings_of(**others),
        "allow": allow or None,
        "deny": deny or None,
        "sitemaps": sitemaps or None,
        "retries_by": dict(map(_cause, retries_by)) or None,
        "adapt": False if no_adapt else None,
        "obey_robots": False if ignore_robots else None,
        "avoid_traps": False if ignore_traps else None,
        "drop_params": TRACKING_PARAMS if drop_tracking else None,
    }


def fetch_settings_of(
    *, headers: Sequence[str], auth: Sequence[str], auth_file: str | None, insecure: bool, **others: Any
) -> dict[str, object]:
    """Those of them that are about fetching; None where nothing was given."""
    kept = _read_auth_file(auth_file) if auth_file is not None else {}
    return {
        **others,
        "headers": [_header(text) for text in headers] or None,
        "auth": {**kept.get("auth", {}), **dict(map(_credentials, auth))} or None,
        "host_headers": kept.get("headers"),
        "verify_tls": False if insecure else None,
    }


def _read_auth_file(file: str) -> dict[str, Any]:
    import tomllib

    try:
        kept = tomllib.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the file of credentials {file} cannot be read: {error.strerror}") from error
    except ValueError:
        raise ConfigError(
            f"the file of credentials {file} is not TOML"
        ) from None  # whose words may be secret
    if not kept.keys() <= {"auth", "headers"}:
        raise ConfigError(f'the file of credentials {file} may have the tables [auth] and [headers."HOST"]')
    return kept


def _credentials(text: str) -> tuple[str, str]:
    host, equals, value = text.partition("=")
    if not equals:
        raise ConfigError("--auth: write HOST=USER:PASSWORD or HOST='bearer TOKEN'")
    return host, value


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise ConfigError(f"not a header: '{text}'; write 'NAME: VALUE'")
    return name.strip(), value.strip()


def _cause(text: str) -> tuple[str, int]:
    cause, _, number = text.partition("=")
    if not number.isdecimal():
        raise ConfigError(f"not a number of retries: '{text}'; write CAUSE=N, such as timeout=1")
    return cause, int(number)
