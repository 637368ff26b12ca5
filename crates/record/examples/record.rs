//! Records a device without Python until standard input ends, for `benches/record_overhead.py`: `record DEVICE OUT.parquet`.

use std::path::Path;
use std::time::Duration;

use emmclab_record::{RecordOptions, RecordOutcome, TracefsRecorder};
use emmclab_trace::{Result, TraceWriter, WriteOptions};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let options = RecordOptions { devices: arguments.next().into_iter().collect(), ..RecordOptions::default() };
    let out = arguments.next().unwrap_or_default();
    let recorder = TracefsRecorder::start(&options)?;
    let mut writer = TraceWriter::create(Path::new(&out), &recorder.header, &WriteOptions::default())?;
    for disk in &recorder.disks {
        eprintln!("recording {}", disk.name);
    }
    let input = std::thread::spawn(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    while !input.is_finished() {
        if let Some(batch) = recorder.next_batch(Duration::from_millis(100)) {
            writer.write(&batch)?;
        } else if recorder.has_ended() {
            break;
        }
    }
    let RecordOutcome { ledger, header, interrupted, .. } = recorder.stop(|batch| writer.write(&batch))?;
    writer.finish(&ledger, &header)?;
    println!("{ledger}");
    interrupted.map_or(Ok(()), Err)
}
