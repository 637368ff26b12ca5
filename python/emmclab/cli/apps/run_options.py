"""Options and output of the commands that run applications."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from emmclab.apps.closed_loop import (
    APPLICATION_OPTIONS,
    AppResult,
    ExecutionOptions,
    SoftwareOptions,
    host_for,
    order_note_of,
    run_application,
)
from emmclab.cli import console
from emmclab.cli.console import in_a_folder, print_json, print_note, print_stderr, stdout
from emmclab.cli.name_completion import application_names, device_names, network_names, several
from emmclab.cli.options import argument, declared, option
from emmclab.cli.progress import Working
from emmclab.cli.simulation_options import DEVICE_OPTION, Used, configured, preconditioned
from emmclab.errors import ConfigError
from emmclab.runtime.lists import split_names
from emmclab.simulation.layers import Setting
from emmclab.traces.inputs import ProvenanceFields

if TYPE_CHECKING:
    from emmclab.apps.solutions import Solution
    from emmclab.simulation.device import Device

RUN = "Run"
#: Names of the command-line option that selects one or several networks.
_NETWORK_OPTION = ("--network", "--networks")

Application = Annotated[
    str,
    argument(
        "NAME|FILE", "An application: a preset (`emmclab apps`) or a TOML file.", autocompletion=application_names
    ),
]
Devices = Annotated[
    str,
    option(
        "The devices, separated by commas: presets (`emmclab devices`) or TOML files.",
        "Device",
        *DEVICE_OPTION,
        metavar="DEVICE,...",
        autocompletion=several(device_names),
    ),
]
Network = Annotated[
    str, option("A network of the host.", RUN, *_NETWORK_OPTION, metavar="NAME", autocompletion=network_names)
]
Networks = Annotated[
    str,
    option(
        "Networks of the host, separated by commas.",
        RUN,
        *_NETWORK_OPTION,
        metavar="NAME,...",
        autocompletion=several(network_names),
    ),
]
Host = Annotated[str | None, declared("host", APPLICATION_OPTIONS, option="--host")]
LiveHost = Annotated[
    str,
    declared(
        "host",
        APPLICATION_OPTIONS,
        option="--host",
        default="",
        about="The host: a preset (`emmclab apps hosts`) or a TOML file.",
    ),
]
Page = Annotated[Path | None, option("Also write a page: time lines and tables.", callback=in_a_folder)]


@dataclass(frozen=True)
class Running:
    """Command-line options for how applications are run."""

    execution: ExecutionOptions
    used: Used = None
    check: Annotated[bool, declared("check", APPLICATION_OPTIONS)] = False

    def options(self) -> ExecutionOptions:
        """Return the options of a run; with `--used`, these include the preconditioning of the device."""
        return {**self.execution, "precondition": preconditioned(self.execution["precondition"], self.used)}

    def run(
        self, name: str, device: "Device", network: str, *, solution: "Solution | None" = None, **more: Any
    ) -> AppResult:
        """Run an application and print progress lines; `more` are options of `run_application`."""
        run = run_application if solution is None else solution.run
        with_solution = "" if solution is None else f", {solution.name}"
        # Preconditioning and the run of a program report no progress, so only the elapsed time is printed.
        with Working(f"{name} on {device.name} over {network}{with_solution}"):
            return run(name, device, network=network, check=self.check, **self.options(), **more)


def software(
    host: str | None, devices: "Sequence[Device]", layer_settings: Mapping[str, Setting], options: SoftwareOptions
) -> SoftwareOptions:
    """Convert command-line options to the options of a run: host, layers, and other applications."""
    second = options["second"]
    return {
        **options,
        "host": host or host_for(devices),
        "layer_settings": layer_settings,
        "second": configured(second, []) if isinstance(second, str) else second,
    }


def devices_of(text: str, settings: Sequence[str], capacity: str | None) -> "list[Device]":
    """Return the devices in the value of --device."""
    return [configured(name, settings, capacity) for name in split_names(text, "device", "--device", "nexus5,sdcard")]


def networks_of(text: str) -> list[str]:
    """Return the networks in the value of --network."""
    return split_names(text, "network", "--network", "wifi,usb")


def require_single(command: str, device: str, network: str) -> None:
    """Reject several devices or networks, which only `emmclab apps compare` accepts."""
    if "," in device or "," in network:
        raise ConfigError(
            f"`{command}` runs one application on one device with one network",
            field="--device" if "," in device else "--network",
            hint="use `emmclab apps compare` for several applications, devices or networks",
        )


def write_page(
    results: Sequence[AppResult], faster: Sequence[AppResult], html: Path | None, provenance: ProvenanceFields
) -> None:
    """Write the HTML page of application runs, if requested."""
    if html is not None:
        from emmclab.pages.applications import render

        console.write_page(html, render(results, faster, provenance))


def show_results(
    results: Sequence[AppResult], faster: Sequence[AppResult], as_json: bool, provenance: ProvenanceFields
) -> None:
    """Print application runs, and the runs in which parts of the storage were infinitely fast."""
    if as_json:
        runs = [result.to_dict() for result in results]
        fields: Any = runs[0] if len(runs) == 1 else {"runs": runs}
        if faster:
            fields["what_if"] = [{"part": run.app.what_if[0], "runtime_ns": run.app.runtime_ns} for run in faster]
        for text in dict.fromkeys(text for result in (*results, *faster) for text in result.warnings):
            print_stderr(f"warning: {text}")
        print_json(fields | {"provenance": provenance})
        print_note(order_note_of(results, provenance), aside=True)
        return
    from emmclab.cli.apps.show_applications import show_run, show_runs, show_what_if

    if len(results) == 1:
        show_run(stdout(), results[0])
    else:
        show_runs(stdout(), results)
        print_note(order_note_of(results, provenance), aside=False)
    if faster:
        show_what_if(stdout(), results[0], faster)
