//! Suggests `--columns` for a foreign heading with usual names.

use super::columns::is_name;

/// The usual names of a column, in lower case and without unit.
struct ColumnAliases {
    column_name: &'static str,
    foreign_names: &'static [&'static str],
}

const TIMES: [ColumnAliases; 3] = [
    ColumnAliases {
        column_name: "arrival",
        foreign_names: &[
            "arrival",
            "time",
            "timestamp",
            "ts",
            "clock_time",
            "arrival_time",
            "issue_time",
            "start_time",
            "op_time",
        ],
    },
    ColumnAliases {
        column_name: "response",
        foreign_names: &["response", "latency", "lat", "responsetime", "response_time", "rt", "duration"],
    },
    ColumnAliases {
        column_name: "complete",
        foreign_names: &["complete", "end", "end_time", "completion", "complete_time"],
    },
];

const OTHERS: [ColumnAliases; 8] = [
    ColumnAliases { column_name: "sector", foreign_names: &["sector", "lba", "lbn", "block", "blkno", "start_sector"] },
    ColumnAliases { column_name: "offset", foreign_names: &["offset", "off", "address", "addr", "io_offset"] },
    ColumnAliases { column_name: "sectors", foreign_names: &["sectors", "nblks", "nblocks", "blocks", "nr_sectors"] },
    ColumnAliases {
        column_name: "size",
        foreign_names: &["size", "len", "length", "bytes", "io_size", "nbytes", "request_size"],
    },
    ColumnAliases {
        column_name: "op",
        foreign_names: &[
            "op",
            "type",
            "rw",
            "r/w",
            "opcode",
            "iotype",
            "rwbs",
            "operation",
            "op_type",
            "cmd",
            "rw_flag",
        ],
    },
    ColumnAliases { column_name: "pid", foreign_names: &["pid", "tid"] },
    ColumnAliases { column_name: "process", foreign_names: &["process", "comm", "command", "proc", "proces"] },
    ColumnAliases {
        column_name: "device",
        foreign_names: &["device", "disk", "dev", "lun", "device_id", "volume", "volume_id", "disknumber", "asu"],
    },
];

const UNITS: [(&str, &str); 10] = [
    ("_s", "_s"),
    ("_sec", "_s"),
    ("(s)", "_s"),
    ("_ms", "_ms"),
    ("(ms)", "_ms"),
    ("_us", "_us"),
    ("(us)", "_us"),
    ("_ns", "_ns"),
    ("(ns)", "_ns"),
    ("_usec", "_us"),
];

/// Our name for a column with this usual name, both without unit; `None` if it is unknown.
fn alias<'a>(list: &'a [ColumnAliases], name: &str) -> Option<&'a str> {
    list.iter().find(|alias| alias.foreign_names.contains(&name)).map(|alias| alias.column_name)
}

/// Our name for a foreign column; `None` if it is not known.
fn own_column_name(name: &str) -> Option<String> {
    let name = name.trim_start_matches('#').to_ascii_lowercase();
    if is_name(&name) {
        return Some(name);
    }
    for (theirs, unit) in UNITS {
        if let Some(time) = name.strip_suffix(theirs).and_then(|stem| alias(&TIMES, stem)) {
            return Some(format!("{time}{unit}"));
        }
    }
    let bytes = name.strip_suffix("_bytes").or_else(|| name.strip_suffix("(bytes)"));
    if let Some(place @ ("offset" | "size")) = bytes.and_then(|stem| alias(&OTHERS, stem)) {
        return Some(format!("{place}_bytes"));
    }
    alias(&TIMES, &name).or_else(|| alias(&OTHERS, &name)).map(str::to_owned)
}

/// The hint for a heading, if its names contain a time, an address, a length and an operation.
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
