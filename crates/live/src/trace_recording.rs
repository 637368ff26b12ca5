//! Records the requests to a live device as a trace, with their exact times and the roles of written blocks in the file system.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use emmclab_base::{Op, SECTOR_BYTES};
use emmclab_device::{DeviceCommand, SettingChange};
use emmclab_ext4::{Annotator, DiskReader};
use emmclab_layers::LayerConfig;
use emmclab_media::DeviceContents;
use emmclab_replay::{LiveCompletion, LiveStack};
use emmclab_trace::{
    BATCH_ROWS, BatchBuilder, BlockNote, Ledger, RecordedFeatures, Request, Result, Sector, TraceHeader, TraceWriter,
    WriteOptions,
};

/// The state of a request between its arrival and its record in the trace.
enum RecordingSlot {
    /// The request is not complete yet; the value describes the roles of its blocks.
    Open(Vec<BlockNote>),
    /// The request will never be completed.
    Lost,
    Complete(Request, Vec<BlockNote>),
}

/// Writes requests in order of arrival, which is the order of their numbers.
pub(crate) struct LiveRecording {
    path: PathBuf,
    writer: TraceWriter,
    header: TraceHeader,
    batch: BatchBuilder,
    ledger: Ledger,
    /// Number of the first request that has not been written to the trace. The first entry of `slots` belongs to it.
    first: u64,
    slots: VecDeque<RecordingSlot>,
}

impl LiveRecording {
    pub fn create(path: &Path, device: &str) -> Result<Self> {
        let header = TraceHeader {
            source: device.to_owned(),
            recorded: Some(RecordedFeatures::SERVED),
            clock: "relative".to_owned(),
            note: Some(format!("recorded by a live {device}, with the times of its simulation")),
            // The columns for block roles exist from the start, because a file system may be created later.
            block_notes: Some(TraceHeader::EXT4.to_owned()),
            ..TraceHeader::default()
        };
        Ok(Self {
            path: path.to_owned(),
            writer: TraceWriter::create(path, &header, &WriteOptions::default())?,
            header,
            batch: BatchBuilder::of_noted(true),
            ledger: Ledger::default(),
            first: 0,
            slots: VecDeque::new(),
        })
    }

    /// Restarts the trace with an empty file. In its ledger, the requests before number `next` count as filtered out.
    pub fn restart(&mut self, next: u64) -> Result<()> {
        self.writer = TraceWriter::create(&self.path, &self.header, &WriteOptions::default())?;
        self.batch = BatchBuilder::of_noted(true);
        self.slots.clear();
        self.first = next;
        let filtered_before = self.ledger.kept + self.ledger.filtered_before;
        self.ledger = Ledger { filtered_before, ..Ledger::default() };
        Ok(())
    }

    /// Adds a completed request.
    pub fn add(&mut self, answer: &LiveCompletion) -> Result<()> {
        let (event, command) = (&answer.event, &answer.command);
        let request = Request {
            start: Some(event.start),
            issue: Some(event.start),
            complete: Some(event.complete),
            flags: command.modifiers.into(),
            ..Request::new(event.arrival, command.op, Sector(command.sector), command.sectors)
        };
        let notes = match answer.id.checked_sub(self.first).and_then(|index| self.slots.get_mut(index as usize)) {
            Some(RecordingSlot::Open(notes)) => std::mem::take(notes),
            _ => Vec::new(),
        };
        self.fill_slot(answer.id, RecordingSlot::Complete(request, notes))
    }

    /// Stores the roles of the blocks of a new request.
    pub fn set_notes(&mut self, id: u64, notes: &[BlockNote]) {
        if let Some(index) = id.checked_sub(self.first).filter(|_| !notes.is_empty()) {
            self.reserve(index as usize);
            self.slots[index as usize] = RecordingSlot::Open(notes.to_vec());
        }
    }

    fn reserve(&mut self, index: usize) {
        while self.slots.len() <= index {
            self.slots.push_back(RecordingSlot::Open(Vec::new()));
        }
    }

    /// Marks a request that will never be completed: it is omitted and counted as lost.
    pub fn lost(&mut self, id: u64) -> Result<()> {
        self.fill_slot(id, RecordingSlot::Lost)
    }

    fn fill_slot(&mut self, id: u64, slot: RecordingSlot) -> Result<()> {
        let Some(index) = id.checked_sub(self.first) else { return Ok(()) };
        self.reserve(index as usize);
        self.slots[index as usize] = slot;
        while let Some(RecordingSlot::Lost | RecordingSlot::Complete(..)) = self.slots.front() {
            self.ledger.seen += 1;
            match self.slots.pop_front() {
                Some(RecordingSlot::Complete(request, notes)) => {
                    self.ledger.kept += 1;
                    self.batch.push_noted(&request, &notes);
                }
                _ => self.ledger.lost += 1,
            }
            self.first += 1;
            if self.batch.len() == BATCH_ROWS {
                self.write()?;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        let batch = self.batch.finish(&Arc::default(), &Arc::default());
        self.writer.write(&batch)
    }

    /// Completes the trace file and adds the changed settings to the note in its header. Requests in progress are omitted. A trace without
    /// requests does not replace an existing file; returns whether the file was written.
    pub fn finish(mut self, changes: &[SettingChange]) -> Result<bool> {
        if self.ledger.kept == 0 && self.path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0) {
            return Ok(false);
        }
        if let Some(note) = self.header.note.as_mut().filter(|_| !changes.is_empty()) {
            let each = changes.iter().map(|SettingChange { at_s, key, to, .. }| format!("{key} = {to} from {at_s:.3} s on"));
            note.push_str("; settings changed: ");
            note.push_str(&each.collect::<Vec<_>>().join(", "));
        }
        if !self.batch.is_empty() {
            self.write()?;
        }
        self.writer.finish(&self.ledger, &self.header).map(|()| true)
    }
}

/// Layers that do not change addresses, so that addresses on the device are those of the file system.
const IN_PLACE: [&str; 2] = ["journal", "pass-through"];

/// Tracks the writes of a file system to determine the roles of blocks.
pub(crate) struct LiveAnnotator {
    annotator: Annotator,
    /// Reason why an existing file system could not be read; `None` if it could be read.
    unread: Option<String>,
}

/// The contents of a device for the reader of the file system.
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
    /// Creates an annotator and reads the file system of the device. If a layer moves data, the file system cannot be read. Its structure
    /// is then derived from the writes, beginning with those of mkfs.
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

    /// The state of the file system as text.
    pub fn status(&self) -> String {
        self.unread.clone().unwrap_or_else(|| self.annotator.status().to_string())
    }
}
