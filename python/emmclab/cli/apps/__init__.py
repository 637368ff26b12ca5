"""`emmclab apps`: applications in closed loop.

`run_options` has the options and the output of commands that run applications.
"""

from emmclab.cli.command import command

#: The modules of the commands, in the order of the help.
MODULES = ("presets", "run", "solutions", "live", "learn")


@command("emmclab apps", "emmclab apps run facebook")
def apps() -> None:
    """Run applications in closed loop on a simulated device and show where their users' time goes.

    Without a command: lists the applications.
    """
