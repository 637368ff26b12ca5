"""The ledger of claims: every claim of the papers, how it is measured, its sources, result and verdict.

Presets record the sources of their parameters: `made_from` of a workload (by parameter) and of a host, `fitted_to` of a
device. A result only restates a claim if all values from which it is computed depend on the claim's own sources. Such
values are published tables, profile fields of synthetic inputs, and runs of inputs, hosts or devices that were made
from or fitted to these sources. Layers that did nothing are permitted, too.
"""

import functools
import itertools
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypedDict

from emmclab.apps.closed_loop import hosts
from emmclab.errors import ConfigError, EmmclabError
from emmclab.papers.measures import Measurement, Reads, find_measure, run_measure
from emmclab.papers.registry import Paper, papers, studies
from emmclab.simulation.device import Device
from emmclab.studies.results import Results, in_place, stand_ins, without
from emmclab.studies.stored_types import Run
from emmclab.studies.unwritten import unwritten_text
from emmclab.traces.workload import PARAMETERS_OF, Workload, benchmark_sources, workloads

#: Names of a layer's counters of bytes that it handles itself instead of passing them on.
_WORK = ("logged_bytes", "moved_bytes", "padded_bytes", "hot_bytes")
#: If a layer handles less than this share of the written bytes itself, it counts as passing on all requests.
_LEAST_WORK = 0.001


@functools.cache
def _made_from(workload: str) -> dict[str, list[str]]:
    sources: dict[str, list[str]] = tomllib.loads(Workload.preset(workload).to_toml()).get("made_from", {})
    return sources


@functools.cache
def fitted_to(device: str) -> frozenset[str]:
    """Return the published sources to which a device preset was fitted."""
    return frozenset(tomllib.loads(Device.named(device).to_toml()).get("fitted_to", ()))


def sources_of_field(workload: str, field: str) -> frozenset[str]:
    """Return the recorded sources of the parameters that determine a field of a workload's profile."""
    sources_of_parameters = _made_from(workload)
    return frozenset(source for key in PARAMETERS_OF.get(field, ()) for source in sources_of_parameters.get(key, ()))


def _idle(run: Run) -> bool:
    layers = run.layers
    if layers and all(layer["name"] == "pass-through" for layer in layers):
        return True
    counts = [layer[count] for layer in layers for count in _WORK if count in layer]
    return bool(counts) and sum(counts) <= _LEAST_WORK * run.requests.bytes_written


@functools.cache
def _sources_of_input(name: str) -> frozenset[str]:
    """Return all sources of a synthetic input; empty for a recorded trace."""
    if name not in workloads():
        return benchmark_sources(name)
    return frozenset(source for key in _made_from(name) for source in _made_from(name)[key])


def _devices(run: Run) -> set[str]:
    options = run.options
    return {name for name in (run.device, options.get("second")) if name}


@functools.cache
def _hosts_from() -> dict[str, frozenset[str]]:
    """Return the published sources from which each host preset was made, by the name of the host."""
    return {host["name"]: frozenset(host["made_from"]) for host in hosts()}


def _host(run: Run) -> str:
    """Return the name of the host on which an application ran; empty for other runs."""
    return run.app.host if "app" in run else ""


def recorded_in(reads: Reads) -> set[str]:
    """Return the names of the recorded traces that a measurement has read."""
    synthetic = set(workloads())
    of_profiles = {name for name, _ in reads.profiles if name not in synthetic}
    return of_profiles | {run.recorded_as for run in reads.runs.values() if run.recorded_as}


def synthetic_workloads(reads: Reads) -> set[str]:
    """Return the names of the synthetic workloads that a measurement has read."""
    names = {name for name, _ in reads.profiles}
    names |= {run.input for run in reads.runs.values() if run.recorded_as is None}
    return names & set(workloads())


def _were(names: set[str]) -> str:
    return f"{', '.join(sorted(names))} {'were' if len(names) > 1 else 'was'}"


def restated(reads: Reads, own: frozenset[str]) -> str:
    """Return why measured values depend only on the publications behind the claim; empty if they do not.

    Such values repeat the published figures, and do not test the claim.
    """
    synthetic = set(workloads())
    fields: dict[str, set[str]] = {}
    for name, column in reads.profiles:
        if name in synthetic:
            fields.setdefault(column, set()).update(sources_of_field(name, column))
    if any(not sources & own for sources in fields.values()):
        return ""
    working = [run for run in reads.runs.values() if not _idle(run)]
    devices = {*reads.devices, *itertools.chain(*map(_devices, working))}
    fitted = {device for device in devices if fitted_to(device) & own}
    inputs = {run.input for run in working if run.recorded_as is None}
    synthetic_inputs = {name for name in inputs if _sources_of_input(name) & own}
    hosts = {host for host in map(_host, working) if _hosts_from().get(host, frozenset()) & own}
    if (working or reads.devices) and not (fitted or synthetic_inputs or hosts):
        return ""
    reasons = []
    if fields:
        names = sorted(set().union(*fields.values()) & own)
        reasons.append(f"the synthetic workloads were made from {', '.join(names)}")
    if synthetic_inputs:
        reasons.append(f"{_were(synthetic_inputs)} made from it")
    if fitted:
        reasons.append(f"{_were(fitted)} fitted to it")
    if hosts:
        reasons.append(f"the host {', '.join(sorted(hosts))} has mechanisms that were made from it")
    if reads.runs and not working:
        reasons.append("the layer passed on every request, and takes no time itself")
    if reads.tables and not reasons and not recorded_in(reads):
        reasons.append("both sides are published figures")
    return f"Restated: {'; '.join(reasons)}." if reasons else ""


REPRODUCED = "reproduced"
HOLDS = "holds"
DIRECTION = "same trend, different size"
NOT = "not reproduced"
RESTATED = "restated"
CANNOT = "cannot be checked"
NOT_YET = "not yet"
#: Verdicts that result from a measurement of the claim.
TESTED = (REPRODUCED, HOLDS, DIRECTION, NOT)
VERDICTS = (*TESTED, RESTATED, CANNOT, NOT_YET)
#: Minimum and maximum ratio of the measured to the published effect for which a claim has the same trend.
LEAST_EFFECT, MOST_EFFECT = 0.5, 2.0
_NONE = "–"
#: Maximum number of traces that the reason of a verdict names; above it, the reason states their number.
_NAMED = 5
_INFINITE = float("inf")


@dataclass(frozen=True)
class Check:
    """A comparison of a measured value with the published one.

    A value is exact if it differs from `published` by at most `within`, or if it lies between the bounds `at_least` and
    `at_most` that the paper states. The effect of a value is its distance from `neutral`. A value has the same trend if
    its effect is 0.5 to 2 times the published effect. A count or a range has no neutral value: for it, `least` and
    `most` are the bounds of the trend. `part` describes the part of the claim that remains unchecked if the value
    cannot be measured.
    """

    value: str
    published: float | None = None
    within: float = 0.0
    neutral: float | None = None
    at_least: float = -_INFINITE
    at_most: float = _INFINITE
    least: float = -_INFINITE
    most: float = _INFINITE
    part: str = ""

    @property
    def states(self) -> bool:
        """Whether the paper gives a figure or a bound."""
        return self.published is not None or self.at_least > -_INFINITE or self.at_most < _INFINITE

    def exact(self, measured: float) -> bool:
        """Return whether the value equals the published one, within the tolerance."""
        near = self.published is None or abs(measured - self.published) <= self.within
        return near and self.at_least <= measured <= self.at_most

    def direction(self, measured: float) -> bool:
        """Return whether the value shows at least the same trend as the published one.

        >>> gain = Check("gain", published=3.0, within=0.6, neutral=1.0)
        >>> [gain.direction(value) for value in (1.27, 2.0, 5.0, 5.1)]
        [False, True, True, False]
        >>> Check("gain_pct", at_least=3.0, neutral=0.0).direction(1.6)
        True
        """
        if self.states and self.exact(measured):
            return True
        if self.neutral is not None:
            reference = self.published
            if reference is None:
                reference = self.at_least if measured < self.at_least else self.at_most
            effect = reference - self.neutral
            ratio = (measured - self.neutral) / effect if effect else 0.0
            return LEAST_EFFECT <= ratio <= MOST_EFFECT
        bounded = self.least > -_INFINITE or self.most < _INFINITE
        return bounded and self.least <= measured <= self.most


@dataclass(frozen=True)
class Rule:
    """A claim as declared in the ledger of its paper.

    `study` and `measure` specify how it is measured. `printed_in` lists the published columns and claims that contain
    its figures, besides its own id. `cannot` is the reason if no part can be checked, `not_yet` the reason if the
    system in question does not exist yet, and `unchecked` the part that no check covers. `expected` is its declared
    verdict; `tests/test_claims.py` compares it with the verdict from the results.
    """

    id: str
    source: str
    claim: str
    published: str
    checks: tuple[Check, ...] = ()
    study: str = ""
    measure: str = ""
    tolerance: str = ""
    reading: str = ""
    printed_in: tuple[str, ...] = ()
    cannot: str = ""
    not_yet: str = ""
    unchecked: str = ""
    expected: str = ""
    #: The declared verdict that a restated claim would have as a test.
    expected_as_test: str = REPRODUCED
    #: Further studies that measure the same claim. Each entry contains the keys that differ, such as `study` and
    #: `measure`.
    again: tuple[Mapping[str, Any], ...] = ()

    @property
    def own(self) -> frozenset[str]:
        """The claim's own sources; results computed from them would only restate the claim."""
        return frozenset((self.id, *self.printed_in))


class GridCells(TypedDict):
    """The simulations in one grid of a study from which a claim was measured."""

    grid: str
    devices: list[str]
    inputs: list[str]
    cells: int


class SyntheticEvidence(TypedDict):
    """The result and verdict of a claim if only synthetic traces are used, without recorded ones."""

    measured: str
    verdict: str


class Evidence(TypedDict, total=False):
    """The data from which the values of a claim were measured, and these values; empty if the claim is not measured."""

    study: str
    cells: list[GridCells]
    profiles: list[str]
    tables: list[str]
    devices: list[str]
    values: dict[str, float]
    #: The values on each device, if the claim is judged on several; `values` are those of the weakest verdict.
    by_device: Mapping[str, Mapping[str, float]]
    #: Workloads whose traces were recorded (`recorded`), and workloads whose traces were generated (`made`).
    recorded: list[str]
    made: list[str]
    #: The result and verdict from synthetic traces alone. Present only if recorded traces were used as well.
    on_made: SyntheticEvidence


@dataclass(frozen=True)
class Claim:
    """A claim with its result and verdict."""

    id: str
    paper: str
    source: str
    claim: str
    published: str
    measured: str
    tolerance: str
    verdict: str
    reason: str
    #: The verdict that a restated claim would have as a test; empty for other claims.
    as_test: str = ""
    evidence: Evidence = field(default_factory=lambda: Evidence())

    @property
    def fails_as_test(self) -> bool:
        """Whether the claim is restated, and its own figures do not even come out of the inputs made from them."""
        return self.as_test not in ("", REPRODUCED, HOLDS)

    def to_dict(self) -> dict[str, object]:
        """Return all fields as a dictionary of JSON values."""
        return asdict(self)


def rules(paper: Paper) -> list[Rule]:
    """Read the claims of a paper, in the order of its ledger.

    >>> from emmclab.papers.registry import papers
    >>> sum(len(rules(paper)) for paper in papers().values())
    77
    """
    return parse(paper.claims_text, paper.name)


def parse(text: str, name: str) -> list[Rule]:
    """Read the claims of a paper from TOML.

    Raises:
        ConfigError: a key is unknown, or a claim has neither a function that measures it nor a reason why it has none.
    """
    parsed = []
    for entry in tomllib.loads(text).get("claim", ()):
        try:
            checks = tuple(Check(**check) for check in entry.get("checks", ()))
            printed = tuple(entry.get("printed_in", ()))
            further = tuple(entry.get("again", ()))
            rule = Rule(**{"study": name, **entry, "checks": checks, "printed_in": printed, "again": further})
        except TypeError as error:
            raise ConfigError(
                f"{name}: claim `{entry.get('id')}`: {error}",
                hint="the classes `Rule` and `Check` of emmclab.papers.claims describe the fields of a claim",
            ) from error
        specified = sum(map(bool, (rule.measure, rule.cannot, rule.not_yet)))
        if specified != 1 or (rule.measure and not (rule.checks and rule.tolerance)):
            raise ConfigError(
                f"{name}: claim `{rule.id}` must have either `measure`, `checks` and `tolerance`, or a reason why "
                "it cannot be checked (`cannot` or `not_yet`)",
                field=rule.id,
                hint="give `measure`, `checks` and `tolerance`, or one of `cannot` and `not_yet`",
            )
        for check in checks:
            if check.published is not None and check.neutral is not None:
                effect = abs(check.published - check.neutral)
                if check.within > LEAST_EFFECT * effect:
                    raise ConfigError(
                        f"{name}: claim `{rule.id}`: a tolerance of {check.within:g} is more than half of "
                        f"the effect of {effect:g}",
                        field=check.value,
                        hint="use a smaller value of `within` for this check of the claim",
                    )
        parsed.append(rule)
    return parsed


def verdict(checks: tuple[Check, ...], values: Mapping[str, float], full: bool = True) -> str:
    """Return the verdict on measured values.

    A claim of which the paper states only the direction holds at best. If a value is missing, or if `full` is false
    because a part is unchecked, the verdict is "same trend" at best.

    >>> checks = (Check("gain", 86, within=5, neutral=0),)
    >>> [verdict(checks, {"gain": value}) for value in (83.0, 97.0, 40.0)]
    ['reproduced', 'same trend, different size', 'not reproduced']
    >>> verdict((*checks, Check("loss", 3)), {"gain": 83.0})
    'same trend, different size'
    >>> verdict((Check("faster", least=13),), {"faster": 25})
    'holds'
    """
    measured_checks = [check for check in checks if check.value in values]
    if not measured_checks:
        return CANNOT
    if not all(check.direction(values[check.value]) for check in measured_checks):
        return NOT
    if not full or len(measured_checks) < len(checks):
        return DIRECTION
    if not any(check.states for check in checks):
        return HOLDS
    exact = all(check.states and check.exact(values[check.value]) for check in checks)
    return REPRODUCED if exact else DIRECTION


def open_parts(rule: Rule, values: Mapping[str, float]) -> str:
    """List the parts of a claim that are not checked; empty if all are checked."""
    missing = [check.part or check.value for check in rule.checks if check.value not in values]
    parts = [*missing, *([rule.unchecked] if rule.unchecked else [])]
    return f"Not checked: {'; '.join(parts)}." if parts else ""


def studies_of(chosen: Iterable[Paper]) -> list[str]:
    """Return the studies whose results the claims of these papers need."""
    return list(dict.fromkeys(rule.study for paper in chosen for rule in rules(paper) if rule.measure))


def machine_bound_studies(chosen: Iterable[Paper]) -> list[str]:
    """Return the studies that cannot run on every machine, and that some claims need in order to be measured."""
    names = [more["study"] for paper in chosen for rule in rules(paper) if rule.cannot for more in rule.again]
    return list(dict.fromkeys(names))


def judge(results: Mapping[str, Results], chosen: Sequence[Paper] | None = None) -> list[Claim]:
    """Return the claims of papers (all if `chosen` is None) with verdicts, from the `results` of studies by name.

    Some claims need a study that cannot run on every machine (`machine_bound_studies`). Such a claim gets a verdict if
    `results` contain this study.

    Raises:
        EmmclabError: a study has cells without a result in a grid on which claims are based.
    """
    for name, study_results in results.items():
        _refuse_incomplete(study_results, studies()[name].grids_without_claims.get(name, ()))
    claims = []
    for paper in papers().values() if chosen is None else chosen:
        for declared in rules(paper):
            further = (more for more in declared.again if declared.cannot and more["study"] in results)
            rule = replace(declared, **next(further, {}))
            claims.append(_judge(paper, rule, results[rule.study] if rule.measure else None))
    return claims


def judge_study(results: Results) -> list[Claim]:
    """Return the claims that are measured by one study, with the same verdicts as in the list of all claims.

    Raises:
        EmmclabError: the study has cells without a result, so that its claims cannot be judged.
    """
    name = results.about["name"]
    paper = studies()[name]
    declared = rules(paper)
    if declared:
        _refuse_incomplete(results)
    ways = [replace(rule, **more) for rule in declared for more in ({}, *rule.again)]
    return [_judge(paper, rule, results) for rule in ways if rule.measure and rule.study == name]


def _refuse_incomplete(results: Results, unread: Collection[str] = ()) -> None:
    """Reject results of a study with missing cells; cells in the grids `unread` may be missing."""
    if results.lacks(unread):
        name = results.about["name"]
        raise EmmclabError(
            f"{name}: {results.missing:,} of {results.about['cells']:,} cells have no result; no claim is checked",
            kind="failed",
            hint=f"run the missing cells: `emmclab run {name}`",
        )


def _judge(paper: Paper, rule: Rule, results: Results | None) -> Claim:
    def claim(
        verdict: str, reason: str, measured: str = _NONE, as_test: str = "", evidence: Evidence | None = None
    ) -> Claim:
        return Claim(
            id=rule.id,
            paper=paper.name,
            source=rule.source,
            claim=rule.claim,
            published=rule.published,
            measured=measured,
            tolerance=rule.tolerance or _NONE,
            verdict=verdict,
            reason=reason,
            as_test=as_test,
            evidence=evidence or {},
        )

    if results is None:
        return claim(NOT_YET, rule.not_yet) if rule.not_yet else claim(CANNOT, rule.cannot)
    workload_of = stand_ins(results)
    measurement, reads = run_measure(find_measure(paper.name, rule.measure), in_place(results))
    measurement, on_devices = _on_weakest_device(rule, measurement)
    claim_verdict, restatement, as_test = _weighed(rule, measurement, reads)
    evidence = _evidence(rule, measurement, reads)
    evidence["recorded"] = [workload_of[name] for name in workload_of if name in recorded_in(reads)]
    evidence["made"] = sorted(synthetic_workloads(reads))
    if evidence["recorded"]:
        on_synthetic, reads_made = run_measure(find_measure(paper.name, rule.measure), without(results))
        on_synthetic, _ = _on_weakest_device(rule, on_synthetic)
        evidence["on_made"] = {"measured": on_synthetic.text, "verdict": _weighed(rule, on_synthetic, reads_made)[0]}
    verdicts = {
        reading: verdict(rule.checks, values, full=not rule.unchecked) for reading, values in measurement.beside.items()
    }
    differing = sum(
        other != verdict(rule.checks, measurement.values, full=not rule.unchecked) for other in verdicts.values()
    )
    beside = [
        *([f"Under {differing} of {len(verdicts)} other readings the verdict differs."] if len(verdicts) > 1 else []),
        *(f"{reading[:1].upper()}{reading[1:]}, the verdict would be: {other}." for reading, other in verdicts.items()),
    ]
    unchecked = open_parts(rule, measurement.values)
    unwritten = unwritten_text(reads.runs.values())
    parts = [
        _judged_on(evidence),
        on_devices,
        restatement,
        unchecked,
        rule.reading,
        *beside,
        unwritten,
        measurement.note,
    ]
    reason = " ".join(part for part in parts if part)
    return claim(claim_verdict, reason, measurement.text, as_test, evidence)


def _on_weakest_device(rule: Rule, measurement: Measurement) -> tuple[Measurement, str]:
    """Return a measurement with the values of the device with the weakest verdict, and a text with all verdicts.

    Without values by device, the measurement is unchanged and the text empty.
    """
    if not measurement.by_device:
        return measurement, ""
    verdicts = {
        device: verdict(rule.checks, values, full=not rule.unchecked)
        for device, values in measurement.by_device.items()
    }
    weakest = max(verdicts, key=lambda device: TESTED.index(verdicts[device]))
    listed = "; ".join(f"{device}: {of_device}" for device, of_device in verdicts.items())
    return replace(measurement, values=dict(measurement.by_device[weakest])), f"The weakest verdict counts ({listed})."


def _weighed(rule: Rule, measurement: Measurement, reads: Reads) -> tuple[str, str, str]:
    """Return the verdict on a measured claim of a paper, a reason, and the verdict that it would have as a test.

    The last two are empty, unless the result only restates the sources on which the claim itself is based.
    """
    claim_verdict = verdict(rule.checks, measurement.values, full=not rule.unchecked)
    restatement = restated(reads, rule.own)
    if not restatement:
        return claim_verdict, "", ""
    reason = f"{restatement} Agreement would be no evidence. As a test the verdict would be: {claim_verdict}."
    return RESTATED, reason, claim_verdict


def _judged_on(evidence: Evidence) -> str:
    """Describe which traces of a claim's evidence are recorded and which are synthetic; empty if none is recorded."""
    recorded, synthetic = evidence["recorded"], evidence["made"]
    if not recorded:
        return ""
    count = len(recorded) + len(synthetic)
    if not synthetic:
        names = f" ({', '.join(recorded)})" if count <= _NAMED else ""
        return f"Judged on recorded traces alone{names or f', all {count}'}."
    few, kind = (recorded, "recorded") if len(recorded) <= len(synthetic) else (synthetic, "synthetic")
    names = f" ({', '.join(few)})" if len(few) <= _NAMED else ""
    return f"Judged on a mixture: {len(few)} of {count} traces are {kind}{names}."


def _evidence(rule: Rule, measurement: Measurement, reads: Reads) -> Evidence:
    """Return the data from which a claim was measured: study, cells by grid, profile fields, published tables."""
    cells: dict[str, list[Run]] = {}
    for run in reads.runs.values():
        cells.setdefault(run.grid, []).append(run)
    return {
        "study": rule.study,
        "cells": [
            {
                "grid": grid,
                "devices": list(dict.fromkeys(run.device for run in runs)),
                "inputs": list(dict.fromkeys(run.input for run in runs)),
                "cells": len(runs),
            }
            for grid, runs in cells.items()
        ],
        "profiles": sorted({field for _, field in reads.profiles}),
        "tables": list(reads.tables),
        "devices": list(reads.devices),
        "values": measurement.values,
        **({"by_device": measurement.by_device} if measurement.by_device else {}),
    }


def counts(claims: Iterable[Claim]) -> dict[str, int]:
    """Count the claims by verdict, in the order of `VERDICTS`."""
    claims_by_verdict = dict.fromkeys(VERDICTS, 0)
    for claim in claims:
        claims_by_verdict[claim.verdict] += 1
    return claims_by_verdict


def settled(claims: Iterable[Claim]) -> str:
    """Describe how many claims are settled by recorded traces alone, and how many also use synthetic traces.

    Empty if no claim uses recorded traces.
    """
    traced = [claim for claim in claims if claim.evidence.get("recorded") or claim.evidence.get("made")]
    recorded = [claim for claim in traced if claim.evidence["recorded"]]
    if not recorded:
        return ""
    recorded_only = [claim for claim in recorded if not claim.evidence["made"]]
    alone = [claim for claim in recorded_only if claim.verdict in TESTED]
    changed = [claim.id for claim in recorded if claim.verdict != claim.evidence["on_made"]["verdict"]]
    still = len(recorded_only) - len(alone)
    return (
        f"Of {len(traced)} claims that read traces, recorded traces alone settle {len(alone)}"
        + (f" ({still} more stay restated, because of the device)" if still else "")
        + f"; {len(recorded) - len(recorded_only)} read recorded and synthetic traces, {len(traced) - len(recorded)} "
        "only synthetic ones. Verdicts that differ from those on synthetic traces alone: "
        f"{', '.join(changed) or 'none'}."
    )


def tested_first(claims: Iterable[Claim]) -> list[Claim]:
    """Return the claims that were tested, then those that were not, and last those that are only restated."""
    return sorted(claims, key=lambda claim: (claim.verdict == RESTATED, claim.verdict not in TESTED))


def headline(claims: Sequence[Claim]) -> str:
    """Return a line of text: how many claims of the papers were tested, restated or cannot be checked."""
    number = counts(claims)
    tested = sum(number[name] for name in TESTED)
    failing = sum(claim.fails_as_test for claim in claims)
    return (
        f"{tested} claims tested: {number[REPRODUCED]} reproduced, {number[HOLDS]} hold, {number[DIRECTION]} same "
        f"trend but different size, {number[NOT]} not; {number[RESTATED]} restated, of which {failing} fail; "
        f"{number[CANNOT]} cannot be checked" + (f"; {number[NOT_YET]} not yet" if number[NOT_YET] else "")
    )
