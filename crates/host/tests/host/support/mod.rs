//! A device that completes requests in any order, with the data that would survive a power cut.

use std::collections::{BTreeMap, BTreeSet};

use emmclab_base::{BlockNote, BlockRole, Nanos, Op, RequestFlags};
use emmclab_host::{
    BlockRequestId, CallerId, FileOp, FinishedOperation, FinishedOperations, HostBlockRequest, HostBlockRequests, HostConfig,
    Mount, SimulatedHost,
};

/// A command at the device.
#[derive(Clone, Debug)]
pub struct Command {
    pub request: HostBlockRequest,
    pub notes: Vec<BlockNote>,
    /// Number of the event at which it was submitted to the device.
    pub issued: u64,
    /// What a flush makes durable: pages, each with the event at which its write was submitted.
    covers: Vec<(u64, u64)>,
}

/// The contents of a page of eight sectors on the device, as the events of the writes to it.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// The event at which the last completed write was issued.
    written: Option<u64>,
    /// The event at which the last durable write was issued.
    durable: Option<u64>,
}

/// A transaction of an ext4 journal, as observed at the device.
#[derive(Clone, Debug, Default)]
struct Transaction {
    /// Home sectors of the logged blocks.
    homes: BTreeSet<u64>,
    under_way: u64,
    committed: bool,
}

/// The device. It checks the rules of the block layer and of journals for each request.
#[derive(Debug, Default)]
pub struct Device {
    mounts: Vec<Mount>,
    depth: usize,
    /// Whether all completed writes are durable, which applies if no flushes are sent.
    plain: bool,
    pub under_way: Vec<Command>,
    pages: BTreeMap<u64, Page>,
    /// Transactions by mount.
    transactions: Vec<BTreeMap<u32, Transaction>>,
    /// All commands in the order of issue, for comparisons.
    pub log: Vec<(Nanos, Op, u64, u32, u16)>,
    pub events: u64,
    /// Numbers of all commands.
    known: BTreeSet<BlockRequestId>,
    pub commits: u64,
    pub tails: u64,
}

impl Device {
    pub fn new(config: &HostConfig, mounts: &[Mount], plain: bool) -> Self {
        Self {
            mounts: mounts.to_vec(),
            depth: config.device_depth as usize,
            plain,
            transactions: vec![BTreeMap::new(); mounts.len()],
            ..Self::default()
        }
    }

    fn take(&mut self, host: &mut SimulatedHost, now: Nanos) {
        let mut requests = HostBlockRequests::default();
        host.take_requests(&mut requests);
        for request in &requests.requests {
            self.events += 1;
            let flushes = request.request.op == Op::Flush || request.request.flags.contains(RequestFlags::PREFLUSH);
            let covers = if flushes { self.complete_pages() } else { Vec::new() };
            let notes = requests.notes(request).to_vec();
            let command = Command { request: request.clone(), notes, issued: self.events, covers };
            self.check(&command);
            assert!(self.known.insert(request.id), "a number is used once");
            let submitted = &request.request;
            self.log.push((now, submitted.op, submitted.sector.0, submitted.sectors, submitted.flags.0));
            self.under_way.push(command);
            assert!(self.under_way.len() <= self.depth, "more requests than the driver takes");
        }
    }

    fn complete_pages(&self) -> Vec<(u64, u64)> {
        self.pages.iter().filter_map(|(number, page)| Some((*number, page.written?))).collect()
    }

    fn check(&mut self, command: &Command) {
        let submitted = &command.request.request;
        if submitted.op == Op::Flush {
            assert_eq!((submitted.sector.0, submitted.sectors), (0, 0));
            return;
        }
        let mount = &self.mounts[usize::from(command.request.mount.0)];
        let (from, to) = (submitted.sector.0, submitted.end().0);
        assert!(
            submitted.sectors > 0 && mount.first_sector <= from && to <= mount.first_sector + mount.sectors,
            "outside of its partition: {submitted:?}"
        );
        for other in &self.under_way {
            let earlier = &other.request.request;
            let meets = earlier.sector.0 < to && from < earlier.end().0;
            assert!(!meets || (earlier.op == Op::Read && submitted.op == Op::Read), "overlap: {earlier:?} and {submitted:?}");
        }
        if submitted.op != Op::Write {
            return;
        }
        let sectors: u32 = command.notes.iter().map(|note| note.sectors).sum();
        assert_eq!(sectors, submitted.sectors, "notes cover a write");
        let mut sector = from;
        for note in &command.notes {
            self.check_note(usize::from(command.request.mount.0), note, sector, submitted.flags);
            sector += u64::from(note.sectors);
        }
    }

    /// Checks the order that JBD2 requires.
    fn check_note(&mut self, mount: usize, note: &BlockNote, sector: u64, flags: RequestFlags) {
        let Some(id) = note.transaction else { return };
        let transactions = &mut self.transactions[mount];
        match note.role {
            BlockRole::Descriptor | BlockRole::Logged | BlockRole::Revoke => {
                let transaction = transactions.entry(id).or_default();
                assert!(!transaction.committed, "a block of transaction {id} behind its commit");
                transaction.under_way += 1;
                transaction.homes.extend(note.home);
            }
            BlockRole::Commit => {
                let transaction = transactions.entry(id).or_default();
                assert_eq!(transaction.under_way, 0, "commit {id} before its blocks are complete");
                let before = id.checked_sub(1).and_then(|before| transactions.get(&before));
                assert!(before.is_none_or(|earlier| earlier.committed), "commit {id} before the one before it");
            }
            BlockRole::JournalSuperblock if flags.contains(RequestFlags::FUA) => {
                self.tails += 1;
                // Home blocks of transactions that the journal drops are durable, unless a later transaction contains them.
                for (forgotten, transaction) in transactions.range(..id) {
                    for home in &transaction.homes {
                        let later = transactions.range(forgotten + 1..).any(|(_, earlier)| earlier.homes.contains(home));
                        let durable = self.pages.get(&(home / 8)).is_some_and(|page| page.durable.is_some());
                        assert!(later || durable, "the journal forgets block {home} of transaction {forgotten}");
                    }
                }
                transactions.retain(|earlier, _| *earlier >= id);
            }
            role if role.at_home() => {
                let committed = transactions.get(&id).is_none_or(|earlier| earlier.committed);
                assert!(committed, "{role:?} at {sector} is home before transaction {id} is committed");
            }
            _ => {}
        }
    }

    /// Completes one of the requests in progress.
    pub fn complete(&mut self, host: &mut SimulatedHost, at: usize, now: Nanos) {
        let command = self.under_way.remove(at);
        self.events += 1;
        let submitted = &command.request.request;
        for (page, issued) in &command.covers {
            let page = self.pages.entry(*page).or_default();
            page.durable = page.durable.max(Some(*issued));
        }
        if submitted.op == Op::Write {
            for page in submitted.sector.0 / 8..submitted.end().0.div_ceil(8) {
                let page = self.pages.entry(page).or_default();
                page.written = Some(command.issued);
                if submitted.flags.contains(RequestFlags::FUA) || self.plain {
                    page.durable = Some(command.issued);
                }
            }
            let transactions = &mut self.transactions[usize::from(command.request.mount.0)];
            for note in &command.notes {
                let Some(transaction) = note.transaction.and_then(|id| transactions.get_mut(&id)) else { continue };
                match note.role {
                    BlockRole::Descriptor | BlockRole::Logged | BlockRole::Revoke => transaction.under_way -= 1,
                    BlockRole::Commit => {
                        transaction.committed = true;
                        self.commits += 1;
                    }
                    _ => {}
                }
            }
        }
        host.completed(command.request.id, now);
        self.take(host, now);
    }

    /// Whether a durable write of this page was issued at `event` or later.
    pub fn is_durable_since(&self, sector: u64, event: u64) -> bool {
        self.pages.get(&(sector / 8)).and_then(|page| page.durable).is_some_and(|issued| issued >= event)
    }
}

/// A host on a device, with a clock.
pub struct Bench {
    pub host: SimulatedHost,
    pub device: Device,
    pub now: Nanos,
    pub finished: Vec<FinishedOperation>,
    pub waited_for: Vec<Vec<BlockRequestId>>,
    busy: BTreeSet<CallerId>,
}

impl Bench {
    pub fn new(config: HostConfig, mounts: &[Mount], plain: bool) -> Self {
        let device = Device::new(&config, mounts, plain);
        Self {
            host: SimulatedHost::new(config, mounts).unwrap(),
            device,
            now: Nanos::ZERO,
            finished: Vec::new(),
            waited_for: Vec::new(),
            busy: BTreeSet::new(),
        }
    }

    pub fn is_busy(&self, caller: CallerId) -> bool {
        self.busy.contains(&caller)
    }

    pub fn begin(&mut self, caller: CallerId, operation: &FileOp) -> emmclab_base::Result<()> {
        self.device.events += 1;
        self.host.begin(caller, self.now, operation)?;
        self.busy.insert(caller);
        self.settle();
        Ok(())
    }

    /// Completes the request at this index of those in progress, after some time.
    pub fn complete(&mut self, at: usize, time: Nanos) {
        self.wait(time);
        if !self.device.under_way.is_empty() {
            let at = at % self.device.under_way.len();
            self.device.complete(&mut self.host, at, self.now);
            self.settle();
        }
    }

    pub fn wait(&mut self, time: Nanos) {
        self.now += time;
        self.host.advance(self.now);
        self.settle();
    }

    fn settle(&mut self) {
        self.device.take(&mut self.host, self.now);
        let mut finished = FinishedOperations::default();
        self.host.take_finished(&mut finished);
        for earlier in &finished.operations {
            assert_eq!(earlier.waits.total(), earlier.at - earlier.begun, "the parts add up");
            assert!(earlier.at <= self.now);
            let requests = finished.requests(earlier);
            assert!(requests.iter().all(|id| self.device.known.contains(id)), "the device had what was waited for");
            self.waited_for.push(finished.requests(earlier).to_vec());
            assert!(self.busy.remove(&earlier.caller), "an operation ends once");
            self.finished.push(earlier.clone());
        }
    }

    /// Completes requests until no caller waits.
    pub fn drain(&mut self) {
        while !self.busy.is_empty() {
            if !self.device.under_way.is_empty() {
                self.complete(0, Nanos::from_micros(100));
            } else if let Some(due) = self.host.next_event() {
                let time = due.saturating_sub(self.now).max(Nanos(1));
                self.wait(time);
            } else {
                panic!("callers wait for nothing: {:?}", self.busy);
            }
        }
    }

    /// Performs one operation together with all others in progress.
    pub fn perform(&mut self, operation: &FileOp) -> FinishedOperation {
        self.begin(CallerId(1_000), operation).unwrap();
        self.drain();
        self.finished.iter().rfind(|earlier| earlier.caller == CallerId(1_000)).unwrap().clone()
    }
}
