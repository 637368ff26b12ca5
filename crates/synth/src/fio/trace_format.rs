//! A job file of fio as a trace format: the requests of its jobs at times that do not depend on a device.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use emmclab_trace::formats::{FormatTimes, TraceFormat};
use emmclab_trace::{
    Batch, DecompressedInput, Error, ErrorClass, Ledger, NameTable, ReadOptions, ReadProgress, RecordedFeatures, Request, Result,
    TraceColumn, TraceHeader, TraceSource,
};

use super::{FioJobs, options};

/// Job files of fio.
pub static FORMAT: TraceFormat = TraceFormat {
    name: "fio-job",
    about: "fio job file: the requests of its jobs; `simulate` runs the jobs in closed loop",
    known_by: "sections in brackets, with options of fio",
    from: "written by hand; `fio FILE` runs it",
    gives: &[TraceColumn::Process, TraceColumn::Device],
    unknown: "times: they depend on the device",
    extensions: &[],
    recorded: RecordedFeatures::ALL,
    times: FormatTimes::Loose,
    sniff,
    open: |input: DecompressedInput, _: &ReadOptions| Ok(Box::new(JobFileSource::open(input)?)),
    writes: None,
};

/// Options of which one is in nearly every job file.
const USUAL: [&str; 12] = [
    "rw", "readwrite", "ioengine", "bs", "blocksize", "size", "filename", "directory", "iodepth", "direct", "runtime", "numjobs",
];
/// Length of a job file beyond which it is none.
const MOST_BYTES: u64 = 16 << 20;

fn sniff(head: &[u8], _: &Path) -> bool {
    let Ok(text) = std::str::from_utf8(head).or_else(|error| std::str::from_utf8(&head[..error.valid_up_to()])) else {
        return false;
    };
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
    let begins = lines.next().is_some_and(|line| line.starts_with('[') && line.contains(']'));
    begins && lines.any(|line| line.split_once('=').is_some_and(|(name, _)| USUAL.contains(&name.trim())))
}

struct JobFileSource {
    text: String,
    /// The requests; `None` before the first one is read.
    jobs: Option<FioJobs>,
    header: TraceHeader,
    names: (Arc<NameTable>, Arc<NameTable>),
    generated: u64,
}

impl JobFileSource {
    fn open(input: DecompressedInput) -> Result<Self> {
        let source = input.name();
        let text = text_of(input)?;
        let jobs = options::jobs(&text, &environment)?;
        let header = TraceHeader {
            source,
            format: FORMAT.name.to_owned(),
            recorded: Some(RecordedFeatures::ALL),
            clock: "relative".to_owned(),
            note: Some(super::note(&jobs)),
            ..TraceHeader::default()
        };
        Ok(Self { text, jobs: None, header, names: Default::default(), generated: 0 })
    }

    fn next(&mut self) -> Result<Option<Batch>> {
        let jobs = match &mut self.jobs {
            Some(jobs) => jobs,
            None => self.jobs.insert(FioJobs::new(&self.text, 1, None, &environment)?),
        };
        let batch = jobs.next();
        if let Some(batch) = &batch {
            self.generated += batch.len() as u64;
            self.names = (batch.processes().clone(), batch.devices().clone());
        }
        Ok(batch)
    }
}

/// Reads a job file, which may be compressed.
/// Errors: if the file cannot be read, is longer than 16 MB or is not UTF-8.
pub fn read_job_file(path: &Path) -> Result<String> {
    text_of(DecompressedInput::open(path)?)
}

fn text_of(input: DecompressedInput) -> Result<String> {
    let path = input.path().to_owned();
    let mut text = String::new();
    let mut reader = input.into_reader().take(MOST_BYTES + 1);
    reader.read_to_string(&mut text).map_err(|error| Error::io(&path, error))?;
    if text.len() as u64 > MOST_BYTES {
        let problem = format!("not a job file of fio: it is larger than {} MB, or endless", MOST_BYTES >> 20);
        return Err(Error::new(ErrorClass::Io, problem).in_file(&path).hint("check the path"));
    }
    Ok(text)
}

/// Returns the value of a variable of the environment, for `${NAME}` in a job file.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl TraceSource for JobFileSource {
    fn fill(&mut self, out: &mut Vec<Request>) -> Result<bool> {
        let batch = self.next()?;
        out.extend(batch.iter().flat_map(Batch::iter));
        Ok(batch.is_some())
    }

    fn names(&self) -> (&NameTable, &NameTable) {
        (&self.names.0, &self.names.1)
    }

    fn ledger(&self) -> Ledger {
        Ledger { seen: self.generated, ..Ledger::default() }
    }

    fn header(&self) -> TraceHeader {
        self.header.clone()
    }

    fn progress(&self) -> ReadProgress {
        ReadProgress { done: self.generated, total: None }
    }

    fn next_sorted(&mut self) -> Option<Result<Option<Batch>>> {
        Some(self.next())
    }
}
