//! Suggests `--columns` for a foreign heading with usual names.

use super::columns::is_name;

/// The usual names of a column, in lower case and without unit.
struct Alias {
    ours: &'static str,
    theirs: &'static [&'static str],
}

const TIMES: [Alias; 3] = [
    Alias {
        ours: "arrival",
        theirs: &[
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
    Alias {
        ours: "response",
        theirs: &["response", "latency", "lat", "responsetime", "response_time", "rt", "duration"],
    },
    Alias { ours: "complete", theirs: &["complete", "end", "end_time", "completion", "complete_time"] },
];

const OTHERS: [Alias; 8] = [
    Alias { ours: "sector", theirs: &["sector", "lba", "lbn", "block", "blkno", "start_sector"] },
    Alias { ours: "offset", theirs: &["offset", "off", "address", "addr", "io_offset"] },
    Alias { ours: "sectors", theirs: &["sectors", "nblks", "nblocks", "blocks", "nr_sectors"] },
    Alias { ours: "size", theirs: &["size", "len", "length", "bytes", "io_size", "nbytes", "request_size"] },
    Alias {
        ours: "op",
        theirs: &[
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
    Alias { ours: "pid", theirs: &["pid", "tid"] },
    Alias { ours: "process", theirs: &["process", "comm", "command", "proc", "proces"] },
    Alias {
        ours: "device",
        theirs: &["device", "disk", "dev", "lun", "device_id", "volume", "volume_id", "disknumber", "asu"],
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
fn alias<'a>(list: &'a [Alias], name: &str) -> Option<&'a str> {
    list.iter().find(|alias| alias.theirs.contains(&name)).map(|alias| alias.ours)
}

/// Our name for a foreign column; `None` if it is not known.
fn ours(name: &str) -> Option<String> {
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
        let column = ours(name).filter(|column| columns.iter().all(|other| stem(other) != stem(column)));
        columns.push(column.unwrap_or_else(|| "-".to_owned()));
    }
    let has = |all: &[&str]| {
        columns.iter().any(|column| all.iter().any(|name| column.split('_').next() == Some(name)))
    };
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
    let with =
        if units.is_empty() { String::new() } else { format!(" and{units}, as in the file's documentation") };
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
        assert!(
            columns.contains("--columns arrival,op,sector,size,response_us,- and --time-unit"),
            "{columns}"
        );
        assert_eq!(of("device_id capacity"), None);
        assert_eq!(of("name size op"), None);
    }
}
