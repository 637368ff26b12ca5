//! The scan: finds the complete fast commits that apply on top of the log. Rules of `ext4_fc_replay_scan` and `fc_do_one_pass`.

use emmclab_base::{Error, Result};

use crate::byte_fields::{le16, le32, wide};
use crate::checksum::crc32c;
use crate::disk_structure::DiskStructure;
use crate::files::extent_length;
use crate::journal::{FAST_COMMIT_HEAD as HEAD, FastCommitTag, fast_commit_tag};

const LONGEST_NAME: usize = 255;

/// A record to be replayed.
pub(crate) struct FastCommitStep {
    pub tag: FastCommitTag,
    pub value: Vec<u8>,
}

/// The fast commits to be replayed.
#[derive(Default)]
pub(crate) struct FastCommitScan {
    pub steps: Vec<FastCommitStep>,
    /// Blocks that these commits add to files, which the replay must not allocate: first block, and number of blocks.
    pub regions: Vec<(u64, u64)>,
    pub commits: u64,
}

/// Scans the blocks of fast commits one after the other.
pub(crate) struct FastCommitScanner {
    /// The transaction after which they apply.
    expected: u32,
    inode_size: usize,
    crc: u32,
    /// Records of all complete commits so far, followed by those of the current one.
    scan: FastCommitScan,
    complete_lengths: (usize, usize),
}

impl FastCommitScanner {
    pub fn new(expected: u32, inode_size: u16) -> Self {
        Self {
            expected,
            inode_size: usize::from(inode_size),
            crc: 0,
            scan: FastCommitScan::default(),
            complete_lengths: (0, 0),
        }
    }

    /// Scans the next block: number `block` of the journal, at byte `offset` of the disk. Returns true if fast commits end here.
    pub fn block(&mut self, bytes: &[u8], block: u64, offset: u64, is_first: bool) -> Result<bool> {
        if is_first && le16(bytes, 0) != FastCommitTag::Head.number() {
            return Ok(true);
        }
        let structure = DiskStructure::FastCommit(block);
        let mut at = 0;
        while at + HEAD <= bytes.len() {
            let length = usize::from(le16(bytes, at + 2));
            let tag = fast_commit_tag(le16(bytes, at)).filter(|tag| self.is_length(*tag, length));
            let place = offset + at as u64;
            let end = |problem: String| self.end(structure.fault(place, problem));
            let (Some(tag), Some(value)) = (tag, bytes.get(at + HEAD..at + HEAD + length)) else {
                let (number, length) = (le16(bytes, at), length);
                return end(format!(
                    "no fast commit is complete before record {number} of {length} bytes, which is not valid: Linux does not mount this"
                ));
            };
            match tag {
                FastCommitTag::Head => {
                    let features = le32(value, 0);
                    if features != 0 {
                        return Err(
                            structure.unsupported(place, format!("unknown features {features:#x} of fast commits"))
                        );
                    }
                    if le32(value, 4) != self.expected {
                        return Ok(true);
                    }
                }
                FastCommitTag::Tail => {
                    let computed = crc32c(self.crc, &bytes[at..at + HEAD + 4]);
                    let (transaction, stored) = (le32(value, 0), le32(value, 4));
                    if transaction != self.expected || stored != computed {
                        return end(format!(
                            "the first fast commit is of transaction {transaction} with checksum {stored:#010x}, where {} and \
                             {computed:#010x} are expected: Linux does not mount this",
                            self.expected
                        ));
                    }
                }
                FastCommitTag::AddRange => {
                    let (blocks, _) = extent_length(le16(value, 8));
                    let first = wide(le16(value, 10), le32(value, 12));
                    self.scan.regions.push((first, u64::from(blocks)));
                }
                _ => {}
            }
            self.scan.steps.push(FastCommitStep { tag, value: value.to_vec() });
            if tag == FastCommitTag::Tail {
                self.crc = 0;
                self.complete_lengths = (self.scan.steps.len(), self.scan.regions.len());
                self.scan.commits += 1;
            } else {
                self.crc = crc32c(self.crc, &bytes[at..at + HEAD + length]);
            }
            at += HEAD + length;
        }
        Ok(false)
    }

    /// Handles data that is not a valid record: fast commits end here, or, if no commit was complete, Linux refuses to mount.
    fn end(&self, fault: Error) -> Result<bool> {
        if self.complete_lengths.0 == 0 { Err(fault) } else { Ok(true) }
    }

    fn is_length(&self, tag: FastCommitTag, length: usize) -> bool {
        match tag {
            FastCommitTag::AddRange => length == 16,
            FastCommitTag::DeleteRange => length == 12,
            FastCommitTag::Create | FastCommitTag::Link | FastCommitTag::Unlink => {
                (9..=8 + LONGEST_NAME).contains(&length)
            }
            FastCommitTag::Inode => (4 + 128..=4 + self.inode_size).contains(&length),
            FastCommitTag::Pad => true,
            FastCommitTag::Tail => length >= 8,
            FastCommitTag::Head => length == 8,
        }
    }

    /// Returns the records of complete commits.
    pub fn finish(mut self) -> FastCommitScan {
        self.scan.steps.truncate(self.complete_lengths.0);
        self.scan.regions.truncate(self.complete_lengths.1);
        self.scan
    }
}
