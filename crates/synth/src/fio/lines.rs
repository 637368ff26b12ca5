//! The lines of a job file: sections, their options, and values with units as fio reads them.

use emmclab_trace::{Error, ErrorClass, Op, Result};

use super::job::{FioJob, FioOperations, FioPattern, FioRate, FioSequencer, Sizes};
use super::offsets::{DistributionZone, OffsetDistribution};

/// An option as written in a job file.
pub(super) struct FioOption {
    /// Line in the job file; `None` for an option that replaces those in the file.
    pub line: Option<u64>,
    pub name: String,
    pub value: Option<String>,
    pub base: KbBase,
}

pub(super) struct FioSection {
    pub line: u64,
    pub name: String,
    pub options: Vec<FioOption>,
}

impl FioOption {
    /// The text after `=`; empty if there is none.
    pub fn text(&self) -> &str {
        self.value.as_deref().unwrap_or("")
    }

    /// Returns an error with the line, name and value of this option, and a problem.
    pub fn invalid_option(&self, problem: &str) -> Error {
        let error = Error::new(ErrorClass::Config, problem).of_field(&self.name, 0, self.text().as_bytes());
        match self.line {
            Some(line) => error.at_line(line),
            None => error,
        }
    }

    /// The value, parsed by `read`.
    /// Errors: [`ErrorClass::Config`] if `read` returns `None`; `what` describes the expected kind of value.
    pub fn read<T>(&self, read: impl Fn(&str) -> Option<T>, what: &str) -> Result<T> {
        let error = || match self.text() {
            text if text.starts_with('(') => self
                .invalid_option("the value is an expression, which emmclab does not calculate")
                .hint("write the result of the expression into the job file"),
            text if text.ends_with('%') => self
                .invalid_option("the value is a share of a file's size, which is not known here")
                .hint("give the value as a number of bytes, such as 512m"),
            text if text.ends_with('z') => self
                .invalid_option("the value is a number of zones, whose size is not known here")
                .hint("give the value as a number of bytes, such as 512m"),
            _ => self.invalid_option("the value is not valid for this option").hint(format!("give {what}")),
        };
        read(self.text()).ok_or_else(error)
    }

    pub fn bytes(&self) -> Result<u64> {
        self.read(|text| bytes(text, self.base), "a number of bytes, for example 4k or 1g")
    }

    pub fn number(&self) -> Result<u64> {
        self.read(|text| text.parse().ok(), "a whole number")
    }

    /// A whole number of at least 1.
    pub fn count(&self) -> Result<u64> {
        let value = self.number()?;
        if value == 0 { Err(self.invalid_option("the number is 0").hint("give 1 or more")) } else { Ok(value) }
    }

    pub fn percent(&self) -> Result<u64> {
        let value = self.number()?;
        if value > 100 {
            Err(self.invalid_option("the share is more than 100 percent").hint("give a share of 0 to 100"))
        } else {
            Ok(value)
        }
    }

    pub fn flag(&self) -> Result<bool> {
        flag(self.value.as_deref()).ok_or_else(|| self.invalid_option("the option must be 0 or 1").hint("give 0 or 1"))
    }

    /// A time in nanoseconds; a number without a unit is multiplied by `usual` ns.
    pub fn time(&self, usual: u64) -> Result<u64> {
        self.read(|text| time(text, usual), "a time, for example 10s or 500ms")
    }
}

/// The sections of a job file; `variable` returns the value of `${NAME}`.
/// Errors: [`ErrorClass::Syntax`] and [`ErrorClass::Config`] with the line that cannot be read.
pub(super) fn sections(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<FioSection>> {
    let mut sections: Vec<FioSection> = Vec::new();
    for (line, text) in (1_u64..).zip(text.lines()) {
        let text = without_comment(text);
        if text.is_empty() {
            continue;
        }
        if let Some(name) = text.strip_prefix('[') {
            let (name, _) = name.split_once(']').ok_or_else(|| {
                Error::new(ErrorClass::Syntax, "the name of the section has no closing bracket")
                    .of_field("section", 0, text.as_bytes())
                    .at_line(line)
                    .hint("write the name of a job in brackets, for example [job]")
            })?;
            sections.push(FioSection { line, name: name.to_owned(), options: Vec::new() });
            continue;
        }
        let option = option_of(text, line, variable)?;
        let Some(section) = sections.last_mut() else {
            return Err(option
                .invalid_option("the option stands before the first section of the job file")
                .hint("begin the job file with [global] or [NAME]"));
        };
        section.options.push(option);
    }
    set_base(&mut sections)?;
    Ok(sections)
}

/// The text of a line before its comment, without surrounding blanks.
fn without_comment(text: &str) -> &str {
    let end = text.find([';', '#']).unwrap_or(text.len());
    text[..end].trim()
}

fn option_of(text: &str, line: u64, variable: &dyn Fn(&str) -> Option<String>) -> Result<FioOption> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name.trim(), Some(value.trim())),
        None => match text.split_once(char::is_whitespace) {
            Some(("include", path)) => ("include", Some(path.trim())),
            _ => (text, None),
        },
    };
    let mut option = FioOption { line: Some(line), name: name.to_owned(), value: None, base: KbBase::Binary };
    option.value = value.map(|value| with_variables(&option.name, line, value, variable)).transpose()?;
    Ok(option)
}

/// Replaces `${NAME}` in a value by the environment variable, as fio does.
fn with_variables(option: &str, line: u64, value: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String> {
    let bad = |problem: String| Error::new(ErrorClass::Config, problem).of_field(option, 0, value.as_bytes()).at_line(line);
    let (mut out, mut rest) = (String::new(), value);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let name = after.strip_prefix('{').and_then(|after| after.split_once('}'));
        let Some((name, after)) = name else {
            return Err(bad("keywords of fio that begin with `$` are not replaced".to_owned())
                .hint("write the value of the keyword into the job file"));
        };
        let Some(value) = variable(name) else {
            return Err(bad(format!("the value contains the environment variable `{name}`, which is not set"))
                .hint(format!("set the environment variable, for example `{name}=VALUE emmclab synth --fio ...`")));
        };
        out.push_str(&value);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Sets the base of the units in all options to that of `kb_base`.
fn set_base(sections: &mut [FioSection]) -> Result<()> {
    let mut base = None;
    for option in sections.iter().flat_map(|section| &section.options).filter(|option| option.name == "kb_base") {
        let kb_base = match option.text() {
            "1024" => KbBase::Binary,
            "1000" => KbBase::Si,
            _ => return Err(option.invalid_option("kb_base must be 1024 or 1000")),
        };
        if base.is_some_and(|base| base != kb_base) {
            return Err(option.invalid_option("kb_base differs between sections").hint("give one kb_base, in [global]"));
        }
        base = Some(kb_base);
    }
    for option in sections.iter_mut().flat_map(|section| &mut section.options) {
        option.base = base.unwrap_or(KbBase::Binary);
    }
    Ok(())
}

/// The meaning of units, set by `kb_base`: with `Binary`, `k` is 1,024 bytes and `KiB` 1,000; with `Si` the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KbBase {
    /// `kb_base=1024`, fio's default.
    Binary,
    /// `kb_base=1000`, the units of the SI.
    Si,
}

/// Parses a number of bytes such as `4096`, `4k`, `1m`, `2g` or `0x1000`; `None` for other text.
pub(super) fn bytes(text: &str, base: KbBase) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, is_hex) = text.strip_prefix("0x").map_or((text.as_str(), false), |digits| (digits, true));
    let end = digits.find(|c: char| !(c.is_ascii_digit() || is_hex && c.is_ascii_hexdigit()));
    // After `0x`, the suffix `b` is read as a hexadecimal digit, as in fio.
    let (digits, unit) = digits.split_at(end.unwrap_or(digits.len()));
    let number = u64::from_str_radix(digits, if is_hex { 16 } else { 10 }).ok()?;
    let (letter, rest) = unit.split_at_checked(1).unwrap_or((unit, ""));
    let power = match letter {
        "" | "b" if rest.is_empty() => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let is_binary = match rest {
        "" | "b" => base == KbBase::Binary,
        "ib" => base == KbBase::Si,
        _ => return None,
    };
    number.checked_mul(if is_binary { 1_024_u64 } else { 1_000 }.pow(power))
}

/// Parses a time in nanoseconds: a number with the unit `d`, `h`, `m`, `s`, `ms` or `us`, or without one in units of `usual` ns.
pub(super) fn time(text: &str, usual: u64) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(at);
    let unit = match unit {
        "" => usual,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Parses a flag: `1`, `0`, or no value, which means true; `None` for other text.
pub(super) fn flag(text: Option<&str>) -> Option<bool> {
    match text.map(str::trim) {
        None | Some("1") => Some(true),
        Some("0") => Some(false),
        Some(_) => None,
    }
}

/// Parses the value of `rw`: the operations, and after a colon the requests per random offset or, for sequential patterns, the bytes to
/// skip.
pub(super) fn pattern(option: &FioOption) -> Result<FioPattern> {
    let value = option.text();
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
            return Err(option.invalid_option("unknown I/O pattern").hint(
                "choose one of the patterns read, write, trim, rw and trimwrite, or their random variants such as randread",
            ));
        }
    };
    let bad = || {
        option.invalid_option("the modifier is invalid: it is a number of requests after random patterns, of bytes after others")
    };
    let (run, hole) = match modifier {
        None => (1, 0),
        Some(text) if random => (text.parse().ok().filter(|run| *run > 0).ok_or_else(bad)?, 0),
        Some(text) => {
            let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
            let hole = bytes(digits, option.base).and_then(|bytes| i64::try_from(bytes).ok()).ok_or_else(bad)?;
            (1, sign * hole)
        }
    };
    Ok(FioPattern { ops, random, run, hole })
}

/// Parses the value of `rw_sequencer`.
pub(super) fn sequencer(option: &FioOption) -> Result<FioSequencer> {
    match option.text() {
        "sequential" => Ok(FioSequencer::Sequential),
        "identical" => Ok(FioSequencer::Identical),
        _ => Err(option.invalid_option("the option must be sequential or identical")),
    }
}

/// Parses values for reads, writes and trims, separated by commas. Missing values at the end equal the last given value; an empty value is
/// `None`.
fn of_each<T: Clone>(option: &FioOption, read: impl Fn(&str) -> Option<T>, what: &str) -> Result<[Option<T>; 3]> {
    let mut last = None;
    let mut parts = option.text().split(',');
    let mut values = [None, None, None];
    for value in &mut values {
        match parts.next().map(str::trim) {
            Some("") => {}
            Some(part) => {
                last = Some(read(part).ok_or_else(|| {
                    option.invalid_option("the value is not valid for this option").hint(format!("give {what}"))
                })?);
                value.clone_from(&last);
            }
            None => value.clone_from(&last),
        }
    }
    if parts.next().is_some() {
        return Err(option.invalid_option("there are more than three parts: of reads, writes and trims"));
    }
    Ok(values)
}

/// Sets the sizes of reads, writes and trims, parsed by `read`.
pub(super) fn set_sizes(job: &mut FioJob, option: &FioOption, read: fn(&str, KbBase) -> Option<Sizes>) -> Result<()> {
    let whole = |part: &str| {
        read(part, option.base).filter(|sizes| {
            !sizes.is_empty() && sizes.iter().all(|(bytes, _)| *bytes > 0) && sizes.iter().any(|(_, weight)| *weight > 0)
        })
    };
    let what = "a request size, for example bs=4k, bsrange=4k-64k or bssplit=4k/80:64k/20";
    for (sizes, value) in job.sizes.iter_mut().zip(of_each(option, whole, what)?) {
        if let Some(value) = value {
            *sizes = value;
        }
    }
    Ok(())
}

/// Parses the value of `bs`, which is one size.
pub(super) fn one_size(text: &str, base: KbBase) -> Option<Sizes> {
    Some(vec![(bytes(text, base)?, 100)])
}

/// Parses the value of `bssplit`, such as `4k/10:64k/90`. Sizes without a share divide the remaining percentage equally.
pub(super) fn split(text: &str, base: KbBase) -> Option<Sizes> {
    let mut sizes = Vec::new();
    for part in text.split(':') {
        let (size, share) = part.split_once('/').unwrap_or((part, ""));
        sizes.push((bytes(size, base)?, if share.is_empty() { None } else { Some(share.parse::<u64>().ok()?) }));
    }
    let total: u64 = sizes.iter().filter_map(|(_, share)| *share).try_fold(0_u64, u64::checked_add)?;
    let open = sizes.iter().filter(|(_, share)| share.is_none()).count() as u64;
    if total > 100 || open == 0 && total != 100 {
        return None;
    }
    // The remaining percentage is divided equally among the sizes without a share. To keep whole numbers, all shares are multiplied by the
    // number of these sizes.
    let scale = open.max(1);
    let share_of = |share: Option<u64>| share.map_or(100 - total, |share| share * scale);
    Some(sizes.into_iter().map(|(size, share)| (size, share_of(share))).collect())
}

/// Parses the value of `bsrange`, such as `1k-4k`: each multiple of the smallest size up to the largest, with the same share.
pub(super) fn range(text: &str, base: KbBase) -> Option<Sizes> {
    const MOST: u64 = 1 << 16;
    let (least, most) = text.split_once('-')?;
    let (least, most) = (bytes(least, base)?, bytes(most, base)?);
    let count = most.checked_div(least)?;
    (least <= most && count <= MOST).then(|| (1..=count).map(|times| (least * times, 1)).collect())
}

/// Parses the values of `rate` and `rate_iops`: the limits of reads, writes and trims.
pub(super) fn rates(option: &FioOption, is_bytes: bool) -> Result<[Option<FioRate>; 3]> {
    let read = |part: &str| {
        if is_bytes {
            bytes(part, option.base).map(FioRate::BytesPerSecond)
        } else {
            part.parse().ok().map(FioRate::RequestsPerSecond)
        }
    };
    let what = if is_bytes { "a number of bytes per second, for example 10m" } else { "a number of requests per second" };
    // A rate of 0 means that there is no limit.
    Ok(of_each(option, read, what)?
        .map(|rate| rate.filter(|rate| !matches!(rate, FioRate::BytesPerSecond(0) | FioRate::RequestsPerSecond(0)))))
}

/// Parses the value of `random_distribution`.
pub(super) fn distribution(option: &FioOption) -> Result<OffsetDistribution> {
    let value = option.text();
    let (name, number) = value.split_once(':').unwrap_or((value, ""));
    let parameter = |usual: f64| if number.is_empty() { Some(usual) } else { number.parse::<f64>().ok() };
    let finite = |value: Option<f64>, least: f64, most: f64| value.filter(|value| *value > least && *value < most);
    match name {
        "random" => Ok(OffsetDistribution::Even),
        "zipf" => finite(parameter(1.1), 0.0, 10.0)
            .map(OffsetDistribution::Zipf)
            .ok_or_else(|| option.invalid_option("theta must be between 0 and 10")),
        "pareto" => finite(parameter(0.2), 0.0, 1.0)
            .map(OffsetDistribution::Pareto)
            .ok_or_else(|| option.invalid_option("the share must be between 0 and 1")),
        "normal" => finite(parameter(0.0), -1e-9, 100.0)
            .map(OffsetDistribution::Normal)
            .ok_or_else(|| option.invalid_option("the deviation of the distribution must be between 0 and 100 percent")),
        "zoned" => zones(number).map(OffsetDistribution::Zoned).ok_or_else(|| {
            option.invalid_option(
                "zones must be written as ACCESSES/BLOCKS that add up to 100 percent of each, for example zoned:60/10:30/20:10/70",
            )
        }),
        _ => Err(option
            .invalid_option("this distribution of offsets is not supported")
            .hint("choose one of the distributions random, zipf, pareto, normal and zoned")),
    }
}

/// Parses zones such as `50/5:30/15:20/80`. Zones without a percentage of blocks divide the remaining blocks equally. Separate zones for
/// each operation (with commas) are not supported.
fn zones(text: &str) -> Option<Vec<DistributionZone>> {
    let mut zones = Vec::new();
    for part in text.split(':') {
        let (accesses, blocks) = part.split_once('/').unwrap_or((part, ""));
        let blocks = if blocks.is_empty() { None } else { Some(blocks.parse::<u64>().ok()?) };
        zones.push((accesses.parse::<u64>().ok()?, blocks));
    }
    let total = zones.iter().filter_map(|(_, blocks)| *blocks).try_fold(0_u64, u64::checked_add)?;
    let open = zones.iter().filter(|(_, blocks)| blocks.is_none()).count() as u64;
    let rest = 100_u64.checked_sub(total)?;
    let share = rest.checked_div(open).unwrap_or(0);
    let accesses = zones.iter().map(|(accesses, _)| *accesses).try_fold(0_u64, u64::checked_add)?;
    if accesses != 100 || open == 0 && rest != 0 {
        return None;
    }
    Some(zones.into_iter().map(|(accesses, blocks)| DistributionZone { accesses, blocks: blocks.unwrap_or(share) }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_fio() {
        for (text, value) in [
            ("4k", 4096),
            ("4KB", 4096),
            ("4kib", 4000),
            ("1m", 1 << 20),
            ("1MiB", 1_000_000),
            ("0x10", 16),
            ("0x10k", 16 << 10),
            ("2g", 2 << 30),
            ("512b", 512),
        ] {
            assert_eq!(bytes(text, KbBase::Binary), Some(value), "{text}");
        }
        assert_eq!([bytes("4k", KbBase::Si), bytes("4KiB", KbBase::Si)], [Some(4000), Some(4096)]);
        for text in ["", "k", "1.5m", "-1", "50%", "99999999999p", "128z", "4kk", "4i", "4bb"] {
            assert_eq!(bytes(text, KbBase::Binary), None, "{text}");
        }
        assert_eq!(
            [time("5", 1_000), time("5ms", 1_000), time("2m", 1), time("1h", 1)],
            [Some(5_000), Some(5_000_000), Some(120_000_000_000), Some(3_600_000_000_000)]
        );
        assert_eq!([time("x", 1), time("5w", 1), time("", 1), time("1-5", 1)], [None; 4]);
        assert_eq!([flag(None), flag(Some("0")), flag(Some("yes"))], [Some(true), Some(false), None]);
    }
}
