//! The write frequency of each clustered page. Frequently written pages stay in the reserved area.

use super::settings::{AdvilParameters, HotPolicy, InvalidationMeasure};

/// Write counts for each page (clustered page) of the original area. The memory for a page depends on the policy. `paper` uses 3 bytes if
/// it measures invalidated pages, and 2 bytes if it measures invalidated data. `rewritten` uses 2 bytes. Without a policy, no memory is
/// used.
#[derive(Clone, Debug)]
pub(super) struct PageHeat {
    pub policy: HotPolicy,
    by: InvalidationMeasure,
    page: u64,
    /// Number of logged writes to each page, halved after every move of a section.
    writes: Vec<u16>,
    /// Number of logged writes to each page that overwrote logged data, halved after every move of a section.
    rewrites: Vec<u16>,
    /// Number of writes to each page in the current section, counted up to 2. Used only with [`InvalidationMeasure::Pages`].
    fresh: Vec<u8>,
    /// Invalidated data of the current section. Depending on the settings, this is the number of clustered pages that were written more
    /// than once, or the number of overwritten sectors of logged data.
    invalidated: u32,
    /// Size of the hot region in percent of a section. With the policy `rewritten`, this is the maximum size.
    pub hot_pct: u32,
    step_pct: u32,
    most_pct: u32,
    trial: HotDataTrial,
}

/// Measures whether keeping hot data in the reserved area saves work when a section is emptied. Both choices are tried once. Then the
/// cheaper one is used, and the costlier one is retried at growing intervals.
#[derive(Clone, Copy, Debug, Default)]
struct HotDataTrial {
    /// Cost of the last trial without hot data, and cost of the last trial with hot data. The unit is bytes that the mover read and wrote
    /// for each KB that was logged.
    costs: [Option<u64>; 2],
    /// Whether hot data currently stays in the reserved area when a section is emptied; `None` before a section was emptied.
    keeps: Option<bool>,
    /// Number of rounds until the costlier choice is retried.
    wait: u32,
    /// Number of rounds between the last two trials of the costlier choice (to keep hot data, or to move it).
    pause: u32,
}

impl HotDataTrial {
    /// Records the cost of the current round, and chooses whether to keep hot data in the next round. Returns this choice.
    fn next(&mut self, cost: u64) -> bool {
        if let Some(keeps) = self.keeps {
            self.costs[usize::from(keeps)] = Some(cost);
        }
        let keeps = match self.costs {
            [_, None] => true,
            [None, _] => false,
            [Some(without), Some(with)] if self.wait > 0 => {
                self.wait -= 1;
                with < without
            }
            [Some(without), Some(with)] => {
                self.pause = (self.pause * 2).max(2);
                self.wait = self.pause;
                // At first, the cheaper choice is used. After each pause, the more expensive choice is tried again, because its cost may
                // have changed.
                if self.pause == 2 { with < without } else { with >= without }
            }
        };
        self.keeps = Some(keeps);
        keeps
    }
}

/// A page of the layer (of `clustered_page` bytes) with logged data. The data is a candidate for staying in the reserved area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HotPageCandidate {
    pub page: u32,
    /// Number of sectors that the logged data of the page occupies in the hot region, including record headers.
    pub sectors: u32,
}

impl PageHeat {
    pub fn new(shape: &AdvilParameters) -> Self {
        let pages = shape.capacity.div_ceil(u64::from(shape.page)) as usize;
        let counted = |policy: bool| if policy { pages } else { 0 };
        let by_pages = shape.hot == HotPolicy::Paper && shape.hot_invalidated == InvalidationMeasure::Pages;
        Self {
            policy: shape.hot,
            by: shape.hot_invalidated,
            page: u64::from(shape.page),
            writes: vec![0; counted(shape.hot == HotPolicy::Paper)],
            rewrites: vec![0; counted(shape.hot == HotPolicy::Rewritten)],
            fresh: vec![0; counted(by_pages)],
            invalidated: 0,
            hot_pct: if shape.hot == HotPolicy::None { 0 } else { shape.hot_start_pct },
            trial: HotDataTrial::default(),
            step_pct: shape.hot_step_pct,
            most_pct: shape.hot_most_pct,
        }
    }

    /// Returns the size of the hot region of the first section, in sectors. With the policy `paper`, it is `hot_pct` percent of the
    /// section. With other policies, it is 0.
    pub fn first_region(&self, section: u32) -> u32 {
        if self.policy == HotPolicy::Paper { region(section, self.hot_pct) } else { 0 }
    }

    /// Memory of the write counts in bytes.
    pub fn bytes(&self) -> u64 {
        (2 * self.writes.len() + 2 * self.rewrites.len() + self.fresh.len()) as u64
    }

    /// Counts a logged write; `rewritten` is the number of its sectors that replaced logged data.
    #[inline]
    pub fn count_write(&mut self, sector: u64, end: u64, rewritten: u32) {
        if self.policy == HotPolicy::None {
            return;
        }
        if self.by == InvalidationMeasure::Data {
            self.invalidated = self.invalidated.saturating_add(rewritten);
        }
        for page in sector / self.page..end.div_ceil(self.page) {
            let page = page as usize;
            if self.policy == HotPolicy::Rewritten {
                self.rewrites[page] = self.rewrites[page].saturating_add(u16::from(rewritten > 0));
                continue;
            }
            self.writes[page] = self.writes[page].saturating_add(1);
            if self.by == InvalidationMeasure::Pages && self.fresh[page] < 2 {
                self.fresh[page] += 1;
                self.invalidated += u32::from(self.fresh[page] == 2);
            }
        }
    }

    /// Chooses the clustered pages of a full section that stay in the reserved area.
    ///
    /// Returns these pages in the order in which they are copied, and the size in sectors of the next section's hot region. `section` is
    /// the length of a section in sectors. `cost` is the work since the last switch of sections: bytes read and written to move data, for
    /// each KB of logged data.
    pub fn choose(&mut self, mut candidates: Vec<HotPageCandidate>, section: u32, cost: u64) -> (Vec<HotPageCandidate>, u32) {
        // The size of the hot region is counted in clustered pages or in sectors.
        let by_pages = self.policy == HotPolicy::Paper && self.by == InvalidationMeasure::Pages;
        let unit = if by_pages { self.page as u32 } else { 1 };
        let counts = match self.policy {
            HotPolicy::None => return (Vec::new(), 0),
            HotPolicy::Paper => {
                let held = region(section, self.hot_pct);
                self.hot_pct = if self.invalidated > held / unit {
                    (self.hot_pct + self.step_pct).min(self.most_pct)
                } else {
                    self.hot_pct.saturating_sub(self.step_pct)
                };
                self.invalidated = 0;
                self.fresh.fill(0);
                &mut self.writes
            }
            HotPolicy::Rewritten => {
                let keep = self.trial.next(cost);
                candidates.retain(|candidate| keep && self.rewrites[candidate.page as usize] > 0);
                &mut self.rewrites
            }
        };
        // The hottest page comes first. Equally hot pages are sorted by address.
        candidates.sort_by_key(|candidate| (u16::MAX - counts[candidate.page as usize], candidate.page));
        let paper = self.policy == HotPolicy::Paper;
        let most = region(section, self.hot_pct);
        let mut used = 0;
        candidates.retain(|candidate| {
            let takes = candidate.sectors.max(if by_pages { unit } else { 0 });
            let fits = used + takes <= most;
            used += if fits { takes } else { 0 };
            fits
        });
        for count in counts {
            *count /= 2;
        }
        let size = if paper { most } else { used.div_ceil(8) * 8 };
        (candidates, size)
    }
}

/// Sectors in `pct` percent of a section, rounded down to 4 KB.
fn region(section: u32, pct: u32) -> u32 {
    (u64::from(section) * u64::from(pct) / 100) as u32 / 8 * 8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns in how many of `rounds` rounds hot data is kept.
    fn rounds_kept(rounds: u32, cost: impl Fn(bool) -> u64) -> u32 {
        let mut trial = HotDataTrial::default();
        let mut keeps = trial.next(0);
        let mut count = u32::from(keeps);
        for _ in 1..rounds {
            keeps = trial.next(cost(keeps));
            count += u32::from(keeps);
        }
        count
    }

    #[test]
    fn what_does_not_pay_is_tried_ever_more_seldom() {
        assert!(rounds_kept(100, |keeps| if keeps { 9 } else { 5 }) <= 7);
        assert!(rounds_kept(100, |keeps| if keeps { 5 } else { 9 }) >= 93);
    }
}
