"""Explores all programs of `ace:2`: in batches, each recorded and explored by a process of its own, and stored."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emmclab.cli.console import print_stderr
from emmclab.cli.crash_run import CrashOptions, TimeLimit, record_workload
from emmclab.cli.failures import complete_files
from emmclab.cli.progress import Counter
from emmclab.crash import generated_programs
from emmclab.crash.scratch_folders import exit_on_sigterm, remove_stale, scratch
from emmclab.crash.verdict_inputs import build
from emmclab.errors import EmmclabError
from emmclab.runtime.checksummed import from_checked_json, to_checked_json
from emmclab.runtime.document import duration
from emmclab.runtime.executors import Crash, Pool, each

if TYPE_CHECKING:
    from emmclab.crash import Options
    from emmclab.crash.json_types import BatchesSummary
    from emmclab.crash.summary import ExploredRecording

#: Name of the workload that is explored in batches, the number of programs of a batch, and the numbers of programs that
#: are tried first, to estimate the time of a recording and of a program.
WHOLE, _BATCH, _PILOTS = "ace:2", 500, (5, 45)


@dataclass(frozen=True)
class _Batch:
    """A batch of programs: how it is run, the name of its workload, the file for its result, and the session folder."""

    run: CrashOptions
    options: Options
    workload: str
    result: Path
    session: Path


@exit_on_sigterm()
def _run(batch: _Batch) -> dict[str, Any]:
    """Record and explore a batch, and store the result; its log is kept only if it shows a finding."""
    from emmclab.crash.stored_log import Session, as_json
    from emmclab.crash.summary import verdict

    session = Session(batch.session)
    workload = replace(batch.run.workload, name=batch.workload, seed=batch.options.seed)
    stored = record_workload(batch.run, session, workload, on_message=lambda _line: None)
    exploration = stored.explore(batch.options, 1, lambda _progress: None)
    outcome = verdict(stored, batch.options, exploration)
    has_findings = bool(exploration.findings())
    result = {
        "workload": batch.workload,
        "programs": exploration.covered.get("lines", 0),
        "exploration": as_json(exploration),
        "doubts": list(outcome.doubts),
        "log": str(stored.log) if has_findings else None,
    }
    if not has_findings:
        shutil.rmtree(stored.folder)
    batch.result.write_bytes(to_checked_json(result))
    return result


def explored_in_batches(
    run: CrashOptions, options: Options, limit: TimeLimit
) -> tuple[BatchesSummary, list[ExploredRecording]]:
    """Explore all programs of the workload, and continue an earlier exploration with the same options.

    Return what was covered, and the recordings with findings.
    """
    from emmclab.crash.stored_log import Session, from_json
    from emmclab.crash.summary import ExploredRecording

    remove_stale()
    session = run.results / "crash"
    folder = session / f"batches-{_key(run, options)}"
    folder.mkdir(parents=True, exist_ok=True)
    numbers = generated_programs.whole(2)
    names = [f"{WHOLE}:{first}-{min(first + _BATCH, numbers) - 1}" for first in range(0, numbers, _BATCH)]
    paths = {name: folder / f"{name.rpartition(':')[2]}.json" for name in names}
    done = {name: _stored(path, fresh=run.reuse is False) for name, path in paths.items()}
    results = [result for result in done.values() if result is not None]
    before = len(results)
    jobs = run.jobs or os.cpu_count() or 1
    # Each batch has its own limit of cuts; a time limit ends the exploration between batches.
    batch_options = replace(options, time_s=None)
    left = [_Batch(run, batch_options, name, paths[name], session) for name, result in done.items() if result is None]
    if left:
        print_stderr(_estimate(run, batch_options, numbers, len(left), jobs))
    complete_files.append("the batches so far are stored: the same command continues")
    tasks = iter(left)
    with Counter("crash", "batches") as meter:
        for batch, result in Pool(jobs).run(_run, lambda _last: next(tasks, None) if limit.left_s() > 0 else None):
            if isinstance(result, Crash):
                raise EmmclabError(
                    f"the process of batch {batch.workload} crashed: {result.reason}",
                    kind="failed",
                    hint="run the same command again, which continues after the stored batches",
                )
            results.append(result)
            broken = sum(result["log"] is not None for result in results)
            meter(len(results), len(names), before, f"{broken} batches with findings")
    recordings = [
        ExploredRecording(Session(session).take(Path(result["log"]), None), from_json(result["exploration"]))
        for result in sorted(results, key=lambda result: result["workload"])
        if result["log"] is not None
    ]
    doubts = sorted({doubt for result in results for doubt in result["doubts"]})
    explorations = [result["exploration"] for result in results]
    summary: BatchesSummary = {
        "workload": WHOLE,
        "batches": len(results),
        "batches_in_all": len(names),
        "programs": sum(result["programs"] for result in results),
        "cut_after_last_sync": sum(one["covered"].get("lines_cut", 0) for one in explorations),
        "cuts": sum(one["covered"].get("cuts", 0) for one in explorations),
        "states": sum(one["states"] for one in explorations),
        "doubts": doubts,
    }
    return summary, recordings


def _stored(path: Path, *, fresh: bool) -> dict[str, Any] | None:
    """Return the stored result of a batch; None if there is none, or if its log is gone."""
    if fresh or not path.exists():
        return None
    result: dict[str, Any] | None = from_checked_json(path.read_bytes())
    return None if result is None or (result["log"] and not Path(result["log"]).exists()) else result


def _key(run: CrashOptions, options: Options) -> str:
    """Return a digest of everything that determines the results of batches."""
    deciding = [
        *(str(run.device), list(run.settings), run.capacity, {**run.recording}, run.workload.timeout_s, build()),
        *(list(os.uname()), {**asdict(options), "time_s": None}),
    ]
    return hashlib.sha256(json.dumps(deciding, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _estimate(run: CrashOptions, options: Options, numbers: int, left: int, jobs: int) -> str:
    """Try a few programs, and return a text about the time for those that are left."""
    took_s = []
    with scratch() as folder:
        for count in _PILOTS:
            begin = time.monotonic()
            pilot = _Batch(run, options, f"{WHOLE}:{count}", folder / f"{count}.json", folder / "crash")
            ((_, result),) = Pool(1).run(_run, each([pilot]))
            if isinstance(result, Crash):
                raise EmmclabError(f"the process of the first programs crashed: {result.reason}", kind="failed")
            took_s.append(time.monotonic() - begin)
    program_s = max(took_s[1] - took_s[0], 0.0) / (_PILOTS[1] - _PILOTS[0])
    return (
        f"{numbers:,} numbered programs in batches of {_BATCH}, {left:,} batches to do with {jobs} processes: about "
        f"{duration((took_s[0] + program_s * _BATCH) * left / jobs)} ({1 / max(program_s, 1e-3):,.0f} programs per "
        "second and process); each batch is stored, and --for ends in time"
    )
