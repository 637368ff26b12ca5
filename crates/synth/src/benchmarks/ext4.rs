//! The layout of a file system like ext4: block groups that begin with bitmaps and inodes, files near their directories, and a journal.
//!
//! The model has these parts of ext4 (Linux documentation, "ext4 Data Structures and Algorithms"): 4 KB blocks; groups of 32,768 blocks
//! with 8,192 inodes of 256 bytes; directories spread over the groups; a file in the group of its directory; the blocks of a file after
//! those allocated last in the group; and a journal at one place in the middle of the volume.

const GROUP: u64 = 32_768;
const INODES: u64 = 8_192;
const INODES_PER_BLOCK: u64 = 16;
/// Number of metadata blocks of a group: group descriptors, two bitmaps, inode table.
const METADATA: u64 = 16 + 2 + INODES / INODES_PER_BLOCK;
/// Number of blocks of the journal: 128 MB.
pub(super) const JOURNAL: u64 = GROUP;

/// A block number in the volume.
pub(super) type Block = u64;

#[derive(Clone, Debug)]
struct ModelBlockGroup {
    /// The block after the last allocated block, where the search for a free block starts.
    goal: u64,
    used: Vec<bool>,
    next_inode: u64,
}

#[derive(Clone, Debug)]
pub(super) struct ModelVolume {
    groups: Vec<ModelBlockGroup>,
    journal: u64,
}

/// A file or directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelInode {
    group: usize,
    number: u64,
}

impl ModelVolume {
    /// Creates a volume with `groups` groups of 128 MB.
    pub fn new(groups: usize) -> Self {
        let group = ModelBlockGroup { goal: METADATA, used: vec![false; GROUP as usize], next_inode: 0 };
        Self { groups: vec![group; groups], journal: groups as u64 / 2 }
    }

    /// The first block of the journal, whose group contains nothing else.
    pub fn journal(&self) -> Block {
        self.journal * GROUP
    }

    /// Creates the `i`th of `count` directories. Directories are spread evenly over the groups; consecutive directories share a group.
    pub fn directory(&mut self, i: u64, count: u64) -> ModelInode {
        let usable = self.groups.len() as u64 - 1;
        let group = i * usable / count;
        self.inode((group + u64::from(group >= self.journal)) as usize)
    }

    /// Creates a file in the group of its directory.
    pub fn file(&mut self, directory: ModelInode) -> ModelInode {
        self.inode(directory.group)
    }

    fn inode(&mut self, group: usize) -> ModelInode {
        let number = self.groups[group].next_inode;
        self.groups[group].next_inode = (number + 1) % INODES;
        ModelInode { group, number }
    }

    /// Allocates a block for an inode: the first free block after the last one allocated in its group, or a block of the next group that
    /// has a free one. `None` if the volume is full.
    pub fn allocate(&mut self, inode: ModelInode) -> Option<Block> {
        let count = self.groups.len();
        for place in (inode.group..count).chain(0..inode.group) {
            if place as u64 == self.journal {
                continue;
            }
            let group = &mut self.groups[place];
            let behind = (group.goal..GROUP).chain(METADATA..group.goal);
            let Some(block) = behind.into_iter().find(|block| !group.used[*block as usize]) else { continue };
            group.used[block as usize] = true;
            group.goal = if block + 1 == GROUP { METADATA } else { block + 1 };
            return Some(place as u64 * GROUP + block);
        }
        None
    }

    pub fn free(&mut self, block: Block) {
        self.groups[(block / GROUP) as usize].used[(block % GROUP) as usize] = false;
    }

    /// The blocks that change with an inode: its block of the inode table, and the bitmaps and the descriptor of its group.
    pub fn metadata(inode: ModelInode) -> [Block; 4] {
        let first = inode.group as u64 * GROUP;
        [first + 18 + inode.number / INODES_PER_BLOCK, first + 16, first + 17, inode.group as u64 / 128]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_given_once_near_their_directory_and_again_when_free() {
        let mut volume = ModelVolume::new(4);
        let directory = volume.directory(0, 10);
        let file = volume.file(directory);
        let blocks: Vec<_> = (0..3).map(|_| volume.allocate(file).unwrap()).collect();
        assert_eq!(blocks, [METADATA, METADATA + 1, METADATA + 2]);
        volume.free(blocks[0]);
        assert_eq!(volume.allocate(file), Some(METADATA + 3), "behind the last one");
        let mut all: Vec<_> = std::iter::from_fn(|| volume.allocate(file)).collect();
        all.extend([METADATA + 1, METADATA + 2, METADATA + 3]);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len() as u64, 3 * (GROUP - METADATA), "all but the journal's group");
        assert!(all.iter().all(|block| block / GROUP != 2));
    }
}
