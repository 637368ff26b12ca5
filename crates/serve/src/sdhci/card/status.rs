//! Responses, the device status that most responses carry, and the states of a card.

use bitflags::bitflags;

bitflags! {
    /// Device status, the content of R1 (JESD84-B51, 6.13), without the state.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct CardStatus: u32 {
        const ADDRESS_OUT_OF_RANGE = 1 << 31;
        const ADDRESS_MISALIGN = 1 << 30;
        const BLOCK_LEN_ERROR = 1 << 29;
        const ERASE_SEQ_ERROR = 1 << 28;
        const ERASE_PARAM = 1 << 27;
        const WP_VIOLATION = 1 << 26;
        const ILLEGAL_COMMAND = 1 << 22;
        const DEVICE_ECC_FAILED = 1 << 21;
        const ERROR = 1 << 19;
        const ERASE_RESET = 1 << 13;
        const READY_FOR_DATA = 1 << 8;
        const SWITCH_ERROR = 1 << 7;
    }
}

/// States of a card, by their number in the status (JESD84-B51, 6.13, `CURRENT_STATE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CardState {
    Idle = 0,
    Ready = 1,
    Identification = 2,
    StandBy = 3,
    Transfer = 4,
    SendingData = 5,
    ReceivingData = 6,
    Programming = 7,
    Disconnected = 8,
    BusTest = 9,
    Sleep = 10,
    Inactive = 15,
}

/// The response to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CardResponse {
    /// No response: the host's command times out.
    None,
    /// 32 bits of content: R1, R1b, R3, R4 and R5.
    Short(u32),
    /// A register of 128 bits, the highest byte first: R2.
    Long([u8; 16]),
}
