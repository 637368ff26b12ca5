//! An SD host controller with an eMMC card: a driver that writes anything anywhere.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| emmclab_serve::exercise_sdhci(data));
