"""Generated programs: all short sequences of operations on a few files, long random ones, and published bugs.

The bounds are those of ACE (Mohan et al., OSDI 2018): few operations, a small set of nested files and
folders, and a sync after an operation.
"""

import bisect
import functools
import itertools
import math
import random
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Self

from emmclab.crash import jlang
from emmclab.crash.file_tree import BLOCK, RefusedError, Tree
from emmclab.crash.programs import HERE, KINDS, Operation, Program, ProgramError, operation, parse, written_bytes
from emmclab.errors import ConfigError

#: Name of the workload with all published bug-revealing programs, and prefix of workloads with a single one.
ALL_KNOWN, KNOWN = "known", "known:"


@functools.cache
def known_bugs() -> dict[str, dict[str, str]]:
    """Return the declarations of all known file-system bugs, by name.

    >>> known_bugs()["generic-322"]["file_system"], known_bugs()["generic-322"]["kernel"]
    ('btrfs', '3.12')
    """
    text = resources.files("emmclab").joinpath("data/known-bugs.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def known_bug_names() -> list[str]:
    """Return the names of the workloads that each reproduce a single known bug.

    >>> known_bug_names()[0]
    'known:new-1'
    """
    return [f"{KNOWN}{name}" for name in known_bugs()]


def known_programs(workload: str) -> list[Program]:
    """Return the programs of a workload of known bugs; empty for other workloads.

    >>> [len(known_programs(name)) for name in ("known:new-7", "known:none")]
    [1, 0]
    """
    names = [workload.removeprefix(KNOWN)] if workload != ALL_KNOWN else list(known_bugs())
    return [
        Program(name, tuple(operation(text) for text in known_bugs()[name]["program"].split(";")))
        for name in names
        if name in known_bugs()
    ]


#: Names of generated workloads, with a description of each.
ABOUT = {
    "ace:LENGTH[:PROGRAMS]": "all sequences of LENGTH file-system operations, each with every possible sync, or "
    "a random sample of PROGRAMS of them; LENGTH is 1, 2, or 3 (always sampled)",
    "ace:LENGTH:FIRST-LAST": "the programs with these numbers of all sequences of 1 or 2 operations",
    "random:OPERATIONS": "one random program of OPERATIONS operations",
    "known[:BUG]": "programs that revealed bugs in file systems, or one of them",
    "FILE.prog": "the programs of a file",
    "FILE.jlang": "the programs of a file in the language of ACE",
}
#: Name of the check for generated programs, and the extension of a file that contains programs.
CHECK, ENDING, JLANG_ENDING = "programs", ".prog", ".jlang"
#: Default number of programs in a random sample.
_SAMPLE = 500
_NAME = re.compile(r"(ace):([123])(?::(\d{1,7})(?:-(\d{1,7}))?)?|(random):(\d{1,6})")
#: Names of folders; other names are those of files.
_FOLDER_NAMES = ("A", "B", "C", "D")
#: Size in bytes of each file that exists at the start, and of the data that a file gets if it needs some.
_BYTES, _MORE_BYTES, _ATTRIBUTE = 16_384, 32_768, "one"
#: Files of ACE that most operations use, and files that only those with two files use first or second.
_FIRST, _SECOND = ("foo", "A/foo"), ("bar", "A/bar", "A/C/bar")
_PAIRS = tuple((path, new) for path in _FIRST + _SECOND for new in _SECOND if path != new)
#: Ranges of fallocate and write: at the end of a file, without alignment at its start, and beyond its end.
_RANGES = ("{end} 32768", "0 5000", "{tail} 5000")

#: Operations from which sequences are generated: all of ACE (Mohan et al., OSDI 2018) with its files and ranges, then
#: more. `;` separates the steps of one operation, `+` begins one whose file has or had data; `{n}` is the number of the
#: operation, the other names in braces are offsets in its file.
_OPERATIONS = (
    *(f"create {path}" for path in _FIRST),
    "mkdir A",
    *(
        f"+fallocate {path} {mode} {place}"
        for path in _FIRST
        for mode in ("zero_range", "zero_range_keep_size", "punch_hole", "keep_size", "extend")
        for place in _RANGES
    ),
    *(f"append {path} 32768" for path in _FIRST),
    *(f"+write {path} {place}" for path in _FIRST for place in _RANGES[1:]),
    *(f"dwritesync {path} {{blocks}} 32768" for path in _FIRST),
    *(f"+dwritesync {path} 0 8192" for path in _FIRST),
    *(
        f"+fallocate {path} extend {place}; mmapwrite {path} {place}; msyncrange {path} {page} 8192"
        for path in _FIRST
        for place, page in (("{end} 32768", "{page}"), ("0 8192", "0"))
    ),
    *(f"{verb} {path} {new}" for verb in ("link", "rename") for path, new in _PAIRS),
    *("rename A B", "rename B A/C", "rename A/C B"),
    *(f"unlink {path}" for path in _FIRST + _SECOND),
    *(f"setxattr {path} xattr1 4" for path in _FIRST),
    *(f"setxattr {path} xattr1 4; removexattr {path} xattr1" for path in _FIRST),
    *(f"+truncate {path} {size}" for path in _FIRST for size in (0, 2500)),
    # What follows is not in ACE, or only with one sync.
    *("mkdir A/D", "mknod A/foo char", "mknod foo fifo", "symlink A/foo soft", "symlink foo B/soft"),
    *("+fallocate A/foo collapse_range 4096 4096", "+fallocate A/foo insert_range 4096 4096", "truncate foo 40960"),
    *("+fallocate A/foo unshare_range 0 8192", "clone A/foo B/foo; fallocate B/foo unshare_range 0 8192"),
    *("+clone A/foo B/foo", "+clone foo bar", "+syncrange A/foo 0 4096"),
    *("exchange A/foo A/bar", "exchange foo B/foo", "exchange A/C B/foo", "rmdir A/C", "setxattr foo two 3000"),
    *("mmapwrite A/foo 4096 4096", "mmapwrite foo 100 5000", "dwrite A/foo 4096 4096", "dwrite foo 16384 8192"),
    *("chmod A/foo 600", "chmod A 700", "chown foo 1000 100", "utimes A/foo 1000000000", "utimes A 1000000000"),
    *(
        "tmpfile A t{n}; write @t{n} 0 8192; link @t{n} A/new; close t{n}",
        "tmpfile . t{n}; link @t{n} new; append @t{n} 4096",
    ),
    *("open A/foo h{n}; unlink A/foo; append @h{n} 8192", "open foo h{n}; rename foo bar; write @h{n} 0 4096"),
)


def is_known(name: str) -> bool:
    """Return whether this is the name of a workload of generated programs."""
    return _NAME.fullmatch(name) is not None or name == ALL_KNOWN or name in known_bug_names()


def programs(name: str, seed: int) -> list[Program]:
    """Generate the programs of a workload; its name is one of those in `ABOUT`.

    >>> [str(one) for one in programs("ace:1", 1)[0].operations]
    ['create foo']
    """
    if published := known_programs(name):
        return published
    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigError(f"there are no generated programs `{name}`", field="workload", hint=", ".join(ABOUT))
    dice = random.Random(f"{name}:{seed}")  # noqa: S311 - the same seed, the same programs.
    if match[5]:
        return [Program(f"random-{seed}", tuple(_at_random(int(match[6]), dice)))]
    length = int(match[2])
    if match[4] is not None and (length == 3 or not int(match[3]) <= int(match[4]) < whole(length)):
        raise ConfigError(
            f"`{name}` names no programs",
            field="workload",
            hint=f"ace:1 has the numbers 0 to {whole(1) - 1}, and ace:2 those to {whole(2) - 1}; ace:3 is sampled",
        )
    if match[4] is not None:
        return list(_numbered(length, int(match[3]), int(match[4]) + 1))
    if length < 3 and match[3] is None:
        return list(_numbered(length, 0, whole(length)))
    count = int(match[3] or _SAMPLE)
    return list(_sample(length, count, dice))


def is_programs(name: str) -> bool:
    """Return whether a workload consists of programs: generated ones, or those in a file."""
    return is_known(name) or is_file(name)


def is_file(name: str) -> bool:
    """Return whether this is the name of a file of programs."""
    return name.endswith((ENDING, JLANG_ENDING))


def load(name: str, seed: int) -> list[Program]:
    """Load the programs of a workload: generated ones, or those in a file."""
    if not is_file(name):
        return programs(name, seed)
    path = Path(name)
    try:
        text = path.read_text(encoding="utf-8")
        loaded = parse(text) if name.endswith(ENDING) else jlang.parse(text, path.stem)
    except ProgramError as error:
        raise ConfigError(
            f"{name}:{error.line}: {error.problem}",
            file=name,
            line=error.line,
            hint="write one operation on each line; docs/guides/power-cuts.md describes both languages",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"programs cannot be read: {reason}", hint="check the path").in_file(name) from None
    if not any(program.operations for program in loaded):
        raise ConfigError("the program has no operation", hint="write one operation on each line").in_file(name)
    return loaded


@dataclass(frozen=True)
class _Sequence:
    """Operations with all choices of a sync after each, as programs with numbers.

    Files and folders that are missing are made directly before the operation that needs them, as in ACE; in the
    second half of the programs they are made first and synced. Before an operation that needs a free name, what has the
    name is removed.
    """

    texts: tuple[str, ...]
    #: For each of both ways: the possible syncs after each operation; an empty text stands for none.
    syncs: tuple[tuple[tuple[str, ...], ...], ...]

    @classmethod
    def of(cls, texts: tuple[str, ...]) -> Self:
        """Choose the syncs of a sequence of operations: those of all related files where these are made in place."""
        related = sorted({path for text in texts for path in _related(text)})
        all_files = tuple(f"fsync {path}" for path in related)
        own = [_own_syncs(text, number) for number, text in enumerate(texts, 1)]
        middle = ("", *all_files, "sync")
        last = ("", *dict.fromkeys((*all_files, *own[-1])))
        in_place = (*(middle for _ in texts[1:]), last)
        return cls(texts, (in_place, (*(("", *syncs[:1]) for syncs in own[:-1]), ("", *own[-1]))))

    def __len__(self) -> int:
        return sum(math.prod(map(len, way)) for way in self.syncs)

    def program(self, number: int) -> tuple[Operation, ...] | None:
        """Return a program; `None` if it is impossible, or equals one with a smaller number."""
        first = math.prod(map(len, self.syncs[0]))
        is_prepared = number >= first
        chosen = []
        rest = number - first * is_prepared
        for syncs in reversed(self.syncs[is_prepared]):
            rest, place = divmod(rest, len(syncs))
            chosen.append(syncs[place])
        texts = [text for pair in zip(self.texts, reversed(chosen), strict=True) for text in pair]
        try:
            built = _built((), texts)
            if is_prepared:
                built = _built(_preparation(built.missing), texts) if built.missing else _Builder()
        except RefusedError:
            return None
        return tuple(built.made) or None


@functools.cache
def _whole(length: int) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return all sequences of operations, and the number of the first program of each, and of all programs."""
    sequences = [*itertools.product(_OPERATIONS, repeat=length)]
    return sequences, [0, *itertools.accumulate(len(_Sequence.of(texts)) for texts in sequences)]


def whole(length: int) -> int:
    """Return how many numbers the programs of `ace:LENGTH` have; a number without a program of its own is skipped."""
    return _whole(length)[1][-1]


def _numbered(length: int, first: int, end: int) -> Iterator[Program]:
    sequences, numbers = _whole(length)
    place = bisect.bisect_right(numbers, first) - 1
    for number in range(first, end):
        place += number >= numbers[place + 1]
        if made := _Sequence.of(sequences[place]).program(number - numbers[place]):
            yield Program(f"ace-{length}-{number}", made)


def _sample(length: int, count: int, dice: random.Random) -> Iterator[Program]:
    seen: set[tuple[Operation, ...]] = set()
    for _ in range(100 * count):
        if len(seen) == count:
            return
        sequence = _Sequence.of(tuple(dice.choice(_OPERATIONS) for _ in range(length)))
        chosen = sequence.program(dice.randrange(len(sequence)))
        if chosen and chosen not in seen:
            seen.add(chosen)
            yield Program(f"ace-{length}-{len(seen) - 1}", chosen)


def _paths(text: str, number: int = 1) -> list[str]:
    """Return the paths of an operation, with the numbers of its open files."""
    words = [step.format(n=number, end=0, tail=0, blocks=0, page=0) for step in text.lstrip("+").split("; ")]
    return [path for step in words for path in operation(step).paths()]


@functools.cache
def _related(text: str) -> frozenset[str]:
    """Return the files and folders of an operation, those above them, and the other ones of ACE beside them."""
    used = [path for path in _paths(text) if not path.startswith("@")]
    siblings = [path.replace("foo", "bar") if "foo" in path else path.replace("bar", "foo") for path in used]
    siblings += [{"A": "B", "B": "A"}[path] for path in used if path in ("A", "B")]
    folders = [path.rpartition("/")[0] or HERE for path in used]
    unsyncable = {used[-1]} if text.startswith(("symlink", "mknod")) else set()
    return frozenset({*used, *siblings, *folders} - unsyncable)


@functools.cache
def _own_syncs(text: str, number: int) -> tuple[str, ...]:
    """Return the syncs of what an operation changes: of the file, of its parent folder, and of everything."""
    verb = text.lstrip("+").split()[0]
    paths = _paths(text, number)
    path = paths[-1]
    named = next(one for one in reversed(paths) if not one.startswith("@"))
    folder = f"fsync {named.rpartition('/')[0] or HERE}"
    syncs = [f"fsync {path}", f"fdatasync {path}", folder, "syncfs", "sync"]
    if verb in ("unlink", "rmdir", "symlink", "mknod"):
        del syncs[:2]
    elif verb == "mkdir":
        del syncs[1]
    elif verb == "mmapwrite":
        syncs.insert(0, f"msync {path}")
    return tuple(syncs)


class _Builder:
    """Builds a program from operations, each preceded by those that make it possible."""

    def __init__(self) -> None:
        """Start in an empty folder."""
        self.made: list[Operation] = []
        #: Paths that were missing and have been made.
        self.missing: list[str] = []
        self._tree = Tree()

    def do(self, text: str, depth: int = 0) -> None:
        """Add a step.

        Raises:
            RefusedError: nothing makes it possible.
        """
        step = operation(text)
        while True:
            try:
                self._tree.apply(len(self.made), step, written_bytes(0, len(self.made), step))
            except RefusedError as error:
                if not error.problem or depth > _MOST_REMEDIES:
                    raise
                self.missing.extend([error.path] if error.problem == "missing" else [])
                for remedy in _remedies(self._tree, error, step):
                    self.do(remedy, depth + 1)
            else:
                self.made.append(step)
                return

    def add(self, text: str, number: int) -> None:
        """Add an operation in the form of `_OPERATIONS`, or a sync; `number` is that of the operation."""
        # The folders of all files come before the first file, as in ACE.
        for folder in (folder for path in _paths(text) for folder in _above(path)):
            if self._tree.find(folder) is None:
                self.missing.append(folder)
                self.do(f"mkdir {folder}")
        path = next(iter(_paths(text)), HERE)
        if text.startswith("+") and not any(self._contents(path)):
            self.do(f"append {path} {_MORE_BYTES}")
        size = len(next(reversed(self._contents(path)), b""))
        places = {"end": size, "tail": max(size - 2000, 0), "blocks": -(-size // BLOCK) * BLOCK}
        for step in text.lstrip("+").split("; "):
            self.do(step.format(n=number, page=size // BLOCK * BLOCK, **places))

    def _contents(self, path: str) -> list[bytes]:
        """Return all contents of a file so far."""
        inode = self._tree.find(path)
        return [] if inode is None else [version.data for version in self._tree.inodes[inode].versions]


def _built(start: Iterable[str], texts: Sequence[str]) -> _Builder:
    builder = _Builder()
    for text in start:
        builder.do(text)
    for place, text in enumerate(texts):
        if text:
            builder.add(text, place // 2 + 1)
    return builder


#: Maximum depth of operations that make others possible.
_MOST_REMEDIES = 8


def _above(path: str) -> list[str]:
    """Return the folders above a path, the top one first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _remedies(tree: Tree, error: RefusedError, step: Operation) -> Iterator[str]:
    """Yield operations after which an operation is no longer refused for this reason."""
    path = error.path
    if error.problem == "missing":
        yield f"{'mkdir' if path.rpartition('/')[2] in _FOLDER_NAMES else 'create'} {path}"
    elif error.problem == "short":
        yield f"append {path} {_MORE_BYTES}"
    elif error.problem == "bare":
        yield f"setxattr {path} {step.arguments[1]} 4"
    else:
        named = tree.names()
        below = sorted((name for name in named if name.startswith(f"{path}/")), reverse=True)
        for name in (*below, *([] if error.problem == "full" else [path])):
            yield f"{'rmdir' if named[name].kind == 'folder' else 'unlink'} {name}"


def _preparation(missing: Iterable[str]) -> Iterator[str]:
    """Yield operations that make paths and their folders, files with data and an attribute, and sync them."""
    for path in sorted(
        {inner for path in missing for inner in (*_above(path), path)},
        key=lambda path: (path.rpartition("/")[2] not in _FOLDER_NAMES, path),
    ):
        if path.rpartition("/")[2] in _FOLDER_NAMES:
            yield f"mkdir {path}"
        else:
            yield from (f"create {path}", f"write {path} 0 {_BYTES}", f"setxattr {path} {_ATTRIBUTE} 20")
    yield "sync"


def _at_random(length: int, dice: random.Random) -> Iterator[Operation]:
    """Yield random operations, each possible after the previous ones, with occasional syncs."""
    tree = Tree()
    for index in range(length):
        while True:
            step = _draw_operation(tree, dice)
            is_moot = step.verb in ("rename", "exchange") and step.arguments[0] == step.arguments[1]
            try:
                tree.apply(index, step, written_bytes(0, index, step))
            except RefusedError:
                continue
            if not is_moot:
                break
        yield step


def _draw_operation(tree: Tree, dice: random.Random) -> Operation:
    targets = tree.names()
    open_files = [f"@{handle}" for handle, inode in tree.handles.items() if tree.inodes[inode].kind == "file"]
    named = [path for path, target in targets.items() if target.kind == "file"] or ["f0"]
    files = named + open_files
    folders = [HERE, *(path for path, target in targets.items() if target.kind == "folder" and path.count("/") < 2)]
    file, other_file, folder, to_folder = (dice.choice(some) for some in (files, named, folders, folders))
    new, moved = (
        f"f{dice.randrange(40)}" if above == HERE else f"{above}/f{dice.randrange(40)}" for above in (folder, to_folder)
    )
    offset, length = 512 * dice.randrange(64), dice.choice((100, 4096, 5000, 20_000))
    block, blocks = 4096 * dice.randrange(8), 4096 * dice.randrange(1, 5)
    path, handle = dice.choice([*files, *folders]), f"h{dice.randrange(3)}"
    return operation(
        dice.choice(
            (
                *(f"create {new}", f"create {new}", f"mkdir {new}", f"write {file} {offset} {length}"),
                *(f"write {file} {offset} {length}", f"append {file} {length}", f"truncate {file} {offset}"),
                *(f"fallocate {file} {mode} {block} {blocks}" for mode in ("keep_size", "punch_hole")),
                *(f"fallocate {file} zero_range {block} {blocks}", f"fallocate {file} extend {block} {blocks}"),
                *(
                    f"link {file} {new}",
                    f"symlink {other_file} {new}",
                    f"rename {file} {new}",
                    f"rename {file} {moved}",
                ),
                *(f"rename {file} {other_file}", f"exchange {file} {other_file}", f"unlink {file}"),
                *(f"rmdir {dice.choice(folders)}", f"rename {path} {new}", f"mknod {new} {dice.choice([*KINDS])}"),
                *(f"setxattr {file} {_ATTRIBUTE} 40", f"removexattr {file} {_ATTRIBUTE}", f"clone {file} {other_file}"),
                *(f"mmapwrite {file} {offset} {length}", f"dwrite {file} {block} {blocks}"),
                *(f"chmod {path} {dice.choice((600, 755))}", f"chown {path} {dice.randrange(9)} 100"),
                *(f"utimes {path} {dice.randrange(1 << 30)}", f"dwritesync {file} {block} {blocks}"),
                *(f"open {file} {handle}", f"tmpfile {folder} {handle}", f"close {handle}"),
                *(f"syncrange {file} {block} {blocks}", f"msyncrange {file} {block} {blocks}"),
                *(f"fsync {path}", f"fsync {file}", f"fdatasync {file}", "syncfs", "sync"),
            )
        )
    )
