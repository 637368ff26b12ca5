//! Images of aged devices on disk. The name of an image is derived from the recipe of the ageing, so each device is aged only once.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use emmclab_device::{Device, DeviceConfig};
use emmclab_trace::{AtomicFile, Error, InputFile, Result, compress_checked, interrupt, open_seekable};
use rustix::fs::OFlags;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// Compression level. Images compress well and are read more often than written.
const LEVEL: i32 = 3;
/// Number of bytes of a file that are read and hashed at a time.
const PIECE: usize = 1 << 16;

/// Version of the stored images. It is increased when a recipe yields another device than before, and when the layout of an image changes.
const FORM: u32 = 8;
/// File extension of images.
const ENDING: &str = "emmcimg";
/// Time between two checks whether another process has finished an image.
const PATIENCE: Duration = Duration::from_millis(20);

/// Maximum size, in map units, of a device that stays in memory for the next run. A copy of the device takes about 8 bytes for each unit.
const MOST_UNITS: u32 = 1 << 26;

/// The device that a limited image store of this process returned last, with the path of its image and its settings. A run on the same
/// device copies it instead of reading the image again.
static LAST: Mutex<Option<(PathBuf, String, Device)>> = Mutex::new(None);

/// Locks [`LAST`].
fn last() -> MutexGuard<'static, Option<(PathBuf, String, Device)>> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder of device images that processes share. If several processes need the same image, one creates it, while the others wait.
#[derive(Clone, Debug)]
pub struct ImageStore {
    folder: PathBuf,
    limit: Option<u64>,
}

impl ImageStore {
    /// Opens a store in `folder`, which is created if it does not exist.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
        Ok(Self { folder, limit: None })
    }

    /// Turns the store into a cache of at most `limit` bytes. The least recently used images are removed to make room for new ones. If an
    /// image cannot be stored, for example because the disk is full, this is not an error.
    #[must_use]
    pub fn limited(self, limit: u64) -> Self {
        Self { limit: Some(limit), ..self }
    }

    /// The path of the image file of a device. `recipe` contains the settings that determine the contents of the device. The file name is a
    /// hash of the recipe, the version and [`FORM`], so devices that differ only in other settings share the file.
    fn path(&self, recipe: &str) -> PathBuf {
        let text = format!("{recipe}\n{}\n{FORM}", env!("CARGO_PKG_VERSION"));
        self.folder.join(format!("{:032x}.{ENDING}", xxh3_128(text.as_bytes())))
    }

    /// Returns the aged device from the store, or creates and stores it. Waits if another process is creating it.
    /// Errors: those of `make`, and if the store cannot be read or written.
    pub(crate) fn device(&self, config: &DeviceConfig, recipe: &str, make: impl FnOnce() -> Result<Device>) -> Result<Device> {
        let path = self.path(recipe);
        self.device_from_memory(&path, config, || self.device_from_disk(&path, config, make))
    }

    /// Returns a copy of the device in memory if it is the requested one, otherwise the device from `get`. Only a limited store keeps a
    /// device in memory.
    fn device_from_memory(&self, path: &Path, config: &DeviceConfig, get: impl FnOnce() -> Result<Device>) -> Result<Device> {
        if self.limit.is_none() {
            return get();
        }
        let settings = config.to_toml()?;
        if let Some((_, _, device)) = last().as_ref().filter(|(of, with, _)| of == path && *with == settings) {
            return Ok(device.clone());
        }
        let device = get()?;
        *last() = None;
        if self.may_remember(&device) {
            *last() = Some((path.to_owned(), settings, device.clone()));
        }
        Ok(device)
    }

    /// Whether the device is small enough to stay in memory.
    fn may_remember(&self, device: &Device) -> bool {
        self.limit.is_some() && device.geometry().logical_units <= MOST_UNITS
    }

    fn device_from_disk(&self, path: &Path, config: &DeviceConfig, make: impl FnOnce() -> Result<Device>) -> Result<Device> {
        if let Some(device) = self.load(path, config)? {
            return Ok(device);
        }
        let _claim = loop {
            match ImageLock::of(path) {
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

    /// Creates and stores the aged device if it is not in the store. Returns false if another process is creating it.
    pub(crate) fn keep(&self, config: &DeviceConfig, recipe: &str, make: impl FnOnce() -> Result<Device>) -> Result<bool> {
        let path = self.path(recipe);
        if path.exists() {
            return Ok(true);
        }
        let _claim = match ImageLock::of(&path) {
            Ok(Some(claim)) => claim,
            Ok(None) => return Ok(false),
            // The lock file cannot be created. In a cache (`limit` is set) this is no error, because the run will create the device itself.
            Err(_) if self.limit.is_some() => return Ok(true),
            Err(error) => return Err(error),
        };
        if !path.exists() {
            let device = make()?;
            self.save(&path, &device)?;
            // The next run of this process will probably use the same device, so it is kept in memory.
            if self.may_remember(&device) {
                *last() = Some((path, config.to_toml()?, device));
            }
        }
        Ok(true)
    }

    /// Reads the device of an image; `None` if there is no image. A damaged image is an error, but a limited store treats it as missing.
    fn load(&self, path: &Path, config: &DeviceConfig) -> Result<Option<Device>> {
        load(path, config).or_else(|error| if self.limit.is_some() { Ok(None) } else { Err(error) })
    }

    /// Stores an aged device.
    fn save(&self, path: &Path, device: &Device) -> Result<()> {
        let bytes = compress_checked(&[&device.to_image()], LEVEL).map_err(|error| Error::io(path, error))?;
        let Some(limit) = self.limit else { return write(path, &bytes) };
        // The lock prevents several processes from using the same free space, except on a file system without locks.
        let folder = File::open(&self.folder);
        let _turn = folder.inspect(|folder| drop(folder.lock()));
        if self.make_room(limit, bytes.len() as u64) {
            // The folder is only a cache, so a failed write is ignored.
            let _ = write(path, &bytes);
        }
        Ok(())
    }

    /// Removes the least recently used images until `more` bytes fit into `limit`. Returns false if they can never fit.
    fn make_room(&self, limit: u64, more: u64) -> bool {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return false };
        let mut images: Vec<_> = entries
            .flatten()
            .filter(|entry| is_image(&entry.path()))
            .filter_map(|entry| {
                let metadata = entry.metadata().ok()?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .collect();
        images.sort_unstable();
        let mut kept: u64 = images.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in images {
            if kept.saturating_add(more) <= limit || more > limit {
                break;
            }
            // Another process may already have removed the image.
            let _ = std::fs::remove_file(path);
            kept -= bytes;
        }
        more <= limit
    }
}

/// Whether a path has the form of an image name. Other files in the folder are never removed.
fn is_image(path: &Path) -> bool {
    let named_by_hash = |stem: &OsStr| stem.len() == 32 && stem.as_encoded_bytes().iter().all(u8::is_ascii_hexdigit);
    path.extension().is_some_and(|ending| ending == ENDING) && path.file_stem().is_some_and(named_by_hash)
}

/// Reads the device of an image and updates its time of last use; `None` if there is no image.
fn load(path: &Path, config: &DeviceConfig) -> Result<Option<Device>> {
    let mut file = match open_seekable(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        result => result.map_err(|error| Error::io(path, error))?,
    };
    // Marks the image as recently used. This fails in a read-only folder, from which no image is removed anyway.
    let _ = file.set_modified(SystemTime::now());
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| Error::io(path, error))?;
    let bytes = zstd::decode_all(bytes.as_slice())
        .map_err(|error| Error::io(path, error).hint("delete the damaged image; it will be created again"))?;
    let device = Device::from_image(config, &bytes).map_err(|error| error.in_file(path))?;
    Ok(Some(device))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes).map_err(|error| Error::io(path, error))?;
    file.commit()
}

/// A lock that gives the exclusive right to create an image. It ends with the process, even after a crash.
struct ImageLock {
    path: PathBuf,
    _lock: File,
}

impl ImageLock {
    /// Acquires the lock for an image; `None` if a running process holds it.
    fn of(image: &Path) -> Result<Option<Self>> {
        let path = image.with_extension("lock");
        // Symbolic links are not followed, because they could lead to a file elsewhere.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).custom_flags(flags).open(&path);
        let file = file.map_err(|error| Error::io(&path, error))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            // If the file system has no locks, two processes may create the same image.
            _ => Ok(Some(Self { path, _lock: file })),
        }
    }
}

impl Drop for ImageLock {
    /// Removes the lock file. A process that waits for the image then reads it; a process that needs the lock later creates a new file.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Hash of a file, which is read in pieces.
pub(crate) fn file_hash(path: &Path) -> Result<u128> {
    let fail = |error| Error::io(path, error);
    let mut file = InputFile::open(path).map_err(fail)?;
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
