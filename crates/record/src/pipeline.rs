//! From raw pages to batches of requests in order of arrival.

use std::collections::BTreeMap;
use std::sync::Arc;

use emmclab_trace::formats::parse_rwbs;
use emmclab_trace::{
    BATCH_ROWS, Batch, BatchBuilder, Event, EventKind, Ledger, NameId, Names, Nanos, Pairer, Request,
};

use crate::block_event::{BlockEvent, unfilled};
use crate::kernel::Kernel;
use crate::merge::Merge;
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
    /// `device_names` by `dev_t`; devices not in it are named `MAJOR:MINOR`.
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
            let latest = self.cpus.get(cpu).map_or(0, |(_, latest)| *latest);
            self.merge.not_emptied(latest);
        }
        let events: Vec<_> = self.merge.end_round().collect();
        for (time, event) in events {
            self.event(time, &event);
        }
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
        let unnamed = || format!("{}:{}", number >> 20, number & 0xf_ffff);
        let name = self.device_names.get(&number).cloned().unwrap_or_else(unnamed);
        let id = Arc::make_mut(&mut self.devices).intern(&name);
        self.device_ids.insert(number, id);
        id
    }

    /// Names of the processes met so far.
    pub(crate) fn processes(&self) -> &Arc<Names> {
        &self.processes
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
