//! The configuration space of the PCI function (PCI Local Bus 3.0, chapter 6).

/// Bytes of the configuration space.
pub(super) const CONFIGURATION_BYTES: usize = 256;
/// Bytes of BAR 0, which holds the registers of the only slot.
pub(super) const BAR_BYTES: u32 = 256;

const COMMAND: usize = 0x04;
const COMMAND_MEMORY: u8 = 1 << 1;
const COMMAND_BUS_MASTER: u8 = 1 << 2;
/// This bit is in the upper byte.
const COMMAND_NO_INTERRUPT: u8 = 1 << 2;
const STATUS: usize = 0x06;
/// The interrupt status bit.
const STATUS_INTERRUPT: u8 = 1 << 3;
const INTERRUPT_LINE: usize = 0x3c;

/// An SD host controller: identifiers of QEMU's `sdhci-pci`, class 0x0805, one slot in BAR 0, interrupt pin A.
pub(super) struct PciConfigSpace {
    bytes: [u8; CONFIGURATION_BYTES],
}

impl PciConfigSpace {
    pub fn new() -> Self {
        let mut bytes = [0; CONFIGURATION_BYTES];
        bytes[..4].copy_from_slice(&[0x36, 0x1b, 0x07, 0x00]);
        // Revision, programming interface (with DMA), subclass, class.
        bytes[0x08..0x0c].copy_from_slice(&[0, 0x01, 0x05, 0x08]);
        // Subsystem of QEMU.
        bytes[0x2c..0x30].copy_from_slice(&[0xf4, 0x1a, 0x00, 0x11]);
        bytes[0x3d] = 1;
        Self { bytes }
    }

    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Reads a range; false if it is outside the configuration space.
    pub fn read(&self, offset: u64, data: &mut [u8], interrupt: bool) -> bool {
        let Some(from) = range(offset, data.len()) else { return false };
        let start = from.start;
        data.copy_from_slice(&self.bytes[from]);
        if let Some(status) = STATUS.checked_sub(start).and_then(|at| data.get_mut(at)).filter(|_| interrupt) {
            *status |= STATUS_INTERRUPT;
        }
        true
    }

    /// Writes a range, except for read-only bits; false if it is outside the configuration space.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let Some(to) = range(offset, data.len()) else { return false };
        for (at, value) in to.zip(data) {
            let writable = match at {
                COMMAND => COMMAND_MEMORY | COMMAND_BUS_MASTER,
                0x05 => COMMAND_NO_INTERRUPT,
                // The lowest byte of BAR 0 is 0: 256 bytes of memory, 32 bits, not prefetchable.
                0x11..=0x13 | INTERRUPT_LINE => 0xff,
                _ => 0,
            };
            self.bytes[at] = self.bytes[at] & !writable | value & writable;
        }
        true
    }

    /// Whether the function may access memory.
    pub fn bus_master(&self) -> bool {
        self.bytes[COMMAND] & COMMAND_BUS_MASTER != 0
    }

    /// Whether the function may assert its interrupt.
    pub fn interrupts(&self) -> bool {
        self.bytes[COMMAND + 1] & COMMAND_NO_INTERRUPT == 0
    }
}

fn range(offset: u64, length: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(length)?;
    (end <= CONFIGURATION_BYTES).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_the_bar_is_found_by_writing_ones() {
        let mut configuration = PciConfigSpace::new();
        assert!(configuration.write(0x10, &[0xff; 4]));
        let mut bar = [0; 4];
        assert!(configuration.read(0x10, &mut bar, false));
        assert_eq!(!u32::from_le_bytes(bar) + 1, BAR_BYTES);
    }

    #[test]
    fn identifiers_are_read_only_and_nothing_lies_outside() {
        let mut configuration = PciConfigSpace::new();
        assert!(configuration.write(0, &[0; 4]) && !configuration.write(255, &[0; 2]));
        let mut all = [0; CONFIGURATION_BYTES];
        assert!(configuration.read(0, &mut all, true) && !configuration.read(u64::MAX, &mut [0; 2], false));
        assert_eq!((&all[..4], all[STATUS], &all[0x09..0x0c]), (&[0x36, 0x1b, 7, 0][..], 8, &[1, 5, 8][..]));
    }
}
