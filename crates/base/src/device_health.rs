//! The state of a flash device as its registers report it to the host: wear, spare blocks and background work.

/// The state of a flash device; the names in parentheses are the fields of the `EXT_CSD` register of an eMMC (JESD84-B51).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceHealth {
    /// Share of the rated erases that blocks in SLC mode have used (`DEVICE_LIFE_TIME_EST_TYP_A`); `None` if there are no such
    /// blocks, they have no erase limit, or their erases are not known.
    pub slc_life_used: Option<f64>,
    /// Share of the rated erases that all blocks outside SLC mode have used (`DEVICE_LIFE_TIME_EST_TYP_B`). `None` if there are no such
    /// blocks, if they have no erase limit, or if their erases are not known.
    pub life_used: Option<f64>,
    /// Share of the spare blocks that have replaced bad blocks (`PRE_EOL_INFO`); `None` if the device has no spare blocks.
    pub spares_used: Option<f64>,
    /// State of background work (`BKOPS_STATUS`): 0 no work, 1 outstanding work, 2 work that delays writes, 3 urgent work.
    pub background: u8,
}
