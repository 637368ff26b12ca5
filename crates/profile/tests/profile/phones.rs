//! The eight Pixel traces, which have arrival times only, against figures counted apart from this crate.

use emmclab_profile::report::FindingVerdict;

/// Counts of one trace.
struct Expected {
    name: &'static str,
    requests: u64,
    data_kb: f64,
    max_kb: f64,
    writes: u64,
    written_kb: f64,
    sequential: u64,
    hits: u64,
    unique_pages: u64,
    written_pages: u64,
    duration_s: f64,
    page_writes: u64,
}

#[test]
fn pixel_traces_give_the_counts_of_a_plain_script() {
    for expected in EXPECTED {
        let path = format!("pixel6a/{}.csv.gz", expected.name);
        let Some(path) = crate::common::real_trace(&path) else { return };
        let report = crate::common::report_of_file(&path);
        let (tables, name) = (&report.tables, expected.name);
        assert_eq!((tables.requests, tables.data_size_kb), (expected.requests, expected.data_kb), "{name}");
        assert_eq!(tables.max_size_kb, Some(expected.max_kb), "{name}");
        let writes = report.by_operation.iter().find(|row| row.op == "write").unwrap();
        assert_eq!((writes.requests, writes.data_kb), (expected.writes, expected.written_kb), "{name}");
        let locality = &report.locality;
        assert_eq!(
            (locality.sequential_requests, locality.address_hits),
            (expected.sequential, expected.hits),
            "{name}"
        );
        let set = report.working_set.unwrap();
        assert_eq!((set.unique_pages, set.written_pages), (expected.unique_pages, expected.written_pages), "{name}");
        assert!((tables.duration_s - expected.duration_s).abs() < 0.001, "{name}: {}", tables.duration_s);
        let overwrites = (expected.page_writes - expected.written_pages) as f64;
        let overwrite_pct = 100.0 * overwrites / expected.page_writes as f64;
        assert_eq!(locality.overwrite_pct, Some(overwrite_pct), "{name}");
        assert_eq!((tables.mean_response_ms, tables.no_wait_pct), (None, None), "{name}");
        let waiting = report.findings.iter().find(|finding| finding.id == "characteristic-3").unwrap();
        assert_eq!(waiting.shown, FindingVerdict::Unknown, "{name}");
        assert!(report.figures.process_share.len() <= 64, "{name}");
    }
}

const EXPECTED: [Expected; 8] = [
    Expected {
        name: "cod_exec",
        requests: 223_998,
        data_kb: 9_984_116.0,
        max_kb: 43_008.0,
        writes: 22_363,
        written_kb: 881_100.0,
        sequential: 96_830,
        hits: 83_391,
        unique_pages: 1_339_175,
        written_pages: 165_090,
        duration_s: 575_913.903,
        page_writes: 220_275,
    },
    Expected {
        name: "cod_precond",
        requests: 72_878,
        data_kb: 9_839_940.0,
        max_kb: 512.0,
        writes: 72_878,
        written_kb: 9_839_940.0,
        sequential: 63_907,
        hits: 2_826,
        unique_pages: 2_443_204,
        written_pages: 2_443_204,
        duration_s: 72_995.227,
        page_writes: 2_459_985,
    },
    Expected {
        name: "genshin_impact_exec",
        requests: 91_317,
        data_kb: 4_091_020.0,
        max_kb: 12_856.0,
        writes: 9_620,
        written_kb: 242_412.0,
        sequential: 24_785,
        hits: 22_318,
        unique_pages: 722_916,
        written_pages: 49_293,
        duration_s: 6_081.278,
        page_writes: 60_603,
    },
    Expected {
        name: "genshin_impact_precond",
        requests: 141_152,
        data_kb: 26_677_756.0,
        max_kb: 512.0,
        writes: 141_152,
        written_kb: 26_677_756.0,
        sequential: 112_493,
        hits: 12_170,
        unique_pages: 6_461_226,
        written_pages: 6_461_226,
        duration_s: 243_028.884,
        page_writes: 6_669_439,
    },
    Expected {
        name: "pubg_exec",
        requests: 67_757,
        data_kb: 2_633_284.0,
        max_kb: 7_240.0,
        writes: 17_020,
        written_kb: 1_355_836.0,
        sequential: 9_947,
        hits: 9_394,
        unique_pages: 525_367,
        written_pages: 298_140,
        duration_s: 527_750.21,
        page_writes: 338_959,
    },
    Expected {
        name: "pubg_precond",
        requests: 51_110,
        data_kb: 3_357_232.0,
        max_kb: 512.0,
        writes: 51_110,
        written_kb: 3_357_232.0,
        sequential: 19_885,
        hits: 14_816,
        unique_pages: 816_588,
        written_pages: 816_588,
        duration_s: 594.798,
        page_writes: 839_308,
    },
    Expected {
        name: "telegram_exec",
        requests: 251_879,
        data_kb: 6_154_688.0,
        max_kb: 8_192.0,
        writes: 227_785,
        written_kb: 4_676_104.0,
        sequential: 30_038,
        hits: 132_131,
        unique_pages: 1_021_153,
        written_pages: 976_231,
        duration_s: 7_474.115,
        page_writes: 1_169_026,
    },
    Expected {
        name: "telegram_precond",
        requests: 5_320,
        data_kb: 143_540.0,
        max_kb: 512.0,
        writes: 5_320,
        written_kb: 143_540.0,
        sequential: 1_858,
        hits: 768,
        unique_pages: 31_820,
        written_pages: 31_820,
        duration_s: 1_034.856,
        page_writes: 35_885,
    },
];
