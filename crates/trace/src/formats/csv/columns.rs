//! The columns of a CSV file: names and units, and which are required.

use super::fields::{BLANK, NumberBase, OperationCoding, TimeColumnUnit};
use crate::formats::fields::is_blank;
use crate::formats::prelude::*;

/// The meaning of a column of the file, including its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnMeaning {
    Ignored,
    Time(TimeColumn, TimeColumnUnit),
    /// Address in units of this many bytes.
    Offset(u64, NumberBase),
    /// Length in units of this many bytes.
    Size(u64, NumberBase),
    Op(OperationCoding),
    Flags,
    Pid,
    Process,
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeColumn {
    Arrival,
    Start,
    Issue,
    Served,
    Complete,
    Response,
    Service,
}

pub(super) const MOMENTS: usize = 7;

impl TimeColumn {
    const ALL: [TimeColumn; MOMENTS] = [
        TimeColumn::Arrival,
        TimeColumn::Start,
        TimeColumn::Issue,
        TimeColumn::Served,
        TimeColumn::Complete,
        TimeColumn::Response,
        TimeColumn::Service,
    ];

    /// The column's name without a unit.
    pub const fn name(self) -> &'static str {
        match self {
            TimeColumn::Arrival => "arrival",
            TimeColumn::Start => "start",
            TimeColumn::Issue => "issue",
            TimeColumn::Served => "served",
            TimeColumn::Complete => "complete",
            TimeColumn::Response => "response",
            TimeColumn::Service => "service",
        }
    }
}

/// The meaning of a column's name. The name may lack the unit, so that an option must give it.
enum ColumnNameMeaning {
    Known(ColumnMeaning),
    TimeWithoutUnit(TimeColumn),
    PlaceWithoutUnit(fn(u64, NumberBase) -> ColumnMeaning),
}

fn named(name: &str) -> Option<ColumnNameMeaning> {
    if let Some(number) = name.strip_suffix("_hex") {
        return match named(number)? {
            ColumnNameMeaning::Known(ColumnMeaning::Offset(unit, NumberBase::Stated)) => {
                Some(ColumnNameMeaning::Known(ColumnMeaning::Offset(unit, NumberBase::Sixteen)))
            }
            ColumnNameMeaning::Known(ColumnMeaning::Size(unit, NumberBase::Stated)) => {
                Some(ColumnNameMeaning::Known(ColumnMeaning::Size(unit, NumberBase::Sixteen)))
            }
            _ => None,
        };
    }
    let known = match name {
        "-" => ColumnMeaning::Ignored,
        "sector" => ColumnMeaning::Offset(SECTOR_BYTES, NumberBase::Stated),
        "sectors" => ColumnMeaning::Size(SECTOR_BYTES, NumberBase::Stated),
        "offset" => return Some(ColumnNameMeaning::PlaceWithoutUnit(ColumnMeaning::Offset)),
        "offset_bytes" => ColumnMeaning::Offset(1, NumberBase::Stated),
        "offset_kb" => ColumnMeaning::Offset(1024, NumberBase::Stated),
        "size" => return Some(ColumnNameMeaning::PlaceWithoutUnit(ColumnMeaning::Size)),
        "size_bytes" => ColumnMeaning::Size(1, NumberBase::Stated),
        "size_kb" => ColumnMeaning::Size(1024, NumberBase::Stated),
        "flags" => ColumnMeaning::Flags,
        "pid" => ColumnMeaning::Pid,
        "process" => ColumnMeaning::Process,
        "device" => ColumnMeaning::Device,
        _ => {
            if let Some(codes) = OperationCoding::by_name(name) {
                return Some(ColumnNameMeaning::Known(ColumnMeaning::Op(codes)));
            }
            let (moment, unit) = match name.split_once('_') {
                Some((moment, unit)) => (moment, Some(TimeColumnUnit::by_name(unit)?)),
                None => (name, None),
            };
            let moment = TimeColumn::ALL.into_iter().find(|known| known.name() == moment)?;
            match unit {
                Some(unit) => ColumnMeaning::Time(moment, unit),
                None => return Some(ColumnNameMeaning::TimeWithoutUnit(moment)),
            }
        }
    };
    Some(ColumnNameMeaning::Known(known))
}

pub(super) fn is_name(name: &str) -> bool {
    named(name).is_some()
}

/// A name that a column can have, for the reference pages and messages.
#[derive(Clone, Copy, Debug)]
pub struct ColumnName {
    /// The name without the suffix for the unit.
    pub name: &'static str,
    /// Suffixes of the name that give the unit; for a name without a suffix, an option must give the unit.
    pub units: &'static [&'static str],
    /// What a file needs this column for; empty if the column is optional. If several columns have the same text, a file needs only one of
    /// them.
    pub needed: &'static str,
    /// The meaning of the values in the column.
    pub about: &'static str,
}

const TIMES: &[&str] = &["_ns", "_ticks", "_us", "_ms", "_s", "_min", "_h", "_d"];
const BYTES: &[&str] = &["_bytes", "_kb", "_bytes_hex"];
const SECTORS: &[&str] = &["_hex"];
const CODES: &[&str] = &["_read0", "_read1", "_scsi", "_nvme", "_mmc"];

/// All names that a column can have.
pub static NAMES: [ColumnName; 17] = {
    const fn name(name: &'static str, units: &'static [&'static str], needed: &'static str, about: &'static str) -> ColumnName {
        ColumnName { name, units, needed, about }
    }
    [
        name(
            "arrival",
            TIMES,
            "time",
            "when the request was generated; without it, `complete` minus `response`, else `start`, else `issue`",
        ),
        name("start", TIMES, "", "when the driver fetched the request"),
        name("issue", TIMES, "", "when it was submitted to the device"),
        name("served", TIMES, "", "when the driver saw the end of its command"),
        name("complete", TIMES, "", "when the request was complete"),
        name("response", TIMES, "", "from arrival to completion, in place of `complete`"),
        name("service", TIMES, "", "from start to completion, in place of `complete`"),
        name("sector", SECTORS, "address", "first sector of 512 bytes"),
        name("offset", BYTES, "address", "first byte, in place of `sector`"),
        name("sectors", SECTORS, "length", "sectors of 512 bytes"),
        name("size", BYTES, "length", "length, in place of `sectors`"),
        name(
            "op",
            CODES,
            "operation",
            "name of the operation, or letters as in `WS`; with a suffix a number: 0 or 1 is a read, or the code of a command",
        ),
        name("flags", &[], "", "number with a bit for each flag"),
        name("pid", &[], "", "id of the process that issued it"),
        name("process", &[], "", "name of this process"),
        name("device", &[], "", "name of its device"),
        name("-", &[], "", "a column that is ignored"),
    ]
};

/// Minimum number of columns in a heading.
pub(super) const LEAST: usize = 4;

/// The column names of a heading or of `--columns`.
pub(super) fn names(list: &str, separator: u8) -> impl Iterator<Item = &str> {
    let splits = move |c: char| {
        if separator == BLANK { c.is_ascii() && is_blank(c as u8) } else { c == char::from(separator) }
    };
    let names = list.split(splits).map(|name| name.trim().trim_matches('"'));
    names.filter(move |name| separator != BLANK || !name.is_empty())
}

/// Whether a line is a heading: all its fields are column names, and there are enough of them.
pub(super) fn is_heading(line: &str, separator: u8) -> bool {
    names(line, separator).count() >= LEAST && names(line, separator).all(|name| named(name).is_some())
}

/// The error for a line that looks like a heading but has unknown names; `None` for other lines.
pub(super) fn unknown_names(line: &str, separator: u8) -> Option<Error> {
    let is_word = |name: &str| {
        let letters = |c: char| c.is_ascii_alphanumeric() || " _-./%()[]".contains(c);
        name.len() <= 40 && name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(letters)
    };
    let known = |name: &str| named(name).is_some();
    // Words separated by blanks are taken for prose, unless at least two of them are column names.
    let few = if separator == BLANK { 2 } else { 0 };
    if names(line, separator).count() < LEAST - 1
        || !names(line, separator).all(|name| is_word(name) || known(name))
        || names(line, separator).filter(|name| known(name)).count() < few
    {
        return None;
    }
    let (column, first) = names(line, separator).enumerate().find(|(_, name)| !known(name))?;
    let others = names(line, separator).filter(|name| !known(name)).skip(1).collect::<Vec<_>>();
    let others = if others.is_empty() { String::new() } else { format!(" (nor are: {})", others.join(", ")) };
    let problem = format!("unrecognised trace format: as CSV, this is not a column name{others}");
    Some(
        Error::new(ErrorClass::UnknownFormat, problem)
            .of_field("heading", column as u64 + 1, first.as_bytes())
            .hint(hint(names(line, separator)).unwrap_or_else(|| HINT.to_owned())),
    )
}

/// The hint on naming columns; a test compares the names in it with [`NAMES`].
const HINT: &str = "name the columns in order with --columns, such as `arrival_us,op,offset_bytes,size_bytes`; `-` skips \
                    a column; the names are arrival, start, issue, served, complete, response, service (each with _ns, _ticks of \
                    100 ns, _us, _ms, _s, _min, _h or _d), sector or offset, sectors or size (_hex for hexadecimal without 0x), op, flags, \
                    pid, process, device";

fn size_unit(name: &str) -> Result<u64> {
    match name {
        "sector" => Ok(SECTOR_BYTES),
        "byte" => Ok(1),
        "kb" => Ok(1024),
        "page" => Ok(4096),
        _ => Err(Error::new(ErrorClass::Config, "unknown unit of size")
            .of_field("--size-unit", 0, name.as_bytes())
            .hint("choose one of the units of size sector, byte, kb and page")),
    }
}

const TIME_UNIT_HINT: &str = "give --time-unit s, ms, us or ns, or name the column with its unit, as arrival_us";
const SIZE_UNIT_HINT: &str = "give --size-unit sector, byte, kb or page, or name the column with its unit, as size_kb";

/// The meanings of the columns in `list`; options give the units that names lack. Fails if a name is unknown, a column is
/// repeated, a required column or a unit is missing, or an option for the unit is not needed.
pub(super) fn meanings(list: &str, separator: u8, options: &ReadOptions) -> Result<Vec<ColumnMeaning>> {
    let config = |problem: String| Error::new(ErrorClass::Config, problem);
    let without_times = is_without_times(options);
    let unit = options.time_unit.as_deref().filter(|_| !without_times);
    let unit = unit.map(TimeUnit::by_name).transpose()?.map(TimeColumnUnit::Decimal);
    let size_unit = options.size_unit.as_deref().map(size_unit).transpose()?;
    let (mut unit_used, mut size_unit_used) = (without_times, false);
    let named_in = if options.columns.is_some() { "--columns" } else { "heading" };
    let mut columns = Vec::new();
    for (i, name) in names(list, separator).enumerate() {
        let place = |error: Error| error.of_field(named_in, i as u64 + 1, name.as_bytes());
        let no_unit = |hint: &str| place(config("the column has no unit in its name".into())).hint(hint);
        let column = match named(name) {
            None => {
                return Err(place(config("unknown column of a trace".into())).hint(HINT));
            }
            Some(ColumnNameMeaning::Known(ColumnMeaning::Time(..)) | ColumnNameMeaning::TimeWithoutUnit(_)) if without_times => {
                return Err(place(config("the column is a time, but --time-unit none is given".into()))
                    .hint("give the unit of the times with --time-unit, or skip the column with `-`"));
            }
            Some(ColumnNameMeaning::Known(column)) => column,
            Some(ColumnNameMeaning::TimeWithoutUnit(moment)) => {
                unit_used = true;
                ColumnMeaning::Time(moment, unit.ok_or_else(|| no_unit(TIME_UNIT_HINT))?)
            }
            Some(ColumnNameMeaning::PlaceWithoutUnit(meaning)) => {
                size_unit_used = true;
                meaning(size_unit.ok_or_else(|| no_unit(SIZE_UNIT_HINT))?, NumberBase::Stated)
            }
        };
        if column != ColumnMeaning::Ignored && columns.iter().any(|other| same(*other, column)) {
            return Err(place(config("the column is named twice".into())).hint("name each column once; `-` skips a column"));
        }
        columns.push(column);
    }
    for (option, value, used) in
        [("--time-unit", &options.time_unit, unit_used), ("--size-unit", &options.size_unit, size_unit_used)]
    {
        if let Some(value) = value.as_ref().filter(|_| !used) {
            return Err(config("every column already has a unit".into())
                .of_field(option, 0, value.as_bytes())
                .hint("leave this option out, or remove the unit from the column's name"));
        }
    }
    check_needed(list, &columns, named_in, without_times)?;
    Ok(columns)
}

/// Whether an option states that the file has no times. It may then be a list of addresses without lengths and operations.
pub(super) fn is_without_times(options: &ReadOptions) -> bool {
    options.time_unit.as_deref() == Some("none")
}

/// Checks that the columns include a time, an address, a length and an operation; without times, an address suffices.
fn check_needed(list: &str, columns: &[ColumnMeaning], named_in: &str, without_times: bool) -> Result<()> {
    let has = |needed: ColumnMeaning| columns.iter().any(|column| same(*column, needed));
    let time = |moment| has(ColumnMeaning::Time(moment, TimeColumnUnit::Decimal(TimeUnit::Nanos)));
    let by_completion = time(TimeColumn::Complete) && (time(TimeColumn::Response) || time(TimeColumn::Service));
    let timed = time(TimeColumn::Arrival) || time(TimeColumn::Start) || time(TimeColumn::Issue) || by_completion;
    for (name, is_present) in [
        ("arrival (nor complete with response, from which it is computed)", timed || without_times),
        ("sector or offset", has(ColumnMeaning::Offset(1, NumberBase::Stated))),
        ("sectors or size", has(ColumnMeaning::Size(1, NumberBase::Stated)) || without_times),
        ("op", has(ColumnMeaning::Op(OperationCoding::Names)) || without_times),
    ] {
        if !is_present {
            let missing = Error::new(ErrorClass::Config, format!("the table has no column {name}"));
            return Err(missing.of_field(named_in, 0, list.as_bytes()).hint(HINT));
        }
    }
    Ok(())
}

/// Whether two columns have the same meaning, possibly in different units.
fn same(first: ColumnMeaning, second: ColumnMeaning) -> bool {
    match (first, second) {
        (ColumnMeaning::Time(first, _), ColumnMeaning::Time(second, _)) => first == second,
        _ => std::mem::discriminant(&first) == std::mem::discriminant(&second),
    }
}

/// emmclab's name of each time column, and its usual names in other files, in lower case and without units.
const TIME_ALIASES: [(&str, &str); 3] = [
    ("arrival", "arrival time timestamp ts clock_time arrival_time issue_time start_time op_time"),
    ("response", "response latency lat responsetime response_time rt duration"),
    ("complete", "complete end end_time completion complete_time"),
];

/// emmclab's names of the columns that are not times, and their usual names in other files, in lower case and without units.
const OTHERS: [(&str, &str); 8] = [
    ("sector", "sector lba lbn block blkno start_sector"),
    ("offset", "offset off address addr io_offset"),
    ("sectors", "sectors nblks nblocks blocks nr_sectors"),
    ("size", "size len length bytes io_size nbytes request_size"),
    ("op", "op type rw r/w opcode iotype rwbs operation op_type cmd rw_flag"),
    ("pid", "pid tid"),
    ("process", "process comm command proc proces"),
    ("device", "device disk dev lun device_id volume volume_id disknumber asu"),
];

/// emmclab's suffixes for time units, and the usual suffixes in other files.
const UNITS: [(&str, &str); 4] = [("_s", "_s _sec (s)"), ("_ms", "_ms (ms)"), ("_us", "_us (us) _usec"), ("_ns", "_ns (ns)")];

/// emmclab's name for a column that other tools call `name`; `None` if `name` is not known. Both names are without units.
fn alias(list: &'static [(&str, &str)], name: &str) -> Option<&'static str> {
    list.iter().find(|(_, usual)| usual.split(' ').any(|word| word == name)).map(|(ours, _)| *ours)
}

/// emmclab's name for a column of another tool; `None` if the column is not known.
fn own_column_name(name: &str) -> Option<String> {
    let name = name.trim_start_matches('#').to_ascii_lowercase();
    if is_name(&name) {
        return Some(name);
    }
    for (unit, usual) in UNITS {
        let stem = usual.split(' ').find_map(|theirs| name.strip_suffix(theirs));
        if let Some(time) = stem.and_then(|stem| alias(&TIME_ALIASES, stem)) {
            return Some(format!("{time}{unit}"));
        }
    }
    let bytes = name.strip_suffix("_bytes").or_else(|| name.strip_suffix("(bytes)"));
    if let Some(place @ ("offset" | "size")) = bytes.and_then(|stem| alias(&OTHERS, stem)) {
        return Some(format!("{place}_bytes"));
    }
    alias(&TIME_ALIASES, &name).or_else(|| alias(&OTHERS, &name)).map(str::to_owned)
}

/// The hint for a heading whose names include a time, an address, a length and an operation; `None` for others.
pub(super) fn hint<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut columns: Vec<String> = Vec::new();
    for name in names {
        let stem = |name: &str| match name {
            "sector" | "offset" | "offset_bytes" | "offset_kb" => "sector".to_owned(),
            "sectors" | "size" | "size_bytes" | "size_kb" => "sectors".to_owned(),
            name => name.split('_').next().unwrap_or(name).to_owned(),
        };
        let column = own_column_name(name).filter(|column| columns.iter().all(|other| stem(other) != stem(column)));
        columns.push(column.unwrap_or_else(|| "-".to_owned()));
    }
    let has = |all: &[&str]| columns.iter().any(|column| all.iter().any(|name| column.split('_').next() == Some(name)));
    let enough = has(&["arrival"]) && has(&["sector", "offset"]) && has(&["sectors", "size"]) && has(&["op"]);
    if !enough {
        return None;
    }
    let mut units = String::new();
    if columns.iter().any(|column| ["arrival", "response", "complete"].contains(&column.as_str())) {
        units.push_str(" --time-unit UNIT (s, ms, us or ns)");
    }
    if columns.iter().any(|column| ["offset", "size"].contains(&column.as_str())) {
        units.push_str(" --size-unit UNIT (sector, byte, kb or page)");
    }
    let with = if units.is_empty() { String::new() } else { format!(" and{units}, as in the file's documentation") };
    Some(format!("its heading suggests --columns {}{with}", columns.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_is_listed_is_known_and_named_in_the_hint() {
        for ColumnName { name, units, .. } in NAMES {
            assert!(named(name).is_some(), "{name}");
            for unit in units {
                assert!(named(&format!("{name}{unit}")).is_some(), "{name}{unit}");
            }
            assert!(name == "-" || HINT.contains(name), "{name}");
        }
    }

    #[test]
    fn prose_and_numbers_are_no_heading() {
        for line in ["1,2,3,4", "Well, well: that is it, then; no?", "a,b", ""] {
            assert!(unknown_names(line, b',').is_none(), "{line}");
        }
        let error = unknown_names("time_us,rw,sector,len", b',').unwrap();
        assert_eq!(error.field(), Some("heading"));
        assert!(error.to_string().contains("(column 1): `time_us`") && error.to_string().contains("rw, len"));
    }

    #[test]
    fn a_heading_of_usual_names_gives_the_columns() {
        let of = |heading: &str| hint(heading.split(' '));
        let columns = of("time_s op lba size seq").unwrap();
        assert!(columns.contains("--columns arrival_s,op,sector,size,- and --size-unit UNIT"), "{columns}");
        let columns = of("Timestamp Type LBA Length Latency(us) Latency(us)").unwrap();
        assert!(columns.contains("--columns arrival,op,sector,size,response_us,- and --time-unit"), "{columns}");
        assert_eq!(of("device_id capacity"), None);
        assert_eq!(of("name size op"), None);
    }
}
