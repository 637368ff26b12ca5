//! Several traces at once on one device: their requests interleaved on one clock.

use std::sync::Arc;

use emmclab_trace::{
    BATCH_ROWS, Batch, BatchBuilder, Error, Header, Kind, Ledger, NameId, Names, Nanos, Progress, Request,
    Result, TraceReader,
};

/// Interleaves traces as if all had started together, at time 0; equal arrivals keep the order of the traces.
///
/// Addresses stay as they are: traces of the same device share it. Service times are those that each trace had alone.
pub struct Combiner {
    inputs: Vec<Input>,
    processes: Arc<Names>,
    devices: Arc<Names>,
    builder: BatchBuilder,
}

/// A trace and the place in it.
struct Input {
    reader: TraceReader,
    batch: Option<Batch>,
    row: usize,
    /// The next request, on the common clock; `None` at the end.
    head: Option<Request>,
    /// The trace's first arrival.
    origin: Nanos,
    /// Our ids of the names of the current batch.
    processes: Vec<NameId>,
    devices: Vec<NameId>,
}

impl Combiner {
    /// Takes readers that have not been read from yet.
    ///
    /// # Errors
    /// [`Kind::Config`] without a reader; otherwise as [`TraceReader::next_batch`].
    pub fn new(readers: Vec<TraceReader>) -> Result<Self> {
        if readers.is_empty() {
            return Err(
                Error::new(Kind::Config, "there is no trace to combine").hint("name at least one trace")
            );
        }
        let mut combiner = Self {
            inputs: Vec::with_capacity(readers.len()),
            processes: Arc::default(),
            devices: Arc::default(),
            builder: BatchBuilder::default(),
        };
        for reader in readers {
            let mut input = Input {
                reader,
                batch: None,
                row: 0,
                head: None,
                origin: Nanos::ZERO,
                processes: Vec::new(),
                devices: Vec::new(),
            };
            input.advance(&mut combiner.processes, &mut combiner.devices)?;
            if let Some(head) = &mut input.head {
                input.origin = head.arrival;
                *head = since(head, input.origin);
            }
            combiner.inputs.push(input);
        }
        Ok(combiner)
    }

    /// The next batch, or `None` at the end of the last trace.
    ///
    /// # Errors
    /// As [`TraceReader::next_batch`].
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        while self.builder.len() < BATCH_ROWS {
            let next = self.inputs.iter_mut().filter(|input| input.head.is_some()).min_by_key(|input| {
                // `min_by_key` keeps the first of equals.
                input.head.map(|head| head.arrival)
            });
            let Some(input) = next else { break };
            if let Some(head) = input.head {
                self.builder.push(&head);
            }
            input.advance(&mut self.processes, &mut self.devices)?;
        }
        Ok((!self.builder.is_empty()).then(|| self.builder.finish(&self.processes, &self.devices)))
    }

    /// The ledgers of all traces, added up.
    pub fn ledger(&self) -> Ledger {
        let mut all = Ledger::default();
        self.inputs.iter().for_each(|input| all.add(&input.reader.ledger()));
        all
    }

    /// Names all sources.
    pub fn header(&self) -> Header {
        let headers: Vec<Header> = self.inputs.iter().map(|input| input.reader.header()).collect();
        let joined = |field: fn(&Header) -> &str| {
            let mut parts: Vec<&str> = headers.iter().map(field).collect();
            parts.dedup();
            parts.join(" + ")
        };
        let device = headers[0]
            .device
            .clone()
            .filter(|_| headers.iter().all(|header| header.device == headers[0].device));
        Header {
            source: joined(|header| &header.source),
            format: joined(|header| &header.format),
            device,
            clock: "relative".to_owned(),
            note: Some(format!("{} traces combined, all from time 0", headers.len())),
        }
    }

    /// How far reading has come over all files.
    pub fn progress(&self) -> Progress {
        let parts = || self.inputs.iter().map(|input| input.reader.progress());
        Progress { done: parts().map(|part| part.done).sum(), total: parts().map(|part| part.total).sum() }
    }
}

impl Input {
    /// Goes to the next request.
    fn advance(&mut self, processes: &mut Arc<Names>, devices: &mut Arc<Names>) -> Result<()> {
        self.row += 1;
        while self.batch.as_ref().is_none_or(|batch| self.row >= batch.len()) {
            let Some(batch) = self.reader.next_batch()? else {
                self.head = None;
                return Ok(());
            };
            translate(batch.processes(), processes, &mut self.processes);
            translate(batch.devices(), devices, &mut self.devices);
            self.batch = Some(batch);
            self.row = 0;
        }
        let ours = |ids: &[NameId], id: Option<NameId>| id.and_then(|id| ids.get(id.0 as usize).copied());
        self.head = self.batch.as_ref().map(|batch| batch.get(self.row)).map(|request| Request {
            process: ours(&self.processes, request.process),
            device: ours(&self.devices, request.device),
            ..since(&request, self.origin)
        });
        Ok(())
    }
}

/// Our ids for a growing table of names.
fn translate(theirs: &Names, ours: &mut Arc<Names>, ids: &mut Vec<NameId>) {
    for name in theirs.iter().skip(ids.len()) {
        ids.push(Arc::make_mut(ours).intern(name));
    }
}

/// The request with times counted from `origin`.
fn since(request: &Request, origin: Nanos) -> Request {
    let shift = |time: Nanos| Nanos(time.0.saturating_sub(origin.0));
    Request {
        arrival: shift(request.arrival),
        start: request.start.map(shift),
        issue: request.issue.map(shift),
        complete: request.complete.map(shift),
        ..*request
    }
}
