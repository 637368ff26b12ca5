"""Names the fastest device of each trace, as far as the runs distinguish devices."""

from collections.abc import Sequence

from emmclab.calibration.fit_sources import runs_note
from emmclab.comparison.seed_statistics import is_random_run, order_of, untested
from emmclab.simulation.result import Result
from emmclab.simulation.result_fields import result_field
from emmclab.simulation.result_text import mean_text, trusted

_MEAN = result_field("response.mean_response_ms")
#: Minimum ratio of two times that differ in two significant digits.
_TWO_DIGITS = 1.005


def comparison_headlines(results: Sequence[Result]) -> list[str]:
    """Name for each trace the device with the smallest mean response, if others are distinguishably slower.

    Runs of one device that differ only by their seed are combined. Runs that ended early or were overloaded
    do not measure a device and are left out.

    >>> import emmclab
    >>> devices = [emmclab.Device.preset(name) for name in ("iiswc15-4ps", "iiswc15-hps")]
    >>> results = emmclab.compare([emmclab.read(emmclab.bundled()[0])], devices)
    >>> "fastest" in comparison_headlines(results)[0]
    True
    """
    traces = list(dict.fromkeys(result.fields["trace"] for result in results))
    lines = []
    for trace in traces:
        name = f"{trace}: " if len(traces) > 1 else ""
        lines.append(name + _fastest([run for run in results if run.fields["trace"] == trace]))
    return lines


def runs_by_device(results: Sequence[Result]) -> list[tuple[str, list[Result]]]:
    """Return name and runs of each device; the runs differ by their seed.

    Devices of the same name are distinguished by their order.
    """
    found: dict[tuple[str, int], list[Result]] = {}
    for run in results:
        seed, number = run.fields["options"].get("seed", 1), 0
        while any(one.fields["options"].get("seed", 1) == seed for one in found.get((run.run_name, number), ())):
            number += 1
        found.setdefault((run.run_name, number), []).append(run)
    return [(name, runs) for (name, _), runs in found.items()]


def means_by_seed(runs: Sequence[Result]) -> dict[int, float]:
    """Return the mean response of runs of one device by their seed."""
    return {run.fields["options"].get("seed", 1): run.fields["response"]["mean_response_ms"] for run in runs}


def _fastest(results: Sequence[Result]) -> str:
    """Name the fastest device of one trace, and the second fastest."""
    found = [(name, means_by_seed(runs)) for name, runs in runs_by_device(results) if all(map(trusted, runs))]
    if not found:
        return "no device served the whole trace and kept up with it"
    names, by_seed = [name for name, _ in found], [values for _, values in found]
    order = order_of(by_seed, is_random=any(map(is_random_run, results)))
    means = [sum(values.values()) / len(values) for values in by_seed]
    best = names[order.best]
    least, most = means[order.best], max(means[place] for place in (order.best, *order.indistinguishable))
    lowest, highest = _MEAN.compared_texts(least, most)
    alike, together = (
        order.indistinguishable,
        ", ".join(names[place] for place in (order.best, *order.indistinguishable)),
    )
    if len(names) == 1:
        others = len(runs_by_device(results)) > 1
        only = f"only {best} served the whole trace and kept up with it" if others else best
        line = f"{only}: {mean_text(least)}"
    elif alike and most == least:
        line = f"{together} are equally fast: {mean_text(least)}"
    elif alike and order.seeds > 1:
        line = f"{order.seeds} seeds do not tell {together} apart: {_MEAN.name} {lowest} to {highest}"
    elif alike:
        line = f"{together} are not told apart: {_MEAN.name} {lowest} to {highest}"
    else:
        doubt = " in the simulation; the order of the real devices is not known" if runs_note(results) else ""
        line = f"{best} is the fastest{doubt}: "
        rest = sorted((place for place in range(len(names)) if place != order.best), key=means.__getitem__)
        if rest and least:
            times = means[rest[0]] / least
            # With two digits, a difference below half a percent is not visible.
            said = f"{times:.2f} times" if times >= _TWO_DIGITS else f"{100 * (times - 1):+.2g} %"
            first, second = _MEAN.compared_texts(least, means[rest[0]])
            line += f"{_MEAN.name} {first}, {names[rest[0]]} {second} ({said})"
        else:
            line += mean_text(least)
    recorded = results[0].fields["recorded"]["response"]["all"]["recorded_ms"]
    line += "" if recorded is None else f"; recorded {_MEAN.in_words(recorded)}"
    if len(names) > 1 and not order.is_tested:
        line += f"; {untested('--seeds 5')}"
    return line
