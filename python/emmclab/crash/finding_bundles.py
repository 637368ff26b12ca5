"""Writes findings to folders that can be sent: the smallest program, the disk image, a script that shows it, a text.

The script needs only a shell, gunzip and mount, so that whoever gets the folder needs no emmclab.
"""

import gzip
import platform
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from emmclab import __version__
from emmclab.crash.explore import Options, new_explorer, open_run
from emmclab.crash.file_states import FileExplorer
from emmclab.crash.guest.machine import Kernel
from emmclab.crash.minimize import programs_until
from emmclab.crash.promises import COMMANDS
from emmclab.crash.recording import MKFS
from emmclab.crash.summary import ExploredRecording, Kind, kinds
from emmclab.runtime.files import folder_aside, write_atomically

#: Names of the files in the folder of a finding.
_TEXT, _SCRIPT, _IMAGE, _PROGRAM = "report.txt", "show.sh", "state.img.gz", "program.prog"


def write_bundles(tried: Sequence[ExploredRecording], options: Options, folder: Path) -> list[Path]:
    """Write a folder for each kind of finding, and return the folders.

    Raises:
        OSError: a file cannot be written.
    """
    folders = []
    for number, kind in enumerate(kinds(tried), 1):
        place = folder / f"finding-{number}"
        place.mkdir(parents=True, exist_ok=True)
        programs = _programs(kind)
        if programs:
            write_atomically(place / _PROGRAM, f"{programs}\n".encode())
        if kind.first.way != COMMANDS:
            _write_image(kind, options, place / _IMAGE)
            if (place / _IMAGE).exists():
                write_atomically(place / _SCRIPT, _script(kind).encode())
        write_atomically(place / _TEXT, _text(kind, options, programs).encode())
        folders.append(place)
    return folders


def _programs(kind: Kind) -> str:
    """Return the generated programs that show a finding: the smallest ones if they are known; else an empty text."""
    minimal = kind.minimal
    if minimal is None or not minimal["program"]:
        return "\n".join(map(str, programs_until(kind.kept, kind.first)[-1:]))
    programs = [*(minimal["earlier"] or ()), minimal["program"]]
    return "\n".join(line for number, steps in enumerate(programs) for line in (f"program p{number}", *steps))


def _write_image(kind: Kind, options: Options, path: Path) -> None:
    run, _ = open_run(str(kind.kept.log), base=kind.kept.base)
    minimal = kind.minimal
    cut, state = (kind.first.cut, kind.first.state) if minimal is None else (minimal["cut"], minimal["state"])
    explorer = new_explorer(run, replace(options, only=(cut, state), share=(0, 1)).core())
    explorer.next_state()
    if minimal is not None and minimal["before"]:
        missing = {(write["command"], write["sector"]) for write in minimal["missing"]}
        omitted = enumerate(explorer.omitted())
        explorer.keep_omitted([place for place, (command, _, sector, *_) in omitted if (command, sector) in missing])
    if isinstance(explorer, FileExplorer):
        # A model of files has no disk.
        folder = path.with_name("files")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        explorer.write_folder(folder)
        return
    with folder_aside(path.parent) as temporary:
        explorer.write_image(str(temporary / "state.img"))
        # The time in the header would make equal images different files.
        with (
            (temporary / "state.img").open("rb") as image,
            (temporary / _IMAGE).open("wb") as file,
            gzip.GzipFile("state.img", "wb", compresslevel=1, fileobj=file, mtime=0) as packed,
        ):
            shutil.copyfileobj(image, packed, 1 << 20)
        (temporary / _IMAGE).replace(path)


def _folder_in(kind: Kind) -> str:
    """Return the folder of the program that led to a finding; a dot for other workloads."""
    run, _ = open_run(str(kind.kept.log), base=kind.kept.base)
    lines = run.acknowledgements()[: kind.first.acknowledged]
    begins = [line.split()[1] for line in lines if line.startswith("begin ")] if kind.first.differs else []
    return f"p{begins[-1]}" if begins else "."


def _script(kind: Kind) -> str:
    paths = [path for path, *_ in kind.first.differs]
    lines = [
        "#!/bin/sh",
        "# Mounts a copy of the disk that a power cut left, and prints what is there. Run as root.",
        'cd "$(dirname "$0")" || exit 1',
        f"gunzip -c {_IMAGE} > work.img && mkdir -p mnt || exit 1",
        "mount -o loop work.img mnt || { dmesg | tail -5; rmdir mnt; rm work.img; exit 1; }",
        f"( cd mnt/{_folder_in(kind)} || exit 1",
        *(["ls -lRi ."] if not paths else []),
    ]
    for path, expected, _ in kind.first.differs:
        name = shlex.quote(f"./{path}")
        lines += [
            f"  echo {shlex.quote(f'{path}: expected {expected}')}",
            f"  if [ -e {name} ] || [ -h {name} ]; then",
            f"    stat -c '  found %F, %s bytes, %h names, mode %a of %u:%g, changed at %Y s, %b sectors' {name}",
            f"    [ -f {name} ] && sha256sum {name}",
            f"    command -v getfattr > /dev/null && getfattr -hd {name}",
            "  else echo '  found nothing'; fi",
        ]
    return "\n".join([*lines, ")", "umount mnt && rmdir mnt && rm work.img"]) + "\n"


def _text(kind: Kind, options: Options, programs: str) -> str:
    finding, made, minimal = kind.first, kind.kept.made, kind.minimal
    file_system = made.get("file_system", "the file system of the log")
    kernel = platform.release() if options.guest is None else Kernel.of(options.guest).version
    recoveries = {"process": "emmclab, as Linux 6.18 replays its journal", "e2fsck": "e2fsck"}
    mkfs = " ".join([*MKFS.get(file_system, ()), *made.get("mkfs_options", ())])
    parts = [
        f"Subject: {file_system}: {finding.promise} is not kept after a power cut",
        "After a power cut, a disk is in a state that the promises of the file system forbid."
        if finding.level == "filesystem"
        else f"After a power cut, a promise is broken at the level {finding.level}.",
        finding.detail,
        "\n".join(
            [
                f"Kernel: {kernel}",
                f"File system: {file_system}, mkfs {mkfs or 'with defaults'}, "
                f"mount options {made.get('mount_options') or 'default'}",
                f"Recovered by: {recoveries.get(options.recovery, 'the kernel')}",
                f"Device: simulated ({kind.kept.facts.device}); only writes without flush or FUA may be missing",
                f"Shown by {kind.count:,} {'commands' if finding.way == COMMANDS else 'states'} of this recording",
            ]
        ),
    ]
    if programs:
        parts.append(f"Operations, each executed by a system call ({_PROGRAM}):\n\n{_indented(programs)}")
    if finding.differs:
        rows = [f"{path}\n  expected {expected}\n  found    {found}" for path, expected, found in finding.differs]
        parts.append("Paths that differ from the nearest state that may be left:\n\n" + _indented("\n".join(rows)))
    if minimal is not None:
        writes = [
            f"command {write['command']}: {write['sectors']} sectors from {write['sector']} on, "
            f"{write.get('meaning', 'unknown contents')}{', garbled' if write['garbled'] else ', missing'}"
            for write in minimal["missing"]
        ]
        text = "\n".join(writes) or "none: the disk has all writes that were complete"
        parts.append(f"Writes before the cut that are not on the disk, all others are:\n\n{_indented(text)}")
    if finding.way != COMMANDS and options.model is None:
        parts.append(f"`sh {_SCRIPT}` as root mounts a copy of {_IMAGE} and prints what is at these paths.")
    name = kind.kept.name_of(options, finding.cut, finding.state)
    parts.append(f"Found by emmclab {__version__}: emmclab crash --again {name}")
    return "\n\n".join(parts) + "\n"


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
