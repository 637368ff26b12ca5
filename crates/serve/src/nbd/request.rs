//! Requests of the transmission phase: their header, and its checks.

use emmclab_base::SECTOR_BYTES;

use super::export::NbdExport;
use super::wire::{MAX_PAYLOAD, NbdError, NbdFieldReader, REQUEST_MAGIC, command, command_flag};

/// Length of a request's header in bytes.
pub(super) const HEADER: usize = 28;

/// Properties of a session that were negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NbdSession {
    /// Whether reads have structured replies.
    pub structured: bool,
    /// Whether `base:allocation` was selected for the export in use.
    pub status: bool,
}

/// The header of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct NbdRequestHeader {
    flags: u16,
    kind: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

/// A request that was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NbdCommand {
    Read {
        /// Whether the data must be sent in one chunk (`DF`).
        unfragmented: bool,
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
        single_extent: bool,
    },
    Disconnect,
}

impl NbdRequestHeader {
    /// Parses a header. `None` if the magic number is wrong; the stream cannot be resynchronised then.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = NbdFieldReader(bytes);
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
    pub fn command(&self, export: &NbdExport, session: NbdSession) -> Result<NbdCommand, NbdError> {
        use command_flag::{DF, FAST_ZERO, FUA, NO_HOLE, REQ_ONE};
        let fua = self.has(FUA);
        let (known, command) = match self.kind {
            command::READ if session.structured => (DF, NbdCommand::Read { unfragmented: self.has(DF) }),
            command::READ => (0, NbdCommand::Read { unfragmented: true }),
            command::WRITE => (0, NbdCommand::Write { fua }),
            command::WRITE_ZEROES => {
                (NO_HOLE | FAST_ZERO, NbdCommand::Zeroes { keep_allocated: self.has(NO_HOLE), fua })
            }
            command::TRIM => (0, NbdCommand::Trim { fua }),
            command::FLUSH => (0, NbdCommand::Flush),
            command::CACHE => (0, NbdCommand::Cache),
            command::BLOCK_STATUS if !session.status => {
                return Err(NbdError::invalid("base:allocation was not selected for this export"));
            }
            command::BLOCK_STATUS => (REQ_ONE, NbdCommand::Status { single_extent: self.has(REQ_ONE) }),
            command::DISC => return Ok(NbdCommand::Disconnect),
            _ => return Err(NbdError::invalid("the command is unknown")),
        };
        if self.flags & !(known | FUA) != 0 {
            return Err(NbdError::invalid("a flag is unknown or does not belong to the command"));
        }
        if command == NbdCommand::Flush {
            let plain = self.offset == 0 && self.length == 0;
            return plain.then_some(command).ok_or(NbdError::invalid("a flush has an offset or a length"));
        }
        self.check_range(command, export, session)?;
        let discards = export.discard_bytes();
        let whole_units = self.offset.is_multiple_of(discards) && u64::from(self.length).is_multiple_of(discards);
        if self.has(FAST_ZERO) && (!whole_units || self.has(NO_HOLE) || fua) {
            return Err(NbdError::not_supported("only whole discard units can be zeroed faster than by a write"));
        }
        Ok(command)
    }

    fn check_range(&self, command: NbdCommand, export: &NbdExport, session: NbdSession) -> Result<(), NbdError> {
        let changes = matches!(command, NbdCommand::Write { .. } | NbdCommand::Zeroes { .. } | NbdCommand::Trim { .. });
        if changes && export.read_only() {
            return Err(NbdError::not_permitted("the export is read-only"));
        }
        if self.length == 0 {
            return Err(NbdError::invalid("the request has no length"));
        }
        let beyond = self.offset.checked_add(u64::from(self.length)).is_none_or(|end| end > export.size());
        let too_long = self.length > MAX_PAYLOAD;
        match command {
            NbdCommand::Write { .. } | NbdCommand::Zeroes { .. } if beyond => {
                return Err(NbdError::no_space("the request reaches beyond the end of the device"));
            }
            _ if beyond => {
                return Err(NbdError::invalid("the request reaches beyond the end of the device"));
            }
            NbdCommand::Read { .. } if too_long && session.structured => {
                return Err(NbdError::overflow("a read is longer than the largest payload of 32 MiB"));
            }
            NbdCommand::Read { .. } | NbdCommand::Write { .. } if too_long => {
                return Err(NbdError::invalid("the request is longer than the largest payload of 32 MiB"));
            }
            _ => {}
        }
        let whole_sectors = (self.offset | u64::from(self.length)).is_multiple_of(SECTOR_BYTES);
        whole_sectors.then_some(()).ok_or(NbdError::invalid("the request does not consist of whole sectors"))
    }
}
