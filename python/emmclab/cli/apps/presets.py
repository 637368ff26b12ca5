"""`emmclab apps list`, `show`, `hosts` and `schema`: the included applications and hosts."""

from emmclab import _core
from emmclab.apps import closed_loop
from emmclab.cli.apps.run_options import Application
from emmclab.cli.command import command
from emmclab.cli.console import print_json, print_stdout, stdout
from emmclab.cli.options import AsJson


@command("emmclab apps list --json", name="list")
def list_applications(as_json: AsJson = False) -> None:
    """List the included applications."""
    rows = closed_loop.applications()
    if as_json:
        print_json(rows)
        return
    from emmclab.cli.apps.show_applications import show_applications

    show_applications(stdout(), rows)


@command("emmclab apps show email")
def show(application: Application) -> None:
    """Print the file of an application, with its sources and assumptions."""
    print_stdout(closed_loop.application_text(application).rstrip("\n"))


@command("emmclab apps hosts")
def hosts(as_json: AsJson = False) -> None:
    """List the hosts (simulated computers) that run applications, with their partitions and networks."""
    rows = closed_loop.hosts()
    if as_json:
        print_json(rows)
        return
    from emmclab.cli.apps.show_applications import show_hosts

    show_hosts(stdout(), rows)


@command("emmclab apps schema")
def schema() -> None:
    """Print the JSON Schema of application files."""
    print_json(_core.app_schema())
