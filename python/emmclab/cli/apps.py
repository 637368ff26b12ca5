"""`emmclab apps`, `emmclab apps run NAME`, `emmclab apps compare NAME...`, `emmclab apps live NAME`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from emmclab.apps.closed_loop import (
    HOST,
    LIMIT_S,
    NETWORK,
    PRECONDITION,
    AppResult,
    application_schema,
    application_text,
    applications,
    hosts,
    learn_application,
    parts_of,
    run_application,
)
from emmclab.apps.processes import LIVE_HOST, agreement, run_live
from emmclab.cli.console import print_json, put, say, stdout
from emmclab.cli.helping import examples
from emmclab.cli.meter import Meter
from emmclab.cli.names import application_names, host_names, names_of, network_names, several, solution_names
from emmclab.cli.options import AsJson, option, with_groups
from emmclab.cli.outputs import Perfetto, in_a_folder
from emmclab.cli.simulation import (
    DEVICE_OPTION,
    Capacity,
    Images,
    Layers,
    Second,
    Settings,
    configured,
    device_names,
    layered,
)
from emmclab.cli.working import Working
from emmclab.devices.provenance import Provenance
from emmclab.errors import ConfigError
from emmclab.runtime.files import write_whole

if TYPE_CHECKING:
    from emmclab.apps.solutions import Solution
    from emmclab.devices.device import Device

_RUN = "Run"
_ACTIONS = ("list", "show", "schema", "hosts", "run", "compare", "solutions", "live", "learn")


@dataclass(frozen=True)
class Running:
    """How applications are run, as given on the command line."""

    host: Annotated[
        str | None,
        option(
            f"The host: a preset (`emmclab apps hosts`) or a TOML file; default: {HOST}, "
            f"for `live` {LIVE_HOST}.",
            _RUN,
            metavar="HOST",
            autocompletion=host_names,
        ),
    ] = None
    seed: Annotated[int, option("Seed of all random draws.", _RUN, metavar="N", min=0)] = 1
    precondition: Annotated[
        str,
        option(
            "Data on the device before: none, sequential:PCT, random:PCT or steady[:CAPACITIES].",
            _RUN,
            metavar="WHAT",
        ),
    ] = PRECONDITION
    images: Images = None
    limit_s: Annotated[
        int, option("Simulated seconds after which a run is an error.", _RUN, metavar="S", min=1)
    ] = LIMIT_S
    check: Annotated[bool, option("Check all invariants of the device (slow).", _RUN, "--check")] = False

    def run(
        self, name: str, device: Device, network: str, *, solution: Solution | None = None, **more: Any
    ) -> AppResult:
        """Run an application with a progress meter, a solution, or other options from `more`."""
        run = run_application if solution is None else solution.run
        under = "" if solution is None else f", {solution.name}"
        # Neither preconditioning nor the run of a program reports progress.
        with Working(f"{name} on {device.name} over {network}{under}"):
            return run(
                name,
                device,
                network=network,
                host=self.host or HOST,
                seed=self.seed,
                precondition=self.precondition,
                images=self.images,
                limit_s=self.limit_s,
                check=self.check,
                **more,
            )

    def live(self, name: str, device: Device, network: str, clock: str, **software: Any) -> AppResult:
        """Run an application on this machine and a served device under a progress meter."""
        with Working(f"{name} live on {device.name} over {network}"):
            return run_live(
                name,
                device,
                network=network,
                host=self.host or LIVE_HOST,
                seed=self.seed,
                clock=clock,
                precondition=self.precondition,
                images=self.images,
                limit_s=self.limit_s,
                **software,
            )


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "emmclab apps run facebook --device nexus5 --network usb",
            "emmclab apps compare email maps --device nexus5,sdcard --network wifi,usb",
            "emmclab apps solutions email --device kingston-c4",
            "strace -f -ttt -T -y -o app.strace ./app; emmclab apps learn app.strace -o app.toml",
            "emmclab apps live app.toml --device kingston-c4",
        )
    )(with_groups(apps))


def apps(
    *,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[list|show|schema|hosts|run|compare|solutions|live|learn] [NAME|FILE]...",
            autocompletion=names_of(lambda: [*_ACTIONS, *application_names("")]),
            help="Action: list (the default), show, schema, hosts, run, compare, solutions, live or learn; "
            "and applications: presets or TOML files; of `learn` a recording.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str,
        option(
            "The device, several with commas for `compare` and `solutions`: presets (`emmclab devices`) or "
            "TOML files.",
            "Device",
            *DEVICE_OPTION,
            metavar="DEVICE,...",
            autocompletion=several(device_names),
        ),
    ] = "nexus5",
    network: Annotated[
        str,
        option(
            "A network of the host, several with commas for `compare` and `solutions`.",
            _RUN,
            "--network",
            "--networks",
            metavar="NAME,...",
            autocompletion=several(network_names),
        ),
    ] = NETWORK,
    what_if: Annotated[
        list[str],
        option(
            "Run once more with a part of the storage infinitely fast: partition=NAME, class=CLASS, op=read, "
            "op=fsync, op=write_back, or `all`: each part that the run used. Repeated: one run each.",
            _RUN,
            metavar="PART",
        ),
    ] = [],  # noqa: B006
    filesystems: Annotated[
        list[str],
        option(
            "A file system instead of the host's: PARTITION=NAME, or NAME on all partitions; ext4, fat32, "
            "yaffs2, lfs. Repeated.",
            _RUN,
            "--filesystem",
            metavar="[PARTITION=]NAME",
        ),
    ] = [],  # noqa: B006
    sync: Annotated[
        str | None,
        option(
            "Only syncs of files of these classes are carried out, those of others return at once: database, "
            "database_journal, cache, other, with commas; or none.",
            _RUN,
            metavar="CLASS,...",
        ),
    ] = None,
    settings: Settings = [],  # noqa: B006
    capacity: Capacity = None,
    layers: Layers = [],  # noqa: B006
    second: Second = None,
    solutions: Annotated[
        list[str],
        option(
            "With `solutions`: only this one (nvm-buffer, raid0, lfs, advil, selective-sync, no-sync); "
            "repeated.",
            _RUN,
            "--solution",
            metavar="NAME",
            autocompletion=solution_names,
        ),
    ] = [],  # noqa: B006
    running: Running,
    clock: Annotated[
        str,
        option("Clock of the device of `live`: real, or x and a factor (x0.1: ten times as fast).", _RUN),
    ] = "real",
    output: Annotated[
        Path | None,
        option(
            "Of `learn`: the program's file, or - for stdout.",
            "Learn",
            "--output",
            "-o",
            metavar="FILE",
            callback=in_a_folder,
        ),
    ] = None,
    partition: Annotated[
        list[str],
        option(
            "Of `learn`: files below a folder are on this partition; the first has all others. Repeated.",
            "Learn",
            metavar="NAME=FOLDER",
        ),
    ] = ["data=/"],  # noqa: B006
    user_waits_for: Annotated[
        str | None,
        option(
            "Of `learn`: the thread that the user waits for, by the number that the kernel gave it (PID in "
            "the recording); default: the first.",
            "Learn",
            metavar="PID",
        ),
    ] = None,
    keep_pauses: Annotated[
        bool,
        option(
            "Of `learn`: accept that this thread mostly waits for causes that are not in the recording; these"
            " waits are then as long on every device.",
            "Learn",
            "--keep-pauses",
        ),
    ] = False,
    record: Annotated[
        Path | None,
        option("Of `live`: write the trace of the device too.", _RUN, metavar="FILE", callback=in_a_folder),
    ] = None,
    perfetto: Perfetto = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=in_a_folder, help="Also write a page: time lines and tables."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run applications in closed loop on a simulated device and show where their users' time goes.

    Without words: lists applications. `show NAME` prints its file, `schema` the JSON Schema of these files,
    `hosts` lists hosts with their partitions and networks. `solutions` runs applications, all without names,
    with each pilot solution of FAST 2012 beside the plain device. `live` runs a program as real processes on
    a served device, as root, and the model beside it. `learn` makes a program of a recording of system calls.
    """
    action, names = _action(words or ["list"])
    if action in ("list", "show", "schema", "hosts"):
        _tell(action, names, as_json)
        return
    if action == "learn":
        _learn(names[0], output, partition, as_json, user_waits_for=user_waits_for, keep_pauses=keep_pauses)
        return
    devices, networks = _split(device, "--device"), _split(network, "--network")
    if action not in ("compare", "solutions") and len(names) * len(devices) * len(networks) != 1:
        raise ConfigError(
            f"`{action}` takes one application, one device and one network",
            kind="config",
            field="run",
            hint="use `emmclab apps compare` for several",
        )
    if perfetto is not None and action != "run":
        raise ConfigError(
            "`--perfetto` applies to a single run",
            kind="config",
            field="--perfetto",
            hint="use `emmclab apps run`",
        )
    own, layer_settings = layered(settings, layers)
    if action == "solutions":
        if layers or second or filesystems or sync is not None or what_if:
            raise ConfigError(
                "`solutions` chooses layers, file systems and syncs itself",
                kind="config",
                field="solutions",
                hint="use `emmclab apps run` for one with settings of your own",
            )
        from emmclab.cli.solutions import show_solutions

        chosen = [configured(one, own, capacity) for one in devices]
        show_solutions(running, names, chosen, networks, solutions, as_json, html)
        return
    software: dict[str, Any] = {
        "layers": layers,
        "layer_settings": layer_settings,
        "second": None if second is None else configured(second, []),
        "filesystems": filesystems,
        "sync": None if sync is None else _split(sync, "--sync"),
    }
    chosen = [configured(one, own, capacity) for one in devices]
    if action == "live":
        if filesystems or sync is not None or what_if:
            raise ConfigError(
                "`live` has the file systems and syncs of this machine's kernel",
                kind="config",
                field="live",
                hint="leave out --filesystem, --sync and --what-if",
            )
        del software["filesystems"], software["sync"]
        found = running.live(names[0], chosen[0], networks[0], clock, record=record, **software)
        model = replace(running, host=running.host or LIVE_HOST).run(
            names[0], chosen[0], networks[0], **software
        )
        made = Provenance(chosen[:1]).to_dict()
        _report([found, model], [], html, made)
        _show_live(found, model, as_json, made)
        return
    results = [
        running.run(name, one, over, perfetto=perfetto, **software)
        for name in names
        for one in chosen
        for over in networks
    ]
    faster: list[AppResult] = []
    if what_if:
        if len(results) > 1:
            raise ConfigError(
                "`--what-if` applies to a single run",
                kind="config",
                field="--what-if",
                hint="use `emmclab apps run`",
            )
        parts = parts_of(results[0]) if what_if == ["all"] else what_if
        faster = [running.run(names[0], chosen[0], networks[0], what_if=[part], **software) for part in parts]
    if perfetto is not None:
        say(f"picture: {perfetto}")
    made = Provenance(chosen).to_dict()
    _report(results, faster, html, made)
    _show(results, faster, as_json, made)


def _learn(recording: str, output: Path | None, partitions: list[str], as_json: bool, **more: Any) -> None:
    """Learn a program and write its file."""
    if output is None:
        raise ConfigError(
            "`learn` needs an output file",
            kind="config",
            field="--output",
            hint="name it, as `-o my-app.toml`, or `-o -` for stdout",
        )
    pairs = [word.partition("=") for word in partitions]
    for (name, _, folder), word in zip(pairs, partitions, strict=True):
        if not (name and folder.startswith("/")):
            raise ConfigError(
                f"`{word}` is not NAME=FOLDER",
                kind="config",
                field="--partition",
                hint="write it as data=/data",
            )
    with Meter(f"learning from {recording}"):
        found = learn_application(
            recording,
            name=output.stem if str(output) != "-" else None,
            partitions={name: folder for name, _, folder in pairs},
            **more,
        )
    if str(output) == "-":
        put(found.program.rstrip("\n"))
        return
    write_whole(output, found.program)
    if as_json:
        print_json({**asdict(found), "program": str(output.resolve())})
        return
    from emmclab.cli.show_apps import show_learned

    show_learned(stdout(), found, output)


def _report(
    results: list[AppResult], faster: list[AppResult], html: Path | None, made: dict[str, Any]
) -> None:
    if html is not None:
        from emmclab.pages.applications import write_apps_report

        write_apps_report(results, faster, html, made)
        say(f"report: {html}")


def _show_live(found: AppResult, model: AppResult, as_json: bool, made: dict[str, Any]) -> None:
    if as_json:
        both = {"live": found.to_dict(), "model": model.to_dict(), "agreement": agreement(found, model)}
        print_json(both | {"provenance": made})
        return
    from emmclab.cli.show_apps import show_agreement, show_run

    show_run(stdout(), found)
    show_agreement(stdout(), agreement(found, model))


def _action(words: list[str]) -> tuple[str, list[str]]:
    """Return the action and its applications."""
    action, names = words[0], words[1:]
    one, none = (1, 1), (0, 0)
    needs = {"list": none, "schema": none, "hosts": none, "show": one, "run": one, "live": one, "learn": one}
    if action not in _ACTIONS:
        raise ConfigError(
            f"`{action}` is not an action of `emmclab apps`",
            kind="config",
            hint=f"use one of: {', '.join(_ACTIONS)}",
        )
    least, most = needs.get(action, (0 if action == "solutions" else 1, 1_000))
    if not least <= len(names) <= most:
        wanted = "no application" if most == 0 else "one application" if most == 1 else "applications"
        raise ConfigError(
            f"`{action}` takes {wanted}", kind="config", hint="`emmclab apps` lists the applications"
        )
    return action, names


def _split(text: str, field: str) -> list[str]:
    """Split at commas."""
    parts = [part.strip() for part in text.split(",")]
    if "" in parts or len(set(parts)) < len(parts):
        raise ConfigError(
            f"`{text}` has an empty or a doubled part",
            kind="config",
            field=field,
            hint="give each name once, with commas between",
        )
    return parts


def _tell(action: str, names: list[str], as_json: bool) -> None:
    """Print listings that need no run."""
    if action == "show":
        put(application_text(names[0]).rstrip("\n"))
        return
    if action == "schema":
        print_json(application_schema())
        return
    rows = applications() if action == "list" else hosts()
    if as_json:
        print_json(rows)
        return
    from emmclab.cli.show_apps import show_applications, show_hosts

    (show_applications if action == "list" else show_hosts)(stdout(), rows)


def _show(results: list[AppResult], faster: list[AppResult], as_json: bool, made: dict[str, Any]) -> None:
    if as_json:
        runs = [result.to_dict() for result in results]
        found: Any = runs[0] if len(runs) == 1 else {"runs": runs}
        if faster:
            found["what_if"] = [
                {"part": run["app"]["what_if"][0], "runtime_ns": run["app"]["runtime_ns"]} for run in faster
            ]
        print_json(found | {"provenance": made})
        return
    from emmclab.cli.show_apps import show_run, show_runs, show_what_if

    if len(results) == 1:
        show_run(stdout(), results[0])
    else:
        show_runs(stdout(), results)
    if faster:
        show_what_if(stdout(), results[0], faster)
