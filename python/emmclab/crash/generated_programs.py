"""Generated programs: all short sequences of operations on a few files, long random ones, and published bugs.

The bounds are those of ACE (Mohan et al., OSDI 2018): few operations, a small set of nested files and
folders, and a sync after an operation. Files and folders that an operation needs are created first and synced.
"""

import functools
import itertools
import random
import re
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from emmclab.crash.file_tree import RefusedError, Tree
from emmclab.crash.programs import HERE, Operation, Program, ProgramError, operation, parse, written_bytes
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
    "random:OPERATIONS": "one random program of OPERATIONS operations",
    "known[:BUG]": "programs that revealed bugs in file systems, or one of them",
    "FILE.prog": "the programs of a file",
}
#: Name of the check for generated programs, and the extension of a file that contains programs.
CHECK, ENDING = "programs", ".prog"
#: Default number of programs in a random sample.
_SAMPLE = 500
_NAME = re.compile(r"(ace):([123])(?::(\d{1,6}))?|(random):(\d{1,6})")
#: Files (with data) and folders that exist before a generated program starts.
_FILES, _FOLDERS = ("foo", "A/foo", "A/bar", "B/foo"), ("A", "B", "A/C")
#: Size in bytes of each file that exists at the start, and the name of its extended attribute.
_BYTES, _ATTRIBUTE = 16_384, "one"

#: Operations from which sequences are generated.
_OPERATIONS = (
    *("create A/new", "create new", "mkdir D", "mkdir A/D"),
    *("write A/foo 0 4096", "write A/foo 8192 8192", "write foo 1000 20000", "append A/foo 4096", "append foo 100"),
    *("truncate A/foo 0", "truncate A/foo 5000", "truncate foo 40960"),
    *(f"fallocate A/foo {mode} 8192 4096" for mode in ("keep_size", "punch_hole", "zero_range")),
    *("fallocate A/foo collapse_range 4096 4096", "fallocate A/foo insert_range 4096 4096"),
    *("fallocate foo extend 16384 8192", "fallocate foo keep_size 16384 8192", "fallocate foo zero_range 12288 8192"),
    *("link A/foo A/linked", "link foo B/linked", "symlink A/foo soft", "symlink foo B/soft"),
    *("rename A/foo A/moved", "rename A/foo B/moved", "rename A/foo A/bar", "rename foo B/foo", "rename A/C B/C"),
    *("exchange A/foo A/bar", "exchange foo B/foo", "exchange A/C B/foo"),
    *("unlink A/foo", "unlink foo", "rmdir A/C", "setxattr A/foo one 40", "setxattr foo two 3000"),
    *("removexattr A/foo one", "mmapwrite A/foo 4096 4096", "mmapwrite foo 100 5000"),
    *("dwrite A/foo 4096 4096", "dwrite foo 16384 8192"),
)


def is_known(name: str) -> bool:
    """Return whether this is the name of a workload of generated programs."""
    return _NAME.fullmatch(name) is not None or name == ALL_KNOWN or name in known_bug_names()


def programs(name: str, seed: int) -> list[Program]:
    """Generate the programs of a workload; its name is one of those in `ABOUT`.

    >>> [str(one) for one in programs("ace:1", 1)[0].operations]
    ['mkdir A', 'sync', 'create A/new']
    """
    if published := known_programs(name):
        return published
    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigError(f"there are no generated programs `{name}`", field="workload", hint=", ".join(ABOUT))
    dice = random.Random(f"{name}:{seed}")  # noqa: S311 - the same seed, the same programs.
    if match[4]:
        return [Program(f"random-{seed}", tuple(_at_random(int(match[5]), dice)))]
    length = int(match[2])
    if length < 3 and match[3] is None:
        return list(_all(length))
    count = int(match[3] or _SAMPLE)
    return list(_sample(length, count, dice))


def is_programs(name: str) -> bool:
    """Return whether a workload consists of programs: generated ones, or those in a file."""
    return is_known(name) or name.endswith(ENDING)


def load(name: str, seed: int) -> list[Program]:
    """Load the programs of a workload: generated ones, or those in a file."""
    if not name.endswith(ENDING):
        return programs(name, seed)
    path = Path(name)
    try:
        loaded = parse(path.read_text(encoding="utf-8"))
    except ProgramError as error:
        raise ConfigError(
            f"{name}:{error.line}: {error.problem}",
            file=name,
            line=error.line,
            hint="write one operation on each line; docs/guides/power-cuts.md describes the language",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"programs cannot be read: {reason}", hint="check the path").in_file(name) from None
    if not any(program.operations for program in loaded):
        raise ConfigError("the program has no operation", hint="write one operation on each line").in_file(name)
    return loaded


def _all(length: int) -> Iterator[Program]:
    number = 0
    for sequence in itertools.product(_OPERATIONS, repeat=length):
        for program in _synced(sequence):
            yield Program(f"ace-{length}-{number}", program)
            number += 1


def _sample(length: int, count: int, dice: random.Random) -> Iterator[Program]:
    seen: set[tuple[Operation, ...]] = set()
    for _ in range(100 * count):
        if len(seen) == count:
            return
        sequence = tuple(dice.choice(_OPERATIONS) for _ in range(length))
        possible = list(_synced(sequence))
        if possible and (chosen := dice.choice(possible)) not in seen:
            seen.add(chosen)
            yield Program(f"ace-{length}-{len(seen) - 1}", chosen)


def _synced(sequence: tuple[str, ...]) -> Iterator[tuple[Operation, ...]]:
    """Yield programs that prepare and execute a sequence of operations, each with another choice of syncs."""
    steps = [operation(text) for text in sequence]
    preparation = _needed(steps)
    if preparation is None:
        return
    begin = (*preparation, operation("sync")) if preparation else ()
    middle = [[None, *_syncs(step)[:1]] for step in steps[:-1]]
    for syncs in itertools.product(*middle, [None, *_syncs(steps[-1])]):
        program = list(begin)
        for step, sync in zip(steps, syncs, strict=True):
            program.append(step)
            if sync is not None:
                program.append(sync)
        if _is_possible(program):
            yield tuple(program)


def _syncs(step: Operation) -> list[Operation]:
    """Return the syncs that may follow an operation: of the file, of its parent folder, and of everything."""
    path = step.paths()[-1]
    folder = path.rpartition("/")[0] or HERE
    texts = [f"fsync {path}", f"fdatasync {path}", f"fsync {folder}", "syncfs", "sync"]
    if step.verb in ("unlink", "rmdir"):
        texts = texts[2:]
    elif step.verb in ("symlink", "mkdir"):
        texts = texts[2:] if step.verb == "symlink" else texts[:1] + texts[2:]
    elif step.verb == "mmapwrite":
        texts.insert(0, f"msync {path}")
    return [operation(text) for text in texts]


def _needed(steps: list[Operation]) -> list[Operation] | None:
    """Return the operations that must precede `steps`; `None` if no preparation makes the steps possible."""
    created: list[str] = []
    for _ in range(12):
        preparation = [operation(text) for path in _in_order(created) for text in _creation(path)]
        tree = Tree()
        try:
            for index, step in enumerate([*preparation, *steps]):
                tree.apply(index, step, written_bytes(0, index, step))
        except RefusedError as error:
            if error.missing in created or error.missing not in (*_FILES, *_FOLDERS):
                return None
            created.append(error.missing)
        else:
            return preparation
    return None


def _in_order(paths: list[str]) -> list[str]:
    """Return paths with their parent folders, in an order in which they can be created."""
    with_parents = {path for named in paths for path in (*_above(named), named)}
    return sorted(with_parents, key=lambda path: (path not in _FOLDERS, path))


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _creation(path: str) -> list[str]:
    if path in _FOLDERS:
        return [f"mkdir {path}"]
    return [f"create {path}", f"write {path} 0 {_BYTES}", f"setxattr {path} {_ATTRIBUTE} 20"]


def _is_possible(program: list[Operation]) -> bool:
    tree = Tree()
    try:
        for index, step in enumerate(program):
            tree.apply(index, step, written_bytes(0, index, step))
    except RefusedError:
        return False
    return True


def _at_random(length: int, dice: random.Random) -> Iterator[Operation]:
    """Yield random operations, each possible after the previous ones, with occasional syncs."""
    tree = Tree()
    for index in range(length):
        while True:
            step = _draw_operation(tree, dice)
            try:
                tree.apply(index, step, written_bytes(0, index, step))
            except RefusedError:
                continue
            break
        yield step


def _draw_operation(tree: Tree, dice: random.Random) -> Operation:
    targets = tree.names()
    files = [path for path, target in targets.items() if target.kind == "file"] or ["f0"]
    folders = [HERE, *(path for path, target in targets.items() if target.kind == "folder" and path.count("/") < 2)]
    file, other_file = dice.choice(files), dice.choice(files)
    folder = dice.choice(folders)
    new = f"f{dice.randrange(40)}" if folder == HERE else f"{folder}/f{dice.randrange(40)}"
    offset, length = 512 * dice.randrange(64), dice.choice((100, 4096, 5000, 20_000))
    block, blocks = 4096 * dice.randrange(8), 4096 * dice.randrange(1, 5)
    path = dice.choice([*files, *folders])
    return operation(
        dice.choice(
            (
                *(f"create {new}", f"create {new}", f"mkdir {new}", f"write {file} {offset} {length}"),
                *(f"write {file} {offset} {length}", f"append {file} {length}", f"truncate {file} {offset}"),
                *(f"fallocate {file} {mode} {block} {blocks}" for mode in ("keep_size", "punch_hole")),
                *(f"fallocate {file} zero_range {block} {blocks}", f"fallocate {file} extend {block} {blocks}"),
                *(f"link {file} {new}", f"symlink {file} {new}", f"rename {file} {new}", f"rename {file} {other_file}"),
                *(f"exchange {file} {other_file}", f"unlink {file}", f"rmdir {dice.choice(folders)}"),
                *(f"setxattr {file} {_ATTRIBUTE} 40", f"removexattr {file} {_ATTRIBUTE}"),
                *(f"mmapwrite {file} {offset} {length}", f"dwrite {file} {block} {blocks}"),
                *(f"fsync {path}", f"fsync {file}", f"fdatasync {file}", "syncfs", "sync"),
            )
        )
    )
