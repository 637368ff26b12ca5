//! Who asks for I/O, and which device.

use emmclab_trace::{NameId, Names, Op, Request};

use crate::bins::pct;
use crate::names::NameMap;
use crate::report::{DeviceRow, ProcessRow, ShareRow};

/// Rows in the table; further processes are summed in one.
const ROWS: usize = 64;

/// Counts for each name, of processes or of devices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares {
    names: NameMap,
    /// By index in `names`; the first is for requests without a name.
    shares: Vec<Share>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    reads: u64,
    writes: u64,
    others: u64,
    read_sectors: u64,
    write_sectors: u64,
}

impl Shares {
    /// Gets ready for requests whose names are in this table.
    pub fn follow(&mut self, names: &Names) {
        self.names.follow(names);
    }

    /// Adds a request, which has this name.
    #[inline]
    pub fn add(&mut self, request: &Request, name: Option<NameId>) {
        let index = self.names.index(name) as usize;
        if index >= self.shares.len() {
            self.shares.resize(index + 1, Share::default());
        }
        let share = &mut self.shares[index];
        match request.op {
            Op::Read => {
                share.reads += 1;
                share.read_sectors += u64::from(request.sectors);
            }
            Op::Write => {
                share.writes += 1;
                share.write_sectors += u64::from(request.sectors);
            }
            _ => share.others += 1,
        }
    }

    pub fn merge(&mut self, other: &Self) {
        let index_of = self.names.merge(&other.names);
        for (theirs, index) in other.shares.iter().zip(index_of) {
            let index = index as usize;
            if index >= self.shares.len() {
                self.shares.resize(index + 1, Share::default());
            }
            self.shares[index].add(theirs);
        }
    }

    /// As processes.
    pub fn processes(&self) -> Vec<ProcessRow> {
        self.rows().into_iter().map(|(process, share)| ProcessRow { process, share }).collect()
    }

    /// As devices.
    pub fn devices(&self) -> Vec<DeviceRow> {
        self.rows().into_iter().map(|(device, share)| DeviceRow { device, share }).collect()
    }

    /// The names with the most requests first; nothing where no request has a name.
    fn rows(&self) -> Vec<(String, ShareRow)> {
        let mut shares: Vec<(&str, Share)> = self
            .shares
            .iter()
            .enumerate()
            .filter(|(_, share)| share.requests() > 0)
            .map(|(index, share)| (self.names.name(index).unwrap_or("(unknown)"), *share))
            .collect();
        if self.shares.len() <= 1 {
            return Vec::new();
        }
        shares.sort_by(|(a, x), (b, y)| y.requests().cmp(&x.requests()).then_with(|| a.cmp(b)));
        let mut all = Share::default();
        for (_, share) in &shares {
            all.add(share);
        }
        if shares.len() > ROWS {
            let mut rest = Share::default();
            shares.drain(ROWS - 1..).for_each(|(_, share)| rest.add(&share));
            shares.push(("(others)", rest));
        }
        shares.into_iter().map(|(name, share)| (name.to_owned(), share.row(&all))).collect()
    }
}

impl Share {
    fn requests(&self) -> u64 {
        self.reads + self.writes + self.others
    }

    fn sectors(&self) -> u64 {
        self.read_sectors + self.write_sectors
    }

    fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.others += other.others;
        self.read_sectors += other.read_sectors;
        self.write_sectors += other.write_sectors;
    }

    fn row(&self, all: &Self) -> ShareRow {
        ShareRow {
            reads: self.reads,
            writes: self.writes,
            others: self.others,
            read_kb: self.read_sectors as f64 / 2.0,
            write_kb: self.write_sectors as f64 / 2.0,
            requests_pct: pct(self.requests(), all.requests()).unwrap_or(0.0),
            data_pct: pct(self.sectors(), all.sectors()).unwrap_or(0.0),
        }
    }
}
