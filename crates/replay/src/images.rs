//! Aged devices on disk, named by what made them, so that aging is paid once.

use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use emmclab_device::{Device, DeviceConfig};
use emmclab_trace::{AtomicFile, Error, Result, interrupt};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Compression level: images compress well and are read more often than written.
const LEVEL: i32 = 3;
/// Bytes of a file that are hashed at a time.
const PIECE: usize = 1 << 16;

/// Changes where the same recipe makes another device.
const FORM: u32 = 3;
/// Ending of the files of images.
const ENDING: &str = "emmcimg";
/// Time between two looks at whether another process has finished an image.
const PATIENCE: Duration = Duration::from_millis(20);

/// Map units of the largest device of which a copy stays in memory; the copy takes some 8 bytes for each.
const MOST_UNITS: u32 = 1 << 26;

/// The device that a limited store of this process gave last, by path of its image and settings. A copy of it takes a tenth of the time
/// that reading the image takes.
static LAST: Mutex<Option<(PathBuf, String, Device)>> = Mutex::new(None);

/// A folder of device images. Processes share it: each image is made by one of them, while the others wait.
#[derive(Clone, Debug)]
pub struct ImageStore {
    folder: PathBuf,
    limit: Option<u64>,
}

impl ImageStore {
    /// A store in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// Where the folder cannot be made.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
        Ok(Self { folder, limit: None })
    }

    /// The store as a cache of at most `limit` bytes: images that were not used for longest make room for new ones, and one
    /// that cannot be kept, as on a full disk, is done without.
    #[must_use]
    pub fn limited(self, limit: u64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// The file for a device made by `recipe`, which has the settings that decide what it holds: the name is a hash (xxh3, no secret) of
    /// the recipe, version and form. Devices that differ in other settings share it.
    fn path(&self, recipe: &str) -> PathBuf {
        let text = format!("{recipe}\n{}\n{FORM}", env!("CARGO_PKG_VERSION"));
        self.folder.join(format!("{:032x}.{ENDING}", xxh3_128(text.as_bytes())))
    }

    /// The aged device: from the store, or made and kept there. Waits for a process that is making it.
    ///
    /// # Errors
    /// Those of `make`, and where the store cannot be read or written.
    pub(crate) fn device(
        &self,
        config: &DeviceConfig,
        recipe: &str,
        make: impl FnOnce() -> Result<Device>,
    ) -> Result<Device> {
        let path = self.path(recipe);
        self.remembered(&path, config, || self.stored(&path, config, make))
    }

    /// The aged device where making it takes no longer than reading it: kept in memory only.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn device_in_memory(
        &self,
        config: &DeviceConfig,
        recipe: &str,
        make: impl FnOnce() -> Result<Device>,
    ) -> Result<Device> {
        self.remembered(&self.path(recipe), config, make)
    }

    /// Whether the store is a cache.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// A copy of the last device where it is this one, else the one that `get` gives. Only a cache has a last one.
    fn remembered(
        &self,
        path: &Path,
        config: &DeviceConfig,
        get: impl FnOnce() -> Result<Device>,
    ) -> Result<Device> {
        if !self.is_limited() {
            return get();
        }
        let settings = config.to_toml()?;
        let last = || LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, _, device)) = last().as_ref().filter(|(of, with, _)| of == path && *with == settings)
        {
            return Ok(device.clone());
        }
        let device = get()?;
        *last() = None;
        if device.geometry().logical_units <= MOST_UNITS {
            *last() = Some((path.to_owned(), settings, device.clone()));
        }
        Ok(device)
    }

    fn stored(
        &self,
        path: &Path,
        config: &DeviceConfig,
        make: impl FnOnce() -> Result<Device>,
    ) -> Result<Device> {
        if let Some(device) = self.load(path, config)? {
            return Ok(device);
        }
        let _claim = loop {
            match Claim::of(path) {
                Ok(Some(claim)) => break claim,
                Ok(None) => std::thread::sleep(PATIENCE),
                Err(_) if self.limit.is_some() => return make(),
                Err(error) => return Err(error),
            }
            interrupt::check()?;
        };
        if let Some(device) = self.load(path, config)? {
            return Ok(device);
        }
        let device = make()?;
        self.save(path, &device)?;
        Ok(device)
    }

    /// Makes the aged device where the store does not hold it; false if another process is making it.
    ///
    /// # Errors
    /// As [`ImageStore::device`].
    pub(crate) fn keep(&self, recipe: &str, make: impl FnOnce() -> Result<Device>) -> Result<bool> {
        let path = self.path(recipe);
        if path.exists() {
            return Ok(true);
        }
        let _claim = match Claim::of(&path) {
            Ok(Some(claim)) => claim,
            Ok(None) => return Ok(false),
            // The run will make it for itself.
            Err(_) if self.limit.is_some() => return Ok(true),
            Err(error) => return Err(error),
        };
        if !path.exists() {
            self.save(&path, &make()?)?;
        }
        Ok(true)
    }

    /// The device of an image, where there is one. A damaged image is refused, or made again where the store is a cache.
    fn load(&self, path: &Path, config: &DeviceConfig) -> Result<Option<Device>> {
        load(path, config).or_else(|error| if self.limit.is_some() { Ok(None) } else { Err(error) })
    }

    /// Keeps an aged device.
    fn save(&self, path: &Path, device: &Device) -> Result<()> {
        let bytes =
            zstd::encode_all(device.to_image().as_slice(), LEVEL).map_err(|error| Error::io(path, error))?;
        let Some(limit) = self.limit else { return write(path, &bytes) };
        if self.make_room(limit, bytes.len() as u64) {
            // A cache: a run that cannot write here goes on without.
            let _ = write(path, &bytes);
        }
        Ok(())
    }

    /// Removes the images that were not used for longest until `more` bytes fit; false if they never do.
    fn make_room(&self, limit: u64, more: u64) -> bool {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return false };
        let mut images: Vec<_> = entries
            .flatten()
            .filter(|entry| entry.path().extension().is_some_and(|ending| ending == ENDING))
            .filter_map(|entry| {
                let found = entry.metadata().ok()?;
                Some((found.modified().ok()?, found.len(), entry.path()))
            })
            .collect();
        images.sort_unstable();
        let mut kept: u64 = images.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in images {
            if kept.saturating_add(more) <= limit || more > limit {
                break;
            }
            // Another process may have removed it.
            let _ = std::fs::remove_file(path);
            kept -= bytes;
        }
        more <= limit
    }
}

/// The device of an image, where there is one; it counts as used now.
fn load(path: &Path, config: &DeviceConfig) -> Result<Option<Device>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        result => result.map_err(|error| Error::io(path, error))?,
    };
    // The folder may be read-only; then nothing is removed from it either.
    let _ = file.set_modified(SystemTime::now());
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| Error::io(path, error))?;
    let bytes = zstd::decode_all(bytes.as_slice())
        .map_err(|error| Error::io(path, error).hint("delete the damaged image; it will be made again"))?;
    let device = Device::from_image(config, &bytes).map_err(|error| error.in_file(path))?;
    Ok(Some(device))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(|error| Error::io(path, error))?;
    file.commit()
}

/// The right to make an image; it ends with its process, however that ends.
struct Claim {
    path: PathBuf,
    _lock: File,
}

impl Claim {
    /// `None` if a living process has it.
    fn of(image: &Path) -> Result<Option<Self>> {
        let path = image.with_extension("lock");
        let file = File::create(&path).map_err(|error| Error::io(&path, error))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            // Where a file system has no locks, an image may be made twice.
            _ => Ok(Some(Self { path, _lock: file })),
        }
    }
}

impl Drop for Claim {
    /// A process that waits for this file finds the image; one that comes later makes the file anew.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
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
