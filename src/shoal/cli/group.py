"""The command `shoal`: a group of commands, and what their errors become."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from shoal.errors import ShoalError

INTERRUPTED = 130


class Group(click.Group):
    """The commands."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run one. A pipe that closes, as in `shoal export | head`, ends it quietly."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return code


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="shoal")
def shoal() -> None:
    """Crawl web sites: every page once, surviving any kill.

    `shoal crawl URL` crawls a site; the same command again resumes it.
    `shoal demo` shows it on a small shop of its own.
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code; errors for people take one line."""
    try:
        code = shoal.main(args=args, prog_name="shoal", standalone_mode=False)
    except click.exceptions.Abort:
        code = INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        code = 2
    except click.ClickException as error:
        hint = (
            f" ({error.ctx.command_path} --help)" if isinstance(error, click.UsageError) and error.ctx else ""
        )
        code = complain(f"{error.format_message()}{hint}")
    except KeyboardInterrupt:
        code = INTERRUPTED
    except ShoalError as error:
        code = complain(str(error))
    except UnicodeEncodeError:
        words = sys.argv[1:] if args is None else args
        broken = next((word for word in words if not _is_text(word)), None)
        if broken is None:
            raise
        code = complain(f"{os.fsencode(broken)!r} is not UTF-8: use another name or value")
    if code == INTERRUPTED:
        _leave_at_once()
    sys.exit(code or 0)


def _is_text(word: str) -> bool:
    """Whether the bytes that were given are UTF-8: those that are not stand in it as lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in word)


def _leave_at_once() -> None:
    """End now: a thread may still run a handler, which nobody waits for any more."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def complain(message: str, code: int = 2) -> int:
    """Say what is wrong in one line on stderr; returns the exit code."""
    from shoal.log import visible

    print(f"shoal: {visible(' '.join(message.split()))}", file=sys.stderr)
    return code


def let_it_be_caught() -> None:
    """From now on Ctrl-C is an exception: there is something to be tidied up (see `shoal.__main__`)."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
