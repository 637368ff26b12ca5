"""`emmclab validate TRACE...`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.text import Text

from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_stderr, stdout
from emmclab.cli.failures import is_run_failure
from emmclab.cli.name_completion import device_names, several
from emmclab.cli.options import AsJson, Reading, TraceFiles, option
from emmclab.cli.profile import distinct
from emmclab.cli.progress import Meter
from emmclab.cli.simulation_options import DEVICE_OPTION, BaseDevice, Mode, Precondition, Seed, Wrap
from emmclab.cli.tables import show_table
from emmclab.errors import EmmclabError, UnsupportedError
from emmclab.runtime.files import printable
from emmclab.runtime.lists import once, split_names
from emmclab.simulation.device import Device
from emmclab.simulation.run_options import parse_precondition

if TYPE_CHECKING:
    from emmclab.calibration.validation import Validation
    from emmclab.traces.trace import Trace


@command("emmclab validate trace.txt --html validation.html", "emmclab validate trace.txt --device nexus5 --json")
def validate(
    *,
    traces: TraceFiles,
    devices: Annotated[
        str | None,
        option(
            "Also validate these devices, without a calibration: presets or TOML files.",
            "Device",
            *DEVICE_OPTION,
            metavar="A,B,...",
            autocompletion=several(device_names),
        ),
    ] = None,
    base: BaseDevice = None,
    mode: Mode = "auto",
    precondition: Precondition = "none",
    wrap_addresses: Wrap = False,
    seed: Seed = 1,
    html: Annotated[Path | None, option("Also write a page.", callback=in_a_folder)] = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Compare simulated with recorded times: calibrate on the first half of a recording, replay the second.

    Recordings that cannot be validated are listed with the reason; the exit status is 2 only if none can be
    validated.
    """
    names = [] if devices is None else split_names(devices, "device to validate", "--device", "nexus5,ufs31")
    devices_to_validate = [Device.named(name) for name in names]
    parse_precondition(precondition)
    options: dict[str, Any] = {
        "mode": mode,
        "precondition": precondition,
        "wrap_addresses": wrap_addresses,
        "seed": seed,
    }
    options["base"] = None if base is None else Device.named(base)
    refusals = _Refusals(among=len(traces))
    opened: dict[Path, Trace] = {}
    for path in once(traces):
        with refusals.of(path):
            opened[path] = reading.open(path)
    distinct([*opened.values()])
    validations, sources = [], []
    for path, trace in opened.items():
        with refusals.of(path):
            validations.append(_validate_recording(trace, devices_to_validate, **options))
            sources.append(trace)
            reading.note_changed(trace.name, trace.ledger)
    if not validations:
        raise UnsupportedError(
            f"none of {len(traces)} recordings can be validated", hint="the messages above give the reasons"
        )
    _print_findings(validations, sources, devices_to_validate, refusals.printed, html, as_json=as_json)


class _Refusals:
    """Prints and collects the reasons why recordings cannot be validated; raises the error of a single recording."""

    def __init__(self, among: int) -> None:
        self._among = among
        self.printed: list[dict[str, str | None]] = []

    @contextlib.contextmanager
    def of(self, path: Path) -> Iterator[None]:
        """Handle an error in the `with` block: print and store it as the reason why `path` is not validated.

        Errors such as a full disk, and errors of the only recording, are raised again.
        """
        try:
            yield
        except EmmclabError as error:
            if self._among == 1 or is_run_failure(error):
                raise
            name, reason = printable(path), str(error)
            if not reason.startswith(name):  # Most errors begin with `FILE: ` or `FILE:LINE: `.
                reason = f"{name}: {reason}"
            print_stderr(f"not validated: {reason}{f' ({error.hint})' if error.hint else ''}")
            self.printed.append({"file": name, "reason": reason, "hint": error.hint})


def _validate_recording(trace: Trace, devices: Sequence[Device], **options: Any) -> Validation:
    from emmclab.calibration.validation import validate as validate_recording

    with _Steps() as steps:
        return validate_recording(trace, devices, step=steps.begin, progress=steps.note, **options)


class _Steps(contextlib.ExitStack):
    """Shows the progress of consecutive steps, with a meter for each."""

    _meter: Meter

    def begin(self, title: str) -> None:
        """End the previous step, and start a step with this title."""
        self.close()
        self._meter = self.enter_context(Meter(title))

    def note(self, done: int, total: int | None, requests: int, _simulated_s: float) -> None:
        """Update the progress of a replay."""
        self._meter(done, total, requests)


def _print_findings(
    validations: Sequence[Validation],
    traces: Sequence[Trace],
    devices: Sequence[Device],
    refused: Sequence[dict[str, str | None]],
    html: Path | None,
    *,
    as_json: bool,
) -> None:
    from emmclab.simulation.device import Provenance

    provenance = Provenance(devices, traces).to_dict()
    if html is not None:
        from emmclab.pages.validation import write_validation

        write_validation(validations, html, provenance, refused)
        print_stderr(f"report: {html}")
    if as_json:
        rows = [validation.to_dict() for validation in validations]
        print_json({"recordings": rows, "refused": refused, "provenance": provenance})
        return
    _show(stdout(), validations)


def _show(console: Console, validations: Sequence[Validation]) -> None:
    from emmclab.calibration import validation_text as texts

    for validation in validations:
        console.print(Text(texts.headline(validation), "bold"), soft_wrap=True)
    show_table(console, texts.overview(validations))
    for validation in validations:
        console.print()
        console.print(Text.assemble((validation.trace, "bold"), f": {texts.method(validation)}"), soft_wrap=True)
        for text in texts.notes(validation):
            console.print(Text(text, "yellow"), soft_wrap=True)
        show_table(console, texts.times(validation))
        for table in texts.groups(validation.main):
            show_table(console, table)
        if text := texts.few_note(validation.main.judgement):
            console.print(Text(text, "dim"), soft_wrap=True)
