//! One erase block.

/// What a block is doing. Its life: free, open, full, collecting, free again; bad at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum BlockState {
    /// Erased.
    #[default]
    Free = 0,
    /// Being written, page by page.
    Open = 1,
    /// All pages are written.
    Full = 2,
    /// Its valid data is being moved away.
    Collecting = 3,
    /// Used no more.
    Bad = 4,
}

/// An erase block. `plane` and `group` are set when it is first opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Valid map units.
    pub valid: u32,
    /// Pages written; the next page to write.
    pub written: u32,
    /// Erases so far.
    pub erases: u32,
    /// Page programs of the device before its last page was written.
    pub(crate) closed: u64,
    /// Its plane.
    pub plane: u16,
    /// Its block group.
    pub group: u8,
    /// What it is doing.
    pub state: BlockState,
}
