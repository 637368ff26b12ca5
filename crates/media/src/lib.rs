//! Contents of a simulated device.
//!
//! [`DeviceContents`] observes a device. Data that the host writes stays in memory until an event of the device reports that its
//! page is programmed. It then moves to a [`RawImage`], a sparse file with the durable contents of each sector: what a power cut
//! would leave on a real device.

mod image;
mod media;

pub use image::{DataRun, RawImage};
pub use media::{ContentsChange, DeviceContents};
