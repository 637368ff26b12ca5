"""`emmclab apps`: applications in closed loop; `run_options` contains what the commands share."""

from emmclab.cli.command import command

#: The modules of the commands, in the order of the help.
MODULES = ("presets", "run", "solutions", "live", "learn")


@command("emmclab apps", "emmclab apps run facebook")
def apps() -> None:
    """Run applications in closed loop on a simulated device and show what their users wait for.

    Without a command: lists the applications.
    """
