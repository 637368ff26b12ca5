"""Checks the charts of a page against the JSON Schema of Vega-Lite, which altair contains."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import altair
import jsonschema

from emmclab.pages.plots import Chart

#: The data of a page: its charts and their rows.
DATA = re.compile(r'<script id="page-data" type="application/json">(.*?)</script>', re.DOTALL)


@cache
def _schema() -> Any:
    path = Path(altair.__file__).parent / "vegalite" / "v6" / "schema" / "vega-lite-schema.json"
    return jsonschema.Draft7Validator(json.loads(path.read_text()))


def faults_of(spec: Chart) -> list[str]:
    """Return the faults of a chart, which is a Vega-Lite specification."""
    return [f"{'.'.join(map(str, fault.path))}: {fault.message}" for fault in _schema().iter_errors(spec)]


def invalid_charts(page: Path) -> dict[str, list[str]]:
    """Return the invalid charts of a page by name, each with its faults.

    Raises:
        AssertionError: the page has no charts.
    """
    match = DATA.search(page.read_text())
    assert match is not None
    charts = {name: spec["vega"] for name, spec in json.loads(match[1])["specs"].items()}
    assert charts
    return {name: faults for name, spec in charts.items() if (faults := faults_of(spec))}
