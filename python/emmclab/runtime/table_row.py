"""The type of a row in tables of results, charts and Parquet files, whose columns depend on the results."""

from typing import Any

#: Values by column: texts, numbers, booleans and None.
Row = dict[str, Any]
