//! FAST: log blocks belong to no data block (Lee, Park, Chung, Lee, Park and Song, "A log buffer-based flash translation layer
//! using fully-associative sector translation", ACM TECS 6(3), 2007).
//!
//! One log block of a plane is sequential: it begins with the first page of a logical block and goes on as long as the pages follow
//! each other. The others take whatever comes; the oldest is emptied by merging every logical block that has pages in it.

use std::collections::VecDeque;

use super::{Held, Layout, Place, Placement, Scheme, data_blocks, list, read_list, read_table};
use crate::config::Settings;
use crate::device::Device;
use crate::event::Observer;
use crate::nand::NONE;

/// Log blocks of a plane.
#[derive(Clone, Debug)]
struct Logs {
    /// Logical block and block of the sequential log block.
    sequential: Option<(u32, u32)>,
    /// The others, the oldest at the front.
    random: VecDeque<u32>,
}

/// Data blocks, and the log blocks of each plane.
pub(crate) struct Fast {
    data: Vec<u32>,
    logs: Vec<Logs>,
}

impl Fast {
    pub fn new(_: &Settings, layout: Layout) -> Self {
        let logs = Logs { sequential: None, random: VecDeque::with_capacity(layout.logs as usize) };
        Self { data: vec![NONE; layout.blocks as usize], logs: vec![logs; layout.planes as usize] }
    }

    /// Merges a logical block, with the sequential log block where that is its own.
    fn merge<O: Observer>(
        &mut self,
        device: &mut Device,
        layout: Layout,
        block: u32,
        ready: i64,
        observer: &mut O,
    ) -> Option<()> {
        let logs = &mut self.logs[(block % layout.planes) as usize];
        let own = logs.sequential.take_if(|(of, _)| *of == block).map_or(NONE, |(_, log)| log);
        let pair = (&mut self.data[block as usize], own);
        let kind = device.merge_blocks(layout, block, pair, ready, observer)?;
        device.count_merge(kind);
        Some(())
    }

    /// Merges every logical block that has pages in the oldest random log block, and erases that.
    fn empty_oldest<O: Observer>(
        &mut self,
        device: &mut Device,
        layout: Layout,
        plane: usize,
        ready: i64,
        observer: &mut O,
    ) -> Option<()> {
        let log = *self.logs[plane].random.front()?;
        let first = device.geometry.first_slot(log);
        for slot in first..first + (layout.pages << layout.page_shift) {
            if let Some(unit) = device.reverse.get(slot) {
                let (block, _) = layout.split(unit >> layout.page_shift);
                self.merge(device, layout, block, ready, observer)?;
            }
        }
        self.logs[plane].random.pop_front();
        device.release(log, ready, observer);
        Some(())
    }
}

impl Placement for Fast {
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
            let data = device.data_block(&mut self.data[block as usize], block)?;
            if device.blocks[data as usize].written <= offset {
                return Some((data, offset));
            }
            if let Some((of, log)) = self.logs[plane].sequential
                && of == block
                && offset > 0
                && device.blocks[log as usize].written == offset
            {
                return Some((log, offset));
            }
            if offset == 0 {
                if let Some((of, _)) = self.logs[plane].sequential {
                    self.merge(device, layout, of, ready, observer)?;
                    // That may have been this very block, whose data block is another now.
                    if of == block {
                        continue;
                    }
                }
                let log = device.claim(block)?;
                self.logs[plane].sequential = Some((block, log));
                return Some((log, 0));
            }
            if let Some(log) = self.logs[plane].random.back() {
                let written = device.blocks[*log as usize].written;
                if written < layout.pages {
                    return Some((*log, written));
                }
            }
            if self.logs[plane].random.len() as u32 + 1 >= layout.logs {
                self.empty_oldest(device, layout, plane, ready, observer)?;
                continue;
            }
            let log = device.claim(block)?;
            self.logs[plane].random.push_back(log);
        }
    }
}

impl Scheme for Fast {
    fn ram_bytes(&self, layout: Layout, _: u32) -> u64 {
        // A block number for each logical block and log block, a logical page for each page of a log block: these are shared and stay.
        let logs = u64::from(layout.logs) * u64::from(layout.planes);
        4 * (u64::from(layout.blocks) + logs + logs * u64::from(layout.pages))
    }

    fn words(&self) -> Vec<u32> {
        let mut out = self.data.clone();
        for logs in &self.logs {
            let (block, log) = logs.sequential.unwrap_or((NONE, NONE));
            out.extend([block, log]);
            out.extend(list(logs.random.iter().copied()));
        }
        out
    }

    fn restore(&mut self, _: Layout, words: &mut dyn Iterator<Item = u32>) -> Option<()> {
        read_table(words, &mut self.data)?;
        let planes = self.logs.len();
        for (plane, logs) in self.logs.iter_mut().enumerate() {
            let (block, log) = (words.next()?, words.next()?);
            if log != NONE {
                let known = (block as usize) < self.data.len() && block as usize % planes == plane;
                logs.sequential = Some(known.then_some((block, log))?);
            }
            logs.random = read_list(words, 1 << 20)?.into();
        }
        Some(())
    }

    fn holds(&self, layout: Layout) -> Vec<Held> {
        let mut out: Vec<Held> = data_blocks(layout, &self.data).collect();
        for (plane, logs) in self.logs.iter().enumerate() {
            let stripe = plane as u32;
            if let Some((of, block)) = logs.sequential {
                let from = layout.row(of);
                out.push(Held { block, stripe, from, to: from + 1, in_place: true });
            }
            out.extend(logs.random.iter().map(|block| {
                let (block, to) = (*block, layout.rows);
                Held { block, stripe, from: 0, to, in_place: false }
            }));
        }
        out
    }
}
