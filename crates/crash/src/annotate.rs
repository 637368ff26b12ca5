//! Determines for each written block of a crash log which role it has in the ext4 file system on the disk.

use std::sync::Arc;

use emmclab_base::{BlockNote, BlockRole, Error, Op, Result, SECTOR_BYTES};
use emmclab_ext4::{Annotator, AnnotatorStatus};
use emmclab_layers::build_stack;
use rustc_hash::FxHashSet;

use crate::disk_contents::BLOCK;
use crate::disk_contents::CrashDiskView;
use crate::log::CommandPort;
use crate::log_index::SectorSource;
use crate::log_index::{CrashLogIndex, LoggedCommand};
use crate::recovery::HostView;

/// Calls `visit` with each command at a port (above the layers or at the device), in order of arrival, and with notes on the roles of its
/// blocks. Only writes have notes.
///
/// The file system is the one that is on the disk at the beginning of the log, or one that is created later. Returns how completely the
/// file system was known at the end.
/// Errors: if the data of the log cannot be read, or the layers cannot be built.
pub fn annotate(
    run: &Arc<CrashLogIndex>, port: CommandPort, mut visit: impl FnMut(&LoggedCommand, &[BlockNote]),
) -> Result<AnnotatorStatus> {
    let header = run.header();
    // Without layers, the commands that the host sends are those that the device receives.
    let port = if header.layers.is_empty() { CommandPort::Device } else { port };
    let (layers, sectors) = match port {
        CommandPort::Device => (&[][..], header.device.sectors),
        CommandPort::Host => (&header.layers[..], header.sectors),
    };
    let base = CrashDiskView::new(run, run.base(), &Arc::default(), header.all_sectors());
    let mut annotator = Annotator::new();
    annotator.attach(&HostView::recover(base, (layers, &header.below()), sectors, None)?.map_err(fail)?)?;
    let (mut sources, mut data, mut notes): (Vec<SectorSource>, Vec<u8>, Vec<BlockNote>) = Default::default();
    for logged in run.commands(port) {
        let command = &logged.command;
        notes.clear();
        match command.op {
            Op::Write => {
                sources.clear();
                sources.extend((command.sector..logged.end()).map(|sector| logged.source_of(sector)));
                data.resize(sources.len() * SECTOR_BYTES as usize, 0);
                run.spool().read(&sources, &mut data).map_err(fail)?;
                annotator.write(command.sector, &data, &mut notes);
            }
            Op::Discard | Op::SecureErase => annotator.discard(command.sector, command.sectors.into()),
            Op::Read | Op::Flush => {}
        }
        visit(logged, &notes);
    }
    Ok(annotator.status())
}

/// Returns the blocks of 4 KiB that contain metadata or belong to a journal at any time of the run. The set is empty if no layer recognises
/// the journal.
///
/// For these blocks, a layer that recognises the journal need not keep the promises of a disk; it suffices that the file system recovers
/// correctly. The set is computed once for each run.
/// Errors: as [`annotate`].
pub(crate) fn metadata_blocks(run: &Arc<CrashLogIndex>) -> Result<Arc<FxHashSet<u64>>> {
    if let Some(blocks) = run.metadata_blocks().get() {
        return Ok(blocks.clone());
    }
    let header = run.header();
    let layers = build_stack(&header.layers, &header.below())?;
    let mut blocks = FxHashSet::default();
    if layers.first().is_some_and(|layer| layer.reads_notes()) {
        annotate(run, CommandPort::Host, |logged, notes| {
            let mut sector = logged.command.sector;
            for note in notes {
                let end = sector + u64::from(note.sectors);
                if note.role != BlockRole::Data {
                    blocks.extend(sector / BLOCK..end.div_ceil(BLOCK));
                }
                sector = end;
            }
        })?;
    }
    Ok(run.metadata_blocks().get_or_init(|| Arc::new(blocks)).clone())
}

fn fail(error: std::io::Error) -> Error {
    Error::io(&std::env::temp_dir(), error)
}
