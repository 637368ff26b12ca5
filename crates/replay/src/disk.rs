//! A simulated disk: a device with the host's request queue above it, and the checker that compares it with a reference model.
//!
//! A disk accepts commands in order of arrival and numbers them from 0. The completion of a command may be unknown at its arrival.
//! [`SimulatedDisk::next_event`] and [`SimulatedDisk::step`] advance the disk, and [`SimulatedDisk::take_completed`] returns newly known
//! completions with the numbers of their commands.

use std::collections::VecDeque;
use std::io;

use emmclab_device::checker::DeviceChecker;
use emmclab_device::{
    AnyObserver, CacheLie, Device, DeviceCommand, DeviceConfig, DeviceSettings, DynObserver, NullObserver, Observer,
    OnCompletion, PageScheduling, RequestCompleted, SettingChange, StopReason, UndoLog,
};
use emmclab_layers::{DiskZones, DisksBelow};
use emmclab_media::{ContentsChange, DeviceContents, RawImage};
use emmclab_trace::{Nanos, Op, Result, SECTOR_BYTES};

use crate::host::{HostCounts, HostQueue};

/// A device with the host's request queue above it, and its checker.
pub(crate) struct SimulatedDisk {
    /// The device. Commands that are sent to it directly bypass host queue and checker.
    pub device: Device,
    pub checker: Option<Box<DeviceChecker>>,
    pub host: Option<HostQueue>,
    /// Whether later commands of the device may overtake earlier ones.
    reorders: bool,
    /// Maximum number of entries of a packed write.
    packed_writes: u32,
    /// Time of the last action of the disk; no command is fetched before it. A tag may have been free earlier, because a device that
    /// reports completions in order of arrival may report them late.
    now: Nanos,
    /// The commands that were fetched last; the memory is reused.
    fetched: Vec<DeviceCommand>,
    completed: Vec<RequestCompleted>,
    contents: Option<Box<DiskMedia>>,
}

/// The contents of a disk, with the undo log for a power cut.
struct DiskMedia {
    media: DeviceContents,
    undo: UndoLog,
    lies: CacheLie,
    event_sink: Option<AttachedEventSink>,
}

enum DeviceCall<'a> {
    Submit(&'a [DeviceCommand]),
    Advance(Nanos),
    PowerOff,
}

impl SimulatedDisk {
    /// Wraps a device without host queue and checker. Commands reach it unchanged.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            checker: None,
            host: None,
            reorders: false,
            packed_writes: 0,
            now: Nanos::MIN,
            fetched: Vec::new(),
            completed: Vec::new(),
            contents: None,
        }
    }

    /// Creates a disk at time 0 of a run. Its host queue has the queue settings of the device. With `check`, it has a checker.
    pub fn for_run(settings: &DeviceSettings, mut device: Device, check: bool) -> Self {
        device.rewind();
        Self {
            checker: check.then(|| Box::new(DeviceChecker::of(&device))),
            host: HostQueue::new(settings),
            reorders: settings.controller.scheduling == PageScheduling::ReadFirst,
            packed_writes: settings.features.packed_writes,
            ..Self::new(device)
        }
    }

    /// Creates a disk at time 0 of a live run, with its contents in `image`. With `check`, it has a checker. Commands reach the device
    /// unchanged, because the real host merges and packs them.
    pub fn live(settings: &DeviceSettings, device: Device, image: RawImage, check: bool) -> Self {
        let disk = Self { host: None, ..Self::for_run(settings, device, check) };
        let contents = DiskMedia {
            media: DeviceContents::new(&disk.device, image),
            undo: UndoLog::of(&disk.device),
            lies: settings.cache.lies,
            event_sink: None,
        };
        Self { contents: Some(Box::new(contents)), ..disk }
    }

    /// Makes the disk report all further events to `tap`; the disk must be live.
    pub fn tap(&mut self, tap: Box<dyn DeviceEventSink>) {
        if let Some(contents) = &mut self.contents {
            contents.media.watch();
            contents.event_sink = Some(AttachedEventSink::new(tap));
        }
    }

    /// Provides the data of the write that is submitted after `ahead` other commands. Must be called in the order of the writes.
    pub fn give(&mut self, ahead: u64, sector: u64, data: &[u8]) {
        if let Some(contents) = &mut self.contents
            && self.device.stop().is_none()
        {
            contents.media.receive_write(self.device.next_command() + ahead, sector, data);
            if let Some(tapped) = &mut contents.event_sink {
                tapped.push_data(data);
            }
        }
    }

    /// Fills `buffer` with the contents of the sectors from `sector` on.
    pub fn read(&self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.contents.as_ref().map_or(Ok(()), |contents| contents.media.read(sector, buffer))
    }

    /// The contents of a live disk; `None` for other disks.
    pub fn media(&self) -> Option<&DeviceContents> {
        self.contents.as_ref().map(|contents| &contents.media)
    }

    /// Advances the simulated device to `until` without commands.
    pub fn pass<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        self.now = self.now.max(until);
        self.act(&DeviceCall::Advance(until), observer)
    }

    /// Changes the settings of the device at time `at`. Returns the changed settings.
    pub fn reconfigure(&mut self, from: &DeviceConfig, to: &DeviceConfig, at: Nanos) -> Result<Vec<SettingChange>> {
        let changes = self.device.reconfigure(from, to, at)?;
        if let Some(contents) = &mut self.contents
            && contents.lies != to.settings().cache.lies
        {
            contents.lies = to.settings().cache.lies;
            contents.media.follow_pages(&self.device);
        }
        Ok(changes)
    }

    /// Writes all data that the device has programmed until `now` to the image.
    pub fn land(&mut self, now: Nanos) -> io::Result<()> {
        self.contents.as_mut().map_or(Ok(()), |contents| {
            contents.undo.retire(now);
            contents.media.apply_durable(now)
        })
    }

    /// Cuts the power at `at`: commands in flight never complete, and only programmed data survives.
    pub fn cut(&mut self, at: Nanos) -> io::Result<()> {
        self.completed.clear();
        if let Some(contents) = &mut self.contents {
            contents.media.cut(at, contents.lies)?;
            self.device.cut(at, &mut contents.undo);
            contents.media.follow_pages(&self.device);
        }
        if self.checker.is_some() {
            self.checker = Some(Box::new(DeviceChecker::of(&self.device)));
        }
        Ok(())
    }

    /// Describes this disk and the second disk for the layers directly above.
    pub fn below(&self, second: Option<&Self>) -> DisksBelow {
        let sectors = |disk: &Self| disk.device.geometry().sectors();
        DisksBelow {
            durable_writes: !self.device.promises_on_completion() && self.device.has_reliable_writes(),
            program_sectors: self.device.geometry().program_sectors(),
            cache_sectors: self.device.cache_sectors(),
            erase_sectors: self.device.geometry().erase_sectors(),
            zones: zones_of(&self.device),
            ..DisksBelow::new(sectors(self), second.map(sectors))
        }
    }

    /// Whether commands reach the device unchanged and unchecked.
    pub fn is_bare(&self) -> bool {
        self.host.is_none() && self.checker.is_none()
    }

    pub fn host_counts(&self) -> Option<HostCounts> {
        self.host.as_ref().map(HostQueue::counts)
    }

    /// Returns the reason why the device accepts no more commands; `None` if it accepts commands.
    #[inline]
    pub fn stop(&self) -> Option<StopReason> {
        self.device.stop()
    }

    /// Submits a command, or the entries of a packed command, which arrive at the same time. [`SimulatedDisk::advance`] to the arrival must
    /// be called first. If the disk has a host queue, the queue packs commands itself.
    pub fn submit<O: Observer>(&mut self, commands: &[DeviceCommand], observer: &mut O) -> Result<()> {
        if let Some(host) = &mut self.host {
            for command in commands {
                host.push(command, &mut self.completed);
            }
            return Ok(());
        }
        let Some(first) = commands.first() else { return Ok(()) };
        self.now = self.now.max(first.arrival);
        let at_once = self.packed_writes.max(1) as usize;
        commands.chunks(at_once).try_for_each(|part| self.pack(part, observer))
    }

    /// Returns the time of the next action without a new command: a fetch from the host queue, or work of the device that is due.
    pub fn next_event(&self) -> Option<Nanos> {
        if self.stop().is_some() {
            return None;
        }
        self.fetch_at().into_iter().chain(self.device.next_event()).min()
    }

    fn fetch_at(&self) -> Option<Nanos> {
        self.host.as_ref()?.ready_at().map(|at| at.max(self.now))
    }

    /// Executes the next action: one fetch from the host queue, or all work that the device begins at that time.
    pub fn step<O: Observer>(&mut self, observer: &mut O) -> Result<()> {
        let begin = self.device.next_event();
        // The arrival of a command precedes page operations that begin at the same time, as in `Device::submit`.
        if let Some(at) = self.fetch_at().filter(|at| begin.is_none_or(|begin| *at <= begin)) {
            self.now = at;
            return self.fetch(at, observer);
        }
        let Some(begin) = begin else { return Ok(()) };
        self.now = self.now.max(begin);
        self.act(&DeviceCall::Advance(begin.saturating_add(Nanos(1))), observer)
    }

    /// Simulates all events before `until`.
    pub fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        while self.next_event().is_some_and(|at| at < until) {
            self.step(observer)?;
        }
        Ok(())
    }

    /// Appends newly known completions to `to`.
    pub fn take_completed(&mut self, to: &mut Vec<RequestCompleted>) {
        to.append(&mut self.completed);
    }

    /// Shuts the device down cleanly, which programs the data in its cache.
    pub fn power_off<O: Observer>(&mut self, observer: &mut O) -> Result<()> {
        self.act(&DeviceCall::PowerOff, observer)
    }

    /// Checks all invariants of the whole device if there is a checker.
    pub fn verify(&mut self) -> Result<()> {
        self.checker.as_mut().map_or(Ok(()), |checker| checker.verify(&self.device))
    }

    /// Sends a command, or the entries of a packed command, to the device. The entries of a packed command are executed in order as one
    /// command, so the standard does not allow packed commands in command queueing mode (JESD84-B51). A device that reorders therefore
    /// receives each entry as a separate command.
    fn pack<O: Observer>(&mut self, commands: &[DeviceCommand], observer: &mut O) -> Result<()> {
        let at_once = if self.reorders { 1 } else { commands.len().max(1) };
        commands.chunks(at_once).try_for_each(|part| self.act(&DeviceCall::Submit(part), observer))
    }

    /// Sends the next command of the host queue to the device.
    fn fetch<O: Observer>(&mut self, at: Nanos, observer: &mut O) -> Result<()> {
        let Some(host) = &mut self.host else { return Ok(()) };
        let mut commands = std::mem::take(&mut self.fetched);
        host.fetch(at, &mut commands);
        let done = self.pack(&commands, observer);
        self.fetched = commands;
        done
    }

    fn act<O: Observer>(&mut self, action: &DeviceCall<'_>, observer: &mut O) -> Result<()> {
        if O::EVENTS || self.contents.is_some() || self.checker.is_some() {
            return self.act_watched(action, observer);
        }
        let Self { device, host, completed, .. } = self;
        let complete = |_: &mut O, event: &RequestCompleted| note(host, completed, event);
        action.perform(device, &mut OnCompletion { observer, completed: complete })
    }

    /// Executes a device call on a disk with checker or contents. It is compiled only once, for all observers.
    #[inline(never)]
    fn act_watched(&mut self, action: &DeviceCall<'_>, observer: &mut dyn AnyObserver) -> Result<()> {
        let Self { device, checker, host, completed, contents, now, .. } = self;
        let known = completed.len();
        let complete = |_: &mut DynObserver<'_>, event: &RequestCompleted| note(host, completed, event);
        let listener = &mut OnCompletion { observer: &mut DynObserver(observer), completed: complete };
        if let DeviceCall::Submit(commands) = action {
            if let Some(checker) = checker.as_deref_mut() {
                commands.iter().for_each(|command| checker.expect(command));
            }
            if let Some(tapped) = contents.as_deref_mut().and_then(|contents| contents.event_sink.as_mut()) {
                tapped.report_commands(device.next_command(), commands);
            }
        }
        {
            let data = contents.as_deref_mut().map(|contents| (&mut contents.media, &mut contents.undo));
            action.perform(device, &mut (checker.as_deref_mut(), (data, listener)))?;
        }
        if let Some(DiskMedia { media, event_sink: Some(tapped), .. }) = contents.as_deref_mut() {
            tapped.report_changes(*now, media, &completed[known..]);
        }
        match (checker, action) {
            (Some(checker), DeviceCall::Submit(_)) => checker.verify_periodically(device),
            _ => Ok(()),
        }
    }
}

/// Passes a completion of the device to the host queue, or adds it to the list of completions if there is no queue.
fn note(host: &mut Option<HostQueue>, completed: &mut Vec<RequestCompleted>, event: &RequestCompleted) {
    match host {
        Some(host) => host.completed(event, completed),
        None => completed.push(*event),
    }
}

impl DeviceCall<'_> {
    fn perform<O: Observer>(&self, device: &mut Device, observer: &mut O) -> Result<()> {
        match self {
            Self::Submit(commands) => device.submit_packed(commands, observer).map(|_| ()),
            Self::Advance(until) => {
                device.advance(*until, observer);
                Ok(())
            }
            Self::PowerOff => {
                device.power_off(observer);
                Ok(())
            }
        }
    }
}

/// Describes the zones of a device for the layers above it.
fn zones_of(device: &Device) -> Option<DiskZones> {
    let mut zones = device.zones();
    let first = zones.next()?;
    let (max_open, max_active) = device.zone_limits();
    Some(DiskZones {
        first: first.start,
        sectors: first.sectors,
        count: 1 + zones.count() as u32,
        write_sectors: device.geometry().unit_sectors,
        max_open,
        max_active,
    })
}

/// Disk 0 with its observer, and disk 1 if there is a second device. Disk 1 is not observed, because the block numbers and times of two
/// devices would be mixed in one event stream.
pub(crate) struct DiskPair<'a, O> {
    pub main: &'a mut SimulatedDisk,
    pub second: Option<&'a mut SimulatedDisk>,
    pub observer: &'a mut O,
}

impl<O: Observer> DiskPair<'_, O> {
    /// Whether one of the devices accepts no more commands.
    pub fn stopped(&self) -> bool {
        self.main.stop().is_some() || self.second.as_ref().is_some_and(|disk| disk.stop().is_some())
    }

    /// Whether disk 0 refuses a command because of the current state of its zones.
    pub fn zones_refuse(&self, command: &DeviceCommand) -> bool {
        self.main.device.zone_refusal(command).is_some()
    }

    /// Submits commands to disk `disk`: one command, or the entries of a packed command.
    pub fn submit(&mut self, disk: usize, commands: &[DeviceCommand]) -> Result<()> {
        match &mut self.second {
            Some(second) if disk > 0 => second.submit(commands, &mut NullObserver),
            _ => self.main.submit(commands, self.observer),
        }
    }

    pub fn disk(&mut self, disk: usize) -> &mut SimulatedDisk {
        match &mut self.second {
            Some(second) if disk > 0 => second,
            _ => self.main,
        }
    }

    /// Returns the time of the next action of any disk, and the number of that disk.
    pub fn next_event(&self) -> Option<(Nanos, usize)> {
        let main = self.main.next_event().map(|at| (at, 0));
        let second = self.second.as_ref().and_then(|disk| disk.next_event()).map(|at| (at, 1));
        main.into_iter().chain(second).min()
    }

    /// Executes the next action of disk `disk`.
    pub fn step(&mut self, disk: usize) -> Result<()> {
        match &mut self.second {
            Some(second) if disk > 0 => second.step(&mut NullObserver),
            _ => self.main.step(self.observer),
        }
    }

    /// Appends newly known completions of disk `disk` to `to`.
    pub fn take_completed(&mut self, disk: usize, to: &mut Vec<RequestCompleted>) {
        match &mut self.second {
            Some(second) if disk > 0 => second.take_completed(to),
            _ => self.main.take_completed(to),
        }
    }
}

/// Receives the commands of a device, their completions, and the changes of the stored data. Times are simulated. Completions and programs
/// are reported as soon as they are known, possibly before the simulated time at which they happen.
pub trait DeviceEventSink: Send {
    /// Called when a command arrives. `packed_after` is the number of later entries of the same packed command. `data` is the data of a
    /// write.
    fn command(&mut self, number: u64, command: &DeviceCommand, packed_after: u16, data: &[u8]);
    /// Called for a command that is complete at `at`.
    fn completed(&mut self, number: u64, at: Nanos);
    /// Called for sectors of a command that are programmed from `begin` to `end`.
    fn programmed(&mut self, number: u64, sectors: (u64, u32), begin: Nanos, end: Nanos);
    /// Called for sectors that a command discards at `at`.
    fn discarded(&mut self, number: u64, sectors: (u64, u64), at: Nanos);
    /// Called for sectors that a power cut damages from `begin` on and before `end`.
    fn endangered(&mut self, sectors: (u64, u64), begin: Nanos, end: Nanos);
}

/// An event sink that is attached to a disk.
pub(crate) struct AttachedEventSink {
    tap: Box<dyn DeviceEventSink>,
    /// Data of the writes that will be submitted next, in order.
    data: Vec<u8>,
    /// Incomplete discards: (number, first sector, end sector).
    discards: VecDeque<(u64, u64, u64)>,
}

impl AttachedEventSink {
    pub fn new(tap: Box<dyn DeviceEventSink>) -> Self {
        Self { tap, data: Vec::new(), discards: VecDeque::new() }
    }

    pub fn push_data(&mut self, data: &[u8]) {
        self.data.extend_from_slice(data);
    }

    /// Reports commands that are submitted to the device. `first` is the number of the first command.
    pub fn report_commands(&mut self, first: u64, commands: &[DeviceCommand]) {
        let mut from = 0;
        for (number, (i, command)) in (first..).zip(commands.iter().enumerate()) {
            if matches!(command.op, Op::Discard | Op::SecureErase) {
                let end = command.sector + u64::from(command.sectors);
                self.discards.push_back((number, command.sector, end));
            }
            let bytes = if command.op == Op::Write { command.sectors as usize * SECTOR_BYTES as usize } else { 0 };
            let data = self.data.get(from..from + bytes).unwrap_or_default();
            from += bytes;
            self.tap.command(number, command, (commands.len() - 1 - i) as u16, data);
        }
        self.data.drain(..from.min(self.data.len()));
    }

    /// Reports the changes and completions of the last action.
    pub fn report_changes(&mut self, now: Nanos, media: &mut DeviceContents, completed: &[RequestCompleted]) {
        for change in media.take_changes() {
            match change {
                ContentsChange::Programmed { command, sector, sectors, begin, end } => {
                    self.tap.programmed(command, (sector, sectors), begin, end);
                }
                ContentsChange::Endangered { sector, sectors, begin, end } => {
                    self.tap.endangered((sector, sectors), begin, end);
                }
                ContentsChange::Discarded { sector, sectors } => {
                    let of = |(_, first, end): &&(u64, u64, u64)| *first <= sector && sector + sectors <= *end;
                    if let Some((number, ..)) = self.discards.iter().find(of) {
                        self.tap.discarded(*number, (sector, sectors), now);
                    }
                }
            }
        }
        for event in completed {
            self.discards.retain(|(number, ..)| *number != event.id);
            self.tap.completed(event.id, event.complete);
        }
    }
}
