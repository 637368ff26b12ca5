"""A cell of a study, which is run once and stored: one input is profiled, or run on one device."""

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from emmclab import __version__
from emmclab.errors import EmmclabError, InputError, UnsupportedError
from emmclab.runtime.local_copies import build_digest, file_digest, local_path
from emmclab.simulation.device import Device
from emmclab.simulation.run_options import split_precondition
from emmclab.studies.grid import FILES
from emmclab.studies.input import Input
from emmclab.studies.kinds import CellKind, Images, Work, kind_of_cell
from emmclab.studies.stored_types import CellFields, CellOptions, Entry

#: Version of the format of stored results; results with another version are ignored.
_KEPT_AS = 1
#: Number of requests above which a generated input counts as long. Generating a long input takes longer than reading a
#: device image from disk.
_LONG_REQUESTS = 200_000


@dataclass(frozen=True)
class Cell:
    """A cell: a unit of work of a study. `grid` is `profile`, or the name of a grid, which has a device and options."""

    grid: str
    input: Input
    device: str = ""
    #: Device settings by dotted key, as JSON.
    settings: str = "{}"
    device_name: str = ""
    device_digest: str = ""
    options: str = "{}"

    def identity(self) -> CellFields:
        """Return everything that determines the result of this run of a study, except the version of emmclab."""
        fields: CellFields = {
            "grid": self.grid,
            "input": self.input.name,
            "input_digest": self.input.digest,
            "synthetic": self.input.synthetic,
            "requests_asked": self.input.requests,
            "seed": self.input.seed,
        }
        if self.input.reading != "{}":
            fields["reading"] = json.loads(self.input.reading)
        if self.device:
            options = _parsed(self.options)
            fields["device"] = self.device_name
            fields["device_digest"] = self.device_digest
            fields["settings"] = json.loads(self.settings)
            fields["options"] = options
            if second := options.get("second"):
                fields["second_digest"] = Device.named(local_path(second)).digest
            _, aging = split_precondition(options["precondition"])
            if Path(local_path(aging)).is_file():
                fields["precondition_digest"] = file_digest(aging)
        elif self.options != "{}":
            fields["options"] = _parsed(self.options)
        return fields

    @property
    def kind(self) -> CellKind:
        """The kind of the cell: a profile, a replay, a live or closed-loop run, or power cuts."""
        return kind_of_cell(self.grid, _parsed(self.options))

    @functools.cached_property
    def preparation_key(self) -> tuple[object, ...]:
        """Key of the slow preparation: cells with the same key share a preconditioned device or, else, an input."""
        options = _parsed(self.options)
        is_used = self.device and options.get("precondition", "none") != "none"
        if is_used and self.input.requests < _LONG_REQUESTS:
            return self.grid, self.device, self.settings, options.get("capacity"), options["precondition"]
        return self.grid, self.input

    @functools.cached_property
    def key(self) -> str:
        """SHA-256 of everything that determines the result of the cell."""
        decisive = {**self.identity(), "version": __version__, "build": build_digest(), "kept_as": _KEPT_AS}
        return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()

    def prepare(self, images: Images) -> bool:
        """Precondition the devices of the cell; False if another process is preconditioning one of them."""
        options = self._options()
        precondition = options.get("precondition", "none")
        if precondition == "none" or not images.limit:
            return True
        devices = [self._configured()]
        if (second := options.get("second")) and not Path(split_precondition(precondition)[1]).is_file():
            devices.append(Device.named(second))
        try:
            return all(
                device.precondition(images.folder, precondition, seed=self.input.seed, images_limit=images.limit)
                for device in devices
            )
        except EmmclabError as error:
            if error.errno is not None:
                raise
            # The error is ignored here, because the run of the cell fails with the same error and reports it.
            return True

    def outcome(self, images: Images | None = None) -> Entry:
        """Run the cell; return its `result`, with everything that determines it as `cell`.

        The result is the same on every computer, with and without `images`. If the inputs or settings are
        impossible, this is also a result: the cell has `failed`.
        """
        try:
            options = self._options()
            result = self.kind.run(Work(self.input, options, _parsed(self.options), self._configured, images))
            return {"cell": self.identity(), "result": dict(result)}
        except EmmclabError as error:
            if isinstance(error, (InputError, UnsupportedError)) or error.errno is not None:
                raise
            return {"cell": self.identity(), "failed": {"message": str(error), "hint": error.hint}}

    def files(self) -> list[str]:
        """Return the files that the cell reads: trace or model, devices, and a trace for preconditioning."""
        options = _parsed(self.options)
        named = (self.device, options.get("second") or "")
        files = [name for name in named if "/" in name or name.endswith(".toml")]
        if not self.input.synthetic or self.input.source.endswith(".toml"):
            files.append(self.input.source)
        if Path(aging := split_precondition(options.get("precondition", "none"))[1]).is_file():
            files.append(aging)
        return files

    def _options(self) -> CellOptions:
        """Return the options of the cell, with local paths in place of files."""
        options = _parsed(self.options).copy()
        for name in FILES:
            if named := options.get(name):
                before, file = split_precondition(named)
                options[name] = before + local_path(file)
        return options

    def _configured(self) -> Device:
        device = Device.named(local_path(self.device))
        if self.settings != "{}":
            device = device.set(json.loads(self.settings))
        capacity = _parsed(self.options).get("capacity")
        if capacity:
            device = device.with_capacity(capacity)
        # If the file of the device has changed, the device is no longer the one for which this run was planned.
        if ("/" in self.device or self.device.endswith(".toml")) and device.digest != self.device_digest:
            raise InputError(
                "this file has changed since the run of the study began",
                hint="run the study again, which repeats only the cells of this device",
            ).in_file(self.device)
        return device


@functools.lru_cache(maxsize=64)
def _parsed(options: str) -> CellOptions:
    """Parse options; the result is cached for cells with the same text, and must not be changed."""
    parsed: CellOptions = json.loads(options)
    return parsed
