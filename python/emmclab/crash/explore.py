"""Explores a crash log: every state of this share is recovered and judged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypedDict

from emmclab import _core
from emmclab.crash.finding import COMMANDS, LEVELS, CutTally, Finding
from emmclab.crash.found import Lost
from emmclab.crash.guest.states import GuestMounts, guest_of
from emmclab.crash.json_types import Covered, Facts, State
from emmclab.crash.judging import Judge, require
from emmclab.crash.recording import MOUNTED
from emmclab.errors import ConfigError, EmmclabError, UnsupportedError

#: Time between two reports of progress, seconds.
_REPORT_S = 0.5
#: What a cut may leave of a write: 4 KiB old or new, sectors old or new, sectors in flight garbled too.
TEARS = ("none", "sector", "inside")


class CoreOptions(TypedDict):
    """The options of an exploration as the core takes them."""

    cuts: int
    states: str
    seed: int
    tear: str
    #: The mark of the log from which on power is cut; None: from its beginning.
    from_mark: str | None
    only: tuple[int, int | None] | None
    share: tuple[int, int]


@dataclass(frozen=True)
class Options:
    """What is explored, and how.

    Attributes:
        cuts: most moments at which power is cut.
        states: how states of a cut are chosen, as `device,boundary,omit1:64,random:50`.
        seed: decides which cuts and states are tried.
        tear: `none`: 4 KiB are written as a whole or not at all; `sector`: 512 bytes are; `inside`: 512 bytes
            of a write in flight may be garbled, unless it is a reliable one.
        recovery: `process`, `e2fsck` or `mount`; what the first two leave is mounted for a command as check.
        check: a workload's name, whose check judges files; a command, which runs where the kernel mounts the
            disk after its recovery; or `None`.
        recovery_cuts: of each state, most cuts during the recovery of layers.
        share: this share of the states, from 0, and how many there are.
        only: exactly this cut, and of it exactly this state.
        prune: a state is not mounted if what its mount shows follows from that of an earlier state.
        guest: kernel file of a guest that mounts the states; `None`: this machine does.
    """

    cuts: int = 1000
    states: str = "device,boundary,omit1,only1,pairs,random"
    seed: int = 1
    tear: str = "none"
    recovery: str = "process"
    check: str | None = None
    recovery_cuts: int = 0
    share: tuple[int, int] = (0, 1)
    only: tuple[int, int | None] | None = None
    prune: bool = True
    guest: str | None = None

    def require(self) -> None:
        """Refuse, before anything runs, what could not be explored afterwards.

        Raises:
            ConfigError: states, tear, check or recovery are wrong, or not possible for this user and machine.
        """
        self.core()
        _core.crash_ways(self.states)
        require(self.check, self.recovery, self.guest)

    def core(self) -> CoreOptions:
        """Return the options of the core."""
        if self.tear not in TEARS:
            raise ConfigError(
                f"`{self.tear}` is not a way to tear writes at a power cut",
                kind="config",
                field="tear",
                hint=f"use {', '.join(TEARS)}",
            )
        return {
            "cuts": self.cuts,
            "states": self.states,
            "seed": self.seed,
            "tear": self.tear,
            "from_mark": MOUNTED,
            "only": self.only,
            "share": self.share,
        }


@dataclass
class Exploration:
    """What came of an exploration, of one share or of all."""

    states: int = 0
    #: Number of the last state that was judged; -1 = none.
    last: int = -1
    took_s: float = 0.0
    covered: Covered = field(default_factory=lambda: Covered())
    #: By level, promise, whether documentation excludes it, and whether commands break it, not a state.
    kinds: dict[tuple[str, str, bool, bool], Finding] = field(default_factory=dict)
    #: By cut; a cut whose states all equal earlier ones has none.
    verdicts: dict[int, CutTally] = field(default_factory=dict)
    finished: bool = False
    #: States of an earlier run that were taken up, and not judged again.
    reused: int = 0
    #: States that were not mounted, as what their mount shows followed from an earlier one.
    pruned: int = 0

    def add(self, finding: Finding) -> None:
        """Count a finding; of its kind, the first state is kept."""
        key = (finding.level, finding.promise, finding.documented is not None, finding.way == COMMANDS)
        known = self.kinds.get(key)
        if known is None:
            self.kinds[key] = finding
        elif finding.index < known.index:
            self.kinds[key] = replace(finding, count=known.count + finding.count)
        else:
            known.count += finding.count

    def merge(self, other: Exploration) -> None:
        """Add another share."""
        self.states += other.states
        self.reused += other.reused
        self.pruned += other.pruned
        self.took_s = max(self.took_s, other.took_s)
        # Each share goes through all cuts: the slowest says how far all are.
        reports = [covered for covered in (self.covered, other.covered) if covered]
        self.covered = min(reports, key=lambda covered: covered["cuts"], default=Covered())
        self.finished &= other.finished
        for finding in other.kinds.values():
            self.add(replace(finding))
        for cut, tally in other.verdicts.items():
            self.verdicts.setdefault(cut, CutTally(tally.at_ns)).add(tally)

    def findings(self, *, documented: bool = False) -> list[Finding]:
        """Return the findings, the lowest level first; with `documented`, documented losses instead."""
        chosen = [one for one in self.kinds.values() if (one.documented is not None) == documented]
        return sorted(chosen, key=lambda one: (LEVELS.index(one.level), one.index))


def open_run(log: str, *, base: str | None = None) -> tuple[_core.CrashRun, Facts]:
    """Open a crash log, or one of dm-log-writes for a device that held `base`; also give what it says."""
    run = _core.CrashRun(log, base=base)
    facts: Facts = json.loads(run.facts())
    return run, facts


def require_recoverable(run: _core.CrashRun, options: Options) -> None:
    """Refuse a log whose file system cannot be recovered in the way that is asked for.

    Raises:
        ConfigError: the disk holds no ext4, and the kernel is not to mount it.
        UnsupportedError: it is an ext4 with features that recovery in process does not know.
    """
    if options.recovery == "mount":
        return
    moments = json.loads(run.facts())["moments"]
    last = replace(options, states="boundary", only=(moments - 1, None), share=(0, 1), tear="none")
    explorer = _core.Explorer(run, last.core())
    while explorer.next_state() is not None:
        try:
            problem, *_ = explorer.recover([])
        except UnsupportedError as error:
            if options.recovery == "process":
                raise not_in_process(error) from error
            return
        # A disk of which a part is missing may lack its superblock; one that has all of it does not.
        if problem is None or "is not 0xef53" not in json.loads(problem)["detail"]:
            return
    raise no_ext4(options.recovery, "the disk of the log holds no ext4")


def no_ext4(recovery: str, problem: str) -> ConfigError:
    """Return the refusal of a recovery that knows ext4 alone."""
    return ConfigError(
        f"{problem}, and recovery by {'emmclab' if recovery == 'process' else recovery} knows ext4 alone",
        kind="config",
        field="recovery",
        hint="have the kernel recover it: --recovery mount",
    )


def not_in_process(error: EmmclabError) -> UnsupportedError:
    """Add the cure to what recovery in process does not know."""
    return UnsupportedError(
        str(error), kind=error.kind, hint="have the kernel recover it: --recovery mount; or --recovery e2fsck"
    )


def judge_of(
    explorer: _core.Explorer, run: _core.CrashRun, options: Options, guest: GuestMounts | None
) -> Judge:
    """Make the judge that the options ask for, of states of a run; `guest` is of `guest_of`."""
    lies = json.loads(run.facts())["lies"]
    tear = "sector" if options.tear == "none" and lies == "tear" else options.tear
    return Judge(
        explorer,
        run,
        options.check,
        options.recovery,
        options.recovery_cuts,
        tear=tear,
        prune=options.prune,
        guest=guest,
    )


def explore(
    run: _core.CrashRun,
    options: Options,
    *,
    told: Callable[[Exploration], None] = lambda _found: None,
    before: Exploration | None = None,
) -> Exploration:
    """Try the states of a share of a run.

    Args:
        run: a crash log, from `open_run`.
        options: what is tried.
        told: is told every half second what came of it so far.
        before: what an earlier exploration with these options found before it was interrupted.
    """
    explorer = _core.Explorer(run, options.core())
    found, begun = before or Exploration(), time.monotonic() - (before.took_s if before else 0.0)
    done, pruned = found.last, found.pruned
    reported = begun
    with (
        guest_of(options.guest, explorer.host_bytes()) as guest,
        judge_of(explorer, run, options, guest) as judge,
    ):
        while (text := explorer.next_state()) is not None:
            state = json.loads(text)
            if state["index"] <= done:
                continue
            found.states += 1
            found.last = state["index"]
            lost = judge.verdict(state)
            found.pruned = pruned + judge.pruned
            tally = found.verdicts.setdefault(state["cut"], CutTally(state["at_ns"]))
            tally.states += 1
            if lost is not None:
                tally.broken += lost.documented is None
                tally.documented += lost.documented is not None
                found.add(_finding(state, lost))
            if (now := time.monotonic()) - reported > _REPORT_S:
                reported = now
                found.took_s = now - begun
                found.covered = _covered(explorer)
                told(found)
        for finding in judge.rules_broken() if options.share[0] == 0 and options.only is None else ():
            found.add(finding)
    found.took_s, found.covered, found.finished = time.monotonic() - begun, _covered(explorer), True
    return found


def _covered(explorer: _core.Explorer) -> Covered:
    moments, cuts, legal_log10, chosen, equal, most_unpromised = explorer.covered()
    return {
        "moments": moments,
        "cuts": cuts,
        "legal_log10": legal_log10,
        "chosen": chosen,
        "equal": equal,
        "most_unpromised": most_unpromised,
    }


def _finding(state: State, lost: Lost) -> Finding:
    return Finding(
        promise=lost.promise,
        level=lost.level,
        cut=state["cut"],
        state=state["number"],
        index=state["index"],
        detail=lost.detail,
        way=state["way"],
        at_ns=state["at_ns"],
        acknowledged=state["acknowledged"],
        documented=lost.documented,
    )
