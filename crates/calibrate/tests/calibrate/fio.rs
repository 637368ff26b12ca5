//! Results of fio whose latencies are not those of single requests to a device are rejected with the cause.

use crate::options;
use emmclab_calibrate::{calibrate, samples_of_fio};
use serde_json::{Value, json};

/// A job of 500 requests of 4 KB, each of 100 us, one at a time.
fn job() -> Value {
    let options = json!({"rw": "randread", "bs": "4k", "direct": "1", "iodepth": "1"});
    json!({
        "jobname": "r", "groupid": 0, "error": 0, "job options": options,
        "read": {
            "total_ios": 500, "io_bytes": 500 * 4096, "runtime": 50,
            "lat_ns": {"mean": 100e3}, "clat_ns": {"mean": 99e3, "percentile": {"50.000000": 99_000}},
        },
        "iodepth_level": {"1": 100.0, "2": 0.0, "8": 0.0, ">=64": 0.0},
    })
}

fn changed(changes: &[(&str, Value)]) -> Value {
    let mut job = job();
    for (path, value) in changes {
        match path.split_once('/') {
            Some((group, key)) => job[group][key] = value.clone(),
            None => job[*path] = value.clone(),
        }
    }
    job
}

fn result(version: &str, global: &Value, jobs: &[Value]) -> String {
    json!({"fio version": version, "global options": global, "jobs": jobs}).to_string()
}

fn refused(text: &str, parts: &[&str]) {
    let error = samples_of_fio(text).unwrap_err();
    assert!(error.hint_text().is_some(), "{error} has a hint");
    for part in parts {
        assert!(error.to_string().contains(part), "{error} names {part}");
    }
}

#[test]
fn the_depth_that_fio_counted_decides_and_not_the_one_asked_for() {
    let read = |changes: &[(&str, Value)]| samples_of_fio(&result("fio-3.33", &json!({}), &[changed(changes)])).map(|_| ());
    read(&[]).unwrap();
    read(&[("job options/iodepth", json!("8")), ("job options/ioengine", json!("psync"))]).unwrap();
    for (changes, parts) in [
        (&[("iodepth_level", json!({"1": 0.2, "8": 99.8}))][..], &["ran 8 requests at once", "iodepth_level"][..]),
        (&[("job options", json!({})), ("iodepth_level", json!({">=64": 100.0}))], &["ran 64 requests"]),
        (&[("iodepth_level", Value::Null), ("job options/iodepth", json!("32"))], &["ran 32 requests", "iodepth"]),
        (&[("job options/numjobs", json!("4"))], &["ran 4 requests at once", "numjobs"]),
        (&[("job options", json!({})), ("read/lat_ns", json!({"mean": 400e3}))], &["ran 3.9 requests at once on average"]),
    ] {
        refused(&result("fio-3.33", &json!({}), &[changed(changes)]), parts);
    }
}

#[test]
fn jobs_of_one_group_run_together_unless_they_wait() {
    let pair = |other: &[(&str, Value)]| result("fio-3.33", &json!({}), &[job(), changed(other)]);
    refused(&pair(&[("jobname", json!("w"))]), &["job `r` ran 2 requests at once"]);
    refused(&pair(&[("groupid", json!(1)), ("job options/new_group", json!("1"))]), &["2 requests at once"]);
    refused(&result("fio-3.33", &json!({"numjobs": "3"}), &[job()]), &["ran 3 requests at once"]);
    let deep = changed(&[("iodepth_level", json!({"4": 100.0})), ("job options/numjobs", json!("2"))]);
    refused(&result("fio-3.33", &json!({}), &[deep]), &["ran 4 requests at once in each of 2 jobs"]);
    for waits in [
        &[("groupid", json!(1)), ("job options/stonewall", json!(""))][..],
        &[("groupid", json!(1)), ("job options", json!({}))],
        &[("job options/wait_for", json!("r"))],
        &[("read", json!({"total_ios": 0}))],
    ] {
        samples_of_fio(&pair(waits)).unwrap();
    }
}

#[test]
fn the_page_cache_is_refused_and_an_unknown_one_is_a_warning() {
    for (option, value) in [("direct", "0"), ("ioengine", "mmap"), ("ioengine", "null")] {
        let text =
            result("fio-3.33", &json!({"ioengine": "psync"}), &[changed(&[(&format!("job options/{option}"), json!(value))])]);
        refused(&text, &["not those of a device", option, value]);
    }
    let buffered = changed(&[("job options", json!({"buffered": "1"}))]);
    refused(&result("fio-3.33", &json!({}), &[buffered]), &["page cache", "buffered"]);
    let sizes = |direct: &str| -> Vec<Value> {
        (0..4_u64)
            .map(|step| {
                let (kb, ns) = (4 << step, 100e3 + 40e3 * f64::from(1 << step));
                let side = json!({
                    "total_ios": 500, "io_bytes": 500 * kb * 1024, "clat_ns": {"mean": ns, "percentile": {"50.000000": ns}},
                });
                json!({"groupid": step, "job options": {"bs": format!("{kb}k"), direct: "1"}, "read": side, "write": side})
            })
            .collect()
    };
    let warned = |direct| {
        let found = calibrate(&samples_of_fio(&result("fio-3.33", &json!({}), &sizes(direct))).unwrap(), &options()).unwrap();
        found.warnings.iter().any(|warning| warning.contains("page cache"))
    };
    assert!(warned("none") && !warned("direct"));
}

#[test]
fn requests_of_several_sizes_are_refused() {
    for (changes, field) in [
        (&[("job options", json!({"bssplit": "4k/50:64k/50"}))][..], "bssplit"),
        (&[("job options", json!({"bsrange": "4k-64k"}))], "bsrange"),
        (&[("job options", json!({})), ("read/io_bytes", json!(500 * 31_745 + 1))], "io_bytes"),
        (&[("read/io_bytes", json!(500 * 32_768))], "bs=4096"),
        (&[("mixed", json!({"total_ios": 5})), ("read", Value::Null)], "mixed"),
    ] {
        refused(&result("fio-3.33", &json!({}), &[changed(changes)]), &[field]);
    }
    // A size for each direction, one size for both as a range, and a file that ends inside its last request.
    for changes in [
        &[("job options", json!({"bs": "4k,64k"}))][..],
        &[("job options", json!({"bsrange": "4k-4k"}))],
        &[("read/io_bytes", json!(500 * 4096 - 512))],
    ] {
        samples_of_fio(&result("fio-3.33", &json!({}), &[changed(changes)])).unwrap();
    }
}

#[test]
fn the_units_of_fio_2_are_named() {
    refused(&result("fio-2.16", &json!({}), &[job()]), &["fio-2.16", "microseconds"]);
    let old = changed(&[("read/clat_ns", Value::Null), ("read/clat", json!({"mean": 99.0}))]);
    refused(&json!({"jobs": [old]}).to_string(), &["fio 2 or older"]);
}

#[test]
fn a_job_with_an_error_is_refused_by_name() {
    let text = |field: &str| result("fio-3.33", &json!({}), &[changed(&[(field, json!(5)), ("first_error", json!(5))])]);
    refused(&text("error"), &["job `r` ended with error 5: Input/output error"]);
    refused(&text("total_err"), &["job `r` had 5 failed requests, the first with error 5"]);
}
