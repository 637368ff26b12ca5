"""Types of what the core returns, by the names of its structs, which describe them.

Written by scripts/generate_types.py (`make generate`).
"""

# fmt: off
# ruff: noqa: D101, E501, E702

from collections.abc import Iterable
from typing import Annotated, Any, TypedDict

from emmclab.runtime.field_mapping import FieldMapping
from emmclab.runtime.option import Option


class ExtCsdField(FieldMapping):
    name: str; byte: int; bytes: int; value: int
class DeviceCapabilities(FieldMapping):
    interface: str; cache_kb: int; sectors: int; cache_in_order: bool; barrier: bool; reliable_write: bool
    packed_writes: int; packed_reads: int; queue_depth: int
class AnnouncedCapabilities(FieldMapping):
    values_: DeviceCapabilities; ext_csd: list[ExtCsdField]
class ThreadStateLane(FieldMapping):
    name: str; states: dict[str, list[int]]
class StatesOverTime(FieldMapping):
    bin_ns: int; lanes: list[ThreadStateLane]
class RequestGroup(FieldMapping):
    requests: int; bytes: int; sequential: int; sequential_bytes: int; device_ns: int; sequential_device_ns: int
class ReadWriteCounts(FieldMapping):
    read: RequestGroup; write: RequestGroup
class FileWrites(FieldMapping):
    name: str; class_: str; requests: int; bytes: int; small: int; sequential: int
class RoleBytes(FieldMapping):
    role: str; bytes: int
class RequestCounts(FieldMapping):
    all: ReadWriteCounts; discards: int; flushes: int; sync_points: int; classes: dict[str, ReadWriteCounts]
    files: list[FileWrites]; causes: dict[str, int]; roles: list[RoleBytes]
class UserWaitPart(FieldMapping):
    state: str; wait: str | None; class_: str | None; partition: str | None; ns: int
class ThreadResult(FieldMapping):
    name: str; alive_ns: int; states: dict[str, int]
class AppResult(FieldMapping):
    program: str; host: str; era: str; network: str; seed: int; what_if: list[str]; runtime_ns: int
    user_waits_for: str; states: dict[str, int]; spent: list[UserWaitPart]; threads: list[ThreadResult]
    cpu_ns: int; kernel_cpu_ns: int | None; network_bytes: int; file_operations: int; file_syncs: int
    requests: RequestCounts | None; over_time: StatesOverTime
class BlockDistribution(FieldMapping):
    min: int; max: int; mean: float; deviation: float; from_: list[int]; blocks: list[int]
class TimeComparison(FieldMapping):
    recorded_ms: float | None; simulated_ms: float | None; error_pct: float | None
class ByOperation(FieldMapping):
    all: TimeComparison; read: TimeComparison; write: TimeComparison
class ShareComparison(FieldMapping):
    recorded_pct: float | None; simulated_pct: float | None; error_points: float | None
class ByOperation2(FieldMapping):
    all: ShareComparison; read: ShareComparison; write: ShareComparison
class CacheCounts(FieldMapping):
    units_written: int; write_hit_pct: float; units_read: int; read_hit_pct: float; flushes: int | None
class DurabilityRow(FieldMapping):
    kind: str; requests: int; median_us: float; setting: str | None
class FittedParameter(FieldMapping):
    name: str; unit: str; value: float | None; low: float | None; high: float | None
class CalibrationSizeRow(FieldMapping):
    op: str; kb: float; requests: int; measured_us: float; predicted_us: float; held_out_requests: int
    held_out_measured_us: float | None; held_out_predicted_us: float | None; held_out_error_pct: float | None
class CalibrationStageRow(FieldMapping):
    after_us: float; longest_before_us: float; shortest_after_us: float; requests: int; median_us: float
class CalibrationStallRow(FieldMapping):
    op: str; requests: int; stalls: int; median_us: float
class Calibration(FieldMapping):
    toml: str; page_kb: list[int]; units: int; figures: list[FittedParameter]; sizes: list[CalibrationSizeRow]
    held_out_request_error_pct: float; held_out_median_error_pct: float; held_out_within_10_pct: float
    requests: int; woken: int; durability: list[DurabilityRow]; stalls: list[CalibrationStallRow]
    stages: list[CalibrationStageRow]; queue_depth: int; overlapping: int; warnings: list[str]; packed: int
class ClockJumpRow(FieldMapping):
    direction: str; time_s: float; request: int; length_s: float; mended: bool
class CommandCounts(FieldMapping):
    kind: str; count: int; bytes: int; packed: int; reliable: int; retries: int; errors: int; time_ns: int
    longest_ns: int
class ComputeCost(FieldMapping):
    wall_s: float; page_operations_per_s: float
class ConfigurationSummary(FieldMapping):
    capacity_bytes: int; ram_kb: int; write_buffer_kb: int; parallelism: str; mapping_scheme: str
    write_complete: str; lies: str
class CrashLogFacts(FieldMapping):
    acknowledgements: int; bytes: int; commands: int; device: str; identity: str; layers: list[str]; lies: str
    moments: int; truncated: bool; writer: str
class DerivedSetting(FieldMapping):
    key: str; value: str; from_: str
class DiskFacts(FieldMapping):
    path: str; model: str | None; bytes: int; block_bytes: int; discards: bool; block_device: bool
    partitions: list[str]
class TimeSummary(FieldMapping):
    mean_ms: float; p50_ms: float; p90_ms: float; p99_ms: float; p999_ms: float; max_ms: float
class DurableTimes(FieldMapping):
    requests: int; mean_ms: float; p50_ms: float; p90_ms: float; p99_ms: float; p999_ms: float; max_ms: float
class FailedDiskRequests(FieldMapping):
    op: str; errno: int; error: str; requests: int; first_at: int
class LeftOutRequests(FieldMapping):
    reason: str; requests: int
class ResponsePercentileRow(FieldMapping):
    op: str; percentile: float; response_ms: float
class DiskRequestCounts(FieldMapping):
    planned: int; completed: int; read: int; write: int; flush: int; discard: int; bytes_read: int
    bytes_written: int; failed: int; unfinished: int; unsent: int; left_out: int; wrapped: int; held: int
class ResponseTimeSummary(FieldMapping):
    mean_response_ms: float; p50_ms: float; p90_ms: float; p99_ms: float; p999_ms: float; max_ms: float
    read: TimeSummary; write: TimeSummary
class DiskReplayRun(FieldMapping):
    mode: str; mode_reason: str | None; depth: int | None; rate: float; seed: int; range_start: int; range_end: int
    elapsed_s: float; throughput_mb_per_s: float; most_in_progress: int; stopped: str | None
class SendingDelay(FieldMapping):
    late_requests: int; mean_ms: float; p50_ms: float; p90_ms: float; p99_ms: float; p999_ms: float; max_ms: float
class DiskReplayResult(FieldMapping):
    disk: DiskFacts; run: DiskReplayRun; requests: DiskRequestCounts; response: ResponseTimeSummary
    percentiles: list[ResponsePercentileRow]; flush: TimeSummary | None; discard: TimeSummary | None
    durable: DurableTimes | None; recorded_response_ms: float | None; sending_delay: SendingDelay | None
    failed: list[FailedDiskRequests]; left_out: list[LeftOutRequests]; ledger: dict[str, int | None]
class DriverCounts(FieldMapping):
    kernel: str; flushes: int; barriers: int; reliable_writes: int; without_command: int
class EnergyUse(FieldMapping):
    total_mj: float | None; flash_mj: float | None; map_mj: float | None; active_mj: float | None
    idle_mj: float | None; asleep_mj: float | None; waking_mj: float | None
class EraseCounts(FieldMapping):
    area: str; least: int | None; mean: int | None; most: int | None
class PromiseBreach(FieldMapping):
    level: str; promise: str; detail: str
class ExploredState(FieldMapping):
    acknowledged: int; at_ns: int; cut: int; index: int; number: int; problem: PromiseBreach | None; way: str
class FieldRow(FieldMapping):
    name: str; register: str; place: str; value: int | str | None; meaning: str
class Finding(FieldMapping):
    id: str; kind: str; number: int; title: str; rule: str; measured: float | None; unit: str; shown: str
    meaning: str
class FioLatency(FieldMapping):
    min_us: float; max_us: float; mean_us: float; stddev_us: float
class FioPercentile(FieldMapping):
    percentile: float; clat_us: float
class FioOperationResult(FieldMapping):
    requests: int; bytes: int; iops: float; mb_per_s: float; slat: FioLatency | None; clat: FioLatency
    lat: FioLatency; percentiles: list[FioPercentile]
class FioJobResult(FieldMapping):
    name: str; group: int; copies: int; queue_depth: int; options: dict[str, str]; runtime_s: float
    read: FioOperationResult | None; write: FioOperationResult | None; trim: FioOperationResult | None
    sync: FioOperationResult | None
class FioResult(FieldMapping):
    iops: float | None; mb_per_s: float | None; lat_us: float | None; jobs: list[FioJobResult]
class FittedFigure(FieldMapping):
    source: str; figure: str; unit: str; published: float; here: float; deviation_pct: float; least: float
    most: float | None
class PageOperations(FieldMapping):
    total: int; host: int; read_modify_write: int; gc: int; wear: int; refresh: int; map: int
class FlashOperations(FieldMapping):
    page_reads: PageOperations; page_programs: PageOperations; block_erases: int; retried_reads: int
    refreshed_blocks: int; read_retries: int; suspended_erases: int; suspended_moves: int; suspended_programs: int
class FsWriterThreads(FieldMapping):
    file_system: str; device: str; pids: list[int]
class GcSummary(FieldMapping):
    blocks: int; idle_blocks: int; interruptions: int; busy_s: float; idle_busy_s: float
    valid_units: BlockDistribution
class HealthCommand(FieldMapping):
    opcode: int; argument: int; makers: list[int]
class HealthField(FieldMapping):
    name: str; place: str; value: int; from_: str
class HealthFormat(FieldMapping):
    name: str; parts: str; source: str; command: HealthCommand | None; unreadable: str
class HealthReport(FieldMapping):
    format: str; parts: str; erases: list[EraseCounts]; rated_erases: int | None; spare_blocks: int | None
    factory_bad_blocks: int | None; runtime_bad_blocks: int | None; fields: list[HealthField]
class HostActivity(FieldMapping):
    host: str; busy_ns: int; unpaired: int; commands: list[CommandCounts]
class HostCounts(FieldMapping):
    commands: int; merged: int; packs: int; packed_requests: int; packs_by_entries: list[int]
    largest_command_bytes: int; driver: DriverCounts | None
class IdleStageTimes(FieldMapping):
    after_us: float; wake_ups: int; asleep_s: float; waking_s: float
class JournalCounts(FieldMapping):
    device: str; commits: int; handles: int; blocks: int; commit_start_ns: list[int]; commit_time_ns: list[int]
class KindWear(FieldMapping):
    kind: str; blocks: int; mean_erases: float; most_erases: int; erase_limit: int | None
    mean_used_pct: float | None; used_pct: float | None; even_host_bytes: float | None
class LayeredDiskResult(FieldMapping):
    disks: list[DiskFacts]; capacity_bytes: int; is_new: bool; requests: int; failed: int; bytes_read: int
    bytes_written: int; response: ResponseTimeSummary; layers: list[dict[str, Any]]; stopped: str | None
class LifetimeEstimate(FieldMapping):
    even_host_bytes: float | None; first_block_host_bytes: float | None; used_pct: float; used_slc_pct: float | None
class LinkDirection(FieldMapping):
    bytes: int; busy_pct: float; wait_ms: float
class RefusedRequests(FieldMapping):
    requests: int; first: str
class SettingChange(FieldMapping):
    at_s: float; key: str; from_: str; to: str
class LiveStatus(FieldMapping):
    clock: str; simulated_s: float; powered: bool; cuts: int; requests: int; bytes_read: int; bytes_written: int
    failed: int; open: int; interval_s: float; interval_requests: int; interval_bytes: int
    response_p50_us: float | None; response_p99_us: float | None; volatile_bytes: int; waf: float | None
    free_blocks: int; collections: int; erases: int; wake_ups: int; late_p50_us: float | None
    late_p99_us: float | None; file_system: str | None; setting_changes: list[SettingChange]; stopped: str | None
    refused: list[RefusedRequests]; image_error: str | None
class LoadSummary(FieldMapping):
    offered_pct: float | None; backlog_s: float; peak_backlog_s: float; peak_offered_pct: float | None
    overloaded: bool
class LogBlockMerges(FieldMapping):
    switch: int; partial: int; full: int
class LostEventsGap(FieldMapping):
    from_ns: int; to_ns: int; events: int
class UnwrittenPages(FieldMapping):
    page_kb: int; bytes_read: int
class MapCounts(FieldMapping):
    ram_bytes: int; cache_hit_pct: float | None; lookups: int; requests: int; missed_requests: int
    request_miss_pct: float | None; prefetched_entries: int; double_reads: int; cached_bytes: int | None
    segments: int | None; segment_units: int | None; unwritten_unit_reads: int; unwritten_read_pct: float | None
    unwritten_request_pct: float | None; unwritten_pages: list[UnwrittenPages]; discarded_units: int | None
    log_block_merges: LogBlockMerges
class PowerStateTimes(FieldMapping):
    active_s: float; idle_s: float; asleep_s: float; waking_s: float; wake_ups: int
    sleep_stages: list[IdleStageTimes]
class PreviousRun(FieldMapping):
    image: bool; clean: bool; units_entered: int; setting_changes: list[SettingChange]
class SyncCounts(FieldMapping):
    process: str; file_system: str; calls: int; errors: int; time_ns: int; longest_ns: int
class UnfinishedWait(FieldMapping):
    process: str; pid: int; file_system: str; device: str; start_ns: int
class TaskWaits(FieldMapping):
    process: str; pid: int; file_system: str; device: str; start_ns: list[int]; time_ns: list[int]
class RecordedActivity(FieldMapping):
    hosts: list[HostActivity]; syncs: list[SyncCounts]; waits: list[TaskWaits]; unfinished: list[UnfinishedWait]
    writers: list[FsWriterThreads]; journals: list[JournalCounts]; gaps: list[LostEventsGap]
class RecordedComparison(FieldMapping):
    response: ByOperation; response_p99: ByOperation; service: ByOperation; no_wait: ByOperation2
    dependent_pct: float | None
class RegisterCapacity(FieldMapping):
    bytes: int; from_: str
class RegisterFact(FieldMapping):
    topic: str; text: str | None; from_: list[str]
class RegisterReport(FieldMapping):
    kind: str; standard: str; like: str; facts: list[RegisterFact]; fields: list[FieldRow]
    settings: list[DerivedSetting]; capacity: RegisterCapacity | None; slc: RegisterCapacity | None
    notes: list[str]
class ReissueFigures(FieldMapping):
    requests: int; data_size_kb: float; mean_size_kb: float | None; write_requests_pct: float | None
    arrival_rate_per_s: float | None; spatial_locality_pct: float | None; temporal_locality_pct: float | None
class ReissueSummary(FieldMapping):
    reissued: int; reissued_pct: float | None; dropped: int; awake_up_to_ms: int | None; asleep_from_ms: int | None
    median_until_again_ms: float | None; figures: ReissueFigures; figures_without: ReissueFigures | None
class ReplaySummary(FieldMapping):
    mode: str; mode_reason: str | None; unrecorded: str | None; coarse_clock: str | None; load: LoadSummary
    stopped: str | None; simulated_s: float; throughput_mb_per_s: float; drain_s: float | None
class RequestTotals(FieldMapping):
    total: int; read: int; write: int; other: int | None; no_wait_pct: float; begun_at_once_pct: float
    bytes_read: int; bytes_written: int; wrapped_pct: float
class ResponseHistogramRow(FieldMapping):
    op: str; up_to_ms: float; requests: int; cumulative_pct: float
class RunTimeRow(FieldMapping):
    time_s: float; width_s: float; reads: int; writes: int; read_kb: float; write_kb: float; iops: float
    mb_per_s: float; response_mean_ms: float | None; response_p99_ms: float | None; response_max_ms: float | None
    read_mean_ms: float | None; read_p99_ms: float | None; write_mean_ms: float | None; write_p99_ms: float | None
    queue_ms: float | None; gc_ms: float | None; wake_up_ms: float | None; collections: int; collecting_ms: float
    wake_ups: int
class SecondDevice(FieldMapping):
    device: str; host_bytes_read: int; host_bytes_written: int; page_programs: int; block_erases: int; waf: float
    host: HostCounts | None
class ServiceTimeSummary(FieldMapping):
    mean_service_ms: float; p50_ms: float; p90_ms: float; p99_ms: float; p999_ms: float; max_ms: float
    read: TimeSummary; write: TimeSummary
class SettingExplanation(FieldMapping):
    key: str; value: str; unit: str; origin: str; default: str | None; doc: str; allowed: str
class SlcCounts(FieldMapping):
    folded_blocks: int; folded_bytes: int
class SpaceUse(FieldMapping):
    space_utilisation: float; gain_difference: float; gain_ratio: float | None
class WriteBoosterUse(FieldMapping):
    size_bytes: int; bytes_written: int; bytes_past_it: int; flushed_blocks: int; life_used_pct: float | None
    current_size_bytes: int; bytes_read: int; read_hit_pct: float; migrated_bytes: int; pinned_bytes: int
    flush_needed: int; pinned_full: int; grown: int; shrunk: int
class ZoneUse(FieldMapping):
    count: int; size_bytes: int; resets: int; opened: int; closed: int; filled: int; most_open: int
    most_active: int; slc_bytes: int; buffer_conflicts: int; premature_flushes: int; premature_bytes: int
class UfsUse(FieldMapping):
    lanes: int; gear: str; link_mb_per_s: float; to_device: LinkDirection; to_host: LinkDirection; tags: int
    most_in_flight: int; tag_wait_ms: float; queues: int; queue_wait_ms: float
    write_booster: WriteBoosterUse | None; zones: ZoneUse | None; map_hints: int; hibernated_pct: float
    hibernate_exits: int; hibernate_exit_ms: float
class Utilisation(FieldMapping):
    channels_pct: list[float]; dies_pct: list[float]; planes_pct: list[float]
class WaitTimes(FieldMapping):
    queue_ms: float; controller_ms: float; bus_ms: float; array_ms: float; gc_ms: float; wake_up_ms: float
class WearSummary(FieldMapping):
    moved_blocks: int; bad_blocks: int; erase_counts: BlockDistribution; kinds: list[KindWear]
    lifetime: LifetimeEstimate | None
class WriteAmplification(FieldMapping):
    waf: float; host: float; gc: float; wear: float; refresh: float; map: float
class SimulationResult(FieldMapping):
    device: str; configuration: ConfigurationSummary; run: ReplaySummary; requests: RequestTotals
    response: ResponseTimeSummary; service: ServiceTimeSummary; waits: WaitTimes; recorded: RecordedComparison
    space: SpaceUse; write_amplification: WriteAmplification; flash: FlashOperations; utilisation: Utilisation
    map: MapCounts; gc: GcSummary; wear: WearSummary; slc: SlcCounts; cache: CacheCounts | None
    power: PowerStateTimes; energy: EnergyUse; host: HostCounts | None; ledger: dict[str, int | None]
    computing: ComputeCost; durable: DurableTimes | None; fio: FioResult | None
    first_writes: list[tuple[int, int]]; layers: list[dict[str, Any]]; over_time: list[RunTimeRow]
    percentiles: list[ResponsePercentileRow]; response_distribution: list[ResponseHistogramRow]
    second_device: SecondDevice | None; setting_changes: list[SettingChange]; ufs: UfsUse | None


class ReplayOptions(TypedDict, total=False):
    """Options of a replay."""

    mode: Annotated[str | None, Option('auto', "Open loop keeps arrival times, closed loop keeps think times, back to back has no pauses; auto: closed if completions are recorded, otherwise open.", words=('auto', 'open', 'closed', 'back_to_back'), advanced=True, stored='results')]
    rate: Annotated[float, Option(1.0, "Factor on the rate of arrivals, above 0; 2 halves the times between them.", least=1e-06, most=1000000, metavar='FACTOR', advanced=True, stored='always')]
    start_offset_ns: Annotated[int, Option(0, "Time of the first arrival on the simulated clock, in ns.", least=0, option=None, stored='results')]
    seed: Annotated[int, Option(1, "Seed of all random choices: preconditioning, wake-up times, victims of garbage collection.", least=0, metavar='N', advanced=True, stored='results')]
    check: Annotated[bool, Option(False, "Check all invariants and contents against a reference model (slow).", advanced=True, stored='results')]
    first_writes: Annotated[int, Option(0, "Number of writes to the device that the result lists, beginning with the first write; needs layers.", least=0, bits=32, option=None, panel='Layers', stored='results')]
    drain: Annotated[bool, Option(False, "After the last request, let the layers move all deferred data to its final location, and measure the time that this takes.", panel='Layers', advanced=True, stored='results')]
    precondition: Annotated[str, Option('none', "Data before the run: none, sequential:PCT, random:PCT, steady[:CAPACITIES], used:AGE, a trace, or `WAY then TRACE`.", metavar='WHAT', stored='always')]
    wrap_addresses: Annotated[bool, Option(False, "Wrap addresses beyond the device (modulo its capacity); otherwise, a trace with such addresses is refused.", advanced=True, stored='always')]
    flush_every: Annotated[int, Option(0, "Add a flush after this many writes, for traces that record no flushes; 0 adds none.", least=0, bits=32, metavar='N', advanced=True)]
    percentiles: Annotated[Iterable[float] | str | None, Option(None, "Percentiles of response times to report instead of the default ones, above 0 to 100, for example 50,90,99,99.9; accurate to 0.1 %.", metavar='P,P,...', panel=None, advanced=True, stored='never')]
    distribution: Annotated[bool, Option(False, "Add the distribution of response times to the result (`response_distribution`).", option=None, stored='never')]
