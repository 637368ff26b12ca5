"""From exceptions to words on stderr and exit codes; a traceback never reaches a user."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer

from emmclab import __version__
from emmclab.cli.console import ClosedPipe, say
from emmclab.errors import EmmclabError, InputError

BAD_INPUT, FAILED_RUN, EARLY_END, INTERRUPTED, CLOSED_PIPE = 2, 1, 3, 130, 141

#: Refusals of the operating system that no other argument would have avoided.
_RUN_FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE}


def run(command: Callable[..., Any], arguments: list[str]) -> int:
    """Run a command and turn what it raises into an exit code and an `error:` with a `hint:`."""
    signal.signal(signal.SIGTERM, _terminate)
    _prepare_stdout()
    try:
        code = command(args=arguments, prog_name="emmclab", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (ClosedPipe, BrokenPipeError):
        return CLOSED_PIPE
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted; unfinished files were removed")
        return INTERRUPTED
    except EmmclabError as error:
        _report(str(error), error.hint)
        return FAILED_RUN if error.errno in _RUN_FAILURES else BAD_INPUT
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "emmclab"
        message = error.format_message().rstrip(".")
        _report(message[:1].lower() + message[1:], f"`{path} --help` lists what it takes")
        return BAD_INPUT
    except OSError as error:
        refusal = InputError.of(error)
        _report(str(refusal), refusal.hint)
        return FAILED_RUN if error.errno in _RUN_FAILURES else BAD_INPUT
    except MemoryError:
        _report("there is not enough memory", "profile fewer traces at once, or a part of the trace")
        return FAILED_RUN
    except Exception as error:  # A bug; whatever it is, the user gets one line.
        if os.environ.get("EMMCLAB_DEBUG"):
            traceback.print_exc()
        _report(
            f"this is a bug in emmclab {__version__} ({type(error).__name__}: {error})",
            "run it again with EMMCLAB_DEBUG=1 and report its output to the project's issue list",
        )
        return FAILED_RUN
    finally:
        _settle_stdout()


def _settle_stdout() -> None:
    """Drop what stdout did not take, so that the interpreter does not complain once more when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_stdout() -> None:
    """Let stdout take any character, and put a buffer under it where PYTHONUNBUFFERED took it away.

    Python would lose short writes without one. Names of files may hold bytes that are no text, and the
    encoding may be ASCII.
    """
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        sys.stdout = os.fdopen(sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _terminate(number: int, _frame: object) -> None:
    """Stop as on Ctrl-C, so that unfinished files are removed."""
    raise SystemExit(128 + number)


def _report(message: str, hint: str | None) -> None:
    say(f"error: {message}")
    if hint:
        say(f"hint: {hint}")
