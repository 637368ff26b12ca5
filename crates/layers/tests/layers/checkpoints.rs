//! A checkpoint limits what recovery reads, and recovery works without a damaged checkpoint.

use std::cell::Cell;
use std::rc::Rc;

use crate::support::{MemDisk, SECTOR, stamp, started, version};
use emmclab_base::{CommandFlags, Op};
use emmclab_layers::{DisksBelow, ImmediateStack, LayerConfig, SectorDisk, build_stack};

const BELOW: DisksBelow = DisksBelow::new(1 << 15, Some(1 << 14));

/// A disk that counts the sectors that are read.
struct Counting {
    disk: MemDisk,
    read: Rc<Cell<usize>>,
}

impl SectorDisk for Counting {
    fn read(&mut self, sector: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.read.set(self.read.get() + buffer.len() / SECTOR);
        self.disk.read(sector, buffer)
    }

    fn write(&mut self, sector: u64, data: &[u8], modifiers: CommandFlags) -> std::io::Result<()> {
        self.disk.write(sector, data, modifiers)
    }

    fn discard(&mut self, sector: u64, sectors: u32, secure: bool) -> std::io::Result<()> {
        self.disk.discard(sector, sectors, secure)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A reserved area of 8 MB on the second device.
fn config(checkpoint: &str) -> LayerConfig {
    LayerConfig::named("advil")
        .with("reserved", "8MB")
        .with("second_device", "true")
        .with("clustered_page", "8KB")
        .with("clustered_block", "64KB")
        .with("recovery", "true")
        .with("checkpoint", checkpoint)
}

/// Returns the disks after `writes` small writes, and the expected contents of each sector.
fn filled(checkpoint: &str, writes: u64) -> (Vec<MemDisk>, Vec<u64>) {
    let mut executor = started(&[config(checkpoint)], &BELOW);
    let mut model = vec![0; BELOW.main as usize];
    for clock in 1..=writes {
        let sector = clock * 7919 % (BELOW.main / 8) * 8;
        let mut data = vec![0; 8 * SECTOR];
        stamp(sector, clock, &mut data);
        model[sector as usize..][..8].fill(clock);
        executor.submit(Op::Write, sector, &mut data).unwrap();
        executor.background(0).unwrap();
    }
    executor.submit_bare(Op::Flush, 0, 0).unwrap();
    (executor.into_disks(), model)
}

/// Recovers the layer and checks all contents. Returns the number of sectors that recovery reads.
fn recovered(checkpoint: &str, disks: Vec<MemDisk>, model: &[u64]) -> usize {
    let read = Rc::new(Cell::new(0));
    let disks = disks.into_iter().map(|disk| Counting { disk, read: read.clone() }).collect();
    let layers = build_stack(&[config(checkpoint)], &BELOW).unwrap();
    let mut executor = ImmediateStack::start(layers, disks, true).unwrap();
    let took = read.get();
    let mut data = vec![0; BELOW.main as usize * SECTOR];
    executor.submit(Op::Read, 0, &mut data).unwrap();
    for (i, part) in data.chunks(SECTOR).enumerate() {
        assert_eq!(version(i as u64, part), Some(model[i]), "sector {i}");
    }
    took
}

#[test]
fn recovery_reads_the_checkpoint_and_two_intervals_of_log_at_most() {
    for writes in [50, 400, 790, 1500] {
        let (disks, model) = filled("0", writes);
        assert!(recovered("0", disks, &model) > 8000, "half of the reserved area at least");
        let (disks, model) = filled("128KB", writes);
        let read = recovered("128KB", disks, &model);
        // Two checkpoints of up to 64 KB, 256 KB of log after the checkpoint, the hot region of a new section, and heads.
        let hot = 8192 * 70 / 100;
        assert!(read <= 4 * 128 + 2 * 512 + hot, "{read} sectors after {writes} writes");
    }
}

#[test]
fn damaged_checkpoints_are_passed_over() {
    // The checkpoint slots follow the first 4 KB and have 64 KB each.
    let places = [8..8 + 128, 136..136 + 128];
    for damaged in [&places[..1], &places[1..], &places[..]] {
        for at in [0, 60, 600] {
            let (mut disks, model) = filled("128KB", 700);
            for place in damaged {
                disks[1].data[place.start * SECTOR + at] ^= 4;
            }
            recovered("128KB", disks, &model);
        }
    }
}
