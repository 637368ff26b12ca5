//! A line that a workload printed before a request precedes this request in the log.

use std::io::{Read, Write};

use emmclab_base::{CommandFlags, Op};
use emmclab_crash::log::{CommandPort, CrashLogReader, CrashLogRecord};
use emmclab_device::DeviceConfig;
use emmclab_layers::LayerConfig;
use emmclab_live::{LiveDevice, LiveOptions};
use emmclab_serve::BlockAction;

use crate::support::{Client, options};

/// The lines and the writes of the host in a log, in order.
fn order(log: &std::path::Path, port: CommandPort) -> Vec<String> {
    let mut reader = CrashLogReader::open(log).unwrap();
    let mut result = Vec::new();
    while let Some(records) = reader.next_block().unwrap() {
        for record in records {
            match record.unwrap() {
                CrashLogRecord::Acknowledged { text, .. } => result.push(text.to_owned()),
                CrashLogRecord::Command { port: of, op: Op::Write, sector, .. } if of == port => {
                    result.push(format!("write {sector}"));
                }
                _ => {}
            }
        }
    }
    assert!(!reader.truncated());
    result
}

#[test]
fn a_line_is_in_the_log_before_the_next_request_and_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("run.log");
    for (layers, port) in [(vec![], CommandPort::Device), (vec![LayerConfig::named("pass-through")], CommandPort::Host)] {
        let options = LiveOptions { layers, log: Some(log.clone()), ..options() };
        let device = LiveDevice::new(&DeviceConfig::preset("small-1gb").unwrap(), &options, None).unwrap();
        let (lines, mut program) = std::io::pipe().unwrap();
        let (mut answered, answers) = std::io::pipe().unwrap();
        device.follow(lines.into(), Some(answers.into())).unwrap();
        let client = Client::of(&device);
        for number in 0..20u64 {
            writeln!(program, "before {number}").unwrap();
            let data = BlockAction::Write(vec![1; 4096]);
            client.ask(data, number * 8, 8, CommandFlags::empty()).unwrap();
            answered.read_exact(&mut [0]).unwrap();
        }
        writeln!(program, "after all\nand more").unwrap();
        assert_eq!(device.new_lines().len(), 22);
        assert!(device.new_lines().is_empty());
        device.end_log().unwrap();
        writeln!(program, "too late").unwrap_err();
        device.stop().unwrap();
        let wanted = (0..20).flat_map(|number| [format!("before {number}"), format!("write {}", number * 8)]);
        let wanted: Vec<_> = wanted.chain(["after all".to_owned(), "and more".to_owned()]).collect();
        assert_eq!(order(&log, port), wanted);
    }
}
