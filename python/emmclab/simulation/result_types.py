"""Types of the groups of a result, so that mypy finds a key that no result has.

The structs of `crates/replay/src/result` have the same fields. `data/result-fields.toml` gives the unit and
the meaning of each.
"""

from __future__ import annotations

from typing import Any, Generic, NotRequired, TypedDict, TypeVar

from emmclab.simulation.over_time_types import RunBin
from emmclab.simulation.result_options import ResultOptions
from emmclab.traces.provenance_types import ProvenanceFields

T = TypeVar("T")


class ByOperation(TypedDict, Generic[T]):
    """Figures of all requests, of reads and of writes."""

    all: T
    read: T
    write: T


#: Histogram of blocks by a count: `blocks[i]` of them have at least `from[i]`, and less than `from[i + 1]`.
Distribution = TypedDict(
    "Distribution",
    {"min": int, "max": int, "mean": float, "deviation": float, "from": list[int], "blocks": list[int]},
)

#: A change of a setting of a served device: simulated time, key, and values as TOML.
SettingChange = TypedDict("SettingChange", {"at_s": float, "key": str, "from": str, "to": str})


class Refusal(TypedDict):
    """Requests that a device does not accept as they arrived, because they violate a rule."""

    requests: int
    first: str


class Configuration(TypedDict):
    """The most important settings of the device."""

    capacity_bytes: int
    ram_kb: int
    write_buffer_kb: int
    parallelism: str
    mapping_scheme: str
    write_complete: str
    lies: str


class Load(TypedDict):
    """Load of an open loop."""

    offered_pct: float | None
    backlog_s: float
    peak_backlog_s: float
    peak_offered_pct: float | None
    overloaded: bool


class Run(TypedDict):
    """How the workload was replayed, and how the run ended."""

    mode: str
    mode_reason: str | None
    unrecorded: str | None
    coarse_clock: str | None
    load: Load
    stopped: str | None
    simulated_s: float
    throughput_mb_per_s: float
    drain_s: float | None


class Requests(TypedDict):
    """Requests completed."""

    total: int
    read: int
    write: int
    other: int | None
    no_wait_pct: float
    begun_at_once_pct: float
    bytes_read: int
    bytes_written: int
    wrapped_pct: float


class Percentiles(TypedDict):
    """Percentiles of times, ms."""

    p50_ms: float
    p90_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float


class Times(Percentiles):
    """Times of an operation, ms."""

    mean_ms: float


class ResponseTimes(Percentiles):
    """Response times of reads and writes, ms."""

    mean_response_ms: float
    read: Times
    write: Times


class PercentileRow(TypedDict):
    """A requested percentile."""

    op: str
    percentile: float
    response_ms: float


class ResponseRow(TypedDict):
    """A bin of the distribution of response times."""

    op: str
    up_to_ms: float
    requests: int
    cumulative_pct: float


class DurableTimes(Times):
    """Flushes and writes with a guarantee of durability or order."""

    requests: int


class ServiceTimes(Percentiles):
    """Service times of reads and writes, ms."""

    mean_service_ms: float
    read: Times
    write: Times


class WaitTimes(TypedDict):
    """Mean of each part of the response time, ms."""

    queue_ms: float
    controller_ms: float
    bus_ms: float
    array_ms: float
    gc_ms: float
    wake_up_ms: float


class ComparedTime(TypedDict):
    """A recorded and the corresponding simulated time."""

    recorded_ms: float | None
    simulated_ms: float | None
    error_pct: float | None


class ComparedShare(TypedDict):
    """A recorded and the corresponding simulated share."""

    recorded_pct: float | None
    simulated_pct: float | None
    error_points: float | None


class RecordedComparison(TypedDict):
    """Recorded and simulated times of the replayed requests."""

    response: ByOperation[ComparedTime]
    response_p99: ByOperation[ComparedTime]
    service: ByOperation[ComparedTime]
    no_wait: ByOperation[ComparedShare]
    dependent_pct: float | None


class Space(TypedDict):
    """Use of the flash space by host data."""

    space_utilisation: float
    gain_difference: float
    gain_ratio: NotRequired[float]


class WriteAmplification(TypedDict):
    """Bytes programmed per byte that the host wrote, in total and by cause."""

    waf: float
    host: float
    gc: float
    wear: float
    map: float


class PageOperations(TypedDict):
    """Page operations by cause."""

    total: int
    host: int
    read_modify_write: int
    gc: int
    wear: int
    map: int


class FlashOperations(TypedDict):
    """Page and block operations."""

    page_reads: PageOperations
    page_programs: PageOperations
    block_erases: int


class Utilisation(TypedDict):
    """Share of the simulated time in which each part was busy, %."""

    channels_pct: list[float]
    dies_pct: list[float]
    planes_pct: list[float]


class LogBlockMerges(TypedDict):
    """Merges of log blocks by kind."""

    switch: int
    partial: int
    full: int


class MapCounts(TypedDict):
    """The map from logical to physical addresses."""

    ram_bytes: int
    cache_hit_pct: float | None
    lookups: int
    requests: int
    missed_requests: int
    request_miss_pct: float | None
    prefetched_entries: int
    double_reads: int
    cached_bytes: int | None
    segments: int | None
    segment_units: int | None
    unwritten_unit_reads: int
    unwritten_read_pct: float | None
    discarded_units: int | None
    log_block_merges: LogBlockMerges


class Collection(TypedDict):
    """Garbage collection."""

    blocks: int
    idle_blocks: int
    interruptions: int
    busy_s: float
    idle_busy_s: float
    valid_units: Distribution


class Lifetime(TypedDict):
    """Bytes that the host can write until blocks reach their erase limit."""

    even_host_bytes: float | None
    first_block_host_bytes: float | None
    used_pct: float
    used_slc_pct: float | None


class Wear(TypedDict):
    """Wear of the blocks."""

    moved_blocks: int
    bad_blocks: int
    erase_counts: Distribution
    lifetime: Lifetime | None


class SlcCounts(TypedDict):
    """Blocks in SLC mode."""

    folded_blocks: int


class CacheCounts(TypedDict):
    """Write buffer and read cache."""

    units_written: int
    write_hit_pct: float
    units_read: int
    read_hit_pct: float
    flushes: int | None


class LinkDirection(TypedDict):
    """One direction of the link."""

    bytes: int
    busy_pct: float
    wait_ms: float


class WriteBoosterUse(TypedDict):
    """WriteBooster."""

    size_bytes: int
    bytes_written: int
    bytes_past_it: int
    flushed_blocks: int
    life_used_pct: float | None
    current_size_bytes: int
    bytes_read: int
    read_hit_pct: float
    migrated_bytes: int
    pinned_bytes: int
    flush_needed: int
    pinned_full: int
    grown: int
    shrunk: int


class ZoneUse(TypedDict):
    """Zones that are written in order."""

    count: int
    size_bytes: int
    resets: int
    opened: int
    closed: int
    filled: int
    most_open: int
    most_active: int
    slc_bytes: int
    buffer_conflicts: int
    premature_flushes: int
    premature_bytes: int


class UfsUse(TypedDict):
    """Link, queues, WriteBooster and hibernation of a UFS."""

    lanes: int
    gear: str
    link_mb_per_s: float
    to_device: LinkDirection
    to_host: LinkDirection
    tags: int
    most_in_flight: int
    tag_wait_ms: float
    queues: int
    queue_wait_ms: float
    write_booster: WriteBoosterUse | None
    zones: ZoneUse | None
    map_hints: int
    hibernated_pct: float
    hibernate_exits: int
    hibernate_exit_ms: float


class PowerStates(TypedDict):
    """Time in each power state."""

    active_s: float
    idle_s: float
    asleep_s: float
    waking_s: float
    wake_ups: int


class Energy(TypedDict):
    """Energy, mJ; None if the device has no figures for it."""

    total_mj: float | None
    flash_mj: float | None
    map_mj: float | None
    active_mj: float | None
    idle_mj: float | None
    asleep_mj: float | None
    waking_mj: float | None


class DriverCounts(TypedDict):
    """Flags handled by the host driver."""

    kernel: str
    flushes: int
    barriers: int
    reliable_writes: int
    without_command: int


class HostCounts(TypedDict):
    """Queue of the host above the device."""

    commands: int
    merged: int
    packs: int
    packed_requests: int
    packs_by_entries: list[int]
    largest_command_bytes: int
    driver: DriverCounts | None


class SecondDevice(TypedDict):
    """Counts of the second device."""

    device: str
    host_bytes_read: int
    host_bytes_written: int
    page_programs: int
    block_erases: int
    waf: float
    host: NotRequired[HostCounts]


class Computing(TypedDict):
    """Computing cost of the run."""

    wall_s: float
    page_operations_per_s: float


class DeterministicFields(TypedDict):
    """Fields about the device, by group, that are identical on every computer and in every run."""

    device: str
    configuration: Configuration
    run: Run
    requests: Requests
    response: ResponseTimes
    percentiles: NotRequired[list[PercentileRow]]
    response_distribution: NotRequired[list[ResponseRow]]
    over_time: NotRequired[list[RunBin]]
    service: ServiceTimes
    waits: WaitTimes
    recorded: RecordedComparison
    space: Space
    write_amplification: WriteAmplification
    flash: FlashOperations
    utilisation: Utilisation
    map: MapCounts
    gc: Collection
    wear: Wear
    slc: SlcCounts
    cache: CacheCounts | None
    ufs: NotRequired[UfsUse]
    power: PowerStates
    energy: Energy
    host: HostCounts | None
    #: Number of records of the input by their treatment; `reissued` is None if re-issues cannot be
    #: recognised.
    ledger: dict[str, int | None]
    #: Each with `name`, the times for which it delayed requests, and the counts that the layer declares.
    layers: NotRequired[list[dict[str, Any]]]
    durable: NotRequired[DurableTimes]
    first_writes: NotRequired[list[tuple[int, int]]]
    setting_changes: NotRequired[list[SettingChange]]
    second_device: NotRequired[SecondDevice]
    provenance: NotRequired[ProvenanceFields]


class DeviceFields(DeterministicFields):
    """Fields about the device, by group."""

    computing: Computing


class ResultFields(DeviceFields):
    """Fields of a result, by group, as `emmclab simulate --json` prints them."""

    trace: str
    options: ResultOptions


class StoredFields(DeterministicFields):
    """Fields of a result without the computing cost, as studies store them."""

    trace: str
    options: ResultOptions
