//! Issue and completion of requests with given operation letters, in several formats.

use std::fmt::Write as _;

use super::protobuf::Message;

/// Operation letters, sector and length in sectors.
pub type Step = (&'static str, u64, u32);

/// The steps as blkparse prints them.
pub fn blkparse(steps: &[Step]) -> String {
    let mut text = String::new();
    for (number, (letters, sector, length)) in steps.iter().enumerate() {
        let _ = write!(
            text,
            "  8,0    1  {number}  1.{number}00000000  7  D  {letters} {sector} + {length} [dd]\n  \
             8,0    1  {number}  1.{number}00900000  0  C  {letters} {sector} + {length} [0]\n"
        );
    }
    text
}

/// The steps as events of a Perfetto trace.
pub fn perfetto(steps: &[Step]) -> Vec<u8> {
    let step = |ns: u64, field: u32, &(letters, sector, length): &Step| {
        let message = Message::default().number(1, 8 << 8).number(2, sector).number(3, u64::from(length));
        Message::default().number(1, ns).number(2, 7).bytes(field, message.bytes(5, letters))
    };
    let mut bundle = Message::default().number(1, 0);
    for (number, one) in (0..).zip(steps) {
        bundle = bundle.bytes(2, step(number * 1_000, 45, one)).bytes(2, step(number * 1_000 + 9, 125, one));
    }
    let packet = Message::default().number(10, 2).bytes(1, bundle);
    Message::default().bytes(1, packet).0
}
