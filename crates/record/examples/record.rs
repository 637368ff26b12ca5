//! Records to a file, for benchmarks and for trials of the crate without Python:
//! `record [--ssh DEST | --adb SERIAL | --via SHELL] [--device NAME] [--buffer-kb N] [--seconds N] OUT.parquet [-- COMMAND...]`.
//! The recording ends with the command, after the seconds, or if neither is given at the end of standard input.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use emmclab_record::{RecordOptions, RecordOutcome, RecordTarget, TracefsRecorder, helper_command};
use emmclab_trace::{Error, ErrorClass, Result, TraceWriter, WriteOptions};

struct Job {
    options: RecordOptions,
    seconds: Option<u64>,
    out: String,
    command: Vec<String>,
}

fn parse() -> Result<Job> {
    let mut job = Job { options: RecordOptions::default(), seconds: None, out: String::new(), command: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    let bad = |name: &str| Error::new(ErrorClass::Config, "is unknown or lacks its value").of_field("option", 0, name.as_bytes());
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| bad(&argument));
        let number = |text: String| text.parse::<u64>().map_err(|_| bad(&text));
        match argument.as_str() {
            "--ssh" => job.options.target = RecordTarget::Ssh { destination: value()?, options: Vec::new() },
            "--adb" => {
                job.options.target = RecordTarget::Adb { serial: Some(value()?).filter(|serial| serial != "-"), port: None }
            }
            "--via" => {
                let mut command: Vec<String> = value()?.split(' ').map(str::to_owned).collect();
                command.extend(["-c".to_owned(), helper_command()]);
                job.options.target = RecordTarget::Command(command);
            }
            "--device" => job.options.devices.push(value()?),
            "--buffer-kb" => job.options.buffer_kb = Some(number(value()?)? as u32),
            "--seconds" => job.seconds = Some(number(value()?)?),
            "--" => job.command = arguments.by_ref().collect(),
            _ if argument.starts_with("--") => return Err(bad(&argument)),
            _ => job.out.clone_from(&argument),
        }
    }
    if job.out.is_empty() { Err(bad("OUT.parquet")) } else { Ok(job) }
}

fn run() -> Result<()> {
    let job = parse()?;
    let recorder = TracefsRecorder::start(&job.options)?;
    let mut writer = TraceWriter::create(Path::new(&job.out), &recorder.header, &WriteOptions::default())?;
    for disk in &recorder.disks {
        eprintln!("recording {}", disk.name);
    }
    let mut child = match job.command.split_first() {
        Some((program, arguments)) => {
            Some(Command::new(program).args(arguments).spawn().map_err(|error| Error::io(Path::new(program), error))?)
        }
        None => None,
    };
    let until_eof = child.is_none() && job.seconds.is_none();
    let input = until_eof.then(|| std::thread::spawn(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink())));
    let end = job.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    loop {
        if let Some(batch) = recorder.next_batch(Duration::from_millis(100)) {
            writer.write(&batch)?;
        } else if recorder.has_ended() {
            break;
        }
        let finished = child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
        let closed = input.as_ref().is_some_and(std::thread::JoinHandle::is_finished);
        if finished || closed || end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
    }
    let RecordOutcome { ledger, header, cpus, interrupted, .. } = recorder.stop(|batch| writer.write(&batch))?;
    writer.finish(&ledger, &header)?;
    println!("{header:?}\n{ledger}\n{cpus:?}");
    if let Some(error) = interrupted {
        eprintln!("ended early: {error}");
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint_text() {
                eprintln!("hint: {hint}");
            }
            ExitCode::from(1)
        }
    }
}
