//! The runtime of a program if a part of the storage were infinitely fast.

use std::str::FromStr;

use emmclab_base::{Error, ErrorClass, Op, Result};
use emmclab_host::{FileClass, HostBlockRequest, IoCause};

/// A part of the storage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhatIfTarget {
    /// Every request to this partition.
    Partition(String),
    /// Every request whose first block is of this class.
    Class(FileClass),
    /// Every request of this operation.
    Operation(RequestPurpose),
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestPurpose {
    /// Reads, including read-ahead.
    Read,
    /// Writes that a sync waits for, commits, and flushes.
    Fsync,
    /// Writes that no thread waits for: write-back, checkpoints, cleaning.
    WriteBack,
}

impl RequestPurpose {
    /// All operations.
    pub const ALL: [Self; 3] = [Self::Read, Self::Fsync, Self::WriteBack];

    /// The name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Fsync => "fsync",
            Self::WriteBack => "write_back",
        }
    }

    fn of(block: &HostBlockRequest) -> Self {
        match block.cause {
            _ if block.request.op == Op::Read => Self::Read,
            IoCause::Caller(_) | IoCause::Commit => Self::Fsync,
            IoCause::WriteBack | IoCause::Checkpoint | IoCause::Cleaning | IoCause::ReadAhead => Self::WriteBack,
        }
    }
}

impl WhatIfTarget {
    /// Whether a request belongs to this part; `partition` is the name of its mount.
    pub(crate) fn takes(&self, block: &HostBlockRequest, partition: &str) -> bool {
        match self {
            Self::Partition(name) => name == partition,
            Self::Class(class) => *class == block.class,
            Self::Operation(operation) => *operation == RequestPurpose::of(block),
        }
    }
}

impl std::fmt::Display for WhatIfTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Partition(name) => write!(f, "partition={name}"),
            Self::Class(class) => write!(f, "class={}", class.name()),
            Self::Operation(operation) => write!(f, "op={}", operation.name()),
        }
    }
}

impl FromStr for WhatIfTarget {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let refused = |problem: &str, hint: String| {
            Err(Error::new(ErrorClass::Config, problem).of_field("what-if", 0, text.as_bytes()).hint(hint))
        };
        let Some((key, value)) = text.split_once('=') else {
            return refused("is not KEY=VALUE", "as partition=data, class=database, op=fsync".to_owned());
        };
        match key {
            "partition" => Ok(Self::Partition(value.to_owned())),
            "class" => match FileClass::ALL.into_iter().find(|class| class.name() == value) {
                Some(class) => Ok(Self::Class(class)),
                None => refused("is not a class of files", one_of(FileClass::ALL.map(FileClass::name))),
            },
            "op" => match RequestPurpose::ALL.into_iter().find(|operation| operation.name() == value) {
                Some(operation) => Ok(Self::Operation(operation)),
                None => refused("is not an operation", one_of(RequestPurpose::ALL.map(RequestPurpose::name))),
            },
            _ => refused("is not a part of the storage", one_of(["partition", "class", "op"])),
        }
    }
}

fn one_of<const N: usize>(names: [&str; N]) -> String {
    format!("use one of: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_written_as_it_is_read_and_unknown_ones_are_refused() {
        for text in ["partition=data", "class=database_journal", "op=fsync", "op=write_back"] {
            assert_eq!(text.parse::<WhatIfTarget>().unwrap().to_string(), text);
        }
        for text in ["data", "class=db", "op=seek", "disk=a", ""] {
            assert!(text.parse::<WhatIfTarget>().unwrap_err().hint_text().is_some(), "{text}");
        }
    }
}
