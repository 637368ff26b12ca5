//! Converts raw pages into batches of requests in order of arrival.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmclab_trace::formats::{RwbsMeaning, read_rwbs};
use emmclab_trace::{
    BATCH_ROWS, Batch, BatchBuilder, BlockLayerEvent, CpuStreamMerge, DecodedEvent, EventMatcher, GrowingNameTable, Ledger,
    LostEventsGap, NameId, NameTable, Nanos, RecordedActivity, Request, unfilled,
};

use crate::disks::WatchedDevices;
use crate::kernel_format::{BlockEvent, KernelFormat, TracedEvent};
use crate::statistics::RecordMeter;

/// Counts of the pages of one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounters {
    /// Number of the CPU.
    pub cpu: usize,
    /// Number of decoded events.
    pub events: u64,
    /// Number of events that the kernel dropped because the buffer was full.
    pub lost: u64,
    /// Number of pages that end with a damaged record.
    pub damaged: u64,
}

/// Decodes pages, merges their events and combines them into requests. It does not depend on the transport.
pub(crate) struct RecordPipeline {
    pub(crate) kernel: KernelFormat,
    merge: CpuStreamMerge<TracedEvent>,
    matcher: EventMatcher,
    order: ArrivalOrder,
    pub(crate) ledger: Ledger,
    cpus: BTreeMap<usize, (CpuCounters, u64)>,
    watched: WatchedDevices,
    processes: GrowingNameTable,
    /// The last process name and its id, because consecutive events are often of the same task.
    last_process: ([u8; 16], Option<NameId>),
    completed: Vec<Request>,
    builder: BatchBuilder,
}

impl RecordPipeline {
    /// A pipeline for recordings that may contain only events of drivers, without block events.
    pub(crate) fn of_any_events(kernel: KernelFormat, watched: WatchedDevices) -> Self {
        Self { matcher: EventMatcher::default(), ..Self::new(kernel, watched) }
    }

    /// A note on how the requests were derived, if they were not recorded directly.
    pub(crate) fn note(&self) -> Option<String> {
        self.matcher.note()
    }

    /// A pipeline for recordings with block events.
    pub(crate) fn new(kernel: KernelFormat, watched: WatchedDevices) -> Self {
        Self {
            kernel,
            merge: CpuStreamMerge::default(),
            matcher: EventMatcher::of_block_events(),
            order: ArrivalOrder::default(),
            ledger: Ledger::default(),
            cpus: BTreeMap::new(),
            watched,
            processes: GrowingNameTable::default(),
            last_process: ([0; 16], None),
            completed: Vec::new(),
            builder: BatchBuilder::default(),
        }
    }

    /// Decodes a ring-buffer page of a CPU.
    pub(crate) fn page(&mut self, cpu: usize, page: &[u8]) {
        let (counts, latest) = self.cpus.entry(cpu).or_default();
        counts.cpu = cpu;
        let merge = &mut self.merge;
        let (before, mut first) = (*latest, None);
        let decoded = self.kernel.decode(page, |time, event| {
            first.get_or_insert(time);
            *latest = time;
            merge.push(time, event);
        });
        let Ok(summary) = decoded else {
            counts.damaged += 1;
            self.ledger.lost += 1;
            self.matcher.lose(gap(before, None, 1));
            return;
        };
        if summary.lost > 0 {
            self.matcher.lose(gap(before, first, summary.lost));
        }
        if summary.damaged {
            self.matcher.lose(gap(*latest, None, 1));
        }
        counts.events += summary.events;
        counts.lost += summary.lost;
        counts.damaged += u64::from(summary.damaged);
        self.ledger.seen += summary.events + summary.other;
        self.ledger.skipped += summary.other;
        self.ledger.lost += summary.lost + u64::from(summary.damaged);
    }

    /// Ends a round of reading all CPUs; the CPUs in `behind` still have pages to read.
    pub(crate) fn end_round(&mut self, behind: &[usize]) {
        for cpu in behind {
            let latest = self.latest(*cpu);
            self.merge.not_emptied(latest);
        }
        let events: Vec<_> = self.merge.end_round().collect();
        for (time, event) in events {
            self.event(time, &event);
        }
    }

    /// Ends a recording that was interrupted while the CPUs were read one after another. The pages of this incomplete round are dropped.
    pub(crate) fn break_off(&mut self) {
        self.ledger.skipped += self.merge.abandon() as u64;
        self.finish();
    }

    /// Ends the recording: requests in progress are counted as unpaired.
    pub(crate) fn finish(&mut self) {
        let events: Vec<_> = self.merge.finish().collect();
        for (time, event) in events {
            self.event(time, &event);
        }
        self.matcher.finish(self.watched.names_mut(), &mut self.ledger, &mut self.completed);
        self.take_done();
    }

    fn event(&mut self, time: u64, event: &TracedEvent) {
        let time = Nanos(time as i64);
        match event {
            TracedEvent::Block(event) => self.block(time, event),
            TracedEvent::Extra(DecodedEvent::Command(event)) => {
                if self.watched.is_recorded(event) {
                    let disk = self.watched.disk_of(event);
                    let devices = self.watched.names_mut();
                    self.matcher.command(time, event, disk, devices, &mut self.ledger, &mut self.completed);
                }
            }
            TracedEvent::Extra(DecodedEvent::File(event)) => {
                if let Some(device) = self.watched.file_system(event.device) {
                    self.matcher.file_system(time, event, &device, None);
                }
            }
        }
        self.take_done();
    }

    fn block(&mut self, time: Nanos, event: &BlockEvent) {
        let BlockEvent { kind, sector, sectors, pid, .. } = *event;
        let operation = match read_rwbs(unfilled(&event.rwbs), 0) {
            Ok(RwbsMeaning::Request(operation)) => operation,
            Ok(RwbsMeaning::Zone(command)) => {
                self.matcher.zone(command, kind);
                self.ledger.skipped += 1;
                return;
            }
            Err(_) => {
                // Pass-through commands are not block I/O.
                self.ledger.skipped += 1;
                return;
            }
        };
        let process = if kind.is_by_submitter() { self.process(&event.comm) } else { None };
        let (device, is_new) = self.watched.disk(event.device);
        if is_new {
            self.matcher.add_disk(device, event.device >> 20);
        }
        let (op, flags) = operation.of(sectors);
        let (error, zeroes, pid) = (event.error, operation.is_zeroes(sectors), Some(pid));
        let read = BlockLayerEvent { time, kind, device, op, flags, sector, sectors, pid, process, error, zeroes };
        let task = unfilled(&event.comm);
        if event.accounted {
            self.matcher.accounted(read, task, &mut self.ledger, &mut self.completed);
        } else {
            self.matcher.block(read, task, &mut self.ledger, &mut self.completed);
        }
    }

    fn take_done(&mut self) {
        for request in self.completed.drain(..) {
            self.order.push(request);
        }
    }

    fn process(&mut self, comm: &[u8; 16]) -> Option<NameId> {
        if self.last_process.0 != *comm {
            let name = unfilled(comm);
            let id = (!name.is_empty()).then(|| self.processes.intern(&String::from_utf8_lossy(name)));
            self.last_process = (*comm, id);
        }
        self.last_process.1
    }

    /// Returns the recorded activity other than requests. `saved_names` are the kernel's task names, for events that contain no name.
    pub(crate) fn activity(&mut self, saved_names: &str) -> RecordedActivity {
        self.matcher.learn_tasks(saved_names);
        self.matcher.activity(|_| None)
    }

    /// Names of the processes seen so far, to share with a batch.
    pub(crate) fn processes(&mut self) -> &Arc<NameTable> {
        self.processes.shared()
    }

    /// The latest time of an event of this CPU.
    pub(crate) fn latest(&self, cpu: usize) -> u64 {
        self.cpus.get(&cpu).map_or(0, |(_, latest)| *latest)
    }

    /// Names of the processes and devices seen so far.
    pub(crate) fn names(&self) -> (&NameTable, &NameTable) {
        (self.processes.names(), self.watched.names())
    }

    /// Counts of pages and events of each CPU, in order of the CPU numbers.
    pub(crate) fn cpus(&self) -> Vec<CpuCounters> {
        self.cpus.values().map(|(counts, _)| counts.clone()).collect()
    }

    /// Adds the kernel's count of lost events of a CPU, which includes the events that pages reported as lost.
    pub(crate) fn count_lost(&mut self, cpu: usize, lost: u64) {
        let (counts, latest) = self.cpus.entry(cpu).or_default();
        counts.cpu = cpu;
        let more = lost.saturating_sub(counts.lost);
        if more > 0 {
            self.matcher.lose(gap(*latest, None, more));
        }
        self.ledger.lost += more;
        counts.lost = counts.lost.max(lost);
    }

    /// Returns a batch of sorted requests if at least `at_least` are available. Requests of the recorder's own tasks (`is_own`)
    /// are omitted; `meter` counts the others.
    pub(crate) fn take_batch(
        &mut self, at_least: usize, mut is_own: impl FnMut(i32) -> bool, meter: &mut RecordMeter,
    ) -> Option<Batch> {
        let oldest = self.matcher.oldest_open();
        while self.builder.len() < BATCH_ROWS
            && let Some(request) = self.order.pop(oldest)
        {
            if request.pid.is_some_and(&mut is_own) {
                self.ledger.skipped += 1;
                continue;
            }
            self.ledger.kept += 1;
            meter.see(&request);
            self.builder.push(&request);
        }
        meter.see_syncs(self.matcher.take_syncs());
        self.ledger.skipped += std::mem::take(&mut self.order.late);
        (self.builder.len() >= at_least.max(1)).then(|| self.builder.finish(self.processes.shared(), self.watched.shared_names()))
    }
}

/// Returns the gap between two times of a CPU in which events were lost. Without `to`, the gap lasts until the end of the recording.
fn gap(from: u64, to: Option<u64>, events: u64) -> LostEventsGap {
    let time = |time: u64| Nanos(i64::try_from(time).unwrap_or(i64::MAX));
    LostEventsGap { from: time(from), to: to.map_or(Nanos(i64::MAX), time), events }
}

/// Maximum time for which a request in progress holds back finished requests that arrived later.
const LONGEST_WAIT: Nanos = Nanos::from_secs(30);
/// Maximum number of finished requests that are kept back until earlier requests finish.
const MOST_HELD: usize = 1 << 18;

/// Keeps finished requests until no request with an earlier arrival can still finish. The number of requests that are kept, and the time
/// for which they are kept, are limited.
#[derive(Default)]
pub(crate) struct ArrivalOrder {
    /// Key: arrival, and the order of completion among equal arrivals.
    finished: BTreeMap<(Nanos, u64), Request>,
    added: u64,
    last: Option<Nanos>,
    latest: Option<Nanos>,
    /// Number of requests that were omitted because they finished too late to be sorted.
    pub(crate) late: u64,
}

impl ArrivalOrder {
    /// Adds a finished request. If a request with a later arrival was already returned, the new one is omitted and counted.
    pub(crate) fn push(&mut self, request: Request) {
        if self.last.is_some_and(|last| request.arrival < last) {
            self.late += 1;
            return;
        }
        self.latest = self.latest.max(request.complete);
        self.finished.insert((request.arrival, self.added), request);
        self.added += 1;
    }

    /// Returns the next request, if none with an earlier arrival can follow. `oldest_open` is the arrival of the oldest request in
    /// progress.
    pub(crate) fn pop(&mut self, oldest_open: Option<Nanos>) -> Option<Request> {
        let (arrival, _) = *self.finished.first_key_value()?.0;
        let waited = self.latest.is_some_and(|latest| latest - arrival > LONGEST_WAIT);
        let free = oldest_open.is_none_or(|open| arrival <= open);
        if !free && !waited && self.finished.len() <= MOST_HELD {
            return None;
        }
        self.last = Some(arrival);
        self.finished.pop_first().map(|(_, request)| request)
    }
}

#[cfg(test)]
mod tests {
    use emmclab_trace::{CommandKind, Op, Sector};

    use super::*;
    use crate::kernel_format::Files;

    /// Returns format files of a kernel whose events have only the required fields, in unusual order and sizes.
    fn phone() -> Files {
        let common = "field:unsigned short common_type; offset:0; size:2; signed:0;\n\
                      field:int common_pid; offset:4; size:4; signed:1;\n";
        let block = "field:dev_t dev; offset:8; size:4; signed:0;\nfield:sector_t sector; offset:16; size:8; signed:0;\n\
                     field:unsigned int nr_sector; offset:24; size:4; signed:0;\n\
                     field:char rwbs[8]; offset:28; size:8; signed:0;\n";
        let mmc = "field:unsigned int blocks; offset:8; size:4; signed:0;\n\
                   field:unsigned int blk_addr; offset:12; size:4; signed:0;\n\
                   field:unsigned int blksz; offset:16; size:4; signed:0;\n\
                   field:unsigned int data_flags; offset:20; size:4; signed:0;\n\
                   field:__data_loc char[] name; offset:24; size:4; signed:0;\n\
                   field:u32 cmd_opcode; offset:28; size:4; signed:0;\n\
                   field:u32 cmd_arg; offset:32; size:4; signed:0;\n\
                   field:u32 sbc_arg; offset:36; size:4; signed:0;\n\
                   field:struct mmc_request * mrq; offset:40; size:4; signed:0;\n";
        let done = "field:struct mmc_request * mrq; offset:8; size:4; signed:0;\n\
                    field:int cmd_err; offset:12; size:4; signed:1;\n\
                    field:int data_err; offset:16; size:4; signed:1;\n\
                    field:unsigned int cmd_retries; offset:20; size:4; signed:0;\n\
                    field:__data_loc char[] name; offset:24; size:4; signed:0;\n";
        let sync = "field:dev_t dev; offset:8; size:4; signed:0;\nfield:int ret; offset:12; size:4; signed:1;\n";
        let mut files = Files::new();
        for (id, name, fields) in [
            (1, "block/block_bio_queue", block),
            (2, "block/block_rq_issue", block),
            (3, "mmc/mmc_request_start", mmc),
            (4, "block/block_rq_complete", block),
            (5, "mmc/mmc_request_done", done),
            (6, "ext4/ext4_sync_file_enter", sync),
            (7, "ext4/ext4_sync_file_exit", sync),
            // An event with unknown fields, which cannot be decoded and is therefore omitted.
            (8, "ufs/ufshcd_command", sync),
        ] {
            let event = name.split('/').nth(1).unwrap();
            files.insert(format!("events/{name}/format"), format!("name: {event}\nID: {id}\nformat:\n{common}{fields}"));
        }
        for (name, text) in [
            ("byte_order", "\u{1}\n"),
            ("disks", "disk mmcblk0 179:0 1000\ndisk mmcblk0boot0 179:8 10\n"),
            (
                "events/header_page",
                "field: u64 timestamp; offset:0; size:8;\nfield: local_t commit; offset:8; size:8;\nfield: char data; offset:16; size:4080;\n",
            ),
            (
                "events/header_event",
                "type_len : 5 bits\ntime_delta : 27 bits\npadding : type == 29\ntime_extend : type == 30\ndata max type_len == 28\n",
            ),
        ] {
            files.insert(name.to_owned(), text.to_owned());
        }
        files
    }

    fn block(id: u16, sector: u64, sectors: u32, rwbs: &[u8]) -> Vec<u8> {
        let mut record = vec![0; 36];
        record[0..2].copy_from_slice(&id.to_le_bytes());
        record[8..12].copy_from_slice(&(179u32 << 20).to_le_bytes());
        record[16..24].copy_from_slice(&sector.to_le_bytes());
        record[24..28].copy_from_slice(&sectors.to_le_bytes());
        record[28..28 + rwbs.len()].copy_from_slice(rwbs);
        record
    }

    fn words(id: u8, words: &[u32], text: &[u8]) -> Vec<u8> {
        let mut record = vec![id, 0, 0, 0, 7, 0, 0, 0];
        for word in words {
            record.extend(word.to_le_bytes());
        }
        record.extend(text);
        record
    }

    /// Creates a record of the start of an MMC command. `command`: opcode, argument, argument of the block count command.
    fn mmc(blocks: u32, address: u32, flags: u32, host: &[u8], command: [u32; 3]) -> Vec<u8> {
        let name = ((host.len() as u32) << 16) | 0x2c;
        let [opcode, argument, count] = command;
        words(3, &[blocks, address, 512, flags, name, opcode, argument, count, opcode], host)
    }

    /// Creates a record of the end of an MMC command. Its opcode is also stored in the field of the pointer that identifies the request.
    fn mmc_done(opcode: u32, error: u32, host: &[u8]) -> Vec<u8> {
        words(5, &[opcode, 0, error, 3, ((host.len() as u32) << 16) | 0x1c], host)
    }

    /// Creates a page with a record every 1,000 ns.
    fn page(records: &[Vec<u8>]) -> Vec<u8> {
        let mut data = Vec::new();
        for record in records {
            let words = record.len().div_ceil(4);
            data.extend(((1_000 << 5) | words as u32).to_le_bytes());
            data.extend(record);
            data.resize(data.len().next_multiple_of(4), 0);
        }
        let mut page = vec![0; 8];
        page.extend((data.len() as u64).to_le_bytes());
        page.extend(data);
        page.resize(4096, 0);
        page
    }

    fn recorded(records: &[Vec<u8>]) -> (RecordPipeline, Batch) {
        let kernel = KernelFormat::from_files(&phone()).unwrap();
        assert!(kernel.events.iter().any(|event| event == "mmc/mmc_request_start"));
        assert!(!kernel.events.iter().any(|event| event.starts_with("ufs")));
        let mut watched = WatchedDevices::new(BTreeMap::from([(179 << 20, "mmcblk0".to_owned())]));
        watched.mounted_on(BTreeMap::from([(179 << 20 | 3, "mmcblk0p3".to_owned())]));
        let mut pipeline = RecordPipeline::new(kernel, watched);
        pipeline.page(0, &page(records));
        pipeline.finish();
        let batch = pipeline.take_batch(1, |_| false, &mut RecordMeter::default()).unwrap();
        (pipeline, batch)
    }

    #[test]
    fn with_mmc_events_issue_is_when_the_device_got_it() {
        let (write, read) = (1 << 8, 1 << 9);
        let (pipeline, batch) = recorded(&[
            block(1, 64, 8, b"WS"),
            block(2, 64, 8, b"WS"),
            mmc(0, 0, 0, b"mmc0\0", [13, 0, 0]),      // a command without data
            mmc(8, 64, read, b"mmc0\0", [18, 0, 0]),  // a read there: another request
            mmc(8, 64, write, b"mmc1\0", [25, 0, 0]), // another host
            mmc(8, 64, write, b"mmc0\0", [25, 0, 0]),
            block(4, 64, 8, b"WS"),
        ]);
        let request = batch.get(0);
        assert_eq!(request.arrival, Nanos(1_000));
        let times = [request.start, request.issue, request.complete].map(|time| time.unwrap().0);
        assert_eq!(times, [2_000, 6_000, 7_000]);
        let ledger = &pipeline.ledger;
        assert_eq!((batch.len(), ledger.seen, ledger.paired, ledger.unpaired), (1, 7, 1, 0));
        assert_eq!(batch.devices().get(request.device.unwrap()), Some("mmcblk0"));
    }

    #[test]
    fn pages_without_block_events_give_the_commands_of_the_driver() {
        let mut files = phone();
        files.retain(|name, _| !name.starts_with("events/block"));
        assert!(KernelFormat::from_files(&files).is_err());
        let kernel = KernelFormat::of_any_events(&files).unwrap();
        let mut pipeline = RecordPipeline::of_any_events(kernel, WatchedDevices::default());
        let records = [
            mmc(8, 64, 1 << 8, b"mmc0\0", [25, 64, 1 << 31 | 8]),
            mmc_done(25, 0, b"mmc0\0"),
            mmc(8, 128, 1 << 9, b"mmc0\0", [18, 128, 0]),
            mmc_done(18, (-84i32) as u32, b"mmc0\0"),
            mmc(8, 128, 1 << 9, b"mmc0\0", [18, 128, 0]),
            mmc_done(18, 0, b"mmc0\0"),
        ];
        pipeline.page(0, &page(&records));
        pipeline.finish();
        let batch = pipeline.take_batch(1, |_| false, &mut RecordMeter::default()).unwrap();
        let rows: Vec<_> = batch.iter().map(|row| (row.sector.0, row.sectors, row.arrival.0, row.complete.unwrap().0)).collect();
        assert_eq!(rows, [(64, 8, 1_000, 2_000), (128, 8, 3_000, 6_000)]);
        assert_eq!(batch.devices().get(batch.get(0).device.unwrap()), Some("mmc0"));
        assert!(pipeline.note().unwrap().contains("no block events"));
    }

    #[test]
    fn commands_are_told_apart_by_opcode_and_argument() {
        let (write, flush) = (1 << 8, 3 << 24 | 32 << 16 | 1 << 8);
        let (mut pipeline, _) = recorded(&[
            block(2, 64, 8, b"WS"),
            mmc(8, 64, write, b"mmc0\0", [25, 64, 1 << 31 | 8]), // 2,000 ns: a reliable write
            mmc_done(25, 0, b"mmc0\0"),
            mmc(8, 72, write, b"mmc0\0", [25, 72, 1 << 30 | 8]), // 4,000 ns: packed, fails
            mmc_done(25, (-84i32) as u32, b"mmc0\0"),
            mmc(0, 0, 0, b"mmc0\0", [6, flush, 0]), // 6,000 ns
            mmc_done(6, 0, b"mmc0\0"),
            mmc(0, 0, 0, b"mmc0\0", [6, 3 << 24 | 15 << 16, 0]), // 8,000 ns: another setting
            mmc_done(6, 0, b"mmc0\0"),
            mmc(0, 0, 0, b"mmc0\0", [38, 0, 0]),
            block(4, 64, 8, b"WS"),
            words(6, &[179 << 20 | 3, 0], b""),
            words(7, &[179 << 20 | 3, (-5i32) as u32], b""),
            words(6, &[8 << 20, 0], b""), // a file system elsewhere
        ]);
        let activity = pipeline.activity("7 app\n");
        let [host] = &activity.hosts[..] else { panic!("{activity:?}") };
        assert_eq!((&*host.host, host.busy, host.unpaired), ("mmc0", Nanos(4_000), 1));
        let rows: Vec<_> = host.commands.iter().map(|row| (row.kind, row.count, row.errors, row.time.0)).collect();
        assert_eq!(
            rows,
            [
                (CommandKind::Write, 2, 1, 2_000),
                (CommandKind::Flush, 1, 0, 1_000),
                (CommandKind::Discard, 1, 0, 0),
                (CommandKind::Switch, 1, 0, 1_000)
            ]
        );
        let writes = &host.commands[0];
        assert_eq!((writes.packed, writes.reliable, writes.retries, writes.bytes.0), (1, 1, 1, 8192));
        let [sync] = &activity.syncs[..] else { panic!("{activity:?}") };
        assert_eq!((&*sync.process, &*sync.file_system, sync.calls, sync.errors), ("app", "ext4", 1, 1));
    }

    fn request(arrival: i64, complete: i64) -> Request {
        let request = Request::new(Nanos(arrival), Op::Read, Sector(0), 8);
        Request { complete: Some(Nanos(complete)), ..request }
    }

    fn drain(order: &mut ArrivalOrder, oldest: Option<i64>) -> Vec<i64> {
        std::iter::from_fn(|| order.pop(oldest.map(Nanos))).map(|request| request.arrival.0).collect()
    }

    #[test]
    fn an_open_request_holds_back_those_that_arrived_after_it() {
        let mut order = ArrivalOrder::default();
        order.push(request(30, 31));
        order.push(request(10, 40));
        assert_eq!(drain(&mut order, Some(20)), [10]);
        order.push(request(20, 50));
        assert_eq!(drain(&mut order, None), [20, 30]);
    }

    #[test]
    fn a_request_that_never_ends_holds_back_for_a_limited_time_only() {
        let mut order = ArrivalOrder::default();
        order.push(request(10, 11));
        assert!(drain(&mut order, Some(5)).is_empty());
        order.push(request(20, 11 + LONGEST_WAIT.0));
        assert_eq!(drain(&mut order, Some(5)), [10]);
        // The request at time 5 was open for too long: a later request was already returned, so it counts as late.
        order.push(request(5, 99));
        assert_eq!((order.late, drain(&mut order, None)), (1, vec![20]));
    }

    #[test]
    fn no_more_than_a_fixed_number_is_held() {
        let mut order = ArrivalOrder::default();
        for arrival in 1..=MOST_HELD as i64 + 3 {
            order.push(request(arrival, arrival));
        }
        assert_eq!(drain(&mut order, Some(0)), [1, 2, 3]);
    }
}
