"""`emmclab control SOCKET COMMAND`."""

from pathlib import Path
from typing import Annotated

from emmclab.cli.command import command
from emmclab.cli.console import print_json, print_stderr
from emmclab.cli.name_completion import control_commands
from emmclab.cli.options import argument
from emmclab.errors import ConfigError


@command("emmclab control c.sock cut", "emmclab control c.sock set cache.lies=flush")
def control(
    socket: Annotated[Path, argument("SOCKET", "The socket of `emmclab serve --control`.")],
    command: Annotated[
        str, argument("COMMAND", "status, cut, restore, set KEY=VALUE, or stop.", autocompletion=control_commands)
    ],
    setting: Annotated[
        str | None,
        argument(
            "[KEY=VALUE]", "With set: a setting of the device that can change in use, or clock=real|free|xFACTOR."
        ),
    ] = None,
) -> None:
    """Print the figures of a served device (JSON), cut its power, restore it, change a setting, or end it."""
    from emmclab.live.control import COMMANDS, ask

    if command not in COMMANDS:
        raise ConfigError(f"there is no command `{command}`", field="COMMAND", hint=f"use one of {', '.join(COMMANDS)}")
    if (command == "set") != (setting is not None):
        raise ConfigError(
            "`set` needs KEY=VALUE; the other commands have no argument",
            field="KEY=VALUE",
            hint="write the command as `emmclab control SOCKET set clock=x0.1`",
        )
    arguments = {}
    if setting is not None:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(
                f"`{setting}` is not KEY=VALUE",
                field="KEY=VALUE",
                hint="write the command as `emmclab control SOCKET set clock=x0.1`",
            )
        arguments = {"key": key, "value": value}
    answer = ask(socket, command, **arguments)
    if command == "status":
        print_json(answer["status"])
    else:
        print_stderr("done")
