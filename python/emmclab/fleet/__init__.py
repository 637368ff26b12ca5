"""Fleets: folders or buckets of recordings, which are profiled into one table, summarised and compared.

The table has a row for each recording, with every number of its profile.
"""

from emmclab.fleet.run import Counts, profile_fleet
from emmclab.fleet.summary import FleetComparison, Summary, compare, summarise
from emmclab.fleet.table import Table

__all__ = ["Counts", "FleetComparison", "Summary", "Table", "compare", "profile_fleet", "summarise"]
