//! Counters of Advil.

use crate::counters::counters;

counters! {
    /// Reads that found all or a part of their data in the reserved area.
    read_hits,
    /// Bytes of them that came from there.
    read_hit_bytes,
    /// Small random writes that were logged.
    logged_writes,
    /// Their bytes.
    logged_bytes,
    /// Bytes that were logged over logged data, which need not be moved any more.
    rewritten_bytes,
    /// Writes that went to the original area.
    passed_writes,
    /// Their bytes.
    passed_bytes,
    /// Bytes of logged data that they replaced.
    voided_bytes,
    /// Times a section was full.
    switches,
    /// Clustered blocks, or parts of them, written back.
    moved_blocks,
    /// Bytes of logged data written back.
    moved_bytes,
    /// Write requests that took.
    move_writes,
    /// Those of whole clustered blocks.
    move_block_writes,
    /// Their bytes.
    move_block_bytes,
    /// Those of other multiples of a clustered page, from the start of one.
    move_page_writes,
    /// Their bytes.
    move_page_bytes,
    /// All others of them.
    move_other_writes,
    /// Their bytes.
    move_other_bytes,
    /// Bytes of holes that were read and written with them.
    padded_bytes,
    /// Bytes between holes that were read with them and not used.
    read_through_bytes,
    /// Clustered blocks that were filled whole.
    filled_blocks,
    /// Clustered pages kept in a hot region.
    hot_pages,
    /// Bytes copied for that.
    hot_bytes,
    /// Records that hold no data: sections, tombstones, releases, starts.
    bare_records,
    /// Checkpoints written.
    checkpoints,
    /// Their bytes, heads included.
    checkpoint_bytes,
}
