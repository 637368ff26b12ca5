//! A run of requests in columns.

use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::ScalarBuffer;
use emmclab_base::{BlockNote, Request};

use crate::columns::each_column;
use crate::names::Names;
use crate::notes::Notes;
use crate::rows::{Requests, Rows};

/// Rows in a full batch: large enough to amortise per-batch work, small enough to stay in the second-level cache, and for
/// the allocator to hand the memory of one that is done to the next.
pub const BATCH_ROWS: usize = 1 << 13;

macro_rules! batch {
    (
        always { $($field:ident: $type:ty, $request:ident => $value:expr, $wrap:path;)* }
        optional { $($some:ident: $some_type:ty, $none:ident, $of:ident => $some_value:expr, $some_wrap:path;)* }
    ) => {
        /// An immutable run of requests in columns. A column that no request has takes no memory; cloning shares all.
        #[derive(Clone, Debug)]
        pub struct Batch {
            $(pub(crate) $field: ScalarBuffer<$type>,)*
            $(pub(crate) $some: ScalarBuffer<$some_type>,)*
            /// `None` in a trace without notes.
            pub(crate) notes: Option<Arc<Notes>>,
            pub(crate) processes: Arc<Names>,
            pub(crate) devices: Arc<Names>,
        }

        impl Batch {
            /// The columns. Always inlined, so that a loop knows that they are of one length.
            #[inline(always)]
            pub(crate) fn rows(&self) -> Rows<'_> {
                // One length, so that a place is checked once for all columns that are always there.
                let rows = self.arrival.len();
                Rows { $($field: &self.$field[..rows],)* $($some: &self.$some,)* }
            }
        }
    };
}

each_column!(batch);

impl Batch {
    /// How many requests there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.arrival.len()
    }

    /// True without requests.
    pub fn is_empty(&self) -> bool {
        self.arrival.is_empty()
    }

    /// Whether a request of it may have a recorded completion.
    #[inline]
    pub fn has_completions(&self) -> bool {
        !self.complete.is_empty()
    }

    /// The request in row `i`. Panics where there is no such row.
    #[inline]
    pub fn get(&self, i: usize) -> Request {
        self.rows().get(i)
    }

    /// The requests in order.
    #[inline]
    pub fn iter(&self) -> Requests<'_> {
        self.rows().iter()
    }

    /// The requests in these rows, in order. Panics where there are no such rows.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a loop then knows that the columns are of one length")]
    pub fn range(&self, rows: Range<usize>) -> Requests<'_> {
        self.rows().range(rows)
    }

    /// The block notes of the request in row `i`; empty if they are not known, and where there is no such row.
    #[inline]
    pub fn notes(&self, i: usize) -> &[BlockNote] {
        self.notes.as_ref().map_or(&[], |notes| notes.of(i))
    }

    /// Whether it belongs to a trace with block notes, though its own requests may have none.
    #[inline]
    pub fn has_notes(&self) -> bool {
        self.notes.is_some()
    }

    /// Requests with notes.
    pub fn rows_with_notes(&self) -> u64 {
        self.notes.as_ref().map_or(0, |notes| notes.rows() as u64)
    }

    /// First sectors.
    #[inline]
    pub fn first_sectors(&self) -> &[u64] {
        &self.sector
    }

    /// Arrivals in nanoseconds, in order.
    #[inline]
    pub fn arrivals(&self) -> &[i64] {
        &self.arrival
    }

    /// Loads into the cache the columns that every replay reads of these rows beside the sectors. The batch was written by
    /// another processor; in a loop of loads alone, the cache misses overlap. Panics where there are no such rows.
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

    /// Names of the processes that [`Request::process`] points to.
    pub fn processes(&self) -> &Names {
        &self.processes
    }

    /// Names of the devices that [`Request::device`] points to.
    pub fn devices(&self) -> &Names {
        &self.devices
    }

    pub(crate) fn processes_shared(&self) -> &Arc<Names> {
        &self.processes
    }

    pub(crate) fn devices_shared(&self) -> &Arc<Names> {
        &self.devices
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = Request;
    type IntoIter = Requests<'a>;

    fn into_iter(self) -> Requests<'a> {
        self.iter()
    }
}
