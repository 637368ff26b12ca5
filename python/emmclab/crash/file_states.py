"""Crash states of files by a model of a file system: what a power cut may leave of recorded operations on files.

A recording is a list of events. Each event changes something by units that reach the disk as a whole: a block of data,
a size, an entry of a folder, an attribute. A crash state lacks some of the units that no sync has made durable; a model
states which units are on the disk only together with others. No device, kernel or root is needed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from emmclab import _core
from emmclab.crash.promises import Lost, Promises, promises_of
from emmclab.errors import ConfigError, EmmclabError, InputError

#: Inode number of the folder of the workload.
ROOT = 1
#: Marks a unit that no sync has made durable.
_NEVER = 1 << 62
#: First words of a log of file operations, with the version of its form.
_MAGIC = {"emmclab": "file operations", "version": 1}
#: Size of the blocks that a power cut leaves old or new, by `--tear`, bytes.
_BLOCKS = {"none": 4096, "sector": 512}
#: Maximum number of contents of files and trees of names that are kept for further crash states.
_MOST_KEPT = 4096
#: Number of the first state with a flipped bit, above those of all other states of a cut.
_FLIPPED = 1 << 20


@dataclass(frozen=True)
class FileModel:
    """What a file system may leave after a power cut.

    Attributes:
        about: one line on the model.
        promises: what the file system promises beyond POSIX.
        data_first: whether the data of a file is on the disk before a size that includes it.
        keeps_syncs: whether a successful sync makes data durable.
    """

    about: str
    promises: Promises
    data_first: bool
    keeps_syncs: bool = True


#: Models by name. Sources: `data/file-systems.toml` for the promises; ext4(5), data=ordered; POSIX, fsync().
MODELS = {
    "ext4": FileModel(
        "names, sizes and attributes reach the disk in the order of one journal; new blocks read as zeros until their "
        "data is there (dioread_nolock, the default since Linux 5.6)",
        promises_of("ext4", ""),
        data_first=False,
    ),
    "ext4-ordered": FileModel(
        "as ext4, but data reaches the disk before the size that includes it (dioread_lock)",
        promises_of("ext4", ""),
        data_first=True,
    ),
    "posix": FileModel(
        "whatever no sync covers may be missing in any combination; a new name needs an fsync of its folder",
        Promises(),
        data_first=False,
    ),
    "lying-device": FileModel(
        "as posix, on a device whose flush does nothing: syncs keep nothing", Promises(), False, keeps_syncs=False
    ),
}


def model_of(name: str) -> FileModel:
    """Return the model with this name.

    Raises:
        ConfigError: there is no such model.
    """
    if name not in MODELS:
        raise ConfigError(f"`{name}` is not a model", field="model", hint=f"use one of {', '.join(MODELS)}")
    return MODELS[name]


@dataclass(frozen=True, slots=True)
class FileEvent:
    """An operation on files that has succeeded, a sync, or an output line of the workload.

    Attributes:
        kind: `make` (an inode), `names`, `write`, `size`, `zeros`, `attribute`, `sync`, `sync all` or `line`.
        at_ns: time since the beginning of the recording, ns.
        inode: number of the file or folder.
        offset: first byte that is written; the new size for `size`.
        data: bytes that are written, value of an attribute, or target of a symbolic link; for `zeros`, their number.
        names: changed entries of folders: folder, name, and its new inode or 0. They change together.
        text: kind of the inode for `make`, name of the call for `sync`, of the attribute, or the output line.
        since: for syncs, the number of events that had ended when it began.
        failed: whether a sync failed.
    """

    kind: str
    at_ns: int
    inode: int = 0
    offset: int = 0
    data: bytes = b""
    names: tuple[tuple[int, str, int], ...] = ()
    text: str = ""
    since: int = 0
    failed: bool = False

    def describe(self, paths: Mapping[int, str]) -> str:
        """Return the operation in a few words, for findings; `paths` are those of the inodes."""
        path = paths.get(self.inode, "a file without a name")
        if self.kind == "names":
            changes = ", ".join(name if inode else f"no {name}" for _, name, inode in self.names)
            return f"the change of names to {changes}"
        if self.kind == "size":
            return f"the size {self.offset:,} of {path}"
        return f"the {self.kind} of {len(self.data):,} bytes at {self.offset:,} of {path}"


def write_log(path: Path, events: Sequence[FileEvent], doubts: Sequence[str], paths: Mapping[int, str]) -> None:
    """Write a log of file operations, with reasons why it is not complete, and the last path of each inode."""
    with path.open("w", encoding="utf-8", errors="surrogateescape") as file:
        head = {**_MAGIC, "doubts": list(doubts), "paths": {str(inode): name for inode, name in paths.items()}}
        file.write(json.dumps(head) + "\n")
        for event in events:
            row = asdict(event) | {"data": base64.b64encode(event.data).decode()}
            file.write(json.dumps([*row.values()]) + "\n")


class FileRun:
    """A recording of file operations, with the interface of `_core.CrashRun`."""

    def __init__(
        self, events: Sequence[FileEvent], *, doubts: Sequence[str] = (), paths: Mapping[int, str] | None = None
    ) -> None:
        """Set the events, reasons why they are not complete, and the last path of each inode."""
        self.events, self.doubts, self.paths = events, tuple(doubts), dict(paths or {})
        self.identity = ""
        self._lines = [event.text for event in events if event.kind == "line"]
        self._histories: dict[tuple[str, str], History] = {}
        #: Number of lines among the first events.
        self.acknowledged = [0, *accumulate(event.kind == "line" for event in events)]

    @classmethod
    def read(cls, path: str) -> FileRun | None:
        """Read a log of file operations; `None` if the file is another kind of log.

        Raises:
            InputError: the log is damaged.
        """
        with Path(path).open("rb") as file:
            start = json.dumps(_MAGIC)[:-1].encode()
            if file.read(len(start)) != start:
                return None
        content = Path(path).read_bytes()
        try:
            first, *rows = [json.loads(line) for line in content.splitlines()]
            events = [
                FileEvent(kind, at, inode, offset, base64.b64decode(data), tuple(map(tuple, names)), *rest)
                for kind, at, inode, offset, data, names, *rest in rows
            ]
        except (ValueError, TypeError) as error:
            raise InputError("this log of file operations is damaged", hint="record it again").in_file(path) from error
        run = cls(events, doubts=first["doubts"], paths={int(inode): name for inode, name in first["paths"].items()})
        run.identity = hashlib.sha256(content).hexdigest()[:16]
        return run

    def facts(self) -> dict[str, Any]:
        """Return facts about the recording, with the fields of `CrashLogFacts`."""
        return {
            "acknowledgements": len(self._lines),
            "bytes": sum(len(event.data) for event in self.events),
            "commands": len(self.events) - len(self._lines),
            "device": "files",
            "identity": self.identity,
            "layers": [],
            "lies": "none",
            "moments": len(self.events) + 1,
            "truncated": False,
            "writer": "emmclab",
        }

    def acknowledgements(self) -> list[str]:
        """Return the output lines of the workload."""
        return self._lines

    def after_mark(self, _name: str) -> int:
        """Return the first moment: the folder is empty when the workload begins, and complete at the end."""
        return len(self.events) if _name == "written back" else 0

    def journal_rules(self, _from_mark: str) -> list[tuple[int, str, int, str]]:
        """Return no violation: there is no journal to see."""
        return []

    def write_dm(self, _path: str) -> None:
        """Refuse: a recording of files has no commands of a device."""
        raise ConfigError(
            "a recording of files has no commands of a device", field="save-dm-log", hint="record with --device"
        )

    def commands(self, start: int, end: int) -> list[tuple[int, str, int, int, list[str], int, int | None]]:
        """Return the operations between two moments: number, name, sector in the file, sectors, flags, begin, end."""
        return [
            (number, event.text if event.kind == "sync" else event.kind, *_sectors(event), [], event.at_ns, event.at_ns)
            for number, event in enumerate(self.events[start:end], start)
            if event.kind != "line"
        ]

    def describe(self, number: int) -> str:
        """Return an operation in a few words, with the last path of its file."""
        return self.events[number].describe(self.paths)

    def history(self, model: str, tear: str) -> History:
        """Return the units of the recording by a model.

        Raises:
            ConfigError: the model does not exist, or does not support this way to tear writes.
        """
        if tear not in _BLOCKS:
            raise ConfigError(
                f"a model does not leave torn writes of the kind {tear}", field="tear", hint="use none or sector"
            )
        key = (model, tear)
        if key not in self._histories:
            self._histories[key] = History(self.events, model_of(model), _BLOCKS[tear])
        return self._histories[key]


def _sectors(event: FileEvent) -> tuple[int, int]:
    return event.offset // 512, -(-len(event.data) // 512)


@dataclass(slots=True, eq=False)
class _Unit:
    """A part of an operation that reaches the disk as a whole.

    Attributes:
        event: number of the event.
        kind: `data`, `size` (grows a file), `cut` (sets its size), `names` or `attribute`.
        requires: earlier units without which it is not on the disk.
        durable: first moment at which it is promised to be on the disk.
        is_lost: whether a failed sync leaves it unwritten although the kernel takes it for clean.
    """

    event: int
    kind: str
    inode: int
    offset: int
    data: bytes
    names: tuple[tuple[int, str, int], ...]
    requires: tuple[int, ...]
    durable: int = _NEVER
    is_lost: bool = False


class History:
    """The units of all events in their order, and when each is durable."""

    def __init__(self, events: Sequence[FileEvent], model: FileModel, block: int) -> None:
        """Derive the units; `block` is the number of bytes that a power cut leaves old or new."""
        self.units: list[_Unit] = []
        #: Number of units of the first events.
        self.count = [0]
        #: Kind (`file`, `folder`, `link`) and target of each inode.
        self.kinds: dict[int, tuple[str, bytes]] = {ROOT: ("folder", b"")}
        #: Units of each inode, without the names; units that change names.
        self.of_inode: dict[int, list[int]] = {}
        self.names: list[int] = []
        self._model, self._block = model, block
        self._in_order = model.promises.names == "in_order"
        self._chain: list[int] = []
        self._last: dict[tuple[int, str], int] = {}
        self._blocks: dict[int, dict[int, int]] = {}
        self._sizes: dict[int, int] = {}
        self._size_units: dict[int, int] = {}
        self._cuts: dict[int, tuple[int, int]] = {}
        self._touched: dict[tuple[int, bool], list[int]] = {}
        self._in_folder: dict[int, list[int]] = {}
        self._entries: dict[tuple[int, str], int] = {}
        self._unsynced: list[int] = []
        for number, event in enumerate(events):
            self._add_event(number, event)
            self.count.append(len(self.units))

    def _add_event(self, number: int, event: FileEvent) -> None:
        if event.kind == "make":
            self.kinds[event.inode] = (event.text, event.data)
        elif event.kind in ("write", "zeros"):
            self._write(number, event)
        elif event.kind == "size":
            self._cut(number, event)
        elif event.kind == "names":
            self._rename(number, event)
        elif event.kind == "attribute":
            key = (event.inode, event.text)
            before = self._chain[-1:] if self._in_order else [self._last[key]] if key in self._last else []
            self._last[key] = self._unit(
                number, event, "attribute", before, data=event.data, names=((0, event.text, 0),)
            )
            self._link(self._last[key], [event.inode], [])
        elif event.kind in ("sync", "sync all"):
            self._sync(number, event)

    def _unit(
        self,
        number: int,
        event: FileEvent,
        kind: str,
        requires: Sequence[int],
        *,
        offset: int = 0,
        data: bytes = b"",
        names: tuple[tuple[int, str, int], ...] = (),
    ) -> int:
        index = len(self.units)
        self.units.append(_Unit(number, kind, event.inode, offset, data, names, tuple(dict.fromkeys(requires))))
        self._unsynced.append(index)
        if kind == "names":
            self.names.append(index)
        else:
            self.of_inode.setdefault(event.inode, []).append(index)
        return index

    def _link(self, unit: int, inodes: Sequence[int], with_data: Sequence[int]) -> None:
        """Add a unit to the order of the journal, with the inodes that it changes, also for fdatasync (`with_data`)."""
        if not self._in_order:
            return
        self._chain.append(unit)
        for inode in inodes:
            self._touched.setdefault((inode, False), []).append(unit)
        for inode in with_data:
            self._touched.setdefault((inode, True), []).append(unit)

    def _write(self, number: int, event: FileEvent) -> None:
        inode, begin, size = event.inode, event.offset, self._block
        blocks, old = self._blocks.setdefault(inode, {}), self._sizes.get(inode, 0)
        end, cut = begin + len(event.data), self._cuts.get(inode)
        for block in range(begin // size, -(-end // size)):
            low, high = max(begin, block * size), min(end, block * size + size)
            before = blocks.get(block, cut[0] if cut is not None and (block + 1) * size > cut[1] else None)
            data = event.data[low - begin : high - begin]
            blocks[block] = self._unit(number, event, "data", [] if before is None else [before], offset=low, data=data)
            if high > old and event.kind == "write":
                grown = [self._size_units[inode]] if inode in self._size_units else []
                first = [*([blocks[block]] if self._model.data_first else []), *self._chain[-1:]]
                self._size_units[inode] = self._unit(number, event, "size", [*grown, *first], offset=high)
        if event.kind == "write":
            self._sizes[inode] = max(old, end)
        # A write changes the times of the inode in the running transaction, which an fsync then commits.
        if self._chain:
            self._touched.setdefault((inode, False), []).append(self._chain[-1])

    def _cut(self, number: int, event: FileEvent) -> None:
        inode, size = event.inode, event.offset
        before = self._cuts.get(inode)
        earlier = [before[0]] if before is not None else []
        if not self._in_order and inode in self._size_units:
            earlier.append(self._size_units[inode])
        unit = self._unit(number, event, "cut", [*earlier, *(self._chain[-1:])], offset=size)
        self._link(unit, [inode], [inode])
        self._cuts[inode], self._size_units[inode], self._sizes[inode] = (unit, size), unit, size
        blocks = self._blocks.setdefault(inode, {})
        blocks.update({block: unit for block in blocks if (block + 1) * self._block > size})

    def _rename(self, number: int, event: FileEvent) -> None:
        if not self._in_order:
            for folder, name, inode in event.names:
                key = (folder, name)
                before = [self._last[key]] if key in self._last else []
                self._last[key] = self._unit(number, event, "names", before, names=((folder, name, inode),))
                self._in_folder.setdefault(folder, []).append(self._last[key])
            return
        before = self._chain[-1:]
        replaced = [self._entries.get((folder, name), 0) for folder, name, _ in event.names]
        if self._model.promises.replace_by_rename and len(event.names) > 1:
            for (_, _, inode), old in zip(event.names, replaced, strict=True):
                if inode and old and inode != old:
                    before += self._blocks.get(inode, {}).values() if self._model.data_first else []
                    before += [self._size_units[inode]] if inode in self._size_units else []
        unit = self._unit(number, event, "names", before, names=event.names)
        inodes = {*replaced, *(inode for _, _, inode in event.names)} - {0}
        folders = {folder for folder, _, _ in event.names}
        new = [inode for inode in inodes if (inode, True) not in self._touched]
        self._link(unit, sorted(inodes | folders), sorted(folders | set(new)))
        self._entries.update({(folder, name): inode for folder, name, inode in event.names})

    def _sync(self, number: int, event: FileEvent) -> None:
        """Make durable what a successful sync promises; a failed one leaves data that later syncs do not write."""
        inode, is_data = event.inode, event.text == "fdatasync"
        mine = self._unsynced if event.kind == "sync all" else [*self.of_inode.get(inode, ())]
        mine = [unit for unit in mine if self.units[unit].event < event.since and self.units[unit].durable == _NEVER]
        if event.failed:
            for unit in mine:
                self._lose(unit)
            return
        if not self._model.keeps_syncs:
            return
        left = [entry.is_lost or (is_data and entry.kind == "attribute") for entry in map(self.units.__getitem__, mine)]
        wanted = [unit for unit, is_left in zip(mine, left, strict=True) if not is_left]
        if event.kind == "sync":
            wanted += [unit for unit in self._in_folder.get(inode, ()) if self.units[unit].event < event.since]
            if self._in_order:
                grows = any(self.units[unit].kind == "size" for unit in mine)
                chain = self._chain if grows else self._touched.get((inode, is_data), [])
                wanted += [unit for unit in reversed(chain) if self.units[unit].event < event.since][:1]
        while wanted:
            unit = wanted.pop()
            entry = self.units[unit]
            if entry.durable == _NEVER:
                entry.durable = number + 1
                wanted += entry.requires
        self._unsynced = [unit for unit in self._unsynced if self.units[unit].durable == _NEVER]

    def _lose(self, unit: int) -> None:
        entry = self.units[unit]
        if entry.kind == "data":
            entry.is_lost = True
        elif entry.kind == "size":
            entry.requires = tuple(other for other in entry.requires if self.units[other].kind != "data")


@dataclass(frozen=True, slots=True)
class Content:
    """Contents of a file: its bytes and its attributes, including its mode."""

    data: bytes
    attributes: tuple[tuple[str, bytes], ...]
    digest: int


class _Parts:
    """Bytes and attributes of a file, to which units are applied in order."""

    def __init__(self) -> None:
        self.data, self.size, self.attributes = bytearray(), 0, dict[str, bytes]()

    def copy(self) -> _Parts:
        other = _Parts()
        other.data, other.size, other.attributes = self.data[:], self.size, dict(self.attributes)
        return other

    def apply(self, unit: _Unit) -> None:
        if unit.kind == "data":
            if unit.offset > len(self.data):
                self.data.extend(bytes(unit.offset - len(self.data)))
            self.data[unit.offset : unit.offset + len(unit.data)] = unit.data
        elif unit.kind == "size":
            self.size = max(self.size, unit.offset)
        elif unit.kind == "cut":
            self.size = unit.offset
            del self.data[unit.offset :]
        elif unit.data:
            self.attributes[unit.names[0][1]] = unit.data
        else:
            self.attributes.pop(unit.names[0][1], None)

    def content(self) -> Content:
        data = bytes(self.data[: self.size]).ljust(self.size, b"\0")
        attributes = tuple(sorted(self.attributes.items()))
        return Content(data, attributes, hash((data, attributes)))


@dataclass(slots=True)
class _Trail:
    """The result of the first units of a list, which advances with the power cuts."""

    count: int = 0
    parts: _Parts = field(default_factory=_Parts)


class FileExplorer:
    """Steps through the crash states of a recording, with the interface of `_core.Explorer`."""

    def __init__(self, run: FileRun, options: Mapping[str, Any]) -> None:
        """Choose the power cuts of a recording.

        Raises:
            ConfigError: the model or a way to choose states does not exist.
        """
        self._run, self._options = run, options
        self._history = run.history(options["model"], options["tear"])
        ways = [part.partition(":") for part in _core.crash_ways(options["states"]).split(",")]
        self._ways = [(name, int(most)) for name, _, most in ways if name != "device"]
        self._trails: dict[int, _Trail] = {}
        self._contents: dict[tuple[int, int, tuple[int, ...]], Content] = {}
        self._trees: dict[tuple[int, tuple[int, ...]], list[tuple[str, int]]] = {}
        self._seen: set[int] = set()
        self._chosen = self._equal = self._most = self._cuts = self._lines_cut = 0
        self._legal = 0.0
        self._cut, self._absent = 0, frozenset[int]()
        self._pending: list[int] = []
        #: Groups of pending units of which states lack one: of an operation, of a file, or of a single block.
        self._groups: list[list[int]] = []
        self._missing: dict[int, list[int]] = {}
        #: Inode, byte and bit that is flipped in the current state.
        self._flip: tuple[int, int, int] | None = None
        self._important: set[int] = set()
        self._states = self._all()

    def attributed(self, lost: Lost | None) -> Lost | None:
        """Return a loss of the current state with the level that causes it: the device if it ignores flushes.

        A flipped bit breaks no promise: the result says that the check did not notice it.
        """
        if self._flip is not None:
            place = f"bit {self._flip[2]} of byte {self._flip[1]:,} of {self._run.paths.get(self._flip[0])}"
            text = "a device that keeps its promises flips no bit; a checksum would show it"
            return None if lost is not None else Lost("flip", "application", f"{place} is not noticed", text)
        if lost is None:
            return None
        return replace(lost, level="application" if model_of(self._options["model"]).keeps_syncs else "device")

    def next_state(self) -> dict[str, Any] | None:
        """Go to the next crash state and return its fields, as in `ExploredState`; `None` at the end."""
        return next(self._states, None)

    def _all(self) -> Iterator[dict[str, Any]]:
        only, (share, shares) = self._options["only"], self._options["share"]
        index = -1
        for cut in self.cuts() if only is None else [only[0]]:
            self._begin(cut)
            acknowledged = self._run.acknowledged[cut]
            at_ns = self._run.events[cut - 1].at_ns if cut else 0
            for number, (way, absent) in enumerate(self._candidates(cut)):
                if only is not None and only[1] not in (None, number):
                    continue
                self._chosen, self._absent = self._chosen + 1, absent
                key = self._digest(acknowledged)
                if key in self._seen:
                    self._equal += 1
                    continue
                self._seen.add(key)
                index += 1
                if index % shares == share:
                    yield {
                        **{"acknowledged": acknowledged, "at_ns": at_ns, "cut": cut, "index": index},
                        **{"number": number, "problem": None, "way": way},
                    }
        yield from self._flipped(index)

    def _flipped(self, index: int) -> Iterator[dict[str, Any]]:
        """Go through the complete files, each time with another flipped bit; `index` is that of the last state."""
        only, (share, shares), end = self._options["only"], self._options["share"], len(self._run.events)
        flips = self._options.get("flips", 0)
        if not flips or (only is not None and (only[0] != end or (only[1] or 0) < _FLIPPED)):
            return
        self._begin(end)
        self._cuts -= only is None
        self._absent = frozenset()
        files = [inode for _, inode in self.paths() if self._history.kinds[inode][0] == "file"]
        bits = [8 * len(self.content(inode).data) for inode in files]
        dice = random.Random(f"{self._options['seed']} flips")  # noqa: S311 - the same seed, the same bits.
        for number in range(_FLIPPED, _FLIPPED + flips if sum(bits) else 0):
            place = dice.randrange(sum(bits))
            before = [0, *accumulate(bits)]
            chosen = bisect_right(before, place) - 1
            bit = place - before[chosen]
            index += 1
            if index % shares == share and only in (None, (end, number)):
                self._flip = files[chosen], bit // 8, bit % 8
                self._chosen += 1
                yield {
                    **{"acknowledged": self._run.acknowledged[end], "at_ns": 0, "cut": end, "index": index},
                    **{"number": number, "problem": None, "way": "flip"},
                }
                self._flip = None

    def cuts(self) -> list[int]:
        """Return the moments of the power cuts: around syncs and lines first, then others, drawn by the seed."""
        events, most = self._run.events, self._options["cuts"]
        lines = [number for number, event in enumerate(events) if event.kind == "line"]
        groups: list[list[int]] = [[], [], []]
        declared = self._options.get("lines")
        if declared is not None:
            groups = [[lines[line] for line in group] for group in declared["first"]] + groups
            self._important = {number + 1 for number in groups[0]}
        else:
            self._important = {number + 1 for number in lines}
        for number, event in enumerate(events):
            if event.kind in ("line", "sync", "sync all"):
                groups[-3].append(number + 1)
                groups[-2].append(number)
        groups[-1] = [*range(len(events) + 1)]
        dice = random.Random(self._options["seed"])  # noqa: S311 - the same seed, the same cuts.
        chosen: dict[int, None] = {}
        for group in groups:
            rest = [cut for cut in dict.fromkeys(group) if cut not in chosen]
            room = most - len(chosen)
            chosen.update(dict.fromkeys(rest if len(rest) <= room else sorted(dice.sample(rest, room))))
        return list(chosen) if self._options.get("in_passes") else sorted(chosen)

    def _begin(self, cut: int) -> None:
        units = self._history.units
        self._cut = cut
        pending = [number for number in range(self._history.count[cut]) if units[number].durable > cut]
        self._cuts += 1
        self._lines_cut += cut in self._important
        self._most = max(self._most, len(pending))
        states = len(pending) * math.log10(2)
        high, low = max(states, self._legal), min(states, self._legal)
        self._legal = high + math.log10(1 + 10 ** max(low - high, -300)) if self._cuts > 1 else states
        self._pending = pending
        by_event: dict[int, list[int]] = {}
        by_inode: dict[tuple[int, str], list[int]] = {}
        for number in pending:
            unit = units[number]
            by_event.setdefault(unit.event, []).append(number)
            if unit.kind == "data":
                by_inode.setdefault((unit.inode, "data"), []).append(number)
            if unit.kind in ("data", "size"):
                by_inode.setdefault((unit.inode, "both"), []).append(number)
        several = [group for group in by_event.values() if len(group) > 1]
        groups = [*by_event.values(), *by_inode.values(), *([number] for group in several for number in group)]
        self._groups = [list(group) for group in dict.fromkeys(tuple(group) for group in groups)]

    def _candidates(self, cut: int) -> Iterator[tuple[str, frozenset[int]]]:
        """Return each way to choose a state with the units that are missing; the first lacks all, the second none."""
        dice = random.Random(f"{self._options['seed']} {cut}")  # noqa: S311 - the same seed, the same states.
        groups = self._groups

        def some(most: int) -> list[list[int]]:
            return groups if len(groups) <= most else dice.sample(groups, most)

        for way, most in self._ways:
            if way == "boundary":
                yield way, frozenset(self._pending)
                yield way, frozenset()
            elif way == "omit1":
                for group in some(most):
                    yield way, self._without(group)
            elif way == "only1":
                for group in some(most):
                    yield way, self._with_only(group)
            elif way == "pairs" and len(groups) > 1:
                for _ in range(min(most, math.comb(len(groups), 2))):
                    yield way, self._without([unit for group in dice.sample(groups, 2) for unit in group])
            elif way == "random" and groups:
                for _ in range(most):
                    yield way, self._without([unit for unit in self._pending if dice.random() < 0.5])

    def _without(self, missing: Sequence[int]) -> frozenset[int]:
        """Return the missing units and those that require them."""
        absent = set(missing)
        units = self._history.units
        for number in self._pending:
            if not absent.isdisjoint(units[number].requires):
                absent.add(number)
        return frozenset(absent)

    def _with_only(self, kept: Sequence[int]) -> frozenset[int]:
        """Return all pending units except some and those that they require."""
        present, units = set(kept), self._history.units
        for number in reversed(self._pending):
            if number in present:
                present.update(units[number].requires)
        return frozenset(number for number in self._pending if number not in present)

    def _digest(self, acknowledged: int) -> int:
        return hash((acknowledged, *((path, self.content(inode).digest) for path, inode in self.paths())))

    def paths(self) -> list[tuple[str, int]]:
        """Return the paths in the current state with their inodes, in alphabetical order."""
        units, count = self._history.names, self._history.count[self._cut]
        end = bisect_left(units, count)
        absent = tuple(unit for unit in units[:end] if unit in self._absent) if self._absent else ()
        key = (end, absent)
        found = self._trees.get(key)
        if found is None:
            folders: dict[int, dict[str, int]] = {}
            for unit in units[:end]:
                if unit not in self._absent:
                    for folder, name, inode in self._history.units[unit].names:
                        folders.setdefault(folder, {})[name] = inode
            found = sorted(self._walk(folders, ROOT, "", 0))
            if len(self._trees) > _MOST_KEPT:
                self._trees.clear()
            self._trees[key] = found
        return found

    def _walk(
        self, folders: Mapping[int, Mapping[str, int]], folder: int, prefix: str, depth: int
    ) -> Iterator[tuple[str, int]]:
        for name, inode in folders.get(folder, {}).items():
            if inode:
                yield prefix + name, inode
                if self._history.kinds[inode][0] == "folder" and depth < 64:
                    yield from self._walk(folders, inode, f"{prefix}{name}/", depth + 1)

    def content(self, inode: int) -> Content:
        """Return the contents of a file or folder in the current state."""
        units = self._history.of_inode.get(inode, [])
        end = bisect_left(units, self._history.count[self._cut])
        # All units before the first pending one are on the disk; this place advances with the power cuts.
        start = bisect_left(units, self._pending[0]) if self._pending else end
        absent = tuple(unit for unit in units[start:end] if unit in self._absent) if self._absent else ()
        key = (inode, end, absent)
        found = self._contents.get(key)
        if found is None:
            parts = self._after(inode, start).copy()
            for unit in units[start:end]:
                if unit not in self._absent:
                    parts.apply(self._history.units[unit])
            found = parts.content()
            if len(self._contents) > _MOST_KEPT:
                self._contents.clear()
            self._contents[key] = found
        if self._flip is None or self._flip[0] != inode:
            return found
        data = bytearray(found.data)
        data[self._flip[1]] ^= 1 << self._flip[2]
        return replace(found, data=bytes(data))

    def _after(self, inode: int, count: int) -> _Parts:
        """Return a file with its first `count` units."""
        trail = self._trails.get(inode)
        if trail is None or trail.count > count:
            trail = self._trails[inode] = _Trail()
        units = self._history.of_inode.get(inode, [])
        for unit in units[trail.count : count]:
            trail.parts.apply(self._history.units[unit])
        trail.count = count
        return trail.parts

    def files(self) -> dict[str, bytes]:
        """Return the contents of all files in the current state, by path."""
        kinds = self._history.kinds
        return {path: self.content(inode).data for path, inode in self.paths() if kinds[inode][0] == "file"}

    def recover(
        self, wanted: list[str], *, tree: str | None = None, cut_after: int | None = None
    ) -> tuple[dict[str, Any] | None, list[bytes | None], list[_core.Node] | None, int]:
        """Return the contents of files and the entries below a folder in the current state, as `_core.Explorer`."""
        del cut_after
        inodes = dict(self.paths())
        kinds = self._history.kinds
        files = [
            self.content(inode).data if (inode := inodes.get(path.strip("/"))) and kinds[inode][0] == "file" else None
            for path in wanted
        ]
        if tree is None:
            return None, files, None, 0
        top = tree.strip("/")
        if top and kinds.get(inodes.get(top, 0), ("", b""))[0] != "folder":
            return None, files, None, 0
        prefix = f"{top}/" if top else ""
        links: dict[int, int] = {}
        for path, inode in inodes.items():
            links[inode] = links.get(inode, 2 * (kinds[inode][0] == "folder")) + (kinds[inode][0] != "folder")
            parent = inodes.get(path.rpartition("/")[0], ROOT)
            links[parent] = links.get(parent, 2) + (kinds[inode][0] == "folder")
        nodes: list[_core.Node] = []
        for path, inode in inodes.items():
            if path.startswith(prefix):
                kind, target = kinds[inode]
                content = self.content(inode)
                attributes = [(name.encode(), value) for name, value in content.attributes if name != "mode"]
                data = target if kind == "link" else content.data
                nodes.append(
                    (
                        path.removeprefix(prefix).encode(errors="surrogateescape"),
                        kind,
                        inode,
                        links[inode],
                        data,
                        attributes,
                        None,
                    )
                )
        return None, files, nodes, 0

    def write_folder(self, folder: Path) -> None:
        """Write the current state to an empty folder."""
        first: dict[int, Path] = {}
        for name, inode in self.paths():
            path, (kind, target) = folder / name, self._history.kinds[inode]
            if inode in first:
                path.hardlink_to(first[inode])
                continue
            content = self.content(inode)
            if kind == "folder":
                path.mkdir()
            elif kind == "link":
                path.symlink_to(target.decode(errors="surrogateescape"))
            else:
                path.write_bytes(content.data)
                first[inode] = path
            for attribute, value in content.attributes:
                if attribute == "mode":
                    path.chmod(int(value, 8))

    def write_image(self, path: str, **_options: bool) -> None:
        """Refuse: there is no disk, only files."""
        raise EmmclabError(f"a model of files has no disk for {path}", kind="unsupported", hint="record with --device")

    def host_bytes(self) -> int:
        """Return the number of bytes that all operations write, a bound for the size of a state."""
        return sum(len(event.data) for event in self._run.events)

    def omitted(self) -> list[tuple[int, int, int, int, bool]]:
        """Return the operations that are missing in the current state: number, time, sector in the file, sectors."""
        self._missing = {}
        for number in sorted(self._absent):
            self._missing.setdefault(self._history.units[number].event, []).append(number)
        events = self._run.events
        return [(number, events[number].at_ns, *_sectors(events[number]), False) for number in self._missing]

    def keep_omitted(self, places: list[int]) -> None:
        """Let only some of the operations of `omitted` be missing, and what requires them."""
        groups = [*self._missing.values()]
        self._absent = self._without([unit for place in places for unit in groups[place]])

    def covered(self) -> tuple[int, int, float, int, int, int, int, int]:
        """Return what was covered so far, in the order of the fields of `Covered`."""
        counts = (self._chosen, self._equal, self._most, len(self._important), self._lines_cut)
        return len(self._run.events) + 1, self._cuts, self._legal, *counts
