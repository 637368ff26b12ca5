//! Finds the fields of a table by the column names of its heading; the order of columns may differ between files.

use crate::{Error, ErrorClass, Result};

/// Maximum number of columns; no format has as many.
const MOST: usize = 32;

/// The positions of `N` named columns in a line.
pub(super) struct ColumnPositions<const N: usize> {
    names: [&'static str; N],
    /// The index of the name of each column of the file; `None` for other columns.
    name_of_column: Vec<Option<usize>>,
}

impl<const N: usize> ColumnPositions<N> {
    /// Finds the columns in a heading; `None` if one is missing.
    pub fn of<'a>(names: [&'static str; N], heading: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let known = |name: &[u8]| names.iter().position(|known| known.as_bytes() == name);
        let wanted: Vec<_> = heading.take(MOST).map(|name| known(name.trim_ascii())).collect();
        (0..N).all(|name| wanted.contains(&Some(name))).then_some(Self { names, name_of_column: wanted })
    }

    /// The fields of a line, in the order of the names.
    pub fn read<'a>(&self, fields: impl Iterator<Item = &'a [u8]>) -> Result<[NamedField<'a>; N]> {
        let mut found = [NamedField::default(); N];
        let mut count = 0;
        for (at, bytes) in fields.enumerate() {
            count += 1;
            if let Some(Some(name)) = self.name_of_column.get(at) {
                found[*name] = NamedField { bytes, name: self.names[*name], column: at as u64 + 1 };
            }
        }
        if count == self.name_of_column.len() {
            return Ok(found);
        }
        let problem = format!("has {count} fields, but the heading has {}", self.name_of_column.len());
        Err(Error::new(ErrorClass::Syntax, problem).of_field("line", count as u64, b""))
    }
}

/// A field of a line.
#[derive(Clone, Copy, Default)]
pub(super) struct NamedField<'a> {
    pub bytes: &'a [u8],
    pub name: &'static str,
    pub column: u64,
}

impl NamedField<'_> {
    /// The error that names this field.
    #[cold]
    pub fn refused(self, problem: &str) -> Error {
        Error::new(ErrorClass::Value, problem).of_field(self.name, self.column, self.bytes)
    }
}
