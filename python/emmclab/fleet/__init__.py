"""Fleets: many recordings as one table, summarised and compared.

A fleet is a folder or bucket of recordings. Its table has a row for each recording: every number of its profile.
"""

from emmclab.fleet.run import Counts, profile_fleet
from emmclab.fleet.summary import Comparison, Summary, compare, summarise
from emmclab.fleet.table import Table

__all__ = ["Comparison", "Counts", "Summary", "Table", "compare", "profile_fleet", "summarise"]
