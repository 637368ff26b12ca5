//! Images: the state of an aged device as bytes, so that the device need be aged only once.
//!
//! An image consists of little-endian words: a magic number with the version of the layout, then the state of the FTL and of the blocks
//! (`ftl/state.rs`). Times, counters and requests in flight are not stored.

use emmclab_base::{Error, ErrorClass, Result};

use crate::ftl::Ftl;
use crate::nand::Nand;

/// Magic number "EMIM" with the version of the layout.
const MARK: u32 = 0x4D49_4D45;
const VERSION: u32 = 1;

/// Saves the data of an FTL and the state of the blocks as an image.
pub(crate) fn save(ftl: &Ftl, nand: &Nand) -> Vec<u8> {
    let mut out = WordWriter::with_capacity(ftl.core.tables.map.len() + 8 * nand.block_count());
    out.words([MARK, VERSION]);
    ftl.save(nand, &mut out);
    out.finish()
}

/// Restores the state from an image into a new FTL and a new flash.
pub(crate) fn restore(ftl: &mut Ftl, nand: &mut Nand, image: &[u8]) -> Result<()> {
    let mut image = WordReader::new(image);
    if image.word()? != MARK || image.word()? != VERSION {
        return Err(damaged("magic number or version differs"));
    }
    ftl.restore(nand, &mut image)?;
    if image.0.is_empty() { Ok(()) } else { Err(damaged("there is data after the state of the device")) }
}

#[derive(Default)]
pub(crate) struct WordWriter(Vec<u8>);

impl WordWriter {
    /// A writer with memory for `words` words.
    pub fn with_capacity(words: usize) -> Self {
        Self(Vec::with_capacity(4 * words))
    }

    pub fn word(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub fn words(&mut self, values: impl IntoIterator<Item = u32>) {
        values.into_iter().for_each(|value| self.word(value));
    }

    /// Writes each value as its difference from its predecessor. A table that was filled in order then compresses to almost nothing.
    pub fn differences(&mut self, values: &[u32]) {
        let from = self.0.len();
        self.0.resize(from + 4 * values.len(), 0);
        let mut before = 0;
        for (word, value) in self.0[from..].as_chunks_mut().0.iter_mut().zip(values) {
            *word = value.wrapping_sub(std::mem::replace(&mut before, *value)).to_le_bytes();
        }
    }

    pub fn long(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// The bytes written so far.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

pub(crate) struct WordReader<'a>(&'a [u8]);

impl<'a> WordReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn word(&mut self) -> Result<u32> {
        let (head, rest) = self.0.split_first_chunk::<4>().ok_or_else(cut)?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*head))
    }

    pub fn long(&mut self) -> Result<u64> {
        Ok(u64::from(self.word()?) | u64::from(self.word()?) << 32)
    }

    /// Reads a table of `count` entries that [`WordWriter::differences`] wrote. An entry is 0 (no address), or an address plus one.
    /// Addresses are below `most`. Calls `put` with the index and the address of each entry that has an address.
    pub fn addresses(&mut self, count: usize, most: usize, mut put: impl FnMut(u32, u32)) -> Result<()> {
        let words = self.0.get(..4 * count).ok_or_else(cut)?;
        self.0 = &self.0[4 * count..];
        let mut value = 0_u32;
        for (index, word) in (0..).zip(words.as_chunks().0) {
            value = value.wrapping_add(u32::from_le_bytes(*word));
            if value as usize > most {
                return Err(damaged("an address is outside the device"));
            }
            if let Some(address) = value.checked_sub(1) {
                put(index, address);
            }
        }
        Ok(())
    }
}

#[cold]
fn cut() -> Error {
    damaged("the data is cut short")
}

/// The error for an image that is damaged or belongs to another device.
pub(crate) fn damaged(problem: &str) -> Error {
    Error::new(ErrorClass::Truncated, format!("this is not an image of this device: {problem}"))
        .hint("move the image away, so that a new preconditioned device is created. If the image was served with layers, restore a copy of its state file: without it, the data cannot be located")
}
