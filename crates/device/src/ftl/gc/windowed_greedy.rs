//! Windowed greedy: the fewest valid units among the oldest blocks (Hu et al., SYSTOR 2009). Window 1 is FIFO.

use super::{Choice, Order, Policy, VictimPolicy, View};
use crate::settings::GcSettings;

pub(super) const POLICY: Policy = Policy {
    name: "windowed_greedy",
    about: "the fewest valid units among the `gc.window` oldest blocks",
    make: |settings: &GcSettings| Box::new(WindowedGreedy { window: settings.window as usize }),
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
