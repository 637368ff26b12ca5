"""Spreads an exploration over processes, keeps what is finished, and joins it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from emmclab import _core
from emmclab.crash.explore import Exploration, Options, explore, open_run
from emmclab.crash.finding import Finding
from emmclab.study.executors import Executor, Pool, Serial

#: Time between two states of a share that are kept, seconds.
_KEEP_S = 5.0


@dataclass(frozen=True)
class Share:
    """A share of the states of a log, and where its outcome is kept."""

    log: str
    base: str | None
    options: Options
    kept: str | None


def as_json(found: Exploration) -> dict[str, Any]:
    """Give an exploration as JSON, from which it can be had again."""
    about = {name: getattr(found, name) for name in ("states", "last", "took_s", "covered", "finished")}
    kinds = [asdict(one) for one in found.kinds.values()]
    return about | {"kinds": kinds, "verdicts": sorted(found.verdicts.items())}


def from_json(data: dict[str, Any]) -> Exploration:
    """Make an exploration of its JSON."""
    about = {name: data[name] for name in ("states", "last", "took_s", "covered", "finished")}
    found = Exploration(**about, verdicts=dict(data["verdicts"]))
    for one in data["kinds"]:
        found.add(Finding(**one))
    return found


def run_share(share: Share) -> Exploration:
    """Explore a share; what an earlier, interrupted run of it found is taken up."""
    kept = None if share.kept is None else Path(share.kept)
    before = None
    if kept is not None and kept.exists():
        before = from_json(json.loads(kept.read_text(encoding="utf-8")))
        if before.finished:
            return before
    run, _ = open_run(share.log, base=share.base)
    next_keep = time.monotonic() + _KEEP_S

    def told(found: Exploration, _left: int) -> bool:
        nonlocal next_keep
        if kept is not None and time.monotonic() > next_keep:
            next_keep = time.monotonic() + _KEEP_S
            _core.write_whole(kept, json.dumps(as_json(replace(found, finished=False))).encode())
        return True

    found = explore(run, share.options, told=told, before=before)
    if kept is not None:
        _core.write_whole(kept, json.dumps(as_json(found)).encode())
    return found


def explore_in_parallel(
    log: str,
    options: Options,
    *,
    base: str | None = None,
    jobs: int = 1,
    folder: Path | None = None,
    told: Callable[[Exploration, int, int], None] = lambda _found, _done, _shares: None,
) -> Exploration:
    """Explore a log with several processes; the findings do not depend on their number.

    Args:
        log: the crash log.
        options: what is tried; its share is split further.
        base: what the device held before a log of dm-log-writes began.
        jobs: processes.
        folder: keeps what each process has found, so that an interrupted exploration goes on.
        told: is told what came of it so far, with the number of shares that are done, and of all.
    """
    share, shares = options.share
    tasks = []
    for number in range(jobs):
        part = replace(options, share=(share + shares * number, shares * jobs))
        kept = None
        if folder is not None:
            key = hashlib.sha256(json.dumps(asdict(part), sort_keys=True).encode()).hexdigest()[:12]
            kept = str(folder / f"share-{key}.json")
        tasks.append(Share(log, base, part, kept))
    executor: Executor = Serial() if jobs == 1 else Pool(jobs)
    all_found = Exploration(finished=True)
    for done, (_, found) in enumerate(executor.run(run_share, tasks), 1):
        all_found.merge(found)
        told(all_found, done, jobs)
    return all_found
