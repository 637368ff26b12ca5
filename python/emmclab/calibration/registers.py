"""The registers of a real device, and a device preset made of them."""

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from emmclab import _core
from emmclab.calibration.register_files import register_files
from emmclab.calibration.register_preset import RegisterPreset, preset_of
from emmclab.core_types import FieldRow, RegisterFact, RegisterReport
from emmclab.runtime.files import printable
from emmclab.simulation.device import Device


@dataclass(frozen=True)
class Registers:
    """The EXT_CSD register of an eMMC, or the descriptors of a UFS.

    Attributes:
        source: the file or folder from which they were read.
        kind: `emmc` or `ufs`.
        standard: the standard that the device follows, as `eMMC 5.1`.
        like: the preset of the same class.
        facts: what the device is and can do: `topic`, `text` (None if it is not known), `from` (fields).
        fields: every field: `name`, `register`, `place`, `value` (None if it is not known), `meaning`.
        notes: what is known but has no setting, or was not adopted, with the reason.
    """

    source: str
    report: RegisterReport

    @property
    def kind(self) -> str:
        """`emmc` or `ufs`."""
        return self.report["kind"]

    @property
    def standard(self) -> str:
        """The standard that the device follows."""
        return self.report["standard"]

    @property
    def facts(self) -> list[RegisterFact]:
        """The properties and capabilities of the device."""
        return list(self.report["facts"])

    @property
    def fields(self) -> list[FieldRow]:
        """Every field, by its name in the standard."""
        return list(self.report["fields"])

    @property
    def notes(self) -> list[str]:
        """What is known but was not adopted, with the reason."""
        return list(self.report["notes"])

    def preset(self, *, like: str | None = None, name: str | None = None) -> RegisterPreset:
        """Make a device preset of the registers, with the other settings of a preset of the same class.

        Args:
            like: the other preset, or a device file; by default it is chosen by kind and version.
            name: the name of the device.

        Raises:
            ConfigError: the base is of the other kind, or the model does not support what the registers
                state.
        """
        base = Device.named(like or self.report["like"])
        return preset_of(self.report, base, self.source, printable(name or "own-device"))


def registers(source: str | PathLike[str]) -> Registers:
    """Read the registers of a real device.

    Args:
        source: a dump of the EXT_CSD register of an eMMC (debugfs, mmc-utils, U-Boot, hexdump, 512 bytes), or
            the descriptors of a UFS: its folder in sysfs, an archive or a listing of it, or the output of
            ufs-utils. Or a recording of `emmclab record`, which contains the registers of its device.

    Raises:
        EmmclabError: there are no registers, or they are damaged, incomplete or contradict each other.

    >>> registers("no-such-dump")
    Traceback (most recent call last):
    ...
    emmclab.errors.InputError: no-such-dump: file not found
    """
    path = Path(source)
    return Registers(printable(path), json.loads(_core.read_registers(register_files(path))))
