//! Adds wear for time that is not simulated.

use emmclab_base::{Error, ErrorClass, Result};

use crate::device::Device;
use crate::ids::BlockId;

impl Device {
    /// Adds `erases` to the blocks in use, given for each block group and spread evenly within a group, as if the workload had continued.
    /// Wear does become even if no data stays in place for ever.
    ///
    /// # Errors
    /// [`ErrorClass::Config`] if a block would reach its erase limit; the device is then unchanged.
    pub fn wear_on(&mut self, erases: &[u64]) -> Result<()> {
        let mut worn: Vec<(BlockId, u32)> = Vec::new();
        for (group, more) in erases.iter().enumerate().filter(|(_, more)| **more > 0) {
            let limit = self.geometry().groups[group].erase_limit;
            let blocks = self.ftl.used_blocks(&self.nand, group as u8);
            // Rounded cumulatively over the blocks, so that the sum is exact.
            let due = |blocks_so_far: usize| more * blocks_so_far as u64 / blocks.len() as u64;
            for (at, block) in blocks.iter().enumerate() {
                let erases = u64::from(self.nand.block(*block).erases) + due(at + 1) - due(at);
                if limit > 0 && erases >= u64::from(limit) {
                    return Err(Error::new(
                        ErrorClass::Config,
                        format!(
                            "the device would be worn out: a block would have {erases} erases, and its limit is {limit}"
                        ),
                    ));
                }
                worn.push((*block, u32::try_from(erases).unwrap_or(u32::MAX)));
            }
        }
        for (block, erases) in worn {
            self.nand.set_erases(block, erases);
        }
        self.ftl.note_wear(&self.nand);
        Ok(())
    }
}
