//! Parses the fields in the text of an event of the MMC or UFS driver or of a file system. Source: `TP_printk` of the events in the
//! kernel's `include/trace/events/mmc.h`, `ufs.h`, `ext4.h`, `f2fs.h` and `jbd2.h`.
//!
//! The forms are `name=value`, `name = value`, `name: value` or `name value`, with or without commas. Most names in the text are equal to
//! the field names of the event.

use crate::formats::fields::unsigned;
use crate::{BlockEventKind, Error, ErrorClass, EventField, EventFieldValues, KernelEvent, Result, dev_t_label};

pub(super) fn values(event: KernelEvent, payload: &[u8]) -> EventFieldValues<'_> {
    let mut values = EventFieldValues::default();
    match event {
        // Example: `mmc0: start struct mmc_request[00000000c6e80531]: cmd_opcode=18 ...`
        KernelEvent::MmcStart | KernelEvent::MmcDone => {
            values.set_text(EventField::Host, until_colon(payload).0);
        }
        // Example: `send_req: 1d84000.ufshc: tag: 3, ...`
        KernelEvent::Ufs | KernelEvent::UfsLink => {
            let (word, rest) = until_colon(payload);
            values.set_text(EventField::Word, word);
            values.set_text(EventField::Host, until_colon(rest).0);
        }
        _ => {}
    }
    let mut words = words(payload).peekable();
    while let Some(name) = words.next() {
        let Some(value) = words.peek() else { break };
        if event.is_scsi() && scsi_word(&mut values, name, value) {
            words.next();
        } else if name == b"mmc_request" {
            if let Some(number) = number(value, 16) {
                values.set(EventField::Request, number);
            }
        } else if let Some(slot) = slot(event, name)
            && let Some(mut number) = number(value, 10)
        {
            words.next();
            if slot == EventField::Device {
                let Some(device) = words.peek().and_then(|minor| dev_t(number, minor)) else { continue };
                number = device;
            }
            values.set(slot, number);
        }
    }
    values
}

/// Whether the text seems complete: it contains the last field that the event has in all kernels.
pub(super) fn is_whole(event: KernelEvent, payload: &[u8]) -> bool {
    let last: &[u8] = match event {
        KernelEvent::MmcStart | KernelEvent::MmcDone => b"retune_period=",
        KernelEvent::Ufs => b"opcode",
        _ => return true,
    };
    memchr::memmem::rfind(payload, last).is_some()
}

/// The texts before and after the first `: `.
fn until_colon(text: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memmem::find(text, b": ") {
        Some(end) => (&text[..end], &text[end + 2..]),
        None => (text, &[]),
    }
}

/// The names and values in the text, in order.
fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let between = |byte: &u8| matches!(byte, b' ' | b'\t' | b'=' | b':' | b',' | b'(' | b')' | b'[' | b']');
    text.split(between).filter(|word| !word.is_empty())
}

/// Parses a field of a SCSI command with a special form, such as `raw=28 00 ...` and `host=DID_OK ... status=SAM_STAT_GOOD`;
/// returns false for other fields.
fn scsi_word(values: &mut EventFieldValues, name: &[u8], value: &[u8]) -> bool {
    let status = values.number(EventField::Status);
    match name {
        b"raw" => {
            if let Some(opcode) = number(value, 16) {
                values.set(EventField::Opcode, opcode);
            }
        }
        b"host" => values.set(EventField::Status, status | i64::from(value != b"DID_OK") << 16),
        b"status" => values.set(EventField::Status, status | i64::from(value != b"SAM_STAT_GOOD")),
        b"txlen" => {
            if let Some(blocks) = number(value, 10) {
                values.set(EventField::Blocks, blocks);
            }
        }
        _ => return false,
    }
    true
}

/// The field that a name in the text means; the name may differ from the kernel's name of the field.
fn slot(event: KernelEvent, name: &[u8]) -> Option<EventField> {
    match (event, name) {
        (KernelEvent::MmcStart, b"block_size") => Some(EventField::BlockBytes),
        (KernelEvent::Ufs, b"size") => Some(EventField::Bytes),
        (KernelEvent::Ufs, b"LBA") => Some(EventField::Lba),
        (_, name) => EventField::by_name(name).filter(|slot| !slot.is_text()),
    }
}

/// Parses a number with an optional sign, in this base, or in base 16 after `0x`.
fn number(word: &[u8], base: u32) -> Option<i64> {
    let word = std::str::from_utf8(word).ok()?;
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok().map(u64::cast_signed),
        None if base == 16 => u64::from_str_radix(word, 16).ok().map(u64::cast_signed),
        None => word.parse().ok(),
    }
}

fn dev_t(major: i64, minor: &[u8]) -> Option<i64> {
    let minor = number(minor, 10)?;
    ((0..1 << 12).contains(&major) && (0..1 << 20).contains(&minor)).then_some(major << 20 | minor)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct NamedBlockEvent<'a> {
    pub kind: BlockEventKind,
    pub device: String,
    pub rwbs: &'a [u8],
    pub sector: u64,
    pub sectors: u32,
}

impl<'a> NamedBlockEvent<'a> {
    /// Parses fields by name; `None` if the text does not have this form.
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
        let missing = |name: &str| Error::new(ErrorClass::Syntax, "the line of the event lacks this field").in_field(name);
        let device = device.ok_or_else(|| missing("dev"))?;
        let device = u32::try_from(device).map_err(|_| {
            Error::new(ErrorClass::Value, "a device number must be below 2^32").of_field("dev", 0, device.to_string().as_bytes())
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
                Error::new(ErrorClass::Value, "the request exceeds 2 TB").of_field("nr_sector", 0, sectors.to_string().as_bytes())
            })?,
        })
    }
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use crate::events::{CommandEvent, CommandKind, CommandStep, CommandTarget, DecodedEvent, EraseKind, FsEvent, FsStep};
    use crate::name_table::{fixed, unfilled};

    use super::*;

    fn read(name: &str, payload: &str) -> Option<DecodedEvent> {
        let event = KernelEvent::by_name(name.as_bytes()).unwrap();
        DecodedEvent::read(event, 7, &values(event, payload.as_bytes()))
    }

    fn file(system: &'static str, minor: u32, step: FsStep) -> Option<DecodedEvent> {
        Some(DecodedEvent::File(FsEvent { system, device: 179 << 20 | minor, pid: 7, step }))
    }

    fn command(host: &str, id: u64, step: CommandStep) -> Option<DecodedEvent> {
        Some(DecodedEvent::Command(CommandEvent { host: fixed(host.as_bytes()), id, step }))
    }

    fn start(kind: CommandKind, bytes: u64, target: CommandTarget) -> CommandStep {
        CommandStep::Start { kind, bytes, target, packed: false, reliable: false }
    }

    const DONE: CommandStep = CommandStep::Done { failed: false, will_be_repeated: false };

    #[test]
    fn waits_and_commits_are_read_as_ext4_f2fs_and_jbd2_print_them() {
        let begin = FsStep::SyncBegin;
        let end = |failed| FsStep::SyncEnd { failed };
        assert_eq!(read("ext4_sync_file_enter", "dev 179,1 ino 13 parent 2 datasync 0 "), file("ext4", 1, begin));
        assert_eq!(read("ext4_sync_file_exit", "dev 179,1 ino 13 ret -5"), file("ext4", 1, end(true)));
        let enter = "dev = (179,2), ino = 5, pino = 3, i_mode = 0x81a4, i_size = 81920, i_nlink = 1, i_blocks = 160";
        assert_eq!(read("f2fs_sync_file_enter", enter), file("f2fs", 2, begin));
        // The payload of `f2fs_sync_file_exit` as kernels 3.10, 4.19 and 6.12 print it.
        for payload in [
            "dev = (179,2), ino = 5, checkpoint is not needed, datasync = 0, ret = 0",
            "dev = (179,2), ino = 5, cp_reason: no needed, datasync = 0, ret = 0",
            "dev = (179,2), ino = 5, cp_reason: no needed, datasync = 0, ret = 0 ",
        ] {
            assert_eq!(read("f2fs_sync_file_exit", payload), file("f2fs", 2, end(false)), "{payload}");
        }
        let stats = "dev 179,1 tid 3 wait 0 request_delay 0 running 16 locked 0 flushing 0 logging 4 handle_count 3 blocks 6 \
                     blocks_logged 8";
        assert_eq!(read("jbd2_run_stats", stats), file("jbd2", 1, FsStep::Commit { handles: 3, blocks: 8 }));
    }

    #[test]
    fn commands_are_read_as_every_kernel_prints_them() {
        let payload = "mmc0: start struct mmc_request[00000000c6e80531]: cmd_opcode=25 cmd_arg=0x100400 cmd_flags=0xb5 cmd_retries=0 \
                       sbc_opcode=23 sbc_arg=0x80000008 sbc_flags=0x15 sbc_retires=0 blocks=8 block_size=512 blk_addr=2050 \
                       data_flags=0x100 tag=50";
        let step = CommandStep::Start {
            kind: CommandKind::Write,
            bytes: 4096,
            target: CommandTarget::Sectors { first: 2050, count: 8 },
            packed: false,
            reliable: true,
        };
        assert_eq!(read("mmc_request_start", payload), command("mmc0", 0xc6e8_0531, step));
        let payload = "mmc0: end struct mmc_request[00000000c6e80531]: cmd_opcode=25 cmd_err=-110 cmd_resp=0x900 0x0 0x0 0x0 \
                       cmd_retries=2 data_err=0";
        let failed = CommandStep::Done { failed: true, will_be_repeated: true };
        assert_eq!(read("mmc_request_done", payload), command("mmc0", 0xc6e8_0531, failed));
        // The format of Android kernels up to 4.9, in which `addr` and `size` are in sectors.
        let at = 0x30_2010;
        assert_eq!(
            read("mmc_blk_rw_start", "cmd=18,addr=0x00302010,size=0x00000040"),
            command("mmc", at, start(CommandKind::Read, 0x40 * 512, CommandTarget::Sectors { first: at, count: 0x40 }))
        );
        assert_eq!(read("mmc_blk_rw_end", "cmd=18,addr=0x00302010,size=0x00000040"), command("mmc", at, DONE));
        let erase = EraseKind { secure: false, second_step: false };
        let erased = CommandTarget::Erased { first: at, count: 0x40, erase };
        assert_eq!(
            read("mmc_blk_erase_start", "cmd=1,addr=0x00302010,size=0x00000040"),
            command("mmc", 1 << 32 | at, start(CommandKind::Discard, 0, erased))
        );
        // UFS events as kernels 4.19, 5.15 and 6.16 print them; the last one contains the disk instead of the host controller.
        for (payload, host, step) in [
            (
                "send: 624000.ufshc: tag: 3, DB: 0x8, size: 4096, IS: 0, LBA: 8, opcode: 0x2a",
                "624000.ufshc",
                start(CommandKind::Write, 4096, CommandTarget::Blocks { first: 8, count: None, is_recent: false }),
            ),
            (
                "send_req: 1d84000.ufshc: tag: 3, DB: 0x0, size: 4096, IS: 0, LBA: 8, opcode: 0x28 (READ_10), group_id: 0x0",
                "1d84000.ufshc",
                start(CommandKind::Read, 4096, CommandTarget::Blocks { first: 8, count: None, is_recent: true }),
            ),
            (
                "complete_rsp: 1d84000.ufshc: tag: 3, DB: 0x0, size: 4096, IS: 0, LBA: 8, opcode: 0x2a (WRITE_10), group_id: 0x0",
                "1d84000.ufshc",
                DONE,
            ),
            (
                "send_req: 0:0:0:49488: tag: 3, DB: 0x0, size: -1, IS: 0, LBA: 0, opcode: 0x35 (SYNC), group_id: 0x0, hwq_id: 2",
                "ufs",
                start(CommandKind::Flush, 0, CommandTarget::Nowhere),
            ),
        ] {
            assert_eq!(read("ufshcd_command", payload), command(host, 3, step), "{payload}");
        }
        // Events of the UFS link as kernels 4.19 and 6.12 print them; the event at the end has no opcode.
        for (payload, host, step) in [
            (
                "send: 624000.ufshc: cmd: 0x17, arg1: 0x0, arg2: 0x0, arg3: 0x0",
                "624000.ufshc",
                start(CommandKind::Hibernate, 0, CommandTarget::Nowhere),
            ),
            (
                "send_req: 0000:00:03.0: cmd: 0x18, arg1: 0x0, arg2: 0x0, arg3: 0x0",
                "0000:00:03.0",
                start(CommandKind::WakeUp, 0, CommandTarget::Nowhere),
            ),
            ("complete_rsp: 0000:00:03.0: cmd: 0x0, arg1: 0x0, arg2: 0x0, arg3: 0x0", "0000:00:03.0", DONE),
        ] {
            assert_eq!(read("ufshcd_uic_command", payload), command(host, 1 << 32, step), "{payload}");
        }
    }

    #[test]
    fn what_lacks_a_field_says_nothing() {
        for (name, payload) in [
            ("ext4_sync_file_exit", "dev 179,1 ino 13"),
            ("ext4_sync_file_exit", "dev 99999,1 ret 0"),
            ("ext4_sync_file_exit", "dev 179"),
            ("jbd2_run_stats", ""),
            ("mmc_request_start", "mmc0: start struct mmc_request[(ptrval)]: cmd_opcode=x"),
            ("ufshcd_command", "tag: 99999999999999999999"),
        ] {
            assert_eq!(read(name, payload), None, "{payload}");
        }
        let done = read("mmc_request_done", "mmc1: end struct mmc_request[(____ptrval____)]: cmd_opcode=18 cmd_err=0");
        let Some(DecodedEvent::Command(done)) = done else { panic!("{done:?}") };
        assert_eq!((unfilled(&done.host), done.id), (&b"mmc1"[..], 0));
    }

    #[test]
    fn fields_are_found_by_name() {
        let text = b"dev: 8388608, sector: 2048, nr_sector: 8, bytes: 4096, rwbs: \"WS\", comm: \"a, b\", cmd: \"\"";
        let named = NamedBlockEvent::read(BlockEventKind::Issue, text).unwrap().unwrap();
        assert_eq!((named.device.as_str(), named.rwbs, named.sector, named.sectors), ("8,0", &b"WS"[..], 2048, 8));
        let text = b"dev: 8388608, sector: 8, new_sector: 12, rwbs: \"R\"";
        assert_eq!(NamedBlockEvent::read(BlockEventKind::Split(0), text).unwrap().unwrap().kind, BlockEventKind::Split(12));
        assert_eq!(NamedBlockEvent::read(BlockEventKind::Issue, b"8,0 W 0 () 8 + 8 [x]").unwrap(), None);
        assert!(NamedBlockEvent::read(BlockEventKind::Issue, b"dev: 8388608, sector: 2048").is_err());
    }
}
