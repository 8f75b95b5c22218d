"""The one exception that a user is meant to read."""


class CrosscutError(Exception):
    """Something the caller can mend; the message says what is wrong and what to do about it.

    The command line prints the message and exits with status 2; a server answers with it as a 4xx.
    """
