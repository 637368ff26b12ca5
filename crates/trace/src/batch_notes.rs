//! The block notes of a batch's writes, in one vector for the whole batch.

use crate::{BlockNote, Error, ErrorClass, Op, Request, TraceColumn};

/// The block notes of all requests of a batch.
#[derive(Debug, Default)]
pub(crate) struct BatchNotes {
    /// The end of each row's notes in `all`; rows after the last entry have no notes.
    ends: Vec<usize>,
    all: Vec<BlockNote>,
}

impl BatchNotes {
    /// The notes of a row.
    #[inline]
    pub fn of(&self, row: usize) -> &[BlockNote] {
        let Some(end) = self.ends.get(row) else { return &[] };
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[start..*end]
    }

    /// Adds the notes of a row; it must be after all rows that have notes.
    pub fn push(&mut self, row: usize, notes: &[BlockNote]) {
        self.ends.resize(row, self.all.len());
        self.all.extend_from_slice(notes);
        self.ends.push(self.all.len());
    }

    /// The notes of all rows, in order of the rows.
    pub fn all(&self) -> &[BlockNote] {
        &self.all
    }

    /// Number of rows with notes.
    pub fn rows(&self) -> usize {
        (0..self.ends.len()).filter(|row| !self.of(*row).is_empty()).count()
    }
}

/// The error for notes that do not fit this request; `None` if they do. Only writes have notes, and these cover the request
/// without gaps.
pub(crate) fn fault(request: &Request, notes: &[BlockNote]) -> Option<Error> {
    let wrong = |column: TraceColumn, value: u64, what: &str| {
        let error = Error::new(ErrorClass::Value, what);
        Some(error.of_field(column.name(), column as u64 + 1, value.to_string().as_bytes()))
    };
    if notes.is_empty() {
        return None;
    }
    if request.op != Op::Write {
        let error = Error::new(ErrorClass::Value, "belongs to a request that is not a write");
        let error =
            error.of_field(TraceColumn::Role.name(), TraceColumn::Role as u64 + 1, notes[0].role.name().as_bytes());
        return Some(error.hint("only writes have block notes; leave the lists of other requests empty"));
    }
    for note in notes {
        if note.sectors == 0 {
            return wrong(TraceColumn::RoleSectors, 0, "is a run without sectors");
        }
        if let Some(changed) = note.changed.filter(|changed| changed.len() > note.sectors) {
            let what = format!("is more than the {} sectors of its run", note.sectors);
            return wrong(TraceColumn::ChangedSectors, u64::from(changed.len()), &what);
        }
    }
    let covered = notes.iter().map(|note| u64::from(note.sectors)).sum();
    if covered != u64::from(request.sectors) {
        let what = format!("is the length of all notes of a request of {} sectors", request.sectors);
        return wrong(TraceColumn::RoleSectors, covered, &what);
    }
    None
}
