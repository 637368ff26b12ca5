"""The load that an application writes, and what it would write with other settings of its file system and databases."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from emmclab.advice.lifetime_load import Load, LoadChange, Writer, hours_text, load_of_trace
from emmclab.advice.software_changes import COMMIT_INTERVALS_S, RAM_INTERVALS_S, USUAL_COMMIT_S
from emmclab.apps.closed_loop import AppResult, host_for, program_of, run_application
from emmclab.errors import EmmclabError
from emmclab.simulation.device import Device, setup_of
from emmclab.simulation.stored_result import toml_text
from emmclab.traces.reading import read

#: Journal modes of SQLite with a rollback journal.
_ROLLBACK = ("delete", "truncate", "persist")
#: Names of the blocks that belong to no file.
_OF_FILE_SYSTEM = {"metadata": "metadata of the file system", "filesystem_journal": "journal of the file system"}


class ProgramLoad:
    """Runs an application on a host model, and returns what it writes as a load.

    The application runs once; at its end, all that is still in memory is written. A change runs it again, so that page
    cache, write-back, journal and databases do what they would do.
    """

    def __init__(self, name: str, host: str | None, device: Device, folder: Path, daily_bytes: float | None) -> None:
        """Take the application and the host, each a name or a file; `folder` keeps the requests of the runs."""
        self.device, self.folder, self.daily_bytes = device, folder, daily_bytes
        self.program = program_of(name).to_dict()
        self.name = str(self.program["name"])
        self.host = setup_of(host or host_for([device])).to_dict()
        self._runs = 0

    def load(self) -> Load:
        """Return the load of the application.

        Raises:
            ConfigError: the application cannot run on this host and device, or writes nothing.
        """
        load, result = self._run(self.program, self.host, self.daily_bytes)
        return replace(
            load,
            name=self.name,
            changes=lambda _folder: self._changes(load, result),
            writers=lambda _folder: _writers(result),
        )

    def _run(
        self, program: Mapping[str, Any], host: Mapping[str, Any], daily_bytes: float | None, **options: Any
    ) -> tuple[Load, AppResult]:
        """Run a program whose user at the end waits until everything is written."""
        self._runs += 1
        threads = [
            {**thread, "steps": [*thread["steps"], {"sync": {}}]}
            if thread["name"] == program["user_waits_for"]
            else thread
            for thread in program["thread"]
        ]
        files = [self.folder / f"{self._runs}-{kind}.toml" for kind in ("program", "host")]
        for path, table in zip(files, ({**program, "thread": threads}, host), strict=True):
            path.write_text("".join(f"{key} = {toml_text(value)}\n" for key, value in _present(table).items()))
        events = self.folder / f"{self._runs}.parquet"
        result = run_application(
            str(files[0]), self.device, host=str(files[1]), events=events, precondition="none", **options
        )
        return load_of_trace(read(events), daily_bytes), result

    def _changes(self, load: Load, result: AppResult) -> Iterator[LoadChange]:
        for interval in COMMIT_INTERVALS_S:
            about = f"the file system commits after {interval} s in place of {self._commit_ms() / 1000:g} s"
            price = f"{interval} s of data that was not synced are lost with the power"
            kernel = {"commit_interval_ms": 1000 * interval}
            yield self._changed(f"commit every {interval} s", about, price, load, result, kernel, interval)
        rollback = [database["name"] for database in self.program["database"] if database["journal_mode"] in _ROLLBACK]
        name, about = "write-ahead log", f"journal_mode = wal for {', '.join(rollback)}"
        if not rollback:
            why = "its databases use it already" if self.program["database"] else "the application has no database"
            yield LoadChange(name, "SQLite in WAL mode in place of a rollback journal", None, f"not possible: {why}")
        else:
            for suffix, synchronous, price in (
                ("", {}, ""),
                (", synchronous normal", {"synchronous": "normal"}, "transactions since the checkpoint are lost"),
            ):
                program = self._with_databases(rollback, {"journal_mode": "wal", **synchronous})
                yield self._changed(f"{name}{suffix}", f"{about}{suffix}", price, load, result, program=program)
        yield LoadChange(
            "noatime",
            "no updates of access times",
            None,
            "none to gain: the file systems of the host model are mounted with noatime, as Android mounts them",
        )
        for text, seconds in RAM_INTERVALS_S.items():
            about = f"all its files stay in RAM and are written once {text}; syncs return at once"
            price = f"RAM for its files; their data of {seconds:,} s is lost with the power"
            kernel = dict.fromkeys(("commit_interval_ms", "dirty_expire_ms"), 1000 * seconds)
            yield self._changed(f"log2ram, {text}", about, price, load, result, kernel, seconds, sync=())
        yield LoadChange(
            "batching",
            "the application writes several records at once",
            None,
            "not known: change the steps of the program, and give the changed file to --app",
        )

    def _changed(
        self,
        name: str,
        about: str,
        price: str,
        load: Load,
        result: AppResult,
        kernel: Mapping[str, int] | None = None,
        interval_s: float = 0.0,
        program: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> LoadChange:
        """Run the application with a change; an interval has to be shorter than the run."""
        if result.runtime_s < interval_s:
            lasts = hours_text(result.runtime_s / 3600)
            return LoadChange(name, about, None, f"not known: the application runs for {lasts}, less than the interval")
        host = {**self.host, "kernel": {**self.host["kernel"], **(kernel or {})}}
        try:
            changed, _ = self._run(program or self.program, host, None, **options)
        except EmmclabError as error:
            return LoadChange(name, about, None, f"not possible: {error}")
        daily = load.daily_bytes * changed.pass_bytes / load.pass_bytes
        rate = daily / changed.daily_bytes
        return LoadChange(name, about, replace(changed, daily_bytes=daily, rate=rate, others=()), price)

    def _commit_ms(self) -> float:
        return float(self.host["kernel"].get("commit_interval_ms", 1000 * USUAL_COMMIT_S))

    def _with_databases(self, names: list[str], settings: Mapping[str, str]) -> dict[str, Any]:
        databases = [one | settings if one["name"] in names else one for one in self.program["database"]]
        return {**self.program, "database": databases}


def _writers(result: AppResult) -> list[Writer]:
    """Return the files and databases that a run writes, and the blocks of the file system, by their bytes."""
    counts = result.app.requests
    if counts is None:
        return []
    writers = [
        Writer(
            f"{file.name} (journal)" if file.class_ == "database_journal" else file.name,
            "",
            file.bytes,
            file.requests,
            100 * file.small / file.requests,
            100 * file.sequential / file.requests,
        )
        for file in counts.files
    ]
    for name, words in _OF_FILE_SYSTEM.items():
        if name in counts.classes and (written := counts.classes[name].write).requests:
            sequential = 100 * written.sequential / written.requests
            writers.append(Writer(words, "", written.bytes, written.requests, None, sequential))
    return sorted(writers, key=lambda one: -one.written)


def _present(value: Any) -> Any:
    """Return a value without keys whose value is None, which TOML does not have."""
    if isinstance(value, dict):
        return {key: _present(item) for key, item in value.items() if item is not None}
    return [_present(item) for item in value] if isinstance(value, list) else value
