//! The first bytes of files that are no traces, and the names of their kinds.

use super::*;

#[test]
fn every_kind_has_a_name_of_its_own_and_a_cure() {
    let mut names = std::collections::BTreeSet::new();
    for kind in kinds().chain(first_kinds()) {
        assert!(names.insert(kind.noun_phrase), "{} stands twice", kind.noun_phrase);
        assert!(kind.hint.len() > 20, "{}", kind.noun_phrase);
        assert!(!kind.hint.ends_with('.') && !kind.noun_phrase.ends_with('.'), "{}", kind.noun_phrase);
    }
}

/// The name of the kind of a file with these first bytes.
fn named(head: &[u8]) -> String {
    let error = recognise_first(head).or_else(|| recognise(head));
    error.map_or_else(|| "unknown".to_owned(), |error| error.to_string())
}

/// Checks that the name of a file with these first bytes contains `word`.
fn assert_named(head: &[u8], word: &str) {
    let name = named(head);
    assert!(name.starts_with("this is no trace, but ") && name.contains(word), "{word}: {name}");
}

#[test]
fn other_texts_and_bytes_stay_unknown() {
    for head in [&b""[..], b"\n\n", b"a,b,c\n1,2,3\n", b"1 2 3 4 5 6 7 8\n", &[0; 511], &[7; 4096], b"hello world\n"] {
        assert_eq!(named(head), "unknown", "{:?}", &head[..head.len().min(20)]);
    }
}

#[test]
fn programs_and_output_of_other_tools_are_named() {
    for (text, word) in [
        ("\"\"\"Doc.\"\"\"\n\nimport os\nfrom pathlib import Path\n\n\ndef main() -> None:\n", "program as text"),
        ("print(open(\"x\"))  # one\nlog(a)  # two\nimport os\nimport re\n", "program as text"),
        ("#!/bin/sh\nset -e\n", "program as text"),
        ("// A driver.\n#include <stdio.h>\n#include \"a.h\"\n", "program as text"),
        ("//! Doc.\n\nuse std::fs::File;\n\npub fn open() {\n", "program as text"),
        ("1, 123456, 0, 4096, 0\n3, 99123, 1, 4096, 8192\n", "_lat.log"),
        ("500, 2048, 0, 0\n1000, 2049, 1, 0\n", "_bw.log"),
        ("3;fio-3.33;job;0;0;40960;1023\n", "terse"),
        (" Performance counter stats for 'dd':\n\n  12 block:block_rq_issue\n", "perf stat"),
        ("100+0 records in\n100+0 records out\n409600 bytes (410 kB, 400 KiB) copied, 0.12 s, 3.4 MB/s\n", "benchmark"),
        ("Linux 6.1.0 (board) \t29.11.2026 \t_x86_64_\t(4 CPU)\n\nGer\u{e4}t  tps  kB_gel/s\nsda  1,52  20,11\n", "iostat"),
        ("[ 12.5] mybdev: W sector=4096 len=8\n", "dmesg"),
        ("Linux 6.1.0 (board)\n\nDevice   r/s  rkB/s %util\nmmcblk0  1.20 48.11 4.20\n", "iostat"),
        ("   7       0 loop0 27 2 100 44 359 446 165 735 0 58 85 1 0 5 2 16 51\n", "diskstats"),
        ("  27 2 100 44 359 446 165 735 0 58 85 1 0 5 2 16 51\n", "counters"),
        ("Latency: 0ms [512B Data Write]\nData-Free: 34881252K / 53684204K total = 64% free\n", "dumpsys"),
        ("time:\t\t1764000000\n[WRITE]\napp buffered data:\t1 2 3\nfs data:\t\t7 1 4096\n", "F2FS"),
        ("clock:\t\t200000000 Hz\nbus width:\t3 (8 bits)\ntiming spec:\t10 (mmc HS400)\n", "MMC host"),
        (
            "Tracing block device I/O... Hit Ctrl-C to end.\n     usecs           : count     distribution\n  0 -> 1 : 0 | |\n",
            "histogram",
        ),
        ("@usecs:\n[128, 256)            4 |@@@@@@@            |\n[256, 512)            9 |@@@@@@@@@@@@@@@@@@@|\n", "histogram"),
        ("PID    COMM             D MAJ MIN DISK       I/O  Kbytes  AVGms\n1 x R 202 1 xvda1 3 4 5\n", "biotop"),
        (
            "TIME     COMM           PID    T BYTES   OFF_KB   LAT(ms) FILENAME\n06:35:01 cron 1 R 1249 0 16.05 common-auth\n",
            "ext4slower",
        ),
        ("[    1.1] mmc0: new HS400 card\n[    1.2] mmcblk0: mmc0:0001\n[    1.3] mmcblk0: p1 p2\n", "dmesg"),
        ("{\n  \"fio version\" : \"fio-3.33\",\n  \"jobs\" : []\n}\n", "fio's results (JSON)"),
        ("job: (g=0): rw=read\nfio-3.33\nStarting 1 process\n", "fio's results as text"),
        ("[global]\nioengine=libaio\n[job]\nrw=randwrite\n", "job file of fio"),
        ("[{\"name\": \"x\", \"requests\": 3, \"ledger\": {\"seen\": 3}}]\n", "result of emmclab"),
        ("<!doctype html>\n<html><head><title>x - emmclab</title>\n", "report page of emmclab"),
        ("openat(AT_FDCWD, \"x\", O_RDONLY) = 3\nread(3, \"\", 4096) = 0\n", "strace"),
        ("1234 12:34:56.7 read(3, \"\", 4096) = 0 <0.000012>\n[pid 7] fsync(3 <unfinished ...>\n", "strace"),
        ("7 <... fsync resumed>)  = 0\n7 +++ exited with 0 +++\n", "strace"),
        ("name = \"nexus5\"\n[geometry]\ndies_per_chip = 2\n", "TOML"),
        ("{\"a\": 1}\n", "JSON"),
    ] {
        assert_named(text.as_bytes(), word);
    }
}

#[test]
fn traces_are_not_taken_for_output_of_tools() {
    for text in [
        "0.000000 0 4220896 8 0\n3.773000 0 49592384 8 1\n",
        "arrival_us,op,sector,sectors\n1,R,8,8\n",
        "x-1 [001] ..... 1.5: block_rq_issue: 8,0 R 4096 () 8 + 8 [x]\n",
    ] {
        assert_eq!(named(text.as_bytes()), "unknown", "{text}");
    }
}

#[test]
fn recordings_in_forms_without_a_reader_are_named() {
    let etl = [&[0; 0x48][..], &[2, 0, 2, 0xc0]].concat();
    for (bytes, word) in [
        (&[0x57, 0x1d, 0xd1, 0x75, 0, 0][..], "CTF trace"),
        (&etl, ".etl"),
        (b"[19:01:18.964188721] (+0.000002273) host block_bio_queue: { cpu_id = 0 }, { dev = 8, rwbs = 17 }\n", "babeltrace"),
        (b"BeginHeader\n DiskRead, TimeStamp, Process Name ( PID)\nEndHeader\n", "xperf"),
        (b"# tracer: nop\n#\n# latency: 0 us, #4/4, CPU#0 | (M:PREEMPT VP:0)\n#\n dd-2 0..... 0us : x: y\n", "latency format"),
        (b"      dd-2391      0.....  104us!: block_rq_issue: 179,0 W 4096 () 8 + 8 [dd]\n", "latency format"),
        (
            b"version = 7\ncpus=4\n  my dd-2391 12d.h1 5833.164811: block_rq_issue: 179,0 W 4096 () 8 + 8 [dd]\n",
            "trace-cmd report -l",
        ),
        (
            b"    0.000000000, 276, kworker/0:1H, D, 98394, 64\n    0.000843237, 0, swapper/3, C, 98394, 64\n",
            "format of your own",
        ),
        (b"  8,52 ,0.000843237,C,DS,983947432,64\n  8,52 ,0.001754614,C,W,982757456,128\n", "format of your own"),
        (b"100\n200\n100\n300", "list of numbers"),
    ] {
        assert!(named(bytes).contains(word), "{word}: {}", named(bytes));
    }
    for other in ["0.000843237 R 8 8\n0.000843238 W 8 8\n", "7-1 0.5: x\n", "1 2\n3 4\n5 6\n"] {
        assert_eq!(named(other.as_bytes()), "unknown", "{other}");
    }
}

#[test]
fn archives_recordings_and_images_are_named() {
    let at = |offset: usize, mark: &[u8]| {
        let mut bytes = vec![0; 4096];
        bytes[offset..offset + mark.len()].copy_from_slice(mark);
        bytes
    };
    for (bytes, word) in [
        (at(0, b"PK\x03\x04"), "zip archive"),
        (at(257, b"ustar"), "tar archive"),
        (at(0, b"PERFILE2"), "perf.data"),
        (at(0, b"rhswfsj\0"), "dm-log-writes"),
        (at(0, b"EMMCRASH"), "power cuts"),
        (at(0x438, &[0x53, 0xef]), "ext4"),
        (at(0x400, &[0x10, 0x20, 0xf5, 0xf2]), "F2FS"),
        (at(510, &[0x55, 0xaa]), "boot sector"),
        (at(0, b"\x7fELF"), "ELF"),
    ] {
        assert_named(&bytes, word);
        assert!(named(&bytes).starts_with("this is no trace, but a"), "{word}");
    }
}

#[test]
fn a_register_that_is_cut_short_or_empty_is_named_with_its_fault() {
    for (bytes, fault) in [
        ("ab".repeat(350).into_bytes(), "350 bytes, and the register 512"),
        ("00".repeat(512).into_bytes(), "every byte is 0"),
        (vec![0; 512], "every byte is 0"),
        (vec![0xff; 512], "every byte is 0xff"),
    ] {
        let name = named(&bytes);
        assert!(name.contains("EXT_CSD") && name.contains(fault), "{name}");
    }
    assert_eq!(named("ab".repeat(20).as_bytes()), "unknown");
}

#[test]
fn registers_are_named() {
    let sentences = "=====\n  Extended CSD rev 1.8 (MMC 5.1)\n=====\n\nCard Supported Command sets [S_CMD_SET: 0x01]\n";
    assert!(named(sentences.as_bytes()).contains("EXT_CSD"));
    for text in ["device_descriptor/queue_depth:0x20\n", "Device Descriptor: [Byte offset 0x21]: bQueueDepth = 0x20\n"] {
        assert!(named(text.as_bytes()).contains("UFS"), "{text}");
    }
    assert_eq!(named(b"00000000: 7f 45 4c 46\n"), "unknown");
}
