//! Health reports of vendors: each format is decoded from bytes at the places that its source names, and bad dumps are refused.

use std::path::Path;

use emmclab_registers::{EraseCounts, HEALTH_FORMATS, HealthReport, RegisterSource, read_health};
use proptest::prelude::*;

use crate::support::{hex_forms, register};

fn decode(bytes: &[u8], format: Option<&str>) -> emmclab_base::Result<HealthReport> {
    read_health(&RegisterSource { path: Path::new("report"), bytes }, format)
}

/// A report with these bytes, and 0 elsewhere.
fn report(parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    for (at, part) in parts {
        bytes[*at..at + part.len()].copy_from_slice(part);
    }
    bytes
}

fn counts(area: &'static str, least: impl Into<Option<u64>>, mean: u64, most: impl Into<Option<u64>>) -> EraseCounts {
    EraseCounts { area, least: least.into(), mean: Some(mean), most: most.into() }
}

type Case = (&'static str, Vec<u8>, Vec<EraseCounts>, [Option<u64>; 3]);

/// Bytes of a report, and its erases, spare blocks, and bad blocks from the factory and of use.
fn cases() -> Vec<Case> {
    vec![
        (
            "samsung-movinand",
            report(&[
                (16, &[2]),
                (20, &[5, 0, 0, 0, 1, 0, 0, 0, 40]),
                (32, &[6, 0, 0, 0, 2, 0, 0, 0, 50]),
                (68, &[0xe8, 3, 0, 0, 1, 0, 0, 0, 200]),
                (120, &[0x10, 0x27, 0, 0, 9, 0, 0, 0, 0x88, 0x13]),
                (132, &[90, 0, 0, 0, 10, 0, 0, 0, 50]),
            ]),
            vec![counts("all", 1, 200, 1000), counts("SLC", 9, 5000, 10_000), counts("MLC/TLC", 10, 50, 90)],
            [Some(90), Some(11), Some(3)],
        ),
        (
            "hynix-v1",
            report(&[(270, &[7, 1, 3, 0, 0x2c, 1, 2, 0, 100]), (296, &[33])]),
            vec![counts("all", 2, 100, 300)],
            [Some(33), Some(263), Some(3)],
        ),
        // The answer of a Toshiba eMMC that its source quotes.
        (
            "toshiba-erase",
            report(&[(0, &[7, 0, 0, 0xa0, 0, 0, 1, 0xf8, 0, 0, 1, 0x9d])]),
            vec![counts("MLC/TLC", None, 413, 504), counts("SLC", None, 0, 0)],
            [None; 3],
        ),
        (
            "micron-emmc",
            report(&[
                (0, &[0, 20, 0, 1, 0, 60]),
                (16, &[0, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0, 90]),
                (32, &[0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 2]),
            ]),
            vec![counts("MLC/TLC", 5, 90, 256), counts("SLC", 1, 2, 3)],
            [Some(60), Some(20), Some(1)],
        ),
        (
            "adata-sd",
            report(&[
                (0, &[9, 0x41]),
                (24, &[0, 30, 2]),
                (30, &[1, 0]),
                (32, &[0, 0, 0, 1, 0, 0, 0, 9]),
                (44, &[0, 0, 0, 4]),
                (68, &[0x0b, 0xb8]),
            ]),
            vec![counts("MLC/TLC", 1, 4, 9), counts("system", 0, 0, 0)],
            [Some(256), Some(30), Some(2)],
        ),
        // The figures that sdmon printed for an Apacer card.
        (
            "two-step-sd",
            report(&[(16, &[0, 46]), (32, &[70, 2]), (80, &[0, 0, 5, 0x64]), (98, &[0, 1, 0, 1, 0, 5])]),
            vec![counts("all", 1, 1, 5)],
            [Some(46), Some(72), Some(0)],
        ),
    ]
}

#[test]
fn each_report_is_decoded_in_every_form_of_a_dump() {
    for (format, bytes, erases, [spare, factory, runtime]) in cases() {
        for (form, content) in hex_forms(&bytes) {
            let read = decode(&content, Some(format)).unwrap_or_else(|error| panic!("{format}, {form}: {error}"));
            assert_eq!(read.erases, erases, "{format}, {form}");
            assert_eq!(
                [read.spare_blocks, read.factory_bad_blocks, read.runtime_bad_blocks],
                [spare, factory, runtime],
                "{format}"
            );
            assert!(read.fields.iter().all(|field| !field.from.is_empty() && field.place.starts_with('[')));
        }
    }
    let (_, adata, ..) = cases().swap_remove(4);
    let read = decode(&adata, None).expect("the signature names the format");
    assert_eq!((read.format, read.rated_erases), ("adata-sd", Some(3000)));
}

#[test]
fn a_format_is_read_by_a_reading_command_or_says_why_not() {
    for format in HEALTH_FORMATS {
        assert_eq!(format.command.is_none(), !format.unreadable.is_empty(), "{}", format.name);
        // CMD8 reads EXT_CSD; bit 0 of the argument of CMD56 means that the device sends.
        let reads = format.command.is_none_or(|command| command.opcode == 8 || command.opcode == 56 && command.argument & 1 == 1);
        assert!(reads && !format.source.is_empty() && !format.parts.is_empty(), "{}", format.name);
    }
}

#[test]
fn a_bad_report_is_refused_with_its_reason() {
    let movinand = cases().swap_remove(0).1;
    let mut wrong_order = movinand.clone();
    wrong_order[76..80].copy_from_slice(&[0xff, 0xff, 0, 0]);
    let mut impossible = movinand.clone();
    impossible[68..72].fill(0xff);
    let refused: &[(&[u8], Option<&str>, &str)] = &[
        (&movinand[..511], Some("samsung-movinand"), "511 bytes"),
        (&[movinand.clone(), vec![0]].concat(), Some("samsung-movinand"), "513 bytes"),
        (b"", None, "0 bytes"),
        (b"no dump", None, "0 bytes"),
        (&[0xff; 512], Some("hynix-v1"), "0xff"),
        (&[0; 512], None, "0x00"),
        (&register(), Some("hynix-v1"), "EXT_CSD"),
        (&movinand, None, "no signature"),
        (&movinand, Some("toshiba-erase"), "begins with 00 00 00"),
        (&movinand, Some("kioxia"), "no format `kioxia`"),
        (&wrong_order, Some("samsung-movinand"), "not in this order"),
        (&cases().swap_remove(2).1, Some("hynix-v1"), "every known field is 0"),
        (&impossible, Some("samsung-movinand"), "most erases, all"),
    ];
    for (bytes, format, part) in refused {
        let error = decode(bytes, *format).expect_err(part);
        assert!(error.to_string().contains(part) && error.hint_text().is_some(), "{part}: {error}");
        assert!(error.to_string().starts_with("report"), "{error} names the file");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_of_reports_panic(bytes in proptest::collection::vec(any::<u8>(), 505..520), text in ".{0,80}") {
        for format in HEALTH_FORMATS.iter().map(|format| Some(format.name)).chain([None]) {
            let _ = decode(&bytes, format);
            let _ = decode(text.as_bytes(), format);
        }
    }
}
