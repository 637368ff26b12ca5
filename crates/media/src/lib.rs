//! Contents of a simulated device.
//!
//! [`Media`] observes a device. Data that the host writes stays in memory until the device's events report that its page is
//! programmed. It then moves to an [`Image`], a sparse file that holds exactly the durable contents of each sector. After a power
//! cut, the image is what a real device would have left.

mod image;
mod media;

pub use image::{Image, Run};
pub use media::{Change, Media};
