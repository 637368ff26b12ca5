//! Superblocks: neighbouring logical blocks share their data and log blocks, with a page map among them (Kang, Jo, Kim and Lee, "A
//! superblock-based flash translation layer for NAND flash memory", EMSOFT 2006).
//!
//! Inside a superblock pages go wherever there is room, the host's and those that are moved to blocks of their own. A superblock that has used up its log blocks collects the block with the
//! fewest valid pages; where the log blocks of the plane are used up, the superblock written longest ago gives its own back.
//! As merges are counted: switch, a block without valid pages is erased; partial, a block is collected for its own superblock; full, for
//! another one.

use std::collections::VecDeque;

use super::merge::Merge;
use super::{Held, Layout, Place, Placement, Scheme, list, read_list};
use crate::config::Settings;
use crate::device::Device;
use crate::event::Observer;
use crate::nand::NONE;

/// The blocks of a superblock.
#[derive(Clone, Debug)]
struct Group {
    blocks: Vec<u32>,
    /// The block that the host's pages go to, and the one for pages that are moved.
    host: u32,
    moved: u32,
}

/// All superblocks.
pub(crate) struct Superblock {
    groups: Vec<Group>,
    /// Logical blocks in a superblock, and most log blocks of one.
    size: u32,
    most_logs: u32,
    /// By plane: superblocks with log blocks, the one written last at the back.
    used: Vec<VecDeque<u32>>,
    /// By plane: log blocks in use.
    logs: Vec<u32>,
}

/// What every step needs to know.
#[derive(Clone, Copy)]
struct Step {
    layout: Layout,
    number: u32,
    ready: i64,
}

impl Superblock {
    pub fn new(settings: &Settings, layout: Layout) -> Self {
        let size = settings.mapping.superblock_blocks;
        let planes = layout.planes as usize;
        Self {
            groups: vec![
                Group { blocks: Vec::new(), host: NONE, moved: NONE };
                (layout.rows.div_ceil(size) * layout.planes) as usize
            ],
            size,
            most_logs: settings.mapping.superblock_log_blocks,
            used: vec![VecDeque::with_capacity(layout.logs as usize); planes],
            logs: vec![0; planes],
        }
    }

    /// Logical blocks of a superblock.
    fn own(&self, layout: Layout, number: u32) -> u32 {
        self.size.min(layout.rows - number / layout.planes * self.size)
    }

    /// Log blocks of a superblock: those beyond its logical blocks.
    fn logs_of(&self, layout: Layout, number: u32) -> u32 {
        let own = self.own(layout, number);
        (self.groups[number as usize].blocks.len() as u32).saturating_sub(own)
    }

    fn add(&mut self, device: &mut Device, at: Step) -> Option<u32> {
        let block = device.claim(at.number)?;
        let before = self.logs_of(at.layout, at.number);
        self.groups[at.number as usize].blocks.push(block);
        let plane = (at.number % at.layout.planes) as usize;
        if self.logs_of(at.layout, at.number) > before {
            self.logs[plane] += 1;
            if before == 0 {
                self.used[plane].push_back(at.number);
            }
        }
        Some(block)
    }

    fn remove<O: Observer>(&mut self, device: &mut Device, at: Step, block: u32, observer: &mut O) {
        let before = self.logs_of(at.layout, at.number);
        let group = &mut self.groups[at.number as usize];
        group.blocks.retain(|held| *held != block);
        for open in [&mut group.host, &mut group.moved] {
            if *open == block {
                *open = NONE;
            }
        }
        let plane = (at.number % at.layout.planes) as usize;
        let after = self.logs_of(at.layout, at.number);
        if after < before {
            self.logs[plane] -= 1;
            if after == 0 {
                self.used[plane].retain(|used| *used != at.number);
            }
        }
        device.release(block, at.ready, observer);
    }

    /// Moves all that is valid out of the block with the fewest valid pages, and erases it.
    fn collect<O: Observer>(
        &mut self,
        device: &mut Device,
        at: Step,
        merge: Merge,
        observer: &mut O,
    ) -> Option<()> {
        let layout = at.layout;
        let room = |device: &Device, block: u32| device.blocks[block as usize].written < layout.pages;
        let group = &self.groups[at.number as usize];
        // What gives its log blocks back gives the half-written one of the host as well.
        let useful = |block: u32| {
            let given_up = merge == Merge::Full && block == group.host;
            !room(device, block) || device.blocks[block as usize].valid == 0 || given_up
        };
        let candidates = group.blocks.iter().copied().filter(|block| useful(*block));
        let (pages, victim) = candidates.map(|block| (valid_pages(device, layout, block), block)).min()?;
        if pages == layout.pages {
            return None;
        }
        let valid = device.merge_begins(victim, at.ready, observer);
        let first = device.geometry.first_slot(victim);
        for slot in first..first + (layout.pages << layout.page_shift) {
            let Some(unit) = device.reverse.get(slot) else { continue };
            let mut target = self.groups[at.number as usize].moved;
            if target == NONE || !room(device, target) {
                target = self.add(device, at)?;
                self.groups[at.number as usize].moved = target;
            }
            let page = device.blocks[target as usize].written;
            device.copy_logical((target, page), unit >> layout.page_shift, at.ready, observer);
        }
        device.count_merge(if valid == 0 { Merge::Switch } else { merge });
        device.merge_ends(victim, valid, at.ready, observer);
        self.remove(device, at, victim, observer);
        Some(())
    }

    /// A block of the superblock with nothing valid in it.
    fn dead(&self, device: &Device, layout: Layout, number: u32) -> bool {
        self.groups[number as usize].blocks.iter().any(|block| {
            let entry = device.blocks[*block as usize];
            entry.valid == 0 && entry.written == layout.pages
        })
    }
}

/// Pages of a block in which something is valid.
fn valid_pages(device: &Device, layout: Layout, block: u32) -> u32 {
    let first = device.geometry.first_slot(block);
    let (mut pages, mut last) = (0, NONE);
    for (slot, _) in device.reverse.valid(first..first + (layout.pages << layout.page_shift)) {
        pages += u32::from(slot >> layout.page_shift != last);
        last = slot >> layout.page_shift;
    }
    pages
}

impl Placement for Superblock {
    fn place<O: Observer>(
        &mut self,
        device: &mut Device,
        layout: Layout,
        logical: u32,
        ready: i64,
        observer: &mut O,
    ) -> Option<Place> {
        let (block, _) = layout.split(logical);
        let number = layout.row(block) / self.size * layout.planes + block % layout.planes;
        let at = Step { layout, number, ready };
        let plane = (number % layout.planes) as usize;
        loop {
            let host = self.groups[number as usize].host;
            if host != NONE {
                let written = device.blocks[host as usize].written;
                if written < layout.pages {
                    if self.used[plane].back() != Some(&number) && self.logs_of(layout, number) > 0 {
                        self.used[plane].retain(|used| *used != number);
                        self.used[plane].push_back(number);
                    }
                    return Some((host, written));
                }
                self.groups[number as usize].host = NONE;
            }
            if self.dead(device, layout, number) {
                self.collect(device, at, Merge::Switch, observer)?;
            }
            let moved = self.groups[number as usize].moved;
            if moved != NONE && device.blocks[moved as usize].valid == 0 {
                // Nothing that was moved is left in it.
                self.groups[number as usize].host = moved;
                self.groups[number as usize].moved = NONE;
                continue;
            }
            let own = self.own(layout, number);
            let logs = self.logs_of(layout, number);
            if (self.groups[number as usize].blocks.len() as u32) < own
                || logs < self.most_logs && self.logs[plane] < layout.logs
            {
                self.groups[number as usize].host = self.add(device, at)?;
                continue;
            }
            let oldest = self.used[plane].front().copied();
            match oldest.filter(|oldest| *oldest != number && logs < self.most_logs) {
                Some(oldest) => {
                    let at = Step { number: oldest, ..at };
                    while self.logs_of(layout, oldest) > 0 {
                        self.collect(device, at, Merge::Full, observer)?;
                    }
                }
                None => self.collect(device, at, Merge::Partial, observer)?,
            }
        }
    }
}

impl Scheme for Superblock {
    fn ram_bytes(&self, layout: Layout, maps: u32) -> u64 {
        // A block number for each block of a superblock, and the page maps that are there; the others stand in spare areas.
        let planes = u64::from(layout.planes);
        let all = layout.rows.div_ceil(self.size);
        let mapped = if maps == 0 { all } else { maps.min(all) };
        let pages = u64::from(mapped) * u64::from(self.size) * u64::from(layout.pages);
        4 * (u64::from(layout.blocks) + planes * (u64::from(layout.logs) + pages))
    }

    fn map_of(&self, row: u32) -> u32 {
        row / self.size
    }

    fn words(&self) -> Vec<u32> {
        let mut out = Vec::new();
        for group in &self.groups {
            out.extend([group.host, group.moved]);
            out.extend(list(group.blocks.iter().copied()));
        }
        for used in &self.used {
            out.extend(list(used.iter().copied()));
        }
        out
    }

    fn restore(&mut self, layout: Layout, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        for group in &mut self.groups {
            (group.host, group.moved) = (words.next()?, words.next()?);
            group.blocks = read_list(words, (self.size + self.most_logs) as usize + 1)?;
            let known = |block: u32| block == NONE || group.blocks.contains(&block);
            (known(group.host) && known(group.moved)).then_some(())?;
        }
        let planes = self.used.len();
        for (plane, used) in self.used.iter_mut().enumerate() {
            *used = read_list(words, self.groups.len())?.into();
            let known =
                |number: &u32| (*number as usize) < self.groups.len() && *number as usize % planes == plane;
            used.iter().all(known).then_some(())?;
        }
        for plane in 0..planes {
            let of_plane = (plane..self.groups.len()).step_by(planes).map(|number| number as u32);
            let with_logs: Vec<u32> = of_plane.filter(|number| self.logs_of(layout, *number) > 0).collect();
            let mut used: Vec<u32> = self.used[plane].iter().copied().collect();
            used.sort_unstable();
            (used == with_logs).then_some(())?;
            self.logs[plane] = used.iter().map(|number| self.logs_of(layout, *number)).sum();
        }
        Some(())
    }

    fn holds(&self, layout: Layout) -> Vec<Held> {
        let mut out = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            let from = number as u32 / layout.planes * self.size;
            let to = from + self.size;
            out.extend(group.blocks.iter().map(|block| {
                let (block, stripe) = (*block, number as u32);
                Held { block, stripe, from, to, in_place: false }
            }));
        }
        out
    }
}
