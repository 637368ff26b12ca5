//! The origin of a trace, and the format of its file.

use serde::{Deserialize, Serialize};

use crate::{ClockJumps, RecordedFeatures};

/// The origin of a trace; stored in its file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceHeader {
    /// Name of the file (without folders) or recording from which the trace was first read.
    pub source: String,
    /// Name of the format from which the trace was first read.
    pub format: String,
    /// How that format was recognised: by `content`, or because of `--format` or `--columns`.
    pub recognised: Option<String>,
    /// What the trace records besides reads and writes; `None` in files of versions that did not store it, for which
    /// [`crate::TraceReader`] derives it from the format.
    pub recorded: Option<RecordedFeatures>,
    /// The device, if the whole trace is of one device.
    pub device: Option<String>,
    /// The meaning of time 0: `unix`, `monotonic` or `relative`.
    pub clock: String,
    /// Any other information from the recorder.
    pub note: Option<String>,
    /// Clock jumps or pauses of the recording, as JSON of [`crate::ClockJumps`]; `None` if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_jumps: Option<String>,
    /// The step of the clock, such as `1ms`, if it is too coarse to tell which requests waited for each other: arrivals, and what follows
    /// from them (no-wait, queue depth, idle time, think times), are unknown then. `None` for a usual clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coarse_clock: Option<String>,
    /// The time range in which a request may be issued again, as `0ms-100ms`, if `--reissue-window` was given; `None` for the
    /// default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reissue_window: Option<String>,
    /// The file system whose roles the block notes use (`ext4`); `None` in a trace without notes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_notes: Option<String>,
    /// The activity that was recorded with the requests (commands of the driver, waits for durability), as JSON.
    pub activity: Option<String>,
    /// The registers of the recorded devices, as JSON: files of registers by device, and what could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registers: Option<String>,
}

impl TraceHeader {
    /// The value of [`TraceHeader::block_notes`] in a trace with notes: roles are those of ext4.
    pub const EXT4: &str = "ext4";

    /// What the trace records besides reads and writes, as far as that is known.
    pub fn recorded(&self) -> RecordedFeatures {
        self.recorded.unwrap_or(RecordedFeatures::NONE)
    }

    /// Clock jumps or pauses of the recording.
    pub fn clock_jumps(&self) -> Option<ClockJumps> {
        self.clock_jumps.as_deref().and_then(|json| serde_json::from_str(json).ok())
    }
}

/// The format as which a file is read, and how it was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecognisedFormat {
    /// Name of the format.
    pub format: &'static str,
    /// `content`, `--format` or `--columns`.
    pub by: &'static str,
}
