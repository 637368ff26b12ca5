//! Windowed greedy: the block with the fewest valid units among the oldest blocks (Hu et al., SYSTOR 2009). Window 1 is FIFO.

use super::{FullBlockOrder, VictimChoice, VictimPolicy, VictimPolicyEntry, VictimView};
use emmclab_settings::{PolicyDescription, PolicySetting};

const WINDOW: PolicySetting = PolicySetting {
    key: "window",
    about: "Oldest blocks looked at for each decision.",
    default: 64,
    range: (1, u32::MAX as u64),
};

pub(super) const POLICY: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription {
        name: "windowed_greedy",
        about: "the fewest valid units among the `gc.window` oldest blocks",
        settings: &[WINDOW],
    },
    make: |options| Box::new(WindowedGreedyGc { window: WINDOW.count(options) as usize }),
};

struct WindowedGreedyGc {
    window: usize,
}

impl VictimPolicy for WindowedGreedyGc {
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Age
    }

    fn choose(&self, view: &VictimView) -> VictimChoice {
        let best = view.by_age().take(self.window).min_by_key(|block| view.valid(*block));
        best.map_or(VictimChoice::Nothing, VictimChoice::Collect)
    }
}
