//! The contents of a device before a run, and their text form: `none`, `sequential:90`, `random:90`, `steady:4`, `used:1y,daily=2GB`.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

use emmclab_trace::{Error, ErrorClass, Result};
use serde::{Deserialize, Serialize};

use super::phone_use::PhoneUse;

/// Default upper bound of the overwriting, in capacities.
const MOST_CAPACITIES: f64 = 4.0;

/// The device's contents before the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Precondition {
    /// Nothing: a brand new device.
    #[default]
    None,
    /// This percentage of the logical capacity is written once, sequentially.
    Sequential(f64),
    /// This percentage of the logical capacity is written once, in random order in units of 4 KB (or one map unit).
    Random(f64),
    /// Full, then overwritten at random until write amplification is flat, up to this multiple of the capacity.
    SteadyState {
        /// Upper bound of the overwriting, in capacities.
        most_capacities: f64,
    },
    /// After some time of use in a phone.
    Used(PhoneUse),
}

impl Precondition {
    /// Whether the contents depend on the seed.
    pub fn is_random(&self) -> bool {
        !matches!(self, Self::None | Self::Sequential(_))
    }

    /// Upper bound of the bytes that are written to make such a device with `capacity` bytes; 0 for a new one.
    pub fn most_bytes(&self, capacity: f64) -> f64 {
        capacity
            * match self {
                Self::None => 0.0,
                Self::Sequential(share) | Self::Random(share) => share / 100.0,
                Self::SteadyState { most_capacities } => 1.0 + most_capacities,
                Self::Used(usage) => {
                    return usage.filled_pct / 100.0 * capacity + usage.most_written(capacity);
                }
            }
    }

    /// Returns an error for impossible percentages and bounds.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Self::Sequential(share) | Self::Random(share) if !(0.0..=100.0).contains(share) => {
                Err(bad(format!("{share} % of the capacity cannot be filled"), "give 0 to 100 %"))
            }
            Self::SteadyState { most_capacities } if !(*most_capacities > 0.0 && *most_capacities <= 1000.0) => {
                Err(bad(
                    format!("a limit of {most_capacities} capacities is impossible"),
                    "give more than 0, and at most 1000 times the capacity",
                ))
            }
            Self::None | Self::Sequential(_) | Self::Random(_) | Self::SteadyState { .. } => Ok(()),
            Self::Used(usage) => usage.check(),
        }
    }
}

impl FromStr for Precondition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (word, amount) = text.split_once(':').map_or((text, None), |(word, amount)| (word, Some(amount)));
        let number = |default: f64, example: &str| match amount {
            None => Ok(default),
            Some(amount) => amount
                .parse()
                .map_err(|_| bad(format!("`{amount}` is not a number"), &format!("write it as `{word}:{example}`"))),
        };
        let found = match (word, amount) {
            ("none", None) => Self::None,
            ("sequential", _) => Self::Sequential(number(100.0, "90")?),
            ("random", _) => Self::Random(number(100.0, "90")?),
            ("steady", _) => Self::SteadyState { most_capacities: number(MOST_CAPACITIES, "4")? },
            ("used", Some(amount)) => Self::Used(amount.parse()?),
            _ => {
                return Err(bad(
                    format!("`{text}` is not a way to precondition a device"),
                    "use none, sequential:PCT, random:PCT, steady[:CAPACITIES], used:AGE (as used:1y), or the path of a trace",
                ));
            }
        };
        found.check()?;
        Ok(found)
    }
}

impl Display for Precondition {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => out.write_str("none"),
            Self::Sequential(share) => write!(out, "sequential:{share}"),
            Self::Random(share) => write!(out, "random:{share}"),
            Self::SteadyState { most_capacities } => write!(out, "steady:{most_capacities}"),
            Self::Used(usage) => write!(out, "used:{usage}"),
        }
    }
}

impl TryFrom<String> for Precondition {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Precondition> for String {
    fn from(what: Precondition) -> Self {
        what.to_string()
    }
}

pub(super) fn bad(problem: String, hint: &str) -> Error {
    Error::new(ErrorClass::Config, problem).in_field("precondition").hint(hint)
}
