//! Reads the columns of a line one by one; each field has its name and column, for errors.

use super::line_format::{decimal_time, need, no_more, sector_span, sectors, unsigned};
use super::time_unit::TimeUnit;
use crate::{Error, ErrorClass, Op, Result, Sector};

/// Reads the fields of a line one by one.
pub(super) struct FieldReader<I> {
    fields: I,
    column: u64,
}

impl<'a, I: Iterator<Item = &'a [u8]>> FieldReader<I> {
    /// Starts at the first of these fields.
    pub fn along(fields: I) -> Self {
        Self { fields, column: 0 }
    }

    /// The next field; the error names the missing one.
    #[inline]
    pub fn next(&mut self, name: &'static str) -> Result<LineField<'a>> {
        self.column += 1;
        let bytes = need(&mut self.fields, name, self.column)?;
        Ok(LineField { bytes, name, column: self.column })
    }

    /// Returns an error if there are more fields.
    #[inline]
    pub fn end(mut self) -> Result<()> {
        no_more(&mut self.fields, self.column + 1)
    }
}

/// A field of a line.
#[derive(Clone, Copy)]
pub(super) struct LineField<'a> {
    pub bytes: &'a [u8],
    name: &'static str,
    column: u64,
}

impl LineField<'_> {
    /// Parses the field as an unsigned whole number.
    #[inline]
    pub fn unsigned(self) -> Result<u64> {
        unsigned(self.bytes, self.name, self.column)
    }

    /// Parses the field as a decimal number of `unit`s, into nanoseconds.
    #[inline]
    pub fn time(self, unit: TimeUnit) -> Result<i64> {
        decimal_time(self.bytes, unit, self.name, self.column)
    }

    /// Parses the field as a size in sectors.
    #[inline]
    pub fn sectors(self) -> Result<u32> {
        sectors(self.unsigned()?, self.bytes, self.name, self.column)
    }

    /// The sectors of a range: the field is its size in bytes, and `offset` its start in bytes.
    #[inline]
    pub fn span(self, offset: u64) -> Result<(Sector, u32)> {
        sector_span(offset, self.unsigned()?, (self.bytes, self.name, self.column))
    }

    /// The operation: a read if the field is `read`, a write if it is `write`.
    #[inline]
    pub fn op(self, read: &[u8], write: &[u8]) -> Result<Op> {
        match self.bytes {
            bytes if bytes == read => Ok(Op::Read),
            bytes if bytes == write => Ok(Op::Write),
            _ => {
                let [read, write] = [read, write].map(String::from_utf8_lossy);
                Err(self.refused(format!("is neither {read}, a read, nor {write}, a write")))
            }
        }
    }

    /// The error that names this field.
    #[cold]
    pub fn refused(self, problem: impl Into<String>) -> Error {
        Error::new(ErrorClass::Value, problem).of_field(self.name, self.column, self.bytes)
    }
}
