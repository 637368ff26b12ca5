//! FIFO (LRU cleaning): the block that has been full for the longest time, whatever it holds. Cheap and with even wear, but moves fully
//! valid blocks.

use super::{FullBlockOrder, VictimChoice, VictimPolicy, VictimPolicyEntry, VictimView};
use emmclab_settings::PolicyDescription;

pub(super) const POLICY: VictimPolicyEntry = VictimPolicyEntry {
    kind: PolicyDescription { name: "fifo", about: "the block that has been full for longest", settings: &[] },
    make: |_| Box::new(FifoGc),
};

struct FifoGc;

impl VictimPolicy for FifoGc {
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Age
    }

    fn choose(&self, view: &VictimView) -> VictimChoice {
        view.by_age().next().map_or(VictimChoice::Nothing, VictimChoice::Collect)
    }
}
