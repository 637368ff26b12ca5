"""`emmclab serve DEVICE`."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from emmclab.cli.command import command
from emmclab.cli.console import in_a_folder, print_stderr, stderr
from emmclab.cli.failures import FAILED_RUN, Ending, output_aside, stop_on_signals, terminating
from emmclab.cli.name_completion import device_names
from emmclab.cli.options import AsJson, argument, option
from emmclab.cli.progress import Preparing, Working
from emmclab.cli.simulation_options import Capacity, Settings, Used, configured, layered, names_a_disk, preconditioned
from emmclab.core_types import LiveStatus
from emmclab.errors import ConfigError
from emmclab.live.serve import RUN, TIME, WHERE, ServeOptions, require_servable
from emmclab.live.serve import serve as start
from emmclab.runtime.document import size
from emmclab.runtime.threads import repeated
from emmclab.simulation.device import Provenance, lie_of
from emmclab.simulation.result import Result
from emmclab.simulation.result_text import changes_line

#: Interval at which the end of the run and the trigger of --delay-from are polled, seconds.
_WAIT_S = 0.1
#: Time that the client program has to end after SIGTERM, before SIGKILL is sent, seconds.
_GRACE_S = 5.0
#: Time between two updates of the live view, seconds.
_VIEW_S = 1.0


@command(
    "emmclab serve nexus5 --nbd /run/user/0/emmc.sock",
    "emmclab serve emmc51-tlc --mkfs ext4 --mount /mnt/x -- cp -r /etc /mnt/x",
    "emmclab serve /dev/sdX --layer advil --yes # layers above a disk of this machine",
)
def serve(
    *,
    device: Annotated[
        str,
        argument(
            "DEVICE|/dev/X|FILE",
            "The device: a preset (`emmclab devices`) or a TOML file; or a disk below layers (--layer).",
            autocompletion=device_names,
        ),
    ],
    command: Annotated[
        list[str] | None,
        argument("-- CMD...", "Command to run; the device is removed when it ends.", show_default=False),
    ] = None,
    settings: Settings = [],  # noqa: B006
    capacity: Capacity = None,
    options: ServeOptions,
    control: Annotated[
        Path | None, option("Unix socket for `emmclab control`: status, cut, restore, set.", WHERE, metavar="SOCKET")
    ] = None,
    delay_from: Annotated[
        str | None,
        option(
            "Complete requests without delay until this file exists, or until the signal SIGUSR1.",
            TIME,
            metavar="FILE|SIGUSR1",
            advanced=True,
        ),
    ] = None,
    recover_only: Annotated[
        bool,
        option(
            "Recover the layers and move all data to its final address, then end; the image can then be served "
            "without layers.",
            RUN,
            advanced=True,
        ),
    ] = False,
    used: Used = None,
    yes: Annotated[
        bool, option("Erase a disk of this machine that contains no data of the layers.", RUN, advanced=True)
    ] = False,
    html: Annotated[Path | None, option("Also write the report page of the run.", RUN, callback=in_a_folder)] = None,
    as_json: AsJson = False,
) -> None:
    """Serve a simulated eMMC or UFS as a block device of this machine, until Ctrl-C or the end of CMD.

    EMMCLAB_DEVICE is the path of the device for CMD. The exit status is that of CMD; with --json, its output goes to
    stderr. Without --nbd, --tcp, --sdhci, --loop, --ublk and --file, it is a loop device for root, otherwise a file.
    """
    layers, second, clock = options["layers"], options["second"], options["clock"]
    device_settings, options["layer_settings"] = layered(settings, layers)
    if names_a_disk(device):
        unused = {
            **{"--set": device_settings, "--capacity": capacity, "--control": control, "--delay-from": delay_from},
            **{"--recover-only": recover_only, "--used": used, "--html": html},
        }
        for name, value in unused.items():
            if value:
                problem = f"`{name}` has an effect only on a simulated device"
                raise ConfigError(problem, field=name, hint="leave it out, or name a device")
        _serve_disk(device, options, command, yes, as_json)
        return
    if yes:
        raise ConfigError("a simulated device overwrites no disk", field="--yes", hint="leave it out, or name a disk")
    configuration = configured(device, device_settings, capacity)
    options["second"] = configured(second, []) if isinstance(second, str) else second
    require_servable(clock=clock, tcp=options["tcp"], mkfs=options["mkfs"], mount=options["mount"])
    for socket in (options["nbd"], options["sdhci"], control):
        in_a_folder(None if socket is None else Path(socket))
    if capacity is not None:
        real = size(configuration.capacity_bytes)
        print_stderr(f"note: --capacity {capacity} is rounded up to whole blocks in every plane: the device has {real}")
    if command and shutil.which(command[0]) is None:
        raise ConfigError(f"{command[0]}: command not found", field="CMD", hint="check the command, or give its path")
    if recover_only:
        _check_recovery(options, command)
        with TemporaryDirectory() as folder:
            recovery: ServeOptions = {**options, "nbd": Path(folder) / "nbd.sock", "clock": "free", "loop": None}
            with start(configuration, **recovery) as live:
                live.make_plain()
        print_stderr(f"{options['image']} can be served without layers from now on")
        return
    others = any(options[name] for name in ("nbd", "tcp", "sdhci", "file", "ublk"))
    options["loop"] = options["loop"] or (command is not None and not others) or None
    with _trigger(delay_from) as delayed:
        print_stderr(f"preparing {configuration.name}")
        options["precondition"] = preconditioned(options["precondition"], used)
        options["clock"] = "free" if delayed is not None else clock
        with Preparing(configuration, options["precondition"], options["images"]):
            live = start(configuration, **options)
        # Until here, Ctrl-C interrupts the preparation of the device; from here on, it requests an orderly end.
        with stop_on_signals() as stop:
            figures, result, status = _served(live, command, control, clock, delayed, stop, as_json)
    if figures is not None:
        result = Result(result.to_dict() | {"live": figures.to_dict()})
    from emmclab.cli.show_live import show_served

    provenance, record = Provenance([live.device]).to_dict(), options["record"]
    try:
        if html is not None:
            from emmclab.pages.simulation import write_simulation_report

            write_simulation_report([result], [live.device], html, made=provenance)
            print_stderr(f"report: {html}")
    finally:  # Printed after the page, so that a closed terminal does not prevent the page.
        if record is not None and live.is_recorded:
            print_stderr(f"trace: {record}")
        elif record is not None:
            print_stderr(f"warning: no request arrived, so {record} is not written")
        show_served(live, result, as_json, provenance)
    if status:
        raise typer.Exit(status)


def _serve_disk(disk: str, options: ServeOptions, command: list[str] | None, yes: bool, as_json: bool) -> None:
    """Serve layers above a disk of this machine, until Ctrl-C or the end of the command."""
    from emmclab.cli.show_live import show_layered
    from emmclab.live.layered_disk import serve_layers

    if not options["layers"]:
        raise ConfigError(f"{disk} is a disk of this machine", field="--layer", hint="name a layer to put above it")
    second = options.pop("second")
    others = any(options[name] for name in ("nbd", "tcp", "file", "ublk"))
    options["loop"] = options["loop"] or (command is not None and not others) or None
    status = 0
    with Working(f"opening {disk}"):
        live = serve_layers([disk] if second is None else [disk, str(second)], erase=yes, **options)
    # Until here, Ctrl-C interrupts the erasing of the disk; from here on, it requests an orderly end.
    with stop_on_signals() as stop:
        try:
            state = "new" if live.result().is_new else "recovered"
            for path in live.paths:
                print_stderr(f"serving {', '.join(options['layers'])} above {disk} ({state}): {path}")
            if live.mounted is not None:
                print_stderr(f"mounted at {live.mounted}")
            if command:
                with output_aside(as_json):
                    is_disk = live.path.startswith("/dev/")
                    status = _run_on_disk(live, command) if is_disk else _run_client(command, live.path, stop)
            else:
                print_stderr("Ctrl-C ends it")
                while not stop.is_requested and live.result().stopped is None:
                    time.sleep(_WAIT_S)
        finally:
            result = live.stop()
    show_layered(result, as_json)
    if result.stopped is not None:
        raise typer.Exit(FAILED_RUN)
    if status:
        raise typer.Exit(status)


def _check_recovery(options: ServeOptions, command: list[str] | None) -> None:
    problem = None
    image = options["image"]
    if image is None or not Path(image).exists():
        problem, hint = "the image to recover is missing", "give it, for example --image disk.img"
    elif not options["layers"]:
        problem, hint = "an image without layers needs no recovery", "give the layers with which it was created"
    elif command or options["mkfs"] or options["mount"]:
        problem, hint = "`--recover-only` does not serve the device", "leave out CMD, --mkfs and --mount"
    if problem is not None:
        raise ConfigError(problem, field="--recover-only", hint=hint)


def _served(
    live: Any, command: list[str] | None, control: Path | None, clock: str, delayed: Any, stop: Ending, as_json: bool
) -> tuple[LiveStatus | None, Any, int]:
    """Serve until the end; return the last figures, the result, and the exit status of the command."""
    status, figures = 0, None
    with ExitStack() as controlled:
        try:
            _announce(live, clock, delayed)
            controlled.enter_context(_controlled(live, control, stop))
        except BaseException:
            live.abort()
            raise
        try:
            if command:
                with _trigger_polling(live, clock, delayed), output_aside(as_json):
                    is_disk = str(live.path).startswith("/dev/")
                    status = _run_on_disk(live, command) if is_disk else _run_client(command, live.path, stop)
            else:
                _watch(live, clock, delayed, stop, as_json)
            figures = live.stats()
        finally:
            controlled.close()
            result = live.stop()
    return figures, result, status


def _run_on_disk(live: Any, command: list[str]) -> int:
    """Run a command on the served block device; return its exit status. SIGTERM and SIGHUP end the command.

    Ctrl-C need not be forwarded: a terminal sends it to the command as well.
    """

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    former = {number: signal.signal(number, end) for number in terminating()}
    try:
        return int(live.run(command))
    except SystemExit as exit_request:
        return int(exit_request.code or 0)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _run_client(command: list[str], path: str, stop: Ending) -> int:
    """Run a command on a socket or file, and end it on a signal; return its exit status, as a shell reports it."""
    try:
        client = subprocess.Popen(command, env=os.environ | {"EMMCLAB_DEVICE": path})
    except OSError as error:
        raise ConfigError(
            f"`{command[0]}` cannot be run: {error.strerror}", field="CMD", hint="check its name"
        ) from None
    killed_at = None
    while client.poll() is None:
        if stop.is_requested and killed_at is None:
            client.terminate()
            killed_at = time.monotonic() + _GRACE_S
        elif killed_at is not None and time.monotonic() > killed_at:
            client.kill()
        with suppress(subprocess.TimeoutExpired):
            client.wait(_WAIT_S)
    return client.returncode if client.returncode >= 0 else 128 - client.returncode


def _announce(live: Any, clock: str, delayed: Any) -> None:
    state = live.found
    if state.image and not state.clean:
        print_stderr(
            "note: the last run of this image did not end cleanly, which is equivalent to a power cut: "
            f"{state.units_entered:,} map units that were missing in the saved tables were recovered"
        )
    if state.setting_changes:
        print_stderr(f"note: in the last run of this image settings changed: {changes_line(state.setting_changes)}")
    lies = lie_of(live.device)
    if lies != "none":
        print_stderr(f"warning: this device breaks a promise on purpose: cache.lies = {lies}")
    for path in live.paths:
        print_stderr(f"serving {live.device.name} ({size(live.capacity_bytes)}), clock {clock}: {path}")
    if live.mounted is not None:
        print_stderr(f"mounted at {live.mounted}")
    if live.qemu is not None:
        print_stderr(f"in QEMU (10.1 or later): {live.qemu}")
    if delayed is not None:
        print_stderr("requests complete without delay until the delay is enabled")


class _Delay:
    """A signal or file that switches a served device to realistic timing; `on` is set after the switch."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._is_triggered = False
        self.on = False

    def __call__(self, *_: object) -> None:
        self._is_triggered = True

    def due(self) -> bool:
        """Return whether the trigger (signal or file) has occurred and realistic timing is not on yet."""
        return not self.on and (self._is_triggered or (self._file is not None and self._file.exists()))


@contextmanager
def _trigger(delay_from: str | None) -> Iterator[_Delay | None]:
    if delay_from is None:
        yield None
        return
    if delay_from != "SIGUSR1":
        yield _Delay(Path(delay_from))
        return
    delay = _Delay(None)
    former = signal.signal(signal.SIGUSR1, delay)
    try:
        yield delay
    finally:
        signal.signal(signal.SIGUSR1, former)


def _switch(live: Any, clock: str, delayed: _Delay | None) -> None:
    """Switch the device to realistic timing (`clock`) if the trigger has occurred."""
    if delayed is not None and delayed.due():
        delayed.on = True
        live.set("clock", clock)
        print_stderr(f"the times of the device take effect from now on: clock {clock}")


def _trigger_polling(live: Any, clock: str, delayed: _Delay | None) -> AbstractContextManager[None]:
    """Return a context with a background thread that switches to realistic timing when the trigger occurs."""
    return nullcontext() if delayed is None else repeated(_WAIT_S, lambda: _switch(live, clock, delayed))


@contextmanager
def _controlled(live: Any, path: Path | None, stop: Ending) -> Iterator[None]:
    if path is None:
        yield
        return
    from emmclab.live.control import Control

    with Control(live, path, lambda: stop(0, None)):
        print_stderr(f"control socket: {path}")
        yield


@contextmanager
def _live_view(view: Any) -> Iterator[None]:
    """Show a live view within the block; ignore errors if the terminal is closed earlier."""
    if view is not None:
        view.start()
    try:
        yield
    finally:
        if view is not None:
            with suppress(OSError):
                view.stop()


def _watch(live: Any, clock: str, delayed: _Delay | None, stop: Ending, as_json: bool) -> None:
    """Show the figures of the served device until the user ends the command."""
    from rich.live import Live

    has_view = stderr().is_terminal and not as_json
    view = Live(console=stderr(), auto_refresh=False) if has_view else None
    if view is None:
        print_stderr("Ctrl-C ends it")
    with _live_view(view):
        updated = time.monotonic()
        while not stop.is_requested:
            time.sleep(_WAIT_S)
            _switch(live, clock, delayed)
            for sentence in live.news():
                print_stderr(sentence)
            if time.monotonic() - updated < _VIEW_S:
                continue
            took, updated = time.monotonic() - updated, time.monotonic()
            figures = live.stats()
            if view is not None:
                from emmclab.cli.show_live import live_view

                with suppress(OSError):  # The terminal was closed; SIGHUP follows.
                    view.update(live_view(live, figures, took), refresh=True)
            if figures.stopped:
                print_stderr(f"warning: {figures.stopped}")
                return
