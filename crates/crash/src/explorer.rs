//! Steps through a run and generates the possible disk states of each power cut, one after another.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use emmclab_base::{Error, ErrorClass, Nanos, Op, Result, SECTOR_BYTES};
use emmclab_device::contract::Version;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use rustc_hash::FxHashSet;
use xxhash_rust::xxh3::xxh3_64;

use crate::annotate::metadata_blocks;
use crate::disk_contents::{
    BLOCK, Block, CrashDiskView, DevicePromise, DiskContents, DurableCells, PromiseViolation, keep_beginnings,
};
use crate::legal_states::{LegalStates, TearMode};
use crate::log::CommandPort;
use crate::log_index::{CrashLogIndex, RunEvent};
use crate::recovery::HostView;
use crate::state_choice::{ChoiceMethod, ChoiceMethods, Levels, choose, sample};

/// Options for exploring the disk states that power cuts can leave.
#[derive(Clone, Debug)]
pub struct ExploreOptions {
    /// Maximum number of moments (logged events) after which power is cut. If there are fewer moments, all are used.
    pub cuts: usize,
    /// The methods that choose the disk states of each power cut.
    pub ways: ChoiceMethods,
    /// The seed of the random choice of power cuts and disk states.
    pub seed: u64,
    /// How finely a power cut can split an interrupted write.
    pub tear: TearMode,
    /// The mark in the log after which power cuts begin; `None` for the beginning of the log.
    pub from: Option<String>,
    /// Explores only the power cut with this number and, if a second number is given, only this state of the cut; `None` for all.
    pub only: Option<(usize, Option<u32>)>,
    /// The share of the states to explore in this process: the index of the share, counted from 0, and the number of shares.
    pub share: (u64, u64),
    /// The output lines of the workload that determine where power is cut; `None` if the meaning of the lines is unknown.
    pub lines: Option<CutLines>,
    /// Whether power is cut in passes over the log, each with twice as many cuts as the one before and the most important cuts first. An
    /// exploration that ends early then covers the whole log.
    pub in_passes: bool,
}

impl Default for ExploreOptions {
    fn default() -> Self {
        Self {
            cuts: 1000,
            ways: ChoiceMethods::default(),
            seed: 1,
            tear: TearMode::None,
            from: None,
            only: None,
            share: (0, 1),
            lines: None,
            in_passes: false,
        }
    }
}

/// Number of the latest requests whose blocks are all checked after the recovery of layers. Of the blocks of earlier requests, about one in
/// `HOST_SHARE` is checked.
const HOST_RECENT: usize = 64;
const HOST_SHARE: u64 = 16;
/// Number of consecutive states that go to the same part if an exploration is divided. Consecutive states differ little, so the outcome of
/// one can often be derived from another.
const STATES_TOGETHER: u64 = 8;
/// The first of the passes of an exploration has this part of all cuts.
const FIRST_PASS: usize = 32;

/// A disk state that a power cut may leave.
#[derive(Clone)]
pub struct CrashState {
    /// The moment (logged event) after which power is lost, as an index in [`CrashLogIndex::moments`].
    pub cut: usize,
    /// Number of the state among the states of its cut.
    pub number: u32,
    /// Number of the state among the states of all cuts.
    pub index: u64,
    /// Time of the power loss.
    pub at: Nanos,
    /// The method by which this state was chosen.
    pub way: ChoiceMethod,
    /// Number of output lines with which the workload had acknowledged data before the cut.
    pub acknowledged: usize,
    /// Promises that the device in the run violated.
    pub broken: Vec<PromiseViolation>,
    base: Arc<DiskContents>,
    changes: Arc<BTreeMap<u64, Block>>,
    /// For each atom (the unit of atomic writes), the number of its unpromised writes that are on the disk; `None` for the state that the
    /// simulated device would have left.
    levels: Option<Levels>,
}

/// A write that is missing from a disk state, or whose sectors are garbled in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OmittedWrite {
    /// The command that wrote the data: an index in the list of device commands ([`CrashLogIndex::commands`]).
    pub command: u32,
    /// First missing sector.
    pub sector: u64,
    /// Number of missing sectors.
    pub sectors: u64,
    /// Whether the sectors contain garbage instead of older data.
    pub garbled: bool,
}

/// Coverage of an exploration of crash states: which part of the possible power cuts and disk states was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ExplorationCoverage {
    /// Number of moments (logged events) at which power could be cut.
    pub moments: u64,
    /// Number of power cuts that were tried so far.
    pub cuts: u64,
    /// Decimal logarithm of the number of disk states that the contract of the device allows at the tried cuts; an upper bound.
    pub legal_log10: f64,
    /// Number of disk states that were chosen, in all shares.
    pub chosen: u64,
    /// Number of chosen states that equal an earlier state: in disk contents, and in the acknowledged lines of the workload.
    pub equal: u64,
    /// Largest number of writes in one cut that the device had not yet promised to keep.
    pub most_unpromised: u64,
    /// Number of output lines of the workload after which power is cut first. These are the lines of the first group in [`CutLines`], or
    /// all lines without groups.
    pub lines: u64,
    /// Number of the lines counted in `lines` after which power has been cut so far.
    pub lines_cut: u64,
}

/// An exploration of the disk states that power cuts in a run may leave.
pub struct Explorer {
    run: Arc<CrashLogIndex>,
    options: ExploreOptions,
    cuts: VecDeque<usize>,
    /// Index in the log of the next event to be processed.
    next_moment: usize,
    durable: DurableCells,
    legal: LegalStates,
    /// The promises of the layers to the host; `None` without layers.
    host: Option<LegalStates>,
    /// Blocks that contain metadata or belong to a journal. They are not checked here: a layer that recognises the journal need not keep
    /// the promises of a disk for these blocks.
    metadata_blocks: Arc<FxHashSet<u64>>,
    acknowledged: usize,
    /// Disk contents and number of acknowledgements of each state chosen so far.
    distinct: FxHashSet<(u128, usize)>,
    states: VecDeque<CrashState>,
    next_index: u64,
    covered: ExplorationCoverage,
    /// The moments directly after the output lines that [`ExplorationCoverage::lines`] counts.
    after_first_lines: FxHashSet<usize>,
}

impl Explorer {
    /// Begins an exploration of a run.
    /// Errors: if the run has no moments at which power could be cut, or the options do not fit the run.
    pub fn new(run: &Arc<CrashLogIndex>, options: &ExploreOptions) -> Result<Self> {
        let from = options.from.as_deref().map_or(0, |mark| run.after_mark(mark));
        let all = run.moments().len();
        let begins = from < all && (from > 0 || options.from.is_none() || !run.header().cells);
        if run.truncated() && !begins {
            return Err(Error::new(ErrorClass::Truncated, "the log is cut short before the workload begins")
                .in_file(run.path())
                .hint("copy the log again, or run the workload again"));
        }
        let CutPlan { cuts: chosen, possible, after_first_lines: after_first } = choose_cuts(run, from, options);
        if possible == 0 {
            return Err(Error::new(ErrorClass::Empty, "the crash log has no moment at which power could be cut")
                .in_file(run.path())
                .hint("use a workload that writes to the device"));
        }
        let cuts = match options.only {
            Some((cut, _)) if cut < all => [(cut..all).find(|place| is_cut(run, *place)).unwrap_or(cut)].into(),
            Some((cut, _)) => {
                return Err(Error::new(ErrorClass::Config, format!("the number of the power cut must be 0 to {}", all - 1))
                    .of_field("cut", 0, cut.to_string().as_bytes()));
            }
            None => chosen.into(),
        };
        Ok(Self {
            run: run.clone(),
            options: options.clone(),
            cuts,
            next_moment: 0,
            durable: new_cells(run),
            legal: LegalStates::new(run, CommandPort::Device, options.tear),
            host: new_host(run, options.tear),
            metadata_blocks: metadata_blocks(run)?,
            acknowledged: 0,
            distinct: FxHashSet::default(),
            states: VecDeque::new(),
            next_index: 0,
            covered: ExplorationCoverage {
                legal_log10: f64::NEG_INFINITY,
                moments: possible as u64,
                lines: after_first.len() as u64,
                ..ExplorationCoverage::default()
            },
            after_first_lines: after_first,
        })
    }

    /// The log of the explored run.
    pub fn run(&self) -> &Arc<CrashLogIndex> {
        &self.run
    }

    /// The moments at which power will still be cut, as indices of [`CrashLogIndex::moments`].
    pub fn cuts(&self) -> impl Iterator<Item = usize> {
        self.cuts.iter().copied()
    }

    /// The coverage of the exploration so far.
    pub fn covered(&self) -> ExplorationCoverage {
        self.covered
    }

    /// Returns a view of the disk in a crash state.
    pub fn view(&self, state: &CrashState) -> CrashDiskView {
        CrashDiskView::new(&self.run, &state.base, &state.changes, self.run.header().all_sectors())
    }

    /// Returns the next disk state of the explored share; `None` at the end.
    pub fn next_state(&mut self) -> Option<CrashState> {
        loop {
            if let Some(state) = self.states.pop_front() {
                return Some(state);
            }
            let cut = self.cuts.pop_front()?;
            self.go_to(cut);
            self.choose(cut);
        }
    }

    /// Returns the writes that are missing from a state of the current cut. Of each atom (the unit of atomic writes), only the oldest
    /// missing write is returned; all later ones are missing, too. Empty for the state that the simulated device itself would have left.
    pub fn omitted(&self, state: &CrashState) -> Vec<OmittedWrite> {
        let levels = state.levels.iter().flatten().map(|level| usize::from(*level));
        let commands = self.run.commands(CommandPort::Device);
        let atoms = self.legal.atoms().zip(self.legal.unpromised());
        let lacking = atoms.zip(levels).filter_map(|(((first, end), writes), level)| {
            let command = writes.get(level)?.version as u32 - 1;
            let logged = &commands[command as usize];
            let (from, to) = (first.max(logged.command.sector), end.min(logged.end()));
            let garbled = level > 0 && writes[level - 1].garbled;
            Some(OmittedWrite { command, sector: from, sectors: to - from, garbled })
        });
        lacking.collect()
    }

    /// Returns a copy of a state of the current cut in which fewer writes are missing. Of the missing writes of `state`, only those with
    /// the indexes `places` in [`Explorer::omitted`] may stay missing. Writes that a present write requires become present, too.
    pub fn with_omitted(&self, state: &CrashState, places: &[usize]) -> CrashState {
        let Some(levels) = &state.levels else { return state.clone() };
        let mut place = 0;
        let mut chosen: Levels = Vec::with_capacity(levels.len());
        for (writes, level) in self.legal.unpromised().iter().zip(levels) {
            let all = writes.len() as u16;
            if *level == all {
                chosen.push(all);
                continue;
            }
            chosen.push(if places.contains(&place) { *level } else { all });
            place += 1;
        }
        self.legal.closure().apply(&mut chosen);
        let changes = Arc::new(self.legal.changes(&self.run, &chosen, self.seed_of(state.cut)));
        CrashState { changes, levels: Some(chosen), ..state.clone() }
    }

    /// Checks the data that layers return after they recovered from a state of the current cut. Returns a description of the first wrong
    /// sector, which contains neither the newest data that must be durable nor later data. All sectors of the latest requests are checked.
    /// Of the other blocks, each state checks another sample.
    pub(crate) fn host_fault(&self, state: &CrashState, view: &HostView) -> Option<String> {
        let legal = self.host.as_ref()?;
        let share = |block: &u64| (block ^ state.index).is_multiple_of(HOST_SHARE);
        let written = legal.promised().blocks().map(|(block, _)| block).filter(share);
        let loose = legal.atoms().map(|(first, _)| first / BLOCK);
        let commands = self.run.commands(CommandPort::Host);
        let recent = &commands[legal.arrived().saturating_sub(HOST_RECENT)..legal.arrived()];
        let recent = recent.iter().flat_map(|logged| logged.command.sector / BLOCK..logged.end().div_ceil(BLOCK));
        let mut blocks: Vec<u64> = written.chain(loose).chain(recent).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.retain(|block| !self.metadata_blocks.contains(block));
        let mut buffer = vec![0; (BLOCK * SECTOR_BYTES) as usize];
        for block in blocks {
            let first = block * BLOCK;
            let sectors = (view.sectors() - first).min(BLOCK);
            let buffer = &mut buffer[..(sectors * SECTOR_BYTES) as usize];
            if let Err(error) = view.read(first, buffer) {
                return Some(format!("sector {first} cannot be read: {error}"));
            }
            for (sector, data) in (first..).zip(buffer.chunks_exact(SECTOR_BYTES as usize)) {
                if legal.contradicts(&self.run, sector, xxh3_64(data)) {
                    return Some(format!("sector {sector} contains neither the promised data nor data that was written later"));
                }
            }
        }
        None
    }

    /// Processes all moments of the run up to and including `cut`. If later moments are processed already, begins at the first moment.
    fn go_to(&mut self, cut: usize) {
        let run = self.run.clone();
        if cut < self.next_moment {
            self.durable = new_cells(&run);
            self.legal = LegalStates::new(&run, CommandPort::Device, self.options.tear);
            self.host = new_host(&run, self.options.tear);
            (self.acknowledged, self.next_moment) = (0, 0);
        }
        let commands = run.commands(CommandPort::Device);
        let spool = run.spool();
        while self.next_moment <= cut {
            let moment = run.moments()[self.next_moment];
            self.next_moment += 1;
            match moment.event {
                RunEvent::Arrives(CommandPort::Device, command) => self.legal.arrives(&run, command),
                RunEvent::Completes(CommandPort::Device, command) => {
                    let own = commands[command as usize].command;
                    let durable = &mut self.durable;
                    self.legal.completes(&run, command, moment.at, |(first, end, version)| {
                        let promise = match (version == Version::from(command) + 1, own.modifiers.durable()) {
                            _ if own.op == Op::SecureErase => DevicePromise::Erased,
                            (true, true) => DevicePromise::Fua,
                            (true, false) => DevicePromise::Completion,
                            (false, _) => DevicePromise::Flush,
                        };
                        durable.promised((first, end), version, promise);
                    });
                }
                RunEvent::Begins { command, sector, sectors } => {
                    self.durable.begins(command, sector, sectors);
                }
                RunEvent::Programmed { command, sector, sectors } => {
                    let range = (sector, sector + u64::from(sectors));
                    self.durable.programmed(spool, &commands[command as usize], command, range);
                    for (first, end, version) in self.legal.implied_by(Version::from(command) + 1) {
                        self.durable.promised((first, end), version, DevicePromise::Order);
                    }
                }
                RunEvent::Discarded { command, sector, sectors } => {
                    self.durable.discarded(spool, command, moment.at, (sector, sector + sectors));
                }
                RunEvent::Endangered { sector, sectors } => self.durable.endangered.push(sector..sector + sectors),
                RunEvent::Safe { sector, sectors } => self.durable.safe(&(sector..sector + sectors)),
                RunEvent::Acknowledged(_) => self.acknowledged += 1,
                RunEvent::Arrives(CommandPort::Host, command) => {
                    if let Some(host) = &mut self.host {
                        host.arrives(&run, command);
                    }
                }
                RunEvent::Completes(CommandPort::Host, command) => {
                    if let Some(host) = &mut self.host {
                        host.completes(&run, command, moment.at, |_| {});
                    }
                }
                RunEvent::Mark(_) => {}
            }
        }
    }

    /// The seed of all random choices for a power cut.
    fn seed_of(&self, cut: usize) -> u64 {
        self.options.seed ^ (cut as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Chooses the disk states of a cut by all configured methods.
    fn choose(&mut self, cut: usize) {
        let run = self.run.clone();
        let seed = self.seed_of(cut);
        let writes = self.legal.unpromised();
        let most = writes.iter().map(|writes| writes.len() as u64).sum();
        let mut chosen: Vec<(ChoiceMethod, Option<Levels>)> = Vec::new();
        for (way, most) in self.options.ways.iter() {
            match way {
                ChoiceMethod::Device if run.header().cells => chosen.push((way, None)),
                ChoiceMethod::Device => {}
                _ => chosen.extend(choose(way, most, &writes, seed).into_iter().map(|levels| (way, Some(levels)))),
            }
        }
        self.covered.cuts += 1;
        self.covered.lines_cut += u64::from(self.after_first_lines.contains(&cut));
        self.covered.legal_log10 = add_log10(self.covered.legal_log10, self.legal.count_log10());
        self.covered.most_unpromised = self.covered.most_unpromised.max(most);
        let closure = self.legal.closure();
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        for (way, levels) in &mut chosen {
            let Some(levels) = levels else { continue };
            match way {
                ChoiceMethod::Omit1 | ChoiceMethod::Pairs => closure.drop_behind_gaps(levels),
                ChoiceMethod::Random => closure.end_zones(levels, &mut random),
                ChoiceMethod::Device | ChoiceMethod::Boundary | ChoiceMethod::Only1 => {}
            }
            closure.apply(levels);
        }
        for (number, (way, levels)) in (0..).zip(chosen) {
            let Some(levels) = levels else {
                let commands = run.commands(CommandPort::Device);
                let reliable = |command: u32| commands[command as usize].command.modifiers.durable();
                let at = run.moments()[cut].at;
                let broken = self.durable.broken(at, reliable);
                let mut changes = self.durable.cut(at, commands);
                if let Some(zones) = &run.header().device.zones {
                    keep_beginnings(zones, self.durable.contents(), &mut changes);
                }
                self.keep(cut, number, way, (self.durable.contents().clone(), changes, None), broken);
                continue;
            };
            let changes = self.legal.changes(&run, &levels, seed);
            let parts = (self.legal.promised().clone(), changes, Some(levels));
            self.keep(cut, number, way, parts, Vec::new());
        }
    }

    /// Adds a state to the exploration, unless an earlier state has equal contents and acknowledgements.
    fn keep(
        &mut self, cut: usize, number: u32, way: ChoiceMethod,
        (base, changes, levels): (Arc<DiskContents>, BTreeMap<u64, Block>, Option<Levels>), broken: Vec<PromiseViolation>,
    ) {
        let only = self.options.only.and_then(|(_, number)| number);
        if only.is_some_and(|only| only != number) {
            return;
        }
        self.covered.chosen += 1;
        let spool = self.run.spool();
        let sum = changes.iter().fold(base.sum(), |sum, (block, sources)| base.sum_with(spool, sum, *block, sources));
        if !self.distinct.insert((sum, self.acknowledged)) && broken.is_empty() {
            self.covered.equal += 1;
            return;
        }
        let index = self.next_index;
        self.next_index += 1;
        let (share, shares) = self.options.share;
        if index / STATES_TOGETHER % shares != share {
            return;
        }
        self.states.push_back(CrashState {
            cut,
            number,
            index,
            at: self.run.moments()[cut].at,
            way,
            acknowledged: self.acknowledged,
            broken,
            base,
            changes: Arc::new(changes),
            levels,
        });
    }
}

/// The cells of the device before the first moment of a run.
fn new_cells(run: &CrashLogIndex) -> DurableCells {
    DurableCells::new(run.base(), run.header().device.lies == "late_trim")
}

/// The promises of the layers before the first moment of a run; `None` without layers.
fn new_host(run: &CrashLogIndex, tear: TearMode) -> Option<LegalStates> {
    (!run.header().layers.is_empty()).then(|| LegalStates::new(run, CommandPort::Host, tear))
}

/// Returns the logarithm of a sum, from the logarithms of its two terms.
fn add_log10(first: f64, second: f64) -> f64 {
    let (most, least) = if first > second { (first, second) } else { (second, first) };
    most + (10_f64.powf(least - most)).ln_1p() / std::f64::consts::LN_10
}

/// Output lines of a workload that determine where power is cut, as indices of [`CrashLogIndex::acknowledgements`].
///
/// If an application loses data that it reported as safe, this is visible only between the line that reports it and the next write to the
/// device. This is one moment among thousands, so such moments are chosen before all others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutLines {
    /// Output lines directly after which power is cut, in groups of decreasing importance. The moments directly before these lines are
    /// chosen next, and other moments last.
    pub first: Vec<Vec<usize>>,
    /// Output lines after which the workload is idle: power is not cut between such a line and the next line. If there are any, power is
    /// not cut before the first line.
    pub idle: Vec<usize>,
}

/// The chosen moments of power cuts, as indices of [`CrashLogIndex::moments`].
pub(crate) struct CutPlan {
    /// The moments (indices of logged events) at which power is cut, in order; with [`ExploreOptions::in_passes`], in the order of each pass.
    pub cuts: Vec<usize>,
    /// Number of moments (logged events) at which power could be cut.
    pub possible: usize,
    /// The moments directly after the most important output lines of the workload.
    pub after_first_lines: FxHashSet<usize>,
}

/// Chooses the moments for power cuts, from the index `from` on. If nothing is known about the lines, up to half of the moments directly
/// follow output lines of the workload.
pub(crate) fn choose_cuts(run: &CrashLogIndex, from: usize, options: &ExploreOptions) -> CutPlan {
    let (most, lines) = (options.cuts, options.lines.as_ref());
    let possible = possible(run, from, lines.map_or(&[], |lines| &lines.idle));
    let mut places = vec![None; run.acknowledgements().len()];
    for (place, moment) in run.moments().iter().enumerate().skip(from) {
        if let RunEvent::Acknowledged(line) = moment.event {
            places[line as usize] = Some(place);
        }
    }
    let after = |lines: &[usize]| -> Vec<usize> {
        let places = lines.iter().filter_map(|line| places.get(*line).copied().flatten());
        places.filter(|place| possible.binary_search(place).is_ok()).collect()
    };
    let before = |places: &[usize]| -> Vec<usize> {
        let next = |place: &usize| possible.partition_point(|other| other < place).checked_sub(1);
        places.iter().filter_map(next).map(|place| possible[place]).collect()
    };
    let mut random = Pcg64Mcg::seed_from_u64(options.seed);
    let mut chosen = FxHashSet::default();
    let mut by_importance = Vec::new();
    let mut take = |moments: &[usize], most: usize| {
        let mut left: Vec<usize> = moments.iter().copied().filter(|place| !chosen.contains(place)).collect();
        left.sort_unstable();
        left.dedup();
        let most = most.saturating_sub(chosen.len());
        let taken = sample(&left, most, &mut random);
        chosen.extend(taken.iter().copied());
        by_importance.push(taken);
    };
    let after_first = if let Some(lines) = lines {
        let groups: Vec<_> = lines.first.iter().map(|group| after(group)).collect();
        for group in &groups {
            take(group, most);
            take(&before(group), most);
        }
        groups.into_iter().next().unwrap_or_default()
    } else {
        let every: Vec<usize> = (0..places.len()).collect();
        let after = after(&every);
        take(&after, most.div_ceil(2));
        after
    };
    take(&possible, most);
    let cuts = if options.in_passes {
        in_passes(by_importance, &mut random)
    } else {
        let mut cuts = by_importance.concat();
        cuts.sort_unstable();
        cuts
    };
    CutPlan { cuts, possible: possible.len(), after_first_lines: after_first.into_iter().collect() }
}

/// Divides groups of cuts, the most important first, into passes. Each pass is in the order of time and has twice as many cuts as the one
/// before.
fn in_passes(mut groups: Vec<Vec<usize>>, random: &mut Pcg64Mcg) -> Vec<usize> {
    for group in &mut groups {
        for end in (1..group.len()).rev() {
            group.swap(end, random.next_u64() as usize % (end + 1));
        }
    }
    let mut cuts = groups.concat();
    let (mut begin, mut size) = (0, (cuts.len() / FIRST_PASS).max(1));
    while begin < cuts.len() {
        let end = (begin + size).min(cuts.len());
        cuts[begin..end].sort_unstable();
        (begin, size) = (end, 2 * size);
    }
    cuts
}

/// Returns the moments from `from` on at which power can be cut. With `idle` lines, moments before the first output line, and between an
/// idle line and the next line, are left out, unless no other moments exist.
fn possible(run: &CrashLogIndex, from: usize, idle: &[usize]) -> Vec<usize> {
    let all: Vec<usize> = (from..run.moments().len()).filter(|place| is_cut(run, *place)).collect();
    if idle.is_empty() {
        return all;
    }
    let idle: FxHashSet<usize> = idle.iter().copied().collect();
    let (mut is_idle, mut next) = (true, 0);
    let mut judged = all.clone();
    judged.retain(|place| {
        for moment in &run.moments()[next..=*place] {
            if let RunEvent::Acknowledged(line) = moment.event {
                is_idle = idle.contains(&(line as usize));
            }
        }
        next = place + 1;
        !is_idle
    });
    if judged.is_empty() { all } else { judged }
}

/// Whether power can be cut directly after a moment of the log. Flash programs that end at the same time count as one moment.
pub(crate) fn is_cut(run: &CrashLogIndex, place: usize) -> bool {
    let (this, next) = (&run.moments()[place], run.moments().get(place + 1));
    !next.is_some_and(|next| next.at == this.at && next.event.is_end_of_program())
}
