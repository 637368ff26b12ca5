//! The fields of a kernel event, by their meaning.

macro_rules! slots {
    ($($(#[$doc:meta])* $slot:ident: $($name:literal)|+,)*) => {
        /// The values of an event's fields.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum EventField {
            $($(#[$doc])* $slot,)*
        }

        impl EventField {
            const COUNT: usize = [$(EventField::$slot),*].len();

            /// The slot for the kernel's name of a field; `None` for other fields.
            pub fn by_name(name: &[u8]) -> Option<EventField> {
                $($(if name == $name.as_bytes() { return Some(EventField::$slot); })+)*
                None
            }
        }
    };
}

slots! {
    /// `dev_t`, as the kernel has it (major << 20 | minor).
    Device: "dev",
    /// First sector.
    Sector: "sector",
    /// Length in sectors.
    Sectors: "nr_sector",
    /// First sector of the second part of a split.
    SecondSector: "new_sector",
    /// Operation and flags in letters; a text.
    Letters: "rwbs",
    /// Name of the task; a text.
    Task: "comm",
    /// Name of the host controller; a text.
    Host: "name" | "dev_name",
    /// Opcode of the MMC or SCSI command.
    Opcode: "cmd_opcode" | "opcode" | "cmd",
    /// Argument of the MMC command.
    Argument: "cmd_arg",
    /// Argument of the `CMD23` before the command.
    CountArgument: "sbc_arg",
    /// First sector of the command. Kernels before 4.16 do not state it.
    Address: "blk_addr" | "addr",
    /// Number of blocks of data.
    Blocks: "blocks" | "size",
    /// Size of a block in bytes.
    BlockBytes: "blksz",
    /// Direction of the data.
    DataFlags: "data_flags",
    /// Identifies the request; the number has no other meaning.
    Request: "mrq",
    /// Number of times that the command may still be repeated after a failure.
    Retries: "cmd_retries",
    /// Error of the command.
    CommandError: "cmd_err",
    /// Error of the command that stops it.
    StopError: "stop_err",
    /// Error of the command that states its number of blocks (`CMD23`).
    CountError: "sbc_err",
    /// Error of its data.
    DataError: "data_err",
    /// Slot in the controller's queue.
    Tag: "tag" | "driver_tag",
    /// First logical block of a SCSI command.
    Lba: "lba",
    /// Group number of a UFS command. It exists since kernel 5.15, as do addresses in logical blocks.
    Group: "group_id",
    /// Number of a SCSI host.
    HostNumber: "host_no",
    /// Channel of a SCSI disk.
    Channel: "channel",
    /// Number of a SCSI target.
    Target: "id",
    /// Logical unit of a SCSI target.
    Unit: "lun",
    /// The bytes of a SCSI command; a text.
    Cdb: "cmnd",
    /// Result of a SCSI command: its status in the low byte, the host's status above it.
    Status: "result",
    /// Length of the data of a UFS command in bytes.
    Bytes: "transfer_len" | "affected_bytes",
    /// Whether a UFS command begins or ends, as a number (since kernel 5.12).
    Step: "str_t",
    /// Whether a UFS command begins or ends, as a word; a text.
    Word: "str",
    /// The result of a system call.
    Result: "ret",
    /// Number of metadata changes in a transaction.
    Handles: "handle_count",
    /// Number of blocks that a transaction wrote to the journal.
    JournalBlocks: "blocks_logged",
}

impl EventField {
    /// Whether its value is a text, not a number.
    #[inline]
    pub fn is_text(self) -> bool {
        matches!(self, EventField::Letters | EventField::Task | EventField::Host | EventField::Word | EventField::Cdb)
    }
}

/// The fields of one event.
#[derive(Clone, Copy, Debug)]
pub struct EventFieldValues<'a> {
    numbers: [i64; EventField::COUNT],
    letters: &'a [u8],
    task: &'a [u8],
    host: &'a [u8],
    word: &'a [u8],
    cdb: &'a [u8],
    present_fields: u64,
}

impl Default for EventFieldValues<'_> {
    #[inline]
    fn default() -> Self {
        Self {
            numbers: [0; EventField::COUNT],
            letters: &[],
            task: &[],
            host: &[],
            word: &[],
            cdb: &[],
            present_fields: 0,
        }
    }
}

impl<'a> EventFieldValues<'a> {
    /// Stores the number of a field.
    #[inline]
    pub fn set(&mut self, slot: EventField, number: i64) {
        self.numbers[slot as usize] = number;
        self.present_fields |= 1 << slot as u64;
    }

    /// Stores the text of a field; does nothing if the field is a number.
    #[inline]
    pub fn set_text(&mut self, slot: EventField, text: &'a [u8]) {
        let place = match slot {
            EventField::Letters => &mut self.letters,
            EventField::Task => &mut self.task,
            EventField::Host => &mut self.host,
            EventField::Word => &mut self.word,
            EventField::Cdb => &mut self.cdb,
            _ => return,
        };
        *place = text;
        self.present_fields |= 1 << slot as u64;
    }

    /// Whether the event has this field.
    #[inline]
    pub fn has(&self, slot: EventField) -> bool {
        self.present_fields & 1 << slot as u64 != 0
    }

    /// The number; 0 if there is none.
    #[inline]
    pub fn number(&self, slot: EventField) -> i64 {
        self.numbers[slot as usize]
    }

    /// The text; empty if there is none.
    #[inline]
    pub fn text(&self, slot: EventField) -> &'a [u8] {
        match slot {
            EventField::Letters => self.letters,
            EventField::Task => self.task,
            EventField::Host => self.host,
            EventField::Word => self.word,
            EventField::Cdb => self.cdb,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_known_by_the_kernels_names() {
        assert_eq!(EventField::by_name(b"affected_bytes"), Some(EventField::Bytes));
        assert_eq!(EventField::by_name(b"cmd_flags"), None);
        const { assert!(EventField::COUNT <= u64::BITS as usize) };
    }
}
