//! The data of a log, with a digest of each sector: in memory up to a limit, otherwise in an unnamed file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;

use emmclab_base::{Error, ErrorClass, Result, SECTOR_BYTES};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use xxhash_rust::xxh3::xxh3_64;

const SECTOR: usize = SECTOR_BYTES as usize;
static ZEROS: [u8; SECTOR] = [0; SECTOR];

/// The source of a sector's contents: a sector in the [`Spool`], zeros, or garbage that is generated when it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SectorSource(u32);

impl SectorSource {
    /// The source of a sector of zeros.
    pub const ZEROS: Self = Self(0);
    /// Sources from here on are garbage, each one different.
    const GARBAGE: u32 = 1 << 31;

    /// The source of garbage that depends on the seed alone.
    pub(crate) fn garbage(seed: u64) -> Self {
        Self(Self::GARBAGE | seed as u32)
    }

    fn is_garbage(self) -> bool {
        self.0 >= Self::GARBAGE
    }

    /// The source of the sector that is `ahead` sectors later in the same data.
    #[must_use]
    pub fn plus(self, ahead: u64) -> Self {
        Self(self.0 + ahead as u32)
    }
}

/// Maximum number of bytes that are kept in memory, where reading them needs no system call; beyond that, all data is in a file.
const MOST_MEMORY: usize = 1 << 27;

/// Collects the data of a log.
pub(crate) struct SpoolWriter {
    memory: Vec<u8>,
    /// All data, if it exceeds the memory.
    file: Option<BufWriter<File>>,
    digests: Vec<u64>,
}

/// The data of a log.
pub struct Spool {
    store: SpoolStore,
    /// By source: the digest of its contents.
    digests: Vec<u64>,
}

enum SpoolStore {
    Memory(Vec<u8>),
    File(File),
}

/// The contents of a garbage sector.
fn garbage(source: SectorSource) -> [u8; SECTOR] {
    let mut random = Pcg64Mcg::seed_from_u64(source.0.into());
    let mut sector = [0; SECTOR];
    sector.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()));
    sector
}

fn fail(error: std::io::Error) -> Error {
    Error::io(&std::env::temp_dir(), error).hint("set TMPDIR to a folder with room for the data of the log")
}

impl SpoolWriter {
    pub fn new() -> Self {
        Self { memory: Vec::new(), file: None, digests: vec![xxh3_64(&ZEROS)] }
    }

    /// Adds whole sectors; returns the source of the first one.
    pub fn add(&mut self, data: &[u8]) -> Result<SectorSource> {
        let first = self.digests.len();
        if first + data.len() / SECTOR > SectorSource::GARBAGE as usize {
            return Err(Error::new(ErrorClass::Unsupported, "the log holds more than 1 TiB of data"));
        }
        self.digests.extend(data.chunks_exact(SECTOR).map(xxh3_64));
        if self.file.is_none() && self.memory.len() + data.len() > MOST_MEMORY {
            let mut file = BufWriter::with_capacity(1 << 20, tempfile::tempfile().map_err(fail)?);
            file.write_all(&std::mem::take(&mut self.memory)).map_err(fail)?;
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(data).map_err(fail)?,
            None => self.memory.extend_from_slice(data),
        }
        Ok(SectorSource(first as u32))
    }

    pub fn finish(self) -> Result<Spool> {
        let Self { memory, file, digests } = self;
        let store = match file {
            Some(file) => SpoolStore::File(file.into_inner().map_err(|error| fail(error.into_error()))?),
            None => SpoolStore::Memory(memory),
        };
        Ok(Spool { store, digests })
    }
}

impl Spool {
    /// A digest of a sector's contents.
    #[inline]
    pub fn digest(&self, source: SectorSource) -> u64 {
        match self.digests.get(source.0 as usize) {
            Some(digest) => *digest,
            None => xxh3_64(&garbage(source)),
        }
    }

    /// Fills `buffer` with the contents of `sources`, one sector each.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn read(&self, sources: &[SectorSource], buffer: &mut [u8]) -> std::io::Result<()> {
        let mut at = 0;
        while at < sources.len() {
            let first = sources[at];
            let follows = |(i, source): &(usize, &SectorSource)| {
                if first == SectorSource::ZEROS || first.is_garbage() {
                    **source == first
                } else {
                    **source == first.plus(*i as u64)
                }
            };
            let run = sources[at..].iter().enumerate().take_while(follows).count();
            let part = &mut buffer[at * SECTOR..(at + run) * SECTOR];
            match &self.store {
                _ if first == SectorSource::ZEROS => part.fill(0),
                _ if first.is_garbage() => {
                    part.chunks_exact_mut(SECTOR).for_each(|sector| sector.copy_from_slice(&garbage(first)));
                }
                SpoolStore::Memory(memory) => {
                    let from = (first.0 as usize - 1) * SECTOR;
                    part.copy_from_slice(&memory[from..from + part.len()]);
                }
                SpoolStore::File(file) => file.read_exact_at(part, u64::from(first.0 - 1) * SECTOR_BYTES)?,
            }
            at += run;
        }
        Ok(())
    }
}
