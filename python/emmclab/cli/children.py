"""Commands of the user that run inside a command of emmclab."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def output_aside(as_json: bool) -> Iterator[None]:
    """Send what commands print to stderr while this lasts, where stdout is for the JSON of the result."""
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
    """Return the file descriptor of messages; that of nothing where stderr is closed."""
    try:
        os.fstat(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
    return 2
