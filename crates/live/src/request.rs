//! Translates requests of exports into commands of the stack.

use std::sync::Arc;

use emmclab_base::{CommandFlags, Op, SECTOR_BYTES};
use emmclab_serve::{BlockAction, BlockDeviceLimits, CompletionReceiver, RequestFailure, ServedCompletion, ServedRequest};

/// Maximum number of zero sectors in one write (1 MB).
const ZERO_SECTORS: u32 = 2048;

/// A command for the stack, and the data of a write.
pub(crate) struct StackCommand {
    pub op: Op,
    pub sector: u64,
    pub sectors: u32,
    pub modifiers: CommandFlags,
    pub data: Vec<u8>,
}

impl StackCommand {
    fn without_data(op: Op, sector: u64, sectors: u32) -> Self {
        Self { op, sector, sectors, modifiers: CommandFlags::empty(), data: Vec::new() }
    }

    fn zeros(sector: u64, sectors: u32, modifiers: CommandFlags) -> Self {
        let data = vec![0; sectors as usize * SECTOR_BYTES as usize];
        Self { op: Op::Write, sector, sectors, modifiers, data }
    }
}

/// The rest of a request, which is sent when its commands in progress are complete.
enum RemainingWork {
    Nothing,
    Zeros { sector: u64, end: u64, modifiers: CommandFlags },
    Flush,
}

/// A request whose commands are in progress.
pub(crate) struct PendingLiveRequest {
    tag: u64,
    pub to: Arc<dyn CompletionReceiver>,
    /// Number of commands in progress.
    pub open: u32,
    next: RemainingWork,
    outcome: Result<Vec<u8>, RequestFailure>,
}

impl PendingLiveRequest {
    /// Begins a request and adds its first commands to `parts`; returns an error if the request is rejected. With `by_discard`,
    /// whole map units are zeroed by a discard.
    pub fn new(
        request: ServedRequest, limits: &BlockDeviceLimits, by_discard: bool, to: &Arc<dyn CompletionReceiver>,
        parts: &mut Vec<StackCommand>,
    ) -> Result<Self, RequestFailure> {
        let end = request.end();
        let ServedRequest { tag, action, sector, sectors, modifiers } = request;
        if end > limits.sectors || (sectors == 0) != (action == BlockAction::Flush) {
            return Err(RequestFailure::Invalid);
        }
        let mut pending = Self { tag, to: to.clone(), open: 0, next: RemainingWork::Nothing, outcome: Ok(Vec::new()) };
        match action {
            BlockAction::Read => parts.push(StackCommand {
                modifiers: modifiers.of(Op::Read),
                ..StackCommand::without_data(Op::Read, sector, sectors)
            }),
            BlockAction::Write(data) => {
                if data.len() as u64 != u64::from(sectors) * SECTOR_BYTES {
                    return Err(RequestFailure::Invalid);
                }
                parts.push(StackCommand { op: Op::Write, sector, sectors, modifiers: modifiers.of(Op::Write), data });
            }
            BlockAction::Flush => {
                parts.push(StackCommand { modifiers: modifiers.of(Op::Flush), ..StackCommand::without_data(Op::Flush, 0, 0) });
            }
            BlockAction::Discard { secure } => {
                let op = if secure { Op::SecureErase } else { Op::Discard };
                parts.push(StackCommand::without_data(op, sector, sectors));
                if modifiers.durable() {
                    pending.next = RemainingWork::Flush;
                }
            }
            BlockAction::WriteZeroes { keep_allocated } => {
                let unit = u64::from(limits.discard_sectors);
                let (first, last) = (sector.div_ceil(unit) * unit, end / unit * unit);
                if keep_allocated || modifiers.durable() || !by_discard || first >= last {
                    pending.next = RemainingWork::Zeros { sector, end, modifiers: modifiers.of(Op::Write) };
                    pending.go_on(parts);
                } else {
                    // A discard zeroes only whole discard units, so zeros are written to the partial units at both ends of the range.
                    for (from, to) in [(sector, first), (last, end)] {
                        if from < to {
                            parts.push(StackCommand::zeros(from, (to - from) as u32, CommandFlags::empty()));
                        }
                    }
                    parts.push(StackCommand::without_data(Op::Discard, first, (last - first) as u32));
                }
            }
        }
        Ok(pending)
    }

    /// Records the completion of a command.
    pub fn complete(&mut self, outcome: Result<Vec<u8>, RequestFailure>) {
        self.open -= 1;
        match outcome {
            Ok(data) if !data.is_empty() => self.outcome = self.outcome.clone().map(|_| data),
            Ok(_) => {}
            Err(failure) => {
                self.outcome = Err(failure);
                self.next = RemainingWork::Nothing;
            }
        }
    }

    /// Adds the next commands if no command is in progress.
    pub fn go_on(&mut self, parts: &mut Vec<StackCommand>) {
        if self.open > 0 {
            return;
        }
        match std::mem::replace(&mut self.next, RemainingWork::Nothing) {
            RemainingWork::Nothing => {}
            RemainingWork::Flush => parts.push(StackCommand::without_data(Op::Flush, 0, 0)),
            RemainingWork::Zeros { sector, end, modifiers } => {
                let sectors = (end - sector).min(u64::from(ZERO_SECTORS)) as u32;
                parts.push(StackCommand::zeros(sector, sectors, modifiers));
                let sector = sector + u64::from(sectors);
                if sector < end {
                    self.next = RemainingWork::Zeros { sector, end, modifiers };
                }
            }
        }
    }

    /// Whether all commands of the request are complete.
    pub fn is_over(&self) -> bool {
        self.open == 0 && matches!(self.next, RemainingWork::Nothing)
    }

    /// The completion and its receiver.
    pub fn into_completion(self) -> (Arc<dyn CompletionReceiver>, ServedCompletion) {
        (self.to, ServedCompletion { tag: self.tag, outcome: self.outcome })
    }
}
