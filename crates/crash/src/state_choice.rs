//! Chooses which of the allowed disk states of a power cut are tried.

use std::fmt;
use std::str::FromStr;

use emmclab_base::{Error, ErrorClass, Result};
use emmclab_device::contract::Version;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// A method of choosing disk states of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChoiceMethod {
    /// The state that the simulated device of the run would have left.
    Device,
    /// Up to five boundary states. They contain: only the promised writes; all writes; all complete writes; only the newest of the
    /// unpromised writes; all writes, but garbage instead of the newest write that may be garbled.
    Boundary,
    /// One write, or one block of a write, is missing on the disk; or one write is garbled. All other writes are on the disk.
    Omit1,
    /// Only one of the unpromised writes is on the disk, possibly garbled.
    Only1,
    /// All unpromised writes except two are on the disk.
    Pairs,
    /// A random combination of unpromised writes is on the disk.
    Random,
}

impl ChoiceMethod {
    /// All methods with their names. The number is the default maximum of crash states that the method chooses for one power cut.
    pub const ALL: [(ChoiceMethod, &'static str, usize); 6] = [
        (ChoiceMethod::Device, "device", 1),
        (ChoiceMethod::Boundary, "boundary", 5),
        (ChoiceMethod::Omit1, "omit1", 16),
        (ChoiceMethod::Only1, "only1", 8),
        (ChoiceMethod::Pairs, "pairs", 8),
        (ChoiceMethod::Random, "random", 8),
    ];

    /// The name of the method on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(way, ..)| *way == self).map_or("", |(_, name, _)| name)
    }
}

/// Methods of choosing disk states, each with the maximum number of states for a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChoiceMethods(Vec<(ChoiceMethod, usize)>);

impl Default for ChoiceMethods {
    fn default() -> Self {
        Self(ChoiceMethod::ALL.map(|(way, _, most)| (way, most)).to_vec())
    }
}

impl ChoiceMethods {
    /// The methods and their maximum numbers of states, in order.
    pub fn iter(&self) -> impl Iterator<Item = (ChoiceMethod, usize)> {
        self.0.iter().copied()
    }
}

impl FromStr for ChoiceMethods {
    type Err = Error;

    /// Parses a list of methods, optionally with maximum numbers of states, such as `boundary,omit1:64,random:50`.
    fn from_str(text: &str) -> Result<Self> {
        let fail = |problem: String, value: &str| {
            Error::new(ErrorClass::Config, problem)
                .of_field("states", 0, value.as_bytes())
                .hint("write the methods of choosing crash states as --states device,boundary,omit1:64,random:50")
        };
        let mut ways = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (name, number) = part.split_once(':').map_or((part, None), |(name, most)| (name, Some(most)));
            let Some((way, _, usual)) = ChoiceMethod::ALL.into_iter().find(|(_, known, _)| *known == name) else {
                let known = ChoiceMethod::ALL.map(|(_, name, _)| name).join(", ");
                return Err(fail(format!("unknown method of choosing states; the methods are {known}"), name));
            };
            let most = match number.map(str::parse) {
                None => usual,
                Some(Ok(most)) if most > 0 => most,
                Some(_) => {
                    return Err(fail("the number of states must be a positive integer".to_owned(), part));
                }
            };
            match ways.iter().find(|(known, _)| *known == way) {
                None => ways.push((way, most)),
                Some(named) if *named == (way, most) => {}
                Some(_) => return Err(fail("the method has two different numbers of states".to_owned(), name)),
            }
        }
        Ok(Self(ways))
    }
}

impl fmt::Display for ChoiceMethods {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.iter().map(|(way, most)| format!("{}:{most}", way.name())).collect();
        out.write_str(&parts.join(","))
    }
}

/// A write to an atom (the unit of atomic writes) that is not yet promised to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnpromisedWrite {
    /// The version of the write: the number of its command in the order of arrival.
    pub version: Version,
    /// Number of commands that were complete when this command completed, including this one; 0 while the command is in flight.
    pub complete: u32,
    /// Whether this entry stands for garbage that the command may leave instead of its data. The next entry then stands for the data.
    pub garbled: bool,
    /// Whether the command is a discard, which resets a zone.
    pub discards: bool,
}

/// A disk state. For each atom (unit of atomic writes) with unpromised writes, it contains the number of these writes that are on the disk,
/// counted from the oldest.
pub(crate) type Levels = Vec<u16>;

/// Chooses at most `most` disk states of one power cut. `atoms` contains the unpromised writes of each atom (unit of atomic writes), in
/// order of their versions.
pub(crate) fn choose(way: ChoiceMethod, most: usize, atoms: &[&[UnpromisedWrite]], seed: u64) -> Vec<Levels> {
    let all = || -> Levels { atoms.iter().map(|writes| writes.len() as u16).collect() };
    let none = || -> Levels { vec![0; atoms.len()] };
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ (way as u64) << 56);
    let mut chosen = match way {
        ChoiceMethod::Device => Vec::new(),
        ChoiceMethod::Boundary => boundary(atoms, &all, &none),
        ChoiceMethod::Omit1 => {
            let omissions = sample(&omissions(atoms), most, &mut random);
            omissions.iter().map(|omission| with_omission(all(), omission)).collect()
        }
        ChoiceMethod::Only1 => {
            let writes = sample(&writes(atoms), most, &mut random);
            writes.iter().map(|write| with_one_write(atoms, *write)).collect()
        }
        ChoiceMethod::Pairs => {
            let omissions = omissions(atoms);
            let pairs = (omissions.len() * omissions.len().saturating_sub(1) / 2).min(most);
            let mut pair = || {
                let index = random.next_u64() as usize % omissions.len();
                let other = (index + 1 + random.next_u64() as usize % (omissions.len() - 1)) % omissions.len();
                with_omission(with_omission(all(), &omissions[index]), &omissions[other])
            };
            (0..pairs).map(|_| pair()).collect()
        }
        ChoiceMethod::Random => {
            let level = |random: &mut Pcg64Mcg, writes: &[UnpromisedWrite], likely: u64| {
                let kept = |random: &mut Pcg64Mcg| random.next_u64() % 100 < likely;
                if kept(random) { writes.len() as u16 } else { (random.next_u64() % (writes.len() as u64 + 1)) as u16 }
            };
            let state = |random: &mut Pcg64Mcg| {
                let likely = [0, 50, 90][random.next_u64() as usize % 3];
                atoms.iter().map(|writes| level(random, writes, likely)).collect()
            };
            (0..if atoms.is_empty() { 0 } else { most }).map(|_| state(&mut random)).collect()
        }
    };
    chosen.truncate(most);
    chosen
}

fn boundary(atoms: &[&[UnpromisedWrite]], all: &dyn Fn() -> Levels, none: &dyn Fn() -> Levels) -> Vec<Levels> {
    let complete =
        |writes: &&[UnpromisedWrite]| writes.iter().rposition(|write| write.complete > 0).map_or(0, |place| place as u16 + 1);
    let newest = atoms.iter().filter_map(|writes| writes.last()).map(|write| write.version).max();
    let newest = newest.map(|newest| with_one_write(atoms, (newest, false)));
    let garbled = atoms.iter().flat_map(|writes| writes.iter()).filter(|write| write.garbled);
    let garbled = garbled.map(|write| write.version).max().map(|newest| {
        let place = |writes: &[UnpromisedWrite]| writes.iter().position(|write| key(write) == (newest, false));
        let level = |writes: &&[UnpromisedWrite]| place(writes).unwrap_or(writes.len()) as u16;
        atoms.iter().map(level).collect()
    });
    [none(), all(), atoms.iter().map(complete).collect()].into_iter().chain(newest).chain(garbled).collect()
}

/// Identifies a write in a disk state: its version, and whether it is garbled.
type Key = (Version, bool);

fn key(write: &UnpromisedWrite) -> Key {
    (write.version, write.garbled)
}

/// The writes that a disk state omits. An entry is the index of an atom (a fixed range of sectors), and the number of its writes that
/// remain.
type Omission = Vec<(usize, u16)>;

/// Returns the ways to omit writes: each single write of an atom, and each command that writes several atoms. A write may have two entries,
/// one with garbled and one with correct data. If only the entry with correct data is omitted, the write is garbled.
fn omissions(atoms: &[&[UnpromisedWrite]]) -> Vec<Omission> {
    let single =
        atoms.iter().enumerate().flat_map(|(atom, writes)| (0..writes.len()).map(move |level| vec![(atom, level as u16)]));
    let mut by_key: Vec<(Key, usize, u16)> = Vec::new();
    for (atom, writes) in atoms.iter().enumerate() {
        by_key.extend(writes.iter().enumerate().map(|(level, write)| (key(write), atom, level as u16)));
    }
    by_key.sort_unstable();
    let whole = by_key.chunk_by(|first, second| first.0 == second.0).filter(|parts| parts.len() > 1);
    let whole = whole.map(|parts| parts.iter().map(|(_, atom, level)| (*atom, *level)).collect());
    single.chain(whole).collect()
}

fn writes(atoms: &[&[UnpromisedWrite]]) -> Vec<Key> {
    let mut all: Vec<Key> = atoms.iter().flat_map(|writes| writes.iter().map(key)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

fn with_omission(mut levels: Levels, omission: &Omission) -> Levels {
    for (atom, level) in omission {
        levels[*atom] = levels[*atom].min(*level);
    }
    levels
}

fn with_one_write(atoms: &[&[UnpromisedWrite]], wanted: Key) -> Levels {
    let level =
        |writes: &&[UnpromisedWrite]| writes.iter().position(|write| key(write) == wanted).map_or(0, |place| place as u16 + 1);
    atoms.iter().map(level).collect()
}

/// Chooses at most `most` of the items at random with equal probability, and keeps their order.
pub(crate) fn sample<T: Clone>(items: &[T], most: usize, random: &mut Pcg64Mcg) -> Vec<T> {
    let (mut wanted, mut chosen) = (most.min(items.len()), Vec::new());
    for (place, item) in items.iter().enumerate() {
        if (random.next_u64() % (items.len() - place) as u64) < wanted as u64 {
            chosen.push(item.clone());
            wanted -= 1;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(version: Version, complete: bool) -> UnpromisedWrite {
        UnpromisedWrite { version, complete: u32::from(complete), garbled: false, discards: false }
    }

    fn garbled(version: Version) -> UnpromisedWrite {
        UnpromisedWrite { version, complete: 0, garbled: true, discards: false }
    }

    #[test]
    fn a_way_named_twice_is_taken_once_and_with_two_numbers_refused() {
        let ways: ChoiceMethods = "omit1:5,boundary,omit1:5".parse().unwrap();
        assert_eq!(ways.iter().collect::<Vec<_>>(), [(ChoiceMethod::Omit1, 5), (ChoiceMethod::Boundary, 5)]);
        assert!("omit1:5,omit1:6".parse::<ChoiceMethods>().unwrap_err().to_string().contains("two different numbers of states"));
    }

    #[test]
    fn boundary_states_are_nothing_everything_what_is_complete_and_the_newest_alone() {
        let (one, two) = ([write(1, true), write(3, false)], [write(2, true)]);
        let chosen = choose(ChoiceMethod::Boundary, 4, &[&one, &two], 1);
        assert_eq!(chosen, [vec![0, 0], vec![2, 1], vec![1, 1], vec![2, 0]]);
    }

    #[test]
    fn a_single_omission_leaves_out_a_write_of_a_block_or_a_whole_command() {
        let (one, two) = ([write(1, true), write(2, true)], [write(2, true)]);
        let mut chosen = choose(ChoiceMethod::Omit1, 99, &[&one, &two], 1);
        chosen.sort();
        assert_eq!(chosen, [vec![0, 1], vec![1, 0], vec![1, 1], vec![2, 0]]);
        let some = choose(ChoiceMethod::Omit1, 2, &[&one, &two], 1);
        assert_eq!(some.len(), 2);
        assert_eq!(some, choose(ChoiceMethod::Omit1, 2, &[&one, &two], 1));
    }

    #[test]
    fn a_write_in_flight_is_there_or_not_or_garbled_as_a_whole_and_in_each_block() {
        let (one, two) = ([write(1, true), garbled(2), write(2, false)], [garbled(2), write(2, false)]);
        let atoms: [&[UnpromisedWrite]; 2] = [&one, &two];
        let boundary = choose(ChoiceMethod::Boundary, 5, &atoms, 1);
        assert_eq!(boundary, [vec![0, 0], vec![3, 2], vec![1, 0], vec![3, 2], vec![2, 1]]);
        let mut omitted = choose(ChoiceMethod::Omit1, 99, &atoms, 1);
        omitted.sort();
        omitted.dedup();
        let all = [[0, 2], [1, 0], [1, 2], [2, 1], [2, 2], [3, 0], [3, 1]];
        assert_eq!(omitted, all);
        assert_eq!(choose(ChoiceMethod::Only1, 99, &atoms, 1), [vec![1, 0], vec![3, 2], vec![2, 1]]);
    }

    #[test]
    fn every_way_of_no_write_has_at_most_the_state_without_any() {
        for (way, _, most) in ChoiceMethod::ALL {
            assert!(choose(way, most, &[], 7).iter().all(Vec::is_empty), "{way:?}");
        }
    }

    #[test]
    fn ways_are_read_with_their_numbers_and_refused_by_name() {
        let ways: ChoiceMethods = "boundary,omit1,random:50".parse().unwrap_or_default();
        assert_eq!(ways.to_string(), "boundary:5,omit1:16,random:50");
        for wrong in ["", "omit2", "random:0", "random:x", "pairs:3,pairs:4"] {
            assert!(wrong.parse::<ChoiceMethods>().is_err(), "{wrong}");
        }
    }
}
