//! The transmission phase: parses received bytes into requests to the device.

use std::os::fd::OwnedFd;

use emmclab_base::{CommandFlags, SECTOR_BYTES};
use rustix::io;

use super::NbdExport;
use super::connection::ReceiveBuffer;
use super::pending::{PendingNbdRequests, parts_of};
use super::wire::{MAX_PAYLOAD, NbdError, NbdFieldReader, REQUEST_MAGIC, command, command_flag, errno};
use crate::device::{BlockAction, ServedRequest};

/// Maximum length of the data of a rejected write that is read and dropped, in bytes; longer data ends the connection.
const MAX_SKIPPED: u32 = 2 * MAX_PAYLOAD;
/// Minimum number of missing bytes of a write that are received directly into the data of the write. Fewer missing bytes go through the
/// buffer.
const DIRECT: usize = 16 << 10;

/// Why no request can be parsed at present.
pub(super) enum ParserPause {
    /// More bytes are needed.
    Hungry,
    /// The requests and replies of the connection already use the maximum memory, so the next request must wait.
    Stalled,
    /// A block status request, which the caller must answer.
    Status(BlockStatusQuery),
    /// The client has disconnected or violated the protocol.
    Ended,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct BlockStatusQuery {
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
    pub single_extent: bool,
}

/// A request whose parts are being passed to the device.
struct SplitNbdRequest {
    slot: u32,
    next: u32,
    sector: u64,
    end: u64,
    command: NbdCommand,
}

impl SplitNbdRequest {
    /// The length of the next part in sectors, at most `most`.
    fn sectors(&self, most: u32) -> u32 {
        (self.end - self.sector).min(u64::from(most)) as u32
    }

    /// Creates the request for the next part of the client's request. Only a write uses `data`.
    fn take(&mut self, sectors: u32, pending: &mut PendingNbdRequests, data: Vec<u8>) -> ServedRequest {
        let (action, fua) = match self.command {
            NbdCommand::Write { fua } => (BlockAction::Write(data), fua),
            NbdCommand::Zeroes { keep_allocated, fua } => (BlockAction::WriteZeroes { keep_allocated }, fua),
            NbdCommand::Trim { fua } => (BlockAction::Discard { secure: false }, fua),
            NbdCommand::Flush => (BlockAction::Flush, false),
            _ => (BlockAction::Read, false),
        };
        let modifiers = if fua { CommandFlags::RELIABLE } else { CommandFlags::empty() };
        let (tag, sector) = (pending.issue(self.slot, self.next), self.sector);
        self.next += 1;
        self.sector += u64::from(sectors);
        ServedRequest { tag, action, sector, sectors, modifiers }
    }
}

/// The kind of data that the next received bytes contain.
enum ParserState {
    Header,
    /// Data of a write: the bytes of the current part that were received so far. The part will have `wanted` bytes.
    Data {
        parts: SplitNbdRequest,
        data: Vec<u8>,
        expected_bytes: usize,
    },
    /// Data of a rejected write.
    Skip {
        remaining_bytes: usize,
        cookie: u64,
        error: NbdError,
    },
    /// The parts of a request without data wait for memory. No bytes are expected meanwhile.
    Issue(SplitNbdRequest),
    Ended,
}

/// The parser of the transmission phase.
pub(super) struct NbdRequestParser {
    stage: ParserState,
    session: NbdSession,
}

impl NbdRequestParser {
    pub fn new(session: NbdSession) -> Self {
        Self { stage: ParserState::Header, session }
    }

    /// Receives once without blocking, into the buffer or directly into the data of a write.
    pub fn receive(&mut self, buffer: &mut ReceiveBuffer, socket: &OwnedFd) -> io::Result<usize> {
        match &mut self.stage {
            ParserState::Data { data, expected_bytes: wanted, .. }
                if buffer.filled().is_empty() && *wanted - data.len() >= DIRECT =>
            {
                buffer.receive_behind(socket, data, *wanted)
            }
            _ => buffer.receive(socket),
        }
    }

    /// Parses the received bytes into requests. With `refuse`, all new requests are answered with `ESHUTDOWN`.
    pub fn parse(
        &mut self, buffer: &mut ReceiveBuffer, export: &NbdExport, refuse: bool, pending: &mut PendingNbdRequests,
        batch: &mut Vec<ServedRequest>,
    ) -> ParserPause {
        let most = export.part_sectors();
        loop {
            match &mut self.stage {
                ParserState::Ended => return ParserPause::Ended,
                ParserState::Header => {
                    if !pending.has_room(0) {
                        return ParserPause::Stalled;
                    }
                    let Some(bytes) = buffer.filled().get(..HEADER) else { return ParserPause::Hungry };
                    let Some(header) = NbdRequestHeader::parse(bytes) else {
                        self.stage = ParserState::Ended;
                        continue;
                    };
                    match header.command(export, self.session) {
                        Ok(NbdCommand::Disconnect) => self.stage = ParserState::Ended,
                        _ if refuse => {
                            self.refuse(header, NbdError(errno::ESHUTDOWN, "the server is shutting down"), pending);
                        }
                        Err(error) => self.refuse(header, error, pending),
                        Ok(NbdCommand::Cache) => pending.answer(header.cookie, Ok(())),
                        Ok(NbdCommand::Status { single_extent }) => {
                            buffer.consume(HEADER);
                            let NbdRequestHeader { cookie, offset, length, .. } = header;
                            return ParserPause::Status(BlockStatusQuery { cookie, offset, length, single_extent });
                        }
                        Ok(NbdCommand::Read { .. }) if !pending.has_room(header.length as usize) => {
                            return ParserPause::Stalled;
                        }
                        Ok(command) => self.begin(&header, command, most, pending),
                    }
                    buffer.consume(HEADER);
                }
                ParserState::Data { parts, data, expected_bytes: wanted } => {
                    if data.is_empty() {
                        if !pending.has_room(*wanted) {
                            return ParserPause::Stalled;
                        }
                        data.reserve_exact(*wanted);
                    }
                    buffer.take_into(data, *wanted - data.len());
                    if data.len() < *wanted {
                        return ParserPause::Hungry;
                    }
                    let sectors = parts.sectors(most);
                    batch.push(parts.take(sectors, pending, std::mem::take(data)));
                    *wanted = parts.sectors(most) as usize * SECTOR_BYTES as usize;
                    if *wanted == 0 {
                        self.stage = ParserState::Header;
                    }
                }
                ParserState::Skip { remaining_bytes: left, cookie, error } => {
                    let count = (*left).min(buffer.filled().len());
                    buffer.consume(count);
                    *left -= count;
                    if *left > 0 {
                        return ParserPause::Hungry;
                    }
                    pending.answer(*cookie, Err(*error));
                    self.stage = ParserState::Header;
                }
                ParserState::Issue(parts) => {
                    // The memory for a complete read is reserved when the read begins.
                    let read = matches!(parts.command, NbdCommand::Read { .. });
                    loop {
                        if !read && !pending.has_room(0) {
                            return ParserPause::Stalled;
                        }
                        let sectors = parts.sectors(most);
                        batch.push(parts.take(sectors, pending, Vec::new()));
                        if parts.sector == parts.end {
                            break;
                        }
                    }
                    self.stage = ParserState::Header;
                }
            }
        }
    }

    /// Starts a request for the device.
    fn begin(&mut self, header: &NbdRequestHeader, command: NbdCommand, most: u32, pending: &mut PendingNbdRequests) {
        let count = parts_of(header, most).max(1);
        let slot = pending.enter(header, command, u64::from(most) * SECTOR_BYTES, count);
        let (sector, end) = (header.offset / SECTOR_BYTES, (header.offset + u64::from(header.length)) / SECTOR_BYTES);
        let parts = SplitNbdRequest { slot, next: 0, sector, end, command };
        self.stage = match command {
            NbdCommand::Write { .. } => {
                let wanted = parts.sectors(most) as usize * SECTOR_BYTES as usize;
                ParserState::Data { parts, data: Vec::new(), expected_bytes: wanted }
            }
            _ => ParserState::Issue(parts),
        };
    }

    /// Answers a request that is not passed to the device, after its data is skipped.
    fn refuse(&mut self, header: NbdRequestHeader, error: NbdError, pending: &mut PendingNbdRequests) {
        match header.payload() {
            0 => pending.answer(header.cookie, Err(error)),
            length if length > MAX_SKIPPED => self.stage = ParserState::Ended,
            length => self.stage = ParserState::Skip { remaining_bytes: length as usize, cookie: header.cookie, error },
        }
    }
}

/// Length of a request's header in bytes.
pub(super) const HEADER: usize = 28;

/// The negotiated properties of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NbdSession {
    /// Whether reads have structured replies.
    pub structured: bool,
    /// Whether `base:allocation` was selected for the export.
    pub status: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NbdRequestHeader {
    flags: u16,
    kind: u16,
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
}

/// A request of a client that has passed all checks.
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
    /// Parses the header of a request. `None` if the magic number is wrong; then the stream cannot be resynchronised.
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

    /// Returns the number of data bytes that follow the header.
    pub fn payload(&self) -> u32 {
        if self.kind == command::WRITE { self.length } else { 0 }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Checks the request and returns its command. FUA is accepted with every command, even if it was not advertised.
    pub fn command(&self, export: &NbdExport, session: NbdSession) -> Result<NbdCommand, NbdError> {
        use command_flag::{DF, FAST_ZERO, FUA, NO_HOLE, REQ_ONE};
        let fua = self.has(FUA);
        let (known, command) = match self.kind {
            command::READ if session.structured => (DF, NbdCommand::Read { unfragmented: self.has(DF) }),
            command::READ => (0, NbdCommand::Read { unfragmented: true }),
            command::WRITE => (0, NbdCommand::Write { fua }),
            command::WRITE_ZEROES => (NO_HOLE | FAST_ZERO, NbdCommand::Zeroes { keep_allocated: self.has(NO_HOLE), fua }),
            command::TRIM => (0, NbdCommand::Trim { fua }),
            command::FLUSH => (0, NbdCommand::Flush),
            command::CACHE => (0, NbdCommand::Cache),
            command::BLOCK_STATUS if !session.status => {
                return Err(NbdError(errno::EINVAL, "base:allocation was not selected for this export"));
            }
            command::BLOCK_STATUS => (REQ_ONE, NbdCommand::Status { single_extent: self.has(REQ_ONE) }),
            command::DISC => return Ok(NbdCommand::Disconnect),
            _ => return Err(NbdError(errno::EINVAL, "the command is unknown")),
        };
        if self.flags & !(known | FUA) != 0 {
            return Err(NbdError(errno::EINVAL, "a flag is unknown or does not belong to the command"));
        }
        if command == NbdCommand::Flush {
            let plain = self.offset == 0 && self.length == 0;
            return plain.then_some(command).ok_or(NbdError(errno::EINVAL, "a flush has an offset or a length"));
        }
        self.check_range(command, export, session)?;
        let discards = u64::from(export.limits.discard_sectors.max(1)) * SECTOR_BYTES;
        let whole_units = self.offset.is_multiple_of(discards) && u64::from(self.length).is_multiple_of(discards);
        if self.has(FAST_ZERO) && (!whole_units || self.has(NO_HOLE) || fua) {
            return Err(NbdError(errno::ENOTSUP, "zeroing faster than a write needs whole discard units"));
        }
        Ok(command)
    }

    fn check_range(&self, command: NbdCommand, export: &NbdExport, session: NbdSession) -> Result<(), NbdError> {
        let changes = matches!(command, NbdCommand::Write { .. } | NbdCommand::Zeroes { .. } | NbdCommand::Trim { .. });
        if changes && export.options.read_only {
            return Err(NbdError(errno::EPERM, "the export is read-only"));
        }
        if self.length == 0 {
            return Err(NbdError(errno::EINVAL, "the request has no length"));
        }
        let beyond = self.offset.checked_add(u64::from(self.length)).is_none_or(|end| end > export.size);
        let too_long = self.length > MAX_PAYLOAD;
        match command {
            NbdCommand::Write { .. } | NbdCommand::Zeroes { .. } if beyond => {
                return Err(NbdError(errno::ENOSPC, "the request reaches beyond the end of the device"));
            }
            _ if beyond => {
                return Err(NbdError(errno::EINVAL, "the request reaches beyond the end of the device"));
            }
            NbdCommand::Read { .. } if too_long && session.structured => {
                return Err(NbdError(errno::EOVERFLOW, "a read is longer than the largest payload of 32 MiB"));
            }
            NbdCommand::Read { .. } | NbdCommand::Write { .. } if too_long => {
                return Err(NbdError(errno::EINVAL, "the request is longer than the largest payload of 32 MiB"));
            }
            _ => {}
        }
        let whole_sectors = (self.offset | u64::from(self.length)).is_multiple_of(SECTOR_BYTES);
        whole_sectors.then_some(()).ok_or(NbdError(errno::EINVAL, "the request does not consist of whole sectors"))
    }
}
