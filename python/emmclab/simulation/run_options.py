"""The options of a simulated run. Each is declared once here: name, type, default, range and meaning.

`Device.simulate` accepts them as keywords, commands as options (`cli.simulation`), grids of studies as keys
(`studies.grid`), and results repeat them; the reference and `emmclab explain` describe them from here. The
core declares those that it implements again in Rust (`ReplayOptions`); a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, get_type_hints

from emmclab import _core
from emmclab.errors import ConfigError
from emmclab.runtime.lists import Names, several
from emmclab.simulation.layers import Setting

if TYPE_CHECKING:
    from emmclab.simulation.device import Device

#: Called after each batch: bytes read, bytes in all (None = unknown), requests, simulated seconds so far.
SimulationProgress = Callable[[int, int | None, int, float], None]

#: Input of a victim policy: the full blocks of one block group in one plane at the time of the decision.
VictimView = _core.VictimView

#: Returns the block of `view.full_blocks` to collect; None to collect none.
VictimPolicy = Callable[[VictimView], int | None]


@dataclass(frozen=True)
class RunOption:
    """Declaration of an option, besides its name and type.

    Attributes:
        default: its value if it is not given.
        about: one or two sentences on what it does, with its unit.
        name: its name in Python and in studies, which `RUN_OPTIONS` adds.
        words: the allowed values, if they are words.
        least: the minimum value.
        most: the maximum value.
        bits: the size of a whole number in the core, which limits it if there is no `most`.
        option: its name on the command line; empty for its own name, None if no command has it.
        metavar: the placeholder of the value in the help of the command line.
        panel: the panel of the help of commands.
    """

    default: Any
    about: str
    name: str = ""
    words: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    bits: int = 64
    option: str | None = ""
    metavar: str | None = None
    panel: str | None = "Replay"

    @property
    def command_line(self) -> str:
        """Its name on the command line; empty if no command has it.

        >>> RUN_OPTIONS["wrap_addresses"].command_line, RUN_OPTIONS["layers"].command_line
        ('--wrap-addresses', '--layer')
        """
        if self.option is None:
            return ""
        return self.option or f"--{self.name.replace('_', '-')}"

    @property
    def range(self) -> str:
        """The allowed values as text; empty if only the type limits them.

        >>> RUN_OPTIONS["rate"].range, RUN_OPTIONS["passes"].range
        ('0.000001 to 1000000', '1 or more')
        """
        if self.words:
            return ", ".join(self.words)
        if self.least is None:
            return ""
        least = f"{self.least:f}".rstrip("0").rstrip(".")
        return f"{least} or more" if self.most is None else f"{least} to {self.most:.0f}"


class OptionsOfAnyLayers(TypedDict, total=False):
    """The options of a run except its layers, which `compare` accepts in another form."""

    mode: Annotated[
        str | None,
        RunOption(
            "auto",
            "Open loop keeps arrival times, closed loop keeps think times, back to back has no pauses; "
            "auto: closed if completions are recorded, otherwise open.",
            words=("auto", "open", "closed", "back_to_back"),
        ),
    ]
    precondition: Annotated[
        str,
        RunOption(
            "none",
            "Data before the run: none, sequential:PCT, random:PCT, steady[:CAPACITIES], used:AGE, "
            "or a trace.",
            metavar="WHAT",
        ),
    ]
    rate: Annotated[
        float,
        RunOption(
            1.0,
            "Factor on the rate of arrivals, above 0; 2 halves the times between them.",
            least=1e-6,
            most=1e6,
            metavar="FACTOR",
        ),
    ]
    start_offset_ns: Annotated[
        int, RunOption(0, "Time of the first arrival on the simulated clock, in ns.", least=0, option=None)
    ]
    passes: Annotated[
        int, RunOption(1, "Number of passes over the trace, 1 or more.", least=1, bits=32, metavar="N")
    ]
    flush_every: Annotated[
        int,
        RunOption(
            0,
            "Writes between two flushes that are added to those of the trace, for traces that record none; "
            "0 adds no flush.",
            least=0,
            metavar="N",
        ),
    ]
    wrap_addresses: Annotated[
        bool,
        RunOption(
            False, "Wrap addresses beyond the device (modulo its capacity); else such a trace is refused."
        ),
    ]
    seed: Annotated[
        int,
        RunOption(
            1,
            "Seed of all random choices: preconditioning, wake-up times, victims of garbage collection.",
            least=0,
            metavar="N",
        ),
    ]
    check: Annotated[
        bool, RunOption(False, "Check all invariants and contents against a reference model (slow).")
    ]
    images: Annotated[
        str | PathLike[str] | None,
        RunOption(None, "Folder of preconditioned devices, for reuse.", metavar="DIR"),
    ]
    images_limit: Annotated[
        int | None,
        RunOption(
            None,
            "Maximum size of the folder `images` in bytes: the least recently used devices are removed.",
            least=0,
            option=None,
        ),
    ]
    second: Annotated[
        Device | str | None,
        RunOption(
            None,
            "Second device, for layers with second_device=true.",
            option="--device2",
            metavar="PRESET|FILE",
            panel="Layers",
        ),
    ]
    first_writes: Annotated[
        int,
        RunOption(
            0,
            "Number of writes to the device, from the first, that the result lists; needs layers.",
            least=0,
            panel="Layers",
            option=None,
        ),
    ]
    drain: Annotated[
        bool,
        RunOption(
            False,
            "After the last request, let the layers move all deferred data to its place, and measure this.",
            panel="Layers",
        ),
    ]
    victim: Annotated[
        VictimPolicy | None,
        RunOption(
            None,
            "Function that chooses the blocks that garbage collection empties during the run, in place of "
            "`gc.policy`: it takes a `VictimView` and returns one of its full blocks, or None. It is called "
            "for each victim and trusted, and is slow.",
            option=None,
        ),
    ]
    percentiles: Annotated[
        Iterable[float] | str | None,
        RunOption(
            None,
            "Percentiles of response times instead of the usual ones, above 0 "
            "to 100, for example 50,90,99,99.9; "
            "within 0.1 %.",
            metavar="P,P,...",
            panel=None,
        ),
    ]
    distribution: Annotated[
        bool,
        RunOption(
            False,
            "Add the distribution of response times to the result (`response_distribution`).",
            option=None,
        ),
    ]
    over_time: Annotated[
        bool | str | float,
        RunOption(
            False,
            "Add requests, response times and the work of the device over time to the result: in at most 256 "
            "bins, or in bins of a width such as `1s` or a number of seconds.",
            option=None,
        ),
    ]
    events: Annotated[
        str | PathLike[str] | None,
        RunOption(
            None,
            "Output file: one row per request (times, waits by cause), as Parquet.",
            metavar="FILE",
            panel=None,
        ),
    ]
    perfetto: Annotated[
        str | PathLike[str] | None,
        RunOption(
            None,
            "Output file: a picture of the run for ui.perfetto.dev; ends in .pftrace or .pftrace.gz.",
            metavar="FILE",
            panel=None,
        ),
    ]
    progress: Annotated[
        SimulationProgress | None, RunOption(None, "Function that is called after each batch.", option=None)
    ]
    provenance: Annotated[
        bool,
        RunOption(
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
        RunOption(
            (),
            "Host software above the device (`emmclab layers`). Repeatable: each further layer is below the "
            "one before. Settings: --set NAME.KEY=VALUE.",
            option="--layer",
            metavar="NAME",
            panel="Layers",
        ),
    ]
    layer_settings: Annotated[
        Mapping[str, Setting] | None,
        RunOption(None, "Settings of the layers, for example `advil.reserved`.", panel="Layers", option=None),
    ]


def _declared() -> dict[str, RunOption]:
    hints = get_type_hints(RunOptions, localns={"Device": Any}, include_extras=True)
    return {name: replace(hint.__metadata__[0], name=name) for name, hint in hints.items()}


#: The declaration of each option, by name.
RUN_OPTIONS: Mapping[str, RunOption] = _declared()

#: The default of each option, by name.
DEFAULTS: Mapping[str, Any] = {name: one.default for name, one in RUN_OPTIONS.items()}

RunOptions.__doc__ = "\n".join(
    [
        f"{RunOptions.__doc__}\n\nAttributes:",
        *(f"    {name}: {one.about} Default: {one.default!r}." for name, one in RUN_OPTIONS.items()),
    ]
)


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
    if unknown := sorted(options.keys() - RUN_OPTIONS.keys()):
        raise TypeError(f"there is no option {unknown[0]!r} of a run; there are: {', '.join(RUN_OPTIONS)}")
    found: dict[str, Any] = {**DEFAULTS, **options}
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
