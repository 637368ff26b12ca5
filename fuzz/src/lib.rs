//! The common part of the targets: read bytes as a trace of given formats; bytes as patches of an image. A panic is a finding, an error
//! is not.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::OnceLock;

use emmclab_ext4::DiskReader;
use emmclab_record::open_trace;
use emmclab_trace::ReadOptions;
use tempfile::NamedTempFile;

/// Reads `data` in each of the formats, strictly and leniently, to its end.
pub fn read_as(formats: &[&str], data: &[u8]) {
    let formats: Vec<_> = formats.iter().map(|format| Some(*format)).collect();
    read_each(&formats, data);
}

/// Reads `data` as what it looks like, or has it refused by its name.
pub fn read_as_found(data: &[u8]) {
    read_each(&[None], data);
}

/// A temporary file with these bytes, in memory where the system has such a folder.
pub fn file_of(data: &[u8]) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::new_in("/dev/shm").or_else(|_| NamedTempFile::new())?;
    file.write_all(data)?;
    Ok(file)
}

fn read_each(formats: &[Option<&str>], data: &[u8]) {
    let Ok(file) = file_of(data) else { return };
    for format in formats {
        for lenient in [false, true] {
            let options = ReadOptions { format: format.map(str::to_owned), lenient, ..ReadOptions::default() };
            if let Ok(mut reader) = open_trace(file.path(), &options) {
                while let Ok(Some(batch)) = reader.next_batch() {
                    std::hint::black_box(batch.iter().map(|request| request.bytes().0).max());
                    std::hint::black_box((0..batch.len()).map(|row| batch.notes(row).len()).max());
                }
                std::hint::black_box(reader.ledger());
            }
        }
    }
}

const BLOCK: usize = 1024;

/// An image, and the numbers of its blocks that are not empty.
struct Base {
    bytes: Vec<u8>,
    used: Vec<usize>,
}

/// An image some of whose bytes are others. The first byte of the input chooses the image; then follow patches: the number of a
/// block among those that are not empty (one byte), the place in it (two), a length below 64 (one), and the bytes.
pub struct Patched {
    base: &'static Base,
    blocks: HashMap<usize, Vec<u8>>,
}

fn base(number: u8) -> &'static Base {
    static BASES: [OnceLock<Base>; 2] = [const { OnceLock::new() }; 2];
    let packed: [&[u8]; 2] = [include_bytes!("../images/plain.zst"), include_bytes!("../images/checked.zst")];
    let number = usize::from(number % 2);
    BASES[number].get_or_init(|| {
        let bytes = zstd::decode_all(packed[number]).unwrap_or_default();
        let is_used = |block: &usize| bytes[block * BLOCK..][..BLOCK].iter().any(|byte| *byte != 0);
        let used = (0..bytes.len() / BLOCK).filter(is_used).collect();
        Base { bytes, used }
    })
}

impl Patched {
    /// The image of an input.
    pub fn new(data: &[u8]) -> Self {
        let (first, mut rest) = data.split_first().unwrap_or((&0, &[]));
        let base = base(*first);
        let mut blocks: HashMap<usize, Vec<u8>> = HashMap::new();
        while let [block, low, high, length, after @ ..] = rest {
            let (patch, after) = after.split_at(usize::from(length % 64).min(after.len()));
            let block = base.used[usize::from(*block) % base.used.len()];
            let bytes = blocks.entry(block).or_insert_with(|| base.bytes[block * BLOCK..][..BLOCK].to_vec());
            let place = usize::from(u16::from_le_bytes([*low, *high])) % BLOCK;
            bytes[place..].iter_mut().zip(patch).for_each(|(byte, patch)| *byte = *patch);
            rest = after;
        }
        Self { base, blocks }
    }
}

impl DiskReader for Patched {
    fn size(&self) -> io::Result<u64> {
        self.base.bytes.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.base.bytes.read_at(offset, buffer)?;
        let offset = offset as usize;
        for block in offset / BLOCK..=(offset + buffer.len().max(1) - 1) / BLOCK {
            let Some(bytes) = self.blocks.get(&block) else { continue };
            let (from, to) = (offset.max(block * BLOCK), (offset + buffer.len()).min((block + 1) * BLOCK));
            buffer[from - offset..to - offset].copy_from_slice(&bytes[from - block * BLOCK..to - block * BLOCK]);
        }
        Ok(())
    }
}
