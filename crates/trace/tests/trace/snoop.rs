//! The tables of biosnoop and iosnoop.

use crate::support::{Trace, lenient, read_bytes, read_plain};
use emmclab_trace::{ErrorClass, Nanos, Op, RequestFlags, Result, Sector};

fn table(text: &str) -> Result<Trace> {
    read_plain(text, "txt")
}

const BCC: &str = "TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)\n";

#[test]
fn a_line_states_the_completion_and_the_time_since_the_issue() {
    let trace = table(&format!(
        "{BCC}1.000000    supervise      1950   xvda1   W 13092560   4096       0.75\n\
         1.100000    xfsaild/md0    456    xvdb    R 62901513   512        0.25\n"
    ))
    .unwrap();
    let request = &trace.requests[0];
    assert_eq!(
        (request.arrival, request.start, request.complete),
        (Nanos(999_250_000), Some(Nanos(999_250_000)), Some(Nanos(1_000_000_000)))
    );
    assert_eq!((request.sector, request.sectors, request.op, request.pid), (Sector(13_092_560), 8, Op::Write, Some(1950)));
    assert_eq!((trace.requests[1].sectors, trace.devices.as_slice()), (1, &["xvda1".to_owned(), "xvdb".to_owned()][..]));
    assert!(trace.header.note.unwrap().contains("without -Q"));
}

#[test]
fn the_time_in_the_queue_comes_before_the_issue() {
    let trace = table(
        "TIME(s) COMM PID DISK T SECTOR BYTES P QUE(ms) LAT(ms)\n\
         1.0 fio 9 sda WS 8 4096 S 2.000 1.000\n1.1 fio 9 sda RA 8 4096 ? -1.000 1.000\n",
    )
    .unwrap();
    let times = trace.rows(|request| (request.arrival.0, request.start.unwrap().0));
    assert_eq!(times, [(997_000_000, 999_000_000), (1_099_000_000, 1_099_000_000)]);
    assert_eq!((trace.requests[0].flags, trace.requests[1].flags), (RequestFlags::SYNC, RequestFlags::READAHEAD));
    assert_eq!(trace.header.note, None);
}

#[test]
fn names_with_blanks_and_lines_around_the_table_do_not_matter() {
    let trace = table(&format!(
        "Demonstrations of biosnoop.\n\n# ./biosnoop\n{BCC}0.5 Web Content 1950 sda R 8 4096 0.75\n\
         lost 431 events on CPU #2\nThis includes the PID and comm at the time of issue.\n0.6 ? 0 R 0 4096 0.75\n"
    ))
    .unwrap();
    assert_eq!((trace.requests.len(), trace.processes[0].as_str()), (1, "Web Content"));
    assert_eq!((trace.ledger.lost, trace.ledger.skipped), (431, 4));
}

#[test]
fn a_table_without_its_heading_is_known_by_its_columns() {
    let trace = table("0.000000000    paranoid       17553  sdb     W  16777216  4096       0.41\n").unwrap();
    assert_eq!((trace.header.format.as_str(), trace.requests[0].sector), ("biosnoop", Sector(16_777_216)));
}

#[test]
fn a_time_of_day_goes_on_behind_midnight() {
    let heading = "TIMESTAMP    COMM           PID     DISK    T    SECTOR     BYTES   LAT(ms)\n";
    let trace =
        table(&format!("{heading}23:59:59.900 fio 9 sda R 8 4096 1.000\n00:00:00.100 fio 9 sda R 16 4096 1.000\n")).unwrap();
    assert_eq!(trace.requests[1].arrival - trace.requests[0].arrival, Nanos(200_000_000));
}

#[test]
fn a_flush_has_no_address() {
    let trace = table(&format!("{BCC}1.0 jbd2 446 sda W 18446744073709551615 0 2.90\n1.1 jbd2 446 sda FF -1 0 2.90\n")).unwrap();
    assert!(trace.requests.iter().all(|request| (request.op, request.sector, request.sectors) == (Op::Flush, Sector(0), 0)));
    // A command that a program sent to the drive has data but no address.
    let trace =
        table(&format!("{BCC}1.0 smartctl 446 sda R 18446744073709551615 512 2.90\n1.1 fio 4 sda R 8 512 2.90\n")).unwrap();
    assert_eq!((trace.requests.len(), trace.ledger.skipped), (1, 1));
}

#[test]
fn a_latency_that_cannot_be_is_refused_with_its_line() {
    let text = format!("{BCC}0.0 fio 9012 sda R 2048 4096 0.15\n0.1 fio 9012 sda R 4096 4096 18014398509.48\n");
    let error = table(&text).unwrap_err();
    assert_eq!((error.kind(), error.field(), error.line()), (ErrorClass::Value, Some("latency"), Some(3)), "{error}");
    assert!(error.hint_text().unwrap().contains("--lenient"));
    let trace = read_bytes(text.as_bytes(), "txt", &lenient()).unwrap();
    assert_eq!((trace.requests.len(), trace.ledger.skipped), (1, 1));
}

#[test]
fn a_table_without_addresses_is_refused_by_that() {
    let error = table("Attaching 4 probes...\nTIME(ms)     DISK    COMM             PID    LAT(ms)\n611 nvme0n1 bash 4179 10\n")
        .unwrap_err();
    assert_eq!(error.kind(), ErrorClass::Unsupported);
    assert!(error.to_string().contains("does not print the address"), "{error}");
    assert!(error.hint_text().unwrap().contains("bcc"));
}

#[test]
fn iosnoop_without_times_is_laid_out_in_order_and_says_so() {
    let trace = table(
        "Tracing block I/O. Ctrl-C to end.\nCOMM         PID    TYPE DEV      BLOCK        BYTES     LATms\n\
         jbd2/dm-8-44 446    WS   8,0      34898224     28672      0.26\n\
         <idle>       0      FWS  8,0      18446744073709551615 0          0.86\n\
         ext4 lazyinit 13030  W    253,18   5553305856   1048576     3.31\n\nEnding tracing...\n",
    )
    .unwrap();
    let times = trace.rows(|request| (request.arrival.0, request.complete.unwrap().0));
    assert_eq!(times, [(0, 260_000), (260_000, 1_120_000), (1_120_000, 4_430_000)]);
    assert_eq!((trace.requests[0].sectors, trace.requests[1].op, trace.requests[2].op), (56, Op::Flush, Op::Write));
    assert_eq!(
        (trace.devices.as_slice(), trace.processes[2].as_str()),
        (&["8,0".to_owned(), "253,18".to_owned()][..], "ext4 lazyinit")
    );
    assert!(trace.header.note.unwrap().contains("prints no times"));
}

#[test]
fn iosnoop_with_starts_and_ends_has_both_times() {
    let heading = "STARTs         ENDs           COMM         PID    TYPE DEV      BLOCK        BYTES     LATms\n";
    let trace = table(&format!(
        "{heading}5982800.302061 5982800.302679 supervise    1809   W    202,1    17039600     4096       0.62\n"
    ))
    .unwrap();
    let request = &trace.requests[0];
    assert_eq!((request.arrival, request.complete), (Nanos(5_982_800_302_061_000), Some(Nanos(5_982_800_302_679_000))));
    // -Q may have moved the start to the time of queueing, which the table does not show.
    assert_eq!(request.start, None);
}
