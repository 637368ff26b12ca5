//! Executes the instructions of the threads of a simulated program.

use emmclab_base::{Nanos, Result};
use emmclab_host::{CallerId, FileOp};

use super::{FOR_EVER, ProgramEngine, ScheduledEvent, ThreadStatus};
use crate::storage::{StorageBackend, likely_wait};
use crate::thread_code::ThreadInstruction;
use crate::timeline::ThreadActivity;

impl<S: StorageBackend> ProgramEngine<'_, S> {
    /// Executes the next instruction of a running thread that has no pending CPU work. Returns false if the thread must leave its core.
    /// Errors: as [`ProgramEngine::run`].
    pub(super) fn instruct(&mut self, number: u32) -> Result<bool> {
        self.at_once += 1;
        self.check_progress()?;
        let thread = &mut self.threads[number as usize];
        if let Some(operation) = thread.queue.pop_front() {
            return self.operate(number, &operation);
        }
        let code = self.fixed.code;
        let Some(instruction) = code.threads[number as usize].get(thread.next) else {
            return Ok(self.end(number));
        };
        thread.next += 1;
        match instruction {
            ThreadInstruction::Cpu(time) => {
                let ns = u128::from(time.draw(&mut thread.draws)) * u128::from(self.fixed.factor) / 1_000_000;
                thread.pending_cpu = Nanos(ns as i64);
                Ok(true)
            }
            ThreadInstruction::Think(time) => {
                let ns = time.draw(&mut thread.draws);
                thread.status = ThreadStatus::Think;
                self.make(self.now.saturating_add(Nanos(ns as i64)), ScheduledEvent::Think(number));
                Ok(false)
            }
            ThreadInstruction::Network { bytes, round_trips } => {
                let bytes = bytes.draw(&mut thread.draws);
                let trips = round_trips.draw(&mut thread.draws) as i64;
                thread.status = ThreadStatus::Network;
                let after = Nanos(self.fixed.round_trip.0.saturating_mul(trips));
                self.make(self.now.saturating_add(after), ScheduledEvent::Transfer(number, bytes));
                Ok(false)
            }
            ThreadInstruction::Signal(signal) => {
                if let Some(other) = self.signals[*signal as usize].post() {
                    self.wake(other, ThreadActivity::Thread(number));
                }
                Ok(true)
            }
            ThreadInstruction::Wait(signal) => {
                let goes_on = self.signals[*signal as usize].take(number);
                Ok(self.goes_on_or(number, goes_on, ThreadStatus::Signal(*signal)))
            }
            ThreadInstruction::Lock(lock) => {
                let goes_on = self.locks[*lock as usize].take(number);
                Ok(self.goes_on_or(number, goes_on, ThreadStatus::Lock(*lock)))
            }
            ThreadInstruction::Unlock(lock) => {
                if let Some(other) = self.locks[*lock as usize].release() {
                    self.wake(other, ThreadActivity::Thread(number));
                }
                Ok(true)
            }
            ThreadInstruction::Start(other) => self.start(*other).map(|()| true),
            ThreadInstruction::Join(other) => {
                let target = &mut self.threads[*other as usize];
                let goes_on = target.status == ThreadStatus::Absent;
                if !goes_on {
                    target.joiners.push(number);
                }
                Ok(self.goes_on_or(number, goes_on, ThreadStatus::Join(*other)))
            }
            ThreadInstruction::Repeat { times, end } => {
                let times = times.as_ref().map_or(FOR_EVER, |times| times.draw(&mut thread.draws));
                if times == 0 {
                    thread.next = *end as usize;
                } else {
                    thread.loops.push(times);
                }
                Ok(true)
            }
            ThreadInstruction::Again { begin } => {
                if thread.next_iteration() {
                    thread.next = *begin as usize;
                }
                Ok(true)
            }
            ThreadInstruction::Maybe { millionths, end } => {
                if thread.draws.below(1_000_000) >= *millionths {
                    thread.next = *end as usize;
                }
                Ok(true)
            }
            instruction => self.prepare(number, instruction).map(|()| true),
        }
    }

    /// Appends the file operations of an instruction to the queue of its thread.
    fn prepare(&mut self, number: u32, instruction: &ThreadInstruction) -> Result<()> {
        let super::EngineThread { draws, cursors, queue, .. } = &mut self.threads[number as usize];
        let files = &mut self.files;
        let named = |error: emmclab_base::Error| {
            let thread = &self.fixed.program.threads[number as usize].name;
            error.hint(format!("check the steps of thread `{thread}` in the program"))
        };
        match instruction {
            ThreadInstruction::Pick { set, pick } => {
                files.pick(*set, *pick, &mut cursors[*set as usize], draws).map_err(named)?;
            }
            ThreadInstruction::Create { set } => files.create(*set, &mut cursors[*set as usize], queue),
            ThreadInstruction::Access { set, kind, size } => {
                let bytes = size.draw(draws);
                let cursor = &mut cursors[*set as usize];
                queue.extend(files.access(*set, *kind, bytes, cursor, draws).map_err(named)?);
            }
            ThreadInstruction::Fsync { set, data_only } => {
                let file = files.current(*set, &mut cursors[*set as usize], draws).map_err(named)?;
                queue.push_back(FileOp::Fsync { file, data_only: *data_only });
            }
            ThreadInstruction::Delete { set } => {
                queue.push_back(files.delete(*set, &mut cursors[*set as usize], draws).map_err(named)?);
            }
            ThreadInstruction::Truncate { set, size } => {
                let bytes = size.draw(draws);
                let cursor = &mut cursors[*set as usize];
                queue.push_back(files.truncate(*set, bytes, cursor, draws).map_err(named)?);
            }
            ThreadInstruction::Rename { from, to } => {
                queue.push_back(files.rename((*from, *to), cursors, draws).map_err(named)?);
            }
            ThreadInstruction::Sync => queue.push_back(FileOp::Sync),
            ThreadInstruction::Transaction { database, pages, new_pages } => {
                let (pages, new_pages) = (pages.draw(draws), new_pages.draw(draws));
                files.databases[*database as usize].transaction(pages, new_pages, draws, queue);
            }
            ThreadInstruction::Query { database, pages } => {
                let pages = pages.draw(draws);
                files.databases[*database as usize].query(pages, draws, queue);
            }
            _ => {}
        }
        Ok(())
    }

    /// Begins a file operation. Returns false if the thread has to wait for it.
    fn operate(&mut self, number: u32, operation: &FileOp) -> Result<bool> {
        self.operations += 1;
        if let FileOp::Close { file } = operation {
            self.files.closed(*file);
        }
        self.syncs += u64::from(operation.is_sync());
        let spec = self.files.spec_of(operation).map(|spec| (spec.class, spec.mount));
        self.threads[number as usize].status = ThreadStatus::Storage(likely_wait(operation), spec);
        self.storage.begin(CallerId(number), self.now, operation).map_err(|error| {
            let thread = &self.fixed.program.threads[number as usize].name;
            error.hint(format!("check the file sizes: thread `{thread}` requested this operation at {}", self.now))
        })?;
        self.asking = Some(number);
        self.end_operations()?;
        self.asking = None;
        Ok(self.threads[number as usize].status == ThreadStatus::Running)
    }

    /// Sets the status of the thread if `goes_on` is false. Returns `goes_on`.
    fn goes_on_or(&mut self, number: u32, goes_on: bool, status: ThreadStatus) -> bool {
        if !goes_on {
            self.threads[number as usize].status = status;
        }
        goes_on
    }

    /// Starts a thread.
    /// Errors: [`ErrorClass::Config`] if the thread is still running.
    fn start(&mut self, number: u32) -> Result<()> {
        let thread = &mut self.threads[number as usize];
        if thread.status != ThreadStatus::Absent {
            let name = &self.fixed.program.threads[number as usize].name;
            return Err(emmclab_base::Error::new(
                emmclab_base::ErrorClass::Config,
                format!("a thread is started at {} while it still runs", self.now),
            )
            .of_field("thread", 0, name.as_bytes())
            .hint("`join` the thread before it is started again"));
        }
        thread.begin(self.now);
        self.cores.make_ready(number);
        Ok(())
    }

    /// Ends a thread and wakes the threads that join it. Always returns false.
    fn end(&mut self, number: u32) -> bool {
        self.threads[number as usize].status = ThreadStatus::Absent;
        for other in std::mem::take(&mut self.threads[number as usize].joiners) {
            self.wake(other, ThreadActivity::Thread(number));
        }
        false
    }
}
