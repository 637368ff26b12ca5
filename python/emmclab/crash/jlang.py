"""Reads workloads in the J-lang of ACE (Mohan et al., OSDI 2018), in which it writes the programs that it generates.

A file has the sections `# define`, with the paths of all files, `# declare`, `# setup` and `# run`; another `# define`
begins another workload, so that files can be concatenated. A name is a path without its slashes, and `test` is the
working folder. After the operations of the setup, everything is durable. Writes and syncs act on the file that is open
by this name, the other operations on the path.
"""

from collections.abc import Iterator

from emmclab.crash.programs import HERE, MODES, Operation, Program, ProgramError, operation

#: Flags of fallocate by name, and the part of a mapping that ACE syncs after it has written to it, bytes.
_FLAGS = {
    "FALLOC_FL_KEEP_SIZE": 1,
    "FALLOC_FL_PUNCH_HOLE": 2,
    "FALLOC_FL_COLLAPSE_RANGE": 8,
    "FALLOC_FL_ZERO_RANGE": 16,
}
_FLAGS |= {"FALLOC_FL_INSERT_RANGE": 32, "FALLOC_FL_UNSHARE_RANGE": 64, "0": 0}
_SYNCED_BYTES = 8192
#: Operations by their name in J-lang: the names of their arguments, and operations of programs. `@{handle}` is the open
#: file, `path` and `new` are paths.
_MEANINGS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "open": (("path", "flags", "mode"), ("open {path} {handle}",)),
    "opendir": (("path", "mode"), ("open {path} {handle}",)),
    "close": (("path",), ("close {handle}",)),
    "mkdir": (("path", "mode"), ("mkdir {path}",)),
    "mknod": (("path", "flags", "device"), ("mknod {path} {kind}",)),
    "falloc": (("path", "flags", "offset", "length"), ("fallocate @{handle} {fallocate} {offset} {length}",)),
    "write": (("path", "offset", "length"), ("write @{handle} {offset} {length}",)),
    "dwrite": (("path", "offset", "length"), ("close {handle}", "dwritesync {path} {offset} {length}")),
    "mmapwrite": (
        ("path", "offset", "length"),
        (
            "fallocate @{handle} extend {offset} {length}",
            "mmapwrite @{handle} {offset} {length}",
            f"msyncrange @{{handle}} {{offset}} {_SYNCED_BYTES}",
        ),
    ),
    "link": (("path", "new"), ("link {path} {new}",)),
    "symlink": (("path", "new"), ("symlink {path} {new}",)),
    "rename": (("path", "new"), ("rename {path} {new}",)),
    "unlink": (("path",), ("unlink {path}",)),
    "remove": (("path",), ("unlink {path}",)),
    "rmdir": (("path",), ("rmdir {path}",)),
    "truncate": (("path", "length"), ("truncate {path} {length}",)),
    "fsetxattr": (("path",), ("setxattr @{handle} xattr1 4",)),
    "removexattr": (("path",), ("removexattr {path} xattr1",)),
    "fsync": (("path",), ("fsync @{handle}",)),
    "fdatasync": (("path",), ("fdatasync @{handle}",)),
    "sync": ((), ("sync",)),
    # The power is cut after each sync anyway.
    "checkpoint": (("number",), ()),
    "none": ((), ()),
}


def parse(text: str, name: str) -> list[Program]:
    r"""Parse the workloads of a file; their names are `name` with a number, if there is more than one.

    Raises:
        ProgramError: a line cannot be read; the error contains its number.

    >>> text = "# define\nA\nA/foo\n# run\nmkdir A 0777\nopen Afoo O_CREAT 0777\nfsync Afoo\ncheckpoint 1\nclose Afoo"
    >>> [str(one) for one in parse(text, "a")[0].operations]
    ['mkdir A', 'open A/foo Afoo', 'fsync @Afoo', 'close Afoo']
    """
    section = ""
    workloads: list[list[Operation]] = []
    paths: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        if words[0] == "#":
            if section == "setup" and workloads[-1]:
                workloads[-1].append(operation("sync"))
            section = words[-1]
            if section == "define":
                paths = {"test": HERE}
                workloads.append([])
            elif section not in ("declare", "setup", "run") or not workloads:
                raise ProgramError(
                    number, f"`{line.strip()}` is not a section; use `# define` first, then setup and run"
                )
        elif section == "define":
            paths.setdefault(words[0].replace("/", ""), words[0])
        elif section in ("setup", "run"):
            workloads[-1].extend(_operations(words, paths, number))
        elif section != "declare":
            raise ProgramError(number, "the first line must be `# define`")
    names = [name] if len(workloads) == 1 else [f"{name}-{number}" for number in range(1, len(workloads) + 1)]
    return [Program(name, tuple(operations)) for name, operations in zip(names, workloads, strict=True)]


def _operations(words: list[str], paths: dict[str, str], number: int) -> Iterator[Operation]:
    verb, *arguments = words
    if verb not in _MEANINGS:
        raise ProgramError(number, f"`{verb}` is not an operation of J-lang; use {', '.join(_MEANINGS)}")
    names, meanings = _MEANINGS[verb]
    if verb in ("falloc", "mknod"):
        # The flags may have spaces around `|`.
        rest = len(names) - 2
        arguments = [*arguments[:1], "".join(arguments[1 : len(arguments) - rest]), *arguments[len(arguments) - rest :]]
    if len(arguments) != len(names):
        raise ProgramError(number, f"`{verb}` takes {' '.join(names) or 'nothing'}, not `{' '.join(words[1:])}`")
    values = dict(zip(names, arguments, strict=True))
    values["handle"] = values.get("path", "")
    for name in ("path", "new"):
        if name in values and values[name] not in paths:
            raise ProgramError(number, f"`{values[name]}` is not a file of the section `# define`")
        values[name] = paths.get(values.get(name, ""), "")
    flags = values.get("flags", "").split("|")
    if verb == "falloc":
        if unknown := [flag for flag in flags if flag not in _FLAGS]:
            raise ProgramError(number, f"`{unknown[0]}` is not a flag of fallocate; use {', '.join(_FLAGS)}")
        mode = sum({_FLAGS[flag] for flag in flags})
        by_flags = {flags: name for name, flags in MODES.items()}
        if mode not in by_flags:
            raise ProgramError(number, f"no mode of fallocate has the flags {'|'.join(flags)}")
        values["fallocate"] = by_flags[mode]
    elif verb == "mknod":
        # ACE asks for both kinds of devices, S_IFCHR|S_IFBLK, which is the number of a block device.
        kinds = {"S_IFBLK": "block", "S_IFCHR": "char", "S_IFSOCK": "socket", "S_IFIFO": "fifo"}
        named = [kind for flag, kind in kinds.items() if flag in flags]
        if not named:
            raise ProgramError(number, f"no kind of special file is in {'|'.join(flags)}; use {', '.join(kinds)}")
        values["kind"] = named[0]
    for meaning in meanings:
        yield operation(meaning.format(**values), number)
