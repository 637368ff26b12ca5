//! Translates requests of exports into commands of the stack.

use std::sync::Arc;

use emmclab_base::{Modifiers, Op, SECTOR_BYTES};
use emmclab_serve::{Action, BlockRequest, Completion, Completions, Failure, Limits};

/// Maximum number of zero sectors written at once (1 MB).
const ZERO_SECTORS: u32 = 2048;

/// A command for the stack, and the data of a write.
pub(crate) struct Part {
    pub op: Op,
    pub sector: u64,
    pub sectors: u32,
    pub modifiers: Modifiers,
    pub data: Vec<u8>,
}

impl Part {
    fn bare(op: Op, sector: u64, sectors: u32) -> Self {
        Self { op, sector, sectors, modifiers: Modifiers::empty(), data: Vec::new() }
    }

    fn zeros(sector: u64, sectors: u32, modifiers: Modifiers) -> Self {
        let data = vec![0; sectors as usize * SECTOR_BYTES as usize];
        Self { op: Op::Write, sector, sectors, modifiers, data }
    }
}

/// What a request still has to send after its commands in progress are complete.
enum Next {
    Nothing,
    Zeros { sector: u64, end: u64, modifiers: Modifiers },
    Flush,
}

/// A request whose commands are in progress.
pub(crate) struct Pending {
    tag: u64,
    pub to: Arc<dyn Completions>,
    /// Number of commands in progress.
    open: u32,
    next: Next,
    outcome: Result<Vec<u8>, Failure>,
}

impl Pending {
    /// Begins a request and adds its first commands to `parts`; returns an error if the request is refused. If `by_discard` is set, whole
    /// units are zeroed by a discard.
    pub fn new(
        request: BlockRequest,
        limits: &Limits,
        by_discard: bool,
        to: &Arc<dyn Completions>,
        parts: &mut Vec<Part>,
    ) -> Result<Self, Failure> {
        let end = request.end();
        let BlockRequest { tag, action, sector, sectors, modifiers } = request;
        if end > limits.sectors || (sectors == 0) != (action == Action::Flush) {
            return Err(Failure::Invalid);
        }
        let mut pending = Self { tag, to: to.clone(), open: 0, next: Next::Nothing, outcome: Ok(Vec::new()) };
        match action {
            Action::Read => parts
                .push(Part { modifiers: modifiers.of(Op::Read), ..Part::bare(Op::Read, sector, sectors) }),
            Action::Write(data) => {
                if data.len() as u64 != u64::from(sectors) * SECTOR_BYTES {
                    return Err(Failure::Invalid);
                }
                parts.push(Part { op: Op::Write, sector, sectors, modifiers: modifiers.of(Op::Write), data });
            }
            Action::Flush => {
                parts.push(Part { modifiers: modifiers.of(Op::Flush), ..Part::bare(Op::Flush, 0, 0) });
            }
            Action::Discard { secure } => {
                let op = if secure { Op::SecureErase } else { Op::Discard };
                parts.push(Part::bare(op, sector, sectors));
                if modifiers.durable() {
                    pending.next = Next::Flush;
                }
            }
            Action::WriteZeroes { keep_allocated } => {
                let unit = u64::from(limits.discard_sectors);
                let (first, last) = (sector.div_ceil(unit) * unit, end / unit * unit);
                if keep_allocated || modifiers.durable() || !by_discard || first >= last {
                    pending.next = Next::Zeros { sector, end, modifiers: modifiers.of(Op::Write) };
                    pending.go_on(parts);
                } else {
                    // The ends of the range, which a discard does not zero.
                    for (from, to) in [(sector, first), (last, end)] {
                        if from < to {
                            parts.push(Part::zeros(from, (to - from) as u32, Modifiers::empty()));
                        }
                    }
                    parts.push(Part::bare(Op::Discard, first, (last - first) as u32));
                }
            }
        }
        Ok(pending)
    }

    /// Counts a command that was sent to the stack.
    pub fn begun(&mut self) {
        self.open += 1;
    }

    /// Records the completion of a command.
    pub fn complete(&mut self, outcome: Result<Vec<u8>, Failure>) {
        self.open -= 1;
        match outcome {
            Ok(data) if !data.is_empty() => self.outcome = self.outcome.clone().map(|_| data),
            Ok(_) => {}
            Err(failure) => {
                self.outcome = Err(failure);
                self.next = Next::Nothing;
            }
        }
    }

    /// Adds the next commands, if none is in progress.
    pub fn go_on(&mut self, parts: &mut Vec<Part>) {
        if self.open > 0 {
            return;
        }
        match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::Nothing => {}
            Next::Flush => parts.push(Part::bare(Op::Flush, 0, 0)),
            Next::Zeros { sector, end, modifiers } => {
                let sectors = (end - sector).min(u64::from(ZERO_SECTORS)) as u32;
                parts.push(Part::zeros(sector, sectors, modifiers));
                let sector = sector + u64::from(sectors);
                if sector < end {
                    self.next = Next::Zeros { sector, end, modifiers };
                }
            }
        }
    }

    /// Whether all commands of the request are complete.
    pub fn is_over(&self) -> bool {
        self.open == 0 && matches!(self.next, Next::Nothing)
    }

    /// The completion, and its receiver.
    pub fn into_completion(self) -> (Arc<dyn Completions>, Completion) {
        (self.to, Completion { tag: self.tag, outcome: self.outcome })
    }
}
