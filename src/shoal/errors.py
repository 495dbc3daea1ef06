"""What can go wrong, by whose move it is.

An expected failure of a page (404, timeout, refused) is an `Outcome`, never an exception.
"""


class ShoalError(Exception):
    """The base of all of shoal's errors. The message is one line for the person at the keyboard."""


class ConfigError(ShoalError):
    """The user asked for something that cannot work; the message names it and says what to do."""


class FrontierError(ShoalError):
    """The frontier cannot be used as it is: damaged, too new, not one of ours."""


class FrontierUnavailable(ShoalError):  # noqa: N818 - named for the state, as in "503 Unavailable"
    """The frontier cannot be reached or written just now (disk full, locked); try again later."""


class StoreError(ShoalError):
    """The store cannot take these rows as it is: not writable, not ours, other columns."""


class StoreUnavailable(ShoalError):  # noqa: N818
    """The store cannot be reached or written just now (disk full); try again later."""


class LoggedOut(ShoalError):  # noqa: N818 - what a handler says of its page
    """Raised by a handler: this is not what somebody who is logged in gets to see."""


class LoginFailed(ShoalError):  # noqa: N818
    """The crawl cannot log in, so no page can be fetched; the message says what went wrong."""
