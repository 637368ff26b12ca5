//! The trait by which observers receive the events of a device.

use super::{
    BlockErased, BlockRetired, BoosterNotice, CacheFlushed, CacheRead, CommandFetched, DataMoved, GcFinished, GcStarted,
    IdleCollected, IdleInterrupted, LinkTransfer, LogMerged, MapConsulted, MapHinted, MapLookedUp, MapMispredicted,
    MapPrefetched, OperationsDelayed, PackedCommandArrived, PageProgrammed, PageRead, PartOverwritten, RequestCompleted,
    UnitCached, UnitsFolded, UnitsPinned, UnitsTrimmed, UnplacedRead, UnwrittenUnits, WokeUp, ZoneBufferTaken, ZoneChanged,
};

/// Declares the methods of an observer once, for the trait and for all types that forward events.
macro_rules! observer {
    ($($(#[$doc:meta])* $name:ident: $event:ty;)+) => {
        /// Receives the events of a device. A method that is not overridden does nothing and costs nothing.
        pub trait Observer {
            /// Whether the observer needs [`PageProgrammed::units`]. If not, consecutive page moves are reported as one event.
            const UNITS: bool = true;
            /// Whether the observer needs events other than completions. Otherwise the device reports only completions.
            const EVENTS: bool = true;

            /// A request is complete. Requests are reported in order of arrival.
            #[inline]
            fn request_completed(&mut self, _event: &RequestCompleted) {}

            $($(#[$doc])*
            #[inline]
            fn $name(&mut self, _event: &$event) {})+
        }

        /// The methods of an [`Observer`] in a form that is compatible with `dyn`.
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

        impl<const UNITS: bool> Observer for DynObserver<'_, UNITS> {
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
            const EVENTS: bool = O::EVENTS;

            #[inline(always)]
            fn request_completed(&mut self, event: &RequestCompleted) {
                (**self).request_completed(event);
            }

            $(#[inline(always)]
            fn $name(&mut self, event: &$event) {
                (**self).$name(event);
            })+
        }

        /// An optional observer; `None` ignores all events.
        impl<O: Observer> Observer for Option<O> {
            const UNITS: bool = O::UNITS;
            const EVENTS: bool = O::EVENTS;

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

        /// A pair of observers, called in this order.
        impl<A: Observer, B: Observer> Observer for (A, B) {
            const UNITS: bool = A::UNITS || B::UNITS;
            const EVENTS: bool = A::EVENTS || B::EVENTS;

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
            const EVENTS: bool = O::EVENTS;

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
    /// Data of a request was transferred to or from the FTL or the write buffer.
    data_moved: DataMoved;
    /// Pages were read.
    page_read: PageRead;
    /// A page was read that no simulated block contains.
    unplaced_read: UnplacedRead;
    /// Pages were programmed.
    page_programmed: PageProgrammed<'_>;
    /// Operations end later than reported, because a read of the host suspended them or went before them.
    operations_delayed: OperationsDelayed;
    /// A block was erased.
    block_erased: BlockErased;
    /// A block became bad.
    block_retired: BlockRetired;
    /// Collection of a block, or a log-block merge, began.
    gc_started: GcStarted;
    /// Collection of a block, or a log-block merge, ended.
    gc_finished: GcFinished;
    /// The device garbage-collected blocks of a plane in idle time.
    idle_collected: IdleCollected;
    /// A command interrupted collection in idle time.
    idle_interrupted: IdleInterrupted;
    /// Units were moved from the SLC cache to other blocks.
    units_folded: UnitsFolded;
    /// Units were written to the pinned part of `WriteBooster`.
    units_pinned: UnitsPinned;
    /// `WriteBooster` sent a notice to the host.
    booster_notice: BoosterNotice;
    /// A zone took over the write buffer of another zone.
    zone_buffer_taken: ZoneBufferTaken;
    /// Data was discarded.
    trimmed: UnitsTrimmed;
    /// Written data entered the write buffer.
    unit_cached: UnitCached;
    /// A unit was read on a device with RAM for data.
    cache_read: CacheRead;
    /// The write buffer was flushed.
    cache_flushed: CacheFlushed;
    /// A unit was overwritten in part.
    part_overwritten: PartOverwritten;
    /// The host read units that it never wrote.
    unwritten_read: UnwrittenUnits;
    /// The mapping scheme looked up an entry of its table.
    map_looked_up: MapLookedUp;
    /// The mapping table entries of a request were looked up.
    map_consulted: MapConsulted;
    /// The host sent a mapping table entry along with a read.
    map_hinted: MapHinted;
    /// Mapping table entries were loaded because a neighbouring entry was needed.
    map_prefetched: MapPrefetched;
    /// A mapping table entry did not point to the page of the unit.
    map_mispredicted: MapMispredicted;
    /// Log blocks were merged.
    log_merged: LogMerged;
    /// A packed command arrived.
    packed: PackedCommandArrived;
    /// A UFS fetched a command from a queue.
    command_taken: CommandFetched;
    /// Data was transferred over the link of a UFS.
    link_transfer: LinkTransfer;
    /// The device woke up.
    woke_up: WokeUp;
    /// A zone changed its state.
    zone_changed: ZoneChanged;
}

/// An observer that does nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullObserver;

impl Observer for NullObserver {
    const UNITS: bool = false;
    const EVENTS: bool = false;
}

/// Forwards completions of requests to a function, and no other events.
pub(crate) struct CompletionObserver<'a>(pub &'a mut dyn FnMut(&RequestCompleted));

impl Observer for CompletionObserver<'_> {
    const UNITS: bool = false;
    const EVENTS: bool = false;

    #[inline]
    fn request_completed(&mut self, event: &RequestCompleted) {
        (self.0)(event);
    }
}

/// Calls an observer through a pointer, so that the device is compiled once for all observers. `UNITS` is the value of [`Observer::UNITS`]
/// for this observer.
pub struct DynObserver<'a, const UNITS: bool = true>(pub &'a mut dyn AnyObserver);

/// Forwards all events except completions to an observer. `completed` receives the completions.
pub struct OnCompletion<'a, O, F> {
    /// The observer that receives all events except completions.
    pub observer: &'a mut O,
    /// Called with the observer and each completion. It may report a completion to the observer.
    pub completed: F,
}
