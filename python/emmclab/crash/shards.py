"""Distributes an exploration over processes, stores finished parts, and merges them."""

import hashlib
import json
import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

from emmclab import _core
from emmclab.crash.controls import Controls, judge_controls
from emmclab.crash.explore import Exploration, Options, explore, open_run
from emmclab.crash.promises import CutTally, Finding
from emmclab.crash.scratch_folders import exit_on_sigterm, remove_stale
from emmclab.crash.verdict_inputs import command_of
from emmclab.errors import EmmclabError
from emmclab.runtime.background_repeat import repeated
from emmclab.runtime.checksummed import from_checked_json, to_checked_json
from emmclab.runtime.executors import Crash, Executor, Pool, Serial, each

#: Interval at which the intermediate results of a share are stored, seconds.
_KEEP_S = 2.0


@dataclass(frozen=True)
class Share:
    """A share of the states of a log, and the path of its results."""

    log: str
    base: str | None
    options: Options
    path: str | None


@dataclass(frozen=True)
class ControlsTask:
    """The controls of an exploration of a log; the fields are those of `controls_of`."""

    log: str
    base: str | None
    options: Options
    is_included: bool


#: The fields of an exploration that its JSON has as they are.
_PLAIN = ("states", "last", "took_s", "covered", "finished", "pruned")


def as_json(found: Exploration) -> dict[str, Any]:
    """Return an exploration as JSON, which `from_json` reads: with the findings by kind and the verdicts by cut."""
    return {
        **{name: getattr(found, name) for name in _PLAIN},
        "kinds": [asdict(one) for one in found.kinds.values()],
        "verdicts": [(cut, astuple(tally)) for cut, tally in sorted(found.verdicts.items())],
    }


def from_json(data: Mapping[str, Any]) -> Exploration:
    """Make an exploration from its JSON."""
    verdicts = {cut: CutTally(*tally) for cut, tally in data["verdicts"]}
    found = Exploration(**{name: data[name] for name in _PLAIN}, verdicts=verdicts)
    for one in data["kinds"]:
        found.add(Finding(**one))
    return found


def _stored_share(path: Path) -> Exploration | None:
    """Return the stored results of a share; `None` if there are none, or if they are damaged."""
    try:
        found = from_checked_json(path.read_bytes())
    except OSError:
        return None
    return None if found is None else from_json(found)


def run_share(share: Share) -> Exploration:
    """Explore a share; results of an earlier, interrupted run of it are reused."""
    with exit_on_sigterm():
        return _run_share(share)


def _run_share(share: Share) -> Exploration:
    kept = None if share.path is None else Path(share.path)
    before = None
    if kept is not None:
        before = _stored_share(kept)
        if before is not None:
            before.reused = before.states
            if before.finished:
                return before
    run, _ = open_run(share.log, base=share.base)
    latest = before or Exploration()
    next_keep = time.monotonic() + _KEEP_S

    def on_results(found: Exploration) -> None:
        nonlocal latest, next_keep
        latest = found
        if time.monotonic() > next_keep:
            next_keep = time.monotonic() + _KEEP_S
            keep(replace(found, finished=False))

    def keep(found: Exploration) -> None:
        if kept is not None:
            _core.write_whole(kept, to_checked_json(as_json(found)))

    try:
        found = explore(run, share.options, on_results=on_results, before=before)
    except (KeyboardInterrupt, SystemExit):
        keep(replace(latest, finished=False))
        raise
    keep(found)
    return found


def executor_for(options: Options, jobs: int) -> Executor:
    """Return an executor for judging states with several processes, or with one.

    States are mounted only in worker processes, which unmount them when their parent is killed.
    """
    is_mounted = options.recovery == "mount" or command_of(options.check) is not None
    is_worker = multiprocessing.parent_process() is not None
    return Serial() if jobs == 1 and (is_worker or not is_mounted) else Pool(jobs)


def run_controls(task: ControlsTask) -> Controls | None:
    """Judge controls, in a process that unmounts what it has mounted when it is ended."""
    with exit_on_sigterm():
        run, _ = open_run(task.log, base=task.base)
        return judge_controls(run, task.options, is_included=task.is_included)


def controls_of(log: str, options: Options, *, base: str | None, is_included: bool) -> Controls | None:
    """Judge the controls of an exploration of a log; `None` without a check.

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
    on_results: Callable[[Exploration], None] = lambda _found: None,
) -> Exploration:
    """Explore a log with several processes; the findings do not depend on their number.

    Args:
        log: the crash log.
        options: options of the exploration; its share is divided further.
        base: content of the device before a log of dm-log-writes started.
        jobs: number of processes.
        folder: folder for the results of each process, so that an interrupted exploration can continue.
        grounds: digest of everything that a verdict depends on besides log and options, from
            `emmclab.crash.verdict_inputs`; results on other grounds are not reused.
        fresh: reuse no stored results.
        on_results: called with the results at the end, and if there is a folder, at the start and every two seconds.
    """
    # Known results are not explored again, but files of a killed exploration are removed in any case.
    remove_stale()
    share, shares = options.share
    tasks = []
    for number in range(jobs):
        part = replace(options, share=(share + shares * number, shares * jobs))
        kept = None
        if folder is not None:
            named = json.dumps([grounds, asdict(part)], sort_keys=True)
            key = hashlib.sha256(named.encode()).hexdigest()[:16]
            path = folder / f"share-{key}.json"
            if fresh:
                path.unlink(missing_ok=True)
            kept = str(path)
        tasks.append(Share(log, base, part, kept))
    executor = executor_for(options, jobs)
    every = Exploration(finished=True)
    _report(tasks, on_results)
    with repeated(_KEEP_S, lambda: _report(tasks, on_results)):
        for _, found in executor.run(run_share, each(tasks)):
            if isinstance(found, Crash):
                raise _crashed("explored the log", found)
            every.merge(found)
    on_results(every)
    return every


def _report(tasks: Sequence[Share], on_results: Callable[[Exploration], None]) -> None:
    """Report the results that the shares have stored so far."""
    kept = [task.path for task in tasks if task.path]
    if not kept:
        return
    so_far = Exploration()
    for path in kept:
        if (found := _stored_share(Path(path))) is not None:
            so_far.merge(found)
    on_results(so_far)
