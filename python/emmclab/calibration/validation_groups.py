"""Compares recorded with predicted times of requests: over all requests and by groups, in SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, log
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import duckdb

from emmclab.runtime.document import change_pct
from emmclab.runtime.parquet import quoted
from emmclab.traces.reading import read

#: The cut between the two halves may be moved to the next time at which the device is idle, by at most 1/10 of the
#: requests.
_PUT_OFF = 10
#: Masks of bits in the flags field of a trace: durable (FUA or preflush), failed, and zone append.
_DURABLE, _FAILED, _APPEND = 1 << 1 | 1 << 2, 1 << 10, 1 << 11
#: Percentiles at which the curves of response times have points.
_CURVE = (*(part / 2 for part in range(1, 199)), *(99 + part / 10 for part in range(1, 11)))

#: SQL expressions that assign requests to groups. Their values are numbers that sort the groups; NULL means no group.
_KEYS = {
    "operation": "kind",
    "size": "case when sectors > 0 then greatest(0, ceil(round(log2(sectors / 8.0), 9)))::int end",
    "idle": "case when idle_ns is null then null when depth > 0 or idle_ns < 0 then 0 "
    "when idle_ns <= 1e6 then 1 when idle_ns <= 1e7 then 2 when idle_ns <= 1e8 then 3 "
    "when idle_ns <= 1e9 then 4 else 5 end",
    "queue": "case when depth <= 2 then depth else 1 + ceil(round(log2(depth), 9))::int end",
}


class Facts(NamedTuple):
    """Counts and properties of a recording."""

    requests: int
    completed: int
    """Requests with a completion after their arrival."""
    apart: int
    """Requests whose service time differs from their response time."""
    appends: int
    span_gb: int
    """Capacity that its addresses need, GB, rounded up."""


class Recording:
    """A recording in a database, with idle time and queue depth of the device at the arrival of each request."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, path: Path) -> None:
        """Read a Parquet file of a trace; requests that ended with an error are left out of the comparison."""
        self._connection, self.path = connection, path
        # `coalesce` computes the service time as in profiles: `served` - `issue` if the driver recorded both times,
        # otherwise `complete` - `start`.
        connection.execute(
            f"""create table raw as select file_row_number as row, arrival_ns, sector, sectors, op, flags,
            case when complete_ns > arrival_ns then complete_ns end as complete_ns,
            greatest(complete_ns, arrival_ns) as end_ns,
            coalesce(served_ns - issue_ns, complete_ns - start_ns) as service_ns
            from read_parquet('{quoted(path)}', file_row_number = true)"""  # noqa: S608
        )
        connection.execute(
            f"""create table recorded as
            with ended as (select end_ns as at_ns, sum(count(*)) over (order by end_ns) as count
                           from raw group by end_ns)
            select row, arrival_ns, op, sectors, complete_ns - arrival_ns as response_ns, service_ns,
            arrival_ns - max(end_ns) over (order by row rows between unbounded preceding and 1 preceding)
                as idle_ns,
            greatest(0, row - coalesce(ended.count, 0))::int as depth,
            case when op = 'write' and flags & {_DURABLE} > 0 then 'durable write' else op end as kind,
            complete_ns is not null and flags & {_FAILED} = 0 as is_judged
            from raw asof left join ended on arrival_ns >= at_ns"""  # noqa: S608
        )
        *counts, sectors = self._row(
            f"""select count(*), count(complete_ns),
            count(*) filter (where service_ns <> complete_ns - arrival_ns),
            count(*) filter (where flags & {_APPEND} > 0), coalesce(max(sector + sectors), 0) from raw"""  # noqa: S608
        )
        self.facts = Facts._make([*counts, ceil(sectors / (1 << 21))])

    def _row(self, sql: str, values: Sequence[int] = ()) -> tuple[Any, ...]:
        """Return the only row of a query's result."""
        (row,) = self._connection.execute(sql, list(values)).fetchall()
        return row

    def refuse_several_devices(self) -> None:
        """Raise an error if the trace is of several devices, which a replay rejects, too."""
        for _ in read(self.path).batches(one_device=True):
            pass

    def cut(self) -> tuple[int, int, bool] | None:
        """Return where to divide a recording: row, time after the first arrival in ns, and if the device was idle.

        None if all requests arrive at the same time.
        """
        middle = self.facts.requests // 2
        last = middle + self.facts.requests // _PUT_OFF
        # Requests with the same arrival stay together, because a cut is a point in time.
        row_of_cut = self._connection.execute(
            """with begins as (select row, arrival_ns, depth, idle_ns,
                   arrival_ns - min(arrival_ns) over () as after_ns,
                   arrival_ns > lag(arrival_ns) over (order by row) as is_later from recorded)
               select row, after_ns, depth = 0 and idle_ns >= 0 as is_idle from begins
               where is_later and (row between $middle and $last or row > $last)
               order by row > $last, not is_idle, row limit 1""",
            {"middle": middle, "last": last},
        ).fetchone()
        if row_of_cut is None:
            return None
        row, after_ns, is_idle = row_of_cut
        return int(row), int(after_ns), bool(is_idle)

    def spread(self, *, since: int = 0, before: int | None = None) -> TimeSpread:
        """Return the recorded response times of a range of rows."""
        end = self.facts.requests if before is None else before
        row = self._row(
            f"""select count(*), {_spread("response_ns")} from recorded
            where is_judged and row >= ? and row < ?""",  # noqa: S608
            [since, end],
        )
        return TimeSpread(*row)

    def kinds(self, *, since: int = 0, before: int | None = None) -> dict[str, int]:
        """Return the number of compared requests of each operation in a range of rows, most frequent first."""
        end = self.facts.requests if before is None else before
        rows = self._connection.execute(
            """select kind, count(*) as count from recorded where is_judged and row >= ? and row < ?
            group by kind order by count desc, kind""",
            [since, end],
        ).fetchall()
        return dict(rows)

    def judged_by_run(self, since: int, rows: Path) -> Judgement:
        """Compare the requests from row `since` on with the rows of a simulated run, which are in the same order."""
        self._connection.execute(
            f"""create or replace table run as select *, file_row_number + ? as row
            from read_parquet('{quoted(rows)}', file_row_number = true)""",  # noqa: S608
            [since],
        )
        (mismatches,) = self._row(
            """select count(*) from recorded join run using (row)
            where recorded.op <> run.op::varchar
            or recorded.op in ('read', 'write') and recorded.sectors <> run.sectors"""
        )
        if mismatches:
            raise RuntimeError("the rows of a simulated run are not in the order of the requests of its trace")
        self._connection.execute(
            """create or replace table judged as
            select recorded.*, run.complete_ns - run.arrival_ns as predicted_response_ns,
            run.complete_ns - run.start_ns as predicted_service_ns
            from recorded join run using (row) where is_judged"""
        )
        return self._judgement(with_service=self.facts.apart > 0)

    def judged_by_table(self, since: int) -> Judgement:
        """Predict the response times from row `since` on by medians of the earlier rows, and compare them.

        The prediction is the median of earlier requests of the same operation and size; if there are none, of the same
        operation; if there are none either, of all earlier requests.
        """
        self._connection.execute(
            """create or replace table judged as
            with known as (select * from recorded where is_judged and row < $since),
            by_size as (select kind, sectors, quantile_disc(response_ns, 0.5) as ns
                        from known group by kind, sectors),
            by_kind as (select kind, quantile_disc(response_ns, 0.5) as ns from known group by kind),
            by_all as (select quantile_disc(response_ns, 0.5) as ns from known)
            select recorded.*, coalesce(by_size.ns, by_kind.ns, by_all.ns) as predicted_response_ns
            from recorded left join by_size using (kind, sectors) left join by_kind using (kind), by_all
            where is_judged and row >= $since""",
            {"since": since},
        )
        return self._judgement(with_service=False)

    def _judgement(self, *, with_service: bool) -> Judgement:
        keys = {name: f"{sql} as {name}_key" for name, sql in _KEYS.items()}
        self._connection.execute(
            f"create or replace view grouped as select *, {', '.join(keys.values())} from judged"  # noqa: S608
        )
        groups = {name: self._groups([name]) for name in _KEYS}
        (response,) = self._groups([]) or [nothing("all")]
        service = self._groups([], "service")[0] if with_service else None
        together = self._groups(["operation", "size", "idle"])
        return Judgement(response, service, groups, together, self._curve())

    def _groups(self, names: Sequence[str], measure: str = "response") -> list[Group]:
        """Return the requests grouped by these properties, in order; without properties, one group of all requests."""
        keys = [f"{name}_key" for name in names]
        recorded, predicted = f"{measure}_ns", f"predicted_{measure}_ns"
        error = f"abs({predicted} - {recorded})"
        within = ", ".join(
            f"100.0 * count(*) filter (where {error} <= {limit / 100} * {recorded}) / count(*)" for limit in WITHIN_PCT
        )
        # A NULL key is an unknown property, or the missing size of a flush. Requests with it form no group of their own
        # if requests are grouped by this property alone.
        conditions = [f"{key} is not null" for key in keys if names == [key.removesuffix("_key")]]
        rows = self._connection.execute(
            f"""select {"".join(f"{key}, " for key in keys)} count(*), {_spread(recorded)},
            {_spread(predicted)}, {within},
            100.0 * sum({error}) / nullif((select sum({error}) from judged), 0)
            from grouped where {" and ".join([f"{recorded} is not null", *conditions])}
            {"group by " + ", ".join(keys) if keys else ""}"""  # noqa: S608
        ).fetchall()
        groups = []
        for row in sorted(rows, key=lambda row: place(row[: len(keys)])):
            values, (count, *figures) = row[: len(keys)], row[len(keys) :]
            if not count:
                continue
            spreads = TimeSpread(count, *figures[:4]), TimeSpread(count, *figures[4:8])
            shares = tuple(figures[8 : 8 + len(WITHIN_PCT)])
            name = label(dict(zip(names, values, strict=True)))
            groups.append(Group(name, *spreads, shares, figures[-1] or 0.0))
        return groups

    def _curve(self) -> list[tuple[float, float, float]]:
        shares = [percentile / 100 for percentile in _CURVE]
        quantiles = self._row(
            f"""select quantile_disc(response_ns, {shares}), quantile_disc(predicted_response_ns, {shares})
            from judged"""  # noqa: S608
        )
        if quantiles[0] is None:
            return []
        rows = zip(_CURVE, *quantiles, strict=True)
        return [(share, recorded / 1e6, predicted / 1e6) for share, recorded, predicted in rows]


def _spread(column: str) -> str:
    """Return the SQL expressions for mean, median and percentiles of a column, in ms."""
    quantiles = (f"quantile_disc({column}, {share}) / 1e6" for share in (0.5, 0.9, 0.99))
    return f"avg({column}) / 1e6, {', '.join(quantiles)}"


#: Minimum number of requests in a group. Smaller groups are marked: they have few requests above the p90.
ENOUGH = 20
#: Error limits in percent. The share of requests within each limit is reported.
WITHIN_PCT = (10, 25, 50)
#: Units of request sizes, with their sizes in KB.
_UNITS = (("GB", 1 << 20), ("MB", 1 << 10), ("KB", 1))
#: Operations in the order of the output; durable writes are those with FUA or a preflush.
_KINDS = ("read", "write", "durable write", "flush", "discard", "secure_erase")
#: Labels of the ranges of time for which the device was idle before a request.
_IDLE = ("busy", "<= 1 ms", "1 - 10 ms", "10 - 100 ms", "0.1 - 1 s", "> 1 s")
#: Phrases for the ranges of `_IDLE`, such as "after idle up to 1 ms". In a sentence, they follow an operation.
_AFTER = ("that find the device busy", *(f"after idle {text.replace('<=', 'up to')}" for text in _IDLE[1:-1]))
_AFTER += ("after idle > 1 s",)


class TimeSpread(NamedTuple):
    """Mean, median and percentiles of the times of a set of requests in ms; None if there are no requests."""

    requests: int
    mean_ms: float | None
    median_ms: float | None
    p90_ms: float | None
    p99_ms: float | None


class PredictionError(NamedTuple):
    """Errors of predicted against recorded times, in percent; None if nothing was recorded."""

    mean_pct: float | None
    median_pct: float | None
    p90_pct: float | None
    p99_pct: float | None


@dataclass(frozen=True)
class Group:
    """Recorded and predicted times of a group of requests.

    Attributes:
        label: the property that these requests share.
        recorded: their recorded times.
        predicted: their predicted times.
        within_pct: for each limit in `WITHIN_PCT`, the share of requests whose error is within it, in percent.
        share_of_error_pct: the group's share of the sum of all absolute errors, in percent.
    """

    label: str
    recorded: TimeSpread
    predicted: TimeSpread
    within_pct: tuple[float, ...]
    share_of_error_pct: float

    @property
    def is_few(self) -> bool:
        """Whether the group has too few requests for a reliable median."""
        return self.recorded.requests < ENOUGH

    @property
    def error(self) -> PredictionError:
        """Error of the predicted times relative to the recorded times."""
        return PredictionError(*map(change_pct, self.recorded[1:], self.predicted[1:]))

    @property
    def ratio(self) -> float | None:
        """Predicted divided by recorded median; None if one is 0, such as for operations that a model ignores."""
        times = (self.predicted.median_ms, self.recorded.median_ms)
        return times[0] / times[1] if times[0] and times[1] else None

    @property
    def factor(self) -> float:
        """Absolute logarithm of `ratio`; infinite if there is no ratio. Ratios of 0.5 and 2 have the same value."""
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
        response: response times (arrival to completion) of all requests.
        service: service times of the device; None if they do not differ from the response times, or are not recorded.
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
        """The group by operation, size and idle time with the largest error of its median; None if all are small."""
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
            "by": {name: [group.to_dict() for group in groups] for name, groups in self.groups.items()},
            "together": [group.to_dict() for group in self.together],
            "curve": [
                {"percentile": percentile, "recorded_ms": recorded, "predicted_ms": predicted}
                for percentile, recorded, predicted in self.curve
            ],
        }


def place(keys: Sequence[Any]) -> tuple[int, ...]:
    """Return the sort key of a group; operations are in the order of `_KINDS`."""
    return tuple(_KINDS.index(key) if key in _KINDS else -1 if key is None else int(key) for key in keys)


def label(keys: Mapping[str, Any]) -> str:
    """Return the label of a group of requests."""
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
    of_size = "" if size is None else f" of {_sizes(int(size))}"
    after_idle = "" if keys["idle"] is None else f" {_AFTER[keys['idle']]}"
    return kind + of_size + after_idle


def several(kind: str, count: int = 2) -> str:
    """Return the plural name of requests of an operation, such as `reads`.

    >>> several("durable write"), several("flush"), several("secure_erase", 1)
    ('durable writes', 'flushes', 'secure erase')
    """
    ending = "" if count == 1 else "es" if kind == "flush" else "s"
    return kind.replace("_", " ") + ending


def _sizes(key: int) -> str:
    """Return the label of a range of sizes; its bounds are powers of two, and the smallest bound is 4 KB.

    >>> _sizes(0), _sizes(2), _sizes(8), _sizes(9)
    ('<= 4 KB', '8 - 16 KB', '0.5 - 1 MB', '1 - 2 MB')
    """
    low, high = ((4 << key) * share for share in (0.5, 1))
    unit, divisor = next((name, kb) for name, kb in _UNITS if high >= kb)
    return f"<= {high:g} KB" if key == 0 else f"{low / divisor:g} - {high / divisor:g} {unit}"


def _doubling_of_whole(key: int) -> str:
    """Return the label of a range of whole numbers; its upper bound is a power of two.

    >>> _doubling_of_whole(3), _doubling_of_whole(4)
    ('3 - 4', '5 - 8')
    """
    return f"{(1 << key - 2) + 1} - {1 << key - 1}"


def nothing(label: str) -> Group:
    """Return a group of zero requests with this label."""
    none = TimeSpread(0, None, None, None, None)
    return Group(label, none, none, (0.0,) * len(WITHIN_PCT), 0.0)
