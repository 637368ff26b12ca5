"""The process that `emmclab.pages.chart_files` starts: executes calls of vl-convert until its input ends.

It is run as a script, so that it does not import emmclab.
"""

import pickle
import signal
import sys

import vl_convert


def serve() -> None:
    """Execute calls until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    calls, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            function, arguments, options = pickle.load(calls)  # noqa: S301 - pickled by the parent process
        except EOFError:
            return
        refusal, answer = None, None
        try:
            answer = getattr(vl_convert, function)(*arguments, **options)
        except (ValueError, TypeError) as error:
            refusal = str(error)
        pickle.dump((refusal, answer), answers)
        answers.flush()


if __name__ == "__main__":
    serve()
