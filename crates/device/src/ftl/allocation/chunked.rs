//! Chunk by chunk (`chunked`): data is written to one plane until a chunk is full, then to the next plane. So only requests longer than a
//! chunk use several planes at once.

use super::{AllocationPolicy, Next, PageRequest, View, WaySelection};
use crate::ids::PlaneId;
use emmclab_settings::{PolicyKind, PolicySetting, Settings};

const CHUNK: PolicySetting = PolicySetting {
    key: "chunk_kb",
    about: "Data in KB that is written to one plane before the next plane is used.",
    default: 128,
    range: (1, 1 << 20),
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Chunked {
    chunk_kb: u32,
}

impl Chunked {
    pub const KIND: PolicyKind = PolicyKind {
        name: "chunked",
        about: "One plane after the other; each receives `allocation.chunk_kb` of the written data.",
        settings: &[CHUNK],
    };

    pub fn new(settings: &Settings) -> Self {
        Self { chunk_kb: CHUNK.count(&settings.allocation.options) }
    }
}

impl AllocationPolicy for Chunked {
    #[inline]
    fn choose(&self, view: View<'_>, page: PageRequest) -> WaySelection {
        let position = view.cursor as usize;
        let (way, planes) = (view.nand.ways()[position], view.nand.planes_per_way());
        let last = view.last_planes[way.index()];
        // A way switches to its next plane at the beginning of a chunk.
        let plane = match (view.chunk_kb, last + 1) {
            (0, next) if next < planes => next,
            (0, _) => 0,
            _ => last,
        };
        let filled = view.chunk_kb + view.geometry.groups[usize::from(page.group)].page_bytes / 1024;
        let next = if filled < self.chunk_kb { Next::Stay { filled } } else { Next::Behind(view.cursor) };
        WaySelection { plane: PlaneId(way.0 * planes + plane), next }
    }
}
