//! Chooses the moments at which power is cut.
//!
//! What an application was promised can be seen to be missing only between the line that reports the promise and the next write to
//! the device, which is one moment of thousands. Such moments are therefore chosen before all others.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;
use rustc_hash::FxHashSet;

use crate::log_index::{CrashLogIndex, RunEvent};
use crate::state_choice::sample;

/// Lines of a workload that determine where power is cut, by their index in [`CrashLogIndex::acknowledgements`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutLines {
    /// Lines after which power is cut, and then those moments right before them, before any other moment is chosen. The groups are
    /// in order of importance.
    pub first: Vec<Vec<usize>>,
    /// Lines after which nothing is judged until the next line; if there are any, nothing is judged before the first line either.
    pub idle: Vec<usize>,
}

/// The chosen moments, by their index in [`CrashLogIndex::moments`].
pub(crate) struct CutPlan {
    /// Those at which power is cut, in order.
    pub cuts: Vec<usize>,
    /// Number of moments at which power could be cut.
    pub possible: usize,
    /// The moments after the lines of the first group.
    pub after_first_lines: FxHashSet<usize>,
}

/// Chooses at most `most` moments from `from` on. Without `lines`, up to half of them follow a line of the workload, of any kind.
pub(crate) fn choose_cuts(
    run: &CrashLogIndex,
    from: usize,
    most: usize,
    lines: Option<&CutLines>,
    seed: u64,
) -> CutPlan {
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
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut chosen = FxHashSet::default();
    let mut take = |moments: &[usize], most: usize| {
        let mut left: Vec<usize> = moments.iter().copied().filter(|place| !chosen.contains(place)).collect();
        left.sort_unstable();
        left.dedup();
        let most = most.saturating_sub(chosen.len());
        chosen.extend(sample(&left, most, &mut random));
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
    let mut chosen: Vec<usize> = chosen.into_iter().collect();
    chosen.sort_unstable();
    CutPlan { cuts: chosen, possible: possible.len(), after_first_lines: after_first.into_iter().collect() }
}

/// The moments from `from` on at which power could be cut, without those in which nothing is judged; if nothing is judged in any of
/// them, all are.
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

/// Whether power can be cut right after a moment: programs that end at the same time count together.
pub(crate) fn is_cut(run: &CrashLogIndex, place: usize) -> bool {
    let (this, next) = (&run.moments()[place], run.moments().get(place + 1));
    !next.is_some_and(|next| next.at == this.at && matches!(next.event, RunEvent::Programmed { .. }))
}
