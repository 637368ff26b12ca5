//! Prints the model of a trace: `cargo run --release --example fit_model -- TRACE`.

use emmclab_profile::synth::Fitter;
use emmclab_trace::{Error, Kind, ReadOptions, Result, TraceReader};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).ok_or_else(|| Error::new(Kind::Config, "which trace?"))?;
    let mut reader = TraceReader::open(path.as_ref(), &ReadOptions::default())?;
    let mut fitter = Fitter::new("fitted");
    while let Some(batch) = reader.next_batch()? {
        fitter.push(&batch);
    }
    print!("{}", fitter.finish()?.to_toml()?);
    Ok(())
}
