"""The one exception that a user is meant to read, and what others say in short."""

from __future__ import annotations


class CrosscutError(Exception):
    """Something the caller can mend; the message says what is wrong and what to do about it.

    The command line prints the message and exits with status 2; a server answers with it as a 4xx.
    """


def first_line(error: Exception) -> str:
    """What an error says first: libraries may go on for pages.

    >>> first_line(ValueError("\\n  no such layer\\n  in layers 0 to 11")), first_line(KeyError())
    ('no such layer', 'KeyError')
    """
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
