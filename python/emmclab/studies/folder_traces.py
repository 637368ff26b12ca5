"""Recorded traces that a study needs but that are not bundled: files in a folder that the user names."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emmclab.errors import ConfigError
from emmclab.runtime.files import printable
from emmclab.runtime.toml_table import TomlTable


@dataclass(frozen=True)
class FolderTraces:
    """The files, their sources, and the folder that contains them; empty until it is given."""

    files: tuple[str, ...]
    source: str
    folder: str = ""

    def paths(self) -> Mapping[str, str]:
        """Return the paths of the files by their names in the study."""
        return {name: str(Path(self.folder, name)) for name in self.files}

    def require(self, study: str) -> None:
        """Reject a study whose folder of traces was not given.

        Raises:
            ConfigError: the folder was not given.
        """
        if not self.folder:
            raise ConfigError(
                f"{study} needs recorded traces that do not come with emmclab: {', '.join(self.files)}",
                field="--traces",
                hint=f"get them ({self.source}) and name their folder: `emmclab reproduce {study} --traces DIR`",
            )

    def refuse_missing(self) -> None:
        """Reject a folder that lacks a file.

        Raises:
            ConfigError: there is no such folder, or a file is not in it.
        """
        folder = Path(self.folder)
        if not folder.is_dir():
            said = f"{printable(folder)}: folder not found"
        elif missing := [name for name in self.files if not (folder / name).is_file()]:
            said = f"{printable(folder)}: {', '.join(missing)} not found in this folder"
        else:
            return
        raise ConfigError(
            said, file=printable(folder), field="--traces", hint=f"name the folder of these traces: {self.source}"
        )


def read_traces(read: TomlTable) -> FolderTraces | None:
    """Read the table `traces` of a study; None if there is none."""
    if not read.has("traces"):
        return None
    inner = read.inner("traces")
    found = FolderTraces(files=inner.many("files", str), source=inner.text("from"))
    inner.done()
    return found
