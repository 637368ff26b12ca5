//! Images of used devices: valid ones are restored; damaged ones are rejected and never cause a panic.

use crate::common::model::little_memory;
use crate::common::{command, config};
use emmclab_base::Op::{Read, Write};
use emmclab_device::{Device, DeviceCommand, DeviceConfig, NullObserver};
use proptest::prelude::*;

fn collecting() -> DeviceConfig {
    config(&[("gc.policy", "greedy"), ("capacity.over_provisioning_pct", "60"), ("geometry.block_groups.0.page_kb", "8")])
}

fn requests() -> impl Iterator<Item = DeviceCommand> {
    (0u64..200).map(|i| command(i as i64 * 3000, Write, i * 37 % 36 * 4, 4))
}

fn used(config: &DeviceConfig) -> Device {
    let mut device = Device::new(config);
    for request in requests() {
        device.submit(&request, &mut NullObserver).unwrap();
    }
    assert!(device.stop().is_none() && device.counters().gc_count > 0);
    device
}

#[test]
fn an_image_of_another_device_is_refused() {
    let image = used(&collecting()).to_image();
    assert!(Device::from_image(&collecting(), &image).is_ok());
    let other = config(&[("geometry.block_groups.0.blocks", "9")]);
    assert!(Device::from_image(&other, &image).is_err());
    assert!(Device::from_image(&collecting(), &image[..image.len() - 1]).is_err());
}

#[test]
fn an_image_with_two_units_in_one_place_is_refused() {
    let mut image = used(&collecting()).to_image();
    // The map follows the magic number, the version and three sizes. Its words are differences, so the second unit gets the location of the
    // first.
    let place = |image: &[u8], unit: usize| {
        let at = 4 * (5 + unit);
        u32::from_le_bytes(image[at..at + 4].try_into().unwrap())
    };
    let (first, second, third) = (place(&image, 0), place(&image, 1), place(&image, 2));
    assert!(first > 0 && second != 0 && first.wrapping_add(second) > 0, "both units are mapped");
    image[24..28].copy_from_slice(&0_u32.to_le_bytes());
    image[28..32].copy_from_slice(&second.wrapping_add(third).to_le_bytes());
    let error = Device::from_image(&collecting(), &image).err().unwrap();
    assert!(error.to_string().contains("two units are in one place"), "{error}");
}

/// The same device with another mapping scheme.
fn mapped(scheme: &str) -> DeviceConfig {
    let mut config = config(&[("gc.policy", "greedy"), ("capacity.over_provisioning_pct", "150")]);
    config.set_all(&[("geometry.block_groups.0.blocks", "24")]).unwrap();
    config.set_all(&little_memory(scheme)).unwrap();
    config
}

proptest! {
    #![proptest_config(ProptestConfig { cases: emmclab_testing::cases(3000), ..ProptestConfig::default() })]

    #[test]
    fn damage_is_refused_or_harmless(
        scheme in prop::sample::select(vec!["page", "block", "bast", "fast", "superblock", "dftl", "tpftl", "leaftl", "rqftl"]),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let config = if scheme == "page" { collecting() } else { mapped(scheme) };
        let mut image = used(&config).to_image();
        let at = at.index(image.len());
        image[at] = value;
        if let Ok(mut device) = Device::from_image(&config, &image) {
            for request in requests() {
                device.submit(&request, &mut NullObserver).unwrap();
            }
            device.submit(&command(10_000_000, Read, 0, 4), &mut NullObserver).unwrap();
        }
    }
}
