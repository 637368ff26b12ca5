//! Windowed greedy: the block with the fewest valid units among the oldest blocks (Hu et al., SYSTOR 2009). Window 1 is FIFO.

use super::{Choice, Order, Policy, VictimPolicy, View};
use emmclab_settings::{PolicyKind, PolicySetting};

const WINDOW: PolicySetting = PolicySetting {
    key: "window",
    about: "Oldest blocks looked at for each decision.",
    default: 64,
    range: (1, u32::MAX as u64),
};

pub(super) const POLICY: Policy = Policy {
    kind: PolicyKind {
        name: "windowed_greedy",
        about: "the fewest valid units among the `gc.window` oldest blocks",
        settings: &[WINDOW],
    },
    make: |options| Box::new(WindowedGreedy { window: WINDOW.count(options) as usize }),
};

struct WindowedGreedy {
    window: usize,
}

impl VictimPolicy for WindowedGreedy {
    fn order(&self) -> Order {
        Order::Age
    }

    fn choose(&self, view: &View) -> Choice {
        let best = view.by_age().take(self.window).min_by_key(|block| view.valid(*block));
        best.map_or(Choice::Nothing, Choice::Collect)
    }
}
