//! Plans for a request or for background work: commands for the disks below, and the locations of their data.

use std::ops::Range;

use emmclab_base::{CommandFlags, Op, SECTOR_BYTES};

use crate::layer::HostRequest;
use crate::records::checksum;

/// The kind of memory that contains data while a plan (a list of commands to the disks) is executed. The driver owns the bytes; a layer
/// only refers to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanMemory {
    /// Data of the planned request.
    Payload,
    /// Temporary buffer for the commands of one plan, with [`CommandPlan::scratch_sectors`] sectors.
    Scratch,
    /// Bytes that the layer created ([`CommandPlan::meta`]).
    Meta,
    /// Memory of the layer that is kept from plan to plan, and is lost when the power fails. [`CommandPlan::copy`] fills it, and it grows
    /// as necessary.
    Held,
}

/// A range of sectors in a memory of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRange {
    /// The memory that contains the range.
    pub memory: PlanMemory,
    /// First sector in the memory.
    pub offset: u32,
    /// Length in sectors.
    pub sectors: u32,
    /// Set only for the header sector of a record: the number of further sectors of the same write that belong to the record. The driver
    /// stores a checksum of these sectors in the header sector ([`CommandPlan::DATA_CHECKSUM_AT`]), and then a checksum of the header
    /// sector itself ([`CommandPlan::CHECKSUM_AT`]).
    pub seals: Option<u32>,
}

impl MemoryRange {
    fn bytes(&self) -> Range<usize> {
        sectors(self.offset, self.sectors)
    }
}

/// Converts a range of sectors to a range of bytes.
fn sectors(first: u32, count: u32) -> Range<usize> {
    let at = |sector: u32| sector as usize * SECTOR_BYTES as usize;
    at(first)..at(first + count)
}

/// Returns a range of the buffer of a memory, for writing.
fn place<'a>(memory: PlanMemory, bytes: &'a mut PlanBuffers<'_>, range: Range<usize>) -> &'a mut [u8] {
    match memory {
        PlanMemory::Payload => &mut bytes.payload[range],
        // Layers read no metadata while they plan, so metadata can share the scratch buffer.
        PlanMemory::Scratch | PlanMemory::Meta => &mut bytes.scratch[range],
        PlanMemory::Held => {
            if bytes.layer_memory.len() < range.end {
                bytes.layer_memory.resize(range.end, 0);
            }
            &mut bytes.layer_memory[range]
        }
    }
}

/// Stores two checksums in the record header, which is the first sector of `data`: one of the header itself, and one of the `sectors`
/// sectors after it.
fn seal(data: &mut [u8], sectors: u32) {
    let (head, rest) = data.split_at_mut(SECTOR_BYTES as usize);
    let mut put = |at: usize, sum: u64| head[at..at + 8].copy_from_slice(&sum.to_le_bytes());
    put(CommandPlan::DATA_CHECKSUM_AT, checksum(&rest[..sectors as usize * SECTOR_BYTES as usize]));
    put(CommandPlan::CHECKSUM_AT, 0);
    let sum = checksum(head);
    head[CommandPlan::CHECKSUM_AT..CommandPlan::CHECKSUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
}

/// The buffers for the memories to which a plan refers ([`PlanMemory`]), except for bytes that the layer created.
#[derive(Debug)]
pub struct PlanBuffers<'a> {
    /// Buffer for [`PlanMemory::Payload`].
    pub payload: &'a mut [u8],
    /// Buffer for [`PlanMemory::Scratch`].
    pub scratch: &'a mut [u8],
    /// Buffer for [`PlanMemory::Held`].
    pub layer_memory: &'a mut Vec<u8>,
}

/// A run of sectors that is copied between memories; this takes no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryCopy {
    /// The source: memory and first sector.
    pub from: (PlanMemory, u32),
    /// The target, which must not be [`PlanMemory::Meta`].
    pub to: (PlanMemory, u32),
    /// Length in sectors.
    pub sectors: u32,
}

/// One command to a disk below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanCommand {
    /// Number of the disk: 0 is the layer below, or the device; 1 is the second device.
    pub disk: u8,
    /// Operation of the command.
    pub op: Op,
    /// First sector on that disk.
    pub sector: u64,
    /// Length in sectors; 0 for a flush.
    pub sectors: u32,
    /// Flags of the command.
    pub modifiers: CommandFlags,
    /// Whether the command belongs to the same packed command as the previous step.
    pub packed: bool,
    first_piece: u32,
    pieces: u32,
}

/// One step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStep {
    /// A command. Commands between two waits run concurrently, or in order if the disk executes one at a time.
    Command(PlanCommand),
    /// Copies sectors between two memories. To copy data that a command reads, the plan must wait for this command first.
    Copy(MemoryCopy),
    /// Waits until all previous steps are complete.
    Wait,
}

/// The steps of a plan, and the locations of their data. A plan is cleared and reused, so that repeated plans need no new allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandPlan {
    steps: Vec<PlanStep>,
    pieces: Vec<MemoryRange>,
    meta: Vec<u8>,
    scratch: u32,
    /// Flags of the commands that are added next.
    modifiers: CommandFlags,
    /// Whether writes that are added next belong to one packed command.
    packing: bool,
}

impl CommandPlan {
    /// Offset in a metadata sector at which the driver stores the 8 bytes of its checksum. These 8 bytes count as 0 when the checksum is
    /// computed.
    pub const CHECKSUM_AT: usize = 8;
    /// Offset in a metadata sector at which the driver stores the checksum of the data that belongs to the sector.
    pub const DATA_CHECKSUM_AT: usize = 16;

    /// Clears the plan but keeps its memory.
    #[inline]
    pub fn clear(&mut self) {
        self.steps.clear();
        self.pieces.clear();
        self.meta.clear();
        self.scratch = 0;
        self.modifiers = CommandFlags::empty();
        self.packing = false;
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The steps, in order.
    #[inline]
    pub fn steps(&self) -> &[PlanStep] {
        &self.steps
    }

    /// The memory ranges with the data of a command, in the order of its sectors.
    #[inline]
    pub fn pieces(&self, command: &PlanCommand) -> &[MemoryRange] {
        &self.pieces[command.first_piece as usize..][..command.pieces as usize]
    }

    /// Length of the plan's buffer in sectors.
    pub fn scratch_sectors(&self) -> u32 {
        self.scratch
    }

    /// Adds a wait: all previous steps must complete before the following ones.
    pub fn wait(&mut self) {
        self.steps.push(PlanStep::Wait);
    }

    /// Sets the flags of the commands that are added next. A flag is omitted for commands whose operation does not support it.
    #[inline]
    pub fn flag(&mut self, modifiers: CommandFlags) {
        self.modifiers = modifiers;
    }

    /// Sets whether the writes that are added next become entries of one packed command. Adding another command ends the packed command. A
    /// disk without packed commands executes the entries one by one.
    pub fn pack(&mut self, packing: bool) {
        self.packing = packing;
    }

    /// Fills sectors of memory with zeros.
    pub fn zeros(&mut self, to: (PlanMemory, u32), sectors: u32) {
        let offset = self.meta_sectors();
        self.meta.resize(self.meta.len() + sectors as usize * SECTOR_BYTES as usize, 0);
        self.copy((PlanMemory::Meta, offset), to, sectors);
    }

    /// Copies sectors from memory to memory.
    pub fn copy(&mut self, from: (PlanMemory, u32), to: (PlanMemory, u32), sectors: u32) {
        self.steps.push(PlanStep::Copy(MemoryCopy { from, to, sectors }));
    }

    /// Adds the request as one command to disk 0, with the flags of [`CommandPlan::flag`].
    #[inline]
    pub fn forward(&mut self, request: &HostRequest) {
        if request.op.has_data() {
            self.payload(0, request.op, request.sector, 0, request.sectors);
        } else {
            self.bare(0, request.op, request.sector, request.sectors);
        }
    }

    /// Allocates a part of the plan's buffer. Returns its first sector.
    pub fn scratch(&mut self, sectors: u32) -> u32 {
        let first = self.scratch;
        self.scratch += sectors;
        first
    }

    /// Adds a command whose data is a range of the request's data.
    #[inline]
    pub fn payload(&mut self, disk: u8, op: Op, sector: u64, offset: u32, sectors: u32) {
        self.begin(disk, op, sector);
        self.piece(PlanMemory::Payload, offset, sectors);
    }

    /// Adds a command without data: discard or secure erase of `sectors`, or a flush with 0 sectors.
    #[inline]
    pub fn bare(&mut self, disk: u8, op: Op, sector: u64, sectors: u32) {
        self.begin(disk, op, sector);
        self.lengthen(sectors);
    }

    /// Adds sectors to the last command, which must be a command without data.
    #[inline]
    pub fn lengthen(&mut self, sectors: u32) {
        if let Some(PlanStep::Command(command)) = self.steps.last_mut() {
            command.sectors += sectors;
        }
    }

    /// Starts a read or write; [`CommandPlan::piece`] and [`CommandPlan::record`] add the locations of its data.
    #[inline]
    pub fn begin(&mut self, disk: u8, op: Op, sector: u64) {
        let first_piece = self.pieces.len() as u32;
        let modifiers = self.modifiers.of(op);
        let joins = |last: &PlanStep| matches!(last, PlanStep::Command(before) if before.op == Op::Write && before.disk == disk);
        let packed = self.packing && op == Op::Write && self.steps.last().is_some_and(joins);
        self.steps.push(PlanStep::Command(PlanCommand {
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

    /// Adds the location of the next sectors of the last command.
    #[inline]
    pub fn piece(&mut self, memory: PlanMemory, offset: u32, sectors: u32) {
        self.push(MemoryRange { memory, offset, sectors, seals: None });
    }

    /// Adds a metadata sector as the next sector of the last write. Its data checksum covers the `seals` sectors after it.
    pub fn record(&mut self, bytes: &[u8; SECTOR_BYTES as usize], seals: u32) {
        let offset = self.meta_sectors();
        self.meta.extend_from_slice(bytes);
        self.push(MemoryRange { memory: PlanMemory::Meta, offset, sectors: 1, seals: Some(seals) });
    }

    /// Adds bytes as the next sectors of the last write, padded with zeros to whole sectors.
    pub fn metadata(&mut self, bytes: &[u8]) {
        let offset = self.meta_sectors();
        self.meta.extend_from_slice(bytes);
        self.meta.resize(self.meta.len().next_multiple_of(SECTOR_BYTES as usize), 0);
        self.push(MemoryRange { memory: PlanMemory::Meta, offset, sectors: self.meta_sectors() - offset, seals: None });
    }

    /// Appends the data of a write to `data`. Stores the checksums in the headers of the records in this data.
    pub fn gather(&self, command: &PlanCommand, bytes: &PlanBuffers<'_>, data: &mut Vec<u8>) {
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

    /// Stores the data of a read at the locations of its pieces.
    pub fn scatter(&self, command: &PlanCommand, data: &[u8], bytes: &mut PlanBuffers<'_>) {
        let mut at = 0;
        for piece in self.pieces(command) {
            let inside = piece.bytes();
            let part = &data[at..at + inside.len()];
            at += inside.len();
            place(piece.memory, bytes, inside).copy_from_slice(part);
        }
    }

    /// Executes a copy.
    pub fn perform(&self, copy: &MemoryCopy, bytes: &mut PlanBuffers<'_>) {
        let data = self.bytes(copy.from.0, bytes, sectors(copy.from.1, copy.sectors)).to_vec();
        place(copy.to.0, bytes, sectors(copy.to.1, copy.sectors)).copy_from_slice(&data);
    }

    fn bytes<'a>(&'a self, memory: PlanMemory, bytes: &'a PlanBuffers<'_>, range: Range<usize>) -> &'a [u8] {
        match memory {
            PlanMemory::Payload => &bytes.payload[range],
            PlanMemory::Scratch => &bytes.scratch[range],
            PlanMemory::Meta => &self.meta[range],
            PlanMemory::Held => &bytes.layer_memory[range],
        }
    }

    fn meta_sectors(&self) -> u32 {
        (self.meta.len() as u64 / SECTOR_BYTES) as u32
    }

    #[inline]
    fn push(&mut self, piece: MemoryRange) {
        let Some(PlanStep::Command(command)) = self.steps.last_mut() else { return };
        command.sectors += piece.sectors;
        if command.pieces > 0
            && let Some(last) = self.pieces.last_mut()
            && last.memory == piece.memory
            && last.offset + last.sectors == piece.offset
            && piece.memory != PlanMemory::Meta
        {
            last.sectors += piece.sectors;
            return;
        }
        command.pieces += 1;
        self.pieces.push(piece);
    }
}
