//! Checks before a run: all that would stop it half-way is found at once.

use emmclab_device::{DeviceConfig, Geometry};
use emmclab_trace::{Bytes, Error, Kind, Result, SECTOR_BYTES, TraceInput, TraceReader};

use crate::options::{Mode, ReplayOptions};

/// Refuses traces that do not suit the device or the mode: requests beyond the last sector without wrapped addresses, and
/// requests (all but the last count) without a recorded completion in closed loop. Where an input is required to be of one
/// device, reading it refuses several.
///
/// The footer of a Parquet file often answers at once; other files are read through. What can be read only once (a
/// pipe) is left to the run.
///
/// # Errors
/// [`Kind::Config`] with every fault of every trace, and whatever is wrong in the files.
pub fn preflight(config: &DeviceConfig, options: &ReplayOptions, inputs: &[TraceInput]) -> Result<()> {
    let geometry = Geometry::new(config.settings());
    let need = Need {
        capacity: geometry.sectors(),
        addresses: !options.wrap_addresses,
        completions: options.mode == Mode::Closed,
    };
    if !need.addresses && !need.completions {
        return Ok(());
    }
    let (mut faults, mut hints) = (Vec::new(), Vec::new());
    for input in inputs {
        if !std::fs::metadata(&input.path).is_ok_and(|meta| meta.is_file()) {
            continue;
        }
        let found = Found::of(input, &need)?;
        let name = input.path.display();
        if found.beyond > 0 {
            faults.push(format!(
                "{name}: {} of {} requests end behind the last sector of the {} device, the furthest at {}",
                found.beyond,
                found.requests,
                geometry.capacity(),
                Bytes(found.furthest.saturating_mul(SECTOR_BYTES)),
            ));
            hints.push(
                "take a larger device, or wrap the addresses into this one (--wrap-addresses; the ledger counts them)",
            );
        }
        if found.incomplete > 0 {
            faults.push(format!(
                "{name}: {} of {} requests have no recorded completion (complete_ns), which closed-loop replay needs",
                found.incomplete, found.requests,
            ));
            hints.push("replay at the recorded arrivals (--mode open)");
        }
    }
    hints.sort_unstable();
    hints.dedup();
    let problem = match faults.as_slice() {
        [] => return Ok(()),
        [one] => one.clone(),
        many => format!("there are {} faults:\n  - {}", many.len(), many.join("\n  - ")),
    };
    Err(Error::new(Kind::Config, problem).hint(hints.join("; ")))
}

/// The demands of the run on its traces.
struct Need {
    capacity: u64,
    addresses: bool,
    completions: bool,
}

/// The obstacle in one trace.
#[derive(Debug, Default)]
struct Found {
    requests: u64,
    beyond: u64,
    furthest: u64,
    incomplete: u64,
}

impl Found {
    fn of(input: &TraceInput, need: &Need) -> Result<Self> {
        let mut reader = TraceReader::open(&input.path, &input.options)?;
        let known = reader.extent().is_some_and(|extent| {
            (!need.addresses || extent.end.0 <= need.capacity)
                && (!need.completions || extent.without_completion == 0)
                && (!input.options.one_device || extent.one_device)
        });
        let mut found = Self::default();
        if known {
            return Ok(found);
        }
        let mut last_incomplete = 0;
        while let Some(batch) = reader.next_batch()? {
            for request in &batch {
                let end = request.end().0;
                found.requests += 1;
                if need.addresses && end > need.capacity {
                    found.beyond += 1;
                    found.furthest = found.furthest.max(end);
                }
                last_incomplete = u64::from(need.completions && request.complete.is_none());
                found.incomplete += last_incomplete;
            }
        }
        // Nothing comes after the last one that would wait for it.
        found.incomplete -= last_incomplete;
        Ok(found)
    }
}
