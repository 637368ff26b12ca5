//! The transmission phase: from received bytes to requests of the device.

use std::os::fd::OwnedFd;

use emmclab_base::{Modifiers, SECTOR_BYTES};
use rustix::io::Result;

use super::buffer::Buffer;
use super::export::Export;
use super::pending::{PendingRequests, parts_of};
use super::request::{Command, HEADER, Header, Session};
use super::wire::{MAX_PAYLOAD, ReplyError};
use crate::device::{Action, BlockRequest};

/// Data of a refused write is read and dropped up to this length; beyond it the connection ends.
const MAX_SKIPPED: u32 = 2 * MAX_PAYLOAD;
/// Data that is missing to this length is received where it belongs, not by way of the buffer.
const DIRECT: usize = 16 << 10;

/// The reason why no more requests came out of the bytes at hand.
pub(super) enum Pause {
    /// More bytes are needed.
    Hungry,
    /// Requests and replies hold as much memory as they may.
    Stalled,
    /// The extents of the device are asked for.
    Status(StatusQuery),
    /// The client says goodbye or senseless things.
    Ended,
}

/// A block status request.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatusQuery {
    pub cookie: u64,
    pub offset: u64,
    pub length: u32,
    pub one: bool,
}

/// A request on its way to the device, part by part.
struct Parts {
    slot: u32,
    next: u32,
    sector: u64,
    end: u64,
    command: Command,
}

impl Parts {
    /// Sectors of the next part.
    fn sectors(&self, most: u32) -> u32 {
        (self.end - self.sector).min(u64::from(most)) as u32
    }

    /// The next part, with the data of a write.
    fn take(&mut self, sectors: u32, pending: &mut PendingRequests, data: Vec<u8>) -> BlockRequest {
        let (action, fua) = match self.command {
            Command::Write { fua } => (Action::Write(data), fua),
            Command::Zeroes { keep_allocated, fua } => (Action::WriteZeroes { keep_allocated }, fua),
            Command::Trim { fua } => (Action::Discard { secure: false }, fua),
            Command::Flush => (Action::Flush, false),
            _ => (Action::Read, false),
        };
        let modifiers = if fua { Modifiers::RELIABLE } else { Modifiers::empty() };
        let (tag, sector) = (pending.issue(self.slot, self.next), self.sector);
        self.next += 1;
        self.sector += u64::from(sectors);
        BlockRequest { tag, action, sector, sectors, modifiers }
    }
}

/// The meaning of the next bytes.
enum Stage {
    Header,
    /// Data of a write: what is there of a part of this many bytes.
    Data {
        parts: Parts,
        data: Vec<u8>,
        wanted: usize,
    },
    /// Data of a refused write.
    Skip {
        left: usize,
        cookie: u64,
        error: ReplyError,
    },
    /// No bytes are due: parts without data wait for room.
    Issue(Parts),
    Ended,
}

/// The reader of the transmission phase.
pub(super) struct Intake {
    stage: Stage,
    session: Session,
}

impl Intake {
    pub fn new(session: Session) -> Self {
        Self { stage: Stage::Header, session }
    }

    /// Receives once, without waiting, where the next bytes belong.
    ///
    /// # Errors
    /// `EAGAIN` where nothing is there; what the socket says.
    pub fn receive(&mut self, buffer: &mut Buffer, socket: &OwnedFd) -> Result<usize> {
        match &mut self.stage {
            Stage::Data { data, wanted, .. }
                if buffer.filled().is_empty() && *wanted - data.len() >= DIRECT =>
            {
                buffer.receive_behind(socket, data, *wanted)
            }
            _ => buffer.receive(socket),
        }
    }

    /// Makes requests of the bytes at hand; `refuse` answers all new ones with `ESHUTDOWN`.
    pub fn parse(
        &mut self,
        buffer: &mut Buffer,
        export: &Export,
        refuse: bool,
        pending: &mut PendingRequests,
        batch: &mut Vec<BlockRequest>,
    ) -> Pause {
        let most = export.part_sectors();
        loop {
            match &mut self.stage {
                Stage::Ended => return Pause::Ended,
                Stage::Header => {
                    if !pending.has_room(0) {
                        return Pause::Stalled;
                    }
                    let Some(bytes) = buffer.filled().get(..HEADER) else { return Pause::Hungry };
                    let Some(header) = Header::parse(bytes) else {
                        self.stage = Stage::Ended;
                        continue;
                    };
                    match header.command(export, self.session) {
                        Ok(Command::Disconnect) => self.stage = Stage::Ended,
                        _ if refuse => self.refuse(header, ReplyError::shutdown(), pending),
                        Err(error) => self.refuse(header, error, pending),
                        Ok(Command::Cache) => pending.answer(header.cookie, Ok(())),
                        Ok(Command::Status { one }) => {
                            buffer.consume(HEADER);
                            let Header { cookie, offset, length, .. } = header;
                            return Pause::Status(StatusQuery { cookie, offset, length, one });
                        }
                        Ok(Command::Read { .. }) if !pending.has_room(header.length as usize) => {
                            return Pause::Stalled;
                        }
                        Ok(command) => self.begin(&header, command, most, pending),
                    }
                    buffer.consume(HEADER);
                }
                Stage::Data { parts, data, wanted } => {
                    if data.is_empty() {
                        if !pending.has_room(*wanted) {
                            return Pause::Stalled;
                        }
                        data.reserve_exact(*wanted);
                    }
                    buffer.take_into(data, *wanted - data.len());
                    if data.len() < *wanted {
                        return Pause::Hungry;
                    }
                    let sectors = parts.sectors(most);
                    batch.push(parts.take(sectors, pending, std::mem::take(data)));
                    *wanted = parts.sectors(most) as usize * SECTOR_BYTES as usize;
                    if *wanted == 0 {
                        self.stage = Stage::Header;
                    }
                }
                Stage::Skip { left, cookie, error } => {
                    let count = (*left).min(buffer.filled().len());
                    buffer.consume(count);
                    *left -= count;
                    if *left > 0 {
                        return Pause::Hungry;
                    }
                    pending.answer(*cookie, Err(*error));
                    self.stage = Stage::Header;
                }
                Stage::Issue(parts) => {
                    // The room for a whole read was there when it began.
                    let read = matches!(parts.command, Command::Read { .. });
                    loop {
                        if !read && !pending.has_room(0) {
                            return Pause::Stalled;
                        }
                        let sectors = parts.sectors(most);
                        batch.push(parts.take(sectors, pending, Vec::new()));
                        if parts.sector == parts.end {
                            break;
                        }
                    }
                    self.stage = Stage::Header;
                }
            }
        }
    }

    /// Starts a request for the device.
    fn begin(&mut self, header: &Header, command: Command, most: u32, pending: &mut PendingRequests) {
        let count = parts_of(header, most).max(1);
        let slot = pending.enter(header, command, u64::from(most) * SECTOR_BYTES, count);
        let (sector, end) =
            (header.offset / SECTOR_BYTES, (header.offset + u64::from(header.length)) / SECTOR_BYTES);
        let parts = Parts { slot, next: 0, sector, end, command };
        self.stage = match command {
            Command::Write { .. } => {
                let wanted = parts.sectors(most) as usize * SECTOR_BYTES as usize;
                Stage::Data { parts, data: Vec::new(), wanted }
            }
            _ => Stage::Issue(parts),
        };
    }

    /// Answers a request that the device never sees, after its data.
    fn refuse(&mut self, header: Header, error: ReplyError, pending: &mut PendingRequests) {
        match header.payload() {
            0 => pending.answer(header.cookie, Err(error)),
            length if length > MAX_SKIPPED => self.stage = Stage::Ended,
            length => self.stage = Stage::Skip { left: length as usize, cookie: header.cookie, error },
        }
    }
}
