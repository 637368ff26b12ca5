//! The columns of a trace: names, units and meaning. The Parquet schema, the CSV formats and the reference pages use this list.

use arrow_schema::DataType;

/// A column of a trace, in the order of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Column {
    /// Time at which the request was generated.
    Arrival,
    /// Time at which the driver fetched the request.
    Start,
    /// Time of submission.
    Issue,
    /// Time at which the driver saw the command end.
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
    /// Role of each block note of a write. This and the columns below have an entry for each note.
    Role,
    /// Length of each note.
    RoleSectors,
    /// First sector of the home of each logged block.
    HomeSector,
    /// Number of changed sectors of each note.
    ChangedSectors,
    /// Transaction of each note.
    Transaction,
}

impl Column {
    /// All columns, in the order of the schema.
    pub const ALL: [Column; 17] = [
        Column::Arrival,
        Column::Start,
        Column::Issue,
        Column::Served,
        Column::Complete,
        Column::Sector,
        Column::Sectors,
        Column::Op,
        Column::Flags,
        Column::Pid,
        Column::Process,
        Column::Device,
        Column::Role,
        Column::RoleSectors,
        Column::HomeSector,
        Column::ChangedSectors,
        Column::Transaction,
    ];

    /// The name of the column in Parquet, CSV, Python and `--columns`.
    pub const fn name(self) -> &'static str {
        match self {
            Column::Arrival => "arrival_ns",
            Column::Start => "start_ns",
            Column::Issue => "issue_ns",
            Column::Served => "served_ns",
            Column::Complete => "complete_ns",
            Column::Sector => "sector",
            Column::Sectors => "sectors",
            Column::Op => "op",
            Column::Flags => "flags",
            Column::Pid => "pid",
            Column::Process => "process",
            Column::Device => "device",
            Column::Role => "role",
            Column::RoleSectors => "role_sectors",
            Column::HomeSector => "home_sector",
            Column::ChangedSectors => "changed_sectors",
            Column::Transaction => "transaction",
        }
    }

    /// The column of this name; `None` if there is none.
    pub fn by_name(name: &str) -> Option<Column> {
        Column::ALL.into_iter().find(|column| column.name() == name)
    }

    /// Whether a request may have no value in it. A file without an optional column is read as if all values were missing.
    pub const fn optional(self) -> bool {
        !matches!(self, Column::Arrival | Column::Sector | Column::Sectors | Column::Op)
    }

    /// The columns of requests, without those of block notes.
    pub const OF_REQUEST: &[Column] = Column::ALL.split_at(Column::Role as usize).0;

    /// All optional columns.
    pub const ALL_OPTIONAL: [Column; 13] = [
        Column::Start,
        Column::Issue,
        Column::Served,
        Column::Complete,
        Column::Flags,
        Column::Pid,
        Column::Process,
        Column::Device,
        Column::Role,
        Column::RoleSectors,
        Column::HomeSector,
        Column::ChangedSectors,
        Column::Transaction,
    ];

    /// The optional columns that a recording of kernel events can fill: all except those of block notes.
    pub const OF_EVENTS: &[Column] = Column::ALL_OPTIONAL.split_at(8).0;

    /// The columns of block notes. Each value is a list with an entry for each note of the request. A trace without notes has
    /// none of these columns.
    pub const OF_NOTES: &[Column] = Column::ALL.split_at(Column::Role as usize).1;

    /// Whether it is one of [`Column::OF_NOTES`].
    pub const fn of_notes(self) -> bool {
        self as usize >= Column::Role as usize
    }

    /// The Arrow type.
    pub fn data_type(self) -> DataType {
        let text = |key| DataType::Dictionary(Box::new(key), Box::new(DataType::Utf8));
        let list = |item| DataType::new_list(item, true);
        match self {
            Column::Arrival | Column::Start | Column::Issue | Column::Served | Column::Complete => {
                DataType::Int64
            }
            Column::Sector => DataType::UInt64,
            Column::Sectors => DataType::UInt32,
            Column::Op => text(DataType::UInt8),
            Column::Flags => DataType::UInt16,
            Column::Pid => DataType::Int32,
            Column::Process | Column::Device => text(DataType::UInt32),
            Column::Role => list(text(DataType::UInt8)),
            Column::RoleSectors | Column::Transaction => list(DataType::UInt32),
            Column::HomeSector => list(DataType::UInt64),
            Column::ChangedSectors => list(DataType::UInt16),
        }
    }

    /// The unit of the values; empty if they have none.
    pub const fn unit(self) -> &'static str {
        match self {
            Column::Arrival | Column::Start | Column::Issue | Column::Served | Column::Complete => {
                "ns on the trace's clock"
            }
            Column::Sector
            | Column::Sectors
            | Column::RoleSectors
            | Column::HomeSector
            | Column::ChangedSectors => "sectors of 512 bytes",
            Column::Op
            | Column::Flags
            | Column::Pid
            | Column::Process
            | Column::Device
            | Column::Role
            | Column::Transaction => "",
        }
    }

    /// The meaning of the values.
    pub const fn about(self) -> &'static str {
        match self {
            Column::Arrival => {
                "when the request was generated and put into the queue; rows are in this order"
            }
            Column::Start => "when the driver fetched it and began to process it",
            Column::Issue => "when it was submitted to the device",
            Column::Served => {
                "when the driver saw the end of its command at the device: from issue to here is the service time of the device"
            }
            Column::Complete => "when the device had finished it",
            Column::Sector => "first sector, from the start of the device",
            Column::Sectors => "length; 0 only for a flush",
            Column::Op => "`read`, `write`, `discard`, `flush` or `secure_erase`",
            Column::Flags => {
                "bits from the lowest: sync, fua, preflush, meta, readahead, packed, no_wait, no_wait_known, journal, reissued (suspected on reading), failed, append"
            }
            Column::Pid => "id of the process behind it",
            Column::Process => "name of that process",
            Column::Device => "name of the device it went to",
            Column::Role => {
                "of each run of sectors of a write, in order: its role in the file system (`data`, `superblock`, \
                 `group_descriptors`, `block_bitmap`, `inode_bitmap`, `inode_table`, `directory`, `metadata`, \
                 `journal_superblock`, `descriptor`, `logged`, `revoke`, `commit`, `fast_commit`)"
            }
            Column::RoleSectors => "length of each run; those of a request add up to its length",
            Column::HomeSector => {
                "of each logged block the first sector of its place in the file system (home)"
            }
            Column::ChangedSectors => {
                "of each run, the number of changed sectors: a logged block and its home are compared with the last logged copy, other \
                 blocks of the journal with zeros"
            }
            Column::Transaction => {
                "of each block of the journal its transaction, of a home block the last transaction that logged it, of the \
                 journal's superblock the first transaction to replay"
            }
        }
    }
}

/// Passes every column of a batch to the macro `$then`: its field, the type of its values, the expression that reads the value
/// from a request, and the function that converts it back. A column of the second list may be absent; its constant stands for a
/// missing value.
macro_rules! each_column {
    ($then:ident) => {
        $then! {
            always {
                arrival: i64, request => request.arrival.0, Nanos;
                sector: u64, request => request.sector.0, Sector;
                sectors: u32, request => request.sectors, identity;
                op: u8, request => request.op as u8, operation;
                flags: u16, request => request.flags.0, Flags;
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
