"""Compares recorded with predicted times of requests: figures, errors, and the names of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any, NamedTuple, TypedDict

#: Minimum requests of a group; groups below it are marked, as too few requests are above a 90th percentile.
ENOUGH = 20
#: Errors in percent; the share of requests within each is reported.
WITHIN_PCT = (10, 25, 50)
#: Units of sizes, in KB.
_UNITS = (("GB", 1 << 20), ("MB", 1 << 10), ("KB", 1))
#: Operations in the order of the output; durable writes are those with FUA or a preflush.
_KINDS = ("read", "write", "durable write", "flush", "discard", "secure_erase")
#: Names of ranges of time for which the device was idle before a request.
_IDLE = ("busy", "<= 1 ms", "1 - 10 ms", "10 - 100 ms", "0.1 - 1 s", "> 1 s")
#: The same names as they follow an operation in a sentence.
_AFTER = ("that find the device busy", *(f"after idle {text.replace('<=', 'up to')}" for text in _IDLE[1:-1]))
_AFTER += ("after idle > 1 s",)


class Spread(NamedTuple):
    """Times of a set of requests, ms; None if there are none."""

    requests: int
    mean_ms: float | None
    median_ms: float | None
    p90_ms: float | None
    p99_ms: float | None


class Error(NamedTuple):
    """Predicted against recorded, in percent; None if nothing was recorded."""

    mean_pct: float | None
    median_pct: float | None
    p90_pct: float | None
    p99_pct: float | None


@dataclass(frozen=True)
class Group:
    """Recorded and predicted times of some requests.

    Attributes:
        label: what they have in common.
        recorded: their recorded times.
        predicted: their predicted times.
        within_pct: for each error of `WITHIN_PCT`, the share of requests within it, in percent.
        share_of_error_pct: share of the sum of all absolute errors.
    """

    label: str
    recorded: Spread
    predicted: Spread
    within_pct: tuple[float, ...]
    share_of_error_pct: float

    @property
    def is_few(self) -> bool:
        """Whether the group has too few requests for a reliable median."""
        return self.recorded.requests < ENOUGH

    @property
    def error(self) -> Error:
        """Error of the predicted against the recorded times."""
        return Error(*map(_error_pct, self.predicted[1:], self.recorded[1:]))

    @property
    def ratio(self) -> float | None:
        """Predicted over recorded median; None if one of them is 0, as for operations a model ignores."""
        times = (self.predicted.median_ms, self.recorded.median_ms)
        return times[0] / times[1] if times[0] and times[1] else None

    @property
    def factor(self) -> float:
        """Distance of the medians: 0 if they are equal, and the same for half as for twice."""
        return inf if self.ratio is None else abs(log(self.ratio))

    def to_dict(self) -> dict[str, object]:
        """Return all fields as JSON values."""
        names = (f"within_{limit}_pct" for limit in WITHIN_PCT)
        return {
            "group": self.label,
            "requests": self.recorded.requests,
            "few": self.is_few,
            "recorded": self.recorded._asdict(),
            "predicted": self.predicted._asdict(),
            "error": self.error._asdict(),
            **dict(zip(names, self.within_pct, strict=True)),
            "share_of_error_pct": self.share_of_error_pct,
        }


class CurvePoint(TypedDict):
    """A percentile of the recorded and of the predicted response times, ms."""

    percentile: float
    recorded_ms: float
    predicted_ms: float


class JudgementFields(TypedDict):
    """The JSON form of a `Judgement`; groups have the fields of `Group.to_dict`."""

    response: dict[str, object]
    service: dict[str, object] | None
    worst: dict[str, object] | None
    largest_share: dict[str, object] | None
    by: dict[str, list[dict[str, object]]]
    together: list[dict[str, object]]
    curve: list[CurvePoint]


@dataclass(frozen=True)
class Judgement:
    """Comparison of predicted with recorded times.

    Attributes:
        response: from arrival to completion, over all requests.
        service: of the device; None if the recording has no service times that differ from the response
            times.
        groups: response times by operation, size, idle time before, and requests unfinished at arrival.
        together: response times by operation, size and idle time at once.
        curve: percentile, recorded and predicted response time in ms.
    """

    response: Group
    service: Group | None
    groups: Mapping[str, Sequence[Group]]
    together: Sequence[Group]
    curve: Sequence[tuple[float, float, float]]

    @property
    def worst(self) -> Group | None:
        """The group by operation, size and idle time with the largest median error; None if all are small."""
        enough = [group for group in self.together if not group.is_few]
        return max(enough, key=lambda group: group.factor, default=None)

    @property
    def heaviest(self) -> Group | None:
        """The group by operation, size and idle time with the largest share of the total error."""
        enough = [group for group in self.together if not group.is_few]
        return max(enough, key=lambda group: group.share_of_error_pct, default=None)

    def to_dict(self) -> JudgementFields:
        """Return all fields as JSON values."""
        return {
            "response": self.response.to_dict(),
            "service": None if self.service is None else self.service.to_dict(),
            "worst": None if self.worst is None else self.worst.to_dict(),
            "largest_share": None if self.heaviest is None else self.heaviest.to_dict(),
            "by": {name: [one.to_dict() for one in groups] for name, groups in self.groups.items()},
            "together": [group.to_dict() for group in self.together],
            "curve": [
                {"percentile": percentile, "recorded_ms": recorded, "predicted_ms": predicted}
                for percentile, recorded, predicted in self.curve
            ],
        }


def _error_pct(predicted: float | None, recorded: float | None) -> float | None:
    return 100 * (predicted / recorded - 1) if predicted is not None and recorded else None


def place(keys: Sequence[Any]) -> tuple[int, ...]:
    """Return the sort key of a group; operations are in the order of `_KINDS`."""
    return tuple(_KINDS.index(key) if key in _KINDS else -1 if key is None else int(key) for key in keys)


def label(keys: Mapping[str, Any]) -> str:
    """Return the name of a group."""
    if len(keys) == 1:
        ((name, key),) = keys.items()
        if name == "size":
            return _sizes(int(key))
        if name == "idle":
            return _IDLE[key]
        return str(key) if name == "operation" or key <= 2 else _doubling_of_whole(int(key))
    if not keys:
        return "all"
    kind, size = several(keys["operation"]), keys["size"]
    of = "" if size is None else f" of {_sizes(int(size))}"
    after = "" if keys["idle"] is None else f" {_AFTER[keys['idle']]}"
    return kind + of + after


def several(kind: str, count: int = 2) -> str:
    """Return the plural name of requests of an operation.

    >>> several("durable write"), several("flush"), several("secure_erase", 1)
    ('durable writes', 'flushes', 'secure erase')
    """
    ending = "" if count == 1 else "es" if kind == "flush" else "s"
    return kind.replace("_", " ") + ending


def _sizes(key: int) -> str:
    """Return a range of sizes whose bounds are powers of two, starting at 4 KB.

    >>> _sizes(0), _sizes(2), _sizes(8), _sizes(9)
    ('<= 4 KB', '8 - 16 KB', '0.5 - 1 MB', '1 - 2 MB')
    """
    low, high = ((4 << key) * share for share in (0.5, 1))
    unit, divisor = next((name, kb) for name, kb in _UNITS if high >= kb)
    return f"<= {high:g} KB" if key == 0 else f"{low / divisor:g} - {high / divisor:g} {unit}"


def _doubling_of_whole(key: int) -> str:
    """Return a range of whole numbers whose bounds are powers of two.

    >>> _doubling_of_whole(3), _doubling_of_whole(4)
    ('3 - 4', '5 - 8')
    """
    return f"{(1 << key - 2) + 1} - {1 << key - 1}"


def nothing(label: str) -> Group:
    """Return a group without requests."""
    none = Spread(0, None, None, None, None)
    return Group(label, none, none, (0.0,) * len(WITHIN_PCT), 0.0)
