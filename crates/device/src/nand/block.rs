//! The state of one erase block.

/// The state of a block. In its life cycle a block is free, open, full, collecting, and free again; bad at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockState {
    /// Erased.
    #[default]
    Free = 0,
    /// Being programmed, page by page.
    Open = 1,
    /// All pages are programmed.
    Full = 2,
    /// Its valid data is being moved away.
    Collecting = 3,
    /// No longer used.
    Bad = 4,
}

impl BlockState {
    /// The state with this code, the inverse of `state as u8`.
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Free),
            1 => Some(Self::Open),
            2 => Some(Self::Full),
            3 => Some(Self::Collecting),
            4 => Some(Self::Bad),
            _ => None,
        }
    }
}

/// An erase block: its location, wear and write position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EraseBlock {
    /// Pages programmed; the next page to program.
    pub written: u32,
    /// Erases so far.
    pub erases: u32,
    /// Its plane.
    pub plane: u16,
    /// Its block group.
    pub group: u8,
    /// Its state.
    pub state: BlockState,
}
