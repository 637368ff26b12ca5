//! Values of options that have a syntax of their own: patterns, sizes, distributions, rates.

use emmclab_trace::{Op, Result};

use super::job::{FioJob, FioOperations, FioPattern, FioRate, FioSequencer, Sizes};
use super::lines::FioOption;
use super::offsets::{DistributionZone, OffsetDistribution};
use super::units::{KbBase, bytes};

/// The value of `rw`: operations, and for random patterns the number of requests from one offset on, else the bytes to skip.
pub(super) fn pattern(given: &FioOption) -> Result<FioPattern> {
    let value = given.text();
    let (name, modifier) = value.split_once(':').map_or((value, None), |(name, modifier)| (name, Some(modifier)));
    let (ops, random) = match name {
        "read" => (FioOperations::Only(Op::Read), false),
        "write" => (FioOperations::Only(Op::Write), false),
        "trim" => (FioOperations::Only(Op::Discard), false),
        "randread" => (FioOperations::Only(Op::Read), true),
        "randwrite" => (FioOperations::Only(Op::Write), true),
        "randtrim" => (FioOperations::Only(Op::Discard), true),
        "rw" | "readwrite" => (FioOperations::Mixed, false),
        "randrw" => (FioOperations::Mixed, true),
        "trimwrite" => (FioOperations::TrimWrite, false),
        "randtrimwrite" => (FioOperations::TrimWrite, true),
        _ => {
            return Err(given
                .invalid_option("is not a pattern")
                .hint("choose one of: read, write, trim, rw, trimwrite, each with rand before it"));
        }
    };
    let bad = || {
        given.invalid_option(
            "has an invalid modifier: it is a number of requests after random patterns, of bytes after others",
        )
    };
    let (run, hole) = match modifier {
        None => (1, 0),
        Some(text) if random => (text.parse().ok().filter(|run| *run > 0).ok_or_else(bad)?, 0),
        Some(text) => {
            let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
            let hole = bytes(digits, given.base).and_then(|bytes| i64::try_from(bytes).ok()).ok_or_else(bad)?;
            (1, sign * hole)
        }
    };
    Ok(FioPattern { ops, random, run, hole })
}

/// The value of `rw_sequencer`.
pub(super) fn sequencer(given: &FioOption) -> Result<FioSequencer> {
    match given.text() {
        "sequential" => Ok(FioSequencer::Sequential),
        "identical" => Ok(FioSequencer::Identical),
        _ => Err(given.invalid_option("is neither sequential nor identical")),
    }
}

/// Three values separated by commas, of reads, writes and trims. Missing values at the end equal the one before; an empty value is `None`.
fn of_each<T: Clone>(given: &FioOption, read: impl Fn(&str) -> Option<T>, what: &str) -> Result<[Option<T>; 3]> {
    let mut last = None;
    let mut parts = given.text().split(',');
    let mut found = [None, None, None];
    for value in &mut found {
        match parts.next().map(str::trim) {
            Some("") => {}
            Some(part) => {
                last = Some(read(part).ok_or_else(|| given.invalid_option(&format!("is not {what}")))?);
                value.clone_from(&last);
            }
            None => value.clone_from(&last),
        }
    }
    if parts.next().is_some() {
        return Err(given.invalid_option("has more than three parts: of reads, writes and trims"));
    }
    Ok(found)
}

/// Sets the sizes of reads, writes and trims, parsed by `read`.
pub(super) fn set_sizes(job: &mut FioJob, given: &FioOption, read: fn(&str, KbBase) -> Option<Sizes>) -> Result<()> {
    let whole = |part: &str| {
        read(part, given.base).filter(|sizes| {
            !sizes.is_empty()
                && sizes.iter().all(|(bytes, _)| *bytes > 0)
                && sizes.iter().any(|(_, weight)| *weight > 0)
        })
    };
    let what = "a size of requests, as bs=4k, bsrange=4k-64k or bssplit=4k/80:64k/20";
    for (sizes, found) in job.sizes.iter_mut().zip(of_each(given, whole, what)?) {
        if let Some(found) = found {
            *sizes = found;
        }
    }
    Ok(())
}

/// The value of `bs`.
pub(super) fn one_size(text: &str, base: KbBase) -> Option<Sizes> {
    Some(vec![(bytes(text, base)?, 100)])
}

/// `4k/10:64k/90`; sizes without a share get what is left in equal parts.
pub(super) fn split(text: &str, base: KbBase) -> Option<Sizes> {
    let mut sizes = Vec::new();
    for part in text.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        sizes.push((bytes(size, base)?, if share.is_empty() { None } else { Some(share.parse::<u64>().ok()?) }));
    }
    let given: u64 = sizes.iter().filter_map(|(_, share)| *share).try_fold(0_u64, u64::checked_add)?;
    let open = sizes.iter().filter(|(_, share)| share.is_none()).count() as u64;
    if given > 100 || open == 0 && given != 100 {
        return None;
    }
    // All shares are multiplied by the number of sizes without a share, so that the rest divides evenly among these.
    let scale = open.max(1);
    let share_of = |share: Option<u64>| share.map_or(100 - given, |share| share * scale);
    Some(sizes.into_iter().map(|(size, share)| (size, share_of(share))).collect())
}

/// `1k-4k`: each multiple of the smallest up to the largest, with the same share.
pub(super) fn range(text: &str, base: KbBase) -> Option<Sizes> {
    const MOST: u64 = 1 << 16;
    let (least, most) = text.split_once('-')?;
    let (least, most) = (bytes(least, base)?, bytes(most, base)?);
    let count = most.checked_div(least)?;
    (least <= most && count <= MOST).then(|| (1..=count).map(|times| (least * times, 1)).collect())
}

/// The value of `rate` and `rate_iops`: limits of reads, writes and trims.
pub(super) fn rates(given: &FioOption, is_bytes: bool) -> Result<[Option<FioRate>; 3]> {
    let read = |part: &str| {
        if is_bytes {
            bytes(part, given.base).map(FioRate::BytesPerSecond)
        } else {
            part.parse().ok().map(FioRate::RequestsPerSecond)
        }
    };
    let what =
        if is_bytes { "a number of bytes in a second, for example 10m" } else { "a number of requests in a second" };
    // A rate of 0 is no limit.
    Ok(of_each(given, read, what)?
        .map(|rate| rate.filter(|rate| !matches!(rate, FioRate::BytesPerSecond(0) | FioRate::RequestsPerSecond(0)))))
}

/// The value of `random_distribution`.
pub(super) fn distribution(given: &FioOption) -> Result<OffsetDistribution> {
    let value = given.text();
    let (name, number) = value.split_once(':').unwrap_or((value, ""));
    let one = |usual: f64| if number.is_empty() { Some(usual) } else { number.parse::<f64>().ok() };
    let finite = |value: Option<f64>, least: f64, most: f64| value.filter(|value| *value > least && *value < most);
    match name {
        "random" => Ok(OffsetDistribution::Even),
        "zipf" => finite(one(1.1), 0.0, 10.0)
            .map(OffsetDistribution::Zipf)
            .ok_or_else(|| given.invalid_option("has a theta that is not between 0 and 10")),
        "pareto" => finite(one(0.2), 0.0, 1.0)
            .map(OffsetDistribution::Pareto)
            .ok_or_else(|| given.invalid_option("has a share that is not between 0 and 1")),
        "normal" => finite(one(0.0), -1e-9, 100.0)
            .map(OffsetDistribution::Normal)
            .ok_or_else(|| given.invalid_option("has a deviation that is not between 0 and 100 percent")),
        "zoned" => zones(number).map(OffsetDistribution::Zoned).ok_or_else(|| {
            given.invalid_option(
                "has zones that are not ACCESSES/BLOCKS with 100 percent of each in all, as zoned:60/10:30/20:10/70",
            )
        }),
        _ => Err(given
            .invalid_option("is a distribution that is not supported")
            .hint("choose one of: random, zipf, pareto, normal, zoned")),
    }
}

/// `50/5:30/15:20/80`; zones without a number of blocks share what is left. Separate zones for each operation (with commas) are not
/// supported.
fn zones(text: &str) -> Option<Vec<DistributionZone>> {
    let mut found = Vec::new();
    for part in text.split(':') {
        let (accesses, blocks) = part.split_once('/').unwrap_or((part, ""));
        let blocks = if blocks.is_empty() { None } else { Some(blocks.parse::<u64>().ok()?) };
        found.push((accesses.parse::<u64>().ok()?, blocks));
    }
    let given = found.iter().filter_map(|(_, blocks)| *blocks).try_fold(0_u64, u64::checked_add)?;
    let open = found.iter().filter(|(_, blocks)| blocks.is_none()).count() as u64;
    let rest = 100_u64.checked_sub(given)?;
    let share = rest.checked_div(open).unwrap_or(0);
    let accesses = found.iter().map(|(accesses, _)| *accesses).try_fold(0_u64, u64::checked_add)?;
    if accesses != 100 || open == 0 && rest != 0 {
        return None;
    }
    Some(
        found
            .into_iter()
            .map(|(accesses, blocks)| DistributionZone { accesses, blocks: blocks.unwrap_or(share) })
            .collect(),
    )
}
