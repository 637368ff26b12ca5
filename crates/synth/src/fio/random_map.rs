//! The random map: which blocks of a file have been issued in this pass, as fio keeps it for requests of several sizes.

/// A bit for each block.
#[derive(Debug)]
pub(super) struct RandomMap {
    words: Vec<u64>,
    blocks: u64,
    free: u64,
}

impl RandomMap {
    pub fn new(blocks: u64) -> Self {
        let words = usize::try_from(blocks.div_ceil(64)).unwrap_or(0);
        Self { words: vec![0; words], blocks, free: blocks }
    }

    fn is_set(&self, block: u64) -> bool {
        self.words[(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    /// The first free block at or after a block, searching on from the beginning after the end; `None` if all have been issued.
    pub fn free_from(&self, block: u64) -> Option<u64> {
        if self.free == 0 {
            return None;
        }
        self.free_in(block, self.blocks).or_else(|| self.free_in(0, block))
    }

    fn free_in(&self, from: u64, to: u64) -> Option<u64> {
        let mut block = from;
        while block < to {
            let taken = self.words[(block / 64) as usize] >> (block % 64);
            let skip = u64::from(taken.trailing_ones()).min(64 - block % 64);
            if skip == 0 {
                return Some(block);
            }
            block += skip;
        }
        None
    }

    /// Marks up to `most` blocks as issued, from the free block `block` to the next one that is taken. Returns their number, at least 1.
    pub fn take(&mut self, block: u64, most: u64) -> u64 {
        let end = block.saturating_add(most).min(self.blocks);
        let mut at = block;
        while at < end && !self.is_set(at) {
            self.words[(at / 64) as usize] |= 1 << (at % 64);
            at += 1;
        }
        self.free -= at - block;
        at - block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_free_until_it_is_taken_and_long_requests_end_at_a_taken_one() {
        let mut map = RandomMap::new(200);
        assert_eq!((map.take(100, 10), map.take(95, 20), map.take(199, 20)), (10, 5, 1));
        assert_eq!([map.free_from(95), map.free_from(199), map.free_from(0)], [Some(110), Some(0), Some(0)]);
        let mut taken = 16;
        while let Some(block) = map.free_from(64) {
            taken += map.take(block, 7);
        }
        assert_eq!((taken, map.free_from(3)), (200, None));
    }
}
