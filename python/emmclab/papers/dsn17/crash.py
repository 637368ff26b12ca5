"""Power cuts under the journal layer: the measure that tests the paper's claim on `dsn17-crash`."""

from emmclab.papers.measures import Measurement, measure
from emmclab.studies.power_cut_settings import DOCUMENTED, KEPT, CutRun
from emmclab.studies.results import Results

#: The tested grid, and the control grid that must lose something.
TESTED, CONTROL = "aware", "no_barrier"


def cells(results: Results, grid: str) -> list[CutRun]:
    """Return the runs of a grid with power cuts."""
    return [run for run in results.cut_runs() if run.cell.grid == grid]


def broken(runs: list[CutRun]) -> list[CutRun]:
    """Return the runs with a state that broke a documented promise."""
    return [run for run in runs if run.result.verdict not in (KEPT, DOCUMENTED)]


@measure
def recovers(results: Results) -> Measurement:
    """Measure how many of the runs under the layer lose data that was promised to be durable."""
    tested, control = cells(results, TESTED), cells(results, CONTROL)
    lost, lost_control = broken(tested), broken(control)
    cuts = sum(run.result.cuts for run in tested)
    states = sum(run.result.states for run in tested)
    names = ", ".join(dict.fromkeys(run.cell.input for run in lost))
    said = f"Lost: {names}. " if lost else ""
    return Measurement(
        f"{len(tested) - len(lost)} of {len(tested)} runs recover from all of {cuts:,} cuts",
        {"broken_runs": float(len(lost)), "control_broken_runs": float(len(lost_control))},
        f"{said}{states:,} different states that the contract of the device allows at these times, each "
        "recovered and "
        f"judged. Without flushes {len(lost_control)} of {len(control)} runs lose what was promised "
        f"({sum(run.result.lost_states for run in control):,} states of "
        f"{sum(run.result.states for run in control):,}): the "
        "states tell right from wrong. Durable writes leave few states to choose from.",
    )
