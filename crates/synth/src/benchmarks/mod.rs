//! Benchmarks: workloads that are programs rather than recordings, and long sessions composed from the models of [`crate::presets`].
//!
//! Sequential write, random write and Postmark are those of Kim & Kim ("Advil", V-A). Of their `Phone_6H` (six hours of Android
//! applications, one after another) little more than the mixture of writes was published. The benchmark of this name is composed from the
//! IISWC 2015 models of similar applications, thinned to that mixture. `Browsing` is composed in the same way. It is far longer than any
//! published recording, to show effects that depend on the length of a trace.

mod ext4;
mod mixture;
mod postmark;

use std::sync::Arc;

use emmclab_trace::{BATCH_ROWS, Batch, BatchBuilder, Error, ErrorClass, NameTable, Nanos, Op, Request, Result, Sector};

use crate::distribute::SynthesisRng;

type Stream = Box<dyn Iterator<Item = Request> + Send>;

/// An entry in the list of available benchmarks.
pub struct BenchmarkEntry {
    /// Name of the benchmark.
    pub name: &'static str,
    /// A short description of its load.
    pub about: &'static str,
    /// Published claims and figures from which the benchmark was derived. A result that agrees with them does not validate the benchmark.
    pub made_from: &'static [&'static str],
    make: fn(u64) -> Result<Stream>,
}

/// Every benchmark.
pub const BENCHMARKS: &[BenchmarkEntry] = &[
    BenchmarkEntry {
        name: "SequentialWrite",
        about: "1 GB written from start to end, 4 KB at a time",
        made_from: &[],
        make: |_| Ok(Box::new((0..FILE_BLOCKS).map(write_block))),
    },
    BenchmarkEntry {
        name: "RandomWrite",
        about: "1 GB written in random order, 4 KB at a time, each once",
        made_from: &[],
        make: |seed| Ok(Box::new(shuffled(FILE_BLOCKS, seed).into_iter().map(write_block))),
    },
    BenchmarkEntry {
        name: "Postmark",
        about: "160,000 files of 4 to 8 KB in 20,000 directories, 60,000 transactions, on an ext4 model",
        made_from: &[],
        make: |seed| Ok(Box::new(postmark::Postmark::new(seed))),
    },
    BenchmarkEntry {
        name: "Phone_6H",
        about: "ten applications in turn for six hours",
        made_from: &["advil-fig9-fill"],
        make: |seed| mixture::session(mixture::APPLICATIONS, mixture::PHONE_6H, seed),
    },
    BenchmarkEntry {
        name: "Browsing",
        about: "web browsing for 144 hours",
        made_from: &["fast12-webbench-writes"],
        make: |seed| mixture::session(mixture::BROWSING, mixture::BROWSING_MIXTURE, seed),
    },
];

/// Blocks of 4 KB in 1 GB.
const FILE_BLOCKS: u64 = 1 << 18;
/// First sector of the file; the metadata of a file system precedes it.
const FILE_AT: u64 = 64 << 11;

fn write_block(block: u64) -> Request {
    Request::new(Nanos(0), Op::Write, Sector(FILE_AT + block * 8), 8)
}

fn shuffled(count: u64, seed: u64) -> Vec<u64> {
    let mut dice = SynthesisRng::new(seed);
    let mut order: Vec<u64> = (0..count).collect();
    dice.shuffle(&mut order);
    order
}

/// A benchmark as a stream of batches. The same name, seed and version give the same bytes. Benchmarks that are programs have no time
/// stamps of their own: their requests arrive 1 us after each other and are meant to be replayed back to back.
pub struct Benchmark {
    stream: Stream,
    left: u64,
    generated: u64,
    names: Arc<NameTable>,
}

impl Benchmark {
    /// Creates a benchmark by name, which ends after `requests` requests.
    /// Errors: [`ErrorClass::Config`] with the available names if there is no benchmark of this name.
    pub fn new(name: &str, seed: u64, requests: Option<u64>) -> Result<Self> {
        let entry = BENCHMARKS.iter().find(|entry| entry.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let names: Vec<_> = BENCHMARKS.iter().map(|entry| entry.name).collect();
            Error::new(ErrorClass::Config, format!("there is no benchmark `{name}`"))
                .hint(format!("choose one of the benchmarks: {}", names.join(", ")))
        })?;
        Ok(Self { stream: (entry.make)(seed)?, left: requests.unwrap_or(u64::MAX), generated: 0, names: Arc::default() })
    }
}

impl Iterator for Benchmark {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let mut builder = BatchBuilder::default();
        let count = self.left.min(BATCH_ROWS as u64) as usize;
        let mut taken = 0;
        for mut request in self.stream.by_ref().take(count) {
            if request.complete.is_none() {
                request.arrival = Nanos(self.generated as i64 * 1000);
            }
            builder.push(&request);
            self.generated += 1;
            taken += 1;
        }
        self.left -= taken;
        (taken > 0).then(|| builder.finish(&self.names, &self.names))
    }
}
