//! Tests of the FTL and the flash without controller and commands.

use emmclab_base::{CommandFlags, Nanos, Op};
use proptest::prelude::*;

use super::Ftl;
use super::request_state::{AcceptedRequest, RequestState};
use super::write::RequestSectors;
use crate::events::{NullObserver, Observer, PageProgrammed};
use crate::geometry::Geometry;
use crate::ids::Lpn;
use crate::load::DeviceConfig;
use crate::nand::Nand;

fn small(settings: &[(&str, &str)]) -> (Ftl, Nand) {
    let mut config = DeviceConfig::preset("small-1gb").unwrap();
    let base = [("geometry.block_groups.0.blocks", "12"), ("geometry.block_groups.0.pages_per_block", "16")];
    config.set_all(&[&base, settings].concat()).unwrap();
    new(&config)
}

fn new(config: &DeviceConfig) -> (Ftl, Nand) {
    let geometry = Geometry::new(config.settings());
    let nand = Nand::new(config.settings(), &geometry);
    (Ftl::new(config.settings(), &geometry, &nand), nand)
}

pub(crate) fn core() -> super::FtlCore {
    small(&[]).0.core
}

/// Creates the shared part of the FTL for a new device with these settings.
pub(crate) fn core_of(config: &DeviceConfig) -> super::FtlCore {
    new(config).0.core
}

fn request(op: Op, sector: u64, sectors: u32, at: Nanos) -> RequestState {
    RequestState::new(AcceptedRequest {
        id: 0,
        op,
        modifiers: CommandFlags::empty(),
        sector,
        sectors,
        arrival: at,
        fetch: Nanos::ZERO,
        start: at,
        queue_limited: false,
    })
}

fn write(ftl: &mut Ftl, nand: &mut Nand, unit: u32, at: Nanos, log: &mut impl Observer) -> Nanos {
    let sector = u64::from(unit) * 8;
    let mut request = request(Op::Write, sector, 8, at);
    ftl.write(nand, &mut request, RequestSectors::new(sector, 8), log);
    request.event.complete
}

#[test]
fn a_write_takes_a_program_and_a_read_finds_it() {
    let (mut ftl, mut nand) = small(&[]);
    let written = write(&mut ftl, &mut nand, 5, Nanos::ZERO, &mut NullObserver);
    let ppn = ftl.core.tables.lookup(Lpn(5)).unwrap();
    let block = ftl.core.geometry.block_of(ppn);
    assert_eq!((nand.next_page(block), ftl.core.tables.valid(block)), (1, 1));
    let mut read = request(Op::Read, 40, 8, written);
    ftl.look_up(&mut nand, &mut read, (Lpn(5), 1), &mut NullObserver);
    ftl.core.read_units(&mut nand, &mut read, RequestSectors::new(40, 8), (Lpn(5), Lpn(6)), &mut NullObserver);
    assert!(read.event.complete > written && read.event.subrequests == 1);
    ftl.discard(&mut nand, (Lpn(5), 1), read.event.complete, &mut NullObserver);
    assert_eq!((ftl.core.tables.lookup(Lpn(5)), ftl.core.tables.valid(block)), (None, 0));
}

/// An observer that counts programmed pages and the units in them.
#[derive(Default)]
struct Pages(u32, usize);

impl Observer for Pages {
    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        self.0 += event.pages;
        self.1 += event.units.len();
    }
}

proptest! {
    #[test]
    fn every_page_that_is_programmed_is_committed(
        writes in prop::collection::vec(any::<u32>(), 1..600),
        policy in prop::sample::select(vec!["greedy", "cat", "fifo"]),
    ) {
        let (mut ftl, mut nand) = small(&[("gc.policy", policy)]);
        let (units, mut at, mut pages) = (ftl.core.geometry.logical_units, Nanos::ZERO, Pages::default());
        for unit in writes {
            at = write(&mut ftl, &mut nand, unit % units, at, &mut pages);
        }
        prop_assert_eq!(ftl.core.stop, None);
        prop_assert_eq!(u64::from(pages.0), ftl.core.tables.programs);
        // Each page contains a single unit, for host data and for moved data.
        prop_assert_eq!(pages.0 as usize, pages.1);
    }
}
