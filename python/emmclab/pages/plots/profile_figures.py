"""All figures of a profile, in the order of the page."""

from __future__ import annotations

from emmclab.pages.plots import addresses, distributions, over_time, requesters
from emmclab.pages.plots.figure import Figure

FIGURES = (
    Figure(
        "throughput_by_size",
        "Figure 3: throughput by request size",
        "Total data divided by total service time, by range of sizes. The published axis ends at 16 MB.",
        distributions.throughput_by_size,
        paper=True,
        needs="high_kb",
    ),
    Figure(
        "size_distribution",
        "Figure 4: request sizes",
        "Share of requests by size.",
        distributions.size_distribution,
        paper=True,
    ),
    Figure(
        "response_distribution",
        "Figure 5: response times",
        "From arrival to completion.",
        distributions.response_distribution,
        paper=True,
    ),
    Figure(
        "response_by_size",
        "Response times by request size",
        "Median, and 10th to 90th percentile: upper edges of ranges a quarter of an octave wide.",
        distributions.response_by_size,
        needs="high_kb",
    ),
    Figure(
        "inter_arrival_distribution",
        "Figure 6: inter-arrival times",
        "From one arrival to the next.",
        distributions.inter_arrival_distribution,
        paper=True,
    ),
    Figure(
        "io_over_time",
        "I/O over time",
        "Data read and written in equal steps of time.",
        over_time.io_over_time,
        each=True,
        wide=True,
    ),
    Figure(
        "iops_over_time",
        "IOPS over time",
        "Reads and writes per second.",
        over_time.iops_over_time,
        each=True,
        wide=True,
        source="io_over_time",
        fields=("time_s", "width_s", "reads", "writes"),
    ),
    Figure(
        "response_over_time",
        "Response times over time",
        "Mean and 99th percentile (at most 3 % too high) of the requests that arrive in a step.",
        over_time.response_over_time,
        each=True,
        wide=True,
        needs="response_mean_ms",
        source="io_over_time",
        fields=("time_s", "width_s", "response_mean_ms", "response_p99_ms", "response_max_ms"),
    ),
    Figure(
        "address_time",
        "Addresses over time",
        "Start addresses of requests; darker cells hold more. Lines are streams, bands are hot regions.",
        over_time.address_time,
        each=True,
        wide=True,
    ),
    Figure(
        "wake_up",
        "Waking up",
        "Delay between fetch and submission (or service time) by the idle gap before it: a step shows the "
        "device's power-saving threshold and the cost of waking.",
        distributions.wake_up,
        each=True,
    ),
    Figure(
        "idle_gaps",
        "Idle time",
        "Idle time by the length of its gaps; garbage collection fits into the long ones.",
        distributions.idle_gaps,
    ),
    Figure(
        "service_distribution",
        "Service times",
        "From fetch by the driver to completion.",
        distributions.service_distribution,
    ),
    Figure("queue_depth", "Queue depth", "Unfinished requests at an arrival; 0 is no-wait.", distributions.queue_depth),
    Figure(
        "queue_depth_over_time",
        "Queue depth over time",
        "At arrivals. Bars: mean. Points: maximum.",
        over_time.queue_depth_over_time,
        each=True,
        wide=True,
    ),
    Figure("working_set", "Working set", "Unique 4 KB pages touched so far.", over_time.working_set),
    Figure(
        "reuse_distance",
        "Hit rate of a buffer",
        "Share of page accesses that hit an LRU buffer of this size, from reuse distances.",
        addresses.reuse_distance,
        needs="high_kb",
    ),
    Figure(
        "hot_pages", "Hot pages", "Share of page accesses to the hottest 1, 5 and 20 % of pages.", addresses.hot_pages
    ),
    Figure(
        "update_interval",
        "Update intervals",
        "Time between two writes of the same 4 KB page.",
        addresses.update_interval,
    ),
    Figure(
        "sequential_runs",
        "Sequential runs",
        "Requests in runs in which each starts where its predecessor ended.",
        distributions.sequential_runs,
    ),
    Figure(
        "alignment",
        "Page size and space",
        "Data over the flash pages it would take, each request padded to whole pages: space utilisation.",
        addresses.alignment,
    ),
    Figure(
        "reissue_by_idle",
        "Requests issued twice",
        "Share of requests that are issued again, by the idle time before them: a step shows when the link "
        "to the device sleeps.",
        distributions.reissue_by_idle,
    ),
    Figure(
        "sync_stalls",
        "Waits for durability",
        "The longest waits of processes in fsync, fdatasync and msync, at most 256; lines from start to end.",
        requesters.sync_stalls,
        each=True,
        wide=True,
    ),
    Figure(
        "fsync_parts",
        "Where the longest waits for durability go",
        "Parts of the longest waits in fsync, at most 24; the longest first.",
        requesters.fsync_parts,
        each=True,
        wide=True,
        optional=True,
    ),
    Figure(
        "process_share",
        "Processes",
        "Data read and written by the twelve most active processes.",
        requesters.process_share,
        each=True,
    ),
    Figure("flags", "Flags and flushes", "Requests with a flag, and flush requests.", requesters.flags, needs="pct"),
)
