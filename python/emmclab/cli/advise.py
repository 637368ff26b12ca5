"""`emmclab advise TRACE`."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from emmclab.advice.advise import FIGURES, ORDERS, Advised
from emmclab.advice.advise import advise as try_options
from emmclab.advice.device_state import AUTO, USED
from emmclab.advice.journal_modes import MODE_FIGURES
from emmclab.advice.lifetime import LIFETIME, Life, lifetime_text, measurement_text
from emmclab.cli.console import print_json, print_stderr, stdout
from emmclab.cli.help_format import examples
from emmclab.cli.name_completion import complete_words
from emmclab.cli.options import AsJson, Reading, TraceFiles
from emmclab.cli.output_files import in_a_folder
from emmclab.cli.progress import Counter, StudyMeter
from emmclab.cli.show_profile import framed
from emmclab.cli.show_runs import show_provenance
from emmclab.cli.simulation_options import (
    Capacity,
    DeviceName,
    FlushEvery,
    Images,
    Mode,
    Settings,
    Wrap,
    configured,
    end,
)
from emmclab.cli.study_options import RESULTS, executor
from emmclab.cli.used_device import Used, preconditioned
from emmclab.comparison.seed_statistics import check_random
from emmclab.runtime.number_format import signed, size
from emmclab.simulation.device import Device
from emmclab.simulation.result_fields import result_field

if TYPE_CHECKING:
    from emmclab.studies.advise_deep import Deep

#: Maximum number of combinations that are printed.
_SHOWN = 10
#: Bytes of preconditioning from which its amount is printed first: some tens of seconds.
_MUCH_BYTES = 100 << 30
#: Capacity to which a note proposes to scale a device.
_SMALL_BYTES = 8 << 30


@dataclass(frozen=True)
class DeviceState:
    """The state of the devices, and how requests are replayed, as given on the command line."""

    mode: Mode = "auto"
    precondition: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="Data on the devices before: auto, none, sequential:PCT, random:PCT, steady[:CAPACITIES], "
            "used:AGE or a trace. auto: the state that matches the recorded mean response best, else "
            f"{USED}.",
            rich_help_panel="Replay",
        ),
    ] = AUTO
    used: Used = None
    new: Annotated[
        bool,
        typer.Option(
            "--new",
            help="Simulate new (empty) devices, like --precondition none: faster, but garbage collection "
            "never runs.",
        ),
    ] = False
    flush_every: FlushEvery = 0
    wrap_addresses: Wrap = False
    images: Images = None

    def replay(self) -> dict[str, Any]:
        """Return the options of a replay, without the state of the device."""
        return {
            "mode": self.mode,
            "flush_every": self.flush_every,
            "wrap_addresses": self.wrap_addresses,
        }


@dataclass(frozen=True)
class Together:
    """The search of combinations, as given on the command line."""

    deep: Annotated[
        bool,
        typer.Option(
            "--deep",
            help="Also search combinations of options; its page is NAME-deep.html. For settings of your own "
            "choice: `emmclab search`.",
            rich_help_panel="Together",
        ),
    ] = False
    budget: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="With --deep: number of trials by each method.",
            rich_help_panel="Together",
        ),
    ] = 60
    results: Annotated[
        str,
        typer.Option(
            metavar="DIR|URL",
            help="With --deep: results folder or bucket, whose cells are not run again.",
            rich_help_panel="Together",
        ),
    ] = str(RESULTS)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog=examples("emmclab advise trace.txt --device nexus5 --by p99 --html advice.html"))(
        advise
    )


def advise(
    *,
    traces: TraceFiles,
    device: DeviceName = "nexus5",
    settings: Settings = [],  # noqa: B006
    capacity: Capacity = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="mean|p99|waf|lifetime",
            help="Figure by which the options are ranked.",
            autocompletion=complete_words("mean", "p99", "waf", "lifetime"),
        ),
    ] = "mean",
    state: DeviceState,
    lifetime: Annotated[
        bool,
        typer.Option(
            "--lifetime",
            help="Also estimate the lifetime, with --new on a used device; takes some seconds more per "
            "option and 32 GB of capacity.",
        ),
    ] = False,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Run with N seeds: figures are means, and an option is named best only if the difference is "
            "significant over the seeds.",
        ),
    ] = 1,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", callback=in_a_folder, help="Also write a page.")
    ] = None,
    together: Together,
    jobs: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Simulations at a time; 0 for one per processor.",
        ),
    ] = 0,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Simulate design options under a trace and rank them, with the cost of each.

    Devices are in the state that matches the recorded response best, or, if none is recorded, in that of a
    phone after a year, unless --new, --used or --precondition is given.
    Exit status 3: the device as it is stopped before the end of the trace (full or worn out).
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
            planned=lambda devices, most: _print_plan(counter, configuration, devices, most, state.images),
            precondition="none" if state.new else prepared,
            images=state.images,
            **state.replay(),
        )
    reading.note_changed(advised.base.fields["trace"], advised.base.fields["ledger"])
    combined = None
    if together.deep and not advised.base.fields["run"]["stopped"]:
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
            precondition=advised.base.fields["options"]["precondition"],
            **state.replay(),
        )
    base_made = advised.base.fields["provenance"]
    if html is not None:
        from emmclab.pages.advice import write_advice

        write_advice(advised, html)
        print_stderr(f"report: {html}")
        if combined is not None:
            from emmclab.pages.search import write_search_report

            beside = html.with_name(f"{html.stem}-deep{html.suffix}")
            write_search_report(combined.found, beside, base_made)
            print_stderr(f"report: {beside}")
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
    counter: Counter, device: Device, devices: int, most_bytes: float, images: Path | None
) -> None:
    """Print how much data preconditioning writes at most, and what would make it less, if it takes long."""
    counter.expect(most_bytes)
    if most_bytes < _MUCH_BYTES:
        return
    kept = "" if images else ", and --images DIR keeps them for later runs"
    each = f"{devices} devices of {size(device.capacity_bytes)}" if devices > 1 else "a device"
    smaller = size(most_bytes * _SMALL_BYTES / device.capacity_bytes)
    print_stderr(
        f"advise on {device.name}: {each} to precondition, at most {size(most_bytes)} to write; "
        f"--capacity 8GB writes {smaller}{kept}"
    )


def run_deep(device: str, traces: list[Path], results: str, jobs: int, **options: Any) -> Deep:
    """Search combinations under a progress meter; options are those of `advise_deep`."""
    from emmclab.runtime.result_storage import place_of
    from emmclab.studies.advise_deep import advise_deep

    engine = executor(jobs)
    with contextlib.closing(engine), StudyMeter("options together") as meter:
        place = place_of(results, "advise-deep")
        return advise_deep(device, [str(path) for path in traces], place, engine, progress=meter, **options)


def _show_together(console: Console, together: Deep) -> None:
    from emmclab.studies.advise_deep import CAPACITY, RAM, trial_options

    console.print()
    console.print(Text(together.headline, "bold"), soft_wrap=True)
    figure = FIGURES[together.by]
    table = _table(
        f"Combinations that no other beats in {ORDERS[together.by]}, RAM and size",
        (figure.head, "\n%", result_field("configuration.ram_kb").head, "Size\n%"),
    )
    front = sorted(together.found.front(), key=lambda one: one.figures[together.metric])
    base_kb = together.base.figures[RAM]
    for trial in front[:_SHOWN]:
        table.add_row(
            Text(" + ".join(trial_options(trial)) or "as it is"),
            figure.text(trial.figures[together.metric]),
            signed(together.change_pct(trial)),
            signed(trial.figures[RAM] - base_kb, 0),
            signed(together.change_pct(trial, CAPACITY)),
        )
    console.print(table)
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
    console.print()
    console.print(_options_table(advised))
    console.print()
    for advice in advised.options:
        note = f"; {advice.note}" if advice.note else ""
        console.print(Text(f"{advice.option}: {advice.about}{note}", "dim"))
    if advised.life:
        console.print()
        _show_lives(console, advised)
    for name, reason in advised.refused.items():
        console.print(Text(f"not possible here: {name}: {reason}", "yellow"), soft_wrap=True)
    _show_journal(console, advised)


def _options_table(advised: Advised) -> Table:
    """Return the table of figures by option; the lifetime is the first column if options are ranked by it."""
    base, by_lifetime = advised.base, advised.by == "lifetime"
    mean, p99, waf = FIGURES.values()
    ram = result_field("configuration.ram_kb")
    headings = (mean.head, "\n%", p99.head, "\n%", waf.head, "Size\n%", ram.head)
    table = _table(
        f"Options by {ORDERS[advised.by]}", ((LIFETIME.head, "\n%") if by_lifetime else ()) + headings
    )

    def life(one: Life | None) -> tuple[str, ...]:
        if not by_lifetime:
            return ()
        if one is None:
            return "–", "–"
        first = advised.life
        change = "" if one is first or not first else signed(100 * (one.host_gb / first.host_gb - 1))
        return one.text, change

    table.add_row(
        Text(f"{base['device']} as it is", "bold"),
        *life(advised.life),
        mean.text(base[mean.path]),
        "",
        p99.text(base[p99.path]),
        "",
        waf.text(base[waf.path]),
        "",
        ram.text(base[ram.path]),
    )
    for advice in advised.options:
        table.add_row(
            Text(advice.option),
            *life(advice.life),
            mean.text(advice.mean_response_ms),
            signed(advice.mean_change_pct),
            p99.text(advice.p99_response_ms),
            signed(advice.p99_change_pct),
            waf.text(advice.waf),
            signed(advice.capacity_change_pct),
            f"{advice.ram_kb:+d}" if advice.ram_kb else "0",
        )
    return table


def _show_journal(console: Console, advised: Advised) -> None:
    journal, base = advised.journal, advised.base
    console.print()
    console.print(Text(journal.headline, "bold" if journal.modes else "dim"), soft_wrap=True)
    if journal.modes:
        time, mean, flushes, pages = MODE_FIGURES
        headings: tuple[str, ...] = (time.head, "\n%", mean.head, "\n%", flushes.head, pages.head, "\n%")
        headings += (LIFETIME.head,) if advised.life else ()
        table = _table("Modes of the layer journal by time", headings)
        table.columns[0].header = "Mode"
        values = [base[field.path] for field in MODE_FIGURES]
        first = (
            time.text(values[0]),
            "",
            mean.text(values[1]),
            "",
            flushes.text(values[2] or 0),
            pages.text(values[3]),
            "",
        )
        life_gb = None if advised.life is None else advised.life.host_gb
        table.add_row(Text("none", "bold"), *first, *_terabytes(advised, life_gb))
        for one in journal.modes:
            table.add_row(
                Text(one.mode),
                time.text(one.run_s),
                signed(one.run_change_pct),
                mean.text(one.mean_response_ms),
                signed(one.mean_change_pct),
                flushes.text(one.flushes),
                pages.text(one.page_programs),
                signed(one.page_programs_change_pct),
                *_terabytes(advised, one.life_gb),
            )
        console.print(table)
    for note in dict.fromkeys(one.note for one in journal.modes if one.note):
        names = ", ".join(one.mode for one in journal.modes if one.note == note)
        console.print(Text(f"{names}: {note}", "dim"), soft_wrap=True)
    for mode, reason in journal.refused.items():
        console.print(Text(f"not possible here: journal:{mode}: {reason}", "yellow"), soft_wrap=True)


def _terabytes(advised: Advised, life_gb: float | None) -> tuple[str, ...]:
    return (lifetime_text(life_gb),) if advised.life else ()


def _show_lives(console: Console, advised: Advised) -> None:
    table = _table("Lifetime", (f"{FIGURES['waf'].short} in use", LIFETIME.display_unit, "years"))

    def add(name: Text, life: Life | None) -> None:
        if life is None:
            table.add_row(name, "–", "–", "–")
            return
        years = "–" if life.years is None else f"{life.years:,.2f}"
        table.add_row(name, FIGURES["waf"].text(life.waf), life.text, years)

    add(Text(f"{advised.base['device']} as it is", "bold"), advised.life)
    for advice in advised.options:
        add(Text(advice.option), advice.life)
    console.print(table)
    if life := advised.life:
        console.print(Text(measurement_text(life, advised.base), "dim"), soft_wrap=True)


def _table(title: str, headings: tuple[str, ...]) -> Table:
    table = framed(title)
    table.add_column("Option")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
