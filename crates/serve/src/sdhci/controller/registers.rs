//! The registers of the controller by offset, and their bits (SD Host Controller Simplified Specification 2.00, section 2).

/// Offsets of 32-bit words.
pub(super) mod word {
    pub const SYSTEM_ADDRESS: u64 = 0x00;
    pub const BLOCK: u64 = 0x04;
    pub const ARGUMENT: u64 = 0x08;
    pub const COMMAND: u64 = 0x0c;
    pub const RESPONSE: u64 = 0x10;
    pub const RESPONSE_END: u64 = 0x1c;
    pub const BUFFER: u64 = 0x20;
    pub const PRESENT_STATE: u64 = 0x24;
    pub const HOST_CONTROL: u64 = 0x28;
    pub const CLOCK: u64 = 0x2c;
    pub const STATUS: u64 = 0x30;
    pub const STATUS_ENABLE: u64 = 0x34;
    pub const SIGNAL_ENABLE: u64 = 0x38;
    pub const CAPABILITIES: u64 = 0x40;
    pub const MAXIMUM_CURRENT: u64 = 0x48;
    pub const FORCE_EVENT: u64 = 0x50;
    pub const ADMA_ERROR: u64 = 0x54;
    pub const ADMA_ADDRESS: u64 = 0x58;
    pub const VERSION: u64 = 0xfc;
}

/// Bits of the interrupt status: normal interrupts in the lower half, errors in the upper half.
pub(super) mod interrupt {
    pub const COMMAND_COMPLETE: u32 = 1;
    pub const TRANSFER_COMPLETE: u32 = 1 << 1;
    pub const BLOCK_GAP: u32 = 1 << 2;
    pub const DMA: u32 = 1 << 3;
    pub const BUFFER_WRITE_READY: u32 = 1 << 4;
    pub const BUFFER_READ_READY: u32 = 1 << 5;
    pub const ERROR: u32 = 1 << 15;
    pub const COMMAND_TIMEOUT: u32 = 1 << 16;
    pub const COMMAND_CRC: u32 = 1 << 17;
    pub const DATA_TIMEOUT: u32 = 1 << 20;
    pub const AUTO_COMMAND: u32 = 1 << 24;
    pub const ADMA: u32 = 1 << 25;
    /// All errors that the specification defines.
    pub const ERRORS: u32 = 0x03ff_0000;
}

/// Bits of the present state.
pub(super) mod present {
    pub const DATA_INHIBIT: u32 = 1 << 1;
    pub const DATA_ACTIVE: u32 = 1 << 2;
    pub const WRITE_ACTIVE: u32 = 1 << 8;
    pub const READ_ACTIVE: u32 = 1 << 9;
    pub const BUFFER_WRITE: u32 = 1 << 10;
    pub const BUFFER_READ: u32 = 1 << 11;
    /// A card is inserted and stable; it is not write-protected.
    pub const CARD: u32 = 0b1111 << 16;
    pub const DATA_LINES: u32 = 0b1111 << 20;
    pub const DATA_LINE_0: u32 = 1 << 20;
    pub const COMMAND_LINE: u32 = 1 << 24;
}

/// Bits of the transfer mode.
pub(super) mod mode {
    pub const DMA: u16 = 1;
    pub const BLOCK_COUNT: u16 = 1 << 1;
    pub const AUTO_CMD12: u16 = 1 << 2;
    pub const READ: u16 = 1 << 4;
    pub const MULTIPLE: u16 = 1 << 5;
    pub const ALL: u16 = 0x37;
}

/// Bits of the software reset, in the word of the clock.
pub(super) mod reset {
    pub const ALL: u32 = 1 << 24;
    pub const COMMAND: u32 = 1 << 25;
    pub const DATA: u32 = 1 << 26;
}

/// Timeout clock of 1 MHz, base clock of 52 MHz, blocks of 512 bytes, ADMA2, high speed, SDMA, 3.3 V.
pub(super) const CAPABILITIES: u32 = 0x81 | 52 << 8 | 1 << 19 | 1 << 21 | 1 << 22 | 1 << 24;
/// 200 mA at 3.3 V, in units of 4 mA.
pub(super) const MAXIMUM_CURRENT: u32 = 50;
/// Specification 2.00.
pub(super) const VERSION: u32 = 1 << 16;
