//! The state of a used device as bytes, so that aging it once is enough.
//!
//! Little-endian words: a mark, the version of the layout, then the state of the FTL and the blocks under it (`ftl/state.rs`). Times,
//! counters and requests in flight are not part of it.

use emmclab_base::Result;

use crate::device::Device;
use crate::load::DeviceConfig;
use crate::words::{Reader, Writer, damaged};

/// "EMIM" and the version of the layout.
const MARK: u32 = 0x4D49_4D45;
const VERSION: u32 = 2;

impl Device {
    /// The data that the device holds and the state of its blocks.
    pub fn to_image(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(self.ftl.state_words(&self.nand));
        out.words([MARK, VERSION]);
        self.ftl.save(&self.nand, &mut out);
        out.finish()
    }

    /// The device that an image was made of.
    ///
    /// # Errors
    /// [`Kind::Truncated`](emmclab_base::Kind::Truncated) where the image is damaged or of another device.
    pub fn from_image(config: &DeviceConfig, image: &[u8]) -> Result<Self> {
        let mut device = Self::new(config);
        let mut image = Reader::new(image);
        if image.word()? != MARK || image.word()? != VERSION {
            return Err(damaged("mark or version differ"));
        }
        device.ftl.restore(&mut device.nand, &mut image)?;
        if image.is_empty() { Ok(device) } else { Err(damaged("there is more than a device in it")) }
    }
}
