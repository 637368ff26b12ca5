//! The state of a used device as bytes, so that aging it once is enough.
//!
//! Little-endian words: a mark, the sizes, map, owners, blocks, then what each pool cannot find out from its blocks, and the
//! tables of the mapping scheme. Times,
//! counters and requests in flight are not part of it.

use emmclab_trace::{Error, Kind, Result};

use crate::config::DeviceConfig;
use crate::device::Device;
use crate::ftl::mapping::Mapping;
use crate::nand::{BlockState, NONE, Victim};

/// "EMIM" and the version of the layout.
const MARK: u32 = 0x4D49_4D45;
const VERSION: u32 = 2;

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Result<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>().ok_or_else(|| damaged("it is cut short"))?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*head))
    }

    fn long(&mut self) -> Result<u64> {
        Ok(u64::from(self.word()?) | u64::from(self.word()?) << 32)
    }

    /// An address below `most`, or nothing.
    fn address(&mut self, most: usize) -> Result<Option<u32>> {
        let value = self.word()?;
        if value as usize > most {
            return Err(damaged("an address lies outside the device"));
        }
        Ok(value.checked_sub(1))
    }
}

fn damaged(problem: &str) -> Error {
    Error::new(Kind::Truncated, format!("this is no image of this device: {problem}"))
        .hint("delete it; it will be made again")
}

impl Device {
    /// The data that the device holds and the state of its blocks.
    pub fn to_image(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 * (self.map.len() + self.reverse.len() + 8 * self.blocks.len()));
        let word = |out: &mut Vec<u8>, value: u32| out.extend_from_slice(&value.to_le_bytes());
        let long = |out: &mut Vec<u8>, value: u64| out.extend_from_slice(&value.to_le_bytes());
        for value in
            [MARK, VERSION, self.map.len() as u32, self.reverse.len() as u32, self.blocks.len() as u32]
        {
            word(&mut out, value);
        }
        for value in &self.map {
            word(&mut out, *value);
        }
        for slot in 0..self.reverse.len() as u32 {
            word(&mut out, self.reverse.get(slot).map_or(0, |unit| unit + 1));
        }
        for block in &self.blocks {
            for value in [
                block.valid,
                block.written,
                block.erases,
                u32::from(block.plane) | u32::from(block.group) << 16 | (block.state as u32) << 24,
            ] {
                word(&mut out, value);
            }
            long(&mut out, block.closed);
        }
        long(&mut out, self.programs);
        long(&mut out, self.turn);
        word(&mut out, self.cursor);
        for turn in &self.plane_turn {
            word(&mut out, *turn);
        }
        for pool in &self.pools {
            for value in [pool.used(), pool.usable(), pool.most_erases, pool.wear_countdown] {
                word(&mut out, value);
            }
            for open in pool.open {
                word(&mut out, open);
            }
            let list = pool.listed();
            let victim = pool.victim.map_or([NONE; 5], |victim| {
                [victim.block, victim.cursor, victim.in_register, victim.valid, u32::from(victim.wear)]
            });
            for value in victim {
                word(&mut out, value);
            }
            for blocks in [pool.recycled(), list] {
                word(&mut out, blocks.len() as u32);
                for block in blocks {
                    word(&mut out, block);
                }
            }
        }
        for value in self.mapping.words() {
            word(&mut out, value);
        }
        out
    }

    /// The device that an image was made of.
    ///
    /// # Errors
    /// [`Kind::Truncated`] where the image is damaged or of another device.
    pub fn from_image(config: &DeviceConfig, image: &[u8]) -> Result<Self> {
        let mut device = Self::new(config);
        let mut image = Reader(image);
        let (units, slots, blocks) = (device.map.len(), device.reverse.len(), device.blocks.len());
        for expected in [MARK, VERSION, units as u32, slots as u32, blocks as u32] {
            if image.word()? != expected {
                return Err(damaged("mark, version or sizes differ"));
            }
        }
        for entry in &mut device.map {
            if let Some(slot) = image.address(slots)? {
                *entry = slot + 1;
            }
        }
        for slot in 0..slots as u32 {
            if let Some(unit) = image.address(units)? {
                device.reverse.set(slot, unit);
            }
        }
        for block in &mut device.blocks {
            (block.valid, block.written, block.erases) = (image.word()?, image.word()?, image.word()?);
            let packed = image.word()?;
            (block.plane, block.group) = (packed as u16, (packed >> 16) as u8);
            block.state = match packed >> 24 {
                0 => BlockState::Free,
                1 => BlockState::Open,
                2 => BlockState::Full,
                3 => BlockState::Collecting,
                4 => BlockState::Bad,
                _ => return Err(damaged("a block is in no known state")),
            };
            let known = usize::from(block.group) < device.geometry.groups.len();
            if u32::from(block.plane) >= device.geometry.planes || !known {
                return Err(damaged("a block lies outside the device"));
            }
            block.closed = image.long()?;
        }
        (device.programs, device.turn, device.cursor) = (image.long()?, image.long()?, image.word()?);
        if device.cursor >= device.flash.unit_count() {
            return Err(damaged("the cursor lies outside the device"));
        }
        for turn in &mut device.plane_turn {
            *turn = image.word()? % device.flash.planes_per_unit();
        }
        device.pools_from_image(&mut image)?;
        device.consistent()?;
        let mut words = std::iter::from_fn(|| image.word().ok());
        device.mapping.restore(&mut words).ok_or_else(|| damaged("the tables of its map are none"))?;
        if let Some(fault) = device.mapping.fault(&device) {
            return Err(damaged(&fault));
        }
        if image.0.is_empty() { Ok(device) } else { Err(damaged("there is more than a device in it")) }
    }

    /// Whether map, owners and counts agree, so that nothing built on them can go astray.
    fn consistent(&self) -> Result<()> {
        let mut owned = 0;
        for (number, block) in self.blocks.iter().enumerate() {
            let first = self.geometry.first_slot(number as u32);
            let mut valid = 0;
            for slot in first..self.geometry.first_slot(number as u32 + 1) {
                if let Some(unit) = self.reverse.get(slot) {
                    valid += 1;
                    let reach = block.written << self.geometry.groups[usize::from(block.group)].page_shift;
                    if self.lookup(unit) != Some(slot) || self.geometry.offset_of(slot) >= reach {
                        return Err(damaged("map and flash disagree"));
                    }
                }
            }
            let group = &self.geometry.groups[usize::from(block.group)];
            let place = number as u32 % self.geometry.blocks_per_plane;
            let in_group = (group.first_block..group.first_block + group.blocks).contains(&place);
            let in_plane = number as u32 / self.geometry.blocks_per_plane == u32::from(block.plane);
            let used = block.state != BlockState::Free || valid > 0;
            if valid != block.valid
                || block.written > group.pages_per_block
                || used && !(in_group && in_plane)
            {
                return Err(damaged("the counts of a block are wrong"));
            }
            owned += valid as usize;
        }
        if owned != self.map.iter().filter(|entry| **entry != 0).count() {
            return Err(damaged("map and flash disagree"));
        }
        for pool in &self.pools {
            let state = |block: u32| self.blocks[block as usize].state;
            let room = |block: u32| self.blocks[block as usize].written < pool.kind.pages_per_block;
            let open = pool
                .open
                .iter()
                .all(|block| *block == NONE || state(*block) == BlockState::Open && room(*block));
            let victim = pool.victim.is_none_or(|victim| {
                state(victim.block) == BlockState::Collecting && victim.cursor <= pool.kind.slots_per_block()
            });
            let free = pool.recycled().iter().all(|block| state(*block) == BlockState::Free);
            if !(open && victim && free) {
                return Err(damaged("a block is not in the state that its list says"));
            }
        }
        Ok(())
    }

    fn pools_from_image(&mut self, image: &mut Reader) -> Result<()> {
        let mut claimed = vec![false; self.blocks.len()];
        // A block-mapped scheme holds its open blocks in tables of its own, which are checked with them.
        let held_elsewhere = matches!(self.mapping, Mapping::Blocks(_));
        for pool in &mut self.pools {
            let range = pool.first_block..pool.first_block + pool.blocks;
            let mut inside = |block: u32| {
                if block == NONE {
                    return Ok(block);
                }
                if !range.contains(&block) {
                    return Err(damaged("a block is in a foreign plane"));
                }
                if std::mem::replace(&mut claimed[block as usize], true) {
                    return Err(damaged("a block is in two places"));
                }
                Ok(block)
            };
            let (used, usable) = (image.word()?, image.word()?);
            if used > usable || usable > pool.blocks {
                return Err(damaged("a plane has more blocks than it can"));
            }
            let never = &self.blocks[(range.start + used) as usize..range.end as usize];
            if never.iter().any(|block| block.state != BlockState::Free || block.written > 0) {
                return Err(damaged("a block is in use that was never handed out"));
            }
            pool.restore(used, usable);
            (pool.most_erases, pool.wear_countdown) = (image.word()?, image.word()?.max(1));
            for open in &mut pool.open {
                *open = inside(image.word()?)?;
            }
            let block = inside(image.word()?)?;
            let victim = Victim {
                block,
                cursor: image.word()?,
                in_register: image.word()?,
                valid: image.word()?,
                wear: image.word()? == 1,
            };
            if block != NONE {
                let first = self.geometry.first_slot(block);
                let beyond = victim.cursor > pool.kind.slots_per_block();
                if beyond || self.reverse.valid(first..first + victim.cursor).next().is_some() {
                    return Err(damaged("collection has passed over data"));
                }
                pool.victim = Some(victim);
            }
            for _ in 0..image.word()? {
                let block = inside(image.word()?)?;
                let erases = self.blocks.get(block as usize).ok_or_else(|| damaged("no such block"))?.erases;
                pool.give_back(block, erases);
            }
            let listed = image.word()?;
            let in_pool = &self.blocks[range.start as usize..range.end as usize];
            let full = in_pool.iter().filter(|block| block.state == BlockState::Full).count();
            if listed as usize != full {
                return Err(damaged("a full block is not listed"));
            }
            for _ in 0..listed {
                let block = inside(image.word()?)?;
                let entry = self.blocks.get(block as usize).ok_or_else(|| damaged("no such block"))?;
                if entry.state != BlockState::Full || !pool.can_list(entry.valid) {
                    return Err(damaged("a listed block is not full"));
                }
                pool.insert(block, entry.valid);
            }
            for (block, entry) in (0..).zip(&self.blocks[range.start as usize..range.end as usize]) {
                let placed = claimed[(range.start + block) as usize]
                    || entry.state == BlockState::Bad
                    || held_elsewhere && entry.state == BlockState::Open;
                if placed != (block < used) {
                    return Err(damaged("a block in use is nowhere, or an unused one somewhere"));
                }
            }
            pool.valid =
                self.blocks[range.start as usize..range.end as usize].iter().map(|block| block.valid).sum();
        }
        Ok(())
    }
}
