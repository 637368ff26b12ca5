//! SDHCI: an SD host controller with an eMMC card, exported to QEMU as a PCI function over vfio-user.
//!
//! The guest uses its normal SDHCI and MMC drivers. Three parts are independent of each other's protocols: the card implements eMMC, the
//! controller registers and DMA, the connection vfio-user.

mod card;
mod controller;
#[cfg(any(test, fuzzing))]
pub mod exercise;
mod export;
mod pci;
mod settings;
mod vfio;

pub use export::{SdhciExport, SessionEvent};
pub use settings::CardSettings;
