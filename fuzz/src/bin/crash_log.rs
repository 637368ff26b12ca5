//! Logs of power cuts: ours, and those of dm-log-writes. What is read is explored a little.
#![no_main]

use std::sync::Arc;

use emmclab_crash::{CrashLogIndex, ExploreOptions, Explorer, journal_rules};
use emmclab_fuzz::file_of;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = file_of(data) else { return };
    let path = file.path();
    for run in [CrashLogIndex::open(path), CrashLogIndex::open_dm(path, 1 << 12, None)].into_iter().flatten() {
        let run = Arc::new(run);
        let _ = journal_rules(&run, 0);
        let options = ExploreOptions { cuts: 4, ..ExploreOptions::default() };
        let Ok(mut explorer) = Explorer::new(&run, &options) else { continue };
        let mut buffer = [0; 4096];
        for _ in 0..32 {
            let Some(state) = explorer.next_state() else { break };
            let _ = explorer.view(&state).read(0, &mut buffer);
        }
    }
});
