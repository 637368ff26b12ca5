//! Executes the instructions of a thread.

use emmclab_base::{Nanos, Result};
use emmclab_host::{CallerId, FileOp};

use super::thread::{FOR_EVER, Status};
use super::{Engine, Later};
use crate::code::Instruction;
use crate::storage::{Storage, likely_wait};
use crate::timeline::Doing;

impl<S: Storage> Engine<'_, S> {
    /// Executes the next instruction of a running thread that has no work left; false if the thread leaves its core.
    ///
    /// # Errors
    /// As [`Engine::run`].
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
            Instruction::Cpu(time) => {
                let ns = u128::from(time.draw(&mut thread.draws)) * u128::from(self.fixed.factor) / 1_000_000;
                thread.owed = Nanos(ns as i64);
                Ok(true)
            }
            Instruction::Think(time) => {
                let ns = time.draw(&mut thread.draws);
                thread.status = Status::Think;
                self.make(self.now.saturating_add(Nanos(ns as i64)), Later::Think(number));
                Ok(false)
            }
            Instruction::Network { bytes, round_trips } => {
                let bytes = bytes.draw(&mut thread.draws);
                let trips = round_trips.draw(&mut thread.draws) as i64;
                thread.status = Status::Network;
                let after = Nanos(self.fixed.round_trip.0.saturating_mul(trips));
                self.make(self.now.saturating_add(after), Later::Transfer(number, bytes));
                Ok(false)
            }
            Instruction::Signal(signal) => {
                if let Some(other) = self.signals[*signal as usize].give() {
                    self.wake(other, Doing::Thread(number));
                }
                Ok(true)
            }
            Instruction::Wait(signal) => {
                let goes_on = self.signals[*signal as usize].take(number);
                Ok(self.goes_on_or(number, goes_on, Status::Signal(*signal)))
            }
            Instruction::Lock(lock) => {
                let goes_on = self.locks[*lock as usize].take(number);
                Ok(self.goes_on_or(number, goes_on, Status::Lock(*lock)))
            }
            Instruction::Unlock(lock) => {
                if let Some(other) = self.locks[*lock as usize].release() {
                    self.wake(other, Doing::Thread(number));
                }
                Ok(true)
            }
            Instruction::Start(other) => self.start(*other).map(|()| true),
            Instruction::Join(other) => {
                let target = &mut self.threads[*other as usize];
                let goes_on = target.status == Status::Absent;
                if !goes_on {
                    target.joiners.push(number);
                }
                Ok(self.goes_on_or(number, goes_on, Status::Join(*other)))
            }
            Instruction::Repeat { times, end } => {
                let times = times.as_ref().map_or(FOR_EVER, |times| times.draw(&mut thread.draws));
                if times == 0 {
                    thread.next = *end as usize;
                } else {
                    thread.loops.push(times);
                }
                Ok(true)
            }
            Instruction::Again { begin } => {
                if thread.again() {
                    thread.next = *begin as usize;
                }
                Ok(true)
            }
            Instruction::Maybe { millionths, end } => {
                if thread.draws.below(1_000_000) >= *millionths {
                    thread.next = *end as usize;
                }
                Ok(true)
            }
            instruction => self.prepare(number, instruction).map(|()| true),
        }
    }

    /// Appends the file operations of an instruction to the queue of its thread.
    fn prepare(&mut self, number: u32, instruction: &Instruction) -> Result<()> {
        let super::thread::Thread { draws, cursors, queue, .. } = &mut self.threads[number as usize];
        let files = &mut self.files;
        let named = |error: emmclab_base::Error| {
            let thread = &self.fixed.program.threads[number as usize].name;
            error.hint(format!("look at the steps of thread `{thread}`"))
        };
        match instruction {
            Instruction::Pick { set, pick } => {
                files.pick(*set, *pick, &mut cursors[*set as usize], draws).map_err(named)?;
            }
            Instruction::Create { set } => files.create(*set, &mut cursors[*set as usize], queue),
            Instruction::Access { set, kind, size } => {
                let bytes = size.draw(draws);
                let cursor = &mut cursors[*set as usize];
                queue.extend(files.access(*set, *kind, bytes, cursor, draws).map_err(named)?);
            }
            Instruction::Fsync { set, data_only } => {
                let file = files.current(*set, &mut cursors[*set as usize], draws).map_err(named)?;
                queue.push_back(FileOp::Fsync { file, data_only: *data_only });
            }
            Instruction::Delete { set } => {
                queue.push_back(files.delete(*set, &mut cursors[*set as usize], draws).map_err(named)?);
            }
            Instruction::Truncate { set, size } => {
                let bytes = size.draw(draws);
                let cursor = &mut cursors[*set as usize];
                queue.push_back(files.truncate(*set, bytes, cursor, draws).map_err(named)?);
            }
            Instruction::Rename { from, to } => {
                queue.push_back(files.rename((*from, *to), cursors, draws).map_err(named)?);
            }
            Instruction::Sync => queue.push_back(FileOp::Sync),
            Instruction::Transaction { database, pages, new_pages } => {
                let (pages, new_pages) = (pages.draw(draws), new_pages.draw(draws));
                files.databases[*database as usize].transaction(pages, new_pages, draws, queue);
            }
            Instruction::Query { database, pages } => {
                let pages = pages.draw(draws);
                files.databases[*database as usize].query(pages, draws, queue);
            }
            _ => {}
        }
        Ok(())
    }

    /// Begins a file operation; false if the thread has to wait for it.
    fn operate(&mut self, number: u32, operation: &FileOp) -> Result<bool> {
        self.operations += 1;
        if let FileOp::Close { file } = operation {
            self.files.closed(*file);
        }
        self.syncs += u64::from(operation.is_sync());
        let spec = self.files.spec_of(operation).map(|spec| (spec.class, spec.mount));
        self.threads[number as usize].status = Status::Storage(likely_wait(operation), spec);
        self.storage.begin(CallerId(number), self.now, operation).map_err(|error| {
            let thread = &self.fixed.program.threads[number as usize].name;
            error.hint(format!("thread `{thread}` requested it at {}; see the sizes of its files", self.now))
        })?;
        self.asking = Some(number);
        self.end_operations()?;
        self.asking = None;
        Ok(self.threads[number as usize].status == Status::Running)
    }

    /// Sets the status of the thread if it has to wait; returns `goes_on`.
    fn goes_on_or(&mut self, number: u32, goes_on: bool, status: Status) -> bool {
        if !goes_on {
            self.threads[number as usize].status = status;
        }
        goes_on
    }

    /// Starts a thread; an error if it is still running.
    fn start(&mut self, number: u32) -> Result<()> {
        let thread = &mut self.threads[number as usize];
        if thread.status != Status::Absent {
            let name = &self.fixed.program.threads[number as usize].name;
            return Err(emmclab_base::Error::new(
                emmclab_base::Kind::Config,
                format!("a thread is started at {} while it still runs", self.now),
            )
            .of_field("thread", 0, name.as_bytes())
            .hint("`join` it before"));
        }
        thread.begin(self.now);
        self.cores.make_ready(number);
        Ok(())
    }

    /// Ends a thread and wakes those that join it; returns false.
    fn end(&mut self, number: u32) -> bool {
        self.threads[number as usize].status = Status::Absent;
        for other in std::mem::take(&mut self.threads[number as usize].joiners) {
            self.wake(other, Doing::Thread(number));
        }
        false
    }
}
