//! BAST: every data block that is overwritten has a log block of its own (Kim, Kim, Noh, Min and Cho, "A space-efficient
//! flash translation layer for `CompactFlash` systems", IEEE Trans. Consumer Electronics 48(2), 2002).
//!
//! Pages go to the log block in the order in which they come. A log block that is full, or the one used longest ago where another
//! is needed, is merged with its data block.

use std::collections::VecDeque;

use super::{Held, Layout, Place, Placement, Scheme, data_blocks, list, read_list, read_table};
use crate::config::Settings;
use crate::device::Device;
use crate::event::Observer;
use crate::nand::NONE;

/// Data and log block of every logical block.
pub(crate) struct Bast {
    data: Vec<u32>,
    log: Vec<u32>,
    /// Logical blocks with a log block, by plane; the one used last at the back.
    used: Vec<VecDeque<u32>>,
}

impl Bast {
    pub fn new(_: &Settings, layout: Layout) -> Self {
        let blocks = layout.blocks as usize;
        let used = vec![VecDeque::with_capacity(layout.logs as usize); layout.planes as usize];
        Self { data: vec![NONE; blocks], log: vec![NONE; blocks], used }
    }

    fn merge<O: Observer>(
        &mut self,
        device: &mut Device,
        layout: Layout,
        block: u32,
        ready: i64,
        observer: &mut O,
    ) -> Option<()> {
        let pair = (&mut self.data[block as usize], self.log[block as usize]);
        let kind = device.merge_blocks(layout, block, pair, ready, observer)?;
        device.count_merge(kind);
        self.log[block as usize] = NONE;
        self.used[(block % layout.planes) as usize].retain(|used| *used != block);
        Some(())
    }
}

impl Placement for Bast {
    fn place<O: Observer>(
        &mut self,
        device: &mut Device,
        layout: Layout,
        logical: u32,
        ready: i64,
        observer: &mut O,
    ) -> Option<Place> {
        let (block, offset) = layout.split(logical);
        let plane = (block % layout.planes) as usize;
        loop {
            let log = self.log[block as usize];
            if log != NONE {
                let written = device.blocks[log as usize].written;
                if written < layout.pages {
                    if self.used[plane].back() != Some(&block) {
                        self.used[plane].retain(|used| *used != block);
                        self.used[plane].push_back(block);
                    }
                    return Some((log, written));
                }
                self.merge(device, layout, block, ready, observer)?;
                continue;
            }
            let data = device.data_block(&mut self.data[block as usize], block)?;
            if device.blocks[data as usize].written <= offset {
                return Some((data, offset));
            }
            if self.used[plane].len() as u32 == layout.logs {
                let oldest = *self.used[plane].front()?;
                self.merge(device, layout, oldest, ready, observer)?;
            }
            self.log[block as usize] = device.claim(block)?;
            self.used[plane].push_back(block);
        }
    }
}

impl Scheme for Bast {
    fn ram_bytes(&self, layout: Layout, maps: u32) -> u64 {
        // A block number for each logical block and log block, a page number for each page of a log block whose map is there.
        let planes = u64::from(layout.planes);
        let mapped = if maps == 0 { layout.logs } else { maps.min(layout.logs) };
        let pages = u64::from(mapped) * u64::from(layout.pages);
        4 * (u64::from(layout.blocks) + planes * (u64::from(layout.logs) + pages))
    }

    fn words(&self) -> Vec<u32> {
        let mut out = [self.data.as_slice(), &self.log].concat();
        for used in &self.used {
            out.extend(list(used.iter().copied()));
        }
        out
    }

    fn restore(&mut self, _: Layout, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        read_table(words, &mut self.data)?;
        read_table(words, &mut self.log)?;
        let planes = self.used.len();
        let mut logs = self.log.iter().filter(|log| **log != NONE).count();
        for (plane, used) in self.used.iter_mut().enumerate() {
            *used = read_list(words, self.log.len())?.into();
            let known = |block: &u32| {
                *block as usize % planes == plane
                    && self.log.get(*block as usize).is_some_and(|log| *log != NONE)
            };
            logs = logs.checked_sub(used.len())?;
            used.iter().all(known).then_some(())?;
        }
        (logs == 0).then_some(())
    }

    fn holds(&self, layout: Layout) -> Vec<Held> {
        let logs = data_blocks(layout, &self.log).map(|held| Held { in_place: false, ..held });
        data_blocks(layout, &self.data).chain(logs).collect()
    }
}
