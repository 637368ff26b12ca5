//! Writes CSV.

use std::io::Write;

use super::super::line_sink::{LineSink, LineWriter};
use crate::{AtomicFile, Batch, Request, Result, TraceColumn, TraceHeader, TraceSink};

/// Writes all columns of requests under their names in the Parquet schema. Block notes, header and ledger cannot be written to
/// CSV.
pub(super) fn create(file: AtomicFile, _header: &TraceHeader) -> Result<Box<dyn TraceSink>> {
    Ok(Box::new(LineSink::new(file, CsvWriter)))
}

struct CsvWriter;

impl LineWriter for CsvWriter {
    fn heading(&mut self, out: &mut Vec<u8>) {
        let names: Vec<_> = TraceColumn::OF_REQUEST.iter().map(|column| column.name()).collect();
        out.extend_from_slice(names.join(",").as_bytes());
        out.push(b'\n');
    }

    fn line(&mut self, request: &Request, batch: &Batch, out: &mut Vec<u8>) -> Result<()> {
        let _ = write!(out, "{}", request.arrival.0);
        for time in [request.start, request.issue, request.served, request.complete] {
            out.push(b',');
            let _ = time.map_or(Ok(()), |time| write!(out, "{}", time.0));
        }
        let Request { sector, sectors, op, flags, .. } = request;
        let _ = write!(out, ",{},{sectors},{},{},", sector.0, op.name(), flags.0);
        let _ = request.pid.map_or(Ok(()), |pid| write!(out, "{pid}"));
        let process = request.process.and_then(|id| batch.processes().get(id));
        let device = request.device.and_then(|id| batch.devices().get(id));
        for name in [process, device] {
            out.push(b',');
            if let Some(name) = name {
                write_name(name, out);
            }
        }
        out.push(b'\n');
        Ok(())
    }
}

/// Writes the name of a process or device, in quotes if necessary. A line break in the name of a process is written as `\n` or
/// `\r`, because some tools read CSV line by line.
fn write_name(name: &str, out: &mut Vec<u8>) {
    let name = name.replace('\n', "\\n").replace('\r', "\\r");
    if name.is_empty() || name.starts_with(' ') || name.contains([',', '"']) {
        let _ = write!(out, "\"{}\"", name.replace('"', "\"\""));
    } else {
        out.extend_from_slice(name.as_bytes());
    }
}
