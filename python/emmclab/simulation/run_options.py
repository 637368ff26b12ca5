"""The options of a simulated run. Each is declared once: name, type, default, range and meaning.

Those that the core implements are the fields of `ReplayOptions` in `crates/replay/src/options.rs`, from which `make
generate` writes `core_types.ReplayOptions`; the others are declared here. They are keywords of `Device.simulate`,
options of commands, and keys and axes of the grids of studies. Results contain them, so that a stored run can be
simulated again. The option `precondition` names the data on a device before a run. The reference and `emmclab explain`
describe the options.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict

from emmclab import _core
from emmclab.core_types import ReplayOptions
from emmclab.errors import ConfigError
from emmclab.runtime.lists import Names
from emmclab.runtime.option import Option, attributes, complete, declarations
from emmclab.simulation.layers import Setting

if TYPE_CHECKING:
    from emmclab.simulation.device import Device


#: Callback after each batch: bytes read, total bytes (None = unknown), requests, and simulated seconds so far.
SimulationProgress = Callable[[int, int | None, int, float], None]

#: Input of a victim policy: the full blocks of one block group in one plane at the time of the decision.
VictimView = _core.VictimView

#: Function that returns the block of `view.full_blocks` to collect, or None to collect no block.
VictimPolicy = Callable[[VictimView], int | None]


def _of_jobs(default: str | int, what: str, metavar: str) -> Option:
    """Declare an option that replaces the one of the same name in a fio job file, unless it has its default."""
    about = f"{what} of a fio job file, in place of the value in the file{'' if default == '' else '; 0 keeps it'}."
    least = None if default == "" else 0
    return Option(default, about, least=least, metavar=metavar, panel="Job file", advanced=True, stored="set")


class OptionsOfAnyLayers(ReplayOptions, total=False):
    """The options of a run except its layers; `compare` accepts layers in another form."""

    passes: Annotated[
        int,
        Option(
            1,
            "Number of passes over the trace, 1 or more.",
            least=1,
            bits=32,
            metavar="N",
            advanced=True,
            stored="results",
        ),
    ]
    images: Annotated[
        str | PathLike[str] | None,
        Option(None, "Folder for storing preconditioned devices.", metavar="DIR", advanced=True, stored="never"),
    ]
    images_limit: Annotated[
        int | None,
        Option(
            None,
            "Maximum size of the folder `images` in bytes: the least recently used devices are removed.",
            least=0,
            option=None,
            stored="never",
        ),
    ]
    second: Annotated[
        Device | str | None,
        Option(
            None,
            "Second device of the run, for layers with second_device=true.",
            option="--device2",
            completes="device_names",
            metavar="PRESET|FILE",
            panel="Layers",
            advanced=True,
            stored="layers",
        ),
    ]
    rw: Annotated[str, _of_jobs("", "Access pattern, for example randread, of all jobs", "PATTERN")]
    bs: Annotated[str, _of_jobs("", "Block size, for example 4k, of all jobs", "SIZE")]
    iodepth: Annotated[int, _of_jobs(0, "Queue depth of all jobs", "N")]
    numjobs: Annotated[int, _of_jobs(0, "Number of copies of all jobs", "N")]
    fio_host: Annotated[
        str,
        Option(
            "phone-2020",
            "Host whose processor issues the requests of a fio job file: a preset (`emmclab apps`), a TOML file, or "
            "none, for which issuing takes no time.",
            metavar="HOST|FILE",
            panel="Job file",
            advanced=True,
            stored="set",
        ),
    ]
    victim: Annotated[
        VictimPolicy | None,
        Option(
            None,
            "Function that chooses the blocks that garbage collection empties during the run, in place of "
            "`gc.policy`: it takes a `VictimView` and returns one of its full blocks, or None. It is called "
            "for each victim, which is slow.",
            option=None,
        ),
    ]
    over_time: Annotated[
        bool | str | float,
        Option(
            False,
            "Add requests, response times and the work of the device over time to the result: in at most 256 "
            "bins, or in bins of a width such as `1s` or a number of seconds.",
            option=None,
            stored="never",
        ),
    ]
    events: Annotated[
        str | PathLike[str] | None,
        Option(
            None,
            "Output file: one row per request (times, waits by cause), as Parquet.",
            metavar="FILE",
            panel=None,
            stored="never",
        ),
    ]
    perfetto: Annotated[
        str | PathLike[str] | None,
        Option(
            None,
            "Output file: a picture of the run for ui.perfetto.dev; ends in .pftrace or .pftrace.gz.",
            panel=None,
            writes=True,
            advanced=True,
            stored="never",
        ),
    ]
    progress: Annotated[
        SimulationProgress | None,
        Option(None, "Function that is called after each batch of requests.", option=None, stored="never"),
    ]
    provenance: Annotated[
        bool,
        Option(
            True,
            "Record the provenance of the result. This takes as long as the simulation of some hundred "
            "requests, so a study records it only once.",
            option=None,
            stored="never",
        ),
    ]


class LayersOfRun(TypedDict, total=False):
    """The options of a run for the layers above the device."""

    layers: Annotated[
        Names,
        Option(
            (),
            "Host software above the device (`emmclab layers`). Repeatable: each further layer is below the "
            "one before. Settings: --set NAME.KEY=VALUE.",
            option="--layer",
            completes="layer_names",
            metavar="NAME",
            panel="Layers",
            advanced=True,
            stored="layers",
        ),
    ]
    layer_settings: Annotated[
        Mapping[str, Setting] | None,
        Option(
            None, "Settings of the layers, for example `advil.reserved`.", panel="Layers", option=None, stored="layers"
        ),
    ]


class RunOptions(OptionsOfAnyLayers, LayersOfRun, total=False):
    """The options of `Device.simulate`; omitted options have their defaults."""


#: Declarations of all run options by name: options of the core, of the layers, and others.
RUN_OPTIONS: Mapping[str, Option] = {
    **declarations(ReplayOptions),
    "passes": declarations(OptionsOfAnyLayers, Device=Any)["passes"],
    **declarations(LayersOfRun),
    **declarations(OptionsOfAnyLayers, Device=Any),
}

#: Default value of each run option, by name.
DEFAULTS: Mapping[str, Any] = {name: option.default for name, option in RUN_OPTIONS.items()}

RunOptions.__doc__ = f"{RunOptions.__doc__}\n\n{attributes(RUN_OPTIONS)}"


def check(name: str, value: Any) -> None:
    """Reject a value outside the range of an option, or one that is not among its words.

    >>> check("mode", "fast")
    Traceback (most recent call last):
    ...
    emmclab.errors.ConfigError: `mode` cannot be 'fast'
    """
    option = RUN_OPTIONS[name]
    if isinstance(value, int) and value >> option.bits > 0:
        hint = f"give a number of at most {(1 << option.bits) - 1}"
        raise ConfigError(f"`{name}` cannot be {value}", field=name, hint=hint)
    if option.words:
        is_right = value in option.words
    elif value is None or option.least is None:
        is_right = True
    else:
        is_right = value >= option.least and (option.most is None or value <= option.most)
    if not is_right:
        which = "one of: " if option.words else ""
        message = f"`{name}` cannot be {value!r}"
        raise ConfigError(message, field=name, hint=f"give {which}{option.range}")


def complete_options(options: RunOptions) -> dict[str, Any]:
    """Return all options; omitted options have their defaults.

    >>> complete_options({"rate": 2})["rate"], complete_options({"mode": None})["mode"]
    (2, 'auto')
    """
    values = complete(RUN_OPTIONS, options, "a run")
    values["mode"] = values["mode"] or DEFAULTS["mode"]
    values["layer_settings"] = dict(values["layer_settings"] or {})
    for name, value in values.items():
        check(name, value)
    if values["mode"] == "back_to_back" and values["rate"] != DEFAULTS["rate"]:
        raise ConfigError(
            "`rate` has no effect in the mode back_to_back: each request arrives when the previous one is complete",
            field="rate",
            hint="leave out `rate`, or replay at the recorded arrivals (--mode open)",
        )
    return values


def stored_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options of a run that its result stores; `options` contains all options of the run.

    >>> options = complete_options({"flush_every": 8, "layers": ("pass-through",)})
    >>> {name: value for name, value in stored_options(options).items() if name in ("flush_every", "layers")}
    {'flush_every': 8, 'layers': ['pass-through']}
    """
    return {
        name.removesuffix("_ns"): _storable(options[name])
        for name, option in RUN_OPTIONS.items()
        if option.stored in ("always", "results")
        or (option.stored == "set" and options[name] != option.default)
        or (option.stored == "layers" and options["layers"])
    }


def _storable(value: Any) -> Any:
    """Return the JSON form of a value: for a device or a function its name."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return list(value)
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return value if isinstance(value, (str, int, float, type(None))) else value.name


#: Word between a way to precondition a device and the trace that is replayed on it afterwards.
_THEN = " then "


class Preconditioning(NamedTuple):
    """What a device contains before a run: the result of a way to precondition it, and then of a trace, if any."""

    way: _core.Precondition
    trace: str | None = None

    @property
    def text(self) -> str:
        """The complete form of the option."""
        if self.trace is None:
            return self.way.text
        return self.trace if self.way.text == "none" else f"{self.way.text}{_THEN}{self.trace}"


def split_precondition(text: str) -> tuple[str, str]:
    """Split a preconditioning before the trace that it may name.

    >>> split_precondition("used:1y then app.csv"), split_precondition("app.csv"), split_precondition("none")
    (('used:1y then ', 'app.csv'), ('', 'app.csv'), ('', 'none'))
    """
    way, then, trace = text.rpartition(_THEN)
    return way + then, trace


def parse_precondition(text: str) -> Preconditioning:
    """Parse `none`, `sequential:90`, `random:90`, `steady:4`, `used:1y`, a trace, or `WAY then TRACE`.

    >>> parse_precondition("random:80").text, parse_precondition("steady").text
    ('random:80', 'steady:4')
    >>> parse_precondition("used:1y,daily=10GB").text
    'used:365d,daily=10GB,filled=75,random=12,trim=yes'
    """
    before, last = split_precondition(text)
    try:
        return Preconditioning(_core.Precondition(text))
    except ConfigError:
        if not os.path.exists(last):  # noqa: PTH110 - `Path.exists` fails for a text that is too long for a name
            if before:
                raise ConfigError(
                    f"`{last}` is not a trace", field="precondition", hint=f"name a file after `{_THEN.strip()}`"
                ) from None
            raise
    return Preconditioning(_core.Precondition(before.removesuffix(_THEN) or "none"), last)


def no_trace(text: str, device: str) -> _core.Precondition:
    """Parse a preconditioning that must not be a trace; `device` names the device in the error message."""
    parsed = parse_precondition(text)
    if parsed.trace is not None:
        raise ConfigError(
            f"{device} cannot be preconditioned by a trace",
            field="precondition",
            hint="precondition with none, sequential:PCT, random:PCT, steady[:CAPACITIES] or used:AGE",
        )
    return parsed.way
