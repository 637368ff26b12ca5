//! Requests of the transmission phase: their header, and its checks.

use emmclab_base::SECTOR_BYTES;

use super::export::Export;
use super::wire::{Fields, MAX_PAYLOAD, REQUEST_MAGIC, ReplyError, command, command_flag};

/// Length of a request's header in bytes.
pub(super) const HEADER: usize = 28;

/// Properties of a session that were negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Session {
    /// Whether reads have structured replies.
    pub structured: bool,
    /// Whether `base:allocation` was selected for the export in use.
    pub status: bool,
}

/// The header of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    flags: u16,
    kind: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

/// A request that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Read {
        /// Whether the data must be sent in one chunk (`DF`).
        whole: bool,
    },
    Write {
        fua: bool,
    },
    Zeroes {
        keep_allocated: bool,
        fua: bool,
    },
    Trim {
        fua: bool,
    },
    Flush,
    Cache,
    Status {
        /// Whether only one extent is requested.
        one: bool,
    },
    Disconnect,
}

impl Header {
    /// Parses a header. `None` if the magic number is wrong; the stream cannot be resynchronised then.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let magic = fields.u32()?;
        let header = Self {
            flags: fields.u16()?,
            kind: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        };
        (magic == REQUEST_MAGIC).then_some(header)
    }

    /// Bytes of data after the header.
    pub fn payload(&self) -> u32 {
        if self.kind == command::WRITE { self.length } else { 0 }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Checks the request and returns its command. FUA is accepted with every command, whether advertised or not.
    ///
    /// # Errors
    /// The error that the protocol specifies for the violated rule.
    pub fn command(&self, export: &Export, session: Session) -> Result<Command, ReplyError> {
        use command_flag::{DF, FAST_ZERO, FUA, NO_HOLE, REQ_ONE};
        let fua = self.has(FUA);
        let (known, command) = match self.kind {
            command::READ if session.structured => (DF, Command::Read { whole: self.has(DF) }),
            command::READ => (0, Command::Read { whole: true }),
            command::WRITE => (0, Command::Write { fua }),
            command::WRITE_ZEROES => {
                (NO_HOLE | FAST_ZERO, Command::Zeroes { keep_allocated: self.has(NO_HOLE), fua })
            }
            command::TRIM => (0, Command::Trim { fua }),
            command::FLUSH => (0, Command::Flush),
            command::CACHE => (0, Command::Cache),
            command::BLOCK_STATUS if !session.status => {
                return Err(ReplyError::invalid("base:allocation was not selected for this export"));
            }
            command::BLOCK_STATUS => (REQ_ONE, Command::Status { one: self.has(REQ_ONE) }),
            command::DISC => return Ok(Command::Disconnect),
            _ => return Err(ReplyError::invalid("the command is unknown")),
        };
        if self.flags & !(known | FUA) != 0 {
            return Err(ReplyError::invalid("a flag is unknown or does not belong to the command"));
        }
        if command == Command::Flush {
            let plain = self.offset == 0 && self.length == 0;
            return plain.then_some(command).ok_or(ReplyError::invalid("a flush has an offset or a length"));
        }
        self.check_range(command, export, session)?;
        let discards = export.discard_bytes();
        let whole_units =
            self.offset.is_multiple_of(discards) && u64::from(self.length).is_multiple_of(discards);
        if self.has(FAST_ZERO) && (!whole_units || self.has(NO_HOLE) || fua) {
            return Err(ReplyError::not_supported(
                "only whole discard units can be zeroed faster than by a write",
            ));
        }
        Ok(command)
    }

    fn check_range(&self, command: Command, export: &Export, session: Session) -> Result<(), ReplyError> {
        let changes =
            matches!(command, Command::Write { .. } | Command::Zeroes { .. } | Command::Trim { .. });
        if changes && export.read_only() {
            return Err(ReplyError::not_permitted("the export is read-only"));
        }
        if self.length == 0 {
            return Err(ReplyError::invalid("the request has no length"));
        }
        let beyond = self.offset.checked_add(u64::from(self.length)).is_none_or(|end| end > export.size());
        let too_long = self.length > MAX_PAYLOAD;
        match command {
            Command::Write { .. } | Command::Zeroes { .. } if beyond => {
                return Err(ReplyError::no_space("the request reaches beyond the end of the device"));
            }
            _ if beyond => {
                return Err(ReplyError::invalid("the request reaches beyond the end of the device"));
            }
            Command::Read { .. } if too_long && session.structured => {
                return Err(ReplyError::overflow("a read is longer than the largest payload of 32 MiB"));
            }
            Command::Read { .. } | Command::Write { .. } if too_long => {
                return Err(ReplyError::invalid("the request is longer than the largest payload of 32 MiB"));
            }
            _ => {}
        }
        let whole_sectors = (self.offset | u64::from(self.length)).is_multiple_of(SECTOR_BYTES);
        whole_sectors
            .then_some(())
            .ok_or(ReplyError::invalid("the request does not consist of whole sectors"))
    }
}
