//! Allocation policies, which choose the plane for new data. Each policy is an entry in the list below.

#[cfg(test)]
mod tests;

use emmclab_base::Nanos;
use emmclab_settings::{DeviceSettings, PolicyDescription, PolicySetting};

use crate::geometry::Geometry;
use crate::ids::{Lpn, PlaneId};
use crate::nand::Nand;

/// The part of the allocator's state that an allocation policy can read.
#[derive(Clone, Copy)]
pub(crate) struct AllocationView<'a> {
    pub geometry: &'a Geometry,
    pub nand: &'a Nand,
    /// Position, in striping order, of the flash way to consider first. It is the successor of the way used last.
    pub cursor: u32,
    /// For each flash way, the plane used last, counted within the way.
    pub last_planes: &'a [u32],
    /// Number of KB written to the current flash way since it became the current one.
    pub chunk_kb: u32,
}

/// A page for which a policy chooses a plane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRequest {
    /// Time at which the data of the page is available.
    pub ready: Nanos,
    pub first: Lpn,
    /// Block group of the page.
    pub group: u8,
}

/// How the cursor, which selects the next flash way, moves after a page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CursorMove {
    /// The policy does not use the cursor.
    Anywhere,
    /// The cursor stays at the current flash way (flash that executes one operation at a time). `filled` is the number of KB of the current
    /// chunk that have been written to this way.
    Stay { filled: u32 },
    /// The cursor moves to the next flash way after this position in the striping order.
    Behind(u32),
}

/// The decision of a policy: a plane, and how the cursor moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlaneSelection {
    pub plane: PlaneId,
    pub next: CursorMove,
}

/// Chooses the plane of a page. The allocator then updates its state.
pub(crate) trait AllocationPolicy {
    /// Returns the plane of the next page.
    fn choose(&self, view: AllocationView<'_>, page: PageRequest) -> PlaneSelection;
}

/// The registry: each policy is an entry below.
macro_rules! policies {
    ($($name:ident),+ $(,)?) => {
        /// All allocation policies.
        pub(crate) static POLICIES: &[PolicyDescription] = &[$($name::KIND),+];

        #[derive(Clone, Copy, Debug)]
        enum AnyAllocationPolicy {
            $($name($name)),+
        }

        impl AnyAllocationPolicy {
            /// Creates the policy that the settings name. The name has been checked before; an unknown name yields the first policy.
            fn new(settings: &DeviceSettings) -> Self {
                let name = settings.allocation.policy.as_str();
                let all = [$((<$name>::KIND.name, AnyAllocationPolicy::$name(<$name>::new(settings)))),+];
                all.iter().find(|(known, _)| *known == name).unwrap_or(&all[0]).1
            }

            #[inline(always)]
            fn choose(self, view: AllocationView<'_>, page: PageRequest) -> PlaneSelection {
                match self {
                    $(AnyAllocationPolicy::$name(policy) => policy.choose(view, page)),+
                }
            }
        }
    };
}

policies!(FirstFree, AddressStriped, ChunkStriped);

/// The allocation policy, and the state that it keeps between pages.
#[derive(Clone, Debug)]
pub(crate) struct PageAllocator {
    policy: AnyAllocationPolicy,
    pub cursor: u32,
    pub last_planes: Vec<u32>,
    pub chunk_kb: u32,
}

impl PageAllocator {
    pub fn new(settings: &DeviceSettings, nand: &Nand) -> Self {
        let last_planes = vec![nand.timelines.planes_per_way - 1; nand.timelines.order.len()];
        Self { policy: AnyAllocationPolicy::new(settings), cursor: 0, last_planes, chunk_kb: 0 }
    }

    /// Chooses the plane of a page, and updates the cursor.
    #[inline(always)]
    pub fn next_plane(&mut self, geometry: &Geometry, nand: &Nand, page: PageRequest) -> PlaneId {
        let Self { policy, cursor, last_planes, chunk_kb } = self;
        let view = AllocationView { geometry, nand, cursor: *cursor, last_planes: last_planes.as_slice(), chunk_kb: *chunk_kb };
        let PlaneSelection { plane, next } = policy.choose(view, page);
        match next {
            CursorMove::Anywhere => return plane,
            CursorMove::Stay { filled } => *chunk_kb = filled,
            CursorMove::Behind(position) => {
                let next = position + 1;
                *cursor = if next as usize == nand.timelines.order.len() { 0 } else { next };
                *chunk_kb = 0;
            }
        }
        let planes = nand.timelines.planes_per_way;
        if planes > 1 {
            last_planes[(plane.0 / planes) as usize] = plane.0 % planes;
        }
        plane
    }

    /// Restores the state from a device image; `None` if a position is outside the device.
    pub fn restore(&mut self, (cursor, chunk_kb): (u32, u32), last_planes: &[u32], planes_per_way: u32) -> Option<()> {
        (self.cursor, self.chunk_kb) = (cursor, chunk_kb);
        for (own, stored) in self.last_planes.iter_mut().zip(last_planes) {
            *own = stored % planes_per_way;
        }
        ((cursor as usize) < self.last_planes.len()).then_some(())
    }
}

/// First free (policy `dynamic`): chooses the way that can begin first. If several can, they are used in rotation, and so are the planes of
/// a way (the dynamic allocation of SSDsim; Hu et al., ICS 2011).
#[derive(Clone, Copy, Debug)]
struct FirstFree;

impl FirstFree {
    pub const KIND: PolicyDescription =
        PolicyDescription { name: "dynamic", about: "The way that is free first.", settings: &[] };

    pub fn new(_: &DeviceSettings) -> Self {
        Self
    }
}

impl AllocationPolicy for FirstFree {
    #[inline(always)]
    fn choose(&self, view: AllocationView<'_>, page: PageRequest) -> PlaneSelection {
        let position = view.nand.timelines.first_way(view.cursor as usize, page.ready);
        let (way, planes) = (view.nand.timelines.order[position], view.nand.timelines.planes_per_way);
        let mut plane = way.0;
        if planes > 1 {
            let next = view.last_planes[way.index()] + 1;
            plane = way.0 * planes + if next >= planes { 0 } else { next };
        }
        PlaneSelection { plane: PlaneId(plane), next: CursorMove::Behind(position as u32) }
    }
}

/// Striped by address (policy `static`): the logical address determines the plane, so that consecutive pages use consecutive planes.
#[derive(Clone, Copy, Debug)]
struct AddressStriped;

impl AddressStriped {
    pub const KIND: PolicyDescription = PolicyDescription { name: "static", about: "By the logical address.", settings: &[] };

    pub fn new(_: &DeviceSettings) -> Self {
        Self
    }
}

impl AllocationPolicy for AddressStriped {
    #[inline]
    fn choose(&self, view: AllocationView<'_>, page: PageRequest) -> PlaneSelection {
        PlaneSelection { plane: view.geometry.home_plane(page.first, page.group), next: CursorMove::Anywhere }
    }
}

const CHUNK: PolicySetting = PolicySetting {
    key: "chunk_kb",
    about: "Data in KB that is written to one plane before the next plane is used.",
    default: 128,
    range: (1, 1 << 20),
};

/// Chunk by chunk (policy `chunked`): writes data to one plane until a chunk is full, then to the next plane. Only requests longer than a
/// chunk use several planes at once.
#[derive(Clone, Copy, Debug)]
struct ChunkStriped {
    chunk_kb: u32,
}

impl ChunkStriped {
    pub const KIND: PolicyDescription = PolicyDescription {
        name: "chunked",
        about: "One plane after the other; each receives `allocation.chunk_kb` of the written data.",
        settings: &[CHUNK],
    };

    pub fn new(settings: &DeviceSettings) -> Self {
        Self { chunk_kb: CHUNK.count(&settings.allocation.options) }
    }
}

impl AllocationPolicy for ChunkStriped {
    #[inline]
    fn choose(&self, view: AllocationView<'_>, page: PageRequest) -> PlaneSelection {
        let position = view.cursor as usize;
        let (way, planes) = (view.nand.timelines.order[position], view.nand.timelines.planes_per_way);
        let last = view.last_planes[way.index()];
        // All pages of a chunk are written to the same plane of the flash way, so the plane changes only at the beginning of a chunk.
        let plane = match (view.chunk_kb, last + 1) {
            (0, next) if next < planes => next,
            (0, _) => 0,
            _ => last,
        };
        let filled = view.chunk_kb + view.geometry.groups[usize::from(page.group)].page_bytes / 1024;
        let next = if filled < self.chunk_kb { CursorMove::Stay { filled } } else { CursorMove::Behind(view.cursor) };
        PlaneSelection { plane: PlaneId(way.0 * planes + plane), next }
    }
}
