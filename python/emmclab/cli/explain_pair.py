"""`emmclab explain A B`: the differences between two results or two devices, and the effect of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text

from emmclab import _core
from emmclab.calibration.fit_sources import pair_note, runs_note
from emmclab.cli.console import print_json, print_note, print_stderr, stdout
from emmclab.cli.explain_texts import explain_difference
from emmclab.cli.options import Reading, option
from emmclab.cli.simulation_options import Images, Replay, configured
from emmclab.cli.tables import framed, show_explained
from emmclab.comparison.one_at_a_time import MAIN, ChangeEffect, OneAtATime, one_at_a_time
from emmclab.comparison.result_difference import (
    ResultDifference,
    RunDifference,
    differences,
    figure_differences,
    value_text,
)
from emmclab.errors import ConfigError
from emmclab.runtime.document import difference_text, signed
from emmclab.simulation.stored_result import StoredResult, read_result

#: Smallest change that is printed as a number, percent; smaller changes are printed as "< 0.01 %".
_LEAST_PCT = 0.01


@dataclass(frozen=True)
class Pair:
    """Command-line options for comparing two results or devices."""

    trace: Annotated[
        Path | None,
        option(
            "Simulate both devices under this trace, and compare the results.",
            "Two results or devices",
            metavar="TRACE",
        ),
    ] = None
    one_at_a_time: Annotated[
        bool,
        option(
            "Simulate the first again with each single difference from the second, and show how each "
            "difference changes the main figures.",
            "Two results or devices",
        ),
    ] = False
    images: Images = None

    def refuse(self) -> None:
        """Raise an error if these options are given although there is only one result or device."""
        for name, value in (("--trace", self.trace), ("--one-at-a-time", self.one_at_a_time)):
            if value:
                raise ConfigError(
                    f"`{name}` compares two devices or two results, and only one is given",
                    field=name,
                    hint="give two devices or results: `emmclab explain A B`",
                )


def explain_pair(first: str, second: str, capacity: str | None, pair: Pair, reading: Reading, as_json: bool) -> None:
    """Print the differences between two results, or two devices."""
    devices = [is_device(name) for name in (first, second)]
    if pair.trace is None:
        reading.refuse(f"{first} {second}")
    if devices[0] != devices[1]:
        names = (first, second) if devices[0] else (second, first)
        raise ConfigError(
            f"`{names[0]}` is a device, and `{names[1]}` is not",
            field="WHAT",
            hint="give two devices (presets or TOML files), or two results",
        )
    if all(devices):
        if pair.trace is None:
            if pair.one_at_a_time:
                raise ConfigError(
                    "`--one-at-a-time` needs a trace to simulate",
                    field="--one-at-a-time",
                    hint="give a trace with --trace",
                )
            device_a, device_b = (configured(name, [], capacity) for name in (first, second))
            explain_difference(device_a, device_b, as_json)
            print_note(pair_note(device_a, device_b), aside=as_json)
            return
        source = reading.open(pair.trace)
        replay = Replay(images=pair.images)
        runs = [replay.run(configured(name, [], capacity), [source]) for name in (first, second)]
        results = [StoredResult(run.run_name, "simulation", run.to_dict()) for run in runs]
    else:
        if pair.trace is not None or capacity is not None:
            name = "--capacity" if pair.trace is None else "--trace"
            raise ConfigError(
                f"`{name}` is for devices, and `{first}` is a result",
                field=name,
                hint="leave the option out: a result contains its trace and its device",
            )
        results = [read_result(name) for name in (first, second)]
    _explain_results(results[0], results[1], pair, as_json)
    print_note(runs_note([result.fields for result in results]), aside=as_json)


def is_device(name: str) -> bool:
    """Return whether a name is that of a device preset, or of a device file."""
    if Path(name).suffix == ".toml":
        return True
    return not Path(name).exists() and name in _core.device_presets()


def _explain_results(first: StoredResult, second: StoredResult, pair: Pair, as_json: bool) -> None:
    differing, figures = differences(first, second), figure_differences(first.fields, second.fields)
    for result in (first, second):
        if not result.provenance:
            print_stderr(
                f"warning: {result.place} has no `provenance` (inputs and settings): only options are compared"
            )
    single_changes = None
    if pair.one_at_a_time:
        single_changes = one_at_a_time(first, second, differing, images=pair.images, progress=_print_run)
        for text in single_changes.not_repeated:
            print_stderr(f"warning: {text}")
    if as_json:
        print_json(
            {
                "first": {"place": first.place, "name": first.name},
                "second": {"place": second.place, "name": second.name},
                "differences": [difference._asdict() for difference in differing],
                "figures": figures,
                **({} if single_changes is None else {"one_at_a_time": single_changes.to_dict()}),
            }
        )
        return
    console = stdout()
    for letter, result in zip("AB", (first, second), strict=True):
        console.print(Text.assemble((letter, "bold"), f": {result.name} ({result.place})"), soft_wrap=True)
    _show_differences(console, differing)
    if first.kind == second.kind == "other":
        console.print(Text("Figures of simulated runs are compared; these files have none", "dim"))
    else:
        _show_figures(console, figures)
    if single_changes is not None:
        _show_single_changes(console, single_changes)


def _print_run(number: int, total: int, words: str) -> None:
    print_stderr(f"run {number} of {total}: {words}")


def _show_differences(console: Console, rows: Sequence[RunDifference]) -> None:
    if not rows:
        console.print(Text("Inputs and settings are the same, as far as recorded"))
        return
    table = framed(f"Inputs and settings that differ: {len(rows)}", "", "Name", "A", "B", "Unit", words=5)
    for row in rows:
        values = (Text(value_text(value)) for value in (row.first, row.second))
        table.add_row(row.kind, Text(row.key), *values, row.unit)
    show_explained(console, table, [Text(row.meaning, "dim") for row in rows])
    console.print()


def _show_figures(console: Console, figures: Sequence[ResultDifference]) -> None:
    if not figures:
        console.print(Text("All figures are the same"))
        return
    table = framed(f"Figures that differ: {len(figures)}", "Figure", "A", "B", "Unit", "Change", text=["Unit"])
    for figure in figures:
        is_small = abs(figure["difference_pct"] or _LEAST_PCT) < _LEAST_PCT
        change = f"< {_LEAST_PCT} %" if is_small else difference_text(figure, 2)
        values = _distinguishable(figure["first"], figure["second"])
        table.add_row(figure["path"], *values, figure["unit"], change)
    show_explained(console, table, [Text(figure["label"], "dim") for figure in figures])


def _show_single_changes(console: Console, changes: OneAtATime) -> None:
    """Print what each difference alone changes in each main figure: the value, and its share of the total change."""
    fields = [field for field in MAIN if changes.together_pct[field.path] is not None]
    paths = [field.path for field in fields]
    if not paths:
        console.print(Text("No main figure differs when both are simulated again"))
        return
    headings = [f"{field.label}\n{field.unit}".strip() for field in fields]
    table = framed("From A to B, one change at a time: value, and share of the difference to B", "Change", *headings)
    table.add_row(Text("A", "bold"), *(_number(changes.first[path]) for path in paths))
    for change in changes.moved:
        if not change.reason and _has_effect(change):
            cells = (_value_and_share(change.figures[path], change.share_pct[path]) for path in paths)
            table.add_row(Text(f"{change.label}: {change.first} -> {change.second}"), *cells)
    interaction = (f"{signed(changes.together_pct[path] or 0.0)} %" for path in paths)
    table.add_row(Text("interaction of the changes", "italic"), *interaction)
    table.add_row(Text("B", "bold"), *(_number(changes.second[path]) for path in paths))
    console.print(table)
    if ineffective := [change.label for change in changes.moved if not change.reason and not _has_effect(change)]:
        console.print(Text(f"no effect as a single change: {', '.join(ineffective)}", "dim"), soft_wrap=True)
    for change in changes.moved:
        if change.reason:
            text = f"impossible as a single change: {change.label} = {change.second}: {change.reason}"
            console.print(Text(text, "yellow"), soft_wrap=True)


def _has_effect(change: ChangeEffect) -> bool:
    """Return whether one difference, applied alone, changes any of the main figures that differ."""
    return any(share for share in change.share_pct.values())


def _value_and_share(value: float | None, share: float | None) -> str:
    return _number(value) if share is None else f"{_number(value)} ({signed(share)} %)"


def _distinguishable(first: float | None, second: float | None) -> tuple[str, str]:
    """Format two different numbers, with enough digits that the texts differ."""
    digits = next((n for n in range(6, 17) if _number(first, n) != _number(second, n)), 6)
    return _number(first, digits), _number(second, digits)


def _number(value: float | None, digits: int = 6) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}"
