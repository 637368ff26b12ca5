//! The properties of a kernel that are needed to decode its records.

use std::collections::BTreeMap;

use emmclab_trace::{BlockEventKind, DecodedEvent, Error, ErrorClass, KernelEvent, Result};

use crate::block_event::{ACCOUNTED, BlockDecoder, BlockEvent, EVENTS};
use crate::byte_order::KernelByteOrder;
use crate::event_format::EventFormat;
use crate::extra_event::ExtraDecoder;
use crate::ring_page::{LostEvents, RingPageLayout};

/// Texts of the recorded machine, by name: tracefs files by their path in the instance (`events/header_page`,
/// `events/block/block_rq_issue/format`, `trace_clock`, ...), others as listed at [`KernelFormat::from_files`].
pub type Files = BTreeMap<String, String>;

/// A decoded record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedEvent {
    /// An event of the block layer.
    Block(BlockEvent),
    /// An event of the driver below it, or of a file system above it.
    Extra(DecodedEvent),
}

#[derive(Clone, Debug)]
enum EventDecoder {
    Block(Box<BlockDecoder>),
    Extra(ExtraDecoder),
}

/// Layout of pages and records of one kernel.
#[derive(Clone, Debug)]
pub struct KernelFormat {
    layout: RingPageLayout,
    decoders: Vec<(u16, EventDecoder)>,
    events: Vec<String>,
    smallest_record: usize,
}

/// Counts of the records of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingPageSummary {
    /// Events that were decoded.
    pub events: u64,
    /// Records of events that were not enabled.
    pub other: u64,
    /// Events that were lost before this page, as reported by the kernel.
    pub lost: u64,
    /// Whether an unknown number was lost (at least one is counted in `lost`).
    pub lost_unknown: bool,
    /// Whether the page ends with a record that does not fit into it.
    pub damaged: bool,
}

impl KernelFormat {
    /// Reads the layout from `events/header_page`, `events/header_event`, the `format` files of the block events, those of MMC, UFS and
    /// file system events if there are any, and `byte_order` (the byte 1 = lowest first, 2 = highest first, from the ELF header of the
    /// machine's programs).
    ///
    /// # Errors
    /// [`ErrorClass::Unsupported`] if a required file is missing or describes another layout.
    pub fn from_files(files: &Files) -> Result<Self> {
        Self::read(files, true)
    }

    /// As [`KernelFormat::from_files`], for recordings by other tools: block events may be missing.
    ///
    /// # Errors
    /// As [`KernelFormat::from_files`].
    pub fn of_any_events(files: &Files) -> Result<Self> {
        Self::read(files, false)
    }

    fn read(files: &Files, needs_block: bool) -> Result<Self> {
        let file = |name: &str| {
            files.get(name).map(String::as_str).filter(|text| !text.trim().is_empty()).ok_or_else(|| {
                Error::new(ErrorClass::Unsupported, format!("the recorded machine gave no `{name}`")).hint(
                    "use a kernel with CONFIG_BLK_DEV_IO_TRACE or CONFIG_EVENT_TRACING, and make tracefs readable",
                )
            })
        };
        let order = match file("byte_order")?.trim() {
            "\u{1}" => KernelByteOrder::Little,
            "\u{2}" => KernelByteOrder::Big,
            other => {
                return Err(Error::new(ErrorClass::Value, "is neither 1 nor 2").of_field(
                    "byte_order",
                    0,
                    other.as_bytes(),
                ));
            }
        };
        let layout = RingPageLayout::parse(file("events/header_page")?, file("events/header_event")?, order)?;
        let mut decoders = Vec::new();
        let mut smallest_record = usize::MAX;
        let mut events = Vec::new();
        for (name, may_lack) in EVENTS {
            let path = format!("events/block/{name}/format");
            let text = match files.get(&path) {
                None if may_lack || !needs_block => continue,
                _ => file(&path)?,
            };
            let format = EventFormat::parse(text).map_err(|error| error.of_field(name, 0, b""))?;
            let Some(kind) = BlockEventKind::of_event(name.as_bytes()) else { continue };
            smallest_record = smallest_record.min(format.record_bytes());
            decoders.push((format.id, EventDecoder::Block(Box::new(BlockDecoder::new(kind, &format)?))));
            events.push(format!("block/{name}"));
        }
        for (name, kind) in ACCOUNTED.into_iter().filter(|_| !needs_block) {
            let Some(text) = files.get(&format!("events/block/{name}/format")) else { continue };
            let format = EventFormat::parse(text).map_err(|error| error.of_field(name, 0, b""))?;
            smallest_record = smallest_record.min(format.record_bytes());
            decoders.push((format.id, EventDecoder::Block(Box::new(BlockDecoder::accounted(kind, &format)?))));
        }
        // With block events, those of SCSI add no information.
        for (path, event) in KernelEvent::ALL.into_iter().filter(|(_, event)| !(needs_block && event.is_scsi())) {
            // Vendors' kernels have events with these names and other fields: requests can be recorded without these events.
            let format = files.get(&format!("events/{path}/format")).and_then(|text| EventFormat::parse(text).ok());
            if let Some(format) = format
                && let Some(decoder) = ExtraDecoder::new(event, &format)
            {
                smallest_record = smallest_record.min(format.record_bytes());
                decoders.push((format.id, EventDecoder::Extra(decoder)));
                events.push(path.to_owned());
            }
        }
        Ok(Self { layout, decoders, events, smallest_record })
    }

    /// Calls `record` with the event number of each record of a page.
    pub(crate) fn numbers(&self, page: &[u8], mut record: impl FnMut(u16)) {
        let Ok(records) = self.layout.open(page) else { return };
        for found in records.map_while(Result::ok) {
            record(self.layout.order().unsigned(found.data, 0, 2).unwrap_or(0) as u16);
        }
    }

    /// The layout of the ring buffer pages.
    pub fn layout(&self) -> &RingPageLayout {
        &self.layout
    }

    /// The events to record, by their folder below `events/`: those that this kernel has and that can be decoded.
    pub fn events(&self) -> &[String] {
        &self.events
    }

    /// Maximum number of events in a page.
    pub fn events_per_page(&self) -> usize {
        self.layout.records_per_page(self.smallest_record)
    }

    /// Decodes a page and calls `event` with each event and its time, in order. Never panics, whatever the bytes are.
    ///
    /// # Errors
    /// [`ErrorClass::Truncated`] if the page is too short; other damage is reported by [`RingPageSummary::damaged`].
    pub fn decode(&self, page: &[u8], mut event: impl FnMut(u64, TracedEvent)) -> Result<RingPageSummary> {
        let records = self.layout.open(page)?;
        let mut summary = RingPageSummary::default();
        match records.lost() {
            LostEvents::None => {}
            LostEvents::Count(count) => summary.lost = count,
            LostEvents::Unknown => (summary.lost, summary.lost_unknown) = (1, true),
        }
        let order = self.layout.order();
        for record in records {
            let Ok(record) = record else {
                summary.damaged = true;
                break;
            };
            let id = order.unsigned(record.data, 0, 2).unwrap_or(0) as u16;
            let Some((_, decoder)) = self.decoders.iter().find(|(known, _)| *known == id) else {
                summary.other += 1;
                continue;
            };
            let decoded = match decoder {
                EventDecoder::Block(decoder) => decoder.decode(order, record.data).map(TracedEvent::Block),
                EventDecoder::Extra(decoder) => decoder.decode(order, record.data).map(TracedEvent::Extra),
            };
            match decoded {
                Some(decoded) => {
                    summary.events += 1;
                    event(record.time, decoded);
                }
                None => summary.damaged = true,
            }
        }
        Ok(summary)
    }
}
