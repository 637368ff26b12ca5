//! Divides a run of map units into pages: the largest first, the rest into smaller ones.

use crate::geometry::Geometry;

/// The next page for `units` remaining units: its block group and the number of units it holds. A page that is larger than the rest is used
/// only if there is no smaller one. IISWC 2015, section V: 20 KB becomes 8 + 8 + 4 KB on the hybrid device.
#[inline]
pub(crate) fn next_page(geometry: &Geometry, units: u32) -> (u8, u32) {
    // With one page size there is no choice.
    if let [only] = geometry.by_size[..] {
        return (only, units.min(geometry.groups[usize::from(only)].units_per_page()));
    }
    let mut smallest = 0;
    for index in &geometry.by_size {
        let capacity = geometry.groups[usize::from(*index)].units_per_page();
        if capacity <= units {
            return (*index, capacity);
        }
        smallest = *index;
    }
    (smallest, units)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceConfig;

    fn pages_kb(preset: &str, kb: u32) -> Vec<u32> {
        let config = DeviceConfig::preset(preset).unwrap();
        let geometry = Geometry::new(config.settings());
        let mut left = kb / 4;
        let mut out = Vec::new();
        while left > 0 {
            let (group, units) = next_page(&geometry, left);
            out.push(geometry.groups[usize::from(group)].page_bytes / 1024);
            left -= units;
        }
        out
    }

    #[test]
    fn twenty_kb_are_8_8_4_on_hps_and_three_pages_on_8ps() {
        assert_eq!(pages_kb("iiswc15-hps", 20), [8, 8, 4]);
        assert_eq!(pages_kb("iiswc15-8ps", 20), [8, 8, 8]);
        assert_eq!(pages_kb("iiswc15-4ps", 20), [4; 5]);
        assert_eq!(pages_kb("iiswc15-hps", 4), [4]);
    }
}
