"""Stores the results of a study: finished cells in Parquet files (parts), which are finally joined, and table rows."""

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from emmclab.errors import InputError
from emmclab.runtime.checksummed import from_checked_json, is_intact, to_checked_json
from emmclab.runtime.document import Row
from emmclab.runtime.files import lock, open_own, refuse_link, remove_named, sweep
from emmclab.runtime.local_copies import build_digest, scratch
from emmclab.runtime.parquet import Line, TableFile, form_of, text_of
from emmclab.runtime.result_storage import DAMAGED, Folder, Place
from emmclab.studies.cell import Cell
from emmclab.studies.flatten import flat, with_settings
from emmclab.studies.kinds import TABLES, Images, kind_of_cell
from emmclab.studies.result_rows import StoredCell, ask, keys_of, undamaged, write_joined, write_part
from emmclab.studies.stored_types import About, Entry, FailedRow, FurtherAbout, Index, MissingCell, RunRow

#: Default limit for the total size of preconditioned device images in the results folder of a study, bytes.
IMAGES_BYTES = 4 << 30
#: Maximum number of overloaded runs whose rows are stored; further runs are only counted.
MOST_OVERLOADED = 1_000
#: Matches the JSON row of an overloaded run.
_OVERLOADED = re.compile(r'"run_load_overloaded": ?true')
#: Folder of the part files with results, and the file into which all parts are joined.
_CELLS, _WHOLE = "cells", "cells/all.parquet"
#: File names in a results folder: parts (`_PART`), device images and their locks (`_IMAGE`), image folders of a build
#: (`_BUILD`), and logs of power cuts (`_LOGS`).
_PART = re.compile(r"cells/(all|[0-9a-f]{32})\.parquet")
_IMAGE = re.compile(r"[0-9a-f]{32}\.(emmcimg|lock)")
_BUILD = re.compile(r"[0-9a-f]{16}")
_LOGS = re.compile(r"[0-9a-f]{8}/(run\.(log|json)|(options|share)-[0-9a-f]+\.json)")
#: Maximum number of unknown files in the folder of parts that a note lists.
_NAMED = 3
#: Minimum interval between two part files, seconds: `_EACH_S` for each existing part file, at most `_MOST_S`.
_EACH_S, _MOST_S = 0.1, 10.0
#: Part files are joined at the end of a run. Above `_MANY_CELLS` cells, they are joined only if there are more than
#: `_MANY_PARTS` files.
_MANY_CELLS, _MANY_PARTS = 4_096, 1_000


def lines_of(entry: Entry) -> str:
    """Return the table rows of a result as text, one per line, in the form in which they are stored."""
    return "\n".join(f"{table} {form_of(row)} {text_of(row)}" for table, row in rows_of(entry))


def result_lines(text: str) -> tuple[str, list[Line]]:
    """Return the digest of a stored result and its table rows, from the stored text."""
    digest, *lines = text.split("\n")
    return digest, [Line(*line.split(" ", 2)) for line in lines]


def row_of_cell(text: str) -> tuple[str, Row]:
    """Return the table row of a single run of a study (cell) and the name of its table, from the stored text."""
    _, (line, *_) = result_lines(text)
    return line.table, json.loads(line.row)


def rows_of(entry: Entry) -> Iterator[tuple[str, Row]]:
    """Yield the table rows of a result, each with the name of its table; the row of the whole result comes first."""
    cell = entry["cell"]
    if "failed" in entry:
        yield "failures", with_settings(flat({**cell, **entry["failed"]}), cell)
        return
    yield from kind_of_cell(cell["grid"], cell.get("options")).rows(cell, entry["result"])


def missing_cell(cell: Cell, reason: str = "") -> MissingCell:
    """Describe a cell (a single run of a study) that has no result, with the reason if it is known."""
    return {
        "key": cell.key,
        "grid": cell.grid,
        "input": cell.input.name,
        "seed": cell.input.seed,
        "device": cell.device_name,
        "reason": reason,
    }


def missing_about(missing: Sequence[MissingCell]) -> FurtherAbout:
    """Return the stored fields about cells without a result: their number, and the names of their grids."""
    return {"missing": len(missing), "missing_grids": list(dict.fromkeys(cell["grid"] for cell in missing))}


@dataclass
class Finished:
    """The outcome of a study run. It does not contain the results, because there may be a million of them."""

    about: About
    digest: str = ""
    #: Number of stored results in each table: `runs`, `cuts`, `profiles`, `failures`.
    counts: dict[str, int] = field(default_factory=dict)
    #: Table rows of cells that failed (`failures`), and of runs whose device stopped early (`early`).
    failures: list[FailedRow] = field(default_factory=list)
    early: list[RunRow] = field(default_factory=list)
    #: Number of overloaded runs.
    overloaded_runs: int = 0
    overloaded: list[RunRow] = field(default_factory=list)
    missing: list[MissingCell] = field(default_factory=list)


class Store:
    """Stores the results of one study in a folder or bucket."""

    def __init__(self, place: Place | Path, images_limit: int = IMAGES_BYTES) -> None:
        """Set the folder or bucket, and the maximum size in bytes of stored preconditioned devices."""
        self.place: Place = Folder(place) if isinstance(place, Path) else place
        # Device images are stored next to the results if these are in a local folder, otherwise in the scratch folder.
        self.images = image_folders(self.place.folder or scratch(), images_limit)

    def keys(self) -> set[str]:
        """Return the keys of all cells whose results are stored."""
        if not (names := self._names()):
            return set()
        with self.place.reading() as aside:
            paths = self.place.paths(names, aside)
            try:
                return keys_of(paths, aside)
            except InputError:
                self._require_whole(names, paths)
                raise

    def _names(self) -> list[str]:
        """Return the names of the stored parts (Parquet files), without other files in their folder."""
        return [name for name in self.place.names(_CELLS) if _PART.fullmatch(name)]

    def mend(self, note: Callable[[str], None]) -> set[str]:
        """Rename damaged result files; return the keys of results in intact files. The others are computed again.

        `note` is called with a sentence about each damaged file, and about files that do not belong to the study.
        """
        file_names = self.place.names(_CELLS)
        foreign = [name for name in file_names if not _PART.fullmatch(name) and not name.endswith(DAMAGED)]
        if foreign:
            named = ", ".join([*foreign[:_NAMED], *(["..."] if len(foreign) > _NAMED else [])])
            note(f"{self.place}: {len(foreign):,} files are not results of the study, and are ignored: {named}")
        if not (names := self._names()):
            return set()
        with self.place.aside() as aside:
            keys: set[str] = set()
            paths = dict(zip(names, self.place.paths(names, aside), strict=True))
            intact_paths = [path for path in paths.values() if is_intact(path)]
            if intact_paths:
                keys = keys_of(intact_paths, aside)
            for name, path in paths.items():
                if path in intact_paths:
                    continue
                intact: set[str] = set()
                joined = write_joined(_noting_keys(undamaged(path), intact), aside)
                new_name = self.place.set_aside(name)
                if joined is not None:
                    self._put(joined)
                keys |= intact
                note(
                    f"{self.place}/{name}: this part of the results is damaged, or of an earlier version: "
                    f"{len(intact):,} of its cells are intact, the others are run again; the file is now {new_name}"
                )
        return keys

    def _require_whole(self, names: Sequence[str], paths: Sequence[Path]) -> None:
        for name, path in zip(names, paths, strict=True):
            if not is_intact(path):
                file = f"{self.place}/{name}"
                raise InputError(
                    "this part of the results is damaged, or of an earlier version",
                    hint="run the study again (`emmclab run STUDY`), which repeats only what is damaged",
                ).in_file(file)

    def add(self, results: Sequence[StoredCell]) -> None:
        """Store results as one Parquet file (part), atomically."""
        if not results:
            return
        with self.place.aside() as aside:
            part = aside / "part.parquet"
            write_part(results, part)
            self._put(part)

    def _put(self, part: Path) -> str:
        """Move a part to its final location, where it is named by the digest of its bytes; return this name."""
        with part.open("rb") as file:
            name = f"{_CELLS}/{hashlib.file_digest(file, 'sha256').hexdigest()[:32]}.parquet"
        self.place.write(name, part)
        return name

    def sweep(self) -> None:
        """Remove unfinished files of killed runs, and preconditioned devices that other builds of emmclab stored.

        Files that running processes use are kept. Devices of other builds are an exception: their processes create them
        again.
        """
        images = self.images.folder
        refuse_link(images.parent)
        for folder in filter(None, (self.place.folder, images)):
            sweep(folder)
        if self.place.folder is not None:
            sweep(self.place.folder / _CELLS)
        for folder_of_build in images.parent.glob("*"):
            if folder_of_build != images and _BUILD.fullmatch(folder_of_build.name):
                sweep(folder_of_build)
                remove_named(folder_of_build, _IMAGE)
        for lock_file in images.glob("*.lock"):
            if not _IMAGE.fullmatch(lock_file.name):
                continue
            with contextlib.suppress(OSError), open_own(lock_file) as file:
                if lock(file, wait=False):
                    lock_file.unlink(missing_ok=True)

    def forget(self) -> None:
        """Remove all results, preconditioned devices and crash logs of the study."""
        for name in self._names():
            self.place.remove(name)
        remove_named(refuse_link(self.images.folder.parent), re.compile(f"{_BUILD.pattern}/{_IMAGE.pattern}"))
        if self.images.logs is not None:
            remove_named(refuse_link(self.images.logs), _LOGS)

    def join(self) -> None:
        """Join all parts into one, which contains each cell once, in the order of the keys.

        Parts with many cells are not joined unless there are too many parts, because copying them would cost more than
        it saves.
        """
        names = self._names()
        if names == [_WHOLE] or not names:
            return
        keys = sorted(self.keys())
        if len(keys) > _MANY_CELLS and len(names) <= _MANY_PARTS:
            return
        with self.place.aside() as aside:
            rows = ask(self._paths(aside), aside, keys, StoredCell._fields[1:])
            joined = write_joined((StoredCell(*row) for row in rows), aside)
            if joined is None:
                return
            self.place.write(_WHOLE, joined)
        # If the process is killed here, some cells are stored in two files. This is harmless.
        for name in names:
            if name != _WHOLE:
                self.place.remove(name)

    def copies(self, aside: Path) -> list[Path]:
        """Return the stored parts as paths on this machine; those in a bucket are copied to `aside`.

        Raises:
            InputError: a part is damaged.
        """
        names = self._names()
        paths = self.place.paths(names, aside)
        self._require_whole(names, paths)
        return paths

    def _paths(self, aside: Path) -> list[Path]:
        """Return the paths of the stored parts on this machine without checking the parts; `mend` has checked them."""
        return self.place.paths(self._names(), aside)

    def ask(self, keys: Sequence[str], *columns: str) -> Iterator[tuple[Any, ...]]:
        """Read stored results: yield key and `columns` of each cell in the order of `keys`; None if it is missing."""
        with self.place.reading() as aside:
            yield from ask(self._paths(aside), aside, keys, columns)

    def finish(
        self, about: About, cells: Iterable[Cell], reasons: Mapping[str, str], made_of: Mapping[str, str]
    ) -> Finished:
        """Write the index and the tables in the order of the study, whatever the order in which cells were run.

        `reasons` contains, by cell key, why a cell has no result. `made_of` is the provenance of the tables.
        """
        by_key = {cell.key: cell for cell in cells}
        finished = Finished(about, counts=dict.fromkeys(TABLES, 0))
        # The digest of the results in order is the SHA-256 over the SHA-256 of each result.
        digest = hashlib.sha256()
        self.join()
        with contextlib.ExitStack() as files:
            aside = files.enter_context(self.place.aside())
            tables = {name: files.enter_context(TableFile(aside, name)) for name in TABLES}
            notes = _Notes(finished)
            for key, rows in self.ask(list(by_key), "rows"):
                if rows is None:
                    finished.missing.append(missing_cell(by_key[key], reasons.get(key, "")))
                    continue
                hashed, lines = result_lines(rows)
                digest.update(hashed.encode())
                notes.take(lines[0])
                for line in lines:
                    tables[line.table].add_line(line)
            for name, table in tables.items():
                if table.rows:
                    self.place.write(f"{name}.parquet", table.write(made_of), is_derived=True)
                else:
                    self.place.remove(f"{name}.parquet")
        finished.digest = digest.hexdigest()[:16]
        if finished.missing:
            finished.about = {**about, **missing_about(finished.missing)}
        without = {cell["key"] for cell in finished.missing}
        index: Index = {"study": finished.about, "cells": [key for key in by_key if key not in without]}
        if finished.missing:
            index["missing"] = finished.missing
        self.place.write("index.json", to_checked_json(index))
        return finished

    def index(self) -> Index:
        """Read the index of the last finished run of the study."""
        path = f"{self.place}/index.json"
        hint = "run the study first: `emmclab run STUDY`"
        try:
            text = self.place.read("index.json")
        except OSError as error:
            raise InputError("there are no finished results of a study", hint=hint).in_file(path) from error
        index = from_checked_json(text)
        if index is None:
            raise InputError(
                "this index of the results is damaged, or of an earlier version",
                hint="run the study again (`emmclab run STUDY`), which rebuilds it from the stored cells",
            ).in_file(path)
        return cast("Index", index)

    def results(self) -> Iterator[str]:
        """Yield the results of the last finished run as JSON, including failures, in the order of the study."""
        keys = self.index()["cells"]
        with self.place.reading() as aside:
            for key, text in ask(self.copies(aside), aside, keys, ["result"]):
                if text is None:
                    raise InputError(
                        f"the result {key} no longer exists",
                        hint="run the study again, which repeats the cells without a result",
                    ).in_file(str(self.place))
                yield text


def _noting_keys(results: Iterable[StoredCell], keys: set[str]) -> Iterator[StoredCell]:
    for cell in results:
        keys.add(cell.key)
        yield cell


class Keeper:
    """Collects arriving results and writes them in parts; the last part is written even after an error."""

    def __init__(self, store: Store) -> None:
        """Set the store to which results are written."""
        self._store = store
        self._waiting: list[StoredCell] = []
        self._parts = 0
        self._last = time.monotonic()
        self._thread = ThreadPoolExecutor(1, "keeper")
        self._writing: Future[None] | None = None

    def keep(self, results: Iterable[StoredCell]) -> None:
        """Store results, immediately or within some seconds.

        Raises:
            InputError: earlier results could not be stored.
        """
        self._waiting.extend(results)
        if self._writing is not None:
            if not self._writing.done():
                return
            self._written()
        if time.monotonic() - self._last >= min(_MOST_S, self._parts * _EACH_S):
            self._write()

    def close(self) -> None:
        """Write the waiting results."""
        try:
            self._written()
            self._write()
            self._written()
        finally:
            self._thread.shutdown()

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._writing = self._thread.submit(self._store.add, waiting)
        self._parts += 1
        self._last = time.monotonic()

    def _written(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def image_folders(folder: Path, limit: int) -> Images:
    """Return the folders for preconditioned devices and crash logs of cells, with the size limit.

    The folder for devices depends on the build of emmclab.
    """
    return Images(folder / "images" / build_digest(), limit, folder / "crash")


class _Notes:
    """Counts rows of the result tables; collects the rows of runs that failed, ended early or were overloaded."""

    def __init__(self, finished: Finished) -> None:
        self._found = finished
        #: Whether the device stopped early, by the set of columns of a row. With this information, most rows need not
        #: be parsed.
        self._stopped: dict[str, bool] = {}

    def take(self, line: Line) -> None:
        self._found.counts[line.table] += 1
        if line.table == "failures":
            self._found.failures.append(json.loads(line.row))
        elif line.table == "runs" and (self._stopped.get(line.form, True) or _OVERLOADED.search(line.row)):
            row = json.loads(line.row)
            self._stopped[line.form] = bool(row.get("run_stopped"))
            if self._stopped[line.form]:
                self._found.early.append(row)
            elif row.get("run_load_overloaded"):
                self._found.overloaded_runs += 1
                if len(self._found.overloaded) < MOST_OVERLOADED:
                    self._found.overloaded.append(row)
