"""Formats the outcome of an exploration as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import cast

from emmclab.crash import generated
from emmclab.crash.explore import Exploration, Options
from emmclab.crash.finding import COMMANDS, Finding
from emmclab.crash.json_types import CrashSummary, FindingFields, OptionFields
from emmclab.crash.minimal import Minimal
from emmclab.crash.session import Kept


def verdict(found: Exploration, check: str | None) -> str:
    """Return the outcome of an exploration in a phrase; `check` judged its files. None without an outcome."""
    findings = found.findings()
    if not findings and check is None:
        return "device and file system kept their promises; nothing checked the data of the workload"
    if not findings:
        return "no acknowledged data was lost"
    levels = ", ".join(dict.fromkeys(one.level for one in findings))
    return f"promises were broken by: {levels}"


def after_syncs(found: Exploration, options: Options) -> str | None:
    """Return how many generated programs were cut after their last sync; None for another workload."""
    if options.check != generated.CHECK or not found.covered.get("lines"):
        return None
    cut, programs = found.covered["lines_cut"], found.covered["lines"]
    return f"{cut:,} of {programs:,} programs were cut after their last sync"


def shown(kept: Kept, options: Options, one: Finding, minimal: Minimal | None = None) -> FindingFields:
    """Return a finding as JSON, with the smallest state that shows it."""
    said: FindingFields = {
        "promise": one.promise,
        "level": one.level,
        "cut": one.cut,
        "state": one.state,
        # Commands break a rule of the journal independent of any state.
        "again": None if one.way == COMMANDS else kept.name_of(options, one.cut, one.state),
        "states": one.count,
        "detail": one.detail,
        "chosen_by": one.way,
        "at_ns": one.at_ns,
        "acknowledged": one.acknowledged,
    }
    if one.documented:
        said["documented"] = one.documented
    if minimal is not None:
        said["minimal"] = minimal.as_json()
    return said


def summary(kept: Kept, options: Options, found: Exploration, minimal: Mapping[int, Minimal]) -> CrashSummary:
    """Return all findings as JSON."""
    return {
        "cuts": found.covered.get("cuts", 0),
        "states": found.states,
        "reused_states": found.reused,
        "pruned_states": found.pruned,
        "states_per_s": round(found.states / found.took_s, 1) if found.took_s else None,
        "findings": [
            shown(kept, options, one, minimal.get(number)) for number, one in enumerate(found.findings())
        ],
        "documented": [shown(kept, options, one) for one in found.findings(documented=True)],
        "covered": found.covered,
        "seed": options.seed,
        "log": {**kept.facts, "path": str(kept.log)},
        "run": {**kept.made},
        "options": cast("OptionFields", asdict(options)),
    }
