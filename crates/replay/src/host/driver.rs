//! Translates the flags of a request as the block layer and MMC driver of a kernel do: into a sequence of commands, each sent when the
//! previous one is complete (`block/blk-flush.c`, `drivers/mmc/core/block.c`).

use emmclab_device::{CommandFlags, DeviceCapabilities, DeviceCommand, DeviceSettings, KernelEra, KernelRules};
use emmclab_trace::{Nanos, Op};
use schemars::JsonSchema;
use serde::Serialize;

/// Counts of the commands into which a named kernel translates the flags of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DriverCounts {
    /// Kernel that translates flags into commands: `host.kernel`.
    pub kernel: KernelEra,
    /// Flushes of the cache that it sent.
    pub flushes: u64,
    /// Cache barriers that it sent.
    pub barriers: u64,
    /// Writes that it sent as reliable writes.
    pub reliable_writes: u64,
    /// Flushes and barriers that needed no command.
    pub without_command: u64,
}

impl DriverCounts {
    /// Whether any request had a flag that the driver translates.
    pub(crate) fn any(&self) -> bool {
        self.flushes + self.barriers + self.reliable_writes + self.without_command > 0
    }
}

/// The driver of a named kernel above a device with these capabilities.
#[derive(Debug)]
pub(super) struct KernelDriver {
    rules: KernelRules,
    capabilities: DeviceCapabilities,
    counts: DriverCounts,
}

/// The remaining commands of a request in their order; each is removed when it is sent.
pub(super) type Sequence = arrayvec::ArrayVec<DeviceCommand, 3>;

impl KernelDriver {
    /// The driver of the kernel that the settings name, or `None` if flags reach the device unchanged.
    pub fn new(settings: &DeviceSettings) -> Option<Self> {
        let kernel = settings.host.kernel;
        let counts = DriverCounts { kernel, flushes: 0, barriers: 0, reliable_writes: 0, without_command: 0 };
        Some(Self { rules: kernel.rules()?, capabilities: DeviceCapabilities::of(settings), counts })
    }

    pub fn counts(&self) -> DriverCounts {
        self.counts
    }

    /// Maximum number of writes in a packed command, if the settings give no number; 0 if the kernel does not pack.
    pub fn packed_writes(&self) -> u32 {
        if self.rules.packs && self.capabilities.queue_depth == 1 { self.capabilities.packed_writes } else { 0 }
    }

    /// The commands of a request; empty if the request is complete at once.
    pub fn sequence(&mut self, request: &DeviceCommand) -> Sequence {
        let mut sequence = Sequence::new();
        let DeviceCapabilities { cache_kb, cache_in_order, barrier, .. } = self.capabilities;
        let cached = cache_kb > 0;
        let around = |op, modifiers| DeviceCommand { modifiers, ..DeviceCommand::new(request.arrival, op, 0, 0) };
        let flush = cached.then(|| around(Op::Flush, CommandFlags::empty()));
        // A barrier becomes a flush if the device has no barriers, and nothing if its cache keeps the order.
        let order = if cache_in_order {
            None
        } else if barrier {
            Some(around(Op::Flush, CommandFlags::BARRIER))
        } else {
            flush
        };
        match request.op {
            Op::Flush if request.modifiers.contains(CommandFlags::BARRIER) => sequence.extend(order),
            Op::Flush => sequence.extend(flush),
            Op::Write => {
                let fua = request.modifiers.contains(CommandFlags::RELIABLE);
                let reliable = fua && self.rules.fua && self.capabilities.has_fua();
                if request.modifiers.contains(CommandFlags::PREFLUSH) {
                    sequence.extend(if self.rules.barriers && fua { order } else { flush });
                }
                let mut modifiers = request.modifiers.difference(CommandFlags::PREFLUSH);
                modifiers.set(CommandFlags::RELIABLE, reliable);
                sequence.push(DeviceCommand { modifiers, ..*request });
                if fua && !reliable {
                    sequence.extend(flush);
                }
            }
            _ => sequence.push(*request),
        }
        self.counts.without_command += u64::from(sequence.is_empty());
        sequence
    }

    /// Sets the flags of a command that is sent now, and counts it.
    pub fn send(&mut self, command: &mut DeviceCommand) {
        let metadata = command.op == Op::Write && command.modifiers.contains(CommandFlags::META);
        if metadata && self.rules.reliable_metadata && self.capabilities.reliable_write {
            command.modifiers.insert(CommandFlags::RELIABLE);
        }
        let ordering = command.modifiers.contains(CommandFlags::BARRIER);
        self.counts.barriers += u64::from(command.op == Op::Flush && ordering);
        self.counts.flushes += u64::from(command.op == Op::Flush && !ordering);
        self.counts.reliable_writes += u64::from(command.modifiers.contains(CommandFlags::RELIABLE));
    }
}

/// Removes the first of the remaining commands and returns it; it arrives at `at` or later.
pub(super) fn next(sequence: &mut Sequence, at: Nanos) -> Option<DeviceCommand> {
    let command = sequence.pop_at(0)?;
    Some(DeviceCommand { arrival: command.arrival.max(at), ..command })
}
