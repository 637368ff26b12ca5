//! Rules that blocks, pools and tables of a device must keep together.

use super::DeviceChecker;
use crate::device::Device;
use crate::ids::{BlockId, PoolId};
use crate::nand::BlockState;

impl DeviceChecker {
    pub(super) fn verify_blocks(&mut self, device: &Device) {
        let tables = device.ftl.tables();
        let mut valid_places = 0;
        for (number, block) in (0..).map(BlockId).zip(device.blocks()) {
            let first = self.geometry.first_ppn(number);
            let end = first.plus(1 << self.geometry.stride_shift);
            let reach = block.written << self.geometry.groups[usize::from(block.group)].page_shift;
            let mut valid = 0;
            for (ppn, unit) in tables.valid_units(first..end) {
                valid += 1;
                let back = device.lookup(unit);
                self.require(back == Some(ppn), || {
                    format!("place {ppn} belongs to unit {unit} but that is mapped to {back:?}")
                });
                self.require(ppn.0 - first.0 < reach, || format!("place {ppn} is valid but not programmed"));
            }
            valid_places += valid as usize;
            let written = self.programmed[number.index()];
            self.require(valid == block.valid, || {
                format!("block {number} counts {} valid units but has {valid}", block.valid)
            });
            self.require(written == block.written, || {
                format!("block {number} counts {} pages but {written} were programmed", block.written)
            });
        }
        let mapped = tables.mapped();
        self.require(mapped == valid_places, || {
            format!("{mapped} units are mapped but {valid_places} places are valid")
        });
    }

    pub(super) fn verify_pools(&mut self, device: &Device) {
        for index in 0..device.ftl.pools() {
            let pool = device.ftl.tables().pool(PoolId(index));
            let blocks = || pool.all_blocks().map(|block| device.block(block));
            let count = |state| blocks().filter(|block| block.state == state).count() as u32;
            let (open, full) = (count(BlockState::Open), count(BlockState::Full));
            let (collecting, bad) = (count(BlockState::Collecting), count(BlockState::Bad));
            let unused_spares = pool.blocks - pool.usable();
            let free = pool.free();
            self.require(free + unused_spares + open + full + collecting + bad == pool.blocks, || {
                format!(
                    "pool {index}: {free} free + {unused_spares} spare + {open} open + {full} full + {collecting} collecting + {bad} bad blocks are not {}",
                    pool.blocks
                )
            });
            let listed = pool.listed();
            self.require(listed.len() as u32 == full && pool.full == full, || {
                format!("pool {index} lists {} blocks, counts {}, has {full} full ones", listed.len(), pool.full)
            });
            let valid: u32 = blocks().map(|block| block.valid).sum();
            self.require(valid == pool.valid, || {
                format!("pool {index} counts {} valid units but has {valid}", pool.valid)
            });
            if let Some(least) = pool.least_valid() {
                let true_least = listed.iter().map(|block| device.block(*block).valid).min();
                let found = device.block(least).valid;
                self.require(true_least == Some(found), || {
                    format!("pool {index} finds {found} as the fewest valid units, but that is {true_least:?}")
                });
            }
        }
    }
}
