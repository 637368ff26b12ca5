//! Numbers of a job file with their units, as fio reads them.

/// The meaning of units, set by `kb_base`: `k` is 1,024 bytes and `KiB` 1,000, or the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KbBase {
    /// `kb_base=1024`, fio's default.
    Binary,
    /// `kb_base=1000`, the units of the SI.
    Si,
}

/// A number of bytes: `4096`, `4k`, `1m`, `2g`, `0x1000`; `None` for anything else.
pub(super) fn bytes(text: &str, base: KbBase) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let (digits, is_hex) = text.strip_prefix("0x").map_or((text.as_str(), false), |digits| (digits, true));
    let end = digits.find(|c: char| !(c.is_ascii_digit() || is_hex && c.is_ascii_hexdigit()));
    // After `0x`, the suffix `b` is read as a hexadecimal digit, as in fio.
    let (digits, unit) = digits.split_at(end.unwrap_or(digits.len()));
    let number = u64::from_str_radix(digits, if is_hex { 16 } else { 10 }).ok()?;
    let (letter, rest) = unit.split_at(unit.len().min(1));
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

/// A time in nanoseconds: a number of units of `usual` ns, or with `d`, `h`, `m`, `s`, `ms`, `us` after it.
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

/// Reads a flag: `1`, `0`, or no value, which means true. `None` for anything else.
pub(super) fn flag(text: Option<&str>) -> Option<bool> {
    match text.map(str::trim) {
        None | Some("1") => Some(true),
        Some("0") => Some(false),
        Some(_) => None,
    }
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
