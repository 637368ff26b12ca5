//! Parses the `format` file of an event, which gives the offset and size of each field in the records of the recorded kernel.

use emmclab_trace::{Error, ErrorClass, Result, unfilled};

/// Maximum offset of the end of a field, in bytes. A record is never larger than a page of the ring buffer.
const LARGEST_RECORD: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FieldStorage {
    /// The value is in the record itself.
    Inline,
    /// The field contains the offset (lower half) and the length (upper half) of a text later in the record.
    DataLoc,
    /// Like `DataLoc`, but the offset is relative to the end of the field (since kernel 5.17).
    RelLoc,
}

/// One field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormatField {
    /// The name in the C declaration.
    pub name: String,
    /// Offset of the first byte in the record.
    pub offset: usize,
    /// Length in bytes.
    pub size: usize,
    /// Whether the number is signed.
    pub signed: bool,
    /// Whether the field is a text, not a number.
    pub is_text: bool,
    storage: FieldStorage,
}

impl EventFormatField {
    /// Parses `field:DECLARATION; offset:N; size:N; signed:N;`; `None` for any other line.
    pub(crate) fn parse(line: &str) -> Option<Result<EventFormatField>> {
        let rest = line.trim().strip_prefix("field:")?;
        Some(Self::parse_rest(rest).ok_or_else(|| {
            Error::new(ErrorClass::Syntax, "the line does not describe a field of a trace event")
                .of_field("field", 0, line.trim().as_bytes())
                .hint("a field of a trace event is described as `field:TYPE NAME; offset:N; size:N; signed:N;`")
        }))
    }

    fn parse_rest(rest: &str) -> Option<EventFormatField> {
        let mut parts = rest.split(';').map(str::trim);
        let declaration = parts.next()?;
        let (mut offset, mut size, mut signed) = (None, None, false);
        for part in parts {
            match part.split_once(':') {
                Some(("offset", value)) => offset = Some(value.trim().parse().ok()?),
                Some(("size", value)) => size = Some(value.trim().parse().ok()?),
                Some(("signed", value)) => signed = value.trim() == "1",
                _ => {}
            }
        }
        let storage = match declaration.split_whitespace().next()? {
            "__data_loc" => FieldStorage::DataLoc,
            "__rel_loc" => FieldStorage::RelLoc,
            _ => FieldStorage::Inline,
        };
        let is_text = storage != FieldStorage::Inline || declaration.starts_with("char ") && declaration.contains('[');
        // Examples of declarations: `char rwbs[8]`, `__data_loc char[] cmd`, `unsigned int *p`.
        let name = declaration.split_whitespace().next_back()?;
        let name = name.split('[').next()?.trim_start_matches('*');
        let (offset, size): (usize, usize) = (offset?, size?);
        let fits = offset <= LARGEST_RECORD && size <= LARGEST_RECORD && !name.is_empty();
        fits.then(|| EventFormatField { name: name.to_owned(), offset, size, signed, is_text, storage })
    }

    /// The value of a number field, sign-extended; `None` if the record is too short or the field is not a number.
    #[inline]
    pub fn number(&self, order: KernelByteOrder, record: &[u8]) -> Option<i64> {
        if self.signed {
            order.signed(record, self.offset, self.size)
        } else {
            order.unsigned(record, self.offset, self.size).map(|value| value as i64)
        }
    }

    /// The text of the field up to its first zero byte; `None` if the record is too short.
    #[inline]
    pub fn text<'a>(&self, order: KernelByteOrder, record: &'a [u8]) -> Option<&'a [u8]> {
        self.bytes(order, record).map(unfilled)
    }

    /// All bytes of the field; `None` if the record is too short.
    #[inline]
    pub fn bytes<'a>(&self, order: KernelByteOrder, record: &'a [u8]) -> Option<&'a [u8]> {
        let (at, size) = match self.storage {
            FieldStorage::Inline => (self.offset, self.size),
            FieldStorage::DataLoc | FieldStorage::RelLoc => {
                let location = order.u32(record, self.offset)?;
                let (at, size) = ((location & 0xffff) as usize, (location >> 16) as usize);
                let base = if self.storage == FieldStorage::RelLoc { self.offset + self.size } else { 0 };
                (base + at, size)
            }
        };
        record.get(at..at.checked_add(size)?)
    }
}

/// The format of an event: its id in the ring buffer and its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// The name of the event, which is also its folder in `events/SYSTEM/`.
    pub name: String,
    /// The id at the beginning of the records of this event (`common_type`).
    pub id: u16,
    /// All fields, in the order of the file.
    pub fields: Vec<EventFormatField>,
}

impl EventFormat {
    /// Parses a `format` file.
    /// Errors: [`ErrorClass::Syntax`] if name or number are missing or a field is malformed.
    pub fn parse(text: &str) -> Result<Self> {
        let mut name = None;
        let mut id = None;
        let mut fields = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(value) = line.strip_prefix("name:") {
                name = Some(value.trim().to_owned());
            } else if let Some(value) = line.strip_prefix("ID:") {
                let value = value.trim();
                id = Some(value.parse().map_err(|_| {
                    Error::new(ErrorClass::Syntax, "invalid event number").of_field("ID", 0, value.as_bytes()).at_line(number)
                })?);
            } else if line.starts_with("print fmt:") {
                break;
            } else if let Some(field) = EventFormatField::parse(line) {
                fields.push(field.map_err(|error| error.at_line(number))?);
            }
        }
        match (name, id) {
            (Some(name), Some(id)) => Ok(Self { name, id, fields }),
            _ => Err(Error::new(ErrorClass::Syntax, "the format file of an event lacks its name or ID")
                .hint("mount tracefs readable on the recorded machine: `mount -t tracefs nodev /sys/kernel/tracing`")),
        }
    }

    /// The field with this name; `None` if there is none.
    pub fn field(&self, name: &str) -> Option<&EventFormatField> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The field with this name; an error if there is none.
    /// Errors: [`ErrorClass::Unsupported`] if the event of the recorded kernel has no such field.
    pub fn required(&self, name: &str) -> Result<&EventFormatField> {
        self.field(name).ok_or_else(|| {
            Error::new(ErrorClass::Unsupported, format!("this kernel's event `{}` has no field `{name}`", self.name))
                .hint("report the kernel version and the event's format file")
        })
    }

    /// The minimum length of a record of this event, in bytes.
    pub fn record_bytes(&self) -> usize {
        self.fields.iter().map(|field| field.offset + field.size).max().unwrap_or(0)
    }
}

/// The byte order of the recorded kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelByteOrder {
    /// Least significant byte first: x86 and every Arm phone.
    Little,
    /// Most significant byte first.
    Big,
}

impl KernelByteOrder {
    /// The byte order of this machine.
    pub const NATIVE: KernelByteOrder =
        if cfg!(target_endian = "little") { KernelByteOrder::Little } else { KernelByteOrder::Big };

    /// The unsigned number of `size` bytes (1 to 8) at `at`; `None` if it is not completely inside `bytes` or `size` is out of range.
    #[inline]
    pub fn unsigned(self, bytes: &[u8], at: usize, size: usize) -> Option<u64> {
        if size == 0 || size > 8 {
            return None;
        }
        let bytes = bytes.get(at..at.checked_add(size)?)?;
        let mut wide = [0; 8];
        Some(match self {
            KernelByteOrder::Little => {
                wide[..size].copy_from_slice(bytes);
                u64::from_le_bytes(wide)
            }
            KernelByteOrder::Big => {
                wide[8 - size..].copy_from_slice(bytes);
                u64::from_be_bytes(wide)
            }
        })
    }

    /// Like [`KernelByteOrder::unsigned`], but sign-extended.
    #[inline]
    pub fn signed(self, bytes: &[u8], at: usize, size: usize) -> Option<i64> {
        self.unsigned(bytes, at, size).map(|value| {
            let unused = 64 - 8 * size as u32;
            (value << unused) as i64 >> unused
        })
    }

    /// The 32-bit number at `at`.
    #[inline]
    pub fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        self.unsigned(bytes, at, 4).map(|value| value as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Format file of `block_rq_requeue` of a 32-bit kernel 3.10, where `cmd` is a dynamic array and there is no I/O priority.
    const OLD: &str = "name: block_rq_requeue\nID: 512\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:char rwbs[8];\toffset:12;\tsize:8;\tsigned:0;\n\
        \tfield:__data_loc char[] cmd;\toffset:20;\tsize:4;\tsigned:0;\n\n\
        print fmt: \"field:not a field\", REC->dev\n";

    #[test]
    fn fields_are_found_by_name_wherever_they_stand() {
        let format = EventFormat::parse(OLD).unwrap();
        assert_eq!((format.name.as_str(), format.id, format.record_bytes()), ("block_rq_requeue", 512, 24));
        let mut record = vec![0; 24];
        record[4..8].copy_from_slice(&(-7i32).to_le_bytes());
        record[8..12].copy_from_slice(&0xb300_000au32.to_le_bytes());
        record[12..15].copy_from_slice(b"WSM");
        record[20..24].copy_from_slice(&((4 << 16) | 0x18u32).to_le_bytes());
        record.extend(b"abc\0");
        let order = KernelByteOrder::Little;
        let number = |name: &str| format.field(name).unwrap().number(order, &record);
        let text = |name: &str| format.field(name).unwrap().text(order, &record);
        assert_eq!((number("common_pid"), number("dev")), (Some(-7), Some(0xb300_000a)));
        assert_eq!((text("rwbs"), text("cmd")), (Some(&b"WSM"[..]), Some(&b"abc"[..])));
        assert_eq!(format.required("ioprio").unwrap_err().kind(), ErrorClass::Unsupported);
    }

    #[test]
    fn a_text_that_points_outside_its_record_is_not_read() {
        let format = EventFormat::parse(OLD).unwrap();
        let mut record = vec![0; 24];
        record[20..24].fill(0xff);
        assert_eq!(format.field("cmd").unwrap().text(KernelByteOrder::Little, &record), None);
        assert_eq!(format.field("dev").unwrap().number(KernelByteOrder::Little, &record[..10]), None);
    }

    #[test]
    fn a_relative_location_counts_from_behind_its_field() {
        let field = EventFormatField::parse("field:__rel_loc char[] s;\toffset:8;\tsize:4;\tsigned:0;").unwrap().unwrap();
        let mut record = vec![0; 8];
        record.extend(((3 << 16) | 1u32).to_le_bytes());
        record.extend(b"-xyz");
        assert_eq!(field.text(KernelByteOrder::Little, &record), Some(&b"xyz"[..]));
    }

    #[test]
    fn a_broken_field_is_reported_with_its_line() {
        let error = EventFormat::parse("name: x\nID: 1\nformat:\n\tfield:int a; offset:-1; size:4;\n").unwrap_err();
        assert_eq!((error.kind(), error.line()), (ErrorClass::Syntax, Some(4)));
        assert_eq!(EventFormat::parse("").unwrap_err().kind(), ErrorClass::Syntax);
    }

    #[test]
    fn numbers_of_every_size_are_read_in_both_orders() {
        let bytes = [0xff, 0xfe, 3, 4, 5, 6, 7, 8];
        assert_eq!(KernelByteOrder::Little.unsigned(&bytes, 0, 2), Some(0xfeff));
        assert_eq!(KernelByteOrder::Big.unsigned(&bytes, 0, 2), Some(0xfffe));
        assert_eq!(KernelByteOrder::Big.signed(&bytes, 0, 2), Some(-2));
        assert_eq!(KernelByteOrder::Little.signed(&bytes, 2, 4), Some(0x0605_0403));
        assert_eq!(KernelByteOrder::Big.unsigned(&bytes, 0, 8), Some(0xfffe_0304_0506_0708));
    }

    #[test]
    fn nothing_is_read_beyond_the_end() {
        assert_eq!(KernelByteOrder::Little.u32(&[1, 2, 3], 0), None);
        assert_eq!(KernelByteOrder::Little.u32(&[1, 2, 3, 4], usize::MAX), None);
        assert_eq!(KernelByteOrder::Little.unsigned(&[0; 16], 0, 9), None);
    }
}
