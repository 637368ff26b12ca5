//! The roles of written blocks in the file system on the device.

use std::io;

use emmclab_base::{BlockNote, Op, SECTOR_BYTES};
use emmclab_device::DeviceCommand;
use emmclab_ext4::{Annotator, DiskReader};
use emmclab_layers::LayerConfig;
use emmclab_media::DeviceContents;
use emmclab_replay::LiveStack;

/// Layers that do not change addresses, so that those on the device are those of the file system.
const IN_PLACE: [&str; 2] = ["journal", "pass-through"];

/// Tracks the writes of a file system.
pub(crate) struct LiveAnnotator {
    annotator: Annotator,
    /// Why an existing file system could not be read, if so.
    unread: Option<String>,
}

/// The contents of a device, as the file system reads them.
struct LiveDeviceContents<'a> {
    media: &'a DeviceContents,
    sectors: u64,
}

impl DiskReader for LiveDeviceContents<'_> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.sectors * SECTOR_BYTES)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset.saturating_add(buffer.len() as u64) > self.sectors * SECTOR_BYTES {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let first = offset / SECTOR_BYTES;
        let skipped = (offset % SECTOR_BYTES) as usize;
        if skipped == 0 && (buffer.len() as u64).is_multiple_of(SECTOR_BYTES) {
            return self.media.read(first, buffer);
        }
        let mut whole = vec![0; (skipped + buffer.len()).next_multiple_of(SECTOR_BYTES as usize)];
        self.media.read(first, &mut whole)?;
        buffer.copy_from_slice(&whole[skipped..skipped + buffer.len()]);
        Ok(())
    }
}

impl LiveAnnotator {
    /// Reads the file system on the stack. Under a layer that moves data, it is instead learnt from the writes, beginning with mkfs.
    pub fn of(stack: &LiveStack, layers: &[LayerConfig]) -> Self {
        let mut annotator = Annotator::new();
        let mut unread = None;
        if let Some(media) = stack.media()
            && layers.iter().all(|layer| IN_PLACE.contains(&layer.name.as_str()))
        {
            let contents = LiveDeviceContents { media, sectors: stack.capacity() };
            unread = annotator.attach(&contents).err().map(|error| error.to_string());
        }
        Self { annotator, unread }
    }

    /// The roles of the blocks that a command writes; empty for a command without data.
    pub fn notes(&mut self, command: &DeviceCommand, data: &[u8]) -> Vec<BlockNote> {
        let mut notes = Vec::new();
        match command.op {
            Op::Write => self.annotator.write(command.sector, data, &mut notes),
            Op::Discard | Op::SecureErase => {
                self.annotator.discard(command.sector, u64::from(command.sectors));
            }
            Op::Read | Op::Flush => {}
        }
        notes
    }

    /// What is known of the file system, in words.
    pub fn status(&self) -> String {
        self.unread.clone().unwrap_or_else(|| self.annotator.status().to_string())
    }
}
