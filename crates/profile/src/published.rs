//! The published Tables III and IV, and a check whether their figures are consistent with each other.

use std::ops::RangeInclusive;

use emmclab_trace::{Error, ErrorClass, Result};
use serde::Serialize;

const TABLE_3: &str = include_str!("../../../presets/published/iiswc15_table3_size.csv");
const TABLE_4: &str = include_str!("../../../presets/published/iiswc15_table4_timing.csv");

/// One application's row of Tables III and IV of the IISWC 2015 paper, rounded as printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedRow {
    /// The application.
    pub name: String,
    /// Kind of the trace: `individual` for one application, `combo` for applications that ran at the same time.
    pub kind: String,
    /// Column *Data Size* of the paper's Table III, KB.
    pub data_size_kb: f64,
    /// Column *Number of Reqs.* of the paper's Table III.
    pub requests: u64,
    /// Column *Max Size* of the paper's Table III, KB.
    pub max_size_kb: f64,
    /// Column *Ave. Size* of the paper's Table III, KB, rounded down to a multiple of 0.5.
    pub mean_size_kb: f64,
    /// Column *Ave. R Size* of the paper's Table III, KB, rounded like `mean_size_kb`.
    pub mean_read_kb: f64,
    /// Column *Ave. W Size* of the paper's Table III, KB, rounded like `mean_size_kb`.
    pub mean_write_kb: f64,
    /// Column *Write Reqs. Pct.* of the paper's Table III, percent.
    pub write_requests_pct: f64,
    /// Column *Write Size Pct.* of the paper's Table III, percent.
    pub written_bytes_pct: f64,
    /// Column *Recording Duration* of the paper's Table IV, in whole seconds.
    pub duration_s: f64,
    /// Column *Arrival Rate* of the paper's Table IV, requests per second.
    pub arrival_rate_per_s: f64,
    /// Column *Access Rate* of the paper's Table IV, KB per second.
    pub access_rate_kb_per_s: f64,
    /// Column *`NoWait` Req. Ratio* of the paper's Table IV, percent.
    pub no_wait_pct: f64,
    /// Mean service time, ms: column *Mean Serv.* of Table IV of the IISWC 2015 paper.
    pub mean_service_ms: f64,
    /// Column *Mean Resp.* of the paper's Table IV: the mean response time, ms.
    pub mean_response_ms: f64,
    /// Column *Spatial Locality* of the paper's Table IV, percent.
    pub spatial_locality_pct: f64,
    /// Column *Temporal Locality* of the paper's Table IV, percent.
    pub temporal_locality_pct: f64,
}

/// A published figure that contradicts other published figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inconsistency {
    /// The application.
    pub name: String,
    /// The inconsistent column.
    pub column: &'static str,
    /// The value with which the figure was compared: `data_size / mean_size`, `arrival_rate x duration`, `access_rate x duration`, or the
    /// value in `another row`.
    pub check: &'static str,
    /// The value as printed.
    pub published: f64,
    /// The smallest value that is consistent with the related published figures, considering their rounding.
    pub low: Option<f64>,
    /// The largest value that is consistent with the related published figures, considering their rounding.
    pub high: Option<f64>,
    /// An explanation for users.
    pub explanation: String,
}

/// Returns the published rows of Tables III and IV, in the paper's order.
pub fn rows() -> Result<Vec<PublishedRow>> {
    parse(TABLE_3, TABLE_4)
}

/// Parses the text of the published Tables III and IV (CSV with the columns of the files in `presets/published`).
/// Errors: [`ErrorClass::Syntax`] if a column or row is missing, [`ErrorClass::Value`] if a value is not a number.
pub fn parse(table_3: &str, table_4: &str) -> Result<Vec<PublishedRow>> {
    let timing = CsvTable::new(table_4)?;
    let sizes = CsvTable::new(table_3)?;
    let row = |size: &CsvRecord| {
        let name = size.text("application")?;
        let time = timing.records().find(|time| time.text("application").is_ok_and(|other| other == name));
        let time = time.ok_or_else(|| Error::new(ErrorClass::Syntax, format!("application `{name}` has no row of times")))?;
        Ok(PublishedRow {
            name: name.to_owned(),
            kind: size.text("kind")?.to_owned(),
            data_size_kb: size.number("data_size_kb")?,
            requests: size.number("requests")? as u64,
            max_size_kb: size.number("max_size_kb")?,
            mean_size_kb: size.number("mean_size_kb")?,
            mean_read_kb: size.number("mean_read_kb")?,
            mean_write_kb: size.number("mean_write_kb")?,
            write_requests_pct: size.number("write_requests_pct")?,
            written_bytes_pct: size.number("written_bytes_pct")?,
            duration_s: time.number("duration_s")?,
            arrival_rate_per_s: time.number("arrival_rate_per_s")?,
            access_rate_kb_per_s: time.number("access_rate_kb_per_s")?,
            no_wait_pct: time.number("no_wait_pct")?,
            mean_service_ms: time.number("mean_service_ms")?,
            mean_response_ms: time.number("mean_response_ms")?,
            spatial_locality_pct: time.number("spatial_locality_pct")?,
            temporal_locality_pct: time.number("temporal_locality_pct")?,
        })
    };
    sizes.records().map(|size| row(&size)).collect()
}

/// Size of the largest write request in all 25 traces of the paper, in KB ("The largest size of a write request is 16 MB", IISWC 2015,
/// section III-A).
const LARGEST_KB: f64 = 16_384.0;

/// Lists the published figures that contradict others by more than rounding explains. In the paper, data sizes are rounded down to 1 KB,
/// means to 0.5 KB, and rates to the last printed digit; durations are rounded up or down by less than a second.
pub fn inconsistencies(rows: &[PublishedRow]) -> Vec<Inconsistency> {
    let mut inconsistencies = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let requests = row.requests as f64;
        let duration = row.duration_s - 1.0..=row.duration_s + 1.0;
        let by_size = row.data_size_kb / (row.mean_size_kb + 0.5)..=(row.data_size_kb + 1.0) / row.mean_size_kb;
        let by_rate = product(&rounded(row.arrival_rate_per_s), &duration);
        let by_access = product(&rounded(row.access_rate_kb_per_s), &duration);
        let checks = [
            ("requests", "data_size / mean_size", requests, by_size),
            ("requests", "arrival_rate x duration", requests, by_rate),
            ("data_size_kb", "access_rate x duration", row.data_size_kb, by_access),
        ];
        for (column, check, published, allowed) in checks {
            if !allowed.contains(&published) {
                inconsistencies.push(out_of_range(row, column, check, published, &allowed));
            }
        }
        if row.max_size_kb > LARGEST_KB {
            inconsistencies.push(Inconsistency {
                name: row.name.clone(),
                column: "max_size_kb",
                check: "section III-A",
                published: row.max_size_kb,
                low: None,
                high: Some(LARGEST_KB),
                explanation: format!(
                    "the largest request is printed as {} KB, but section III-A says that the largest of all is 16 MB",
                    row.max_size_kb
                ),
            });
        }
        if let Some(twin) = rows[..index].iter().find(|twin| twin.requests == row.requests) {
            inconsistencies.push(Inconsistency {
                name: row.name.clone(),
                column: "requests",
                check: "another row",
                published: requests,
                low: None,
                high: None,
                explanation: format!("{} has the same number of requests, {requests}; the row seems to be a copy", twin.name),
            });
        }
    }
    inconsistencies
}

fn out_of_range(
    row: &PublishedRow, column: &'static str, check: &'static str, published: f64, allowed: &RangeInclusive<f64>,
) -> Inconsistency {
    let (low, high) = (allowed.start().ceil(), allowed.end().floor());
    Inconsistency {
        name: row.name.clone(),
        column,
        check,
        published,
        low: Some(low),
        high: Some(high),
        explanation: format!("{column} is printed as {published}, but {check} allows {low:.0} to {high:.0}"),
    }
}

/// The range of values that are printed as `value` with two decimals.
fn rounded(value: f64) -> RangeInclusive<f64> {
    value - 0.005..=value + 0.005
}

fn product(a: &RangeInclusive<f64>, b: &RangeInclusive<f64>) -> RangeInclusive<f64> {
    a.start() * b.start()..=a.end() * b.end()
}

/// A CSV table without quotes, like the bundled ones.
struct CsvTable<'a> {
    columns: Vec<&'a str>,
    lines: Vec<&'a str>,
}

struct CsvRecord<'a> {
    columns: &'a [&'a str],
    fields: Vec<&'a str>,
    line: u64,
}

impl<'a> CsvTable<'a> {
    fn new(text: &'a str) -> Result<Self> {
        let mut lines = text.lines();
        let head = lines.next().ok_or_else(|| Error::new(ErrorClass::Empty, "the table of published figures is empty"))?;
        Ok(Self { columns: head.split(',').collect(), lines: lines.collect() })
    }

    fn records(&self) -> impl Iterator<Item = CsvRecord<'_>> {
        (2..).zip(&self.lines).filter(|(_, line)| !line.is_empty()).map(|(line, text)| CsvRecord {
            columns: &self.columns,
            fields: text.split(',').collect(),
            line,
        })
    }
}

impl CsvRecord<'_> {
    fn text(&self, column: &str) -> Result<&str> {
        let at = self.columns.iter().position(|name| *name == column);
        at.and_then(|at| self.fields.get(at))
            .copied()
            .ok_or_else(|| Error::new(ErrorClass::Syntax, format!("the table has no column `{column}`")).at_line(self.line))
    }

    fn number(&self, column: &str) -> Result<f64> {
        let text = self.text(column)?;
        text.parse()
            .map_err(|_| Error::new(ErrorClass::Value, "invalid number").of_field(column, 0, text.as_bytes()).at_line(self.line))
    }
}
