//! The columns of a trace: names, units and meaning. The Parquet schema, the CSV formats and the reference pages use this list.

use arrow_schema::DataType;

/// A column of a trace, in the order of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TraceColumn {
    /// Time at which the request entered the queue.
    Arrival,
    /// Time at which the driver fetched the request.
    Start,
    /// Time of submission to the device.
    Issue,
    /// Time at which the driver saw the end of the command.
    Served,
    /// Time of completion.
    Complete,
    /// First sector.
    Sector,
    /// Length in sectors.
    Sectors,
    /// Operation.
    Op,
    /// Flags of the request, as bits.
    Flags,
    /// Process id.
    Pid,
    /// Process name.
    Process,
    /// Device name.
    Device,
    /// Role of each block note of a write. A block note describes a range of the sectors. This column and those below have an entry for
    /// each block note.
    Role,
    /// Length of each block note, in sectors.
    RoleSectors,
    /// First sector of the home location of each logged block.
    HomeSector,
    /// Number of changed sectors of each block note.
    ChangedSectors,
    /// Journal transaction of each block note.
    Transaction,
}

impl TraceColumn {
    /// All columns, in the order of the schema.
    pub const ALL: [TraceColumn; 17] = [
        TraceColumn::Arrival,
        TraceColumn::Start,
        TraceColumn::Issue,
        TraceColumn::Served,
        TraceColumn::Complete,
        TraceColumn::Sector,
        TraceColumn::Sectors,
        TraceColumn::Op,
        TraceColumn::Flags,
        TraceColumn::Pid,
        TraceColumn::Process,
        TraceColumn::Device,
        TraceColumn::Role,
        TraceColumn::RoleSectors,
        TraceColumn::HomeSector,
        TraceColumn::ChangedSectors,
        TraceColumn::Transaction,
    ];

    /// The name of the column in Parquet, CSV, Python and `--columns`.
    pub const fn name(self) -> &'static str {
        TEXTS[self as usize].0
    }

    /// The column with this name; `None` if there is none.
    pub fn by_name(name: &str) -> Option<TraceColumn> {
        TraceColumn::ALL.into_iter().find(|column| column.name() == name)
    }

    /// Whether requests may lack this value. A file without an optional column is read as if all its values were missing.
    pub const fn optional(self) -> bool {
        !matches!(self, TraceColumn::Arrival | TraceColumn::Sector | TraceColumn::Sectors | TraceColumn::Op)
    }

    /// The columns of requests, without the columns of block notes (roles of the blocks of a write).
    pub const OF_REQUEST: &[TraceColumn] = TraceColumn::ALL.split_at(TraceColumn::Role as usize).0;

    /// All optional columns.
    pub const ALL_OPTIONAL: [TraceColumn; 13] = {
        let mut optional = [TraceColumn::Start; 13];
        let (mut at, mut count) = (0, 0);
        while at < TraceColumn::ALL.len() {
            if TraceColumn::ALL[at].optional() {
                optional[count] = TraceColumn::ALL[at];
                count += 1;
            }
            at += 1;
        }
        optional
    };

    /// The optional columns that a recording of kernel events can fill: all except the columns of block notes (roles of the blocks of a
    /// write).
    pub const OF_EVENTS: &[TraceColumn] = TraceColumn::ALL_OPTIONAL.split_at(8).0;

    /// The optional columns that a recording with only block-layer events can fill. The time at which the driver saw the end of a command
    /// is not one of them.
    pub const OF_BLOCK_LAYER: &[TraceColumn] = &[
        TraceColumn::Start,
        TraceColumn::Issue,
        TraceColumn::Complete,
        TraceColumn::Flags,
        TraceColumn::Pid,
        TraceColumn::Process,
        TraceColumn::Device,
    ];

    /// Whether the column belongs to the block notes, which state the roles of the blocks of a write. Its values are lists with an entry
    /// for each note of the request. A trace without notes has none of these columns.
    pub const fn of_notes(self) -> bool {
        self as usize >= TraceColumn::Role as usize
    }

    /// The Arrow data type of the column.
    pub fn data_type(self) -> DataType {
        let text = |key| DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8));
        let list = |item| DataType::new_list(item, true);
        match self {
            TraceColumn::Arrival | TraceColumn::Start | TraceColumn::Issue | TraceColumn::Served | TraceColumn::Complete => {
                DataType::Int64
            }
            TraceColumn::Sector => DataType::UInt64,
            TraceColumn::Sectors => DataType::UInt32,
            TraceColumn::Op => text(DataType::UInt8),
            TraceColumn::Flags => DataType::UInt16,
            TraceColumn::Pid => DataType::Int32,
            TraceColumn::Process | TraceColumn::Device => text(DataType::UInt32),
            TraceColumn::Role => list(text(DataType::UInt8)),
            TraceColumn::RoleSectors | TraceColumn::Transaction => list(DataType::UInt32),
            TraceColumn::HomeSector => list(DataType::UInt64),
            TraceColumn::ChangedSectors => list(DataType::UInt16),
        }
    }

    /// The unit of the values; empty if they have none.
    pub const fn unit(self) -> &'static str {
        TEXTS[self as usize].1
    }

    /// The meaning of the values.
    pub const fn about(self) -> &'static str {
        TEXTS[self as usize].2
    }
}

const CLOCK: &str = "ns on the trace's clock";
const SECTORS: &str = "sectors of 512 bytes";

/// Name, unit and meaning of each column, in the order of the schema.
const TEXTS: [(&str, &str, &str); TraceColumn::ALL.len()] = [
    ("arrival_ns", CLOCK, "when the request was generated and put into the queue; rows are in this order"),
    ("start_ns", CLOCK, "when the driver fetched it and began to process it"),
    ("issue_ns", CLOCK, "when it was submitted to the device"),
    ("served_ns", CLOCK, "when the driver saw the end of its command; from issue to this time is the service time of the device"),
    ("complete_ns", CLOCK, "when the device had finished it"),
    ("sector", SECTORS, "first sector, from the start of the device"),
    ("sectors", SECTORS, "length; 0 only for a flush"),
    ("op", "", "`read`, `write`, `discard`, `flush` or `secure_erase`"),
    (
        "flags",
        "",
        "bits from the lowest: sync, fua, preflush, meta, readahead, packed, no_wait, no_wait_known, journal, reissued (suspected on reading), failed, append",
    ),
    ("pid", "", "id of the process that issued it"),
    ("process", "", "name of this process"),
    ("device", "", "name of its device"),
    (
        "role",
        "",
        "of each run of sectors of a write, in order: its role in the file system (`data`, `superblock`, \
         `group_descriptors`, `block_bitmap`, `inode_bitmap`, `inode_table`, `directory`, `metadata`, \
         `journal_superblock`, `descriptor`, `logged`, `revoke`, `commit`, `fast_commit`)",
    ),
    ("role_sectors", SECTORS, "length of each run; those of a request add up to its length"),
    ("home_sector", SECTORS, "of each logged block the first sector of its place in the file system (home)"),
    (
        "changed_sectors",
        SECTORS,
        "of each run, the number of changed sectors: a logged block and its home are compared with the last logged copy, other \
         blocks of the journal with zeros",
    ),
    (
        "transaction",
        "",
        "of each block of the journal its transaction, of a home block the last transaction that logged it, of the \
         journal's superblock the first transaction to replay",
    ),
];

/// Passes all columns of a batch to the macro `$then`. Each column has a field, the type of its values, an expression that reads the value
/// from a request, and a function that converts it back. An `optional` column may be absent; its constant marks a missing value.
macro_rules! each_column {
    ($then:ident) => {
        $then! {
            always {
                arrival: i64, request => request.arrival.0, Nanos;
                sector: u64, request => request.sector.0, Sector;
                sectors: u32, request => request.sectors, identity;
                op: u8, request => request.op as u8, operation;
                flags: u16, request => request.flags.0, RequestFlags;
            }
            optional {
                start: i64, NO_TIME, request => request.start.map(|time| time.0), Nanos;
                issue: i64, NO_TIME, request => request.issue.map(|time| time.0), Nanos;
                served: i64, NO_TIME, request => request.served.map(|time| time.0), Nanos;
                complete: i64, NO_TIME, request => request.complete.map(|time| time.0), Nanos;
                pid: i32, NO_PID, request => request.pid, identity;
                process: u32, NO_NAME, request => request.process.map(|name| name.0), NameId;
                device: u32, NO_NAME, request => request.device.map(|name| name.0), NameId;
            }
        }
    };
}
pub(crate) use each_column;
