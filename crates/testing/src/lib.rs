//! For the tests of all crates: the path of the real traces, which are no part of the project, the tools of the machine, a small
//! device, and a seeded random number generator.

mod requirements;

pub use requirements::{find_tool, has_root, has_tool, has_tools, real_trace, skip, skip_always};

/// Settings of a device of some 10 MB, small enough that a test fills it and has it collect: two channels, pages of 8 KB.
pub const SMALL_DEVICE: &str = "gc.policy = \"greedy\"
[capacity]
over_provisioning_pct = 60
[geometry]
channels = 2
[[geometry.block_groups]]
page_kb = 8
blocks = 40
pages_per_block = 16
read_us = 100
program_us = 1000
erase_us = 5000
";

/// The number of random cases that a test draws which has `all` of them by default. `PROPTEST_CASES` changes it in proportion: that many for
/// a test with 256, the default of proptest, and at least one.
pub fn cases(all: u32) -> u32 {
    let of_256 = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(256_u64);
    (u64::from(all) * of_256).div_ceil(256).clamp(1, u64::from(u32::MAX)) as u32
}

/// A seeded random number generator (splitmix64) for tests that use no strategy of proptest. It gives the same numbers on every machine.
pub struct SeededRandom(u64);

impl SeededRandom {
    /// A die with this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `sides`.
    pub fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % sides as u64) as usize
    }
}

/// A message in the wire format of Protocol Buffers.
#[derive(Clone, Default)]
pub struct ProtobufMessage(
    /// The bytes so far.
    pub Vec<u8>,
);

impl ProtobufMessage {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Adds a field with a number.
    #[must_use]
    pub fn number(mut self, field: u32, value: u64) -> Self {
        self.varint(u64::from(field) << 3);
        self.varint(value);
        self
    }

    /// Adds a field with bytes: a text, or another message.
    #[must_use]
    pub fn bytes(mut self, field: u32, bytes: impl AsRef<[u8]>) -> Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.as_ref().len() as u64);
        self.0.extend(bytes.as_ref());
        self
    }
}

impl AsRef<[u8]> for ProtobufMessage {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
