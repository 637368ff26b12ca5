//! Counters of Advil.

use crate::counters::counters;

counters! {
    /// Reads with at least a part of their data in the reserved area.
    read_hits,
    /// Bytes that these reads got from the reserved area.
    read_hit_bytes,
    /// Small random writes that were logged.
    logged_writes,
    /// Their bytes.
    logged_bytes,
    /// Bytes that were logged in place of older logged data, which therefore need not be moved.
    rewritten_bytes,
    /// Writes that went to the original area.
    passed_writes,
    /// Their bytes.
    passed_bytes,
    /// Bytes of logged data that these writes replaced.
    voided_bytes,
    /// Times that a section became full.
    switches,
    /// Clustered blocks, or parts of them, written back.
    moved_blocks,
    /// Bytes of logged data written back.
    moved_bytes,
    /// Write requests that wrote back logged data.
    move_writes,
    /// Of these, writes of whole clustered blocks.
    move_block_writes,
    /// Their bytes.
    move_block_bytes,
    /// Of these, writes of whole clustered pages that start at a clustered page.
    move_page_writes,
    /// Their bytes.
    move_page_bytes,
    /// All other writes of logged data.
    move_other_writes,
    /// Their bytes.
    move_other_bytes,
    /// Bytes of holes that were read and written to pad clustered pages and blocks.
    padded_bytes,
    /// Bytes between holes that were read with the holes and not used.
    read_through_bytes,
    /// Clustered blocks of which all holes were filled.
    filled_blocks,
    /// Clustered pages kept in a hot region.
    hot_pages,
    /// Bytes copied to keep them there.
    hot_bytes,
    /// Records without data: section heads, tombstones, releases and start records.
    bare_records,
    /// Checkpoints written.
    checkpoints,
    /// Their bytes, heads included.
    checkpoint_bytes,
}
