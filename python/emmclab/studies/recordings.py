"""Recorded traces that replace workloads of a study."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from emmclab.studies.stored_types import RecordingsAbout
from emmclab.traces.workload import workload_groups


@dataclass(frozen=True)
class StandIn:
    """A recorded trace, the workload that it replaces, and how it was identified."""

    file: str
    workload: str
    how: str


@dataclass(frozen=True)
class Recordings:
    """The recorded traces of a folder: those that replace workloads, and files that do not."""

    folder: str
    used: tuple[StandIn, ...]
    #: Name of the file and reason, for each.
    left_out: tuple[tuple[str, str], ...] = ()

    def of(self, inputs: Sequence[str]) -> list[str]:
        """Return the paths of the traces whose workloads are among the inputs, which may be groups."""
        groups = workload_groups()
        names = {one for name in inputs for one in groups.get(name, [name])}
        return [self._path(one) for one in self.used if one.workload in names]

    def _path(self, one: StandIn) -> str:
        return str(Path(self.folder, one.file))

    def about(self, inputs: Mapping[str, str]) -> RecordingsAbout:
        """Return the description for results; `inputs` are names of inputs by resolved path."""
        return {
            "folder": self.folder,
            "used": [
                {
                    "file": one.file,
                    "workload": one.workload,
                    "how": one.how,
                    "input": inputs[str(Path(self._path(one)).resolve())],
                }
                for one in self.used
            ],
            "left_out": [list(one) for one in self.left_out],
        }
