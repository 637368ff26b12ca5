//! Parses durations that users write.

use crate::Nanos;

/// Units and their length in seconds.
const UNITS: [(&str, f64); 9] = [
    ("", 1.0),
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3_600.0),
    ("d", 86_400.0),
];
/// Maximum duration, about 30 years; a longer one is probably a mistake.
const LONGEST_S: f64 = 1e9;

/// Parses a duration such as `90s`, `500ms`, `1.5h` or `2m30s`; a number without a unit is in seconds. `None` if it is not a
/// duration or is longer than 1e9 s.
pub(crate) fn parse_duration(text: &str) -> Option<Nanos> {
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (number, behind) = rest.split_at(number);
        let unit = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        // In a text with several parts, such as `2m30s`, each number must have a unit.
        let one_of_many = unit.is_empty() && number.len() < text.len();
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit && !one_of_many)?;
        let number: f64 = number.parse().ok().filter(|number: &f64| *number >= 0.0)?;
        seconds += number * factor;
        rest = behind;
    }
    let known = !text.is_empty() && seconds <= LONGEST_S;
    known.then_some(Nanos((seconds * 1e9).round() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_one_unit_or_several_in_a_row() {
        for (text, expected) in [
            ("10s", 10_000_000_000),
            ("2m30s", 150_000_000_000),
            ("1h2min3s4ms5us6ns", 3_723_004_005_006),
            ("1.5h", 5_400_000_000_000),
            ("0", 0),
            ("0.25", 250_000_000),
            ("2d", 172_800_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Some(Nanos(expected)), "{text}");
        }
        for text in ["", "s", "10x", "10s5", "-3s", "1e30", "nan", "inf", "1 s", "2m-30s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
