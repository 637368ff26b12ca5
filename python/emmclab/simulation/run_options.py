"""The options of a simulated run. Each is declared once here: name, type, default, range and meaning.

`Device.simulate` accepts them as keywords, commands as options (`cli.simulation`), grids of studies as keys
(`studies.grid`), and results repeat them; the reference and `emmclab explain` describe them from here. The
core declares those that it implements again in Rust (`ReplayOptions`); a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.runtime.lists import Names, several
from emmclab.runtime.option import Option, attributes, complete, declarations
from emmclab.simulation.layers import Setting

if TYPE_CHECKING:
    from emmclab.simulation.device import Device

#: Called after each batch: bytes read, bytes in all (None = unknown), requests, simulated seconds so far.
SimulationProgress = Callable[[int, int | None, int, float], None]

#: Input of a victim policy: the full blocks of one block group in one plane at the time of the decision.
VictimView = _core.VictimView

#: Returns the block of `view.full_blocks` to collect; None to collect none.
VictimPolicy = Callable[[VictimView], int | None]


class OptionsOfAnyLayers(TypedDict, total=False):
    """The options of a run except its layers, which `compare` accepts in another form."""

    mode: Annotated[
        str | None,
        Option(
            "auto",
            "Open loop keeps arrival times, closed loop keeps think times, back to back has no pauses; "
            "auto: closed if completions are recorded, otherwise open.",
            words=("auto", "open", "closed", "back_to_back"),
            advanced=True,
        ),
    ]
    precondition: Annotated[
        str,
        Option(
            "none",
            "Data before the run: none, sequential:PCT, random:PCT, steady[:CAPACITIES], used:AGE, "
            "or a trace.",
            metavar="WHAT",
        ),
    ]
    rate: Annotated[
        float,
        Option(
            1.0,
            "Factor on the rate of arrivals, above 0; 2 halves the times between them.",
            least=1e-6,
            most=1e6,
            metavar="FACTOR",
            advanced=True,
        ),
    ]
    start_offset_ns: Annotated[
        int, Option(0, "Time of the first arrival on the simulated clock, in ns.", least=0, option=None)
    ]
    passes: Annotated[
        int, Option(1, "Number of passes over the trace, 1 or more.", least=1, bits=32, advanced=True)
    ]
    flush_every: Annotated[
        int,
        Option(
            0,
            "Writes between two flushes that are added to those of the trace, for traces that record none; "
            "0 adds no flush.",
            least=0,
            advanced=True,
        ),
    ]
    wrap_addresses: Annotated[
        bool,
        Option(
            False,
            "Wrap addresses beyond the device (modulo its capacity); else such a trace is refused.",
            advanced=True,
        ),
    ]
    seed: Annotated[
        int,
        Option(
            1,
            "Seed of all random choices: preconditioning, wake-up times, victims of garbage collection.",
            least=0,
            advanced=True,
        ),
    ]
    check: Annotated[
        bool,
        Option(False, "Check all invariants and contents against a reference model (slow).", advanced=True),
    ]
    images: Annotated[
        str | PathLike[str] | None,
        Option(None, "Folder of preconditioned devices, for reuse.", metavar="DIR", advanced=True),
    ]
    images_limit: Annotated[
        int | None,
        Option(
            None,
            "Maximum size of the folder `images` in bytes: the least recently used devices are removed.",
            least=0,
            option=None,
        ),
    ]
    second: Annotated[
        Device | str | None,
        Option(
            None,
            "Second device, for layers with second_device=true.",
            option="--device2",
            completes="device_names",
            metavar="PRESET|FILE",
            panel="Layers",
            advanced=True,
        ),
    ]
    first_writes: Annotated[
        int,
        Option(
            0,
            "Number of writes to the device, from the first, that the result lists; needs layers.",
            least=0,
            panel="Layers",
            option=None,
        ),
    ]
    drain: Annotated[
        bool,
        Option(
            False,
            "After the last request, let the layers move all deferred data to its place, and measure this.",
            panel="Layers",
            advanced=True,
        ),
    ]
    victim: Annotated[
        VictimPolicy | None,
        Option(
            None,
            "Function that chooses the blocks that garbage collection empties during the run, in place of "
            "`gc.policy`: it takes a `VictimView` and returns one of its full blocks, or None. It is called "
            "for each victim and trusted, and is slow.",
            option=None,
        ),
    ]
    percentiles: Annotated[
        Iterable[float] | str | None,
        Option(
            None,
            "Percentiles of response times instead of the usual ones, above 0 "
            "to 100, for example 50,90,99,99.9; "
            "within 0.1 %.",
            metavar="P,P,...",
            panel=None,
            advanced=True,
        ),
    ]
    distribution: Annotated[
        bool,
        Option(
            False,
            "Add the distribution of response times to the result (`response_distribution`).",
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
        ),
    ]
    events: Annotated[
        str | PathLike[str] | None,
        Option(None, "Output file: one row per request (times, waits by cause), as Parquet.", panel=None),
    ]
    perfetto: Annotated[
        str | PathLike[str] | None,
        Option(
            None,
            "Output file: a picture of the run for ui.perfetto.dev; ends in .pftrace or .pftrace.gz.",
            panel=None,
            writes=True,
            advanced=True,
        ),
    ]
    progress: Annotated[
        SimulationProgress | None, Option(None, "Function that is called after each batch.", option=None)
    ]
    provenance: Annotated[
        bool,
        Option(
            True,
            "Record in the result how it was made. This takes as long as some hundred requests, so "
            "studies record it once for all their runs.",
            option=None,
        ),
    ]


class RunOptions(OptionsOfAnyLayers, total=False):
    """The options of `Device.simulate`; those that are not given have their defaults."""

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
        ),
    ]
    layer_settings: Annotated[
        Mapping[str, Setting] | None,
        Option(None, "Settings of the layers, for example `advil.reserved`.", panel="Layers", option=None),
    ]


#: The declaration of each option, by name.
RUN_OPTIONS: Mapping[str, Option] = declarations(RunOptions, Device=Any)

#: The default of each option, by name.
DEFAULTS: Mapping[str, Any] = {name: one.default for name, one in RUN_OPTIONS.items()}

RunOptions.__doc__ = f"{RunOptions.__doc__}\n\n{attributes(RUN_OPTIONS)}"


def check(name: str, value: Any) -> None:
    """Reject a value outside the range of an option, or one that is not among its words.

    Raises:
        ConfigError: it is outside its range, or not one of the allowed words.

    >>> check("mode", "fast")
    Traceback (most recent call last):
    ...
    emmclab.errors.ConfigError: `mode` cannot be 'fast'
    """
    one = RUN_OPTIONS[name]
    if isinstance(value, int) and value >> one.bits > 0:
        hint = f"give a number of at most {(1 << one.bits) - 1}"
        raise ConfigError(f"`{name}` cannot be {value}", kind="config", field=name, hint=hint)
    if one.words:
        is_right = value in one.words
    elif value is None or one.least is None:
        is_right = True
    else:
        is_right = value >= one.least and (one.most is None or value <= one.most)
    if not is_right:
        which = "one of: " if one.words else ""
        message = f"`{name}` cannot be {value!r}"
        raise ConfigError(message, kind="config", field=name, hint=f"give {which}{one.range}")


def complete_options(options: RunOptions) -> dict[str, Any]:
    """Return all options; those that are not given have their defaults.

    Raises:
        ConfigError: a value is impossible.
        TypeError: there is no such option.

    >>> complete_options({"rate": 2})["rate"], complete_options({"mode": None})["mode"]
    (2, 'auto')
    """
    found = complete(RUN_OPTIONS, options, "a run")
    found["mode"] = found["mode"] or DEFAULTS["mode"]
    found["layers"] = several(found["layers"])
    for name, value in found.items():
        check(name, value)
    if found["mode"] == "back_to_back" and found["rate"] != DEFAULTS["rate"]:
        raise ConfigError(
            "`rate` has no effect back to back: each request arrives when the one before it is complete",
            kind="config",
            field="rate",
            hint="leave it out, or replay at the recorded arrivals (--mode open)",
        )
    return found
