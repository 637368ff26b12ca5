//! Sectors whose newest version is not in the image yet, by ranges.

use std::collections::BTreeMap;

/// A run of sectors that one command wrote last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    end: u64,
    /// The command.
    command: u64,
    /// Versions of commands below this number are in the image, or a newer one is: they must not go there.
    landed: u64,
}

/// Ranges of sectors by the command that wrote them last.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    runs: BTreeMap<u64, Written>,
    /// Kept to reuse its memory.
    spare: Vec<(u64, Written)>,
}

impl Newest {
    /// Makes a run begin at `sector` where one covers it.
    fn split(&mut self, sector: u64) {
        let Some((_, run)) = self.runs.range_mut(..sector).next_back() else { return };
        if run.end > sector {
            let rest = *run;
            run.end = sector;
            self.runs.insert(sector, rest);
        }
    }

    /// Takes the runs of `first..end` out, in order.
    fn take(&mut self, first: u64, end: u64) -> Vec<(u64, Written)> {
        self.split(first);
        self.split(end);
        let mut taken = std::mem::take(&mut self.spare);
        taken.clear();
        while let Some((at, run)) = self.runs.range(first..end).next().map(|(at, run)| (*at, *run)) {
            self.runs.remove(&at);
            taken.push((at, run));
        }
        taken
    }

    /// A command has written `first..end`.
    pub fn put(&mut self, first: u64, end: u64, command: u64) {
        let taken = self.take(first, end);
        let mut at = first;
        for (from, run) in &taken {
            if at < *from {
                self.runs.insert(at, Written { end: *from, command, landed: command });
            }
            self.runs.insert(*from, Written { command, ..*run });
            at = run.end;
        }
        if at < end {
            self.runs.insert(at, Written { end, command, landed: command });
        }
        self.spare = taken;
    }

    /// The sectors of `first..end` that are not to be read from the image, by the command that wrote them.
    pub fn find(&self, first: u64, end: u64) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let before = self.runs.range(..first).next_back();
        let runs = before.into_iter().chain(self.runs.range(first..end));
        runs.map(move |(at, run)| ((*at).max(first), run.end.min(end), run.command))
            .filter(|(from, to, _)| from < to)
    }

    /// The sectors of `first..end` that the version of a command has to be written to in the image, once it is durable.
    pub fn to_land(&self, first: u64, end: u64, command: u64, mut write: impl FnMut(u64, u64)) {
        let before = self.runs.range(..first).next_back();
        for (at, run) in before.into_iter().chain(self.runs.range(first..end)) {
            let (from, to) = ((*at).max(first), run.end.min(end));
            if from < to && command >= run.landed {
                write(from, to);
            }
        }
    }

    /// The version of a command is in the image.
    pub fn landed(&mut self, first: u64, end: u64, command: u64) {
        let taken = self.take(first, end);
        for (at, run) in &taken {
            if run.command != command {
                self.runs.insert(*at, Written { landed: run.landed.max(command + 1), ..*run });
            }
        }
        self.spare = taken;
    }

    /// `first..end` hold nothing any more.
    pub fn forget(&mut self, first: u64, end: u64) {
        self.spare = self.take(first, end);
    }

    /// Everything is gone.
    pub fn clear(&mut self) {
        self.runs.clear();
    }
}
