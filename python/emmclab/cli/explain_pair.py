"""`emmclab explain A B`: what differs between two results or two devices, and which of it matters."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text

from emmclab import _core
from emmclab.calibration.fit_sources import pair_note, runs_note
from emmclab.cli.console import print_json, print_note, print_stderr, stdout
from emmclab.cli.declared_options import option
from emmclab.cli.explain_texts import explain_difference
from emmclab.cli.options import Reading
from emmclab.cli.simulation_options import Images, Replay, configured
from emmclab.cli.tables import framed, show_explained
from emmclab.comparison.one_at_a_time import MAIN, Moved, OneAtATime, one_at_a_time
from emmclab.comparison.result_difference import (
    Difference,
    FigureDifference,
    differences,
    figure_differences,
    value_text,
)
from emmclab.errors import ConfigError
from emmclab.runtime.number_format import signed
from emmclab.simulation.stored_result import StoredResult, read_result

#: Smallest change that is printed as a number, percent; a smaller one is printed as "< 0.01 %".
_LEAST_PCT = 0.01


@dataclass(frozen=True)
class Pair:
    """How two results or devices are compared, as given on the command line."""

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
            "Simulate the first again with each single difference to the second, and show how each "
            "changes the main figures.",
            "Two results or devices",
        ),
    ] = False
    images: Images = None

    def refuse(self) -> None:
        """Reject these options if only one result or device is named."""
        for name, given in (("--trace", self.trace), ("--one-at-a-time", self.one_at_a_time)):
            if given:
                raise ConfigError(
                    f"`{name}` compares two devices or two results, and one is named",
                    field=name,
                    hint="name two: `emmclab explain A B`",
                )


def explain_pair(first: str, second: str, capacity: str | None, pair: Pair, reading: Reading, as_json: bool) -> None:
    """Print what differs between two results, or two devices."""
    devices = [_is_device(name) for name in (first, second)]
    if pair.trace is None:
        reading.refuse(f"{first} {second}")
    if devices[0] != devices[1]:
        names = (first, second) if devices[0] else (second, first)
        raise ConfigError(
            f"`{names[0]}` is a device, and `{names[1]}` is not",
            field="WHAT",
            hint="name two devices (presets or TOML files), or two results",
        )
    if all(devices):
        if pair.trace is None:
            if pair.one_at_a_time:
                raise ConfigError(
                    "`--one-at-a-time` simulates, and there is no trace",
                    field="--one-at-a-time",
                    hint="give one with --trace",
                )
            one, two = (configured(name, [], capacity) for name in (first, second))
            explain_difference(one, two, as_json)
            print_note(pair_note(one, two), aside=as_json)
            return
        source = reading.open(pair.trace)
        replay = Replay(images=pair.images)
        found = [replay.run(configured(name, [], capacity), [source]) for name in (first, second)]
        results = [StoredResult(one.run_name, "simulation", one.to_dict()) for one in found]
    else:
        if pair.trace is not None or capacity is not None:
            name = "--capacity" if pair.trace is None else "--trace"
            raise ConfigError(
                f"`{name}` is for devices, and `{first}` is a result",
                field=name,
                hint="a result holds its trace and its device; leave the option out",
            )
        results = [read_result(name) for name in (first, second)]
    _explain_results(results[0], results[1], pair, as_json)
    print_note(runs_note([one.fields for one in results]), aside=as_json)


def _is_device(name: str) -> bool:
    if Path(name).suffix == ".toml":
        return True
    return not Path(name).exists() and name in _core.device_presets()


def _explain_results(first: StoredResult, second: StoredResult, pair: Pair, as_json: bool) -> None:
    found, figures = differences(first, second), figure_differences(first.fields, second.fields)
    silent = [one for one in (first, second) if not one.provenance]
    for one in silent:
        print_stderr(
            f"warning: {one.place} does not say how it was made (it has no `provenance`): only options are compared"
        )
    alone = None
    if pair.one_at_a_time:
        alone = one_at_a_time(first, second, found, images=pair.images, progress=_print_run)
        for text in alone.not_repeated:
            print_stderr(f"warning: {text}")
    if as_json:
        print_json(
            {
                "first": {"place": first.place, "name": first.name},
                "second": {"place": second.place, "name": second.name},
                "differences": [one._asdict() for one in found],
                "figures": [one._asdict() for one in figures],
                **({} if alone is None else {"one_at_a_time": alone.to_dict()}),
            }
        )
        return
    console = stdout()
    for number, one in enumerate((first, second)):
        console.print(Text.assemble(("AB"[number], "bold"), f": {one.name} ({one.place})"), soft_wrap=True)
    _show_differences(console, found)
    if first.kind == second.kind == "other":
        console.print(Text("Figures of simulated runs are compared; these files have none", "dim"))
    else:
        _show_figures(console, figures)
    if alone is not None:
        _show_alone(console, alone)


def _print_run(number: int, total: int, words: str) -> None:
    print_stderr(f"run {number} of {total}: {words}")


def _show_differences(console: Console, found: Sequence[Difference]) -> None:
    if not found:
        console.print(Text("Both were made in the same way, as far as recorded"))
        return
    table = framed(f"Made differently: {len(found)}", "", "What", "A", "B", "Unit", words=5)
    for one in found:
        values = (Text(value_text(value)) for value in (one.first, one.second))
        table.add_row(one.kind, Text(one.key), *values, one.unit)
    show_explained(console, table, [Text(one.meaning, "dim") for one in found])
    console.print()


def _show_figures(console: Console, figures: Sequence[FigureDifference]) -> None:
    if not figures:
        console.print(Text("All figures are the same"))
        return
    table = framed(f"Figures that differ: {len(figures)}", "Figure", "A", "B", "Unit", "Change", text=["Unit"])
    for one in figures:
        change = "–" if one.difference_pct is None else _percent(one.difference_pct)
        if one.difference_points is not None:
            change = f"{signed(one.difference_points, 2)} points"
        table.add_row(one.path, *_apart(one.first, one.second), one.unit, change)
    show_explained(console, table, [Text(one.label, "dim") for one in figures])


def _show_alone(console: Console, alone: OneAtATime) -> None:
    """Print a column for each main figure that differs: its value and share with each change alone."""
    shown_here = [field for field in MAIN if alone.together_pct[field.path] is not None]
    paths = [field.path for field in shown_here]
    if not paths:
        console.print(Text("No main figure differs when both are simulated again"))
        return
    headings = [f"{field.label}\n{field.unit}".strip() for field in shown_here]
    table = framed("From A to B, one change at a time: value, and share of the difference to B", "Change", *headings)
    table.add_row(Text("A", "bold"), *(_number(alone.first[path]) for path in paths))
    for one in alone.moved:
        if not one.reason and _moves(one):
            cells = (_moved(one.figures[path], one.share_pct[path]) for path in paths)
            table.add_row(Text(f"{one.label}: {one.first} -> {one.second}"), *cells)
    parts = (f"{signed(alone.together_pct[path] or 0.0)} %" for path in paths)
    table.add_row(Text("interaction of the changes", "italic"), *parts)
    table.add_row(Text("B", "bold"), *(_number(alone.second[path]) for path in paths))
    console.print(table)
    if still := [one.label for one in alone.moved if not one.reason and not _moves(one)]:
        console.print(Text(f"without effect alone: {', '.join(still)}", "dim"), soft_wrap=True)
    for one in alone.moved:
        if one.reason:
            text = f"not possible alone: {one.label} = {one.second}: {one.reason}"
            console.print(Text(text, "yellow"), soft_wrap=True)


def _moves(one: Moved) -> bool:
    """Return whether a change alone affects any main figure that differs."""
    return any(share for share in one.share_pct.values())


def _moved(value: float | None, share: float | None) -> str:
    return _number(value) if share is None else f"{_number(value)} ({signed(share)} %)"


def _percent(change: float) -> str:
    """Format a change in percent; a small one as `< 0.01 %`."""
    return f"{signed(change, 2)} %" if abs(change) >= _LEAST_PCT else f"< {_LEAST_PCT} %"


def _apart(first: float | None, second: float | None) -> tuple[str, str]:
    """Format two different numbers, with enough digits that the texts differ."""
    digits = next((n for n in range(6, 17) if _number(first, n) != _number(second, n)), 6)
    return _number(first, digits), _number(second, digits)


def _number(value: float | None, digits: int = 6) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}"
