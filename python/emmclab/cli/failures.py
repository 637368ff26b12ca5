"""How commands end: exceptions become messages and exit codes, never a traceback; signals are requests to end."""

import contextlib
import errno
import io
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import typer
from typer.core import TyperGroup

from emmclab import __version__
from emmclab.cli.console import ClosedPipe, print_stderr
from emmclab.errors import ConfigError, EmmclabError, InputError
from emmclab.runtime.command_line import words
from emmclab.runtime.files import written_files

#: Time that interrupted work has to end after its child programs were terminated, seconds.
_GRACE_S = 0.5

_Value = TypeVar("_Value")


def terminating() -> list[signal.Signals]:
    """Return the signals that end a command: SIGTERM and SIGHUP, which a closed terminal sends.

    SIGHUP is left out if it is ignored, as under nohup.
    """
    numbers = [signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


class Ending:
    """Records whether a signal requested the end."""

    def __init__(self) -> None:
        """Begin with no signal received."""
        self.is_requested = False

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Record that a signal arrived."""
        self.is_requested = True


@contextmanager
def stop_on_signals() -> Iterator[Ending]:
    """Handle Ctrl-C, SIGTERM and SIGHUP as a request to stop."""
    stop = Ending()
    former = {number: signal.signal(number, stop) for number in (signal.SIGINT, *terminating())}
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def ended_by_signals(work: Callable[[], _Value]) -> _Value:
    """Do work that may wait for another machine without a time limit; a signal ends the wait immediately.

    The work is done in a thread. If a signal handler raises an exception, the programs that the work has
    started, such as ssh, are terminated, and the thread is abandoned.
    """
    values: list[_Value] = []
    errors: list[BaseException] = []
    # After an interrupted `Thread.join`, Python 3.11 considers the thread ended, so an event is used instead.
    done = threading.Event()

    def do() -> None:
        try:
            values.append(work())
        except BaseException as error:
            errors.append(error)
        done.set()

    before = _children()
    try:
        threading.Thread(target=do, daemon=True).start()
        done.wait()
    except BaseException:
        for child in _children() - before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        done.wait(_GRACE_S)
        raise
    if errors:
        raise errors[0]
    return values[0]


def _children() -> set[int]:
    """Return the ids of the child processes; empty on a system that does not list them."""
    children: set[int] = set()
    for file in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            children |= {int(child) for child in file.read_text(encoding="ascii").split()}
    return children


@contextmanager
def output_aside(as_json: bool) -> Iterator[None]:
    """Redirect stdout of child processes to stderr within the block, if stdout is reserved for JSON."""
    if not as_json:
        yield
        return
    sys.stdout.flush()
    own_stdout = os.dup(1)
    try:
        os.dup2(_stderr_descriptor(), 1)
        yield
    finally:
        os.dup2(own_stdout, 1)
        os.close(own_stdout)


def _stderr_descriptor() -> int:
    """Return the file descriptor of stderr, or a descriptor of /dev/null if stderr is closed."""
    try:
        os.fstat(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
    return 2


BAD_INPUT, FAILED_RUN, EARLY_END, INTERRUPTED, CLOSED_PIPE = 2, 1, 3, 130, 141
#: Exit codes of every command, with their meaning.
EXIT_CODES = {
    0: "done",
    FAILED_RUN: "failed run",
    BAD_INPUT: "bad input or option",
    EARLY_END: "a simulated device stopped before the end of its trace, or a replay on a disk was interrupted",
    4: "a power cut broke a promise",
    5: "no power cut was tested: the check or the workload tested nothing",
    INTERRUPTED: "Ctrl-C",
    CLOSED_PIPE: "closed pipe",
}

#: Commands whose arguments may contain another command without a preceding `--`.
_COMMANDS_WITHIN = {"record"}

#: Matches the message of typer for a value that is not a number.
_NUMBERS = re.compile(r"is not a valid (int|float)(?:eger)?(?: range)?")

#: Messages about the results that are stored so far. If the run is interrupted, the last message is printed.
complete_files: list[str] = []

#: Errors of the operating system that the arguments did not cause, such as a full disk.
_RUN_FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ENOMEM, errno.EMFILE}


def run(command: Callable[..., Any], arguments: list[str]) -> int:
    """Run a command; convert exceptions to an exit code and messages `error:` and `hint:`."""
    words[:] = arguments
    for number in terminating():
        signal.signal(number, _terminate)
    closed = _replace_closed()
    _prepare_stdout()
    try:
        _refuse_empty(arguments)
        code = command(args=arguments, prog_name="emmclab", standalone_mode=False)
        if code == INTERRUPTED:  # Typer's answer to Ctrl-C.
            raise KeyboardInterrupt
        sys.stdout.flush()
        if closed is not None and closed.lost:
            _report("the standard output is closed", "redirect it, for example `> result.txt` or `> /dev/null`")
            return FAILED_RUN
        return code if isinstance(code, int) else 0
    except (ClosedPipe, BrokenPipeError):
        return CLOSED_PIPE
    except SystemExit as end:
        # Typer exits with this status if the reader of an output pipe has closed the pipe.
        if end.code == FAILED_RUN:
            return CLOSED_PIPE
        raise
    except (KeyboardInterrupt, typer.Abort):
        print_stderr(f"interrupted; {_complete_files()}")
        return INTERRUPTED
    except EmmclabError as error:
        _report(str(error), error.hint)
        return FAILED_RUN if is_run_failure(error) else BAD_INPUT
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "emmclab"
        message = error.format_message().rstrip(".")
        message = _NUMBERS.sub(
            lambda match: "is not a whole number" if match[1] == "int" else "is not a number", message
        )
        in_group = isinstance(getattr(context, "command", None), TyperGroup)
        contents = "commands" if in_group and "command" in message else "options"
        _report(message[:1].lower() + message[1:], f"`{path} --help` lists its {contents}")
        return BAD_INPUT
    except OSError as error:
        refusal = InputError.of(error)
        _report(str(refusal), refusal.hint)
        return FAILED_RUN if error.errno in _RUN_FAILURES else BAD_INPUT
    except OverflowError as error:  # An integer that is too large for the core, or negative.
        _report(
            f"a number is outside the range of its option: {error}", "give a number that is smaller, or not negative"
        )
        return BAD_INPUT
    except MemoryError:
        _report("there is not enough memory", "profile fewer traces at once, or a part of the trace")
        return FAILED_RUN
    except Exception as error:  # A bug; the user gets one line for any exception.
        if os.environ.get("EMMCLAB_DEBUG"):
            traceback.print_exc()
        _report(
            f"this is a bug in emmclab {__version__} ({type(error).__name__}: {error})",
            "run it again with EMMCLAB_DEBUG=1 and report its output to the project's issue list",
        )
        return FAILED_RUN
    finally:
        _close_stdout()


def is_run_failure(error: EmmclabError) -> bool:
    """Return whether an error has another cause than the arguments, such as a full disk."""
    return error.errno in _RUN_FAILURES or error.kind == "failed"


def _refuse_empty(words: list[str]) -> None:
    """Reject an empty argument before `--`; as a path, it would mean the current folder."""
    end = words.index("--") if "--" in words else len(words)
    if "" not in words[:end] or words[0] in _COMMANDS_WITHIN:
        return
    position = words.index("")
    previous = f" after `{words[position - 1]}`" if position else ""
    raise ConfigError(
        f"argument {position + 1}{previous} is empty",
        field="argument",
        hint="check that the variables of the shell are set; write an empty value as `--option=`",
    )


def _complete_files() -> str:
    """Return a text that lists the complete files of an interrupted command; incomplete files were removed."""
    if complete_files:
        return complete_files[-1]
    if not written_files:
        return "no file was written"
    more = f" and {len(written_files) - 3:,} more" if len(written_files) > 3 else ""
    return f"complete: {', '.join(written_files[:3])}{more}"


class _ClosedStream(io.TextIOBase):
    """Replaces a standard stream that was closed before emmclab started; remembers whether output was lost."""

    encoding = "utf-8"
    lost = False

    def write(self, text: str) -> int:
        self.lost = self.lost or bool(text)
        return len(text)

    def fileno(self) -> int:
        return 1


def _replace_closed() -> _ClosedStream | None:
    """Replace closed standard streams; return the replacement of stdout.

    Python sets a closed stream to None. The next opened file would then get the descriptor of the stream, and be
    overwritten by output.
    """
    replacement = _ClosedStream() if sys.stdout is None else None
    for number, stream in ((0, sys.stdin), (1, sys.stdout), (2, sys.stderr)):
        if stream is None:
            # Give the closed stream's descriptor to /dev/null, so that no other file gets it. It is read-only, so that
            # writes by the core fail.
            while os.open(os.devnull, os.O_RDONLY) < number:
                pass
    if replacement is not None:
        sys.stdout = replacement
    if sys.stderr is None:
        sys.stderr = _ClosedStream()
    return replacement


def _close_stdout() -> None:
    """Discard unwritten output of stdout, so that the interpreter prints no second error at exit."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _prepare_stdout() -> None:
    """Configure stdout to accept any character, and add a buffer if PYTHONUNBUFFERED has removed it.

    Without a buffer, Python would lose output that the system does not write at once. File names may contain bytes that
    are not text, and the encoding may be ASCII.
    """
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        sys.stdout = os.fdopen(sys.stdout.fileno(), "w", encoding=sys.stdout.encoding, closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _terminate(number: int, _frame: object) -> None:
    """Raise `SystemExit` on a signal, so that unfinished files are removed as on Ctrl-C."""
    raise SystemExit(128 + number)


def _report(message: str, hint: str | None) -> None:
    print_stderr(f"error: {message}")
    if hint:
        print_stderr(f"hint: {hint}")
