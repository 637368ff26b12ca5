//! The order of requests: rounds, bursts, operations, and the parts of journal transactions.

use std::ops::Range;

use emmclab_trace::Op;

use crate::distribute::{SynthesisRng, percent_of, scale_to, strata};
use crate::load_schedule::{LoadChapter, LoadPiece};
use crate::model::WorkloadModel;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ChapterQuota {
    pub reads: u64,
    pub writes: u64,
    pub rounds: u64,
    pub bursts: u64,
    /// Number of sequential reads and of sequential writes.
    pub sequential: [u64; 2],
    /// Number of reads and of writes that start where an earlier request started.
    pub reaccess: [u64; 2],
}

/// The part of a journal transaction to which a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalRole {
    Data,
    /// Descriptor and logged blocks, in the journal.
    Journal,
    /// The commit block after the journal blocks.
    Commit,
}

/// The order of the requests of a chapter, which is one generated batch. All lists with an entry for each request have the same length and
/// are in order of arrival.
pub(crate) struct ChapterLayout {
    pub op: Vec<Op>,
    pub role: Vec<JournalRole>,
    /// Whether the request begins a burst.
    pub opens: Vec<bool>,
    /// For each request, whether it arrives while its predecessor is unfinished.
    pub waits: Vec<bool>,
    /// Whether the request starts where its predecessor ended.
    pub sequential: Vec<bool>,
    /// Whether the request starts where an earlier request started.
    pub returns: Vec<bool>,
    /// Index after the last request of each piece of the load.
    pub ends: Vec<usize>,
}

impl ChapterLayout {
    /// The index ranges of the requests of each piece of the load.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        (0..self.ends.len()).map(|k| if k == 0 { 0 } else { self.ends[k - 1] }..self.ends[k])
    }

    /// Distributes the totals in `quota` over the pieces of the generated batch `chapter`. In each piece, at most `smallest` writes become
    /// commit blocks. Each increment of `lengthen` halves the number of requests that have other requests waiting behind them.
    pub(crate) fn new(
        model: &WorkloadModel, quota: &ChapterQuota, chapter: &LoadChapter, smallest: &[usize], lengthen: u32,
        dice: &mut SynthesisRng,
    ) -> Self {
        let requests = (quota.reads + quota.writes) as usize;
        let mut layout = Self {
            op: Vec::with_capacity(requests),
            role: vec![JournalRole::Data; requests],
            opens: vec![false; requests],
            waits: vec![true; requests],
            sequential: vec![false; requests],
            returns: vec![false; requests],
            ends: Vec::with_capacity(chapter.pieces.len()),
        };
        let mut first = 0;
        for behind in waiting_behind(model, quota, lengthen, dice) {
            layout.waits[first] = false;
            first += 1 + behind as usize;
        }
        let mut end = 0;
        for piece in &chapter.pieces {
            end += piece.all() as usize;
            layout.ends.push(end);
        }
        let bursts = layout.deal_bursts(model, quota, chapter, dice);
        layout.deal_operations(model, &chapter.pieces, dice);
        layout.deal_commits(model, quota, &bursts, smallest, dice);
        layout.deal_sequential(model, quota, dice);
        layout.deal_returns(model, quota, dice);
        layout
    }

    /// Determines at which requests the bursts of each piece of the load begin. Returns the index after the last request of each burst.
    fn deal_bursts(
        &mut self, model: &WorkloadModel, quota: &ChapterQuota, chapter: &LoadChapter, dice: &mut SynthesisRng,
    ) -> Vec<usize> {
        let pieces: Vec<_> = self.pieces().collect();
        for (piece, load) in pieces.into_iter().zip(&chapter.pieces) {
            let rounds: Vec<usize> = piece.filter(|i| !self.waits[*i]).collect();
            let bursts = if chapter.follows_curve { load.bursts } else { quota.bursts };
            let bursts = bursts.min(rounds.len() as u64);
            if bursts == 0 {
                continue;
            }
            let mut lengths = rounds_of_bursts(model, rounds.len() as u64, bursts, dice);
            let mut at = 0;
            if chapter.follows_curve {
                // A piece of the load curve may begin in the middle of a burst.
                at = dice.below(lengths[0]) as usize;
                lengths[0] -= at as u64;
            }
            for length in lengths {
                self.opens[rounds[at]] = true;
                at += length as usize;
            }
        }
        let all = self.opens.len();
        (1..all).filter(|i| self.opens[*i]).chain([all]).collect()
    }

    fn deal_operations(&mut self, model: &WorkloadModel, pieces: &[LoadPiece], dice: &mut SynthesisRng) {
        let mixing = percent_of(1_000_000, model.bursts.op_mixing_pct);
        let mut op = Op::Read;
        for piece in pieces {
            let mut left = piece.requests;
            for _ in 0..piece.all() {
                let i = self.op.len();
                if self.opens[i] || i == 0 || left[op as usize] == 0 || dice.chance(mixing, 1_000_000) {
                    op = if dice.chance(left[0], left[0] + left[1]) { Op::Read } else { Op::Write };
                }
                left[op as usize] -= 1;
                self.op.push(op);
            }
        }
    }

    fn deal_commits(
        &mut self, model: &WorkloadModel, quota: &ChapterQuota, bursts: &[usize], smallest: &[usize], dice: &mut SynthesisRng,
    ) {
        let mut begin = 0;
        let mut candidates = Vec::new();
        for end in bursts {
            if *end - begin >= 3 && self.op[*end - 3..*end].iter().all(|op| *op == Op::Write) {
                candidates.push(*end - 1);
            }
            begin = *end;
        }
        let wanted = percent_of(candidates.len() as u64, model.bursts.commit_pct);
        let mut left = smallest.to_vec();
        let most = smallest.iter().sum::<usize>().min(quota.sequential[1] as usize);
        for commit in dice.choose(&candidates, (wanted as usize).min(most)) {
            let piece = self.ends.partition_point(|end| *end <= commit);
            if left[piece] > 0 {
                left[piece] -= 1;
                self.role[commit] = JournalRole::Commit;
                self.role[commit - 1] = JournalRole::Journal;
                self.sequential[commit] = true;
            }
        }
    }

    /// Selects the sequential requests. Requests that follow a request of the same operation within a burst are selected first. Other
    /// requests are selected only if there are too few of these.
    fn deal_sequential(&mut self, model: &WorkloadModel, quota: &ChapterQuota, dice: &mut SynthesisRng) {
        let mut commits = [0, 0];
        for (op, _) in self.op.iter().zip(&self.role).filter(|(_, role)| **role == JournalRole::Commit) {
            commits[*op as usize] += 1;
        }
        for op in [Op::Read, Op::Write] {
            let mut wanted = (quota.sequential[op as usize] - commits[op as usize]) as usize;
            let (mut near, mut far) = (Vec::new(), Vec::new());
            for i in 1..self.op.len() {
                if self.op[i] == op && self.role[i] != JournalRole::Commit {
                    let natural = !self.opens[i] && self.op[i - 1] == op && self.role[i] == JournalRole::Data;
                    if natural { near.push(i) } else { far.push(i) }
                }
            }
            // A share p of the candidates is chosen in groups, so the mean run length is the group length divided by 1 - p. The group
            // length is therefore multiplied by 1 - p.
            let left_out = 1.0 - (wanted as f64 / near.len().max(1) as f64).min(1.0);
            let group = (((model.of(op).run_requests - 1.0) * left_out).round() as usize).max(1);
            for (tier, group) in [(near, group), (far, 1)] {
                let chosen = dice.choose_groups(&tier, wanted, group);
                wanted -= chosen.len();
                for i in chosen {
                    self.sequential[i] = true;
                }
            }
        }
    }

    /// Selects the requests that return to an earlier address. Journal requests are selected only if all data requests are selected.
    /// Requests that are followed by a sequential one are selected only up to `sequential_reaccess_pct` of the model, as long as other data
    /// requests remain.
    fn deal_returns(&mut self, model: &WorkloadModel, quota: &ChapterQuota, dice: &mut SynthesisRng) {
        for op in [Op::Read, Op::Write] {
            let (mut followed, mut alone, mut journal) = (Vec::new(), Vec::new(), Vec::new());
            for i in (0..self.op.len()).filter(|i| self.op[*i] == op && !self.sequential[*i]) {
                match self.role[i] {
                    JournalRole::Data if self.sequential.get(i + 1) == Some(&true) => followed.push(i),
                    JournalRole::Data => alone.push(i),
                    _ => journal.push(i),
                }
            }
            let mut wanted = quota.reaccess[op as usize] as usize;
            let natural = percent_of(followed.len() as u64, model.of(op).sequential_reaccess_pct) as usize;
            dice.shuffle(&mut followed);
            let spare = followed.split_off(natural);
            for tier in [followed, alone, spare, journal] {
                let chosen = dice.choose(&tier, wanted);
                wanted -= chosen.len();
                for i in chosen {
                    self.returns[i] = true;
                }
            }
        }
    }
}

/// Returns the number of waiting requests in each round. A round consists of a request that arrives at an idle device, and of the requests
/// that wait for it.
fn waiting_behind(model: &WorkloadModel, quota: &ChapterQuota, lengthen: u32, dice: &mut SynthesisRng) -> Vec<u64> {
    let Some(service) = &model.service else { return vec![0; quota.rounds as usize] };
    let mut behind = strata(&service.round_requests, quota.rounds, 0, 1);
    for requests in &mut behind {
        *requests -= 1;
    }
    dice.shuffle(&mut behind);
    let waiting = quota.reads + quota.writes - quota.rounds;
    if waiting > 0 && behind.iter().all(|requests| *requests == 0) {
        behind[0] = 1;
    }
    scale_to(&mut behind, waiting);
    for _ in 0..lengthen {
        let occupied: Vec<usize> = (0..behind.len()).filter(|i| behind[*i] > 0).collect();
        for pair in occupied.chunks_exact(2) {
            behind[pair[0]] += std::mem::take(&mut behind[pair[1]]);
        }
    }
    behind
}

/// Distributes `rounds` over `bursts`; returns the number of rounds of each burst, at least 1.
fn rounds_of_bursts(model: &WorkloadModel, rounds: u64, bursts: u64, dice: &mut SynthesisRng) -> Vec<u64> {
    let mut lengths = strata(&model.bursts.rounds, bursts, 0, 1);
    for length in &mut lengths {
        *length -= 1;
    }
    dice.shuffle(&mut lengths);
    scale_to(&mut lengths, rounds - bursts);
    for length in &mut lengths {
        *length += 1;
    }
    lengths
}
