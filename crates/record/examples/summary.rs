//! Reads a trace of any format and prints its header and ledger: `summary TRACE...`.

use std::path::Path;

use emmclab_record::open_trace;
use emmclab_trace::{ReadOptions, Result};

fn main() -> Result<()> {
    for path in std::env::args().skip(1) {
        let mut reader = open_trace(Path::new(&path), &ReadOptions::default())?;
        let mut requests = 0;
        while let Some(batch) = reader.next_batch()? {
            requests += batch.len();
        }
        println!("{path}: {requests} requests, {:?}\n{}", reader.header(), reader.ledger());
    }
    Ok(())
}
