"""The results of a study in memory, as claims and pages ask for them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emmclab.errors import EmmclabError
from emmclab.profile import Profile
from emmclab.study.place import Place
from emmclab.study.store import Store
from emmclab.study.tables import Digest, Run, cuts_power
from emmclab.workload import workload_groups, workloads


@dataclass(frozen=True)
class Results:
    """Profiles by input (further seeds are named so) and runs, in the order of the study."""

    about: dict[str, Any]
    profiles: dict[str, Profile]
    runs: list[Run]
    digest: str
    """SHA-256 of everything, first 16 digits."""
    failures: list[Run] = field(default_factory=list)
    """Cells that failed, each with `message` and `hint`."""
    cuts: list[Run] = field(default_factory=list)
    """Cells that cut power; they are not among the runs."""

    @staticmethod
    def load(place: Place | Path) -> Results:
        """Read the last finished run of the results of a study: from their folder or bucket.

        Raises:
            InputError: there is none.
        """
        store = Store(place)
        return Results.of_entries(store.index()["study"], store.results())

    @staticmethod
    def of_entries(about: dict[str, Any], texts: Iterable[str]) -> Results:
        """Make them of results as they are kept, in the order of the study."""
        digest = Digest()
        entries = []
        for text in texts:
            digest.add(hashlib.sha256(text.encode()).hexdigest())
            entries.append(json.loads(text))
        profiles: dict[str, Profile] = {}
        for entry in entries:
            cell = entry["cell"]
            if cell["grid"] == "profile" and "result" in entry:
                again = cell["input"] in profiles
                name = f"{cell['input']} (seed {cell['seed']})" if again else cell["input"]
                profiles[name] = Profile({**entry["result"], "name": name})
        done = [
            {**entry["result"], **entry["cell"]}
            for entry in entries
            if entry["cell"]["grid"] != "profile" and "result" in entry
        ]
        cuts = [run for run in done if cuts_power(run)]
        runs = [run for run in done if not cuts_power(run)]
        failures = [{**entry["cell"], **entry["failed"]} for entry in entries if "failed" in entry]
        return Results(about, profiles, runs, digest.text, failures, cuts)

    @property
    def missing(self) -> int:
        """Cells of the study that have no result."""
        return int(self.about.get("missing", 0))

    @property
    def inputs(self) -> list[str]:
        """Names of all inputs."""
        return list(self.profiles)

    def inputs_once(self) -> list[Profile]:
        """Give the profile of each input once, with the first seed."""
        seen = {
            re.sub(r" \(seed \d+\)$", "", name): profile for name, profile in reversed(self.profiles.items())
        }
        return list(reversed(seen.values()))

    @property
    def applications(self) -> list[str]:
        """The paper's 18 applications, those that were run."""
        return [name for name in workload_groups()["applications"] if name in self.profiles]

    @property
    def combos(self) -> list[str]:
        """The paper's seven combos, those that were run."""
        return [name for name in workload_groups()["combos"] if name in self.profiles]

    @property
    def recorded(self) -> list[str]:
        """Real traces."""
        return [name for name in self.profiles if name not in workloads()]

    def of(self, names: Sequence[str], field: str) -> dict[str, float]:
        """Give a field of the profiles by input."""
        return {name: self.profiles[name][field] for name in names}

    def select(self, grid: str, **wanted: Any) -> Iterator[Run]:
        """Give the runs of a grid whose cell or options have the wanted values."""
        for run in self.runs:
            if run["grid"] == grid and all(
                run.get(field, run["options"].get(field)) == value for field, value in wanted.items()
            ):
                yield run

    def run(self, grid: str, **wanted: Any) -> Run:
        """Give the one run of a grid with the wanted values.

        Raises:
            EmmclabError: there is none, or more than one.
        """
        found = list(self.select(grid, **wanted))
        if len(found) != 1:
            raise EmmclabError(
                f"{len(found)} runs of `{grid}` with {wanted}, where one is needed",
                hint="the study does not hold what this claim or figure needs; run it in full",
            )
        return found[0]
