"""Colours of charts and pages, for light and dark backgrounds."""

from typing import Any

#: Colour of legend symbols for marks of several colours; visible on light and dark backgrounds.
GREY = "#8b8fa0"

#: Colours of operations: readable on light and dark backgrounds, and distinguishable by colour-blind readers.
OP_COLOURS = {"read": "#3b7dd8", "write": "#e07b39", "all": "#7d8797"}

#: Colours of the outcomes of power cuts, and of the commands before a cut.
CRASH_COLOURS = {
    "promise broken": "#d1483b",
    "documented loss": "#a58b1f",
    "all states kept": "#2a9d74",
    "acknowledged": "#3b7dd8",
    "missing": "#d1483b",
    "not complete": "#a58b1f",
    "flush, FUA or barrier": "#7b6bd6",
    "complete": "#3b7dd8",
}

#: Colours of verdicts on two fleets; `no difference shown` is grey, because it does not mean that fleets are equal.
VERDICT_COLOURS = {
    "higher": "#e07b39",
    "lower": "#3b7dd8",
    "no difference shown": "#7d8797",
    "too few recordings": "#b9bfc9",
}

#: Colours of thread states; states that the storage device causes are red to yellow.
STATE_COLOURS = {
    "fsync": "#d1483b",
    "read": "#e07b39",
    "writes held back": "#a58b1f",
    "network": "#3b7dd8",
    "running": "#2a9d74",
    "waiting for a core": "#38a3b8",
    "waiting for a thread": "#7b6bd6",
    "pause": "#7d8797",
}

#: Colours of the parts of response time and write amplification; garbage collection is always red.
CAUSE_COLOURS = {
    "queue": "#7d8797",
    "controller": "#38a3b8",
    "bus": "#7b6bd6",
    "array": "#3b7dd8",
    "host": "#3b7dd8",
    "gc": "#d1483b",
    "wear": "#c4528c",
    "refresh": "#e07b39",
    "map": "#2a9d74",
    "wake-up": "#a58b1f",
}

#: Colours of the parts of a wait for fsync; the unexplained part is grey.
FSYNC_COLOURS = {
    "data": "#3b7dd8",
    "commit": "#7b6bd6",
    "flush": "#d1483b",
    "queue": "#e07b39",
    "unexplained": "#7d8797",
}

#: Colours of categories in charts, in the order of their use.
CATEGORIES = ["#3b7dd8", "#e07b39", "#2a9d74", "#c4528c", "#a58b1f", "#7b6bd6", "#38a3b8", "#b5533c"]
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def _config(text: str, quiet: str, line: str, ramp: list[str]) -> dict[str, Any]:
    return {
        "background": "transparent",
        "font": _FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": quiet,
            "titleColor": text,
            "gridColor": line,
            "domainColor": line,
            "tickColor": line,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": 500,
        },
        "axisX": {"grid": False, "labelOverlap": True, "labelFlush": True},
        "legend": {
            "labelColor": text,
            "titleColor": quiet,
            "orient": "top",
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": 500,
            "labelLimit": 140,
            "gradientLength": 120,
        },
        "range": {"category": CATEGORIES, "heatmap": ramp, "ordinal": {"scheme": "viridis"}, "ramp": ramp},
        "bar": {"color": CATEGORIES[0]},
        "rect": {"color": CATEGORIES[0]},
        "line": {"strokeWidth": 2},
    }


_RAMP = ["#cfe1f7", "#8fbbe8", "#4d90d6", "#2a66ad", "#1d4a80", "#132f54"]

#: Vega configuration for a light background.
LIGHT = _config("#1d2433", "#596273", "#dfe3ea", _RAMP)
#: Vega configuration for a dark background.
DARK = _config("#e6e9ef", "#a3adbd", "#333c4b", ["#20405f", "#2a5f92", "#3b82c4", "#6aa9de", "#a3cdf0", "#dceefc"])
