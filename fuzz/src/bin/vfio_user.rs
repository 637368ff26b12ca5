//! Messages of a vfio-user client to the SDHCI export.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| emmclab_serve::exercise_vfio_user(data));
