//! FIFO (LRU cleaning): the block that has been full for the longest time, whatever it holds. Cheap and with even wear, but moves fully
//! valid blocks.

use super::{Choice, Order, Policy, VictimPolicy, View};
use emmclab_settings::PolicyKind;

pub(super) const POLICY: Policy = Policy {
    kind: PolicyKind { name: "fifo", about: "the block that has been full for longest", settings: &[] },
    make: |_| Box::new(Fifo),
};

struct Fifo;

impl VictimPolicy for Fifo {
    fn order(&self) -> Order {
        Order::Age
    }

    fn choose(&self, view: &View) -> Choice {
        view.by_age().next().map_or(Choice::Nothing, Choice::Collect)
    }
}
