//! Saves and restores the state of a device next to its image, so that the next run can continue.
//!
//! The file `IMAGE.state` contains the settings, the layers and the tables of the device. While a run uses the image, its state file is
//! marked as not clean. A run that finds such a mark assumes a power loss, because the previous run was not shut down: map units that are
//! in the image but not in the saved tables are written again.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use emmclab_base::{Error, ErrorClass, Nanos, Op, Result, open_seekable};
use emmclab_device::{Device, DeviceCommand, DeviceConfig, Lpn, SettingChange};
use emmclab_layers::LayerConfig;
use emmclab_media::RawImage;
use emmclab_replay::{ImageStore, LiveStack, ReplayOptions, Simulation, StackDevice};
use emmclab_trace::{AtomicFile, compress_checked};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::LiveCore;
use crate::live::LiveOptions;

/// Zstandard compression level of the tables.
const LEVEL: i32 = 3;
/// The first bytes of a state file. A zstd frame with a checksum follows: the length of the header in four bytes, the header in
/// JSON, the tables.
const MARK: &[u8; 8] = b"EMMCLIVE";

/// State of an image at the start of a run, as earlier runs have left it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PreviousRun {
    /// Whether the image existed.
    pub image: bool,
    /// Whether the last run ended with an orderly shutdown.
    pub clean: bool,
    /// Number of map units whose data was in the image, but which the saved mapping tables did not contain. They were written again.
    pub units_entered: u64,
    /// Settings that were changed during the last run.
    pub setting_changes: Vec<SettingChange>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct StateFileHeader {
    clean: bool,
    device: String,
    layers: Vec<LayerConfig>,
    /// Settings that were changed during the run. `device` contains their final values.
    #[serde(default)]
    setting_changes: Vec<SettingChange>,
}

impl StateFileHeader {
    fn new(clean: bool, device: &DeviceConfig, layers: &[LayerConfig], changes: &[SettingChange]) -> Result<Self> {
        let setting_changes = changes.to_vec();
        Ok(Self { clean, device: device.to_toml()?, layers: layers.to_vec(), setting_changes })
    }
}

fn state_path(image: &Path) -> PathBuf {
    let mut name = image.as_os_str().to_owned();
    name.push(".state");
    name.into()
}

/// The images before the start of a run, which are restored if the start fails.
#[derive(Debug)]
pub(crate) struct ImageBackups {
    images: Vec<ImageBackup>,
    /// Whether the images are restored when this value is dropped.
    pub is_needed: bool,
}

#[derive(Debug)]
enum ImageBackup {
    /// The image did not exist, or was an empty file.
    Nothing { image: PathBuf, was_empty: bool },
    /// The image existed. Its state file, if there is one, is kept open, because the file may be replaced.
    State { image: PathBuf, state: Option<fs::File> },
}

impl ImageBackups {
    /// Restores the images and their state files. Must not be called after the contents of an image have changed.
    pub fn restore(&mut self) {
        for former in self.images.drain(..) {
            // Errors of the restoration are ignored, because the error of the failed start is reported.
            match former {
                ImageBackup::Nothing { image, was_empty } => {
                    let _ = fs::remove_file(state_path(&image));
                    let _ = if was_empty {
                        fs::OpenOptions::new().write(true).open(&image).and_then(|file| file.set_len(0))
                    } else {
                        fs::remove_file(&image)
                    };
                }
                ImageBackup::State { image, state: Some(state) } => {
                    let _ = copy_back(state, &state_path(&image));
                }
                ImageBackup::State { image, state: None } => {
                    let _ = fs::remove_file(state_path(&image));
                }
            }
        }
    }
}

fn copy_back(mut state: fs::File, path: &Path) -> Result<()> {
    let identity = |metadata: std::io::Result<fs::Metadata>| metadata.map(|metadata| (metadata.dev(), metadata.ino())).ok();
    if identity(state.metadata()) == identity(path.metadata()) {
        return Ok(());
    }
    let mut file = AtomicFile::create(path)?;
    std::io::copy(&mut state, &mut file).map_err(|error| Error::io(path, error))?;
    file.commit()
}

impl Drop for ImageBackups {
    fn drop(&mut self) {
        if self.is_needed {
            self.restore();
        }
    }
}

/// A device of the stack with its contents, and what its files contained from an earlier run.
struct OpenedDevice<'a> {
    part: StackDevice<'a>,
    /// The image file; `None` if the contents are not stored.
    path: Option<&'a Path>,
    /// Whether the image is new.
    is_new: bool,
    /// The header of the state file, if there is one.
    head: Option<StateFileHeader>,
    units_entered: u64,
}

impl OpenedDevice<'_> {
    fn is_clean(&self) -> bool {
        self.head.as_ref().is_some_and(|head| head.clean)
    }
}

/// Opens a device in the state of its image. Without an image, or if the image has no state, `new` creates the device.
fn open_one<'a>(
    config: &'a DeviceConfig, path: Option<&'a Path>, layers: &[LayerConfig], new: impl Fn() -> Result<Device>,
    former: &mut ImageBackups,
) -> Result<OpenedDevice<'a>> {
    let Some(path) = path else {
        let device = new()?;
        let image = RawImage::temporary(device.geometry().sectors())?;
        let part = StackDevice { config, device, image };
        return Ok(OpenedDevice { part, path: None, is_new: true, head: None, units_entered: 0 });
    };
    // The image is created last, so that an interrupted start leaves nothing behind.
    let was_empty = path.exists();
    let fresh = if was_empty { None } else { Some(new()?) };
    let sectors = Device::new(config).geometry().sectors();
    let (image, created) = RawImage::open(path, sectors)?;
    let state = state_path(path);
    former.images.push(if created {
        ImageBackup::Nothing { image: path.to_owned(), was_empty }
    } else {
        let opened = match open_seekable(&state) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            opened => Some(opened.map_err(|error| Error::io(&state, error))?),
        };
        ImageBackup::State { image: path.to_owned(), state: opened }
    });
    let old = if created { None } else { load(&state, config, layers)? };
    if !created && old.is_none() && !layers.is_empty() {
        let problem = "the image has no state file next to it, so its layers cannot be restored";
        return Err(Error::new(ErrorClass::Config, problem).in_file(&state).hint("serve without layers, or name a new image"));
    }
    let (head, device) = match old {
        Some((head, device)) => (Some(head), device),
        None => (None, fresh.map_or_else(new, Ok)?),
    };
    let mut opened =
        OpenedDevice { part: StackDevice { config, device, image }, path: Some(path), is_new: created, head, units_entered: 0 };
    if !created && !opened.is_clean() {
        opened.units_entered = enter(&mut opened.part.device, &opened.part.image)?;
    }
    Ok(opened)
}

/// Opens the devices and builds the stack for a live run.
pub(crate) fn open(
    config: &DeviceConfig, layers: &[LayerConfig], options: &LiveOptions, store: Option<&ImageStore>,
) -> Result<(LiveStack, PreviousRun, ImageBackups)> {
    let (paths, second) = ([options.image.as_deref(), options.second_image.as_deref()], options.second.as_ref());
    if paths[1].is_some() != (paths[0].is_some() && second.is_some()) {
        return Err(Error::new(ErrorClass::Config, "the contents of one device would be stored, but not those of the other")
            .hint("name an image for each of the two devices, or for neither"));
    }
    let replay = ReplayOptions { check: false, ..options.replay.clone() };
    let mut former = ImageBackups { images: Vec::new(), is_needed: true };
    let mut open_device = |config, path| {
        let new = || Ok(Simulation::new(config, &replay, store)?.into_device());
        open_one(config, path, layers, new, &mut former)
    };
    let main = open_device(config, paths[0])?;
    let second = second.map(|second| open_device(second, paths[1])).transpose()?;
    if let Some(second) = second.as_ref().filter(|second| second.is_new != main.is_new) {
        let missing = if main.is_new { main.path } else { second.path };
        return Err(Error::new(ErrorClass::Config, "this image does not exist, but the image of the other device does")
            .in_file(missing.unwrap_or(Path::new("")))
            .hint("give the two images that one run has written, or two paths that do not exist yet"));
    }
    let both = || [Some(&main), second.as_ref()].into_iter().flatten();
    let changes = main.head.as_ref().map_or_else(Vec::new, |head| head.setting_changes.clone());
    let previous = PreviousRun {
        image: !main.is_new,
        clean: both().all(OpenedDevice::is_clean),
        units_entered: both().map(|opened| opened.units_entered).sum(),
        setting_changes: changes,
    };
    for OpenedDevice { part, path, .. } in both() {
        if let Some(path) = path {
            let head = StateFileHeader::new(false, part.config, layers, &[])?;
            write(&state_path(path), &head, &part.device)?;
        }
    }
    let recover = both().any(|opened| opened.head.is_some());
    let second = second.map(|second| second.part);
    let stack = LiveStack::new(layers, main.part, second, (options.check, recover))?;
    Ok((stack, previous, former))
}

/// Writes the map units that are in the image but not in the device's tables; returns their number.
fn enter(device: &mut Device, image: &RawImage) -> Result<u64> {
    let unit = u64::from(device.geometry().unit_sectors);
    let (mut at, mut entered, mut now) = (0, 0, Nanos::ZERO);
    let mut missing = Vec::new();
    let read = image.runs(0, image.sectors(), |run| {
        let (from, to) = (at, at + run.sectors);
        at = to;
        if run.data {
            let units = (from / unit..to.div_ceil(unit)).map(|unit| Lpn(unit as u32));
            missing.extend(units.filter(|lpn| device.lookup(*lpn).is_none()));
        }
        true
    });
    read.map_err(|error| Error::io(image.path().unwrap_or(Path::new("")), error))?;
    missing.dedup();
    for lpn in missing {
        let command = DeviceCommand::new(now, Op::Write, u64::from(lpn.0) * unit, unit as u32);
        now = device.complete(&command)?.max(now);
        entered += 1;
    }
    device.rewind();
    Ok(entered)
}

/// Saves images and states. Each image is saved before its state, so that a state marked `clean` always belongs to a complete image.
pub(crate) fn save(images: &[Option<PathBuf>; 2], core: &LiveCore) -> Result<()> {
    let LiveCore { stack, config, second, layers, changes, .. } = core;
    let main = (stack.media(), Some(stack.device()), Some(config), changes.as_slice());
    let second = (stack.second_media(), stack.second(), second.as_ref(), [].as_slice());
    for (image, (media, device, config, changes)) in images.iter().zip([main, second]) {
        let (Some(image), Some(device), Some(config)) = (image, device, config) else { continue };
        if let Some(media) = media {
            media.image().sync().map_err(|error| Error::io(image, error))?;
        }
        write(&state_path(image), &StateFileHeader::new(true, config, layers, changes)?, device)?;
    }
    Ok(())
}

fn write(path: &Path, head: &StateFileHeader, device: &Device) -> Result<()> {
    let fail = |error| Error::io(path, error);
    let head = serde_json::to_vec(head).map_err(|error| fail(error.into()))?;
    let length = (head.len() as u32).to_le_bytes();
    let packed = compress_checked(&[&length, &head, &device.to_image()], LEVEL).map_err(fail)?;
    let mut file = AtomicFile::create(path)?;
    file.write_all(MARK).and_then(|()| file.write_all(&packed)).map_err(fail)?;
    file.commit()
}

/// Loads the state file of an image; `None` if there is none.
fn load(path: &Path, config: &DeviceConfig, layers: &[LayerConfig]) -> Result<Option<(StateFileHeader, Device)>> {
    let fail = |error| Error::io(path, error);
    let mut file = match open_seekable(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(fail)?,
    };
    let damaged = || {
        Error::new(ErrorClass::Truncated, "this is not the state file of a served device, or it is damaged")
            .in_file(path)
            .hint("restore a copy of the state file: it locates the data of an image with layers. For an image without layers, you can also move the state file away, and serve the image as a new device")
    };
    let mut mark = [0; 8];
    file.read_exact(&mut mark).map_err(|_| damaged())?;
    if &mark != MARK {
        return Err(damaged());
    }
    let content = zstd::decode_all(file).map_err(|_| damaged())?;
    let parts =
        content.split_first_chunk().and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize));
    let (head, tables) = parts.ok_or_else(damaged)?;
    let head: StateFileHeader = serde_json::from_slice(head).map_err(|_| damaged())?;
    // The settings may differ from those of the image, but only in settings that can change in a device in use.
    let made_with = DeviceConfig::from_toml(&head.device).map_err(|_| damaged())?;
    made_with.changes(config, Nanos::ZERO).map_err(|error| {
        Error::new(ErrorClass::Config, format!("the image was created with another device: {error}"))
            .in_file(path)
            .hint("name the device and settings with which the image was created, or another image")
    })?;
    if head.layers != layers {
        return Err(Error::new(ErrorClass::Config, "the image was created with other layers, or with other layer settings")
            .in_file(path)
            .hint("name the layers with which the image was created, or another image"));
    }
    let device = Device::from_image(config, tables).map_err(|error| error.in_file(path))?;
    Ok(Some((head, device)))
}
