//! Plans for a request or for background work: commands for the disks below, and where their data lies.

use std::ops::Range;

use emmclab_base::{Modifiers, Op, SECTOR_BYTES};

use crate::checksum::checksum;
use crate::request::HostRequest;

/// The place of data while a plan runs. The driver owns the bytes, a layer names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The data of the request that the plan is for.
    Payload,
    /// A buffer of [`Plan::scratch_sectors`], the plan's own.
    Scratch,
    /// Bytes that the layer made, [`Plan::meta`].
    Meta,
    /// Memory of the layer that stays from plan to plan and is lost with the power; [`Plan::copy`] fills it, and it grows as
    /// far as it is filled.
    Held,
}

/// A run of sectors in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which memory.
    pub memory: Memory,
    /// First sector in it.
    pub offset: u32,
    /// Length in sectors.
    pub sectors: u32,
    /// For the sector at the head of a record: how many sectors of the same write follow that belong to it. The driver
    /// puts a checksum of those into it ([`Plan::DATA_CHECKSUM_AT`]), then one of itself ([`Plan::CHECKSUM_AT`]).
    pub seals: Option<u32>,
}

impl Piece {
    fn bytes(&self) -> Range<usize> {
        sectors(self.offset, self.sectors)
    }
}

/// A run of sectors in bytes.
fn sectors(first: u32, count: u32) -> Range<usize> {
    let at = |sector: u32| sector as usize * SECTOR_BYTES as usize;
    at(first)..at(first + count)
}

/// Where data for a memory goes.
fn place<'a>(memory: Memory, bytes: &'a mut Bytes<'_>, range: Range<usize>) -> &'a mut [u8] {
    match memory {
        Memory::Payload => &mut bytes.payload[range],
        // A layer reads no metadata while it plans.
        Memory::Scratch | Memory::Meta => &mut bytes.scratch[range],
        Memory::Held => {
            if bytes.held.len() < range.end {
                bytes.held.resize(range.end, 0);
            }
            &mut bytes.held[range]
        }
    }
}

/// Puts the checksums into the record at the head of `data`, which `sectors` more belong to.
fn seal(data: &mut [u8], sectors: u32) {
    let (head, rest) = data.split_at_mut(SECTOR_BYTES as usize);
    let mut put = |at: usize, sum: u64| head[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    put(Plan::DATA_CHECKSUM_AT, checksum(&rest[..sectors as usize * SECTOR_BYTES as usize]));
    put(Plan::CHECKSUM_AT, 0);
    let sum = checksum(head);
    head[Plan::CHECKSUM_AT..Plan::CHECKSUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
}

/// The bytes after the memories of a plan, but for those that the layer made.
#[derive(Debug)]
pub struct Bytes<'a> {
    /// [`Memory::Payload`].
    pub payload: &'a mut [u8],
    /// [`Memory::Scratch`].
    pub scratch: &'a mut [u8],
    /// [`Memory::Held`].
    pub held: &'a mut Vec<u8>,
}

/// A run of sectors that is copied from memory to memory, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCopy {
    /// Where it lies: memory and first sector.
    pub from: (Memory, u32),
    /// Where it goes; not to [`Memory::Meta`].
    pub to: (Memory, u32),
    /// Length in sectors.
    pub sectors: u32,
}

/// One request to a disk below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Number of the disk: 0 is the layer below, or the device; 1 is the second device.
    pub disk: u8,
    /// Its operation.
    pub op: Op,
    /// First sector on that disk.
    pub sector: u64,
    /// Length in sectors; 0 for a flush.
    pub sectors: u32,
    /// Its flags.
    pub modifiers: Modifiers,
    /// Whether it is an entry of the same packed command as the step before it.
    pub packed: bool,
    first_piece: u32,
    pieces: u32,
}

/// One step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A command; those between two waits run at once, in the order given where the disk takes one at a time.
    Command(Command),
    /// A copy from memory to memory; what a read brings is there after the next wait.
    Copy(MemoryCopy),
    /// Everything before must be complete.
    Wait,
}

/// Steps with their memory. Made to be cleared and used again: a plan that has grown allocates no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    steps: Vec<Step>,
    pieces: Vec<Piece>,
    meta: Vec<u8>,
    scratch: u32,
    /// Flags of the commands that are added from here on.
    modifiers: Modifiers,
    /// Whether writes that are added from here on are entries of one packed command.
    packing: bool,
}

impl Plan {
    /// Byte of a sector of metadata where the driver puts the 8 bytes of its checksum; they count as 0 in it.
    pub const CHECKSUM_AT: usize = 8;
    /// Byte where it puts the checksum of the data that belongs to it.
    pub const DATA_CHECKSUM_AT: usize = 16;

    /// Forgets everything but keeps its memory.
    #[inline]
    pub fn clear(&mut self) {
        self.steps.clear();
        self.pieces.clear();
        self.meta.clear();
        self.scratch = 0;
        self.modifiers = Modifiers::empty();
        self.packing = false;
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps, in order.
    #[inline]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Where the data of a command lies, in the order of its sectors.
    #[inline]
    pub fn pieces(&self, command: &Command) -> &[Piece] {
        &self.pieces[command.first_piece as usize..][..command.pieces as usize]
    }

    /// Bytes that the layer made.
    pub fn meta(&self) -> &[u8] {
        &self.meta
    }

    /// Length of the plan's own buffer in sectors.
    pub fn scratch_sectors(&self) -> u32 {
        self.scratch
    }

    /// Everything so far must be complete before what follows.
    pub fn wait(&mut self) {
        self.steps.push(Step::Wait);
    }

    /// Commands added from here on carry these flags, each those that its operation knows.
    #[inline]
    pub fn flag(&mut self, modifiers: Modifiers) {
        self.modifiers = modifiers;
    }

    /// Writes added from here on are entries of one packed command, until this is taken back or something else is added. A disk
    /// that has no packed commands takes each by itself.
    pub fn pack(&mut self, packing: bool) {
        self.packing = packing;
    }

    /// Fills sectors of memory with zeros.
    pub fn zeros(&mut self, to: (Memory, u32), sectors: u32) {
        let offset = self.meta_sectors();
        self.meta.resize(self.meta.len() + sectors as usize * SECTOR_BYTES as usize, 0);
        self.copy((Memory::Meta, offset), to, sectors);
    }

    /// Copies sectors from memory to memory.
    pub fn copy(&mut self, from: (Memory, u32), to: (Memory, u32), sectors: u32) {
        self.steps.push(Step::Copy(MemoryCopy { from, to, sectors }));
    }

    /// The request as one command to disk 0, with the flags of [`Plan::flag`].
    #[inline]
    pub fn forward(&mut self, request: &HostRequest) {
        if request.op.has_data() {
            self.payload(0, request.op, request.sector, 0, request.sectors);
        } else {
            self.bare(0, request.op, request.sector, request.sectors);
        }
    }

    /// A part of the plan's own buffer; gives its first sector.
    pub fn scratch(&mut self, sectors: u32) -> u32 {
        let first = self.scratch;
        self.scratch += sectors;
        first
    }

    /// A command whose data is one run of the request's own.
    #[inline]
    pub fn payload(&mut self, disk: u8, op: Op, sector: u64, offset: u32, sectors: u32) {
        self.begin(disk, op, sector);
        self.piece(Memory::Payload, offset, sectors);
    }

    /// A command without data: discard, secure erase (of `sectors`), flush (of none).
    #[inline]
    pub fn bare(&mut self, disk: u8, op: Op, sector: u64, sectors: u32) {
        self.begin(disk, op, sector);
        self.lengthen(sectors);
    }

    /// Adds sectors to the command begun last, which has no data.
    #[inline]
    pub fn lengthen(&mut self, sectors: u32) {
        if let Some(Step::Command(command)) = self.steps.last_mut() {
            command.sectors += sectors;
        }
    }

    /// Starts a read or write; [`Plan::piece`] and [`Plan::record`] say where its data lies.
    #[inline]
    pub fn begin(&mut self, disk: u8, op: Op, sector: u64) {
        let first_piece = self.pieces.len() as u32;
        let modifiers = self.modifiers.of(op);
        let joins = |last: &Step| matches!(last, Step::Command(before) if before.op == Op::Write && before.disk == disk);
        let packed = self.packing && op == Op::Write && self.steps.last().is_some_and(joins);
        self.steps.push(Step::Command(Command {
            disk,
            op,
            sector,
            sectors: 0,
            modifiers,
            packed,
            first_piece,
            pieces: 0,
        }));
    }

    /// The next sectors of the command begun last lie here.
    #[inline]
    pub fn piece(&mut self, memory: Memory, offset: u32, sectors: u32) {
        self.push(Piece { memory, offset, sectors, seals: None });
    }

    /// The next sector of the write begun last is this metadata, sealed together with the `seals` sectors after it.
    pub fn record(&mut self, bytes: &[u8; SECTOR_BYTES as usize], seals: u32) {
        let offset = self.meta_sectors();
        self.meta.extend_from_slice(bytes);
        self.push(Piece { memory: Memory::Meta, offset, sectors: 1, seals: Some(seals) });
    }

    /// The next sectors of the write begun last are these bytes, filled up with zeros to whole sectors.
    pub fn metadata(&mut self, bytes: &[u8]) {
        let offset = self.meta_sectors();
        self.meta.extend_from_slice(bytes);
        self.meta.resize(self.meta.len().next_multiple_of(SECTOR_BYTES as usize), 0);
        self.push(Piece { memory: Memory::Meta, offset, sectors: self.meta_sectors() - offset, seals: None });
    }

    /// Appends the data of a write to `data`: its pieces, with the checksums of its records.
    pub fn gather(&self, command: &Command, bytes: &Bytes<'_>, data: &mut Vec<u8>) {
        let start = data.len();
        for piece in self.pieces(command) {
            data.extend_from_slice(self.bytes(piece.memory, bytes, piece.bytes()));
        }
        let mut at = start;
        for piece in self.pieces(command) {
            if let Some(seals) = piece.seals {
                seal(&mut data[at..], seals);
            }
            at += piece.bytes().len();
        }
    }

    /// Puts the data of a read where its pieces lie.
    pub fn scatter(&self, command: &Command, data: &[u8], bytes: &mut Bytes<'_>) {
        let mut at = 0;
        for piece in self.pieces(command) {
            let inside = piece.bytes();
            let part = &data[at..at + inside.len()];
            at += inside.len();
            place(piece.memory, bytes, inside).copy_from_slice(part);
        }
    }

    /// Does a copy.
    pub fn perform(&self, copy: &MemoryCopy, bytes: &mut Bytes<'_>) {
        let data = self.bytes(copy.from.0, bytes, sectors(copy.from.1, copy.sectors)).to_vec();
        place(copy.to.0, bytes, sectors(copy.to.1, copy.sectors)).copy_from_slice(&data);
    }

    fn bytes<'a>(&'a self, memory: Memory, bytes: &'a Bytes<'_>, range: Range<usize>) -> &'a [u8] {
        match memory {
            Memory::Payload => &bytes.payload[range],
            Memory::Scratch => &bytes.scratch[range],
            Memory::Meta => &self.meta[range],
            Memory::Held => &bytes.held[range],
        }
    }

    fn meta_sectors(&self) -> u32 {
        (self.meta.len() as u64 / SECTOR_BYTES) as u32
    }

    #[inline]
    fn push(&mut self, piece: Piece) {
        let Some(Step::Command(command)) = self.steps.last_mut() else { return };
        command.sectors += piece.sectors;
        if command.pieces > 0
            && let Some(last) = self.pieces.last_mut()
            && last.memory == piece.memory
            && last.offset + last.sectors == piece.offset
            && piece.memory != Memory::Meta
        {
            last.sectors += piece.sectors;
            return;
        }
        command.pieces += 1;
        self.pieces.push(piece);
    }
}
