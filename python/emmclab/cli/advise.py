"""`emmclab advise TRACE`."""

import contextlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.text import Text

from emmclab.advice.advise import FIGURES, ORDERS, Advised, measurement_text
from emmclab.advice.advise import advise as try_options
from emmclab.advice.device_state import AUTO, USED
from emmclab.advice.tables import journal_table, lives_table, options_table
from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_json, print_stderr, stdout, write_page
from emmclab.cli.name_completion import complete_words
from emmclab.cli.options import AsJson, Reading, TraceFiles, option
from emmclab.cli.progress import Counter, StudyMeter, length
from emmclab.cli.show_runs import show_provenance
from emmclab.cli.simulation_options import (
    Capacity,
    DeviceName,
    FlushEvery,
    Images,
    Mode,
    Settings,
    Used,
    Wrap,
    configured,
    end,
    preconditioned,
)
from emmclab.cli.study_options import RESULTS, executor
from emmclab.cli.tables import table_of
from emmclab.comparison.seed_statistics import check_random
from emmclab.runtime.document import Column, TextTable, signed, size
from emmclab.simulation.device import Device
from emmclab.simulation.result_fields import result_field

if TYPE_CHECKING:
    from emmclab.studies.advise_deep import Deep

#: Maximum number of combinations of options that are printed.
_SHOWN = 10
#: Amount of preconditioning data, in bytes, from which on the amount is printed before the run. Writing it takes some
#: tens of seconds.
_MUCH_BYTES = 100 << 30
#: Bytes that preconditioning writes in a second on one processor; a present-day processor writes 15 to 30 GB.
_BYTES_PER_S = 15e9
#: Capacity in bytes to which the note on preconditioning suggests scaling a device.
_SMALL_BYTES = 8 << 30


@dataclass(frozen=True)
class DeviceState:
    """Command-line options for the state of the devices, and for how requests are replayed."""

    mode: Mode = "auto"
    precondition: Annotated[
        str,
        option(
            "State of the devices before the run: auto, none, sequential:PCT, random:PCT, steady[:CAPACITIES], "
            f"used:AGE or a trace. auto: the state that matches the recorded mean response best, or {USED}.",
            "Replay",
            metavar="WHAT",
        ),
    ] = AUTO
    used: Used = None
    new: Annotated[
        bool,
        option(
            "Simulate new (empty) devices, like --precondition none: faster, but without garbage collection.",
            advanced=True,
        ),
    ] = False
    flush_every: FlushEvery = 0
    wrap_addresses: Wrap = False
    images: Images = None

    def replay(self) -> dict[str, Any]:
        """Return the options of a replay, without the state of the device."""
        return {"mode": self.mode, "flush_every": self.flush_every, "wrap_addresses": self.wrap_addresses}


@dataclass(frozen=True)
class Together:
    """Command-line options for searching combinations of design options."""

    deep: Annotated[
        bool,
        option(
            "Also search combinations of options; the page of the search is NAME-deep.html. To search other "
            "settings, use `emmclab search`.",
            "Together",
        ),
    ] = False
    budget: Annotated[
        int, option("With --deep: number of trials of each method.", "Together", advanced=True, min=1)
    ] = 60
    results: Annotated[
        str,
        option(
            "With --deep: results folder or bucket; stored cells are not run again.",
            "Together",
            advanced=True,
            metavar="DIR|URL",
        ),
    ] = str(RESULTS)


@command("emmclab advise trace.txt --device nexus5 --by p99 --html advice.html")
def advise(
    *,
    traces: TraceFiles,
    device: DeviceName = "nexus5",
    settings: Settings = [],  # noqa: B006
    capacity: Capacity = None,
    by: Annotated[
        str,
        option(
            "Figure by which the options are ranked.",
            metavar="mean|p99|waf|lifetime",
            autocompletion=complete_words("mean", "p99", "waf", "lifetime"),
        ),
    ] = "mean",
    state: DeviceState,
    lifetime: Annotated[
        bool,
        option(
            "Also estimate the lifetime, with --new on a used device; takes some seconds per option and per 32 GB of "
            "capacity.",
            advanced=True,
        ),
    ] = False,
    seeds: Annotated[
        int,
        option(
            "Run with N seeds: figures are means, and an option is reported as the best only if the difference is "
            "significant over the seeds.",
            advanced=True,
            min=1,
        ),
    ] = 1,
    html: Annotated[Path | None, option("Also write a page.", callback=in_a_folder)] = None,
    together: Together,
    jobs: Annotated[int, option("Number of simulations at a time; 0 for one per processor.", advanced=True, min=0)] = 0,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Simulate design options under a trace and rank them, with the cost of each.

    Devices are in the state that matches the recorded response best or, if no response is recorded, in the state
    after a year in a phone, unless --new, --used or --precondition is given.
    Exit status 3: the unchanged device stopped before the end of the trace (full or worn out).
    """
    if together.deep and by in ORDERS:
        from emmclab.studies.advise_deep import require_order

        require_order(by)
    configuration = configured(device, settings, capacity)
    if seeds > 1:
        aged = USED if state.precondition == AUTO else state.precondition
        check_random([configuration], "none" if state.new else aged)
    opened = [reading.open(path) for path in traces]
    prepared = preconditioned(state.precondition, state.used, opened)
    # The counter also shows progress during preconditioning, and while lifetimes and layers are computed.
    with Counter(f"advise on {configuration.name}", "simulations of options") as counter:
        advised = try_options(
            configuration,
            opened,
            by=by,
            lifetime=lifetime,
            progress=lambda done, total: counter(done, total, 0),
            jobs=jobs,
            seeds=seeds,
            planned=lambda devices, most: _print_plan(counter, configuration, devices, most, jobs, state.images),
            precondition="none" if state.new else prepared,
            images=state.images,
            **state.replay(),
        )
    reading.note_changed(advised.base.trace, advised.base.ledger)
    combined = None
    if together.deep and not advised.base.run.stopped:
        combined = run_deep(
            device,
            traces,
            together.results,
            jobs,
            by=by,
            budget=together.budget,
            seeds=seeds,
            settings=dict(pair.split("=", 1) for pair in settings),
            capacity=capacity or "",
            reading=reading.changed_options(),
            precondition=advised.base.options["precondition"],
            **state.replay(),
        )
    base_made = advised.base.provenance
    if html is not None:
        from emmclab.pages.advice import write_advice

        write_advice(advised, html)
        print_stderr(f"report: {html}")
        if combined is not None:
            from emmclab.pages.search import render

            write_page(html.with_name(f"{html.stem}-deep{html.suffix}"), render(combined.found, base_made))
    if as_json:
        for text in advised.cautions:
            print_stderr(f"warning: {text}")
        print_json(
            {
                "device": advised.base.to_dict(),
                "state": advised.state.to_dict(),
                "life": None if advised.life is None else asdict(advised.life),
                "ranked_by": by,
                "options": [advice.to_dict() for advice in advised.options],
                "refused": advised.refused,
                "journal": advised.journal.to_dict(),
                "provenance": base_made,
                **({"together": combined.to_dict()} if combined is not None else {}),
            }
        )
    else:
        _show(stdout(), advised)
        if combined is not None:
            _show_together(stdout(), combined)
    end([advised.base])


def _print_plan(
    counter: Counter, device: Device, devices: int, most_bytes: float, jobs: int, images: Path | None
) -> None:
    """If preconditioning will write much data, print the maximum amount and time, and how to reduce it."""
    counter.expect(most_bytes)
    if most_bytes < _MUCH_BYTES:
        return
    images_hint = "" if images else ", and --images DIR keeps them for later runs"
    devices_text = f"{devices} devices of {size(device.capacity_bytes)}" if devices > 1 else "a device"
    smaller = size(most_bytes * _SMALL_BYTES / device.capacity_bytes)
    seconds = most_bytes / _BYTES_PER_S / min(devices, jobs or os.cpu_count() or 1)
    print_stderr(
        f"advise on {device.name}: {devices_text} to precondition, at most {size(most_bytes)} to write, about "
        f"{length(seconds)} at most; --capacity 8GB writes {smaller}{images_hint}"
    )


def run_deep(device: str, traces: list[Path], results: str, jobs: int, **options: Any) -> "Deep":
    """Search combinations of design options and show the progress; `options` are those of `advise_deep`."""
    from emmclab.runtime.result_storage import place_of
    from emmclab.studies.advise_deep import advise_deep

    engine = executor(jobs)
    with contextlib.closing(engine), StudyMeter("options together") as meter:
        place = place_of(results, "advise-deep")
        return advise_deep(device, [str(path) for path in traces], place, engine, progress=meter, **options)


def _show_together(console: Console, together: "Deep") -> None:
    from emmclab.studies.advise_deep import CAPACITY, RAM, trial_options

    console.print()
    console.print(Text(together.headline, "bold"), soft_wrap=True)
    figure = FIGURES[together.by]
    front = sorted(together.found.front(), key=lambda trial: trial.figures[together.metric])
    base_kb = together.base.figures[RAM]
    change, size_change = Column("Change", "%", short=""), Column("Size", "%")
    table = TextTable(
        f"Combinations that no other combination beats in {ORDERS[together.by]}, RAM and size",
        ["Option", figure.heading, change, result_field("configuration.ram_kb").heading, size_change],
        [
            [
                " + ".join(trial_options(trial)) or "as it is",
                figure.text(trial.figures[together.metric]),
                signed(together.change_pct(trial)),
                signed(trial.figures[RAM] - base_kb, 0),
                signed(together.change_pct(trial, CAPACITY)),
            ]
            for trial in front[:_SHOWN]
        ],
    )
    console.print(table_of(table, no_wrap=True))
    more = f", {len(front) - _SHOWN:,} more of them in --json" if len(front) > _SHOWN else ""
    words = f"{len(together.found.trials):,} trials, seed {together.found.seed}{more}"
    console.print(Text(words, "dim"), soft_wrap=True)


def _show(console: Console, advised: Advised) -> None:
    base = advised.base
    for text in advised.cautions:
        console.print(Text(f"warning: {text}", "yellow"), soft_wrap=True)
    console.print(Text(advised.headline, "bold"), soft_wrap=True)
    if text := advised.state.line:
        console.print(Text(text), soft_wrap=True)
    if text := advised.state.tried_line:
        console.print(Text(text, "dim"), soft_wrap=True)
    show_provenance(console, [base])
    _show_figures(console, options_table(advised))
    console.print()
    for advice in advised.options:
        note = f"; {advice.note}" if advice.note else ""
        console.print(Text(f"{advice.option}: {advice.about}{note}", "dim"))
    if advised.life:
        _show_figures(console, lives_table(advised))
        console.print(Text(measurement_text(advised.life, base), "dim"), soft_wrap=True)
    for name, reason in advised.refused.items():
        console.print(Text(f"not possible here: {name}: {reason}", "yellow"), soft_wrap=True)
    journal = advised.journal
    console.print()
    console.print(Text(journal.headline, "bold" if journal.modes else "dim"), soft_wrap=True)
    if journal.modes:
        _show_figures(console, journal_table(advised), above="")
    for note in dict.fromkeys(row.note for row in journal.modes if row.note):
        names = ", ".join(row.mode for row in journal.modes if row.note == note)
        console.print(Text(f"{names}: {note}", "dim"), soft_wrap=True)
    for mode, reason in journal.refused.items():
        console.print(Text(f"not possible here: journal:{mode}: {reason}", "yellow"), soft_wrap=True)


def _show_figures(console: Console, part: TextTable, above: str = "\n") -> None:
    """Print a table whose first row is the unchanged device."""
    console.print(above, end="")
    console.print(table_of(part, is_first_bold=True, no_wrap=True))
