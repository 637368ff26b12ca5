//! Images: the state of a used device as bytes, so that it has to be aged only once.
//!
//! An image consists of little-endian words: a mark, the version of the layout, then the state of the FTL and of the blocks (`ftl/state`).
//! It does not contain times, counters and requests in flight.

use emmclab_base::Result;

use crate::ftl::Ftl;
use crate::image_words::{WordReader, WordWriter, damaged};
use crate::nand::Nand;

/// "EMIM" and the version of the layout.
const MARK: u32 = 0x4D49_4D45;
const VERSION: u32 = 1;

/// Makes an image of the data of an FTL and of the state of the blocks.
pub(crate) fn save(ftl: &Ftl, nand: &Nand) -> Vec<u8> {
    let mut out = WordWriter::with_capacity(ftl.state_words(nand));
    out.words([MARK, VERSION]);
    ftl.save(nand, &mut out);
    out.finish()
}

/// Restores the state from an image into a new FTL and new flash.
pub(crate) fn restore(ftl: &mut Ftl, nand: &mut Nand, image: &[u8]) -> Result<()> {
    let mut image = WordReader::new(image);
    if image.word()? != MARK || image.word()? != VERSION {
        return Err(damaged("magic number or version differs"));
    }
    ftl.restore(nand, &mut image)?;
    if image.is_empty() { Ok(()) } else { Err(damaged("there is data after the state of the device")) }
}
