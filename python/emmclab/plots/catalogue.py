"""Every figure of a profile, in the order of the page."""

from __future__ import annotations

from emmclab.plots import distributions, over_time, pages, requesters
from emmclab.plots.figure import Figure

FIGURES = (
    Figure(
        "throughput_by_size",
        "Figure 3: throughput by request size",
        "All data over all service time of the requests in a range. The published axis ends at 16 MB.",
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
        "Delay between fetch and submission (or the service time) by the idle gap before: a step shows the "
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
    Figure(
        "queue_depth",
        "Queue depth",
        "Unfinished requests at an arrival; 0 is no-wait.",
        distributions.queue_depth,
    ),
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
        pages.reuse_distance,
        needs="high_kb",
    ),
    Figure(
        "miss_ratio",
        "Miss ratio of caches",
        "Share of touches of 4 KB pages that miss, by size and replacement policy.",
        pages.miss_ratio,
        wide=True,
        optional=True,
    ),
    Figure("hot_pages", "Hot pages", "How much goes to the hottest 1, 5 and 20 % of pages.", pages.hot_pages),
    Figure(
        "update_interval",
        "Update intervals",
        "Time between two writes of the same 4 KB page.",
        pages.update_interval,
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
        pages.alignment,
    ),
    Figure(
        "reissue_by_idle",
        "Requests issued twice",
        "Share of requests that are issued again, by the time without requests before: a step shows when the "
        "link to the device sleeps.",
        distributions.reissue_by_idle,
    ),
    Figure(
        "process_share",
        "Processes",
        "Data read and written by the twelve most active processes.",
        requesters.process_share,
        each=True,
    ),
    Figure("flags", "Flags and flushes", "Requests with a flag, and flush requests.", requesters.flags),
)
