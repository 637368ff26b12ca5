"""The fields of a result: path, unit, meaning, SQL column, and format of figures."""

import functools
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from emmclab.runtime.document import Column, Number, significant

#: File with the result fields of the core, which `make generate` writes from the structs of `crates/replay/src/result`.
_FILE = Path(__file__).parents[1] / "data" / "result-fields.json"
#: Display units for bytes. TB is that of lifetimes, which is decimal in data sheets (TBW).
_BYTES = {"MB": 1 << 20, "TB": 10**12}
#: Display units that differ from the stored units; empty if the label already contains the unit.
_SHOWN_AS = {"byte": "MB", "block": "", "map unit": ""}
#: Unit and decimals of a count of a layer, by the suffix of the count's name.
_COUNTS = {"_bytes": ("byte", 1), "_ms": ("ms", 3), "_pct": ("%", 0)}
#: Significant digits of a figure in a sentence.
_IN_WORDS = 2
#: Minimum number of significant digits of compared figures, and maximum number of digits added to tell them apart.
_SIGNIFICANT, _MOST_DIGITS = 3, 9


class ResultField(NamedTuple):
    """A field of a result; `path` contains the names of its groups, for example `response.read.p99_ms`."""

    path: str
    unit: str
    about: str
    #: Column of the figure in the SQL table `runs`.
    column: str = ""
    #: Label of the figure in texts and tables (`label`), and a shorter one for narrow table columns (`short`).
    label: str = ""
    short: str = ""
    #: Number of decimals with which the figure is displayed.
    digits: int = 0
    #: Which values are better: `lower` or `higher`; empty if neither is.
    better: str = ""
    #: Unit in which the figure is displayed; empty if it is the usual one for the stored unit.
    shown_in: str = ""

    @property
    def display_unit(self) -> str:
        """The unit in which the figure is displayed: MB for bytes; empty if the label contains the unit."""
        return self.shown_in or _SHOWN_AS.get(self.unit, self.unit)

    @property
    def name(self) -> str:
        """The label for use inside a sentence.

        >>> result_field("response.mean_response_ms").name, result_field("response.p99_ms").name
        ('mean response', 'p99 response')
        """
        return self.label[:1].lower() + self.label[1:]

    @property
    def head(self) -> str:
        r"""The header of a narrow column: the short label above the unit, in two lines.

        >>> result_field("response.mean_response_ms").head, result_field("space.space_utilisation").head
        ('Mean\nms', 'Space\nutil.')
        """
        return self.heading.head

    @property
    def heading(self) -> Column:
        """The figure's heading for a column of a table."""
        label, unit = self.short or self.label, self.display_unit
        short = label if unit else label.replace(" ", "\n", 1) if " " in label else f"{label}\n"
        return Column(self.label, unit, short)

    def cell(self, value: float | None) -> Number:
        """Return the figure as a cell of a table."""
        return Number(self.text(value), value)

    @property
    def axis(self) -> str:
        """The title of an axis: the label and the unit.

        >>> result_field("response.mean_response_ms").axis, result_field("write_amplification.waf").axis
        ('mean response, ms', 'write amplification')
        """
        return f"{self.name}, {self.display_unit}" if self.display_unit else self.name

    def text(self, value: float | None) -> str:
        """Format the figure with its decimals; a dash if it is unknown.

        >>> result_field("response.p99_ms").text(1234.5), result_field("response.p99_ms").text(None)
        ('1,234.500', '–')
        >>> [result_field("wear.lifetime.even_host_bytes").text(value) for value in (5e12, 1.77e9, 0)]
        ['5.00', '0.002', '0.00']
        """
        return "–" if value is None else self._number(value, self.digits)

    def in_words(self, value: float) -> str:
        """Format a figure for a sentence, rounded and with its unit; tables show all digits.

        >>> result_field("response.p99_ms").in_words(1234.5678)
        '1,234.57 ms'
        >>> result_field("write_amplification.waf").in_words(1.2345)
        '1.234'
        """
        return f"{self.rounded(value)} {self.display_unit}".strip()

    def compared_texts(self, *values: float) -> list[str]:
        """Format figures that are compared in a sentence, with at least three significant digits.

        Digits are added until different figures have different texts.

        >>> result_field("response.p99_ms").compared_texts(0.0661, 0.0684)
        ['0.0661 ms', '0.0684 ms']
        >>> [result_field("response.p99_ms").compared_texts(*pair) for pair in ((26.0, 0.2652), (1, 1))]
        [['26.00 ms', '0.265 ms'], ['1.00 ms', '1.00 ms']]
        """
        numbers = [value / _BYTES[self.display_unit] if self.unit == "byte" else value for value in values]
        for extra in range(_MOST_DIGITS):
            texts = [f"{value:,.{_decimals(value) + extra}f}" for value in numbers]
            if len({*texts}) == len({*numbers}):
                break
        return [f"{text} {self.display_unit}".strip() for text in texts]

    def rounded(self, value: float) -> str:
        """Format a figure for a sentence, without its unit.

        >>> result_field("response.p99_ms").rounded(1234.5678)
        '1,234.57'
        """
        return self._number(value, min(self.digits, _IN_WORDS) if self.display_unit else self.digits)

    def _number(self, value: float, digits: int) -> str:
        """Format a number in the display unit; add decimals if a value other than 0 would be shown as 0."""
        number = value / _BYTES[self.display_unit] if self.unit == "byte" else value
        text = f"{number:,.{digits}f}"
        return text if not number or float(text.replace(",", "")) else significant(number, 1)


def _decimals(value: float) -> int:
    """Return the decimals for comparing a figure: enough for three significant digits, and at least two."""
    return max(_IN_WORDS, _SIGNIFICANT - 1 - math.floor(math.log10(abs(value)))) if value else _IN_WORDS


class ResultGroup(NamedTuple):
    """A group of fields."""

    name: str
    about: str
    fields: tuple[ResultField, ...]


_PROVENANCE = "Origin of the result; results of studies lack it, because their cells share it."
#: Paths and meanings of the result fields that the Python package adds to those of the Rust core.
_OF_PACKAGE = [
    {"path": path, "unit": "", "about": about}
    for path, about in {
        "trace": "name of the trace; several are joined with `+`",
        "options": "the options of the run: mode, rate, seed, preconditioning, ...",
        "provenance.version": "version of emmclab",
        "provenance.inputs": "`name`, `path` and `sha256` (first 16 digits; null without a file) of each "
        "trace, and `reading`: the reading options that differ from the defaults",
        "provenance.aged_by": "as `inputs`, for the trace that preconditioned the device, if any",
        "provenance.settings": "for each device the settings that differ from its preset, by key",
        "provenance.devices": "`name` and all `settings` of each device, the simulated one first",
        "provenance.command": "the command that produces the same result; only for results of commands",
    }.items()
]


@functools.cache
def result_groups() -> tuple[ResultGroup, ...]:
    """Return all fields by group, in the order of the JSON output.

    >>> [group.name for group in result_groups()][2:5]
    ['run', 'requests', 'response']
    """
    groups = [
        ResultGroup(group["name"], group["about"], tuple(map(_field, group["fields"])))
        for group in json.loads(_FILE.read_text(encoding="utf-8"))
    ]
    first, *inner, others = groups
    trace, options, *provenance = map(_field, _OF_PACKAGE)
    return (
        first._replace(fields=(trace, *first.fields)),
        *inner,
        ResultGroup("provenance", _PROVENANCE, tuple(provenance)),
        others._replace(fields=(*others.fields, options)),
    )


def _field(declared: Mapping[str, Any]) -> ResultField:
    return ResultField(**{"column": declared["path"].replace(".", "_"), **declared})


def result_fields() -> list[ResultField]:
    """Return the fields of all groups, in the order of the JSON output."""
    return [field for group in result_groups() for field in group.fields]


@functools.cache
def _by_path() -> dict[str, ResultField]:
    return {field.path: field for field in result_fields()}


@functools.cache
def _by_column() -> dict[str, ResultField]:
    return {field.column: field for field in result_fields() if field.label}


def result_field(path: str) -> ResultField:
    """Return a field by its path.

    Raises:
        KeyError: there is no such field.
    """
    return _by_path()[path]


def shown_fields(paths: tuple[str, ...]) -> tuple[ResultField, ...]:
    """Return the result fields with these paths, in this order, with their labels and formats."""
    fields = tuple(map(result_field, paths))
    if bare := [field.path for field in fields if not field.label]:
        raise KeyError(f"no label is declared for the result fields {', '.join(bare)}")
    return fields


def layer_field(name: str) -> ResultField:
    """Return how to display a count of a layer, derived from its name, which ends with the unit.

    >>> field = layer_field("logged_bytes")
    >>> field.label, field.text(3 << 20), field.display_unit
    ('Logged', '3.0', 'MB')
    """
    end = next((end for end in _COUNTS if name.endswith(end)), "")
    unit, digits = _COUNTS.get(end, ("", 0))
    words = name.removesuffix(end).replace("_", " ")
    return ResultField(f"layers.{name}", unit, "", label=words.capitalize(), digits=digits)


def field_of_column(column: str) -> ResultField | None:
    """Return the figure that a column of the SQL table `runs` contains; None if it is not a displayed figure.

    >>> field_of_column("waf").label
    'Write amplification'
    """
    return _by_column().get(column)
