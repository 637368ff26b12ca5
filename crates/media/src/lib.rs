//! Contents of a simulated device.
//!
//! [`DeviceContents`] observes a device. Data that the host writes stays in memory until the device's events report that its page is
//! programmed. It then moves to an [`RawImage`], a sparse file that holds exactly the durable contents of each sector. After a power
//! cut, the image is what a real device would have left.

mod image;
mod media;

pub use image::{DataRun, RawImage};
pub use media::{ContentsChange, DeviceContents};
