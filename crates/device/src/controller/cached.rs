//! The device's RAM for data at work: writes that end in the cache, write-back, flushes and barriers, reads from RAM.
//! What all this promises stands in `persistence.rs`.

use emmclab_trace::Op;

use super::cache::Cache;
use super::progress::Progress;
use crate::command::Modifiers;
use crate::config::WriteBack;
use crate::device::Device;
use crate::event::{Observer, UnitCached};
use crate::ftl::place::Span;

impl Device {
    /// A write whose data has come, on a device with a cache or with more asked for than the data itself.
    #[inline(never)]
    pub(crate) fn write_modified<O: Observer>(
        &mut self,
        progress: &mut Progress,
        modifiers: Modifiers,
        observer: &mut O,
    ) {
        if modifiers.contains(Modifiers::PREFLUSH) {
            let end = self.flush_from(progress.ready, observer);
            progress.wait_until(end);
        }
        if modifiers.contains(Modifiers::RELIABLE) {
            progress.spend(self.commands.reliable);
        }
        let durable = modifiers.contains(Modifiers::RELIABLE) || modifiers.contains(Modifiers::FORCED);
        let Some(mut cache) = self.cache.take() else {
            self.write_data(progress, observer);
            if durable {
                progress.complete_by(self.last_program);
            }
            return;
        };
        if durable || cache.room == 0 {
            self.write_around(&mut cache, progress, observer);
            if durable {
                progress.complete_by(self.last_program);
            }
        } else {
            self.write_into(&mut cache, progress, observer);
        }
        self.cache = Some(cache);
    }

    /// Writes to the flash, after what the cache holds of the same units and what a barrier puts before.
    fn write_around<O: Observer>(&mut self, cache: &mut Cache, progress: &mut Progress, observer: &mut O) {
        let (first, units) = self.units_of(progress.event.sector, progress.event.sectors);
        if cache.room > 0 {
            self.leave_older(cache, progress.ready, observer);
            progress.wait_until(cache.barrier_end);
            self.write_back(cache, first, first + units, progress.ready, observer);
        }
        if let Some(clean) = &mut cache.clean {
            (first..first + units).for_each(|unit| clean.forget(unit));
        }
        if self.stop.is_some() {
            return;
        }
        self.write_data(progress, observer);
    }

    /// Takes the data into the cache, page by page, waiting for room.
    fn write_into<O: Observer>(&mut self, cache: &mut Cache, progress: &mut Progress, observer: &mut O) {
        let (sector, sectors) = (progress.event.sector, progress.event.sectors);
        self.counters.host_bytes_written += u64::from(sectors) * 512;
        let span = Span { first: sector, end: sector + u64::from(sectors) };
        let (first, units) = self.units_of(sector, sectors);
        let unit_sectors = self.geometry.unit_sectors;
        let mut now = progress.ready;
        for unit in first..first + units {
            if cache.is_older(unit) {
                self.leave_older(cache, now, observer);
            }
            while cache.written(unit) == 0 && !cache.will_fit(1) && self.stop.is_none() {
                self.leave(cache, now, observer);
            }
            if self.stop.is_some() {
                return;
            }
            cache.release(now);
            while cache.written(unit) == 0
                && !cache.fits(1)
                && let Some(at) = cache.next_release()
            {
                now = now.max(at);
                cache.release(now);
            }
            let covered = span.covered(unit, unit_sectors);
            self.counters.cache_written += 1;
            self.counters.cache_overwritten += u64::from(cache.write(unit, covered));
            if let Some(clean) = &mut cache.clean {
                clean.forget(unit);
            }
            observer.unit_cached(&UnitCached { logical: unit, covered, at: now });
        }
        cache.since = cache.since.max(now);
        progress.wait_until(now);
        progress.without_flash(progress.ready);
    }

    /// The next group leaves the cache at `ready`, or after what a barrier puts before it.
    fn leave<O: Observer>(&mut self, cache: &mut Cache, ready: i64, observer: &mut O) {
        if let Some((first, end)) = cache.next_to_leave() {
            let ready = if cache.holds_older() { ready } else { ready.max(cache.barrier_end) };
            self.write_back(cache, first, end, ready, observer);
        }
    }

    /// Everything from before the last barrier leaves the cache.
    fn leave_older<O: Observer>(&mut self, cache: &mut Cache, ready: i64, observer: &mut O) {
        while cache.holds_older() && self.stop.is_none() {
            self.leave(cache, ready, observer);
        }
    }

    /// Programs the written data of the units `from..to`.
    fn write_back<O: Observer>(
        &mut self,
        cache: &mut Cache,
        from: u32,
        to: u32,
        ready: i64,
        observer: &mut O,
    ) {
        let mut at = from;
        while let Some((first, end)) = cache.run(at, to) {
            let older = cache.is_older(first);
            let before = std::mem::replace(&mut self.last_program, i64::MIN);
            self.write_run(cache, first, end, ready, observer);
            if self.stop.is_some() {
                return;
            }
            let done = self.last_program.max(ready);
            self.last_program = self.last_program.max(before);
            cache.leaves(done, end - first);
            if older {
                cache.barrier_end = cache.barrier_end.max(done);
            }
            self.idle_from = self.idle_from.max(done);
            (first..end).for_each(|unit| cache.drop_unit(unit));
            at = end;
        }
        cache.close_groups(from, to);
    }

    /// Programs a run of units, cut where sectors between were never written to the cache.
    fn write_run<O: Observer>(&mut self, cache: &Cache, first: u32, end: u32, ready: i64, observer: &mut O) {
        let unit_sectors = u64::from(self.geometry.unit_sectors);
        let written =
            |sector: u64| cache.written((sector / unit_sectors) as u32) >> (sector % unit_sectors) & 1 == 1;
        let (mut at, limit) = (u64::from(first) * unit_sectors, u64::from(end) * unit_sectors);
        while let Some(begin) = (at..limit).find(|sector| written(*sector))
            && self.stop.is_none()
        {
            at = (begin..limit).find(|sector| !written(*sector)).unwrap_or(limit);
            let sectors = (at - begin) as u32;
            let mut progress = Progress::new(self.next_id, Op::Write, begin, sectors, ready, ready, false);
            self.write_mapped(&mut progress, Span { first: begin, end: at }, observer);
        }
    }

    /// Everything in the cache goes to the flash from `ready` on; returns when it and all before is there.
    pub(crate) fn flush_from<O: Observer>(&mut self, ready: i64, observer: &mut O) -> i64 {
        if let Some(mut cache) = self.cache.take() {
            self.counters.cache_flushes += u64::from(!cache.is_empty());
            while !cache.is_empty() && self.stop.is_none() {
                self.leave(&mut cache, ready, observer);
            }
            self.cache = Some(cache);
        }
        ready.max(self.last_program)
    }

    /// What is in the cache leaves it before anything that comes later.
    pub(crate) fn barrier<O: Observer>(&mut self, ready: i64, observer: &mut O) {
        if let Some(mut cache) = self.cache.take() {
            self.leave_older(&mut cache, ready, observer);
            cache.barrier();
            self.cache = Some(cache);
        }
    }

    /// Write-back in the background, as far as it begins before `until`.
    #[inline(never)]
    pub(crate) fn write_back_until<O: Observer>(&mut self, until: i64, observer: &mut O) {
        let Some(mut cache) = self.cache.take() else { return };
        let from = match cache.write_back {
            WriteBack::WhenFull => i64::MAX,
            WriteBack::Eager => cache.since,
            WriteBack::Idle => cache.since.max(self.idle_from).saturating_add(cache.idle_after),
        };
        while !cache.is_empty() && self.stop.is_none() {
            let at = self.flash.first_free().max(from);
            if at >= until {
                break;
            }
            self.leave(&mut cache, at, observer);
        }
        self.cache = Some(cache);
    }

    /// Reads units from RAM where they are there, from the flash where not.
    #[inline(never)]
    pub(super) fn read_through<O: Observer>(
        &mut self,
        progress: &mut Progress,
        span: Span,
        first: u32,
        end: u32,
        observer: &mut O,
    ) {
        let Some(mut cache) = self.cache.take() else { return };
        let unit_sectors = self.geometry.unit_sectors;
        let mut missed = first;
        for unit in first..end {
            let written = cache.written(unit);
            let hit = span.covered(unit, unit_sectors) & !written == 0
                || written == 0 && cache.clean.as_mut().is_some_and(|clean| clean.hit(unit));
            self.counters.cache_read += 1;
            if hit {
                self.counters.cache_read_hits += 1;
                self.read_units(progress, span, missed, unit, observer);
                missed = unit + 1;
            } else if written == 0
                && let Some(clean) = &mut cache.clean
            {
                clean.keep(unit);
            }
        }
        self.read_units(progress, span, missed, end, observer);
        self.cache = Some(cache);
    }

    /// The data of discarded units leaves RAM.
    pub(super) fn uncache(&mut self, first: u32, count: u32) {
        if let Some(cache) = &mut self.cache {
            for unit in first..first + count {
                if cache.written(unit) != 0 {
                    cache.drop_unit(unit);
                    cache.close_groups(unit, unit + 1);
                }
                if let Some(clean) = &mut cache.clean {
                    clean.forget(unit);
                }
            }
        }
    }
}
