"""Runs of traces on several devices, and their comparison in notebooks."""

from collections.abc import Mapping, Sequence
from typing import Unpack

from emmclab.comparison.comparison_tables import comparison_tables
from emmclab.comparison.seed_statistics import comparison_headlines
from emmclab.runtime.lists import Names
from emmclab.runtime.notebook import heading_html, table_html
from emmclab.simulation.device import Device
from emmclab.simulation.layers import Setting, settings_of, stack, stacks
from emmclab.simulation.result import Result
from emmclab.simulation.run_options import OptionsOfAnyLayers
from emmclab.traces.trace import Trace


class ComparedRuns(list[Result]):
    """The results of `compare`; a notebook shows their comparison."""

    def _repr_html_(self) -> str:
        headings = [heading_html("", line) for line in (comparison_headlines(self) if self else ())]
        return "".join([*headings, *map(table_html, comparison_tables(self))])


def compare(
    traces: Sequence[Trace],
    devices: Sequence[Device],
    *,
    layers: Names = ("none",),
    layer_settings: Mapping[str, Setting] | None = None,
    **options: Unpack[OptionsOfAnyLayers],
) -> ComparedRuns:
    """Simulate every trace on every device under every stack of layers; results are ordered by trace, then device.

    Args:
        traces: the workloads.
        devices: the devices.
        layers: stacks, each as text: `none`, or names with `+` between them, the first on top; or one text with commas
            between stacks.
        layer_settings: settings of layers; a stack gets those of its layers.
        options: those of `Device.simulate`.

    Raises:
        ConfigError: a stack or option is impossible, or a setting belongs to no layer of any stack.

    >>> import emmclab
    >>> trace = emmclab.read(emmclab.bundled()[0])
    >>> devices = [Device.preset(name) for name in ("iiswc15-4ps", "iiswc15-hps")]
    >>> [result.device for result in compare([trace], devices)]
    ['iiswc15-4ps', 'iiswc15-hps']
    >>> [result.run_name for result in compare([trace], devices[:1], layers=["none", "pass-through"])]
    ['iiswc15-4ps', 'iiswc15-4ps under pass-through']
    """
    chosen, settings = stacks(layers), dict(layer_settings or {})
    # Validate all layer names and settings before the first run.
    stack([name for names in chosen for name in names], settings)
    return ComparedRuns(
        device.simulate(trace, layers=names, layer_settings=settings_of(names, settings), **options)
        for trace in traces
        for device in devices
        for names in chosen
    )
