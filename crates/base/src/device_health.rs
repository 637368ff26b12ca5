//! The state of a flash device in use, as its registers report it to the host: wear, spares, and background work.

/// The state of a flash device; the names in parentheses are the fields of the `EXT_CSD` register of an eMMC (JESD84-B51).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceHealth {
    /// Used share of the erases that blocks in SLC mode endure (`DEVICE_LIFE_TIME_EST_TYP_A`); `None` if there are none, they
    /// endure any number, or nothing is known.
    pub slc_life_used: Option<f64>,
    /// Used share of the erases that all other blocks endure (`DEVICE_LIFE_TIME_EST_TYP_B`).
    pub life_used: Option<f64>,
    /// Share of the spare blocks that have replaced bad ones (`PRE_EOL_INFO`); `None` without spares.
    pub spares_used: Option<f64>,
    /// Background work (`BKOPS_STATUS`): 0 none, 1 outstanding, 2 writes wait for it, 3 urgent.
    pub background: u8,
}
