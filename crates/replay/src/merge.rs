//! Several traces as one stream in order of arrival, each with its own beginning, and again from the start if asked.

use std::path::PathBuf;
use std::sync::Arc;

use emmclab_trace::{
    BATCH_ROWS, Batch, BatchBuilder, Ledger, Nanos, Progress, ReadOptions, Request, Result, TraceReader,
};

/// A trace to replay.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// The file.
    pub path: PathBuf,
    /// How to read it.
    pub options: ReadOptions,
    /// When its first request comes, counted from that of the earliest input.
    pub start_offset: Nanos,
}

/// One input being read.
struct Stream {
    reader: TraceReader,
    offset: i64,
    batch: Option<Batch>,
    row: usize,
    /// Added to its times, known from its first request on.
    shift: Option<i64>,
}

impl Stream {
    fn open(input: &Input) -> Result<Self> {
        Ok(Self {
            reader: TraceReader::open(&input.path, &input.options)?,
            offset: input.start_offset.0,
            batch: None,
            row: 0,
            shift: None,
        })
    }

    /// The next request, its arrival counted from the beginning of the run; not taken yet.
    fn peek(&mut self) -> Result<Option<Request>> {
        if self.batch.as_ref().is_none_or(|batch| self.row == batch.len()) {
            self.row = 0;
            self.batch = self.reader.next_batch()?;
        }
        let Some(batch) = &self.batch else { return Ok(None) };
        let mut request = batch.get(self.row);
        let shift = *self.shift.get_or_insert(self.offset.saturating_sub(request.arrival.0));
        move_by(&mut request, shift);
        Ok(Some(request))
    }
}

fn move_by(request: &mut Request, shift: i64) {
    request.arrival.0 = request.arrival.0.saturating_add(shift);
    for time in [&mut request.start, &mut request.issue, &mut request.complete].into_iter().flatten() {
        time.0 = time.0.saturating_add(shift);
    }
}

/// Inputs merged by arrival; of equal arrivals the earlier input goes first.
pub struct Merged {
    inputs: Vec<Input>,
    streams: Vec<Stream>,
    builder: BatchBuilder,
    /// Passes still to come.
    passes: u32,
    /// Added to the times of this pass.
    pass_shift: i64,
    last: i64,
    requests: u64,
    ledger: Ledger,
}

impl Merged {
    /// Opens the inputs, to be replayed `passes` times one after the other (at least once). A pass begins one mean
    /// inter-arrival time after the last request of the one before.
    ///
    /// # Errors
    /// Where an input cannot be opened.
    pub fn open(inputs: Vec<Input>, passes: u32) -> Result<Self> {
        let streams = inputs.iter().map(Stream::open).collect::<Result<_>>()?;
        Ok(Self {
            inputs,
            streams,
            builder: BatchBuilder::default(),
            passes: passes.saturating_sub(1),
            pass_shift: 0,
            last: 0,
            requests: 0,
            ledger: Ledger::default(),
        })
    }

    /// The next requests in order of arrival; `None` at the end. Names of processes and devices are left out.
    ///
    /// # Errors
    /// Where an input cannot be read on.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        if let ([only], 0, 0) = (self.streams.as_mut_slice(), self.passes, self.pass_shift) {
            return only.reader.next_batch();
        }
        while self.builder.len() < BATCH_ROWS {
            let mut first: Option<(usize, Request)> = None;
            for (i, stream) in self.streams.iter_mut().enumerate() {
                if let Some(request) = stream.peek()?
                    && first.is_none_or(|(_, best)| request.arrival < best.arrival)
                {
                    first = Some((i, request));
                }
            }
            let Some((index, mut request)) = first else {
                if self.passes == 0 || self.requests == 0 {
                    break;
                }
                self.next_pass()?;
                continue;
            };
            self.streams[index].row += 1;
            move_by(&mut request, self.pass_shift);
            (request.process, request.device) = (None, None);
            self.last = request.arrival.0;
            self.requests += 1;
            self.builder.push(&request);
        }
        if self.builder.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.builder.finish(&Arc::default(), &Arc::default())))
    }

    fn next_pass(&mut self) -> Result<()> {
        self.passes -= 1;
        self.ledger = self.ledger();
        self.pass_shift = self.last.saturating_add(self.last / self.requests as i64);
        self.streams = self.inputs.iter().map(Stream::open).collect::<Result<_>>()?;
        Ok(())
    }

    /// What all readers counted, over all passes.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = self.ledger.clone();
        for stream in &self.streams {
            ledger.add(&stream.reader.ledger());
        }
        ledger
    }

    /// How far reading has come in this pass.
    pub fn progress(&self) -> Progress {
        let mut sum = Progress { done: 0, total: Some(0) };
        for stream in &self.streams {
            let one = stream.reader.progress();
            sum.done += one.done;
            sum.total = sum.total.zip(one.total).map(|(sum, one)| sum + one);
        }
        sum
    }
}
