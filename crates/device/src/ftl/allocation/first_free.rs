//! First free (`dynamic`): the way that can begin first. If several can, they take turns, and so do the planes of a way (the dynamic
//! allocation of SSDsim; Hu et al., ICS 2011).
#![expect(clippy::inline_always, reason = "once for each page; arguments stay in registers")]

use super::{AllocationPolicy, Next, PageRequest, View, WaySelection};
use crate::ids::PlaneId;
use emmclab_settings::{PolicyKind, Settings};

#[derive(Clone, Copy, Debug)]
pub(super) struct FirstFree;

impl FirstFree {
    pub const KIND: PolicyKind =
        PolicyKind { name: "dynamic", about: "The way that is free first.", settings: &[] };

    pub fn new(_: &Settings) -> Self {
        Self
    }
}

impl AllocationPolicy for FirstFree {
    #[inline(always)]
    fn choose(&self, view: View<'_>, page: PageRequest) -> WaySelection {
        let position = view.nand.first_way(view.cursor as usize, page.ready);
        let (way, planes) = (view.nand.ways()[position], view.nand.planes_per_way());
        let mut plane = way.0;
        if planes > 1 {
            let next = view.last_planes[way.index()] + 1;
            plane = way.0 * planes + if next >= planes { 0 } else { next };
        }
        WaySelection { plane: PlaneId(plane), next: Next::Behind(position as u32) }
    }
}
