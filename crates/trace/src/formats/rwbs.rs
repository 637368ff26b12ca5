//! The kernel's letters for operations and flags, as in block events (`blk_fill_rwbs`) and `blkparse`.

use crate::{Error, ErrorClass, Op, RequestFlags, Result, ZoneCommand};

/// The meaning of the letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RwbsMeaning {
    /// A request, or a pass-through command.
    Request(RwbsOperation),
    /// A command for a zone of the device.
    Zone(ZoneCommand),
}

/// The operation of a request and its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RwbsOperation {
    op: Op,
    flags: RequestFlags,
    /// Whether the letter is `N`, an operation for which the kernel has no letter.
    is_unnamed: bool,
    /// Whether the letters are `WZ`, a write of zeroes.
    is_zeroes: bool,
}

impl From<Op> for RwbsOperation {
    fn from(op: Op) -> Self {
        Self { op, flags: RequestFlags::default(), is_unnamed: false, is_zeroes: false }
    }
}

impl RwbsOperation {
    /// Operation and flags of a request of `sectors` sectors. An operation without a letter (`N`) is a write of zeroes if it has
    /// sectors, otherwise a command without data, which becomes a discard of 0 sectors.
    #[inline]
    pub fn of(self, sectors: u32) -> (Op, RequestFlags) {
        let op = if self.is_unnamed && sectors == 0 { Op::Discard } else { self.op };
        (op, self.flags)
    }

    /// Whether a request of `sectors` sectors is a write of zeroes.
    #[inline]
    pub fn is_zeroes(self, sectors: u32) -> bool {
        sectors > 0 && (self.is_unnamed || self.is_zeroes)
    }

    /// Operation and flags of a request without sectors in a table in which each line is a whole request. A write with only a
    /// preflush or FUA (`FWS`, `WFS`) is a flush. `None` for a command without data (`N`).
    pub fn without_sectors(self) -> Option<(Op, RequestFlags)> {
        let of_flush = RequestFlags::PREFLUSH.union(RequestFlags::FUA);
        let is_flush = self.op == Op::Flush || self.op == Op::Write && self.flags.intersects(of_flush);
        match () {
            () if is_flush => Some((Op::Flush, self.flags.difference(of_flush))),
            () if self.is_unnamed => None,
            () => Some((self.op, self.flags)),
        }
    }
}

/// Parses letters such as `R`, `WSM`, `FWFSM`, `DE` or `FF`.
///
/// An `F` before the operation is a preflush, an `F` after it is FUA; `FF` and blkparse's `FN` are flushes. A write of zeroes
/// (`WZ`, `N` up to Linux 6.17) is read as a write: blktrace before version 8 does not mark it, so only this rule gives the same
/// requests in every format. `ZA` appends data to a zone. Newer kernels (6.18) distinguish zone commands (`ZR`, `ZRA`, `ZF`,
/// `ZO`, `ZC`). Fails with [`ErrorClass::Value`] on an unknown letter.
#[inline]
pub fn read(field: &[u8], column: u64) -> Result<RwbsMeaning> {
    match zone_command(field) {
        Some(command) => Ok(RwbsMeaning::Zone(command)),
        None => of_request(field, column).map(RwbsMeaning::Request),
    }
}

/// Parses a field as [`read`] does, but returns an error for a zone command. It is used for tables in which each line is a request. Fails
/// as [`read`].
pub fn parse(field: &[u8], column: u64) -> Result<RwbsOperation> {
    match zone_command(field) {
        None => of_request(field, column),
        Some(command) => Err(Error::new(ErrorClass::Value, format!("a {} is not a request for data", command.name()))
            .of_field("rwbs", column, field)),
    }
}

/// The zone command; `None` for other operations. A preflush before it and a priority after it are ignored.
#[inline]
fn zone_command(field: &[u8]) -> Option<ZoneCommand> {
    let letters = field.strip_prefix(b"F").unwrap_or(field);
    let [b'Z', kind, rest @ ..] = letters else { return None };
    Some(match (kind, rest) {
        (b'R', [b'A', ..]) => ZoneCommand::ResetAll,
        (b'R', _) => ZoneCommand::Reset,
        (b'F', _) => ZoneCommand::Finish,
        (b'O', _) => ZoneCommand::Open,
        (b'C', _) => ZoneCommand::Close,
        _ => return None,
    })
}

/// Parses the letters of a request; the most frequent ones have a fast path.
#[inline]
fn of_request(field: &[u8], column: u64) -> Result<RwbsOperation> {
    let (op, flags) = match field {
        b"R" => (Op::Read, RequestFlags::default()),
        b"RA" => (Op::Read, RequestFlags::READAHEAD),
        b"W" => (Op::Write, RequestFlags::default()),
        b"WS" => (Op::Write, RequestFlags::SYNC),
        _ => return of_letters(field, column),
    };
    Ok(RwbsOperation { op, flags, is_unnamed: false, is_zeroes: false })
}

fn of_letters(field: &[u8], column: u64) -> Result<RwbsOperation> {
    let bad = || Error::new(ErrorClass::Value, "unknown operation").of_field("rwbs", column, field);
    let (mut flags, rest) = match field {
        [b'F', rest @ ..] if !rest.is_empty() => (RequestFlags::PREFLUSH, rest),
        rest => (RequestFlags::default(), rest),
    };
    let is_unnamed = flags != RequestFlags::PREFLUSH && rest.starts_with(b"N");
    let is_zeroes = rest.starts_with(b"WZ");
    let (op, rest) = match rest {
        [b'D', b'E', rest @ ..] => (Op::SecureErase, rest),
        [b'D', rest @ ..] => (Op::Discard, rest),
        [b'N', rest @ ..] if !is_unnamed => (Op::Flush, rest),
        [b'W', b'Z', rest @ ..] | [b'W' | b'N', rest @ ..] => (Op::Write, rest),
        [b'Z', b'A', rest @ ..] => {
            flags = flags.union(RequestFlags::APPEND);
            (Op::Write, rest)
        }
        [b'R', rest @ ..] => (Op::Read, rest),
        [b'F', rest @ ..] => (Op::Flush, rest),
        _ => return Err(bad()),
    };
    for letter in rest {
        flags = flags.union(match letter {
            b'F' => RequestFlags::FUA,
            b'S' => RequestFlags::SYNC,
            b'M' => RequestFlags::META,
            b'A' => RequestFlags::READAHEAD,
            // `B` (barrier, before kernel 2.6.37) and `U` (atomic write, in new kernels) are ignored.
            b'B' | b'U' => RequestFlags::default(),
            _ => return Err(bad()),
        });
    }
    Ok(RwbsOperation { op, flags, is_unnamed, is_zeroes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_read_as_the_kernel_writes_them() {
        let read = |text: &str| parse(text.as_bytes(), 1).unwrap().of(8);
        assert_eq!(read("R"), (Op::Read, RequestFlags(0)));
        assert_eq!(read("RAM"), (Op::Read, RequestFlags::READAHEAD.union(RequestFlags::META)));
        assert_eq!(read("WFSM"), (Op::Write, RequestFlags::FUA.union(RequestFlags::SYNC).union(RequestFlags::META)));
        assert_eq!(read("FWFS"), (Op::Write, RequestFlags::PREFLUSH.union(RequestFlags::FUA).union(RequestFlags::SYNC)));
        assert_eq!(read("FWS"), (Op::Write, RequestFlags::PREFLUSH.union(RequestFlags::SYNC)));
        assert_eq!(read("FF").0, Op::Flush);
        assert_eq!(read("FN").0, Op::Flush);
        assert_eq!(read("F").0, Op::Flush);
        assert_eq!(read("DE").0, Op::SecureErase);
        assert_eq!(read("ZAS"), (Op::Write, RequestFlags::SYNC.union(RequestFlags::APPEND)));
        assert!(parse(b"Z", 1).is_err());
        assert!(parse(b"", 1).is_err());
        assert!(parse(b"X", 1).is_err());
        assert!(parse(b"R?", 1).is_err());
    }

    #[test]
    fn a_write_of_zeroes_is_a_write_and_a_command_without_data_is_none() {
        for letters in ["WZS", "NS", "WS"] {
            let Ok(RwbsMeaning::Request(operation)) = read(letters.as_bytes(), 1) else { panic!("{letters}") };
            assert_eq!(operation.of(8), (Op::Write, RequestFlags::SYNC), "{letters}");
            let none = if letters == "NS" { Op::Discard } else { Op::Write };
            assert_eq!(operation.of(0), (none, RequestFlags::SYNC), "{letters}");
        }
    }

    #[test]
    fn in_a_table_a_write_of_nothing_with_a_flush_is_a_flush() {
        let empty = |letters: &str| parse(letters.as_bytes(), 1).unwrap().without_sectors();
        for letters in ["F", "FF", "FN", "FW", "WF", "FWF"] {
            assert_eq!(empty(letters), Some((Op::Flush, RequestFlags::empty())), "{letters}");
        }
        assert_eq!(empty("WFS"), Some((Op::Flush, RequestFlags::SYNC)));
        assert_eq!([empty("N"), empty("NS")], [None, None]);
        assert_eq!([empty("W"), empty("D")], [Op::Write, Op::Discard].map(|op| Some((op, RequestFlags::empty()))));
    }

    #[test]
    fn commands_to_zones_keep_their_names_and_are_no_discards() {
        for (letters, command) in [
            ("ZR", ZoneCommand::Reset),
            ("ZRS", ZoneCommand::Reset),
            ("ZRA", ZoneCommand::ResetAll),
            ("ZO", ZoneCommand::Open),
            ("ZC", ZoneCommand::Close),
            ("ZFS", ZoneCommand::Finish),
        ] {
            assert_eq!(read(letters.as_bytes(), 1).unwrap(), RwbsMeaning::Zone(command), "{letters}");
            let error = parse(letters.as_bytes(), 1).unwrap_err().to_string();
            assert!(error.contains(command.name()), "{error}");
        }
    }
}
