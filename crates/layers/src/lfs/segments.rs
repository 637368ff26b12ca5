//! Segments of the log: their live blocks, and which segments are open or can be written again.
//!
//! States of a segment, in order: *unknown* (may contain anything, as on a new disk) or *left* (no block in it is valid any more) until it
//! is reset; *clean* until a log opens it; *open* until it is full; *closed* until it has no live block; *empty* until a checkpoint records
//! that it is empty, and no earlier request can still read it.

use std::collections::VecDeque;

use emmclab_base::{CleaningCandidate, CleaningPolicy};

/// Segment number that means that no segment is open.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SegmentState {
    #[default]
    Free,
    Open,
    Closed,
    Empty,
}

#[derive(Clone, Copy, Debug, Default)]
struct LfsSegment {
    /// Number of blocks of the segment to which the map refers.
    live: u32,
    /// Number of blocks of the segment that are being written.
    pending: u32,
    state: SegmentState,
    /// Number of the write that filled the segment. It determines the age of the segment.
    closed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OpenSegment {
    pub segment: u32,
    pub allocated: u32,
}

impl OpenSegment {
    /// The value for a log without an open segment.
    pub const NONE: Self = Self { segment: NONE, allocated: 0 };
}

#[derive(Clone, Debug)]
pub(super) struct SegmentTable {
    pub blocks: u32,
    all: Vec<LfsSegment>,
    /// The block that was last written to each location.
    owners: Vec<u32>,
    clean: VecDeque<u32>,
    unknown: VecDeque<u32>,
    /// Closed segments without live blocks. No checkpoint has recorded yet that they are empty.
    pub empty: Vec<u32>,
    /// Segments that the checkpoint in progress records as empty.
    pub in_checkpoint: Vec<u32>,
    /// Segments that a durable checkpoint has recorded as empty, but that earlier requests may still read.
    pub awaiting_readers: Vec<u32>,
    pub resettable: Vec<u32>,
}

impl SegmentTable {
    /// The segments of a disk with unknown contents.
    pub fn new(count: u32, blocks: u32) -> Self {
        Self {
            blocks,
            all: vec![LfsSegment::default(); count as usize],
            owners: vec![0; count as usize * blocks as usize],
            clean: VecDeque::with_capacity(count as usize),
            unknown: (0..count).collect(),
            empty: Vec::new(),
            in_checkpoint: Vec::new(),
            awaiting_readers: Vec::new(),
            resettable: Vec::new(),
        }
    }

    pub fn bytes(&self) -> u64 {
        (self.owners.len() * 4 + self.all.len() * (size_of::<LfsSegment>() + 12)) as u64
    }

    pub fn places(&self) -> u32 {
        self.owners.len() as u32
    }

    fn of(&mut self, place: u32) -> &mut LfsSegment {
        &mut self.all[(place / self.blocks) as usize]
    }

    /// Number of clean segments, which a log can open now.
    pub fn clean(&self) -> u32 {
        self.clean.len() as u32
    }

    /// Number of segments that are clean, or become clean without another checkpoint.
    pub fn free(&self) -> u32 {
        (self.clean.len() + self.unknown.len() + self.in_checkpoint.len() + self.awaiting_readers.len() + self.resettable.len())
            as u32
    }

    /// Number of segments that only need a checkpoint before a reset.
    pub fn empty(&self) -> u32 {
        self.empty.len() as u32
    }

    /// Opens a clean segment; `None` if there is none.
    pub fn open(&mut self) -> Option<OpenSegment> {
        let segment = self.clean.pop_front()?;
        self.all[segment as usize].state = SegmentState::Open;
        Some(OpenSegment { segment, allocated: 0 })
    }

    /// Removes a clean segment, which is opened later by its number; `None` if there is none.
    pub fn reserve(&mut self) -> Option<u32> {
        self.open().map(|head| head.segment)
    }

    /// Number of free blocks in the open segment of a log.
    pub fn room(&self, head: OpenSegment) -> u32 {
        if head.segment == NONE { 0 } else { self.blocks - head.allocated }
    }

    /// Allocates blocks in an open segment with sufficient space. Returns the location of the first one. `now` is the number of the write.
    pub fn take(&mut self, head: &mut OpenSegment, blocks: u32, now: u64) -> u32 {
        let place = head.segment * self.blocks + head.allocated;
        head.allocated += blocks;
        let full = head.allocated == self.blocks;
        let segment = &mut self.all[head.segment as usize];
        segment.pending += blocks;
        if full {
            (segment.state, segment.closed) = (SegmentState::Closed, now);
            *head = OpenSegment::NONE;
        }
        place
    }

    /// Records that a block is being written to a location.
    pub fn set_owner(&mut self, place: u32, block: u32) {
        self.owners[place as usize] = block;
    }

    /// Returns the block that was last written to a location.
    pub fn owner(&self, place: u32) -> u32 {
        self.owners[place as usize]
    }

    /// Called when the writes of `blocks` blocks from location `place` on are complete.
    pub fn written(&mut self, place: u32, blocks: u32) {
        self.of(place).pending -= blocks;
        self.settle(place / self.blocks);
    }

    /// Called when the map starts to refer to a location.
    pub fn add_live(&mut self, place: u32) {
        self.of(place).live += 1;
    }

    /// Called when the map stops referring to a location.
    pub fn drop_place(&mut self, place: u32) {
        let segment = self.of(place);
        segment.live -= 1;
        if segment.live == 0 {
            self.settle(place / self.blocks);
        }
    }

    /// Adds a segment to the list of empty segments if it has no live and no pending blocks any more.
    fn settle(&mut self, number: u32) {
        let segment = &mut self.all[number as usize];
        if segment.state == SegmentState::Closed && segment.live == 0 && segment.pending == 0 {
            segment.state = SegmentState::Empty;
            self.empty.push(number);
        }
    }

    pub fn is_live(&self, segment: u32) -> bool {
        self.all[segment as usize].live > 0
    }

    /// Chooses the next segment to clean among those with at least `least` blocks that are not live.
    pub fn victim(&self, policy: CleaningPolicy, least: u32, now: u64) -> Option<u32> {
        let most = self.blocks - least;
        let is_worth =
            |segment: &LfsSegment| segment.state == SegmentState::Closed && segment.pending == 0 && segment.live <= most;
        let closed = (0..).zip(&self.all).filter(|(_, segment)| is_worth(segment));
        let candidates = closed.map(|(number, segment)| CleaningCandidate {
            segment: number,
            live: segment.live,
            age: now.saturating_sub(segment.closed),
        });
        policy.choose(candidates, self.blocks)
    }

    /// Moves up to `most` segments that must be reset to the list `to`. Segments that are ready for a reset come first. Segments with
    /// unknown contents follow until there are `wanted` clean segments.
    pub fn take_dirty(&mut self, wanted: u32, most: usize, to: &mut Vec<u32>) {
        let left = self.resettable.len().saturating_sub(most);
        to.extend(self.resettable.drain(left..));
        while to.len() < most && self.clean.len() + to.len() < wanted as usize {
            let Some(segment) = self.unknown.pop_front() else { break };
            to.push(segment);
        }
    }

    /// Called when segments were reset, which makes them clean.
    pub fn was_reset(&mut self, segments: &[u32]) {
        for segment in segments {
            self.all[*segment as usize] = LfsSegment::default();
            self.clean.push_back(*segment);
        }
    }

    /// Sets the states of all segments after recovery. Segments in `opened` stay open. Segments with live blocks are closed. Segments in
    /// `kept` are closed, or empty if they have no live blocks.
    pub fn recover(&mut self, kept: &[u32], opened: &[u32]) {
        self.unknown.clear();
        for number in 0..self.all.len() as u32 {
            let segment = &mut self.all[number as usize];
            if opened.contains(&number) {
                segment.state = SegmentState::Open;
            } else if segment.live > 0 || kept.contains(&number) {
                segment.state = SegmentState::Closed;
                self.settle(number);
            } else {
                self.unknown.push_back(number);
            }
        }
    }

    /// Removes a segment from the list of segments with unknown state; the caller resets the segment. Returns false if it was not in the
    /// list.
    pub fn take_unknown(&mut self, segment: u32) -> bool {
        let place = self.unknown.iter().position(|number| *number == segment);
        place.is_some_and(|place| self.unknown.remove(place).is_some())
    }
}
