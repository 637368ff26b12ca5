"""Where results are kept: one small file per finished cell, and tables of them all as Parquet."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from emmclab.errors import InputError
from emmclab.files import folder_aside, lock, sweep, write_whole
from emmclab.measures import percentile_label
from emmclab.result_fields import result_fields
from emmclab.study.cell import CUTS, Cell, Images, build_digest

#: Most bytes of preconditioned devices in the results folder of a study, where nothing else is said.
IMAGES_BYTES = 4 << 30
#: Figures of profiles that become tables of their own.
_FIGURES = (
    "throughput_by_size",
    "size_distribution",
    "response_distribution",
    "inter_arrival_distribution",
    "reuse_distance",
)
_TYPES = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}

Row = dict[str, Any]


class Store:
    """The results folder of one study."""

    def __init__(self, folder: Path, images_limit: int = IMAGES_BYTES) -> None:
        """Name the folder, which is made with the first result, and the most bytes of images in it."""
        self.folder = folder
        self._cells = folder / "cells"
        self.logs = folder / "crash"
        self._images = Images(folder / "images" / build_digest(), images_limit, self.logs)

    def place(self, key: str) -> Path:
        """Where the result of a cell is kept."""
        return self._cells / f"{key}.json"

    def has(self, cell: Cell) -> bool:
        """Tell whether a cell is finished. A file appears when it is whole, and never otherwise."""
        return self.place(cell.key).exists()

    def fill(self, cell: Cell, *, wait: bool) -> bool:
        """Run a cell that is not finished, and keep its result at once.

        False where another process is running it or preconditioning its device, unless this is to `wait` for
        that one.
        """
        with self.claimed(cell, wait=wait) as claimed:
            if not claimed or self.has(cell):
                return claimed
            if not wait and not cell.prepare(self._images):
                return False
            write_whole(self.place(cell.key), cell.run(self._images))
            return True

    @contextlib.contextmanager
    def claimed(self, cell: Cell, *, wait: bool) -> Iterator[bool]:
        """Keep other processes from running a cell. The claim of a process ends with it, however it ends."""
        self._cells.mkdir(parents=True, exist_ok=True)
        path = self._cells / f".{cell.key}.lock"
        with path.open("w") as file:
            if not lock(file, wait=wait):
                yield False
                return
            try:
                yield True
            finally:
                # Who waits for this file finds the cell finished; who comes later makes a file anew.
                path.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove unfinished files and claims of a killed run, and images of other builds.

        What living processes hold stays, but for such images, which they make again.
        """
        images = self._images.folder
        for folder in (self.folder, self._cells, images):
            sweep(folder)
        for other in images.parent.glob("*"):
            if other != images:
                shutil.rmtree(other, ignore_errors=True)
        for left in (*self._cells.glob(".*.lock"), *images.glob("*.lock")):
            with contextlib.suppress(OSError), left.open("w") as file:
                if lock(file, wait=False):
                    left.unlink(missing_ok=True)

    def forget(self) -> None:
        """Drop every cell, image and log of power cuts."""
        for folder in (self._cells, self._images.folder, self.logs):
            if folder.exists():
                shutil.rmtree(folder)

    def finish(self, about: dict[str, Any], cells: Sequence[Cell]) -> None:
        """Write the index and the tables; in the order of the study, whatever order the cells ran in."""
        index = {"study": about, "cells": [cell.key for cell in cells]}
        write_whole(self.folder / "index.json", json.dumps(index, indent=1) + "\n")
        for name, rows in tables(self.results()).items():
            path = self.folder / f"{name}.parquet"
            if rows:
                write_parquet(path, rows)
            else:
                path.unlink(missing_ok=True)

    def index(self) -> dict[str, Any]:
        """Read the index of the last finished run.

        Raises:
            InputError: the study has not been run to its end.
        """
        path = self.folder / "index.json"
        try:
            index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            hint = "run the study first: `emmclab run STUDY`"
            raise InputError(
                f"{path}: there are no finished results", kind="io", file=str(path), hint=hint
            ) from error
        return index

    def results(self) -> list[dict[str, Any]]:
        """Read the results of the last finished run, in the order of the study; also of cells that failed."""
        found = []
        for key in self.index()["cells"]:
            path = self.place(key)
            try:
                found.append(json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError) as error:
                raise InputError(
                    f"{path}: this result is gone or broken",
                    kind="io",
                    file=str(path),
                    hint="run the study again",
                ) from error
        return found


def tables(results: Iterable[dict[str, Any]]) -> dict[str, list[Row]]:
    """Make flat tables: `runs`, `cuts`, `profiles`, `failures`, and one for each figure."""
    out: dict[str, list[Row]] = {name: [] for name in ("runs", CUTS, "profiles", "failures", *_FIGURES)}
    for entry in results:
        cell = entry["cell"]
        if "failed" in entry:
            out["failures"].append(_with_settings(_flat({**cell, **entry["failed"]}), cell))
            continue
        result = entry["result"]
        if cuts_power(cell):
            out[CUTS].append(_with_settings(_flat({**result, **cell}), cell))
            continue
        if cell["grid"] != "profile":
            row = _flat({**result, **cell}, run_columns()) | _percentiles(result.get("percentiles", ()))
            out["runs"].append(_with_settings(row, cell))
            continue
        shown = {name: value for name, value in result.items() if name not in ("name", "figures")}
        chosen = [
            {"op": row["op"], **one} for row in result["by_operation"] for one in row.get("percentiles", ())
        ]
        out["profiles"].append(_flat({**cell, **shown}) | _percentiles(chosen))
        for name in _FIGURES:
            out[name] += [
                {"input": cell["input"], "seed": cell["seed"], **row} for row in result["figures"][name]
            ]
    return out


def cuts_power(cell: Mapping[str, Any]) -> bool:
    """Whether a cell, as its result names it, cuts power."""
    return bool(cell.get("options", {}).get("mode") == CUTS)


#: Groups of settings, which become JSON; and groups that a run may not have.
_SETTINGS = ("settings", "options.layer_settings")
_OPTIONAL_GROUPS = ("cache", "host", "wear.lifetime")
#: Groups of applications, which are tables of their own: requests by class, and bins of time.
_LEFT_OUT = ("app.requests", "app.over_time")


def _with_settings(row: Row, cell: Row) -> Row:
    """Give each setting of a cell, of its device and of layers, a column: `gc.policy` is `gc_policy`.

    Where a field of the result has that name, the column is `set_gc_policy`.
    """
    fields = {field.column for field in result_fields()} | set(row)
    settings = {**cell.get("settings", {}), **cell.get("options", {}).get("layer_settings", {})}
    for key, value in settings.items():
        column = key.replace(".", "_")
        row[f"set_{column}" if column in fields else column] = value
    return row


def _percentiles(chosen: Iterable[Row]) -> Row:
    """Give a column to each chosen percentile of each operation.

    >>> _percentiles([{"op": "all", "percentile": 99.9, "response_ms": 7.5}])
    {'percentile_99_9_ms': 7.5}
    >>> _percentiles([{"op": "read", "percentile": 50.0, "response_ms": 1.5, "service_ms": 1.0}])
    {'percentile_50_read_ms': 1.5, 'percentile_50_read_service_ms': 1.0}
    """
    found: Row = {}
    for row in chosen:
        name = percentile_label(row["percentile"]).removeprefix("p").replace(".", "_")
        name = f"percentile_{name}" if row["op"] == "all" else f"percentile_{name}_{row['op']}"
        found[f"{name}_ms"] = row["response_ms"]
        if "service_ms" in row:
            found[f"{name}_service_ms"] = row["service_ms"]
    return found


def run_columns() -> dict[str, str]:
    """Name the column of each field of a result by its path."""
    return {field.path: field.column for field in result_fields()}


def _flat(row: Row, columns: Mapping[str, str] | None = None, prefix: str = "") -> Row:
    """Flatten groups into columns, named by the path with `_` for `.`; lists stay out, settings are JSON."""
    flat: Row = {}
    for name, value in row.items():
        path = prefix + name
        if path in _LEFT_OUT:
            continue
        if path in _SETTINGS:
            flat[path.replace(".", "_")] = json.dumps(value, sort_keys=True)
        elif isinstance(value, dict):
            flat |= _flat(value, columns, f"{path}.")
        elif not isinstance(value, list) and not (value is None and path in _OPTIONAL_GROUPS):
            flat[(columns or {}).get(path, path.replace(".", "_"))] = value
    return flat


def write_parquet(path: Path, rows: Sequence[Row], *, empty: bool = False) -> None:
    """Write rows as Parquet, whole or not at all; the same rows give the same bytes.

    `empty`: the rows name the columns only.
    """
    kinds: dict[str, set[str]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).update([] if value is None else [_TYPES[type(value)]])
    columns = {name: _common(kind) for name, kind in kinds.items()}
    with folder_aside(path.absolute().parent) as aside:
        lines, made = aside / "rows.json", aside / "rows.parquet"
        with lines.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in (() if empty else rows))
        with duckdb.connect(config={"threads": 1, "preserve_insertion_order": True}) as database:
            source = f"read_json($lines, format = 'newline_delimited', columns = {columns!r})"
            target = f"'{quoted(made)}' (format parquet, compression zstd)"
            database.execute(f"copy (select * from {source}) to {target}", {"lines": str(lines)})  # noqa: S608
        made.replace(path)


def _common(kinds: set[str]) -> str:
    """Give the type of a column by the types of its values; values of several kinds become text."""
    if kinds == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    return kinds.copy().pop() if len(kinds) == 1 else "VARCHAR"


def quoted(path: Path) -> str:
    """Give a path as it stands between the quotes of SQL."""
    return str(path).replace("'", "''")
