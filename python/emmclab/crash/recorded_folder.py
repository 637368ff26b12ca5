"""Power cuts under a storage engine of this process: a folder in memory that records operations, and its crash states.

An engine with a storage layer of its own writes to a `RecordedFolder` instead of files.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from emmclab.crash.explore import Control, Controls, Exploration, Options, new_explorer
from emmclab.crash.file_states import ROOT, FileEvent, FileExplorer, FileRun
from emmclab.crash.promises import CHECK, Finding, Lost
from emmclab.errors import ConfigError
from emmclab.runtime.lists import Names, several

#: Errors of the calls that can fail, by the name of the fault; `short` stores half of a write.
_ERRORS = {"eio": errno.EIO, "enospc": errno.ENOSPC, "short": 0}
#: Check of a crash state: gets the contents of the files by path, and the acknowledged lines; returns the loss or None.
FilesCheck = Callable[[Mapping[str, bytes], Sequence[str]], str | None]


class RecordedFile:
    """An open file of a `RecordedFolder`; offsets and sizes are in bytes."""

    def __init__(self, folder: RecordedFolder, inode: int) -> None:
        """Set the folder and the number of the file."""
        self._folder, self._inode = folder, inode

    @property
    def size(self) -> int:
        """Size of the file, bytes."""
        return len(self._folder.contents[self._inode])

    def read(self, offset: int = 0, size: int | None = None) -> bytes:
        """Return up to `size` bytes from an offset; by default all up to the end."""
        return bytes(self._folder.contents[self._inode][offset : None if size is None else offset + size])

    def write(self, data: bytes, offset: int | None = None) -> int:
        """Write at an offset, by default at the end, and return the number of bytes written.

        Raises:
            OSError: a fault was injected (EIO, ENOSPC).
        """
        if self._folder.fails("write"):
            data = data[: len(data) // 2]
        contents = self._folder.contents[self._inode]
        begin = len(contents) if offset is None else offset
        if data:
            contents.extend(bytes(max(0, begin - len(contents))))
            contents[begin : begin + len(data)] = data
            self._folder.record("write", self._inode, offset=begin, data=bytes(data))
        return len(data)

    def truncate(self, size: int) -> None:
        """Set the size of the file."""
        contents = self._folder.contents[self._inode]
        del contents[size:]
        contents.extend(bytes(size - len(contents)))
        self._folder.record("size", self._inode, offset=size)

    def sync(self, *, data_only: bool = False) -> None:
        """Make the file durable, as fsync; with `data_only`, as fdatasync.

        Raises:
            OSError: a fault was injected (EIO). Data written before is then not durable after a later sync either.
        """
        self._folder.sync_inode(self._inode, "fdatasync" if data_only else "fsync")


class RecordedFolder:
    """A folder in memory that records every operation on its files. Paths are relative, with `/` between names."""

    def __init__(self, fault: tuple[str, int] | None = None) -> None:
        """Set the fault, `eio`, `enospc` or `short`, and the number of the call that gets it, counted from 0."""
        self._fault = fault
        self.events: list[FileEvent] = []
        #: Contents of the files by their number.
        self.contents: dict[int, bytearray] = {}
        self._entries: dict[int, dict[str, int]] = {ROOT: {}}
        self._paths: dict[int, str] = {}
        self._next = ROOT
        #: Names of the calls that a fault can reach, in their order.
        self.calls: list[str] = []

    def acknowledge(self, line: str) -> None:
        """Tell the check that something is durable from here on."""
        self.record("line", 0, text=line)

    def open(self, path: str, *, create: bool = False) -> RecordedFile:
        """Open a file; with `create`, an empty one is created if there is none.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        folder, name = self._place(path)
        inode = self._entries[folder].get(name, 0)
        if not inode and not create:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return RecordedFile(self, inode or self._make("file", folder, name, path))

    def mkdir(self, path: str) -> None:
        """Create a folder."""
        self._make("folder", *self._place(path), path)

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""
        folder, name = self._place(path)
        return name in self._entries[folder]

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder; one that has the new name is replaced."""
        (source, name), (target, other) = self._place(old), self._place(new)
        self._name((source, name, 0), (target, other, self._entries[source][name]))

    def link(self, old: str, new: str) -> None:
        """Give a file another name."""
        source, name = self._place(old)
        self._name((*self._place(new), self._entries[source][name]))

    def unlink(self, path: str) -> None:
        """Remove a name of a file, or an empty folder."""
        self._name((*self._place(path), 0))

    def sync(self, path: str = "") -> None:
        """Make the names in a folder durable, as fsync of the folder.

        Raises:
            OSError: a fault was injected (EIO).
        """
        folder, name = self._place(path) if path else (0, "")
        self.sync_inode(self._entries[folder][name] if path else ROOT, "fsync")

    def sync_inode(self, inode: int, name: str) -> None:
        """Record a sync; it fails if it gets the fault."""
        try:
            self.fails("sync")
        except OSError:
            self.record("sync", inode, text=name, since=len(self.events), failed=True)
            raise
        self.record("sync", inode, text=name, since=len(self.events))

    def record(self, kind: str, inode: int, **fields: object) -> None:
        """Add an event; its time is its number, in us."""
        self.events.append(FileEvent(kind, 1000 * len(self.events), inode, **fields))  # type: ignore[arg-type]

    def fails(self, call: str) -> bool:
        """Count a call; return whether it stores only a part.

        Raises:
            OSError: the call gets the fault.
        """
        self.calls.append(call)
        if self._fault is None or self._fault[1] != len(self.calls) - 1:
            return False
        number = _ERRORS[self._fault[0]]
        if number:
            raise OSError(number, os.strerror(number))
        return True

    def run(self) -> FileRun:
        """Return the recording."""
        return FileRun(self.events, paths=self._paths)

    def _place(self, path: str) -> tuple[int, str]:
        *folders, name = path.split("/")
        inode = ROOT
        for folder in folders:
            inode = self._entries[inode][folder]
        return inode, name

    def _make(self, kind: str, folder: int, name: str, path: str) -> int:
        self._next += 1
        inode = self._next
        self.record("make", inode, text=kind)
        if kind == "folder":
            self._entries[inode] = {}
        else:
            self.contents[inode] = bytearray()
        self._paths[inode] = path
        self._name((folder, name, inode))
        return inode

    def _name(self, *names: tuple[int, str, int]) -> None:
        self.record("names", 0, names=names)
        for folder, name, inode in names:
            if inode:
                self._entries[folder][name] = inode
            else:
                del self._entries[folder][name]


@dataclass(frozen=True)
class FilesOutcome:
    """What the crash states of an engine showed.

    Attributes:
        findings: broken promises, each with its first state; `detail` is what the check returned.
        faults: for each finding, the fault of the run that shows it; empty without one.
        states: number of states that were checked.
        cuts: number of power cuts.
        took_s: time of the checks, s.
        controls: evidence that the check can fail.
        unnoticed: number of states with a flipped bit (`Options.flips`) that the check did not notice.
    """

    findings: tuple[Finding, ...]
    faults: tuple[str, ...]
    states: int
    cuts: int
    took_s: float
    controls: Controls
    unnoticed: int = 0

    @property
    def verdict(self) -> str:
        """The verdict, as in `emmclab.crash.summary.VERDICTS`: `broken`, `not tested` or `kept`."""
        if self.findings:
            return "broken"
        return "not tested" if self.controls.doubts() else "kept"


def explore_files(
    run: Callable[[RecordedFolder], None],
    check: FilesCheck,
    model: str = "ext4",
    *,
    options: Options | None = None,
    faults: Names = (),
    most_faults: int = 8,
) -> FilesOutcome:
    """Run a storage engine on a folder in memory, and check the files that a power cut may leave.

    Args:
        run: writes to the folder, and calls its `acknowledge` when something is durable. It is called again for each
            fault, and may end then by an `OSError`.
        check: gets the contents of all files by path, and the acknowledged lines; returns the loss, or `None`.
        model: model of the file system, as `--model` of `emmclab crash`.
        options: cuts, states, seed and tear.
        faults: `eio`, `enospc` and `short` (a write stores half of its data).
        most_faults: maximum number of runs for each kind of fault.

    Raises:
        ConfigError: the model, a fault or an option does not exist; or the check fails without a power cut.

    >>> from emmclab.crash import explore_files
    >>> def engine(folder):
    ...     log = folder.open("log", create=True)
    ...     folder.sync()
    ...     for number in range(3):
    ...         log.write(b"row;")
    ...         folder.acknowledge(f"row {number}")  # without log.sync()
    >>> def check(files, lines):
    ...     lost = len(lines) - files.get("log", b"").count(b"row;")
    ...     return f"{lost} rows are lost" if lost > 0 else None
    >>> explore_files(engine, check).findings[0].detail
    '1 rows are lost'
    """
    faults = several(faults)
    if foreign := [fault for fault in faults if fault not in _ERRORS]:
        raise ConfigError(f"`{foreign[0]}` is not a fault", field="faults", hint=f"use {', '.join(_ERRORS)}")
    options = replace(options or Options(), model=model, check=None)
    folder = RecordedFolder()
    run(folder)
    controls = _controls(folder.run(), check, options)
    result = _explored(folder.run(), check, options)
    cuts, unnoticed = result.covered["cuts"], sum(lost.count for lost in result.findings(documented=True))
    options = replace(options, flips=0)
    findings = [(finding, "") for finding in result.findings()]
    for fault in faults:
        reached = [number for number, call in enumerate(folder.calls) if call == "write" or fault == "eio"]
        step = max(1, -(-len(reached) // most_faults))
        for number in reached[::step]:
            faulty = RecordedFolder((fault, number))
            try:
                run(faulty)
            except OSError as error:
                if fault == "short" or error.errno != _ERRORS[fault]:
                    raise
            part = _explored(faulty.run(), check, options)
            findings += [(finding, f"{fault} of call {number}") for finding in part.findings()]
            cuts += part.covered["cuts"]
            result.merge(replace(part, kinds={}, took_s=result.took_s + part.took_s))
    kept, texts = tuple(finding for finding, _ in findings), tuple(text for _, text in findings)
    return FilesOutcome(kept, texts, result.states, cuts, result.took_s, controls, unnoticed)


def _controls(run: FileRun, check: FilesCheck, options: Options) -> Controls:
    explorer = new_explorer(run, replace(options, states="boundary", only=(len(run.events), 1)).core())
    explorer.next_state()
    lines = run.acknowledgements()
    whole = check(explorer.files() if isinstance(explorer, FileExplorer) else {}, lines)
    if whole is not None:
        raise ConfigError(
            f"the check fails without a power cut: {whole}",
            field="check",
            hint="correct the check, or the run if it acknowledges what it has not written",
        )
    lost = check({}, lines)
    return Controls(len(lines), None, "", Control(held=True), Control(lost is not None, lost or ""))


def _explored(run: FileRun, check: FilesCheck, options: Options) -> Exploration:
    """Check the crash states of a recording."""
    explorer = FileExplorer(run, options.core())
    lines, result, begin = run.acknowledgements(), Exploration(finished=True), time.perf_counter()
    seen, known = -1, lines[:0]
    while (state := explorer.next_state()) is not None:
        result.states += 1
        if state["acknowledged"] != seen:
            seen = state["acknowledged"]
            known = lines[:seen]
        detail = check(explorer.files(), known)
        lost = explorer.attributed(None if detail is None else Lost(CHECK, "application", detail))
        if lost is not None:
            result.add(
                Finding(
                    promise=lost.promise,
                    level=lost.level,
                    cut=state["cut"],
                    state=state["number"],
                    index=state["index"],
                    detail=lost.detail,
                    way=state["way"],
                    at_ns=state["at_ns"],
                    acknowledged=seen,
                    documented=lost.documented,
                )
            )
    result.took_s = time.perf_counter() - begin
    cuts, moments = explorer.covered()[1], explorer.covered()[0]
    result.covered = {"cuts": cuts, "moments": moments}
    return result
