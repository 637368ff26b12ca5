"""Completion for bash, zsh and fish: scripts made of the command line itself.

A script holds all commands, options and names, so that no process is started while somebody types.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from emmclab import __version__
from emmclab.cli.completion.parameters import Command, commands
from emmclab.errors import ConfigError

#: The shells, each with the place of its script below the prefix of an installation.
SHELLS = {
    "bash": "share/bash-completion/completions/emmclab",
    "zsh": "share/zsh/site-functions/_emmclab",
    "fish": "share/fish/vendor_completions.d/emmclab.fish",
}


def script(shell: str) -> str:
    """Give the script of a shell.

    Raises:
        ConfigError: there is none for this shell.
    """
    if shell not in SHELLS:
        raise ConfigError(
            f"there is no completion for `{shell}`",
            kind="config",
            field="--show-completion",
            hint=f"name one of: {', '.join(SHELLS)}",
        )
    make: Callable[[list[Command], str], str] = import_module(f"{__name__}.{shell}").script
    return make(commands(), f"emmclab {__version__}, by `emmclab --show-completion {shell}`")
