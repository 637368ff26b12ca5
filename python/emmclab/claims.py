"""The claims ledger: the statements of a paper, the measure of each, its result, and a verdict."""

from __future__ import annotations

import csv
import io
import tomllib
from dataclasses import asdict, dataclass
from typing import Any

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.study import advil as _advil  # noqa: F401 (registers its measures)
from emmclab.study import implications as _implications  # noqa: F401 (registers its measures)
from emmclab.study.measures import measure
from emmclab.study.results import Results

REPRODUCED = "reproduced"
DIRECTION = "reproduced in direction"
NOT = "not reproduced"
CANNOT = "cannot be checked here"
VERDICTS = (REPRODUCED, DIRECTION, NOT, CANNOT)

#: What it means that a statistic of a synthetic trace agrees with the publication that the trace was made
#: from.
_RESTATED = (
    "The synthetic workloads were made from this publication: agreement shows that tables and text fit "
    "together and "
    "that the synthesis keeps them, and is no independent evidence."
)


@dataclass(frozen=True)
class Check:
    """A value held against the published one.

    `within` is the tolerance; `least` and `most` are the limits inside which at least the direction is right.
    `part` names, in words, the part of the claim that stays open where the value cannot be measured.
    """

    value: str
    published: float | None = None
    within: float = 0.0
    least: float = float("-inf")
    most: float = float("inf")
    part: str = ""

    def exact(self, measured: float) -> bool:
        """Tell whether the value is the published one, within tolerance."""
        return self.published is None or abs(measured - self.published) <= self.within

    def direction(self, measured: float) -> bool:
        """Tell whether at least the direction is right."""
        return self.least <= measured <= self.most


@dataclass(frozen=True)
class Rule:
    """A claim as the ledger declares it; tolerances are set, with their reason, before any result is seen.

    `cannot` gives the reason if no part can be checked, `unchecked` the part that no check covers.
    """

    id: str
    checks: tuple[Check, ...] = ()
    measure: str = ""
    tolerance: str = ""
    restated: bool = False
    cannot: str = ""
    unchecked: str = ""


@dataclass(frozen=True)
class Claim:
    """A claim with its result."""

    id: str
    source: str
    claim: str
    published: str
    measured: str
    tolerance: str
    verdict: str
    reason: str

    def to_dict(self) -> dict[str, str]:
        """Give all fields."""
        return asdict(self)


def rules(paper: str) -> list[Rule]:
    """Read a paper's ledger.

    Raises:
        ConfigError: there is no such paper, or its ledger is wrong.

    >>> len(rules("iiswc15"))
    28
    """
    texts = _core.claim_presets()
    if paper not in texts:
        raise ConfigError(
            f"there is no claims ledger of `{paper}`",
            kind="config",
            field="--paper",
            hint=f"there are: {', '.join(texts)}",
        )
    return parse(texts[paper], paper)


def parse(text: str, name: str) -> list[Rule]:
    """Read a ledger from TOML; unknown keys and functions are refused."""
    found = []
    for entry in tomllib.loads(text)["claim"]:
        try:
            rule = Rule(**{**entry, "checks": tuple(Check(**check) for check in entry.get("checks", ()))})
        except TypeError as error:
            raise ConfigError(f"{name}: claim `{entry.get('id')}`: {error}", kind="config") from error
        if not rule.cannot and (
            rule.measure not in measure.functions or not rule.checks or not rule.tolerance
        ):
            raise ConfigError(
                f"{name}: claim `{rule.id}` needs a known measure, checks and a tolerance, or says why it "
                "cannot be checked",
                kind="config",
                hint=f"measures: {', '.join(measure.functions)}",
            )
        found.append(rule)
    return found


def said(paper: str) -> dict[str, dict[str, str]]:
    """Give the published statements of a paper by id.

    >>> said("iiswc15")["iiswc-c1"]["source"]
    'IISWC15 Characteristic 1'
    """
    rows = csv.DictReader(io.StringIO(_core.published_csv()["claims"]))
    known = {rule.id for rule in rules(paper)}
    prefix = {"iiswc15": "iiswc-", "advil12": "advil-"}.get(paper, "no prefix")
    return {row["id"]: row for row in rows if row["id"] in known or row["id"].startswith(prefix)}


def verdict(checks: tuple[Check, ...], values: dict[str, float], whole: bool = True) -> str:
    """Judge measured values; with a part not checked (or not `whole`) a claim holds in direction at most.

    >>> verdict((Check("gain", 86, within=5, least=0),), {"gain": 83.0})
    'reproduced'
    >>> verdict((Check("gain", 86, within=5, least=0),), {"gain": 97.0})
    'reproduced in direction'
    >>> verdict((Check("gain", 86, within=5, least=0),), {"gain": -3.0})
    'not reproduced'
    >>> verdict((Check("gain", 86, within=5, least=0), Check("loss", 3)), {"gain": 83.0})
    'reproduced in direction'
    """
    known = [check for check in checks if check.value in values]
    if not known:
        return CANNOT
    if not all(check.direction(values[check.value]) for check in known):
        return NOT
    numbers = all(check.exact(values[check.value]) for check in known)
    stated = any(check.published is not None for check in known)
    return REPRODUCED if numbers and stated and whole and len(known) == len(checks) else DIRECTION


def open_parts(rule: Rule, values: dict[str, float]) -> str:
    """Name the parts of a claim that are not checked; empty if all are.

    >>> open_parts(Rule("x", checks=(Check("a", 1, part="one at noon"),)), {})
    'Not checked: one at noon.'
    """
    missing = [check.part or check.value for check in rule.checks if check.value not in values]
    parts = [*missing, *([rule.unchecked] if rule.unchecked else [])]
    return f"Not checked: {'; '.join(parts)}." if parts else ""


def judge(results: Results, paper: str = "iiswc15") -> list[Claim]:
    """Judge every claim of a paper on the results of its study, in the order of the published list."""
    by_id = {rule.id: rule for rule in rules(paper)}
    return [_judge(row, by_id.get(name), results) for name, row in said(paper).items()]


def _judge(row: dict[str, str], rule: Rule | None, results: Results) -> Claim:
    common = {"id": row["id"], "source": row["source"], "claim": row["claim"], "published": row["published"]}
    if rule is None:
        return Claim(**common, measured="–", tolerance="–", verdict=CANNOT, reason="No rule computes it yet.")
    if rule.cannot:
        return Claim(**common, measured="–", tolerance="–", verdict=CANNOT, reason=rule.cannot)
    found = measure.functions[rule.measure](results)
    parts = [open_parts(rule, found.values), found.note, _RESTATED if rule.restated else ""]
    return Claim(
        **common,
        measured=found.text,
        tolerance=rule.tolerance,
        verdict=verdict(rule.checks, found.values, whole=not rule.unchecked),
        reason=" ".join(part for part in parts if part),
    )


def counts(claims: list[Claim]) -> dict[str, int]:
    """Count the claims by verdict, in the order of `VERDICTS`."""
    return {name: sum(claim.verdict == name for claim in claims) for name in VERDICTS}


def to_json(claims: list[Claim]) -> list[dict[str, Any]]:
    """Give the claims as JSON values."""
    return [claim.to_dict() for claim in claims]
