"""A row of a table whose columns its results decide, as results, charts and Parquet files have it."""

from __future__ import annotations

from typing import Any

#: Values by column: texts, numbers, booleans and None.
Row = dict[str, Any]
