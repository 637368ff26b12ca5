"""Findings of a validation in words and tables, for the terminal and for pages."""

from collections.abc import Sequence

from emmclab.calibration.validation import Model, Validation
from emmclab.calibration.validation_groups import ENOUGH, WITHIN_PCT, Group, Judgement, TimeSpread, several
from emmclab.runtime.document import TextTable, change_pct, duration, percent_text, signed

#: Error limit in percent. The headline states the share of requests within this limit.
SAID_PCT = 25
#: Minimum error of the median for a group to be called the worst, in percent.
_CLOSE_PCT = 5.0
#: Below this number of requests, fewer than ten are above the 99th percentile.
_FEW_FOR_P99 = 1_000
_NONE = "–"
#: Title and first column header of the table for each kind of group.
GROUPS = {
    "operation": ("By operation", "Operation"),
    "size": ("By size", "Size"),
    "idle": ("By idle time before the request", "Idle before"),
    "queue": ("By requests that are unfinished at arrival", "Unfinished"),
}
#: Maximum number of groups by operation, size and idle time that are shown: those with the largest share of the error.
_SHOWN = 10


def headline(validation: Validation) -> str:
    """Return the result in one sentence: the share of requests predicted well, and the largest error."""
    model, answer = validation.main, validation.main.judgement.response
    model_name = "the calibrated model" if model.kind == "calibrated" else model.name
    share = answer.within_pct[WITHIN_PCT.index(SAID_PCT)]
    worst = model.judgement.worst
    worst_text = "" if worst is None else f"; {_worst(worst)}"
    return (
        f"{validation.trace}: {model_name} is within {SAID_PCT} % of the recorded response time for {share:.0f} % of "
        f"{answer.recorded.requests:,} requests{worst_text}"
    )


def _worst(group: Group) -> str:
    """Describe the group with the largest error, or state that no group has a large one."""
    error = group.error.median_pct or 0.0
    if abs(error) < _CLOSE_PCT:
        return f"no group of {ENOUGH} requests or more is off by over {max(abs(error), 0.1):.1f} % in the median"
    # Without a decimal, an error of -99.6 % would be printed as -100 %.
    digits = 1 if error < -99 else 0
    requests = f"{group.recorded.requests:,} requests"
    return f"worst: {group.label}, {signed(error, digits)} % in the median ({requests})"


def method(validation: Validation) -> str:
    """Return a description of how recorded and predicted times were compared."""
    cut = validation.cut
    busy = "" if cut.is_idle else ", while the device was at work"
    kinds = ", ".join(f"{count:,} {several(kind, count)}" for kind, count in cut.first_by_operation.items())
    if validation.calibration is None:
        calibrated = f"not calibrated; the first {cut.first:,} requests left out"
    else:
        calibrated = f"calibrated on the first {cut.first:,} requests ({kinds})"
    modes = ", ".join(dict.fromkeys(model.mode for model in validation.simulated))
    return (
        f"{calibrated}, judged on the {cut.second:,} after {duration(cut.after_s)}{busy}; "
        f"response is from arrival to completion; replayed in {modes}"
    )


def notes(validation: Validation) -> list[str]:
    """Return the notes on the limits of the comparison."""
    texts = [f"{model.name}: {model.note}" for model in validation.models if model.note]
    if validation.calibration is not None:
        texts += [f"calibrated: {warning}" for warning in validation.calibration.warnings]
        unknown = {
            kind: count
            for kind, count in validation.cut.second_by_operation.items()
            if kind not in validation.cut.first_by_operation
        }
        texts += [
            f"calibrated: the first half has no {several(kind)}; the times of the {count:,} of the second "
            "half are not fitted"
            for kind, count in unknown.items()
        ]
    texts += [f"not tried: {name}: {reason}" for name, reason in validation.refused.items()]
    if (requests := validation.main.judgement.response.recorded.requests) < _FEW_FOR_P99:
        texts.append(f"p99: fewer than 10 of {requests:,} requests lie above it")
    return texts


def overview(validations: Sequence[Validation]) -> TextTable:
    """Return a table with a row for each recording and model: errors in percent, and shares of good predictions."""
    headings = ["Recording: model", "Requests", "Mean %", "Median %", "p90 %", "p99 %"]
    headings += [f"Within\n{limit} %" for limit in WITHIN_PCT]
    rows = []
    for result in validations:
        for model in result.models:
            response = model.judgement.response
            rows.append(
                [
                    f"{result.trace}: {model.name}",
                    f"{response.recorded.requests:,}",
                    *map(percent_text, response.error),
                    *(f"{share:.1f}" for share in response.within_pct),
                ]
            )
        rows.append([f"{result.trace}: {FIRST_HALF}", f"{result.first.requests:,}", *drift(result), *[_NONE] * 3])
    return TextTable("Error of the response time, second half of each recording", headings, rows, 1)


#: Name of the table row that compares the first half of a recording with the second half.
FIRST_HALF = "recorded first half"


def drift(validation: Validation) -> list[str]:
    """Return the changes of response times between the halves of a recording, in percent.

    No model can predict these changes.
    """
    pairs = zip(validation.second[1:], validation.first[1:], strict=True)
    return [percent_text(change_pct(*pair)) for pair in pairs]


def times(validation: Validation) -> TextTable:
    """Return the table of mean, median and percentiles of the recorded and of the predicted times."""
    rows = [["recorded response", *_times(validation.second)], [FIRST_HALF, *_times(validation.first)]]
    for model in validation.models:
        rows.append([f"{model.name}, response", *_times(model.judgement.response.predicted)])
    for number, model in enumerate(validation.simulated):
        service = model.judgement.service
        if service is not None and not number:
            rows.append(["recorded service", *_times(service.recorded)])
        if service is not None:
            rows.append([f"{model.name}, service", *_times(service.predicted)])
    headings = ["Times", "Requests", "Mean ms", "Median ms", "p90 ms", "p99 ms"]
    return TextTable(f"Response and service times of {validation.trace}", headings, rows, 1)


def _times(spread: TimeSpread) -> list[str]:
    return [f"{spread.requests:,}", *map(_ms, spread[1:])]


def groups(model: Model) -> list[TextTable]:
    """Return the tables of the groups of requests, which show where a model is right or wrong."""
    judgement = model.judgement
    tables = [
        _table(f"{title}: {model.name}, ms", heading, judgement.groups[name])
        for name, (title, heading) in GROUPS.items()
    ]
    heaviest = sorted(judgement.together, key=lambda group: -group.share_of_error_pct)
    largest = [group for group in heaviest if not group.is_few][:_SHOWN]
    return [*tables, _table(f"Largest shares of the error: {model.name}, ms", "Operation, size and idle time", largest)]


def few_note(judgement: Judgement) -> str:
    """Return a note that explains how groups of few requests are marked; empty if there are none."""
    few = [group for of_kind in judgement.groups.values() for group in of_kind if group.is_few]
    return f"* fewer than {ENOUGH} requests, which are too few for a judgement" if few else ""


def _table(title: str, heading: str, rows_of_groups: Sequence[Group]) -> TextTable:
    headings = [heading, "Requests", "Median\nrecorded", "Median\npredicted", "Error\n%"]
    headings += ["p90\nrecorded", "p90\npredicted", "Error\n%", f"Within\n{SAID_PCT} %", "Share of\nerror, %"]
    rows = []
    for group in rows_of_groups:
        recorded, predicted, error = group.recorded, group.predicted, group.error
        rows.append(
            [
                group.label,
                f"{recorded.requests:,}{'*' if group.is_few else ''}",
                _ms(recorded.median_ms),
                _ms(predicted.median_ms),
                percent_text(error.median_pct),
                _ms(recorded.p90_ms),
                _ms(predicted.p90_ms),
                percent_text(error.p90_pct),
                f"{group.within_pct[WITHIN_PCT.index(SAID_PCT)]:.1f}",
                f"{group.share_of_error_pct:.1f}",
            ]
        )
    return TextTable(title, headings, rows, 1)


def _ms(value: float | None) -> str:
    return _NONE if value is None else f"{value:,.3f}"
