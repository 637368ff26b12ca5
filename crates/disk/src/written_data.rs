//! The data that a replay writes: incompressible, and determined by the seed, the number of the request and the sector.

use emmclab_trace::SECTOR_BYTES;

/// The increment of the generator `SplitMix64` (Steele, Lea and Flood, OOPSLA 2014).
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of `SplitMix64`.
fn mix(mut state: u64) -> u64 {
    state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ state >> 31
}

/// Fills `data`, the contents of sectors from `sector` on, as request `number` of a replay with `seed` writes them. A sector consists of 64
/// outputs of `SplitMix64` in little-endian order, whose state begins with `mix(mix(seed ^ number * STEP) ^ sector)`.
pub fn fill_sectors(data: &mut [u8], seed: u64, number: u64, sector: u64) {
    let request = mix(seed ^ number.wrapping_mul(STEP));
    for (sector, bytes) in (sector..).zip(data.chunks_mut(SECTOR_BYTES as usize)) {
        let mut state = mix(request ^ sector);
        for word in bytes.chunks_mut(8) {
            state = state.wrapping_add(STEP);
            word.copy_from_slice(&mix(state).to_le_bytes()[..word.len()]);
        }
    }
}
