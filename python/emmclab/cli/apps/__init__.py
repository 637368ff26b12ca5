"""`emmclab apps`: runs applications in closed loop; `run_options` contains the options that its commands share."""

from emmclab.cli.command import command

#: The modules that define the commands of `emmclab apps`, in the order of the help.
MODULES = ("presets", "run", "solutions", "live", "learn")


@command("emmclab apps", "emmclab apps run facebook")
def apps() -> None:
    """Run applications in closed loop on a simulated device and show what their users wait for.

    Without a command: lists the applications.
    """
