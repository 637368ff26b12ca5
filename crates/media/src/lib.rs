//! Contents of a simulated device.
//!
//! [`Media`] listens to a device. Data that the host writes lies in memory until the device's own events say that its page is
//! programmed; then it moves to an [`Image`], a sparse file that holds exactly what is durable at each sector. After a cut of
//! power the image is what a real device would have left.

mod image;
mod media;

pub use image::{Image, Run};
pub use media::{Change, Media};
