//! Chunk by chunk (`chunked`): data is written to one plane until a chunk is full, then to the next plane. So only requests longer than a
//! chunk use several planes at once.

use super::{AllocationPolicy, AllocationView, CursorMove, PageRequest, PlaneSelection};
use crate::ids::PlaneId;
use emmclab_settings::{DeviceSettings, PolicyDescription, PolicySetting};

const CHUNK: PolicySetting = PolicySetting {
    key: "chunk_kb",
    about: "Data in KB that is written to one plane before the next plane is used.",
    default: 128,
    range: (1, 1 << 20),
};

#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkStriped {
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
        let (way, planes) = (view.nand.ways()[position], view.nand.planes_per_way());
        let last = view.last_planes[way.index()];
        // A way switches to its next plane at the beginning of a chunk.
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
