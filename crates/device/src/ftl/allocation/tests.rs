//! Tests of the allocation policies on a small device.

use emmclab_base::Nanos;

use super::PageRequest;
use crate::DeviceConfig;
use crate::ftl::core::FtlCore;
use crate::geometry::Geometry;
use crate::ids::Lpn;
use crate::nand::Nand;

/// Returns the planes that a policy chooses for pages that are all ready at time 0; `pages` are the numbers of their first units. Each page
/// is programmed before the next is allocated. Plane `busy` programs another page from time 0 on. The device has two channels of one chip
/// with `planes` planes, and a page contains one unit.
pub(super) fn planes(policy: &str, planes: u32, busy: u32, pages: &[u32]) -> Vec<u32> {
    let text = format!(
        "[geometry]\nchannels = 2\nplanes_per_die = {planes}\n[[geometry.block_groups]]\nblocks = 16\npages_per_block = 16\npage_kb = 4\nprogram_us = 1000
         [allocation]\n{policy}"
    );
    let config = DeviceConfig::from_toml(&text).unwrap();
    let geometry = Geometry::new(config.settings());
    let mut nand = Nand::new(config.settings(), &geometry);
    let mut core = FtlCore::new(config.settings(), &geometry, &nand, 0);
    let program = |nand: &mut Nand, core: &mut FtlCore, plane| {
        let block = core.tables.pool_mut(geometry.pool(plane, 0)).take().unwrap();
        nand.open(block, Nanos::ZERO);
        nand.program(block, 0, Nanos::ZERO, 4096);
    };
    program(&mut nand, &mut core, crate::ids::PlaneId(busy));
    let mut chosen = Vec::new();
    for first in pages {
        let page = PageRequest { ready: Nanos::ZERO, first: Lpn(*first), group: 0 };
        let plane = core.allocator.next_plane(&geometry, &nand, page);
        program(&mut nand, &mut core, plane);
        chosen.push(plane.0);
    }
    chosen
}

#[test]
fn the_dynamic_policy_passes_a_busy_way_by_and_lets_the_planes_of_a_way_take_turns() {
    assert_eq!(planes("policy = 'dynamic'", 1, 0, &[0, 1, 2]), [1, 0, 1]);
    assert_eq!(planes("policy = 'dynamic'", 2, 1, &[0, 0, 0, 0]), [2, 0, 3, 1]);
}

#[test]
fn the_static_policy_goes_by_the_address_even_where_the_way_is_busy() {
    assert_eq!(planes("policy = 'static'", 1, 0, &[0, 1, 2, 0, 0]), [0, 1, 0, 0, 0]);
}

#[test]
fn the_chunked_policy_fills_a_chunk_in_one_plane_even_where_it_is_busy() {
    let chunks = "policy = 'chunked'\nchunk_kb = 12";
    assert_eq!(planes(chunks, 1, 0, &[9; 8]), [0, 0, 0, 1, 1, 1, 0, 0]);
    assert_eq!(planes(chunks, 2, 0, &[9; 10]), [0, 0, 0, 2, 2, 2, 1, 1, 1, 3]);
    // The last page of a chunk may exceed `chunk_kb`.
    assert_eq!(planes("policy = 'chunked'\nchunk_kb = 6", 1, 0, &[9; 5]), [0, 0, 1, 1, 0]);
}
