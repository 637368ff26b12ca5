#![no_main]

use emmclab_apps::{LearnOptions, learn};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let options = LearnOptions {
        name: "fuzz".to_owned(),
        partitions: vec![("data".to_owned(), "/".to_owned())],
        user_waits_for: None,
        keep_pauses: false,
        cpu_factor: 1.0,
    };
    let _ = learn(data, &options);
});
