//! A folder and everything below it, as a reader of the mounted file system would see it.

use std::ops::ControlFlow;

use emmclab_base::Result;

use super::attributes::Attribute;
use super::{Ext4FileKind, Ext4Filesystem};
use crate::disk_reader::DiskReader;
use crate::disk_structure::DiskStructure;

/// A file, folder or link below a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// Its path from that folder, without a leading slash.
    pub path: Vec<u8>,
    /// Its kind.
    pub kind: Ext4FileKind,
    /// Its inode; equal for two names of the same file.
    pub inode: u32,
    /// Number of names that refer to it.
    pub links: u16,
    /// Contents of a regular file, or target of a symbolic link; otherwise empty.
    pub data: Vec<u8>,
    /// Extended attributes, by name.
    pub attributes: Vec<Attribute>,
}

impl<B: DiskReader> Ext4Filesystem<B> {
    /// Returns everything below a folder, sorted by path; `None` if there is no such folder. `limit` is the maximum size of each
    /// file in bytes, and `most` the maximum number of nodes.
    ///
    /// # Errors
    ///
    /// Damaged structures; more nodes than `most`.
    pub fn tree(&self, folder: &str, limit: usize, most: usize) -> Result<Option<Vec<TreeNode>>> {
        let Some(top) = self.lookup(folder)?.filter(|top| top.kind() == Ext4FileKind::Directory) else {
            return Ok(None);
        };
        let mut out: Vec<TreeNode> = Vec::new();
        let mut left = vec![(Vec::new(), top)];
        while let Some((path, directory)) = left.pop() {
            let mut names = Vec::new();
            self.entries(&directory, |entry| {
                if entry.name != b"." && entry.name != b".." {
                    names.push((entry.name.to_vec(), entry.inode));
                }
                ControlFlow::Continue(())
            })?;
            if out.len() + names.len() > most {
                let structure = DiskStructure::Directory(directory.number());
                return Err(structure.fault(directory.offset, format!("more than {most} files below a folder")));
            }
            for (name, number) in names {
                let inode = self.inode(number)?;
                let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                let path = [&path[..], separator, &name].concat();
                let data = match inode.kind() {
                    Ext4FileKind::Regular => self.contents(&inode, limit)?,
                    Ext4FileKind::Symlink => self.link(&inode)?,
                    _ => Vec::new(),
                };
                let mut attributes = self.attributes(&inode)?;
                attributes.sort();
                let (kind, inode_number, links) = (inode.kind(), inode.number(), inode.links());
                if kind == Ext4FileKind::Directory {
                    left.push((path.clone(), inode));
                }
                out.push(TreeNode { path, kind, inode: inode_number, links, data, attributes });
            }
        }
        out.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Some(out))
    }
}
