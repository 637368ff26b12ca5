//! The state of a flash device as its registers report it to the host: wear, spare blocks and background work.

/// The state of a flash device; the names in parentheses are the fields of the `EXT_CSD` register of an eMMC (JESD84-B51).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceHealth {
    /// Share of the rated erases that blocks in SLC mode have used (`DEVICE_LIFE_TIME_EST_TYP_A`); `None` if there are no such
    /// blocks, they have no erase limit, or their erases are not known.
    pub slc_life_used: Option<f64>,
    /// Share of the rated erases that all other blocks have used (`DEVICE_LIFE_TIME_EST_TYP_B`); `None` as above.
    pub life_used: Option<f64>,
    /// Share of the spare blocks that have replaced bad ones (`PRE_EOL_INFO`); `None` without spares.
    pub spares_used: Option<f64>,
    /// Background work (`BKOPS_STATUS`): 0 none, 1 outstanding, 2 writes wait for it, 3 urgent.
    pub background: u8,
}
