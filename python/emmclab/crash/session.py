"""Kept logs: each in a folder named for it, with how it was made and what was found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from emmclab import _core
from emmclab.crash.explore import Exploration, Options, open_run
from emmclab.crash.recording import Workload, record_run
from emmclab.crash.work import explore_in_parallel
from emmclab.device import Device
from emmclab.errors import ConfigError, EmmclabError
from emmclab.layers import Setting

#: Characters of a log's identity in names and in what shows a state again.
_SHORT = 8


@dataclass(frozen=True)
class Kept:
    """A log in its folder."""

    folder: Path
    log: Path
    base: str | None
    identity: str
    facts: Mapping[str, Any]
    #: How the run was made; empty for a log from elsewhere.
    made: Mapping[str, Any]

    @property
    def short(self) -> str:
        """The name of the log in what shows a state again."""
        return self.identity[:_SHORT]

    def keep(self, options: Options) -> None:
        """Keep the options, by which states have their numbers."""
        about = {"made": self.made, "base": self.base, "options": asdict(options), "log": str(self.log)}
        _core.write_whole(self.folder / "run.json", json.dumps(about, indent=1).encode())

    def explore(self, options: Options, jobs: int, told: Callable[[Exploration], None]) -> Exploration:
        """Explore the log, or go on with an exploration that was interrupted."""
        self.keep(options)
        return explore_in_parallel(
            str(self.log), options, base=self.base, jobs=jobs, folder=self.folder, told=told
        )


class Session:
    """A folder of kept logs."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made where it is needed."""
        self._folder = folder

    def record(
        self,
        device: Device | str,
        workload: Workload,
        *,
        layers: Sequence[str],
        layer_settings: Mapping[str, Setting],
        file_system: str,
        mkfs_options: Sequence[str],
        mount_options: str | None,
        said: Callable[[str], None],
    ) -> Kept:
        """Run a workload and keep its log.

        Raises:
            ConfigError: as `record_run`.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(prefix=".log-", dir=self._folder) as aside:
            recorded = record_run(
                device,
                workload,
                aside.name,
                layers=layers,
                layer_settings=layer_settings,
                file_system=file_system,
                mkfs_options=mkfs_options,
                mount_options=mount_options,
                said=said,
            )
            for note in recorded.notes:
                said(f"note: {note}")
            made = {
                "device": device if isinstance(device, str) else device.name,
                "layers": list(layers),
                "file_system": file_system,
                "mkfs_options": list(mkfs_options),
                "mount_options": mount_options,
                "workload": asdict(workload),
                "status": recorded.status,
                "notes": list(recorded.notes),
            }
            _, facts = open_run(aside.name)
            folder = self._folder / facts["identity"][:_SHORT]
            folder.mkdir(exist_ok=True)
            shutil.copyfile(aside.name, folder / "run.log")
        return Kept(folder, folder / "run.log", None, facts["identity"], facts, made)

    def take(self, log: Path, base: Path | None) -> Kept:
        """Take a log from elsewhere; it stays where it is.

        Raises:
            EmmclabError: it cannot be read.
        """
        named = None if base is None else str(base.absolute())
        _, facts = open_run(str(log), base=named)
        folder = self._folder / facts["identity"][:_SHORT]
        folder.mkdir(parents=True, exist_ok=True)
        return Kept(folder, log.absolute(), named, facts["identity"], facts, {})

    def again(self, state: str) -> tuple[Kept, Options]:
        """Find the log, and the options that name a state, as `c3f2:8812:17`.

        Raises:
            ConfigError: the name is none, or there is no such log, or there are several.
        """
        parts = state.split(":")
        if len(parts) != 3 or not parts[0] or not all(part.isdecimal() for part in parts[1:]):
            raise ConfigError(
                f"`{state}` names no state",
                kind="config",
                field="again",
                hint="as a finding does: c3f2:8812:17",
            )
        found = sorted(self._folder.glob(f"{parts[0]}*/run.json"))
        if len(found) != 1:
            many = "no log" if not found else f"{len(found)} logs"
            raise ConfigError(
                f"{many} in {self._folder} begin with {parts[0]}",
                kind="config",
                field="again",
                hint="name the folder with --results, or more of the log's name",
            )
        about = json.loads(found[0].read_text(encoding="utf-8"))
        given: dict[str, Any] = about["options"]
        options = Options(**given | {"only": (int(parts[1]), int(parts[2])), "share": (0, 1)})
        _, facts = open_run(about["log"], base=about["base"])
        if not facts["identity"].startswith(parts[0]):
            raise EmmclabError(f"{about['log']}: the log is another one now", kind="value", file=about["log"])
        log = Path(about["log"])
        return Kept(found[0].parent, log, about["base"], facts["identity"], facts, about["made"]), options
