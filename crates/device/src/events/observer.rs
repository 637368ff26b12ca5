//! Observers listen to the events of a device.

use super::{
    BlockErased, BlockRetired, BoosterNotice, CacheFlushed, CacheRead, CommandTaken, DataMoved, GcFinished,
    GcStarted, IdleCollected, IdleInterrupted, LinkTransfer, LogMerged, MapConsulted, MapHinted, MapLookedUp,
    MapMispredicted, MapPrefetched, Packed, PageProgrammed, PageRead, PartOverwritten, RequestCompleted,
    Trimmed, UnitCached, UnitsFolded, UnitsPinned, UnplacedRead, UnwrittenUnits, WokeUp, ZoneBufferTaken,
    ZoneChanged,
};

/// Declares the calls of an observer once: for the trait, and for all that passes events on.
macro_rules! observer {
    ($($(#[$doc:meta])* $name:ident: $event:ty;)+) => {
        /// Listens to a device. Every call does nothing unless overridden, and costs nothing then.
        pub trait Observer {
            /// Whether [`PageProgrammed::units`] is wanted, page by page; off, a run of moves is one event.
            const UNITS: bool = true;
            /// Whether it is [`Rare`].
            const RARE: bool = false;

            /// A request is complete; reported in order of arrival.
            #[inline]
            fn request_completed(&mut self, _event: &RequestCompleted) {}

            $($(#[$doc])*
            #[inline]
            fn $name(&mut self, _event: &$event) {})+
        }

        /// The calls of an [`Observer`], for a pointer to any.
        pub trait AnyObserver {
            /// A request is complete.
            fn any_request_completed(&mut self, event: &RequestCompleted);
            $($(#[$doc])*
            fn $name(&mut self, event: &$event);)+
        }

        impl<O: Observer> AnyObserver for O {
            fn any_request_completed(&mut self, event: &RequestCompleted) {
                Observer::request_completed(self, event);
            }

            $(fn $name(&mut self, event: &$event) {
                Observer::$name(self, event);
            })+
        }

        impl<O: Observer> Observer for Rare<O> {
            const UNITS: bool = O::UNITS;
            const RARE: bool = true;

            #[inline(always)]
            fn request_completed(&mut self, event: &RequestCompleted) {
                self.0.request_completed(event);
            }

            $(#[inline(always)]
            fn $name(&mut self, event: &$event) {
                self.0.$name(event);
            })+
        }

        impl<const UNITS: bool> Observer for Shared<'_, UNITS> {
            const UNITS: bool = UNITS;

            #[inline]
            fn request_completed(&mut self, event: &RequestCompleted) {
                self.0.any_request_completed(event);
            }

            $(#[inline]
            fn $name(&mut self, event: &$event) {
                self.0.$name(event);
            })+
        }

        impl<O: Observer> Observer for &mut O {
            const UNITS: bool = O::UNITS;
            const RARE: bool = O::RARE;

            #[inline(always)]
            fn request_completed(&mut self, event: &RequestCompleted) {
                (**self).request_completed(event);
            }

            $(#[inline(always)]
            fn $name(&mut self, event: &$event) {
                (**self).$name(event);
            })+
        }

        /// A listener that may be missing.
        impl<O: Observer> Observer for Option<O> {
            const UNITS: bool = O::UNITS;
            const RARE: bool = O::RARE;

            #[inline]
            fn request_completed(&mut self, event: &RequestCompleted) {
                if let Some(listener) = self {
                    listener.request_completed(event);
                }
            }

            $(#[inline]
            fn $name(&mut self, event: &$event) {
                if let Some(listener) = self {
                    listener.$name(event);
                }
            })+
        }

        /// Two listeners, told in their order.
        impl<A: Observer, B: Observer> Observer for (A, B) {
            const UNITS: bool = A::UNITS || B::UNITS;
            const RARE: bool = A::RARE || B::RARE;

            #[inline(always)]
            fn request_completed(&mut self, event: &RequestCompleted) {
                self.0.request_completed(event);
                self.1.request_completed(event);
            }

            $(#[inline(always)]
            fn $name(&mut self, event: &$event) {
                self.0.$name(event);
                self.1.$name(event);
            })+
        }

        impl<O: Observer, F: FnMut(&mut O, &RequestCompleted)> Observer for OnCompletion<'_, O, F> {
            const UNITS: bool = O::UNITS;
            const RARE: bool = O::RARE;

            #[inline]
            fn request_completed(&mut self, event: &RequestCompleted) {
                (self.completed)(self.observer, event);
            }

            $(#[inline]
            fn $name(&mut self, event: &$event) {
                self.observer.$name(event);
            })+
        }
    };
}

observer! {
    /// Data of a request goes to or comes from the FTL or the write buffer.
    data_moved: DataMoved;
    /// Pages were read.
    page_read: PageRead;
    /// The flash was read where no block of the model holds the page.
    unplaced_read: UnplacedRead;
    /// Pages were programmed.
    page_programmed: PageProgrammed<'_>;
    /// A block was erased.
    block_erased: BlockErased;
    /// A block went bad.
    block_retired: BlockRetired;
    /// Collection of a block, or a log-block merge, began.
    gc_started: GcStarted;
    /// Collection of a block, or a log-block merge, ended.
    gc_finished: GcFinished;
    /// The device collected on its own.
    idle_collected: IdleCollected;
    /// A command interrupted collection in idle time.
    idle_interrupted: IdleInterrupted;
    /// Units of the SLC cache went to other blocks.
    units_folded: UnitsFolded;
    /// Units were pinned to `WriteBooster`.
    units_pinned: UnitsPinned;
    /// `WriteBooster` told the host something.
    booster_notice: BoosterNotice;
    /// A zone took the write buffer of another one.
    zone_buffer_taken: ZoneBufferTaken;
    /// Data was discarded.
    trimmed: Trimmed;
    /// Written data came into the write buffer.
    unit_cached: UnitCached;
    /// A unit was read on a device with RAM for data.
    cache_read: CacheRead;
    /// The write buffer was flushed.
    cache_flushed: CacheFlushed;
    /// A unit was overwritten in part.
    part_overwritten: PartOverwritten;
    /// Units were read that were never written.
    unwritten_read: UnwrittenUnits;
    /// The mapping scheme looked its map up.
    map_looked_up: MapLookedUp;
    /// The map entries of a request were looked up.
    map_consulted: MapConsulted;
    /// The host brought a map entry along.
    map_hinted: MapHinted;
    /// Map entries came along with another.
    map_prefetched: MapPrefetched;
    /// The map led to another page than that of the unit.
    map_mispredicted: MapMispredicted;
    /// Log blocks were merged.
    log_merged: LogMerged;
    /// A packed command came.
    packed: Packed;
    /// A UFS took a command from a queue.
    command_taken: CommandTaken;
    /// Data went over the link of a UFS.
    link_transfer: LinkTransfer;
    /// The device woke up.
    woke_up: WokeUp;
    /// A zone changed its state.
    zone_changed: ZoneChanged;
}

/// Listens to nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Observer for Quiet {
    const UNITS: bool = false;
}

/// A listener that is rare, or slow by itself. Where a host queue, a checker or contents lie above the device, it is called
/// through a pointer, so that the device is not compiled for it once more.
pub struct Rare<O>(pub O);

/// A listener that is called through a pointer, so that the device is compiled once for all of them. `UNITS` is
/// [`Observer::UNITS`].
pub struct Shared<'a, const UNITS: bool = true>(pub &'a mut dyn AnyObserver);

/// A listener to everything but completions, which `completed` takes in its place.
pub struct OnCompletion<'a, O, F> {
    /// The listener.
    pub observer: &'a mut O,
    /// Takes the completion of a request; it may report another to the listener.
    pub completed: F,
}
