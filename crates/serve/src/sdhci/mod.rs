//! SDHCI: an SD host controller with an eMMC card, offered to QEMU as a PCI function over vfio-user.
//!
//! The guest's own SDHCI and MMC drivers find the card. Three parts know nothing of each other's protocol: the card speaks
//! eMMC, the controller registers and DMA, the connection vfio-user.

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
