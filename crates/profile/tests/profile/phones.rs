//! The eight Pixel traces, which have only arrival times, compared with figures that were counted without this crate.

use emmclab_profile::report::FindingVerdict;

/// The counts of each trace.
const EXPECTED: &str = "
trace                  requests  data_kb max_kb writes written_kb sequential   hits unique written page_writes duration_s
cod_exec                 223998  9984116  43008  22363     881100      96830  83391 1339175 165090  220275 575913.903
cod_precond               72878  9839940    512  72878    9839940      63907   2826 2443204 2443204 2459985 72995.227
genshin_impact_exec       91317  4091020  12856   9620     242412      24785  22318  722916  49293   60603 6081.278
genshin_impact_precond   141152 26677756    512 141152   26677756     112493  12170 6461226 6461226 6669439 243028.884
pubg_exec                 67757  2633284   7240  17020    1355836       9947   9394  525367 298140  338959 527750.21
pubg_precond              51110  3357232    512  51110    3357232      19885  14816  816588 816588  839308 594.798
telegram_exec            251879  6154688   8192 227785    4676104      30038 132131 1021153 976231 1169026 7474.115
telegram_precond           5320   143540    512   5320     143540       1858    768   31820  31820   35885 1034.856
";

#[test]
fn pixel_traces_give_the_counts_of_a_plain_script() {
    for row in EXPECTED.trim().lines().skip(1) {
        let (name, figures) = row.split_once(' ').unwrap();
        let figures: Vec<f64> = figures.split_whitespace().map(|figure| figure.parse().unwrap()).collect();
        let Some(path) = crate::common::real_trace(&format!("pixel6a/{name}.csv.gz")) else { return };
        let report = crate::common::report_of_file(&path);
        let (tables, locality, set) = (&report.tables, &report.locality, report.working_set.unwrap());
        let writes = report.by_operation.iter().find(|row| row.op == "write").unwrap();
        let counted = [
            tables.requests as f64,
            tables.data_size_kb,
            tables.max_size_kb.unwrap(),
            writes.requests as f64,
            writes.data_kb,
            locality.sequential_requests as f64,
            locality.address_hits as f64,
            set.unique_pages as f64,
            set.written_pages as f64,
        ];
        let [expected @ .., page_writes, duration_s] = &figures[..] else { panic!("{row}") };
        assert_eq!((&counted[..], report.ledger.skipped), (expected, 0), "{name}");
        assert!((tables.duration_s - duration_s).abs() < 0.001, "{name}: {}", tables.duration_s);
        let overwrite_pct = 100.0 * (page_writes - set.written_pages as f64) / page_writes;
        assert_eq!(locality.overwrite_pct, Some(overwrite_pct), "{name}");
        assert_eq!((tables.mean_response_ms, tables.no_wait_pct), (None, None), "{name}");
        let waiting = report.findings.iter().find(|finding| finding.id == "characteristic-3").unwrap();
        assert_eq!(waiting.shown, FindingVerdict::Unknown, "{name}");
        assert!(report.figures.process_share.len() <= 64, "{name}");
    }
}
