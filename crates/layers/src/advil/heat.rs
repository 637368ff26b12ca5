//! How hot each clustered page is, and which stay in the reserved area.

use super::settings::{HotPolicy, Shape};

/// `rewritten`: the limit of the hot region at first, and the least, which goes on trying.
const FIRST_PCT: u32 = 8;
const LEAST_PCT: u32 = 1;

/// Counts for each clustered page of the original area: 3 bytes (`paper`), 2 (`rewritten`) or none.
#[derive(Clone, Debug)]
pub(super) struct Heat {
    policy: HotPolicy,
    page: u64,
    /// Writes to the log, halved after every move.
    writes: Vec<u16>,
    /// Writes that overwrote logged data, halved after every move.
    rewrites: Vec<u16>,
    /// Writes to the current section, up to 2.
    fresh: Vec<u8>,
    /// Clustered pages written more than once in the current section.
    invalidated: u32,
    /// Size of the hot region in percent of a section; of `rewritten` the limit, which follows what staying was worth.
    pub hot_pct: u32,
    step_pct: u32,
    most_pct: u32,
}

/// A clustered page that could stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub page: u32,
    /// Sectors that staying takes, record headers included.
    pub sectors: u32,
}

impl Heat {
    pub fn new(shape: &Shape) -> Self {
        let pages = shape.capacity.div_ceil(u64::from(shape.page)) as usize;
        let counted = |policy: bool| if policy { pages } else { 0 };
        Self {
            policy: shape.hot,
            page: u64::from(shape.page),
            writes: vec![0; counted(shape.hot == HotPolicy::Paper)],
            rewrites: vec![0; counted(shape.hot == HotPolicy::Rewritten)],
            fresh: vec![0; counted(shape.hot == HotPolicy::Paper)],
            invalidated: 0,
            hot_pct: match shape.hot {
                HotPolicy::None => 0,
                HotPolicy::Paper => shape.hot_start_pct,
                HotPolicy::Rewritten => FIRST_PCT.min(shape.hot_most_pct),
            },
            step_pct: shape.hot_step_pct,
            most_pct: shape.hot_most_pct,
        }
    }

    /// Whether any page can stay.
    pub fn keeps(&self) -> bool {
        self.policy != HotPolicy::None
    }

    /// Sectors that the first section leaves for hot data, of which there is none yet: the paper's share.
    pub fn first_region(&self, section: u32) -> u32 {
        if self.policy == HotPolicy::Paper { region(section, self.hot_pct) } else { 0 }
    }

    /// Bytes of the counts.
    pub fn bytes(&self) -> u64 {
        (2 * self.writes.len() + 2 * self.rewrites.len() + self.fresh.len()) as u64
    }

    /// Data was logged, `rewritten` sectors of it over logged data.
    #[inline]
    pub fn logged(&mut self, sector: u64, end: u64, rewritten: u32) {
        if self.policy == HotPolicy::None {
            return;
        }
        for page in sector / self.page..end.div_ceil(self.page) {
            let page = page as usize;
            if self.policy == HotPolicy::Rewritten {
                self.rewrites[page] = self.rewrites[page].saturating_add(u16::from(rewritten > 0));
                continue;
            }
            self.writes[page] = self.writes[page].saturating_add(1);
            if self.fresh[page] < 2 {
                self.fresh[page] += 1;
                self.invalidated += u32::from(self.fresh[page] == 2);
            }
        }
    }

    /// Which of the candidates of a full section stay, in the order in which they are copied, and how many sectors of
    /// the next section are their region. `section` is the length of a section in sectors; `stayed` how many sectors were
    /// kept when it was begun, and how many of those were not overwritten since.
    pub fn choose(
        &mut self,
        mut candidates: Vec<Candidate>,
        section: u32,
        stayed: (u32, u32),
    ) -> (Vec<Candidate>, u32) {
        let counts = match self.policy {
            HotPolicy::None => return (Vec::new(), 0),
            HotPolicy::Paper => {
                let held = region(section, self.hot_pct) / self.page as u32;
                self.hot_pct = if self.invalidated > held {
                    (self.hot_pct + self.step_pct).min(self.most_pct)
                } else {
                    self.hot_pct.saturating_sub(self.step_pct)
                };
                self.invalidated = 0;
                self.fresh.fill(0);
                &mut self.writes
            }
            HotPolicy::Rewritten => {
                // Staying was worth it if at least half of what stayed was overwritten, and was not if less than a quarter was.
                let (kept, left) = stayed;
                if kept > 0 && left <= kept / 2 {
                    self.hot_pct = (self.hot_pct * 2).min(self.most_pct);
                } else if kept > 0 && left > kept / 4 * 3 {
                    self.hot_pct = (self.hot_pct / 2).max(LEAST_PCT);
                }
                candidates.retain(|candidate| self.rewrites[candidate.page as usize] > 0);
                &mut self.rewrites
            }
        };
        // Hottest first; of the same heat in order of address.
        candidates.sort_by_key(|candidate| (u16::MAX - counts[candidate.page as usize], candidate.page));
        let paper = self.policy == HotPolicy::Paper;
        let most = region(section, self.hot_pct);
        let mut used = 0;
        candidates.retain(|candidate| {
            let fits = used + candidate.sectors <= most;
            used += if fits { candidate.sectors } else { 0 };
            fits
        });
        for count in counts {
            *count /= 2;
        }
        let size = if paper { most } else { used.div_ceil(8) * 8 };
        (candidates, size)
    }
}

/// A share of a section, in whole 4 KB.
fn region(section: u32, pct: u32) -> u32 {
    (u64::from(section) * u64::from(pct) / 100) as u32 / 8 * 8
}
