"""Converts charts to SVG and PDF, and bundles the library of the pages, by vl-convert in a separate process.

vl-convert holds the interpreter's lock while it works, at first for seconds, so that Ctrl-C would be delayed.
"""

import atexit
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from emmclab.errors import EmmclabError

_process: subprocess.Popen[bytes] | None = None


def convert(function: str, *arguments: Any, **options: Any) -> Any:
    """Call a function of vl-convert in the separate process.

    Raises:
        EmmclabError: the call fails, or the process ended.

    >>> convert("vegalite_to_svg", {"mark": "point", "data": {"values": [{}]}})[:4]
    '<svg'
    """
    global _process
    if _process is None:
        # Runs in its own session, so that Ctrl-C reaches only this process; it ends when its input is closed.
        command = [sys.executable, "-P", str(Path(__file__).with_name("vega_process.py"))]
        _process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    if _process.stdin is None or _process.stdout is None:
        raise EmmclabError("the process that draws charts has no pipes", hint="run the command again")
    try:
        pickle.dump((function, arguments, options), _process.stdin)
        _process.stdin.flush()
        refusal, answer = pickle.load(_process.stdout)  # noqa: S301 - of our own process
    except BaseException as error:
        _process.kill()
        _process.wait()
        _process = None
        if isinstance(error, (OSError, EOFError)):
            raise EmmclabError("the process that draws charts ended", hint="free some memory") from error
        raise
    if refusal is not None:
        raise EmmclabError(f"a chart could not be drawn: {refusal}", hint="leave out --figures and --html")
    return answer


@atexit.register
def _end() -> None:
    if _process is not None and _process.stdin is not None:
        _process.stdin.close()
        _process.wait()
