#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| emmclab_fuzz::read_as(&["vscsi", "lcs", "oracle-general"], data));
