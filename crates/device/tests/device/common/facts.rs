//! The contents of the flash, sector by sector, derived from page programs.

use std::collections::HashMap;

use emmclab_base::Nanos;
use emmclab_device::contract::{SectorContent, Version};
use emmclab_device::{Device, DeviceCommand, Lpn, Observer, OperationCause, PageProgrammed, UnitCached, UnitsTrimmed};

/// All contents of every sector of a new device, each with the time from which on its page survives a cut.
pub struct Facts {
    unit_sectors: u64,
    /// End of the latest page, if pages become durable only in their order.
    pub in_order: Option<Nanos>,
    /// Time from the end of a program until the page survives a cut.
    pub counts_after: Nanos,
    /// The command that the device is executing.
    pub command: Option<(Version, Nanos)>,
    cached: HashMap<u64, Version>,
    flash: HashMap<u64, Vec<(Nanos, SectorContent)>>,
}

impl Facts {
    pub fn of(device: &Device) -> Self {
        Self {
            unit_sectors: u64::from(device.geometry().unit_sectors),
            in_order: None,
            counts_after: Nanos::ZERO,
            command: None,
            cached: HashMap::new(),
            flash: HashMap::new(),
        }
    }

    pub fn expect(&mut self, version: Version, command: &DeviceCommand) {
        self.command = Some((version, command.arrival));
    }

    pub fn left(&self, sector: u64, at: Nanos) -> Option<SectorContent> {
        let steps = self.flash.get(&sector)?.iter().filter(|(from, _)| *from <= at);
        steps.map(|(_, content)| *content).max_by_key(|content| content.version())
    }

    fn sectors(&self, unit: Lpn, covered: u32) -> impl Iterator<Item = u64> + use<> {
        let first = u64::from(unit.0) * self.unit_sectors;
        (0..self.unit_sectors).filter(move |bit| covered >> bit & 1 == 1).map(move |bit| first + bit)
    }
}

impl Observer for Facts {
    fn unit_cached(&mut self, event: &UnitCached) {
        for sector in self.sectors(event.lpn, event.covered) {
            self.cached.insert(sector, event.command + 1);
        }
    }

    fn page_programmed(&mut self, event: &PageProgrammed<'_>) {
        if event.cause != OperationCause::Host {
            return;
        }
        let latest = self.in_order.as_mut().map(|latest| {
            *latest = event.end.max(*latest);
            *latest
        });
        for unit in event.units {
            for sector in self.sectors(unit.lpn, unit.covered) {
                let cached = self.cached.remove(&sector);
                if let Some(version) = unit.command.map(|command| command + 1).or(cached) {
                    let counts = latest.unwrap_or(event.end) + self.counts_after;
                    let step = (counts, SectorContent::Data(version));
                    self.flash.entry(sector).or_default().push(step);
                }
            }
        }
    }

    fn trimmed(&mut self, event: &UnitsTrimmed) {
        let Some((version, at)) = self.command else { return };
        let first = u64::from(event.first.0) * self.unit_sectors;
        for sector in first..first + u64::from(event.count) * self.unit_sectors {
            self.cached.remove(&sector);
            self.flash.entry(sector).or_default().push((at, SectorContent::Nothing(version)));
        }
    }
}
