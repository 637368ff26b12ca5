//! Advil follows the rules of the paper, as its plans show.

use emmclab_base::{ByteSize, CommandFlags, Op};
use emmclab_layers::{
    Advil, AdvilSettings, BackgroundDecision, CommandPlan, DeferReason, DisksBelow, HostRequest, HotPolicy, InFlightRequests,
    InvalidationMeasure, Layer, PlanStep, RequestDecision,
};

/// The areas of the paper: 12 GB, and 256 MB on the card.
const BELOW: DisksBelow = DisksBelow::new(12 << 21, Some(512 << 11));

/// Smaller areas: 2 GB, and 64 MB on the card.
const SMALL: DisksBelow = DisksBelow::new(1 << 22, Some(64 << 11));

fn settings() -> AdvilSettings {
    AdvilSettings { second_device: true, hot: HotPolicy::None, ..AdvilSettings::default() }
}

/// Settings of sections of 8 MB: each has a hot region of 30 %.
fn small(hot: HotPolicy) -> AdvilSettings {
    AdvilSettings { reserved: ByteSize::mb(16), hot, ..settings() }
}

/// A layer and the number of its next request.
struct Host {
    advil: Advil,
    id: u64,
}

type Commands = Vec<(u8, Op, u64, u32)>;

fn commands(plan: &CommandPlan) -> Commands {
    let command = |step: &PlanStep| match step {
        PlanStep::Command(command) => Some((command.disk, command.op, command.sector, command.sectors)),
        PlanStep::Wait | PlanStep::Copy(_) => None,
    };
    plan.steps().iter().filter_map(command).collect()
}

impl Host {
    fn new(settings: &AdvilSettings, below: &DisksBelow) -> Self {
        Self { advil: Advil::new("advil", settings, below).unwrap(), id: 0 }
    }

    fn ask(&mut self, op: Op, sector: u64, sectors: u32) -> Result<Commands, DeferReason> {
        let mut plan = CommandPlan::default();
        self.id += 1;
        let request = HostRequest { id: self.id, op, sector, sectors, modifiers: CommandFlags::empty() };
        match self.advil.request(&request, &[], &mut plan) {
            RequestDecision::Run => Ok(commands(&plan)),
            RequestDecision::Defer(reason) => Err(reason),
        }
    }

    fn write(&mut self, sector: u64, sectors: u32) -> Commands {
        self.ask(Op::Write, sector, sectors).unwrap()
    }

    fn work(&mut self) -> Option<Commands> {
        let mut plan = CommandPlan::default();
        let work = self.advil.background(&InFlightRequests::default(), &mut plan);
        (work == BackgroundDecision::Run).then(|| {
            self.advil.background_done();
            commands(&plan)
        })
    }

    fn count(&self, name: &str) -> u64 {
        self.advil.counters().iter().find(|(other, _)| *other == name).unwrap().1
    }
}

#[test]
fn small_writes_that_do_not_follow_are_logged_in_sequence() {
    let mut host = Host::new(&settings(), &BELOW);
    assert_eq!(host.write(1000, 8), [(1, Op::Write, 0, 8)]);
    assert_eq!(host.write(5000, 15), [(1, Op::Write, 8, 15)], "smaller than 8 KB");
    assert_eq!(host.write(9000, 16), [(0, Op::Write, 9000, 16)], "8 KB is not small");
    assert_eq!(host.write(9016, 8), [(0, Op::Write, 9016, 8)], "it follows");
    assert_eq!(host.write(1000, 8), [(1, Op::Write, 23, 8)], "logged again, not in place");
    host.ask(Op::Read, 300, 8).unwrap();
    assert_eq!(host.write(308, 8), [(0, Op::Write, 308, 8)], "it follows the read before it");
}

#[test]
fn reads_are_put_together_from_both_areas() {
    let mut host = Host::new(&settings(), &BELOW);
    host.write(1008, 8);
    host.write(1032, 8);
    host.write(1040 + 8, 8);
    assert_eq!(
        host.ask(Op::Read, 1000, 48).unwrap(),
        [(0, Op::Read, 1000, 8), (1, Op::Read, 0, 8), (0, Op::Read, 1016, 16), (1, Op::Read, 8, 8), (0, Op::Read, 1040, 8),]
    );
    // A large write over logged data invalidates the parts that it covers.
    host.write(1000, 36);
    assert_eq!(host.ask(Op::Read, 1000, 48).unwrap(), [(0, Op::Read, 1000, 36), (1, Op::Read, 12, 4), (0, Op::Read, 1040, 8)]);
    assert_eq!(host.count("voided_bytes"), 12 * 512);
}

/// Fills the log so that the previous section contains `writes`. Returns the host before the first step of the mover.
fn full_section(settings: &AdvilSettings, below: &DisksBelow, writes: &[u64]) -> Host {
    let mut host = Host::new(settings, below);
    for sector in writes {
        host.write(*sector, 8);
    }
    // The rest of the section is filled with writes to one place.
    let place = settings.clustered_block.sectors() * 5;
    while host.count("switches") == 0 {
        host.write(place, 8);
        host.write(3 * place, 15);
    }
    host
}

#[test]
fn page_padding_writes_whole_clustered_pages_as_in_figure_5() {
    // Data blocks 1, 2, 4, 5 and 7 of a clustered page of 8 are logged out of order.
    let writes = [32, 8, 56, 16, 40];
    let mut host = full_section(&settings(), &BELOW, &writes);
    let move_out = host.work().unwrap();
    assert_eq!(
        move_out,
        [
            // Reads of the holes 0, 3 and 6 with the data between them, reads of the log in the order of places, and one write of 32 KB.
            (0, Op::Read, 0, 56),
            (1, Op::Read, 0, 40),
            (0, Op::Write, 0, 64),
        ]
    );
    // Without padding: (1, 2), (4, 2) and (7, 1).
    let plain = AdvilSettings { page_padding: false, block_padding: false, ..settings() };
    let mut host = full_section(&plain, &BELOW, &writes);
    let out: Vec<_> = host.work().unwrap().into_iter().filter(|command| command.1 == Op::Write).collect();
    assert_eq!(out, [(0, Op::Write, 8, 16), (0, Op::Write, 32, 16), (0, Op::Write, 56, 8)]);
}

#[test]
fn holes_are_read_at_once_where_no_more_lies_between_them_than_read_through() {
    for (read_through, reads) in [
        (Some(ByteSize::kb(8)), vec![(0, 56)]),
        (Some(ByteSize::kb(4)), vec![(0, 8), (24, 8), (48, 8)]),
        (Some(ByteSize(0)), vec![(0, 8), (24, 8), (48, 8)]),
        (None, vec![(0, 56)]),
    ] {
        let through = AdvilSettings { read_through, ..settings() };
        let mut host = full_section(&through, &BELOW, &[32, 8, 56, 16, 40]);
        let is_hole = |command: &&(u8, Op, u64, u32)| (command.0, command.1) == (0, Op::Read);
        let out = host.work().unwrap();
        let holes: Vec<_> = out.iter().filter(is_hole).map(|command| (command.2, command.3)).collect();
        assert_eq!(holes, reads);
        assert_eq!(host.count("padded_bytes"), 3 * 4096, "what lies between is logged already");
        assert_eq!(host.count("read_through_bytes"), if reads.len() == 1 { 4 * 4096 } else { 0 });
    }
}

#[test]
fn a_block_is_filled_when_more_than_64_of_its_clustered_pages_are_dirty() {
    for (dirty, whole) in [(64_u64, false), (65, true)] {
        let writes: Vec<u64> = (0..dirty).map(|i| i * 64 + 8).collect();
        let mut host = full_section(&settings(), &BELOW, &writes);
        let out: Vec<_> = host.work().unwrap().into_iter().filter(|command| command.1 == Op::Write).collect();
        let sectors = if whole { 8192 } else { 64 * 64 };
        assert_eq!(out, [(0, Op::Write, 0, sectors)]);
        assert_eq!(host.count("filled_blocks"), u64::from(whole));
    }
}

#[test]
fn blocks_are_moved_in_ascending_order_whatever_the_order_of_writes() {
    let block = 8192;
    let writes = [block * 4 + 8, 80, block * 2, block * 3 + 640, 640];
    let mut host = full_section(&settings(), &BELOW, &writes);
    let mut written = Vec::new();
    while let Some(commands) = host.work() {
        written.extend(commands.into_iter().filter(|command| command.1 == Op::Write).map(|command| command.2));
    }
    assert!(written.is_sorted(), "{written:?}");
    assert_eq!(written[..5], [64, 640, block * 2, block * 3 + 640, block * 4]);
}

#[test]
fn without_room_a_write_is_held_until_the_mover_is_done() {
    let below = DisksBelow::new(1 << 20, Some(32 << 11));
    let mut host = Host::new(&small(HotPolicy::None), &below);
    let (sector, held) =
        (64..).step_by(64).map(|sector| (sector, host.ask(Op::Write, sector, 8))).find(|(_, done)| done.is_err()).unwrap();
    assert_eq!(held, Err(DeferReason::Full));
    assert_eq!(host.count("logged_writes"), 2 * 2048);
    while host.work().is_some() {}
    assert!(host.ask(Op::Write, sector, 8).is_ok());
}

#[test]
fn a_write_to_what_is_being_moved_waits_and_a_small_one_is_logged() {
    let mut host = full_section(&settings(), &BELOW, &[8]);
    let mut plan = CommandPlan::default();
    assert_eq!(host.advil.background(&InFlightRequests::default(), &mut plan), BackgroundDecision::Run);
    assert_eq!(host.ask(Op::Write, 64, 64), Err(DeferReason::Overlap));
    assert!(host.ask(Op::Write, 16, 8).is_ok());
    assert_eq!(host.ask(Op::Read, 8, 8).unwrap(), [(1, Op::Read, 0, 8)], "still found where it was");
    host.advil.background_done();
    assert!(host.ask(Op::Write, 64, 64).is_ok());
    assert_eq!(host.ask(Op::Read, 8, 8).unwrap(), [(0, Op::Read, 8, 8)], "and now at home");
}

#[test]
fn the_mover_waits_for_requests_that_write_where_it_would() {
    let mut host = full_section(&settings(), &BELOW, &[8]);
    let mut in_flight = InFlightRequests::default();
    in_flight.insert(&HostRequest { id: 1, op: Op::Write, sector: 8191, sectors: 8, modifiers: CommandFlags::empty() });
    let mut plan = CommandPlan::default();
    assert_eq!(host.advil.background(&in_flight, &mut plan), BackgroundDecision::Later);
    in_flight.remove(1);
    assert_eq!(host.advil.background(&in_flight, &mut plan), BackgroundDecision::Run);
}

/// Writes 4 KB each at the sectors that `write` returns, until a section is full.
fn with_full_section(settings: &AdvilSettings, write: impl Fn(u64) -> u64) -> Host {
    let mut host = Host::new(settings, &SMALL);
    let mut written = 0;
    while host.count("switches") == 0 {
        host.write(write(written), 8);
        written += 1;
    }
    host
}

/// Returns the size of the hot region in percent after one full section, and the number of clustered pages copied to the other section.
fn hot_region_after(settings: &AdvilSettings, write: impl Fn(u64) -> u64) -> (u64, u64) {
    let mut host = with_full_section(settings, write);
    while host.work().is_some() {}
    (host.count("hot_region_pct"), host.count("hot_pages"))
}

#[test]
fn the_hottest_pages_stay_and_the_hot_region_follows_the_invalidated_ones() {
    // A log of 1,433 writes of 4 KB, and a hot region of 30 %, or 76 clustered pages.
    let mut host = with_full_section(&small(HotPolicy::Paper), |written| {
        // Pages 0 to 99 are written four times as often as others.
        let page = if written % 5 < 4 { written % 100 } else { 1000 + written };
        page * 64 + (written % 8) * 8
    });
    assert_eq!(host.count("hot_region_pct"), 32, "100 pages were invalidated, more than 76");
    let copy = host.work().unwrap();
    let (_, op, place, _) = copy[copy.len() - 1];
    assert_eq!((op, place), (Op::Write, 16384), "to the start of the other section");
    // Without repeated writes, the region shrinks.
    let mut host = Host::new(&small(HotPolicy::Paper), &SMALL);
    let mut page = 0;
    while host.count("switches") < 3 {
        page += 7;
        if host.ask(Op::Write, (page * 64) % (1 << 21), 8).is_err() {
            while host.work().is_some() {}
        }
    }
    assert_eq!(host.count("hot_region_pct"), 24);
}

#[test]
fn invalidated_pages_and_the_hot_region_are_counted_in_whole_clustered_pages() {
    let settings = small(HotPolicy::Paper);
    assert_eq!(settings.hot_invalidated, InvalidationMeasure::Pages);
    // A section of 8 MB has 256 clustered pages, of which 30 % are 76. Of 700 pages, `twice` are written twice, 8 KB apart.
    for (twice, pct) in [(76, 28), (77, 32)] {
        let write = |i: u64| if i < 2 * twice { (i / 2) * 64 + (i % 2) * 16 } else { (i + 1000) * 64 };
        // The pages that stay occupy whole clustered pages of the region, although only 4 or 8 KB of each are logged.
        assert_eq!(hot_region_after(&settings, write), (pct, 256 * pct / 100));
    }
}

#[test]
fn invalidated_data_is_what_was_overwritten_and_fills_the_hot_region_by_its_bytes() {
    let settings = AdvilSettings { hot_invalidated: InvalidationMeasure::Data, ..small(HotPolicy::Paper) };
    // Writes to other parts of the same clustered pages overwrite no data, so the region shrinks.
    let apart = |i: u64| if i < 1000 { (i / 2) * 64 + (i % 2) * 16 } else { (i + 1000) * 64 };
    assert_eq!(hot_region_after(&settings, apart).0, 28);
    // 30 % of 8 MB are 614 writes of 4 KB.
    for (over, pct) in [(614, 28), (615, 32)] {
        let write = |i: u64| if i < 2 * over { (i / 2) * 64 } else { (i + 1000) * 64 };
        let (found, pages) = hot_region_after(&settings, write);
        assert_eq!(found, pct);
        // Only 4 KB of each page are logged, so more pages stay than with whole pages.
        assert_eq!(pages, 2048 * pct / 100);
    }
}

#[test]
fn a_step_of_0_keeps_the_size_of_the_hot_region() {
    let settings = AdvilSettings { hot_step_pct: 0, ..small(HotPolicy::Paper) };
    for stride in [1, 7] {
        assert_eq!(hot_region_after(&settings, |i| (i * stride % 40_000) * 64).0, 30);
    }
}

#[test]
fn the_other_policy_keeps_nothing_that_was_not_overwritten() {
    for (step, kept) in [(0, false), (1, true)] {
        let mut host = Host::new(&small(HotPolicy::Rewritten), &SMALL);
        for i in 0..4000_u64 {
            // Every page is written more than once; in the second case, some are written twice at the same address.
            let page = (i * 7) % 600;
            let part = if step == 1 && page < 50 { 0 } else { i / 600 };
            host.write(page * 64 + part * 8 % 64, 8);
        }
        while host.work().is_some() {}
        assert!(host.count("switches") > 0);
        assert_eq!(host.count("hot_pages") > 0, kept);
    }
}

#[test]
fn the_map_takes_no_more_than_the_paper_says() {
    // The memory is about 1 MB for 128 MB of reserved area.
    let mut host = Host::new(&settings(), &BELOW);
    for i in 0..60_000_u64 {
        if host.ask(Op::Write, (i * 7919 * 8) % (12 << 21), 8).is_err() {
            break;
        }
    }
    assert!(host.count("map_entries_most") > 55_000);
    assert!(host.count("memory_bytes") < 2 << 20, "{}", host.count("memory_bytes"));
}

#[test]
fn draining_moves_all_logged_data_home_and_then_ends() {
    for (hot, recovery) in
        [(HotPolicy::Paper, false), (HotPolicy::Paper, true), (HotPolicy::Rewritten, false), (HotPolicy::None, true)]
    {
        let mut host = Host::new(&AdvilSettings { recovery, ..small(hot) }, &SMALL);
        for i in 0..3000_u64 {
            while host.ask(Op::Write, (i * 7919 % 9000) * 64 % (1 << 22), 8).is_err() {
                host.work();
            }
        }
        host.advil.drain();
        while host.work().is_some() {}
        assert_eq!(host.count("map_entries"), 0, "{hot:?}, recovery {recovery}");
        let home = host.count("moved_bytes") + host.count("rewritten_bytes") + host.count("voided_bytes");
        assert_eq!(home, host.count("logged_bytes"), "hot copies are not moved twice");
        // Data that is written afterwards is logged again.
        host.write(64, 8);
        while host.work().is_some() {}
        assert_eq!(host.count("map_entries"), 1);
    }
}

#[test]
fn writes_of_the_mover_are_counted_by_their_size() {
    // A whole block, two clustered pages of another block, and 4 KB in the middle of a page without padding.
    let writes: Vec<u64> = (0..65).map(|i| i * 64 + 8).chain([8192 * 2 + 8, 8192 * 2 + 72]).collect();
    let mut host = full_section(&settings(), &BELOW, &writes);
    for _ in 0..2 {
        host.work().unwrap();
    }
    assert_eq!((host.count("move_block_writes"), host.count("move_block_bytes")), (1, 4 << 20));
    assert_eq!((host.count("move_page_writes"), host.count("move_page_bytes")), (1, 64 << 10));
    assert_eq!(host.count("move_other_writes"), 0);
    let plain = AdvilSettings { page_padding: false, block_padding: false, ..settings() };
    let mut host = full_section(&plain, &BELOW, &[8]);
    host.work().unwrap();
    assert_eq!((host.count("move_other_writes"), host.count("move_other_bytes")), (1, 4096));
    let moved = host.count("moved_bytes") + host.count("padded_bytes");
    assert_eq!(moved, 4096, "the sizes add up");
}
