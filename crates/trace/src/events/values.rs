//! The fields of a kernel event, by what they hold.

macro_rules! slots {
    ($($(#[$doc:meta])* $slot:ident: $($name:literal)|+,)*) => {
        /// The values of an event's fields.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Slot {
            $($(#[$doc])* $slot,)*
        }

        impl Slot {
            const COUNT: usize = [$(Slot::$slot),*].len();

            /// By the kernel's name of the field.
            pub fn by_name(name: &[u8]) -> Option<Slot> {
                $($(if name == $name.as_bytes() { return Some(Slot::$slot); })+)*
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
    /// Where the second part of a split begins.
    SecondSector: "new_sector",
    /// Operation and flags in letters; a text.
    Letters: "rwbs",
    /// Name of the task; a text.
    Task: "comm",
    /// Name of the host controller; a text.
    Host: "name" | "dev_name",
    /// Opcode of the MMC or SCSI command.
    Opcode: "cmd_opcode" | "opcode" | "cmd",
    /// Its argument.
    Argument: "cmd_arg",
    /// Argument of `CMD23`, which goes before it.
    CountArgument: "sbc_arg",
    /// Its first sector. Kernels before 4.16 have none.
    Address: "blk_addr" | "addr",
    /// Blocks of data.
    Blocks: "blocks" | "size",
    /// Bytes of a block.
    BlockBytes: "blksz",
    /// Direction of the data.
    DataFlags: "data_flags",
    /// Which request it is: a number of no meaning.
    Request: "mrq",
    /// How often the command may still be given after a failure.
    Retries: "cmd_retries",
    /// Errors of a command, of those around it and of its data.
    CommandError: "cmd_err",
    /// Of the command that stops it.
    StopError: "stop_err",
    /// Of the one that counts its blocks.
    CountError: "sbc_err",
    /// Of its data.
    DataError: "data_err",
    /// Place in the controller's queue.
    Tag: "tag" | "driver_tag",
    /// First logical block of a SCSI command.
    Lba: "lba",
    /// Group number of a UFS command: since kernel 5.15, as the count in logical blocks is.
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
    /// The end of a SCSI command: its status in the low byte, the host's above it.
    Status: "result",
    /// Bytes of a UFS command.
    Bytes: "transfer_len" | "affected_bytes",
    /// Whether a UFS command begins or ends, as a number (since kernel 5.12).
    Step: "str_t",
    /// The same as a word; a text.
    Word: "str",
    /// The result of a system call.
    Result: "ret",
    /// Changes of metadata in a transaction.
    Handles: "handle_count",
    /// Blocks that a transaction wrote to the journal.
    JournalBlocks: "blocks_logged",
}

impl Slot {
    /// Whether it holds a text, not a number.
    #[inline]
    pub fn is_text(self) -> bool {
        matches!(self, Slot::Letters | Slot::Task | Slot::Host | Slot::Word | Slot::Cdb)
    }
}

/// The fields of one event.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    numbers: [i64; Slot::COUNT],
    letters: &'a [u8],
    task: &'a [u8],
    host: &'a [u8],
    word: &'a [u8],
    cdb: &'a [u8],
    given: u64,
}

impl Default for Values<'_> {
    #[inline]
    fn default() -> Self {
        Self { numbers: [0; Slot::COUNT], letters: &[], task: &[], host: &[], word: &[], cdb: &[], given: 0 }
    }
}

impl<'a> Values<'a> {
    /// Notes the number in a field.
    #[inline]
    pub fn set(&mut self, slot: Slot, number: i64) {
        self.numbers[slot as usize] = number;
        self.given |= 1 << slot as u64;
    }

    /// Notes the text in a field; of one that holds a number, nothing.
    #[inline]
    pub fn set_text(&mut self, slot: Slot, text: &'a [u8]) {
        let place = match slot {
            Slot::Letters => &mut self.letters,
            Slot::Task => &mut self.task,
            Slot::Host => &mut self.host,
            Slot::Word => &mut self.word,
            Slot::Cdb => &mut self.cdb,
            _ => return,
        };
        *place = text;
        self.given |= 1 << slot as u64;
    }

    /// Whether the event has this field.
    #[inline]
    pub fn has(&self, slot: Slot) -> bool {
        self.given & 1 << slot as u64 != 0
    }

    /// The number; 0 if there is none.
    #[inline]
    pub fn number(&self, slot: Slot) -> i64 {
        self.numbers[slot as usize]
    }

    /// The text; empty if there is none.
    #[inline]
    pub fn text(&self, slot: Slot) -> &'a [u8] {
        match slot {
            Slot::Letters => self.letters,
            Slot::Task => self.task,
            Slot::Host => self.host,
            Slot::Word => self.word,
            Slot::Cdb => self.cdb,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_known_by_the_kernels_names() {
        assert_eq!(Slot::by_name(b"affected_bytes"), Some(Slot::Bytes));
        assert_eq!(Slot::by_name(b"cmd_flags"), None);
        const { assert!(Slot::COUNT <= u64::BITS as usize) };
    }
}
