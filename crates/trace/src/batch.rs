//! A batch of requests in columns.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::ScalarBuffer;

use crate::batch_notes::BatchNotes;
use crate::batch_rows::BatchRows;
use crate::columns::each_column;
use crate::{BlockNote, NameTable, Request, RequestIter};

/// Rows in a full batch: large enough to amortise per-batch work, small enough to stay in the second-level cache, and so that
/// the allocator reuses the memory of a finished batch for the next.
pub const BATCH_ROWS: usize = 1 << 13;

macro_rules! batch {
    (
        always { $($field:ident: $type:ty, $request:ident => $value:expr, $wrap:path;)* }
        optional { $($some:ident: $some_type:ty, $none:ident, $of:ident => $some_value:expr, $some_wrap:path;)* }
    ) => {
        /// An immutable batch of requests in columns. A column in which no request has a value uses no memory; a clone shares
        /// all columns.
        #[derive(Clone, Debug)]
        pub struct Batch {
            $(pub(crate) $field: ScalarBuffer<$type>,)*
            $(pub(crate) $some: ScalarBuffer<$some_type>,)*
            /// `None` in a trace without notes.
            pub(crate) notes: Option<Arc<BatchNotes>>,
            pub(crate) processes: Arc<NameTable>,
            pub(crate) devices: Arc<NameTable>,
        }

        impl Batch {
            /// The columns as slices. Always inlined, so that the compiler knows in a loop that they have equal lengths.
            #[inline(always)]
            pub(crate) fn rows(&self) -> BatchRows<'_> {
                // Equal lengths, so that an index is checked only once for all columns that are always present.
                let rows = self.arrival.len();
                BatchRows { $($field: &self.$field[..rows],)* $($some: &self.$some,)* }
            }
        }
    };
}

each_column!(batch);

impl Batch {
    /// Number of requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.arrival.len()
    }

    /// True if there are no requests.
    pub fn is_empty(&self) -> bool {
        self.arrival.is_empty()
    }

    /// Whether any of its requests may have a recorded completion.
    #[inline]
    pub fn has_completions(&self) -> bool {
        !self.complete.is_empty()
    }

    /// The request in row `i`. Panics if there is no such row.
    #[inline]
    pub fn get(&self, i: usize) -> Request {
        self.rows().get(i)
    }

    /// The requests in order.
    #[inline]
    pub fn iter(&self) -> RequestIter<'_> {
        self.rows().iter()
    }

    /// The requests in these rows, in order. Panics if there are no such rows.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a loop then knows that the columns are of one length")]
    pub fn range(&self, rows: Range<usize>) -> RequestIter<'_> {
        self.rows().range(rows)
    }

    /// The block notes of the request in row `i`; empty if they are not known or there is no such row.
    #[inline]
    pub fn notes(&self, i: usize) -> &[BlockNote] {
        self.notes.as_ref().map_or(&[], |notes| notes.of(i))
    }

    /// Whether the batch belongs to a trace with block notes; its own requests may have none.
    #[inline]
    pub fn has_notes(&self) -> bool {
        self.notes.is_some()
    }

    /// Number of requests with block notes.
    pub fn rows_with_notes(&self) -> u64 {
        self.notes.as_ref().map_or(0, |notes| notes.rows() as u64)
    }

    /// The first sector of each request.
    #[inline]
    pub fn first_sectors(&self) -> &[u64] {
        &self.sector
    }

    /// The arrival of each request in nanoseconds, in order.
    #[inline]
    pub fn arrivals(&self) -> &[i64] {
        &self.arrival
    }

    /// Loads into the cache those columns of these rows that every replay reads, except the first sectors. Another CPU wrote
    /// the batch; in a loop that only loads, the cache misses overlap. Panics if there are no such rows.
    #[inline]
    pub fn prefetch(&self, rows: Range<usize>) {
        fn lines<T: Copy>(column: &[T], bits: impl Fn(T) -> u64) -> u64 {
            column.iter().step_by(64 / size_of::<T>()).fold(0, |all, value| all ^ bits(*value))
        }
        let mut all = lines(&self.arrival[rows.clone()], |at| at as u64);
        all ^= lines(&self.sectors[rows.clone()], u64::from);
        all ^= lines(&self.op[rows.clone()], u64::from);
        all ^= lines(&self.flags[rows], u64::from);
        black_box(all);
    }

    /// Names of processes; [`Request::process`] is an id in this table.
    pub fn processes(&self) -> &NameTable {
        &self.processes
    }

    /// Names of devices; [`Request::device`] is an id in this table.
    pub fn devices(&self) -> &NameTable {
        &self.devices
    }

    /// The same to share: for a batch with the same names.
    pub fn processes_shared(&self) -> &Arc<NameTable> {
        &self.processes
    }

    /// The same to share: for a batch with the same names.
    pub fn devices_shared(&self) -> &Arc<NameTable> {
        &self.devices
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = Request;
    type IntoIter = RequestIter<'a>;

    fn into_iter(self) -> RequestIter<'a> {
        self.iter()
    }
}
