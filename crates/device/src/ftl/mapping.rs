//! The seam between the controller and the mapping schemes.
//!
//! The device keeps what every scheme shares: where each unit lies (`map`, `owner`), blocks and pools, timelines and
//! counters. A scheme decides where new data goes and what has to be moved for it. It is asked once per command.

use super::place::Span;
use crate::config::{Scheme, Settings};
use crate::controller::Progress;
use crate::device::Device;
use crate::event::Observer;

/// What a scheme knows beside the device.
pub(crate) enum Mapping {
    /// The page map needs nothing else.
    Page,
}

impl Mapping {
    pub fn new(settings: &Settings) -> Self {
        match settings.mapping.scheme {
            Scheme::Page => Mapping::Page,
        }
    }
}

impl Device {
    /// Writes the span of a request.
    #[inline]
    pub(crate) fn write_mapped<O: Observer>(
        &mut self,
        progress: &mut Progress,
        span: Span,
        observer: &mut O,
    ) {
        match self.mapping {
            Mapping::Page => self.write_pages(progress, span, observer),
        }
    }

    /// Forgets whole units.
    pub(crate) fn discard_mapped(&mut self, first: u32, count: u32) {
        for unit in first..first + count {
            let slot = self.map[unit as usize];
            if slot != 0 {
                self.invalidate(slot - 1);
                self.map[unit as usize] = 0;
                self.counters.trimmed_units += 1;
            }
        }
    }
}
