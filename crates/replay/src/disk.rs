//! One device with the software that always goes with it: the host's queue in front and the checker beside it.
//!
//! A disk takes commands in order of arrival and numbers them from 0. When a command is complete need not be known when it
//! comes: [`Disk::next_event`] and [`Disk::step`] move the disk on, and [`Disk::take_completed`] gives the completions that
//! have become known, under the numbers of their commands.

use std::io;

use emmclab_device::checker::Checker;
use emmclab_device::{
    AnyObserver, Command, Device, DeviceConfig, Lie, Observer, OnCompletion, Rare, RequestCompleted,
    Scheduling, SettingChange, Settings, Shared, Stop, UndoLog,
};
use emmclab_layers::{Below, Zones};
use emmclab_media::{Image, Media};
use emmclab_trace::{Nanos, Result};

use crate::host::{HostCounts, HostQueue};
use crate::tap::{Tap, Tapped};

/// A device, its host queue and its checker.
pub(crate) struct Disk {
    device: Device,
    checker: Option<Box<Checker>>,
    host: Option<HostQueue>,
    /// Whether the device lets later commands pass earlier ones.
    reorders: bool,
    /// Most entries of a packed write that the device takes.
    packed_writes: u32,
    /// Time of the last action, before which no command is fetched: a device that reports in order of arrival may
    /// report a completion, and with it a free tag, after its time.
    now: Nanos,
    /// The request that was fetched last, kept to reuse its memory.
    fetched: Vec<Command>,
    completed: Vec<RequestCompleted>,
    contents: Option<Box<Contents>>,
}

/// The data of a disk, and what a cut of power takes back.
struct Contents {
    media: Media,
    undo: UndoLog,
    lies: Lie,
    tapped: Option<Tapped>,
}

/// A call of the device.
enum Action<'a> {
    Submit(&'a [Command]),
    Advance(Nanos),
    PowerOff,
}

impl Disk {
    /// A device as it is, each command a command of its own, unchecked.
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

    /// A device at time 0 of a run, with the host queue that its settings ask for and, where `check`, a checker.
    pub fn for_run(settings: &Settings, mut device: Device, check: bool) -> Self {
        device.rewind();
        Self {
            checker: check.then(|| Box::new(Checker::of(&device))),
            host: HostQueue::new(settings),
            reorders: settings.controller.scheduling == Scheduling::ReadFirst,
            packed_writes: settings.features.packed_writes,
            ..Self::new(device)
        }
    }

    /// A device at time 0 of a live run, with its contents in `image` and, where `check`, a checker. Commands reach it as they are:
    /// a live host merges and packs above.
    pub fn live(settings: &Settings, mut device: Device, image: Image, check: bool) -> Self {
        device.rewind();
        let contents = Contents {
            media: Media::new(&device, image),
            undo: UndoLog::of(&device),
            lies: settings.cache.lies,
            tapped: None,
        };
        let disk = Self {
            checker: check.then(|| Box::new(Checker::of(&device))),
            reorders: settings.controller.scheduling == Scheduling::ReadFirst,
            packed_writes: settings.features.packed_writes,
            ..Self::new(device)
        };
        Self { contents: Some(Box::new(contents)), ..disk }
    }

    /// Has `tap` hear everything from now on; only on a live disk.
    pub fn tap(&mut self, tap: Box<dyn Tap>) {
        if let Some(contents) = &mut self.contents {
            contents.media.watch();
            contents.tapped = Some(Tapped::new(tap));
        }
    }

    /// The data of the write that comes after `ahead` more commands; writes get theirs in order.
    pub fn give(&mut self, ahead: u64, sector: u64, data: &[u8]) {
        if let Some(contents) = &mut self.contents
            && self.device.stop().is_none()
        {
            contents.media.give(self.device.next_command() + ahead, sector, data);
            if let Some(tapped) = &mut contents.tapped {
                tapped.give(data);
            }
        }
    }

    /// Fills `buffer` with what the sectors hold.
    ///
    /// # Errors
    /// As the image gives them.
    pub fn read(&self, sector: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.contents.as_ref().map_or(Ok(()), |contents| contents.media.read(sector, buffer))
    }

    /// The contents, on a live disk.
    pub fn media(&self) -> Option<&Media> {
        self.contents.as_ref().map(|contents| &contents.media)
    }

    /// Has the device go on to `until` on its own.
    ///
    /// # Errors
    /// As [`Disk::submit`].
    pub fn pass<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        self.now = self.now.max(until);
        self.act(&Action::Advance(until), observer)
    }

    /// Goes on from `at` with other settings; returns what changed.
    ///
    /// # Errors
    /// As [`Device::reconfigure`].
    pub fn reconfigure(
        &mut self,
        from: &DeviceConfig,
        to: &DeviceConfig,
        at: Nanos,
    ) -> Result<Vec<SettingChange>> {
        let changes = self.device.reconfigure(from, to, at)?;
        if let Some(contents) = &mut self.contents {
            contents.lies = to.settings().cache.lies;
        }
        Ok(changes)
    }

    /// Moves data that is programmed by `now` to the image.
    ///
    /// # Errors
    /// As [`Media::land`].
    pub fn land(&mut self, now: Nanos) -> io::Result<()> {
        self.contents.as_mut().map_or(Ok(()), |contents| {
            contents.undo.retire(now);
            contents.media.land(now)
        })
    }

    /// Power is lost at `at`: commands in flight never complete, and only what was programmed is left.
    ///
    /// # Errors
    /// As [`Media::land`].
    pub fn cut(&mut self, at: Nanos) -> io::Result<()> {
        self.completed.clear();
        if let Some(contents) = &mut self.contents {
            contents.media.cut(at, contents.lies)?;
            self.device.cut(at, &mut contents.undo);
        }
        if self.checker.is_some() {
            self.checker = Some(Box::new(Checker::of(&self.device)));
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn with_host_of(mut self, settings: &Settings) -> Self {
        self.host = HostQueue::new(settings);
        self
    }

    #[cfg(test)]
    pub fn has_checker(&self) -> bool {
        self.checker.is_some()
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The device, to be changed; driven past host queue and checker only where there are none.
    #[inline]
    pub fn device_mut(&mut self) -> &mut Device {
        &mut self.device
    }

    /// The device alone.
    pub fn into_device(self) -> Device {
        self.device
    }

    /// The disk as layers right above it need to know it.
    pub fn below(&self, second: Option<&Self>) -> Below {
        let sectors = |disk: &Self| disk.device.geometry().sectors();
        Below {
            durable_writes: !self.device.promises_on_completion() && self.device.has_reliable_writes(),
            program_sectors: self.device.geometry().program_sectors(),
            cache_sectors: self.device.cache_sectors(),
            erase_sectors: self.device.geometry().erase_sectors(),
            zones: zones_of(&self.device),
            ..Below::new(sectors(self), second.map(sectors))
        }
    }

    /// Whether commands go to the device as they are, and unchecked.
    pub fn is_bare(&self) -> bool {
        self.host.is_none() && self.checker.is_none()
    }

    /// The counts of the host queue, where there is one.
    pub fn host_counts(&self) -> Option<HostCounts> {
        self.host.as_ref().map(HostQueue::counts)
    }

    /// Why the device takes no more, if so.
    #[inline]
    pub fn stop(&self) -> Option<Stop> {
        self.device.stop()
    }

    /// Takes a command, or the entries of a packed one, which come at once; what happens before their arrival must have happened
    /// ([`Disk::advance`]). A host queue packs by itself.
    ///
    /// # Errors
    /// As [`Device::submit`], and for a broken invariant.
    pub fn submit<O: Observer>(&mut self, commands: &[Command], observer: &mut O) -> Result<()> {
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

    /// When the disk next does something on its own: fetches from the host queue or begins what waits in the device.
    pub fn next_event(&self) -> Option<Nanos> {
        if self.stop().is_some() {
            return None;
        }
        match (self.fetch_at(), self.begin_at()) {
            (Some(fetch), Some(begin)) => Some(fetch.min(begin)),
            (one, other) => one.or(other),
        }
    }

    fn fetch_at(&self) -> Option<Nanos> {
        self.host.as_ref()?.ready_at().map(|at| at.max(self.now))
    }

    fn begin_at(&self) -> Option<Nanos> {
        self.device.next_event()
    }

    /// Does what comes next: one fetch, or all that the device begins at one time.
    ///
    /// # Errors
    /// As [`Disk::submit`].
    pub fn step<O: Observer>(&mut self, observer: &mut O) -> Result<()> {
        let begin = self.begin_at();
        // A command goes before the pages that begin when it arrives, as `Device::submit` has it.
        if let Some(at) = self.fetch_at().filter(|at| begin.is_none_or(|begin| *at <= begin)) {
            self.now = at;
            return self.fetch(at, observer);
        }
        let Some(begin) = begin else { return Ok(()) };
        self.now = self.now.max(begin);
        self.act(&Action::Advance(begin.saturating_add(Nanos(1))), observer)
    }

    /// Does everything that happens before `until`.
    ///
    /// # Errors
    /// As [`Disk::submit`].
    pub fn advance<O: Observer>(&mut self, until: Nanos, observer: &mut O) -> Result<()> {
        while self.next_event().is_some_and(|at| at < until) {
            self.step(observer)?;
        }
        Ok(())
    }

    /// Adds the completions that have become known since the last call.
    pub fn take_completed(&mut self, to: &mut Vec<RequestCompleted>) {
        to.append(&mut self.completed);
    }

    /// An orderly end of power: the device programs what it holds.
    ///
    /// # Errors
    /// As [`Disk::submit`].
    pub fn power_off<O: Observer>(&mut self, observer: &mut O) -> Result<()> {
        self.act(&Action::PowerOff, observer)
    }

    /// Checks every rule over the whole device, where there is a checker.
    ///
    /// # Errors
    /// For a broken invariant.
    pub fn verify(&mut self) -> Result<()> {
        self.checker.as_mut().map_or(Ok(()), |checker| checker.verify(&self.device))
    }

    /// Gives the device a command, or the entries of a packed one. That is one command whose entries are done in order, so the
    /// standard has none in command queueing mode (JESD84-B51): a device that reorders gets each entry as a command of its own.
    fn pack<O: Observer>(&mut self, commands: &[Command], observer: &mut O) -> Result<()> {
        let at_once = if self.reorders { 1 } else { commands.len().max(1) };
        commands.chunks(at_once).try_for_each(|part| self.act(&Action::Submit(part), observer))
    }

    /// Gives the device the next command of the host queue.
    fn fetch<O: Observer>(&mut self, at: Nanos, observer: &mut O) -> Result<()> {
        let Some(host) = &mut self.host else { return Ok(()) };
        let mut commands = std::mem::take(&mut self.fetched);
        host.fetch(at, &mut commands);
        let done = self.pack(&commands, observer);
        self.fetched = commands;
        done
    }

    fn act<O: Observer>(&mut self, action: &Action<'_>, observer: &mut O) -> Result<()> {
        if O::RARE || self.contents.is_some() || self.checker.is_some() {
            return self.act_watched(action, observer);
        }
        let Self { device, host, completed, .. } = self;
        let complete = |_: &mut O, event: &RequestCompleted| note(host, completed, event);
        action.perform(device, &mut OnCompletion { observer, completed: complete })
    }

    /// The same with checker and contents, for any listener: compiled once.
    #[inline(never)]
    fn act_watched(&mut self, action: &Action<'_>, observer: &mut dyn AnyObserver) -> Result<()> {
        let Self { device, checker, host, completed, contents, now, .. } = self;
        let known = completed.len();
        let complete = |_: &mut Shared<'_>, event: &RequestCompleted| note(host, completed, event);
        let listener = &mut OnCompletion { observer: &mut Shared(observer), completed: complete };
        if let Action::Submit(commands) = action {
            if let Some(checker) = checker.as_deref_mut() {
                commands.iter().for_each(|command| checker.expect(command));
            }
            if let Some(tapped) = contents.as_deref_mut().and_then(|contents| contents.tapped.as_mut()) {
                tapped.commands(device.next_command(), commands);
            }
        }
        {
            let data = contents.as_deref_mut().map(|contents| (&mut contents.media, &mut contents.undo));
            action.perform(device, &mut Rare((checker.as_deref_mut(), (data, listener))))?;
        }
        if let Some(Contents { media, tapped: Some(tapped), .. }) = contents.as_deref_mut() {
            tapped.after(*now, media, &completed[known..]);
        }
        match (checker, action) {
            (Some(checker), Action::Submit(_)) => checker.verify_now_and_then(device),
            _ => Ok(()),
        }
    }
}

/// A request is complete at the device.
fn note(host: &mut Option<HostQueue>, completed: &mut Vec<RequestCompleted>, event: &RequestCompleted) {
    match host {
        Some(host) => host.completed(event, completed),
        None => completed.push(*event),
    }
}

impl Action<'_> {
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

/// The zones of a device, as layers above it need to know them.
fn zones_of(device: &Device) -> Option<Zones> {
    let mut zones = device.zones();
    let first = zones.next()?;
    let (max_open, max_active) = device.zone_limits();
    Some(Zones {
        first: first.start,
        sectors: first.sectors,
        count: 1 + zones.count() as u32,
        write_sectors: device.geometry().unit_sectors,
        max_open,
        max_active,
    })
}
