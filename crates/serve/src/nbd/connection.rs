//! The thread of one client: it receives, submits, sends and sleeps.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use emmclab_base::SECTOR_BYTES;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use super::NbdExport;
use super::negotiation::{CONTEXT_ID, NbdNegotiation, NegotiationStep, send_greeting};
use super::pending::{NbdMemoryBudget, NbdMemoryShare, PendingNbdRequests};
use super::request_parser::{BlockStatusQuery, NbdRequestParser, ParserPause};
use super::wire::STATE_HOLE_ZERO;
use crate::device::{AllocationExtent, CompletionReceiver, ServedCompletion, ServedRequest};
use crate::waker::ThreadWaker;

/// Maximum number of extents in one block status reply.
const MAX_EXTENTS: usize = 1 << 16;
/// Time for a client to receive its last replies when the server stops.
const GRACE: Duration = Duration::from_secs(5);

enum NbdPhase {
    Negotiation(NbdNegotiation),
    Transmission(NbdRequestParser),
    /// No more input is read; pending replies are still sent.
    Ending,
}

/// The condition for which the thread waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionWait {
    Input,
    /// Wait until fewer than this many bytes of memory are in use.
    Room(usize),
    /// Wait until the device has completed all requests.
    Completions,
}

struct NbdConnection {
    link: Arc<NbdLink>,
    completions: Arc<dyn CompletionReceiver>,
    export: Arc<NbdExport>,
    buffer: ReceiveBuffer,
    phase: NbdPhase,
    batch: Vec<ServedRequest>,
    /// Whether more input has probably arrived.
    eager: bool,
    /// Time at which a stopping server closes the connection.
    deadline: Option<Instant>,
}

/// Serves a client until the client or the server ends the connection.
pub(super) fn serve(link: Arc<NbdLink>, export: Arc<NbdExport>) {
    // The thread of the connection sends its replies itself, so its id is stored.
    link.owner.get_or_init(|| thread::current().id());
    send_greeting(&mut link.state().pending.output);
    let completions = Arc::clone(&link) as Arc<dyn CompletionReceiver>;
    let phase = NbdPhase::Negotiation(NbdNegotiation::default());
    let (buffer, batch) = (ReceiveBuffer::new(), Vec::new());
    let mut connection = NbdConnection { link, completions, export, buffer, phase, batch, eager: false, deadline: None };
    loop {
        let need = connection.work();
        // The lock on the pending replies is released after each system call.
        while connection.link.state().pending.send(&connection.link.socket) {}
        if !connection.wait(need) {
            break;
        }
    }
}

/// Shuts the socket down, so that the client sees the end of the connection even if the device panics; later completions are dropped.
impl Drop for NbdConnection {
    fn drop(&mut self) {
        self.link.state().pending.break_off();
        // `shutdown` fails if the client has already disconnected.
        let _ = shutdown(&self.link.socket, Shutdown::Both);
    }
}

impl NbdConnection {
    /// Parses all received bytes and submits the requests; returns what to wait for.
    fn work(&mut self) -> ConnectionWait {
        loop {
            let refuse = self.link.wake.is_stopping();
            let mut state = self.link.state();
            let pending = &mut state.pending;
            let intake = match &mut self.phase {
                NbdPhase::Ending => return ConnectionWait::Completions,
                NbdPhase::Negotiation(_) if !pending.has_room(0) => {
                    return ConnectionWait::Room(pending.used());
                }
                NbdPhase::Negotiation(negotiation) => {
                    match negotiation.step(self.buffer.filled(), &self.export, refuse, &mut pending.output) {
                        NegotiationStep::Hungry => return ConnectionWait::Input,
                        NegotiationStep::Next(used) => self.buffer.consume(used),
                        NegotiationStep::Transmit(used, session) => {
                            self.buffer.consume(used);
                            pending.structured = session.structured;
                            self.phase = NbdPhase::Transmission(NbdRequestParser::new(session));
                        }
                        NegotiationStep::Ended => self.phase = NbdPhase::Ending,
                    }
                    continue;
                }
                NbdPhase::Transmission(intake) => intake,
            };
            let pause = intake.parse(&mut self.buffer, &self.export, refuse, pending, &mut self.batch);
            let used = pending.used();
            drop(state);
            if !self.batch.is_empty() {
                self.eager = self.batch.len() > 1;
                self.export.device.submit(&mut self.batch, &self.completions);
                self.batch.clear();
            }
            match pause {
                ParserPause::Hungry => return ConnectionWait::Input,
                ParserPause::Stalled => return ConnectionWait::Room(used),
                ParserPause::Status(query) => self.report(query),
                ParserPause::Ended => self.phase = NbdPhase::Ending,
            }
        }
    }

    /// Answers a block status request. The link is not locked during the query of the device, because a thread that completes
    /// requests may have the lock of the device.
    fn report(&self, query: BlockStatusQuery) {
        let (sector, sectors) = (query.offset / SECTOR_BYTES, u64::from(query.length) / SECTOR_BYTES);
        let mut extents = Vec::new();
        let most = if query.single_extent { 1 } else { MAX_EXTENTS };
        self.export.device.extents(sector, sectors, most, &mut extents);
        extents.truncate(most);
        let states = states(&extents, sectors);
        self.link.state().pending.output.block_status(query.cookie, CONTEXT_ID, &states);
    }

    /// Receives input, or sleeps until there is work; returns false if the connection has ended.
    fn wait(&mut self, need: ConnectionWait) -> bool {
        if self.link.wake.is_stopping() {
            let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + GRACE);
            if Instant::now() >= deadline {
                return false;
            }
        }
        // When the server stops, data that has already arrived is still read, so that its requests are rejected before the connection is
        // closed.
        let eager = std::mem::take(&mut self.eager) || self.deadline.is_some();
        if need == ConnectionWait::Input && eager && self.receive() {
            return true;
        }
        let mut state = self.link.state();
        let (busy, output) = (state.pending.is_busy(), &state.pending.output);
        let (unsent, broken) = (!output.is_empty(), output.broken);
        let over = match need {
            ConnectionWait::Room(used) if state.pending.used() < used => return true,
            ConnectionWait::Completions if broken => true,
            ConnectionWait::Completions => !busy && !unsent,
            ConnectionWait::Input if self.deadline.is_some() => !busy && !unsent,
            _ => false,
        };
        if over {
            return false;
        }
        state.awaits_completions = need != ConnectionWait::Input || self.deadline.is_some();
        state.awaits_socket = unsent;
        drop(state);
        self.sleep(need == ConnectionWait::Input, unsent)
    }

    /// Polls the socket and the wake descriptor, and receives input if there is any. Returns false if polling fails.
    fn sleep(&mut self, input: bool, unsent: bool) -> bool {
        let mut interest = PollFlags::empty();
        interest.set(PollFlags::IN, input);
        interest.set(PollFlags::OUT, unsent);
        let timeout = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|left| Timespec::try_from(left).ok());
        // The socket is polled only if there is an event to wait for. Otherwise, a disconnected client would be reported continuously.
        let mut polled = [PollFd::new(&self.link.wake.event, PollFlags::IN), PollFd::new(&self.link.socket, interest)];
        let count = if interest.is_empty() { 1 } else { 2 };
        match poll(&mut polled[..count], timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
        let (woken, events) = (!polled[0].revents().is_empty(), polled[1].revents());
        if woken {
            self.link.wake.clear();
        }
        let mut state = self.link.state();
        (state.awaits_completions, state.awaits_socket) = (false, false);
        drop(state);
        if input && events.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.receive();
        }
        true
    }

    /// Receives once without blocking. Returns true if there was input or the end of the stream.
    fn receive(&mut self) -> bool {
        let received = match &mut self.phase {
            NbdPhase::Transmission(intake) => intake.receive(&mut self.buffer, &self.link.socket),
            _ => self.buffer.receive(&self.link.socket),
        };
        match received {
            Err(Errno::AGAIN) => return false,
            Ok(0) | Err(_) => self.phase = NbdPhase::Ending,
            // If this call received much data, more data has probably arrived already.
            Ok(count) => self.eager |= count >= CAPACITY / 4,
        }
        true
    }
}

/// Converts extents into lengths in bytes and flags: at least one extent, and no more than `sectors` in total.
fn states(extents: &[AllocationExtent], sectors: u64) -> Vec<(u32, u32)> {
    let mut left = sectors;
    let mut states: Vec<(u32, u32)> = Vec::with_capacity(extents.len());
    for extent in extents {
        let length = extent.sectors.min(left);
        left -= length;
        let (bytes, flags) = ((length * SECTOR_BYTES) as u32, if extent.allocated { 0 } else { STATE_HOLE_ZERO });
        match states.last_mut().filter(|last| last.1 == flags) {
            Some(last) => last.0 += bytes,
            None if bytes > 0 => states.push((bytes, flags)),
            None => {}
        }
    }
    if states.is_empty() {
        states.push(((sectors * SECTOR_BYTES) as u32, 0));
    }
    states
}

/// The part of an NBD connection's state that is protected by a lock.
pub(super) struct NbdLinkState {
    pub pending: PendingNbdRequests,
    /// Whether the thread of the connection sleeps until requests are complete.
    pub awaits_completions: bool,
    /// Whether the thread of the connection sleeps until the socket is writable.
    pub awaits_socket: bool,
}

/// A connection, as shared with the device and the server.
pub(super) struct NbdLink {
    pub socket: OwnedFd,
    /// Wakes the thread of the connection, or requests its end.
    pub wake: Arc<ThreadWaker>,
    state: Mutex<NbdLinkState>,
    owner: OnceLock<ThreadId>,
}

impl NbdLink {
    pub fn new(socket: OwnedFd, budget: &Arc<NbdMemoryBudget>) -> rustix::io::Result<Self> {
        let wake = Arc::new(ThreadWaker::new()?);
        let pending = PendingNbdRequests::new(NbdMemoryShare::new(Arc::clone(budget), Arc::clone(&wake)));
        let state = Mutex::new(NbdLinkState { pending, awaits_completions: false, awaits_socket: false });
        Ok(Self { socket, wake, state, owner: OnceLock::new() })
    }

    pub fn state(&self) -> MutexGuard<'_, NbdLinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CompletionReceiver for NbdLink {
    fn complete(&self, completed: &mut Vec<ServedCompletion>) {
        let mut state = self.state();
        completed.drain(..).for_each(|completion| state.pending.complete(completion));
        if self.owner.get() == Some(&thread::current().id()) {
            // The thread of the connection sends the replies itself before it sleeps.
            return;
        }
        // This code may run on the thread of the device. Therefore it sends replies with only one system call, so that a long queue of
        // replies does not delay this thread.
        state.pending.send(&self.socket);
        let unsent = !state.pending.output.is_empty() && !state.awaits_socket;
        if unsent || state.awaits_completions {
            state.awaits_completions = false;
            self.wake.wake();
        }
    }
}

/// Capacity in bytes: 32 writes of 4 KB at once, and more than the longest option.
pub(super) const CAPACITY: usize = 256 << 10;

pub(super) struct ReceiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl ReceiveBuffer {
    pub fn new() -> Self {
        Self { bytes: vec![0; CAPACITY], start: 0, end: 0 }
    }

    pub fn filled(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Moves up to `count` bytes to the end of `data`; returns their number.
    pub fn take_into(&mut self, data: &mut Vec<u8>, count: usize) -> usize {
        let filled = self.filled();
        let count = count.min(filled.len());
        data.extend_from_slice(&filled[..count]);
        self.consume(count);
        count
    }

    /// Receives once without blocking. Returns the number of bytes; 0 at the end of the stream.
    pub fn receive(&mut self, socket: &OwnedFd) -> Result<usize> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let (count, _) = retry(|| recv(socket, &mut self.bytes[self.end..], RecvFlags::DONTWAIT))?;
        self.end += count;
        Ok(count)
    }

    /// Receives once without blocking. Appends the bytes to `data` until it has `wanted` bytes, and stores the rest in this buffer, which
    /// must be empty before the call.
    pub fn receive_behind(&mut self, socket: &OwnedFd, data: &mut Vec<u8>, wanted: usize) -> Result<usize> {
        data.reserve_exact(wanted - data.len());
        let (count, _) = retry(|| recv(socket, spare_capacity(data), RecvFlags::DONTWAIT))?;
        // A vector may have a larger capacity than was requested.
        let excess = data.len().saturating_sub(wanted);
        if excess > 0 {
            self.bytes.splice(..excess.min(self.bytes.len()), data.drain(wanted..));
            (self.start, self.end) = (0, excess);
        }
        Ok(count)
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
