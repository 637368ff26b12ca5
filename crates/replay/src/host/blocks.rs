//! Blocks of the host's file system: requests are extended to whole blocks.

use emmclab_device::{DeviceCommand, DeviceSettings, Geometry};

/// Block size of a file system that fills the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockAlignment {
    sectors: u64,
    /// Sectors of the device.
    capacity: u64,
}

impl BlockAlignment {
    /// The blocks that the settings configure, or `None` if requests are not extended.
    pub fn new(settings: &DeviceSettings) -> Option<Self> {
        let sectors = u64::from(settings.host.block_kb) * 2;
        (sectors > 0).then(|| Self { sectors, capacity: Geometry::new(settings).sectors() })
    }

    /// Extends a request with data to whole blocks; the last block of the device may be shorter.
    pub fn align(&self, request: &DeviceCommand) -> DeviceCommand {
        if !request.op.has_data() {
            return *request;
        }
        let end = request.sector + u64::from(request.sectors);
        let first = request.sector / self.sectors * self.sectors;
        let last = (end.div_ceil(self.sectors) * self.sectors).min(self.capacity).max(end);
        DeviceCommand { sector: first, sectors: (last - first) as u32, ..*request }
    }
}

#[cfg(test)]
mod tests {
    use emmclab_device::DeviceConfig;
    use emmclab_trace::{Nanos, Op};

    use super::{BlockAlignment, DeviceCommand};

    #[test]
    fn data_is_widened_to_whole_blocks_and_discards_are_not() {
        let mut config = DeviceConfig::preset("small-1gb").unwrap();
        assert!(BlockAlignment::new(config.settings()).is_none());
        config.set("host.block_kb", "16").unwrap();
        let blocks = BlockAlignment::new(config.settings()).unwrap();
        let whole = |op, sector, sectors| {
            let command = blocks.align(&DeviceCommand::new(Nanos::ZERO, op, sector, sectors));
            (command.sector, command.sectors)
        };
        assert_eq!(whole(Op::Write, 8, 8), (0, 32));
        assert_eq!(whole(Op::Read, 31, 2), (0, 64));
        assert_eq!(whole(Op::Write, 64, 32), (64, 32));
        assert_eq!(whole(Op::Discard, 8, 8), (8, 8));
        assert_eq!(whole(Op::Flush, 0, 0), (0, 0));
        let end = config.capacity().0 / 512;
        let (first, sectors) = whole(Op::Write, end - 8, 8);
        assert_eq!(first + u64::from(sectors), end);
    }
}
