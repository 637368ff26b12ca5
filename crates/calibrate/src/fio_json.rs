//! Finds the results of fio in a text: JSON objects, with output of fio and other programs around and between them.
//!
//! fio prints notes and errors to the file of its JSON, and with `--output-format=json,normal` its usual text after it. With
//! `--status-interval` it prints several objects; a later one contains all of an earlier one of the same jobs. In fio's JSON no line
//! begins with a letter, so lines that do are notes, also within an object.

use emmclab_trace::{Error, ErrorClass, Result};
use serde_json::Value;

/// The results in a text. If there are several of the same jobs, only the last one is returned.
///
/// # Errors
/// If there is none, or one is incomplete.
pub(crate) fn results(text: &str) -> Result<Vec<Value>> {
    let json = text.lines().filter(|line| !is_note(line)).collect::<Vec<_>>().join("\n");
    let mut found: Vec<Value> = Vec::new();
    let (mut failure, mut other) = (None, false);
    let mut at = 0;
    while let Some(begin) = json[at..].find('{').map(|begin| at + begin) {
        at = begin + 1;
        if !json[at..].trim_start().starts_with(['"', '}']) {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(&json[begin..]).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => {
                at = begin + values.byte_offset();
                if value["jobs"].is_array() || value["fio version"].is_string() {
                    found.retain(|before| jobs(before) != jobs(&value));
                    found.push(value);
                } else {
                    other = true;
                }
            }
            // Objects within an incomplete one are not tried.
            Some(Err(error)) if error.is_eof() => {
                failure = Some(error);
                break;
            }
            Some(Err(error)) => failure = failure.or(Some(error)),
            None => break,
        }
    }
    match failure {
        Some(error) if found.is_empty() || error.is_eof() => {
            let hint = if error.is_eof() {
                "the file ends within the results: run fio again, or copy the file again"
            } else {
                "run fio with --output-format=json"
            };
            Err(Error::new(ErrorClass::Syntax, format!("is not JSON: {error}")).hint(hint))
        }
        _ if found.is_empty() && other => Err(Error::new(ErrorClass::Syntax, "has no list of jobs")
            .of_field("jobs", 0, b"")
            .hint("run fio with --output-format=json")),
        _ if found.is_empty() => {
            Err(Error::new(ErrorClass::Syntax, "is not JSON of fio").hint("run fio with --output-format=json"))
        }
        _ => Ok(found),
    }
}

/// Whether a line is no part of JSON.
fn is_note(line: &str) -> bool {
    let words = ["true", "false", "null"];
    line.starts_with(|c: char| c.is_ascii_alphabetic()) && !words.iter().any(|word| line.starts_with(word))
}

/// Names and options of the jobs of a result.
fn jobs(result: &Value) -> Vec<(&Value, &Value)> {
    let entries = result["jobs"].as_array().into_iter().flatten();
    entries.map(|entry| (&entry["jobname"], &entry["job options"])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = "{\n  \"fio version\" : \"fio-3.33\",\n  \"jobs\" : [\n    {\n      \"jobname\" : \"r\",\n      \"error\" : 0\n    }\n  ]\n}\n";

    #[test]
    fn what_stands_around_and_within_the_results_is_passed_over() {
        let plain = results(RESULT).unwrap();
        let normal = "\nr: (groupid=0, jobs=1): err= 0: pid=1: Wed\n  read: IOPS=11.7k, BW=45.7MiB/s {x}\n";
        for text in [
            format!("fio: note\nnote: depth {{seen in fio}} capped\n{RESULT}"),
            format!("{RESULT}\nfio: file hash not empty on exit\n"),
            format!("{RESULT}{normal}"),
            RESULT.replace("\n  \"jobs\"", "\nfio: io_u error on file f: Input/output error\n  \"jobs\""),
            RESULT.replace('\n', "\r\n"),
            RESULT.replace('\n', ""),
        ] {
            assert_eq!(results(&text).unwrap(), plain, "{text}");
        }
    }

    #[test]
    fn of_the_same_jobs_the_last_result_counts_and_others_are_added() {
        let later = RESULT.replace("\"error\" : 0", "\"error\" : 0, \"elapsed\" : 2");
        let found = results(&format!("{RESULT}{later}")).unwrap();
        assert_eq!((found.len(), found[0]["jobs"][0]["elapsed"].as_u64()), (1, Some(2)));
        let other = RESULT.replace("\"r\"", "\"w\"");
        assert_eq!(results(&format!("{RESULT}noise\n{other}")).unwrap().len(), 2);
    }

    #[test]
    fn a_text_without_results_or_with_half_of_them_is_refused() {
        assert!(results("fio: no such option\n").unwrap_err().to_string().contains("is not JSON of fio"));
        assert!(results("{\"a\": 1}\n").unwrap_err().to_string().contains("jobs"));
        assert!(results("{}").is_err() && results("{\"a\" 1}\n").is_err());
        for length in 20..RESULT.len() - 2 {
            let error = results(&RESULT[..length]).unwrap_err();
            assert!(error.hint_text().unwrap().contains("ends within"), "{length}: {error}");
        }
        assert!(results(&format!("{RESULT}{}", &RESULT[..90])).is_err());
    }
}
