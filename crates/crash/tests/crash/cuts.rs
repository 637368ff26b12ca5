//! Power is cut directly after and directly before the lines that report promises, before any other moment is chosen.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::{Toy, header, position};
use emmclab_base::Nanos;
use emmclab_crash::log::{CommandPort, CrashLogRecord, CrashLogWriter};
use emmclab_crash::{CrashLogIndex, CutLines, ExploreOptions, Explorer, RunEvent};
use emmclab_device::CommandFlags;

/// A run with five writes before each line.
fn run(lines: usize, path: &std::path::Path) -> Arc<CrashLogIndex> {
    let mut toy = Toy::new(path, &header(1 << 12));
    for line in 0..lines {
        for write in 0..5u8 {
            toy.write_and_complete(u64::from(write) * 8, write, CommandFlags::empty());
        }
        toy.acknowledge(&format!("line {line}"));
    }
    toy.run(path)
}

/// The moments at which power is cut, and the number of lines directly after which it is cut.
fn cuts(run: &Arc<CrashLogIndex>, cuts: usize, lines: Option<CutLines>, seed: u64) -> (Vec<usize>, u64) {
    let options = ExploreOptions { cuts, lines, seed, ..ExploreOptions::default() };
    let mut explorer = Explorer::new(run, &options).unwrap();
    let moments = explorer.cuts().collect();
    while explorer.next_state().is_some() {}
    (moments, explorer.covered().lines_cut)
}

fn place(run: &CrashLogIndex, line: u32) -> usize {
    position(run, RunEvent::Acknowledged(line)).unwrap()
}

#[test]
fn the_lines_of_each_group_and_the_moments_before_them_come_before_all_others() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let run = run(20, file.path());
    let lines = CutLines { first: vec![vec![3, 9, 15], vec![4]], idle: Vec::new() };
    let wanted = [3, 9, 15, 4].map(|line| place(&run, line));
    for seed in 0..5 {
        let (chosen, after) = cuts(&run, 8, Some(lines.clone()), seed);
        let all: BTreeSet<_> = wanted.iter().flat_map(|place| [place - 1, *place]).collect();
        assert_eq!(chosen, all.into_iter().collect::<Vec<_>>(), "the groups fill the number of cuts");
        assert_eq!(after, 3);
        let (some, after) = cuts(&run, 2, Some(lines.clone()), seed);
        assert!(some.iter().all(|place| wanted[..3].contains(place)) && after == 2, "{some:?}");
        let (more, after) = cuts(&run, 30, Some(lines.clone()), seed);
        assert!(wanted.iter().all(|place| more.contains(place)) && more.len() == 30 && after == 3);
    }
    assert_ne!(cuts(&run, 30, Some(lines.clone()), 1), cuts(&run, 30, Some(lines), 2));
}

#[test]
fn without_a_meaning_of_the_lines_up_to_half_of_the_cuts_are_after_lines() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let run = run(20, file.path());
    let is_line = |place: &usize| matches!(run.moments()[*place].event, RunEvent::Acknowledged(_));
    let (chosen, after) = cuts(&run, 60, None, 1);
    assert_eq!((chosen.len(), after), (60, 20));
    let (chosen, after) = cuts(&run, 10, None, 1);
    assert!(chosen.iter().filter(|place| is_line(place)).count() >= 5 && after >= 5);
    assert!(chosen.iter().any(|place| !is_line(place)), "{chosen:?}");
    let (every, _) = cuts(&run, usize::MAX, None, 1);
    assert_eq!(every, (0..run.moments().len()).collect::<Vec<_>>());
}

#[test]
fn moments_in_which_nothing_is_judged_are_left_out_unless_there_are_no_others() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let run = run(4, file.path());
    let lines = |idle: &[usize]| Some(CutLines { first: Vec::new(), idle: idle.to_vec() });
    let (chosen, _) = cuts(&run, usize::MAX, lines(&[0, 2]), 1);
    let judged = (place(&run, 1)..place(&run, 2)).chain([place(&run, 3)]);
    assert_eq!(chosen, judged.collect::<Vec<_>>());
    let (chosen, _) = cuts(&run, usize::MAX, lines(&[0, 1, 2, 3]), 1);
    assert_eq!(chosen.len(), run.moments().len());
}

#[test]
fn passes_try_the_same_cuts_and_states_with_the_most_important_cuts_first() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let run = run(40, file.path());
    let lines = CutLines { first: vec![(0..40).collect()], idle: Vec::new() };
    let states = |in_passes: bool| {
        let options = ExploreOptions { cuts: 150, lines: Some(lines.clone()), in_passes, ..ExploreOptions::default() };
        let mut explorer = Explorer::new(&run, &options).unwrap();
        let cuts: Vec<usize> = explorer.cuts().collect();
        let mut contents = BTreeSet::new();
        while let Some(state) = explorer.next_state() {
            let mut sector = [0; 512];
            let of_sector = |sector_number| {
                explorer.view(&state).read(sector_number, &mut sector).unwrap();
                sector
            };
            contents.insert((state.acknowledged, (0..40).step_by(8).map(of_sector).collect::<Vec<_>>()));
        }
        (cuts, contents, explorer.covered())
    };
    let (in_order, usual, covered) = states(false);
    let (cuts, contents, in_passes) = states(true);
    assert_eq!((contents, in_passes.cuts, in_passes.lines_cut), (usual, covered.cuts, covered.lines_cut));
    let mut sorted = cuts.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, in_order);
    let ends: Vec<usize> = (1..cuts.len()).filter(|place| cuts[*place] < cuts[place - 1]).collect();
    assert!((2..=5).contains(&ends.len()) && ends.windows(2).all(|pair| pair[1] - pair[0] >= pair[0] - 1), "{ends:?}");
    let lines: BTreeSet<usize> = (0..40).map(|line| place(&run, line)).collect();
    assert!(cuts[..ends[2]].iter().all(|cut| lines.contains(cut)), "{cuts:?}");
}

#[test]
fn a_log_that_is_cut_short_before_the_workload_begins_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.log");
    let options = ExploreOptions { from: Some("mounted".to_owned()), ..ExploreOptions::default() };
    for records in 0..3 {
        let mut log = CrashLogWriter::create(&path, &header(1 << 12)).unwrap();
        let at = Nanos(0);
        let data = [1; 4096];
        let all = [
            CrashLogRecord::Base { sector: 0, data: &data },
            CrashLogRecord::Complete { port: CommandPort::Device, number: 0, at },
            CrashLogRecord::Mark { at, text: "mounted" },
        ];
        for record in &all[..records] {
            log.add(record).unwrap();
        }
        log.end_block().unwrap();
        drop(log);
        let error = Explorer::new(&Arc::new(CrashLogIndex::open(&path).unwrap()), &options).err().unwrap();
        assert!(error.to_string().contains("the log is cut short before the workload begins"), "{error}");
        assert_eq!(error.file(), Some(path.as_path()));
    }
}
