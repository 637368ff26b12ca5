"""Distributes an exploration of crash states over processes, stores finished shares, and merges them."""

import hashlib
import json
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

from emmclab import _core
from emmclab.crash.explore import Controls, Exploration, Options, explore, judge_controls, open_run
from emmclab.crash.promises import CutTally, Finding
from emmclab.crash.scratch_folders import exit_on_sigterm, remove_stale
from emmclab.crash.verdict_inputs import command_of
from emmclab.errors import EmmclabError
from emmclab.runtime.checksummed import from_checked_json, to_checked_json
from emmclab.runtime.executors import Crash, Executor, Pool, Serial, each
from emmclab.runtime.threads import repeated

#: Interval at which the intermediate results of one share of the exploration are stored, seconds.
_KEEP_S = 2.0


@dataclass(frozen=True)
class Share:
    """A share of the crash states of a log, and the path of its results."""

    log: str
    base: str | None
    options: Options
    path: str | None


@dataclass(frozen=True)
class ControlsTask:
    """A task for a worker: run the control checks of an exploration; the fields are arguments of `controls_of`."""

    log: str
    base: str | None
    options: Options
    is_included: bool


#: Fields of an `Exploration` that are copied to its JSON without changes.
_PLAIN = ("states", "last", "took_s", "covered", "finished", "pruned")


def as_json(exploration: Exploration) -> dict[str, Any]:
    """Return an exploration as JSON for `from_json`, with the findings by kind and the verdicts by cut."""
    return {
        **{name: getattr(exploration, name) for name in _PLAIN},
        "kinds": [asdict(finding) for finding in exploration.kinds.values()],
        "verdicts": [(cut, astuple(tally)) for cut, tally in sorted(exploration.verdicts.items())],
    }


def from_json(data: Mapping[str, Any]) -> Exploration:
    """Return the exploration that `as_json` encoded."""
    verdicts = {cut: CutTally(*tally) for cut, tally in data["verdicts"]}
    exploration = Exploration(**{name: data[name] for name in _PLAIN}, verdicts=verdicts)
    for finding in data["kinds"]:
        exploration.add(Finding(**finding))
    return exploration


def _stored_share(path: Path) -> Exploration | None:
    """Return the stored results of a share; `None` if there are none, or if they are damaged."""
    try:
        data = from_checked_json(path.read_bytes())
    except OSError:
        return None
    return None if data is None else from_json(data)


@exit_on_sigterm()
def run_share(share: Share) -> Exploration:
    """Explore a share of the crash states; stored results of an interrupted run of this share are reused."""
    path = None if share.path is None else Path(share.path)
    previous = None
    if path is not None:
        previous = _stored_share(path)
        if previous is not None:
            previous.reused = previous.states
            if previous.finished:
                return previous
    run, _ = open_run(share.log, base=share.base)
    latest = previous or Exploration()
    next_keep = time.monotonic() + _KEEP_S

    def on_results(result: Exploration) -> None:
        nonlocal latest, next_keep
        latest = result
        if time.monotonic() > next_keep:
            next_keep = time.monotonic() + _KEEP_S
            keep(replace(result, finished=False))

    def keep(result: Exploration) -> None:
        if path is not None:
            _core.write_whole(path, to_checked_json(as_json(result)))

    try:
        result = explore(run, share.options, on_results=on_results, before=previous)
    except (KeyboardInterrupt, SystemExit):
        keep(replace(latest, finished=False))
        raise
    keep(result)
    return result


def executor_for(options: Options, jobs: int) -> Executor:
    """Return an executor that checks crash states in several processes, or in one.

    States are mounted only in worker processes, which unmount them when their parent is killed.
    """
    is_mounted = options.recovery == "mount" or command_of(options.check) is not None
    is_worker = multiprocessing.parent_process() is not None
    return Serial() if jobs == 1 and (is_worker or not is_mounted) else Pool(jobs)


@exit_on_sigterm()
def run_controls(task: ControlsTask) -> Controls | None:
    """Run the control checks of an exploration; if a signal ends the process, its mounts are removed."""
    run, _ = open_run(task.log, base=task.base)
    return judge_controls(run, task.options, is_included=task.is_included)


def controls_of(log: str, options: Options, *, base: str | None, is_included: bool) -> Controls | None:
    """Run the control checks of an exploration of a log; `None` if the options contain no check.

    Args:
        log: the crash log.
        options: options of the exploration.
        base: content of the device before a log of dm-log-writes started.
        is_included: as in `judge_controls`.
    """
    remove_stale()
    task = ControlsTask(log, base, options, is_included)
    ((_, controls),) = executor_for(options, 1).run(run_controls, each([task]))
    if isinstance(controls, Crash):
        raise _crashed("judged the controls", controls)
    return controls


def _crashed(work: str, crash: Crash) -> EmmclabError:
    return EmmclabError(
        f"a process that {work} crashed: {crash.reason}",
        kind="failed",
        hint="run the same command again, which continues from the stored results",
    )


def explore_in_parallel(
    log: str,
    options: Options,
    *,
    base: str | None = None,
    jobs: int = 1,
    folder: Path | None = None,
    grounds: str = "",
    fresh: bool = False,
    on_results: Callable[[Exploration], None] = lambda _result: None,
) -> Exploration:
    """Explore a crash log with several processes; the findings do not depend on the number of processes.

    Args:
        log: the crash log.
        options: options of the exploration. If they select a share of the states, the processes divide this share.
        base: content of the device before a log of dm-log-writes started.
        jobs: number of processes.
        folder: folder for the results of each process, so that an interrupted exploration can continue.
        grounds: digest of everything that a verdict depends on besides log and options, from
            `emmclab.crash.verdict_inputs`; results with another digest are not reused.
        fresh: do not reuse stored results.
        on_results: called with the results at the end, and with a folder also at the start and every two seconds.
    """
    # The files of killed explorations are removed even if no exploration is needed.
    remove_stale()
    share, shares = options.share
    tasks = []
    for number in range(jobs):
        part = replace(options, share=(share + shares * number, shares * jobs))
        results_path = None
        if folder is not None:
            grounds_text = json.dumps([grounds, asdict(part)], sort_keys=True)
            key = hashlib.sha256(grounds_text.encode()).hexdigest()[:16]
            path = folder / f"share-{key}.json"
            if fresh:
                path.unlink(missing_ok=True)
            results_path = str(path)
        tasks.append(Share(log, base, part, results_path))
    executor = executor_for(options, jobs)
    total = Exploration(finished=True)
    _report(tasks, on_results)
    with repeated(_KEEP_S, lambda: _report(tasks, on_results)):
        for _, result in executor.run(run_share, each(tasks)):
            if isinstance(result, Crash):
                raise _crashed("explored the log", result)
            total.merge(result)
    on_results(total)
    return total


def _report(tasks: Sequence[Share], on_results: Callable[[Exploration], None]) -> None:
    """Call `on_results` with the results that the parallel tasks of the exploration have stored so far."""
    paths = [task.path for task in tasks if task.path]
    if not paths:
        return
    so_far = Exploration()
    for path in paths:
        if (stored := _stored_share(Path(path))) is not None:
            so_far.merge(stored)
    on_results(so_far)
