//! From raw pages to batches of requests in order of arrival.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmclab_trace::formats::parse_rwbs;
use emmclab_trace::{
    BATCH_ROWS, Batch, BatchBuilder, Event, EventKind, Ledger, Merge, NameId, Names, Nanos, Pairer, Request,
};

use crate::block_event::{BlockEvent, unfilled};
use crate::kernel::Kernel;
use crate::order::ArrivalOrder;
use crate::stats::Meter;

/// What came from one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuCounts {
    /// Number of the CPU.
    pub cpu: usize,
    /// Events decoded.
    pub events: u64,
    /// Events that the kernel lost because the buffer was full.
    pub lost: u64,
    /// Pages that ended in a damaged record.
    pub damaged: u64,
}

/// Decodes, merges and matches. Knows no transport.
pub(crate) struct Pipeline {
    kernel: Kernel,
    merge: Merge<BlockEvent>,
    pairer: Pairer,
    order: ArrivalOrder,
    ledger: Ledger,
    cpus: BTreeMap<usize, (CpuCounts, u64)>,
    device_names: BTreeMap<u32, String>,
    device_ids: BTreeMap<u32, NameId>,
    processes: Arc<Names>,
    devices: Arc<Names>,
    /// The last name met: runs of events of one task are the rule.
    last_process: ([u8; 16], Option<NameId>),
    done: Vec<Request>,
    builder: BatchBuilder,
}

impl Pipeline {
    /// `device_names` by `dev_t`; devices not in it are named `MAJOR,MINOR`.
    pub(crate) fn new(kernel: Kernel, device_names: BTreeMap<u32, String>) -> Self {
        Self {
            kernel,
            merge: Merge::default(),
            pairer: Pairer::default(),
            order: ArrivalOrder::default(),
            ledger: Ledger::default(),
            cpus: BTreeMap::new(),
            device_names,
            device_ids: BTreeMap::new(),
            processes: Arc::default(),
            devices: Arc::default(),
            last_process: ([0; 16], None),
            done: Vec::new(),
            builder: BatchBuilder::default(),
        }
    }

    /// Decodes a page.
    pub(crate) fn page(&mut self, cpu: usize, page: &[u8]) {
        let (counts, latest) = self.cpus.entry(cpu).or_default();
        counts.cpu = cpu;
        let merge = &mut self.merge;
        let decoded = self.kernel.decode(page, |time, event| {
            *latest = time;
            merge.push(time, event);
        });
        let Ok(summary) = decoded else {
            counts.damaged += 1;
            self.ledger.lost += 1;
            return;
        };
        counts.events += summary.events;
        counts.lost += summary.lost;
        counts.damaged += u64::from(summary.damaged);
        self.ledger.seen += summary.events + summary.other;
        self.ledger.skipped += summary.other;
        self.ledger.lost += summary.lost + u64::from(summary.damaged);
    }

    /// Ends a round over all CPUs, of which those in `behind` have more to read.
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

    /// Ends a recording that broke off in the middle of a round: what was read of some CPUs is of no use without the rest.
    pub(crate) fn break_off(&mut self) {
        self.ledger.skipped += self.merge.abandon() as u64;
        self.finish();
    }

    /// Ends the recording: what is still open is counted as unpaired.
    pub(crate) fn finish(&mut self) {
        let events: Vec<_> = self.merge.finish().collect();
        for (time, event) in events {
            self.event(time, &event);
        }
        self.pairer.finish(&mut self.ledger, &mut self.done);
        self.take_done();
    }

    fn event(&mut self, time: u64, event: &BlockEvent) {
        // Commands to a device without data, or to one that is not recorded: they have no filter of their own.
        if event.kind == EventKind::Submit && !self.device_names.contains_key(&event.device) {
            return;
        }
        let Ok((op, flags)) = parse_rwbs(unfilled(&event.rwbs), 0) else {
            // Passed-through commands (`N`), which carry no block I/O.
            self.ledger.skipped += 1;
            return;
        };
        let opens = matches!(event.kind, EventKind::Queue | EventKind::Insert | EventKind::Issue);
        let process = if opens { self.process(&event.comm) } else { None };
        let event = Event {
            time: Nanos(time as i64),
            kind: event.kind,
            device: self.device(event.device),
            op,
            flags,
            sector: event.sector,
            sectors: event.sectors,
            pid: opens.then_some(event.pid),
            process,
        };
        self.pairer.feed(&event, &mut self.ledger, &mut self.done);
        self.take_done();
    }

    fn take_done(&mut self) {
        for request in self.done.drain(..) {
            self.order.push(request);
        }
    }

    fn process(&mut self, comm: &[u8; 16]) -> Option<NameId> {
        if self.last_process.0 != *comm {
            let name = unfilled(comm);
            let id = (!name.is_empty())
                .then(|| Arc::make_mut(&mut self.processes).intern(&String::from_utf8_lossy(name)));
            self.last_process = (*comm, id);
        }
        self.last_process.1
    }

    fn device(&mut self, number: u32) -> NameId {
        if let Some(id) = self.device_ids.get(&number) {
            return *id;
        }
        let unnamed = || format!("{},{}", number >> 20, number & 0xf_ffff);
        let name = self.device_names.get(&number).cloned().unwrap_or_else(unnamed);
        let id = Arc::make_mut(&mut self.devices).intern(&name);
        self.device_ids.insert(number, id);
        id
    }

    /// Names of the processes met so far.
    pub(crate) fn processes(&self) -> &Arc<Names> {
        &self.processes
    }

    /// The latest time read of a CPU.
    pub(crate) fn latest(&self, cpu: usize) -> u64 {
        self.cpus.get(&cpu).map_or(0, |(_, latest)| *latest)
    }

    /// Names of the processes and devices met so far.
    pub(crate) fn names(&self) -> (&Names, &Names) {
        (&self.processes, &self.devices)
    }

    /// Counts so far.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Counts by CPU, in order of their numbers.
    pub(crate) fn cpus(&self) -> Vec<CpuCounts> {
        self.cpus.values().map(|(counts, _)| counts.clone()).collect()
    }

    /// Notes that the kernel counts this many events as lost on a CPU, some of which its pages have told already.
    pub(crate) fn count_lost(&mut self, cpu: usize, lost: u64) {
        let (counts, _) = self.cpus.entry(cpu).or_default();
        counts.cpu = cpu;
        self.ledger.lost += lost.saturating_sub(counts.lost);
        counts.lost = counts.lost.max(lost);
    }

    /// Takes requests that are in order, once there are at least so many. `is_own` tells the recorder's own tasks, whose
    /// requests are left out; the others are counted by `meter`.
    pub(crate) fn take_batch(
        &mut self,
        at_least: usize,
        mut is_own: impl FnMut(i32) -> bool,
        meter: &mut Meter,
    ) -> Option<Batch> {
        let oldest = self.pairer.oldest_open();
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
        self.ledger.skipped += std::mem::take(&mut self.order.late);
        (self.builder.len() >= at_least.max(1)).then(|| self.builder.finish(&self.processes, &self.devices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Files;

    /// A kernel with the fields that are needed, in an order and of sizes of their own.
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
                   field:__data_loc char[] name; offset:24; size:4; signed:0;\n";
        let mut files = Files::new();
        for (id, name, fields) in [
            (1, "block/block_bio_queue", block),
            (2, "block/block_rq_issue", block),
            (3, "mmc/mmc_request_start", mmc),
            (4, "block/block_rq_complete", block),
        ] {
            let event = name.split('/').nth(1).unwrap();
            files.insert(
                format!("events/{name}/format"),
                format!("name: {event}\nID: {id}\nformat:\n{common}{fields}"),
            );
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

    fn mmc(blocks: u32, address: u32, flags: u32, host: &[u8]) -> Vec<u8> {
        let mut record = vec![3, 0, 0, 0, 0, 0, 0, 0];
        for word in [blocks, address, 512, flags, ((host.len() as u32) << 16) | 0x1c] {
            record.extend(word.to_le_bytes());
        }
        record.extend(host);
        record
    }

    /// A page with a record every 1,000 ns.
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

    #[test]
    fn with_mmc_events_issue_is_when_the_device_got_it() {
        let kernel = Kernel::from_files(&phone()).unwrap();
        assert!(kernel.events().iter().any(|event| event == "mmc/mmc_request_start"));
        let mut pipeline = Pipeline::new(kernel, BTreeMap::from([(179 << 20, "mmcblk0".to_owned())]));
        pipeline.page(
            0,
            &page(&[
                block(1, 64, 8, b"WS"),
                block(2, 64, 8, b"WS"),
                mmc(0, 0, 0, b"mmc0\0"),       // a command without data
                mmc(8, 64, 1 << 9, b"mmc0\0"), // a read there: another request
                mmc(8, 64, 1 << 8, b"mmc1\0"), // another host
                mmc(8, 64, 1 << 8, b"mmc0\0"),
                block(4, 64, 8, b"WS"),
            ]),
        );
        pipeline.finish();
        let batch = pipeline.take_batch(1, |_| false, &mut Meter::default()).unwrap();
        let request = batch.get(0);
        assert_eq!(request.arrival, Nanos(1_000));
        let times = [request.start, request.issue, request.complete].map(|time| time.unwrap().0);
        assert_eq!(times, [2_000, 6_000, 7_000]);
        let ledger = pipeline.ledger();
        assert_eq!((batch.len(), ledger.seen, ledger.paired, ledger.unpaired), (1, 7, 1, 0));
        assert_eq!(batch.devices().get(request.device.unwrap()), Some("mmcblk0"));
    }
}
