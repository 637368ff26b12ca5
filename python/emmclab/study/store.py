"""Where results are kept: one small file per finished cell, and tables of them all as Parquet."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from emmclab.errors import InputError
from emmclab.files import lock, sweep, write_whole
from emmclab.result_fields import old_names, result_fields
from emmclab.study.cell import Cell

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

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made with the first result."""
        self.folder = folder
        self._cells = folder / "cells"

    def place(self, key: str) -> Path:
        """Where the result of a cell is kept."""
        return self._cells / f"{key}.json"

    def has(self, cell: Cell) -> bool:
        """Tell whether a cell is finished. A file appears when it is whole, and never otherwise."""
        return self.place(cell.key).exists()

    def fill(self, cell: Cell, *, wait: bool) -> bool:
        """Run a cell that is not finished, and keep its result at once.

        False where another process is running it, unless this is to `wait` for that one.
        """
        with self.claimed(cell, wait=wait) as claimed:
            if claimed and not self.has(cell):
                write_whole(self.place(cell.key), cell.run())
            return claimed

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
        """Remove unfinished files and claims of a killed run; those of living processes stay."""
        sweep(self.folder)
        sweep(self._cells)
        for left in self._cells.glob(".*.lock"):
            with contextlib.suppress(OSError), left.open("w") as file:
                if lock(file, wait=False):
                    left.unlink(missing_ok=True)

    def forget(self) -> None:
        """Drop every cell."""
        if self._cells.exists():
            shutil.rmtree(self._cells)

    def finish(self, about: dict[str, Any], cells: Sequence[Cell]) -> None:
        """Write the index and the tables; in the order of the study, whatever order the cells ran in."""
        index = {"study": about, "cells": [cell.key for cell in cells]}
        write_whole(self.folder / "index.json", json.dumps(index, indent=1) + "\n")
        for name, rows in tables(self.results()).items():
            if rows:
                write_parquet(self.folder / f"{name}.parquet", rows)

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
        """Read the results of the last finished run, in the order of the study."""
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
    """Make flat tables: `runs`, `profiles`, and one for each figure."""
    out: dict[str, list[Row]] = {"runs": [], "profiles": [], **{name: [] for name in _FIGURES}}
    for entry in results:
        cell, result = entry["cell"], entry["result"]
        if cell["grid"] != "profile":
            out["runs"].append(_flat({**result, **cell}, _run_columns()))
            continue
        shown = {name: value for name, value in result.items() if name not in ("name", "figures")}
        out["profiles"].append(_flat({**cell, **shown}))
        for name in _FIGURES:
            out[name] += [
                {"input": cell["input"], "seed": cell["seed"], **row} for row in result["figures"][name]
            ]
    return out


#: Groups of settings, which become JSON; and groups that a run may not have.
_SETTINGS = ("settings", "options.layer_settings")
_OPTIONAL_GROUPS = ("cache", "host", "wear.lifetime")


def _run_columns() -> dict[str, str]:
    """Name the column of each field of a result by its path."""
    return {field.path: field.column for field in result_fields()}


def _flat(row: Row, columns: Mapping[str, str] | None = None, prefix: str = "") -> Row:
    """Flatten groups into columns, named by the path with `_` for `.`; lists stay out, settings are JSON."""
    flat: Row = {}
    for name, value in row.items():
        path = prefix + name
        if path in _SETTINGS:
            flat[path.replace(".", "_")] = json.dumps(value, sort_keys=True)
        elif isinstance(value, dict):
            flat |= _flat(value, columns, f"{path}.")
        elif not isinstance(value, list) and not (value is None and path in _OPTIONAL_GROUPS):
            flat[(columns or {}).get(path, path.replace(".", "_"))] = value
    return flat


def write_parquet(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as Parquet, whole or not at all; the same rows give the same bytes."""
    columns: dict[str, str] = {}
    for row in rows:
        for name, value in row.items():
            kind = _TYPES.get(type(value), "")
            before = columns.get(name, "")
            columns[name] = "DOUBLE" if {kind, before} == {"BIGINT", "DOUBLE"} else kind or before
    columns = {name: kind or "VARCHAR" for name, kind in columns.items()}
    with tempfile.TemporaryDirectory(prefix=".parquet-", dir=path.parent) as aside:
        lines, made = Path(aside) / "rows.json", Path(aside) / "rows.parquet"
        with lines.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        with duckdb.connect(config={"threads": 1, "preserve_insertion_order": True}) as database:
            source = f"read_json($lines, format = 'newline_delimited', columns = {columns!r})"
            target = f"'{_quoted(made)}' (format parquet, compression zstd)"
            database.execute(f"copy (select * from {source}) to {target}", {"lines": str(lines)})  # noqa: S608
        made.replace(path)


def _older_columns(database: duckdb.DuckDBPyConnection, sql: str) -> str:
    """Give the columns that a question calls by their names in flat results, as aliases."""
    there = {str(row[0]) for row in database.execute("describe runs").fetchall()}
    columns = _run_columns()
    asked = set(re.findall(r"\w+", sql))
    return ", ".join(
        f'"{columns[path]}" as "{was}"'
        for was, path in old_names().items()
        if was in asked and was not in there and columns.get(path) in there
    )


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


def query(folders: Sequence[Path], sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Ask the tables of one or several studies; each table is a view, with the column `study`.

    Raises:
        InputError: there are no results.
        ConfigError: the question is no SQL, or names what is not there.
    """
    from emmclab.errors import ConfigError

    views: dict[str, list[str]] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.parquet")):
            piece = f"select '{_quoted(Path(folder.name))}' as study, * from '{_quoted(path)}'"  # noqa: S608
            views.setdefault(path.stem, []).append(piece)
    if not views:
        raise InputError(
            "there are no results to ask", kind="io", hint="run a study first: `emmclab run STUDY`"
        )
    with duckdb.connect() as database:
        for name, parts in views.items():
            union = " union all by name ".join(parts)
            database.execute(f"create view {name} as {union}")
            if name == "runs" and (older := _older_columns(database, sql)):
                database.execute(f"create or replace view runs as select *, {older} from ({union})")  # noqa: S608
        # Results are read; a question may not read or write other files.
        database.execute(f"set allowed_directories = {[str(folder.resolve()) for folder in folders]!r}")
        database.execute("set enable_external_access = false")
        try:
            asked = database.extract_statements(sql)
            if not asked:
                raise ConfigError(
                    "there is no question", kind="config", field="SQL", hint="as `select * from runs limit 5`"
                )
            answer = database.execute(sql)
            names = [column[0] for column in answer.description or []]
            return names, answer.fetchall()
        except duckdb.Error as error:
            hint = f"there are: {', '.join(views)}; `describe runs` lists columns"
            raise ConfigError(str(error).partition("\n")[0], kind="config", field="SQL", hint=hint) from error
