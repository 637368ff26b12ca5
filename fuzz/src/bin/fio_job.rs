#![no_main]

use emmclab_synth::fio::FioLoad;
use libfuzzer_sys::fuzz_target;

// The first requests of each copy of a job must be within its files.
fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Larger files have larger maps of random blocks, which take the memory of the fuzzer.
    let Ok(load) = FioLoad::new(text, 1, 1 << 30, &|_| None, &[]) else { return };
    for mut worker in load.groups.into_iter().flatten().take(4) {
        for now in 0..100 {
            if worker.peek(emmclab_trace::Nanos(now)).is_none() {
                break;
            }
            assert!(worker.take().unwrap().end().0 <= load.end);
        }
    }
});
