//! Block events in the form of newer versions of `perf trace`, with the kernel's own names of fields: `dev: 8388608, sector:
//! 2048, nr_sector: 8, bytes: 4096, rwbs: "W", comm: "dd", cmd: ""` (`include/trace/events/block.h`).

use super::super::line_format::unsigned;
use crate::{BlockEventKind, Error, ErrorClass, Result, dev_t_label};

/// The fields of a block event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NamedBlockEvent<'a> {
    pub kind: BlockEventKind,
    pub device: String,
    pub rwbs: &'a [u8],
    pub sector: u64,
    pub sectors: u32,
}

impl<'a> NamedBlockEvent<'a> {
    /// Reads fields by name; `None` if the text is not of this form.
    #[inline]
    pub(super) fn read(kind: BlockEventKind, payload: &'a [u8]) -> Result<Option<Self>> {
        if payload.first() == Some(&b'd') && payload.starts_with(b"dev: ") {
            return Self::fields(kind, payload).map(Some);
        }
        Ok(None)
    }

    fn fields(kind: BlockEventKind, payload: &'a [u8]) -> Result<Self> {
        let (mut device, mut sector, mut sectors, mut new, mut rwbs) = (None, None, None, None, None);
        for field in payload.split(|byte| *byte == b',') {
            let Some(colon) = memchr::memchr(b':', field) else { continue };
            let (name, value) = (field[..colon].trim_ascii(), field[colon + 1..].trim_ascii());
            let number = |name: &str| unsigned(value, name, 0).map(Some);
            match name {
                b"dev" => device = number("dev")?,
                b"sector" => sector = number("sector")?,
                b"nr_sector" => sectors = number("nr_sector")?,
                b"new_sector" => new = number("new_sector")?,
                b"rwbs" => rwbs = Some(unquoted(value)),
                _ => {}
            }
        }
        let missing = |name: &str| Error::new(ErrorClass::Syntax, "the line lacks this field").in_field(name);
        let device = device.ok_or_else(|| missing("dev"))?;
        let device = u32::try_from(device).map_err(|_| {
            Error::new(ErrorClass::Value, "is no device number").of_field("dev", 0, device.to_string().as_bytes())
        })?;
        let (kind, sectors) = match kind {
            BlockEventKind::Split(_) => (BlockEventKind::Split(new.ok_or_else(|| missing("new_sector"))?), 0),
            _ => (kind, sectors.ok_or_else(|| missing("nr_sector"))?),
        };
        Ok(Self {
            kind,
            device: dev_t_label(device),
            rwbs: rwbs.ok_or_else(|| missing("rwbs"))?,
            sector: sector.ok_or_else(|| missing("sector"))?,
            sectors: u32::try_from(sectors).map_err(|_| {
                Error::new(ErrorClass::Value, "is a request of more than 2 TB").of_field(
                    "nr_sector",
                    0,
                    sectors.to_string().as_bytes(),
                )
            })?,
        })
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let text = b"dev: 8388608, sector: 2048, nr_sector: 8, bytes: 4096, rwbs: \"WS\", comm: \"a, b\", cmd: \"\"";
        let named = NamedBlockEvent::read(BlockEventKind::Issue, text).unwrap().unwrap();
        assert_eq!((named.device.as_str(), named.rwbs, named.sector, named.sectors), ("8,0", &b"WS"[..], 2048, 8));
        let text = b"dev: 8388608, sector: 8, new_sector: 12, rwbs: \"R\"";
        assert_eq!(
            NamedBlockEvent::read(BlockEventKind::Split(0), text).unwrap().unwrap().kind,
            BlockEventKind::Split(12)
        );
        assert_eq!(NamedBlockEvent::read(BlockEventKind::Issue, b"8,0 W 0 () 8 + 8 [x]").unwrap(), None);
        assert!(NamedBlockEvent::read(BlockEventKind::Issue, b"dev: 8388608, sector: 2048").is_err());
    }
}
