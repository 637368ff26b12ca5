"""Detects results that are out of date: a file of the study, or the build, has changed."""

import contextlib
import json
from pathlib import Path
from typing import TypedDict, cast

import duckdb

from emmclab.runtime.build import build_digest
from emmclab.runtime.files import digest
from emmclab.runtime.local_copies import file_digest
from emmclab.runtime.parquet import questions
from emmclab.studies.bundled import bundled
from emmclab.studies.definition import Study
from emmclab.studies.grid import FILES

#: Metadata key of the provenance of tables.
MADE_OF = "emmclab_made_of"
#: Maximum size of files that are always hashed, bytes; larger ones only if they changed after the results.
_SMALL = 16 << 20


class _TableProvenance(TypedDict):
    """Provenance of a table: `files` has the digest of each file that the study names."""

    study: str
    build: str
    files: dict[str, str]


def table_provenance(study: Study) -> dict[str, str]:
    """Return the provenance metadata of tables: the study, the build, and the digest of each named file.

    Files have the names used in the study, so that the same study results in the same bytes anywhere.

    Raises:
        InputError: a file cannot be read.
    """
    files = {name: file_digest(name) for name in _named_files(study)}
    is_bundled = study.name in bundled() and study.file == f"{study.name}.toml"
    named = study.name if is_bundled else study.file or study.name
    said: _TableProvenance = {"study": named, "build": build_digest(), "files": files}
    return {MADE_OF: json.dumps(said, sort_keys=True)}


def _named_files(study: Study) -> list[str]:
    """Return the names of files among the inputs, devices, hosts and preconditionings of a study."""
    named = set(study.inputs)
    for grid in study.grids:
        named |= {*grid.inputs, *grid.devices, grid.host}
        named |= {str(value) for option in FILES for value in grid.values(option)}
    found = {one.partition(" --only ")[0] for one in named if one}
    return sorted(one for one in found if Path(one).is_file())


def changes(table: Path) -> list[str]:
    """Return a phrase for each thing that has changed since a table of results was written.

    Files that no longer exist are left out: the results are still those of their former content.
    """
    said = _read_provenance(table)
    if said is None:
        return []
    found = [] if said["build"] == build_digest() else ["another build of emmclab wrote them"]
    since_ns = table.stat().st_mtime_ns
    found += [f"{name} has changed since" for name in said["files"] if _has_changed(name, said, since_ns)]
    return found


def study_of(table: Path) -> str:
    """Return the study of a table: its file, or the name of a bundled study."""
    said = _read_provenance(table)
    return "STUDY" if said is None else said["study"]


def _has_changed(name: str, said: _TableProvenance, since_ns: int) -> bool:
    path = Path(name)
    try:
        there = path.stat()
    except OSError:
        return False
    if there.st_size > _SMALL and there.st_ctime_ns < since_ns:
        return False
    return digest([path]) not in (None, said["files"][name])


def _read_provenance(table: Path) -> _TableProvenance | None:
    """Read the provenance of a table; None if it has none."""
    with contextlib.suppress(duckdb.Error, ValueError), questions() as asked:
        ask = "select decode(value) from parquet_kv_metadata($path) where decode(key) = $key"
        row = asked.execute(ask, {"path": str(table), "key": MADE_OF}).fetchone()
        said = json.loads(row[0]) if row else None
        if isinstance(said, dict) and set(said) >= _TableProvenance.__required_keys__:
            return cast("_TableProvenance", said)
    return None
