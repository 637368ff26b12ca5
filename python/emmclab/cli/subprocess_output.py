"""Output of user commands that run inside a command of emmclab."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def output_aside(as_json: bool) -> Iterator[None]:
    """Redirect stdout of child processes to stderr within the block, if stdout is for JSON."""
    if not as_json:
        yield
        return
    sys.stdout.flush()
    ours = os.dup(1)
    try:
        os.dup2(_messages(), 1)
        yield
    finally:
        os.dup2(ours, 1)
        os.close(ours)


def _messages() -> int:
    """Return the file descriptor of stderr, or one of /dev/null if stderr is closed."""
    try:
        os.fstat(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
    return 2
