"""`emmclab apps live NAME`."""

from pathlib import Path
from typing import Annotated

from emmclab.apps.closed_loop import NETWORK, AppResult, SoftwareOptions
from emmclab.apps.processes import LIVE_HOST, agreement, run_live
from emmclab.cli.apps.run_options import (
    RUN,
    Application,
    LiveHost,
    Network,
    Page,
    Running,
    require_single,
    software,
    write_page,
)
from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, stdout
from emmclab.cli.options import AsJson, option
from emmclab.cli.progress import Working
from emmclab.cli.simulation_options import Capacity, DeviceName, Settings, configured, layered
from emmclab.simulation.device import Provenance
from emmclab.traces.inputs import ProvenanceFields


@command("emmclab apps live facebook --device kingston-c4 # as root")
def live(
    *,
    application: Application,
    device: DeviceName = "nexus5",
    network: Network = NETWORK,
    host: LiveHost = LIVE_HOST,
    clock: Annotated[
        str, option("Clock of the device: real, or x and a factor (x0.1: ten times as fast).", RUN)
    ] = "real",
    above: SoftwareOptions,
    settings: Settings = [],  # noqa: B006
    capacity: Capacity = None,
    running: Running,
    record: Annotated[Path | None, option("Also write the trace of the device.", RUN, callback=in_a_folder)] = None,
    html: Page = None,
    as_json: AsJson = False,
) -> None:
    """Run an application as real processes on a served device, and in the model for comparison (needs root).

    The kernel of this machine provides the file systems and syncs.
    """
    require_single("live", device, network)
    device_settings, layer_settings = layered(settings, above["layers"])
    chosen = configured(device, device_settings, capacity)
    options = software(host, [chosen], layer_settings, above)
    with Working(f"{application} live on {chosen.name} over {network}"):
        measured = run_live(
            application, chosen, network=network, clock=clock, record=record, **running.options(), **options
        )
    model = running.run(application, chosen, network, **options)
    provenance = Provenance([chosen]).to_dict()
    write_page([measured, model], [], html, provenance)
    _show(measured, model, as_json, provenance)


def _show(measured: AppResult, model: AppResult, as_json: bool, provenance: ProvenanceFields) -> None:
    if as_json:
        fields = {"live": measured.to_dict(), "model": model.to_dict(), "agreement": agreement(measured, model)}
        print_json(fields | {"provenance": provenance})
        return
    from emmclab.cli.apps.show_applications import show_agreement, show_run

    show_run(stdout(), measured)
    show_agreement(stdout(), agreement(measured, model), measured.preparation or {})
