//! SDHCI: an SD host controller with an eMMC card, exported to QEMU as a PCI function over vfio-user.
//!
//! The guest uses its normal SDHCI and MMC drivers. Three parts are independent of each other's protocols: the card implements eMMC, the
//! controller registers and DMA, the connection vfio-user.

mod card;
mod controller;
mod export;
#[cfg(any(test, fuzzing))]
pub mod fuzz_driver;
mod pci;
mod settings;
mod vfio;

pub use export::{SdhciExport, SessionEvent};
pub use settings::CardSettings;
