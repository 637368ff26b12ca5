//! Parses pages of the kernel's ring buffer, as read from `per_cpu/cpuN/trace_pipe_raw`.
//!
//! A page has a header (start time, number of bytes in use, flags of lost events) and a sequence of records. A record begins with
//! 32 bits: 5 bits for type or length, 27 bits for the time since the previous record. The layout of the header is read from
//! `events/header_page`; the layout of the 32 bits is compared with `events/header_event`. Source: the kernel's
//! `include/linux/ring_buffer.h` and `kernel/trace/ring_buffer.c`.

use emmclab_trace::{Error, ErrorClass, Result};

use crate::event_format::{EventFormatField, KernelByteOrder};

/// Maximum page size in bytes. Pages have 4 to 64 KB, or more with `buffer_subbuf_size_kb`.
const LARGEST_PAGE: usize = 1 << 22;

/// Flag in the `commit` field of a page header: events were lost before this page.
const MISSED_EVENTS: u64 = 1 << 31;
/// Flag in the `commit` field of a page header: the number of lost events is stored after the data.
const MISSED_STORED: u64 = 1 << 30;
/// Mask of the bits of the `commit` field that contain the number of bytes in use.
const USED: u64 = (1 << 27) - 1;

const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;
/// An absolute time stamp has 59 bits.
const STAMP_BITS: u32 = 59;

/// The layout of a ring-buffer page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingPageLayout {
    /// The byte order of the pages.
    pub order: KernelByteOrder,
    commit_at: usize,
    commit_size: usize,
    data_at: usize,
    data_size: usize,
}

impl RingPageLayout {
    /// Parses `events/header_page`, and checks that `events/header_event` describes the layout of records that this module reads.
    /// Errors: [`ErrorClass::Syntax`] for malformed text, [`ErrorClass::Unsupported`] for another layout of records.
    pub fn parse(header_page: &str, header_event: &str, order: KernelByteOrder) -> Result<Self> {
        let mut fields = Vec::new();
        for (number, line) in (1..).zip(header_page.lines()) {
            if let Some(field) = EventFormatField::parse(line) {
                fields.push(field.map_err(|error| error.at_line(number))?);
            }
        }
        let field = |name: &str| {
            fields.iter().find(|field| field.name == name).ok_or_else(|| {
                Error::new(ErrorClass::Syntax, format!("`header_page` has no field `{name}`"))
                    .hint("mount tracefs readable on the recorded machine: `mount -t tracefs nodev /sys/kernel/tracing`")
            })
        };
        let (time, commit, data) = (field("timestamp")?, field("commit")?, field("data")?);
        let layout =
            Self { order, commit_at: commit.offset, commit_size: commit.size, data_at: data.offset, data_size: data.size };
        let sane = (time.offset, time.size) == (0, 8)
            && matches!(commit.size, 4 | 8)
            && commit.offset + commit.size <= data.offset
            && (64..=LARGEST_PAGE).contains(&layout.page_bytes());
        if !sane {
            return Err(Error::new(ErrorClass::Unsupported, format!("unsupported layout of ring-buffer pages: {layout:?}"))
                .hint("report the kernel version and the contents of its file events/header_page"));
        }
        check_header_event(header_event)?;
        Ok(layout)
    }

    /// Size of a page in bytes, which is what one read of `trace_pipe_raw` returns.
    pub fn page_bytes(&self) -> usize {
        self.data_at + self.data_size
    }

    /// Maximum number of records of at least `record_bytes` bytes in a page.
    pub fn records_per_page(&self, record_bytes: usize) -> usize {
        self.data_size / (record_bytes + 4) + 1
    }

    /// Starts reading a page.
    /// Errors: [`ErrorClass::Truncated`] if the page is shorter than its header states.
    pub fn open<'a>(&self, page: &'a [u8]) -> Result<RingPage<'a>> {
        let short = || {
            Error::new(ErrorClass::Truncated, format!("a ring-buffer page of {} bytes is cut short", page.len()))
                .hint("check the connection to the recorded machine: it was closed before the whole page was sent")
        };
        let time = self.order.unsigned(page, 0, 8).ok_or_else(short)?;
        let commit = self.order.unsigned(page, self.commit_at, self.commit_size).ok_or_else(short)?;
        let used = (commit & USED) as usize;
        let data = page.get(self.data_at..).ok_or_else(short)?;
        let records = data.get(..used).ok_or_else(short)?;
        let lost = if commit & MISSED_EVENTS == 0 {
            LostEvents::None
        } else if commit & MISSED_STORED == 0 {
            LostEvents::Unknown
        } else {
            self.order.unsigned(data, used, self.commit_size).map_or(LostEvents::Unknown, LostEvents::Count)
        };
        Ok(RingPage { order: self.order, lost, time, records, at: 0 })
    }
}

fn check_header_event(text: &str) -> Result<()> {
    let expected = [
        ("type_len", "5 bits"),
        ("time_delta", "27 bits"),
        ("padding", "type == 29"),
        ("time_extend", "type == 30"),
        ("data max type_len", "== 28"),
    ];
    for (name, value) in expected {
        let actual = text.lines().find_map(|line| {
            let rest = line.trim().strip_prefix(name)?.trim_start();
            Some(rest.strip_prefix(':').unwrap_or(rest).trim())
        });
        if actual != Some(value) {
            let actual = actual.unwrap_or("");
            return Err(Error::new(ErrorClass::Unsupported, format!("this entry of events/header_event must be `{value}`"))
                .of_field(name, 0, actual.as_bytes())
                .hint("report the kernel version and the contents of its file events/header_event"));
        }
    }
    Ok(())
}

/// Events that the kernel lost before a page because the buffer was full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostEvents {
    /// No events were lost.
    None,
    /// This many events were lost.
    Count(u64),
    /// Some events were lost; their number is not stored.
    Unknown,
}

/// A record: its time and its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingRecord<'a> {
    /// Time on the clock of the trace: ns for all clocks except `counter` and the raw cycle counters.
    pub time: u64,
    /// The event, beginning with `common_type`; it may end with up to 7 bytes of padding.
    pub data: &'a [u8],
}

/// A record of a page, or the end of the page.
enum PageEvent<'a> {
    Record(RingRecord<'a>),
    End,
}

/// Iterator over the records of a page, in the order of writing. It ends with an error at the first damaged record.
#[derive(Clone, Debug)]
pub struct RingPage<'a> {
    order: KernelByteOrder,
    /// Events lost before this page.
    pub lost: LostEvents,
    time: u64,
    records: &'a [u8],
    at: usize,
}

impl<'a> RingPage<'a> {
    fn damaged(&mut self) -> Error {
        let at = self.at;
        self.at = self.records.len();
        Error::new(ErrorClass::Syntax, "a ring-buffer record does not fit into its page").at_offset(at as u64)
    }

    /// Returns the next record of the page or its end; `None` if a record extends beyond the page.
    fn advance(&mut self) -> Option<PageEvent<'a>> {
        loop {
            if self.at >= self.records.len() {
                return Some(PageEvent::End);
            }
            let word = self.order.u32(self.records, self.at)?;
            // Type and time delta are bit fields, which compilers allocate from the lowest or the highest bit, depending on the byte order.
            let (kind, delta) = match self.order {
                KernelByteOrder::Little => (word & 31, word >> 5),
                KernelByteOrder::Big => (word >> 27, word & ((1 << 27) - 1)),
            };
            let delta = u64::from(delta);
            let (begin, length) = match kind {
                TYPE_PADDING if delta == 0 => return Some(PageEvent::End),
                TYPE_TIME_EXTEND => {
                    let high = self.order.u32(self.records, self.at + 4)?;
                    self.time = self.time.wrapping_add((u64::from(high) << 27) + delta);
                    self.at += 8;
                    continue;
                }
                TYPE_TIME_STAMP => {
                    let high = self.order.u32(self.records, self.at + 4)?;
                    self.time = absolute(self.time, (u64::from(high) << 27) + delta);
                    self.at += 8;
                    continue;
                }
                TYPE_PADDING => {
                    // A discarded event with a valid time delta. The kernel stores the delta 0 as 1, because 0 marks the end of a page.
                    let length = self.order.u32(self.records, self.at + 4)? as usize;
                    self.time = self.time.wrapping_add(if delta == 1 { 0 } else { delta });
                    self.at = self.at.checked_add(length)?.checked_add(4)?;
                    if self.at > self.records.len() {
                        return None;
                    }
                    continue;
                }
                0 => {
                    let length = self.order.u32(self.records, self.at + 4)? as usize;
                    (self.at + 8, length.checked_sub(4)?)
                }
                words => (self.at + 4, words as usize * 4),
            };
            let end = begin.checked_add(length)?;
            let data = self.records.get(begin..end)?;
            self.time = self.time.wrapping_add(delta);
            self.at = end;
            return Some(PageEvent::Record(RingRecord { time: self.time, data }));
        }
    }
}

impl<'a> Iterator for RingPage<'a> {
    type Item = Result<RingRecord<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Some(PageEvent::Record(record)) => Some(Ok(record)),
            Some(PageEvent::End) => None,
            None => Some(Err(self.damaged())),
        }
    }
}

/// Completes an absolute time stamp, of which only the lower 59 bits are stored. The upper bits are taken from the previous time.
fn absolute(previous: u64, stamp: u64) -> u64 {
    let upper = previous >> STAMP_BITS << STAMP_BITS;
    let full = upper | stamp;
    if upper != 0 && full < previous { full.wrapping_add(1 << STAMP_BITS) } else { full }
}
