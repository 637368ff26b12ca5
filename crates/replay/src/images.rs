//! Aged devices on disk, named by what made them, so that aging is paid once.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use emmclab_device::{Device, DeviceConfig};
use emmclab_trace::{AtomicFile, Error, Result};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Compression level: images compress well and are read more often than written.
const LEVEL: i32 = 3;
/// Bytes of a file that are hashed at a time.
const PIECE: usize = 1 << 16;

/// A folder of device images.
#[derive(Clone, Debug)]
pub struct ImageStore {
    folder: PathBuf,
}

impl ImageStore {
    /// A store in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// Where the folder cannot be made.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
        Ok(Self { folder })
    }

    /// The file for a device aged by `recipe`: the name is a hash (xxh3, no secret) of settings,
    /// recipe and version.
    fn path(&self, config: &DeviceConfig, recipe: &str) -> Result<PathBuf> {
        let text = format!("{}\n{recipe}\n{}", config.to_toml()?, env!("CARGO_PKG_VERSION"));
        Ok(self.folder.join(format!("{:032x}.emmcimg", xxh3_128(text.as_bytes()))))
    }

    /// The aged device, where the store holds it.
    ///
    /// # Errors
    /// Where the file is there but cannot be read or is damaged.
    pub fn load(&self, config: &DeviceConfig, recipe: &str) -> Result<Option<Device>> {
        let path = self.path(config, recipe)?;
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            result => result.map_err(|error| Error::io(&path, error))?,
        };
        let bytes = zstd::decode_all(bytes.as_slice()).map_err(|error| {
            Error::io(&path, error).hint("delete the damaged image; it will be made again")
        })?;
        let device = Device::from_image(config, &bytes).map_err(|error| error.in_file(&path))?;
        Ok(Some(device))
    }

    /// Keeps an aged device.
    ///
    /// # Errors
    /// Where the disk is full or the folder cannot be written.
    pub fn save(&self, config: &DeviceConfig, recipe: &str, device: &Device) -> Result<()> {
        let path = self.path(config, recipe)?;
        let fail = |error| Error::io(&path, error);
        let bytes = zstd::encode_all(device.to_image().as_slice(), LEVEL).map_err(fail)?;
        let mut file = AtomicFile::create(&path)?;
        file.write_all(&bytes).map_err(fail)?;
        file.commit()
    }
}

/// The hash of a file, read in pieces.
///
/// # Errors
/// Where the file cannot be read.
pub(crate) fn file_hash(path: &Path) -> Result<u128> {
    let fail = |error| Error::io(path, error);
    let mut file = File::open(path).map_err(fail)?;
    let mut piece = vec![0; PIECE];
    let mut hash = Xxh3::new();
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(hash.digest128()),
            Ok(count) => hash.update(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(fail(error)),
        }
    }
}
