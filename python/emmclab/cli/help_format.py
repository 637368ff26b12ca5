"""Formats help texts: paragraphs that fill the terminal, and one line for each example."""

import inspect
from collections.abc import Callable
from typing import Any


def examples(*commands: str) -> str:
    r"""Return the examples of a help text: command lines, each with an optional purpose after ` # `.

    >>> examples("emmclab head trace.txt", "emmclab head - # of stdin").split("\n\n")
    ['Examples:', '[cyan]emmclab head trace.txt[/]', '[cyan]emmclab head -[/] # of stdin']
    """
    lines = []
    for command in commands:
        line, mark, purpose = command.partition(" # ")
        lines.append(f"[cyan]{line}[/]{mark}{purpose}")
    return "\n\n".join(["Example:" if len(lines) == 1 else "Examples:", *lines])


def paragraphs(command: Callable[..., Any]) -> str:
    r"""Return the docstring of a command with one line for each paragraph; the help wraps them.

    >>> def head() -> None:
    ...     '''Show requests.
    ...
    ...     In order
    ...     of arrival.
    ...     '''
    >>> paragraphs(head)
    'Show requests.\n\nIn order of arrival.'
    """
    text = inspect.getdoc(command) or ""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
