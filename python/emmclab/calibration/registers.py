"""The registers of a real device, and a device preset made of them."""

import json
import tomllib
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from emmclab import __version__, _core
from emmclab.calibration.register_files import register_files
from emmclab.core_types import DerivedSetting, FieldRow, RegisterFact, RegisterReport
from emmclab.errors import ConfigError
from emmclab.runtime.document import size
from emmclab.runtime.files import printable
from emmclab.simulation.device import Device

#: Maximum cache size that the device model supports, in KB.
_MOST_CACHE_KB = 1 << 20
#: Number of command tags in the single command list of UFSHCI 2 and 3.
_TAGS_OF_A_LIST = 32
#: Settings whose values follow from the capacity and from the size of the flash in SLC mode.
_SIZES = ("blocks", "pages_per_block", "spare_blocks", "over_provisioning_pct")
#: Key of the setting that states whether WriteBooster preserves the user capacity. Its value is determined together
#: with `_SIZES`.
_PRESERVES = "slc.preserve_user_space"


@dataclass(frozen=True)
class RegisterPreset:
    """A device preset, with the origin of its values.

    Attributes:
        device: the device.
        toml: its TOML file, with a comment on each value.
        like: the base preset.
        settings: the settings that registers determine: `key`, `value`, `from`.
        notes: contents of registers that were not adopted, with the reason.
        assumed_capacity: note that the capacity is that of the base preset; None if a register states it.
    """

    device: Device
    toml: str
    like: str
    settings: list[DerivedSetting]
    notes: list[str]
    assumed_capacity: str | None


@dataclass
class _Draft:
    """The settings of a device preset that is being built from registers."""

    base: dict[str, Any]
    values: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def set(self, key: str, value: object, origin: str) -> None:
        """Set a value, with its origin; a string is TOML source."""
        self.values[key] = value if isinstance(value, str) else json.dumps(value)
        self.sources[key] = origin

    def value(self, key: str) -> Any:
        """Return the value that a setting will have."""
        if key in self.values:
            return tomllib.loads(f"value = {self.values[key]}")["value"]
        value: Any = self.base
        for part in key.split("."):
            value = value[int(part)] if part.isdigit() else value[part]
        return value


def preset_of(report: RegisterReport, base: Device, source: str, name: str) -> RegisterPreset:
    """Return the preset for a register report.

    `base` is a device with the settings that registers do not contain.

    Raises:
        ConfigError: `base` is of the other kind (eMMC or UFS), or the model does not support register values.
    """
    draft = _Draft(tomllib.loads(base.to_toml()), notes=list(report.notes))
    _refuse_other_kind(report, base, draft)
    for row in report.settings:
        draft.set(row.key, row.value, row.from_)
    _fit_cache(draft)
    _fit_queue(draft)
    _fit_packing(draft)
    all_slc = _fit_slc(draft, report)
    file_name = Path(source).name or source
    capacity, slc = report.capacity, None if all_slc else report.slc
    stated = f"of {size(capacity.bytes)}" if capacity else "of unknown capacity"
    about = f"{report.standard} {stated}"
    registers_name = "EXT_CSD register" if report.kind == "emmc" else "descriptors"
    naming = {
        "name": json.dumps(name, ensure_ascii=False),
        "about": json.dumps(f"{about}, from its {registers_name} ({file_name})", ensure_ascii=False),
    }
    sizes = {_PRESERVES} if capacity is not None else set()
    try:
        device = base.set({key: value for key, value in draft.values.items() if key not in sizes} | naming)
        if capacity is not None:
            preserves = draft.value(_PRESERVES)
            device = Device(device.core.sized(capacity.bytes, slc.bytes if slc else None, preserves))
    except ConfigError as error:
        raise ConfigError(
            f"{source}: `{base.name}` cannot have the values of the registers: {error}",
            file=source,
            field=error.field,
            hint="choose another base preset with --like",
        ) from error
    read: list[DerivedSetting] = [
        DerivedSetting({"key": key, "value": draft.values[key], "from": origin})
        for key, origin in draft.sources.items()
    ]
    assumed = None
    if capacity is None:
        assumed = f"no register states the capacity: {size(device.capacity_bytes)} is that of {base.name}"
    text = _toml(device, base, report, draft, file_name, assumed)
    return RegisterPreset(device, text, base.name, read, draft.notes, assumed)


def _refuse_other_kind(report: RegisterReport, base: Device, draft: _Draft) -> None:
    kind = draft.base["interface"]["kind"]
    if kind != report.kind:
        raise ConfigError(
            f"`{base.name}` is a device of kind {kind}, and the registers are those of kind {report.kind}",
            field="--like",
            hint=f"use `{report.like}` as the base preset, or leave out --like",
        )


def _fit_cache(draft: _Draft) -> None:
    """Limit the cache size to the range that the model supports; without a cache, clear the cache settings."""
    if "cache.size_kb" not in draft.values:
        return
    origin, kb = draft.sources["cache.size_kb"], draft.value("cache.size_kb")
    if kb == 0:
        for key in ("cache.flush_us", "cache.idle_after_us"):
            draft.set(key, 0.0, origin)
        return
    page_kb = max(group["page_kb"] for group in draft.base["geometry"]["block_groups"])
    fitted = min(max(kb, page_kb), _MOST_CACHE_KB)
    if fitted != kb:
        draft.notes.append(f"{origin}: {kb} KB; the model supports {page_kb} KB to {_MOST_CACHE_KB >> 10:,} MB")
        draft.set("cache.size_kb", fitted, origin)


def _fit_queue(draft: _Draft) -> None:
    """Limit the queue depth of a UFS device to 32, the number of tags of a host with a single command list."""
    key = "controller.queue_depth"
    if key in draft.values and draft.base["interface"]["kind"] == "ufs":
        depth = draft.value(key)
        if draft.base["interface"]["queues"] == 0 and depth > _TAGS_OF_A_LIST:
            origin = draft.sources[key]
            draft.notes.append(f"{origin}: a host without interface.queues uses {_TAGS_OF_A_LIST} of {depth} tags")
            draft.set(key, _TAGS_OF_A_LIST, origin)


def _fit_packing(draft: _Draft) -> None:
    """Limit the number of packed commands to what the device supports; a command queue disables packing."""
    if draft.base["interface"]["kind"] != "emmc":
        return
    queued = draft.value("controller.queue_depth") > 1
    for name in ("packed_writes", "packed_reads"):
        requested, supported = draft.base["host"][name], 0 if queued else draft.value(f"features.{name}")
        if requested > supported:
            key = "controller.queue_depth" if queued else f"features.{name}"
            draft.set(f"host.{name}", supported, draft.sources.get(key, "the base preset"))


def _fit_slc(draft: _Draft, report: RegisterReport) -> bool:
    """Reserve blocks in SLC mode; return True if all flash is in SLC mode, so that none need to be reserved."""
    mode = draft.value("slc.mode")
    if report.kind != "emmc" or mode != "region" or report.slc is None:
        if mode != "off" and draft.base["slc"]["mode"] == "off":
            _first_slc_blocks(draft, draft.sources["slc.mode"])
        return False
    origin = report.slc.from_
    if report.capacity and report.slc.bytes >= report.capacity.bytes:
        draft.set("slc.mode", '"off"', origin)
        draft.set("slc.blocks", 0, origin)
        for number, _ in enumerate(draft.base["geometry"]["block_groups"]):
            draft.set(f"geometry.block_groups.{number}.cell_mode", '"slc"', origin)
            for time in ("read_us", "program_us", "erase_us"):
                draft.values[f"geometry.block_groups.{number}.{time}"] = json.dumps(draft.base["slc"][time])
        return True
    _first_slc_blocks(draft, origin)
    return False


def _first_slc_blocks(draft: _Draft, origin: str) -> None:
    """Set the number of blocks in SLC mode to the minimum; the caller adjusts it when the block size is known."""
    if draft.base["slc"]["mode"] == "off":
        draft.set("slc.blocks", draft.base["gc"]["low_watermark"] + 3, origin)


def _toml(device: Device, base: Device, report: RegisterReport, draft: _Draft, source: str, assumed: str | None) -> str:
    """Return the settings that differ from the defaults as TOML, each with its origin."""
    defaults = {row.key: row.value == row.default for row in device.explain()}
    of_base = {row.key: row.value for row in base.explain()}
    origin = f"{_one_line(source)}, {report.standard}"
    lines = [f"# {assumed[0].upper()}{assumed[1:]}."] if assumed else []
    lines += [
        f"# Written by `emmclab preset` (version {__version__}) from {origin}.",
        "#",
        "# read: a register of the device states it; its name and value follow.",
        f"# sized: follows from the sizes that registers state, in whole blocks of {base.name}.",
        f"# assumed: no register states it; it is that of {base.name}, a preset of the same class.",
        "# `emmclab calibrate TRACE` measures latencies, which no register has.",
    ]
    lines += [f"# note: {_one_line(note)}" for note in draft.notes]
    section, number, pending = "", -1, ""
    for line in device.to_toml().splitlines():
        if line.startswith("["):
            name = line.strip("[]")
            number = number + 1 if line.startswith("[[") and name == section.rpartition(".")[0] else 0
            section = f"{name}.{number}" if line.startswith("[[") else name
            pending = line
            continue
        key, separator, value = line.partition(" = ")
        dotted = f"{section}.{key}" if section else key
        if not separator or (defaults.get(dotted, False) and dotted not in draft.sources):
            continue
        if pending:
            lines += ["", pending]
            pending = ""
        lines.append(f"{line}{_comment(dotted, value, of_base, report, draft, base.name)}")
    return "\n".join(lines) + "\n"


def _comment(key: str, value: str, of_base: dict[str, str], report: RegisterReport, draft: _Draft, like: str) -> str:
    """Return the TOML comment that states the origin of a value."""
    if key in ("name", "about"):
        return ""
    setting = key.rpartition(".")[2]
    if setting in _SIZES and of_base.get(key) != value:
        stated = report.slc if key == "slc.blocks" and report.slc else report.capacity
        return f" # sized: {_one_line(stated.from_)}" if stated else f" # assumed: {like}"
    if key in draft.sources:
        return f" # read: {_one_line(draft.sources[key])}"
    return f" # assumed: {like}"


def _one_line(text: str) -> str:
    """Return a text on one line, so that it can be used in a TOML comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


@dataclass(frozen=True)
class Registers:
    """The EXT_CSD register of an eMMC, or the descriptors of a UFS.

    Attributes:
        source: the file or folder from which they were read.
        kind: `emmc` or `ufs`.
        standard: the standard that the device follows, such as `eMMC 5.1`.
        like: the base preset, which is of the same device class.
        facts: properties and capabilities of the device: `topic`, `text` (None if it is not known), `from` (fields).
        fields: every field: `name`, `register`, `place`, `value` (None if it is not known), `meaning`.
        notes: register contents that were not adopted or have no setting in emmclab, with the reason.
    """

    source: str
    report: RegisterReport

    @property
    def kind(self) -> str:
        """`emmc` or `ufs`."""
        return self.report.kind

    @property
    def standard(self) -> str:
        """The standard that the device follows."""
        return self.report.standard

    @property
    def facts(self) -> list[RegisterFact]:
        """The properties and capabilities of the device."""
        return self.report.facts

    @property
    def fields(self) -> list[FieldRow]:
        """Every field, by its name in the standard."""
        return self.report.fields

    @property
    def notes(self) -> list[str]:
        """Contents of registers that have no setting or were not adopted, with the reason."""
        return list(self.report.notes)

    def preset(self, *, like: str | None = None, name: str | None = None) -> RegisterPreset:
        """Make a device preset from the registers, with the other settings of a preset of the same class.

        Args:
            like: the other preset, or a device file; by default it is chosen by kind and version.
            name: the name of the device.

        Raises:
            ConfigError: `like` is of the other kind (eMMC or UFS), or the model does not support register values.
        """
        base = Device.named(like or self.report.like)
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
    return Registers(printable(path), RegisterReport(_core.read_registers(register_files(path))))
