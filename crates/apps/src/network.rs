//! The network: one lossless link whose rate is shared equally by the transfers in progress.

use emmclab_base::Nanos;

/// Number of units of transfer work in a bit. A link with a rate of N bit/s does N units of work per nanosecond.
const PER_BIT: u128 = 1_000_000_000;

#[derive(Clone, Copy, Debug)]
struct NetworkTransfer {
    thread: u32,
    remaining_bits: u128,
}

#[derive(Debug)]
pub(crate) struct NetworkLink {
    /// Rate of the link in bits per second.
    rate: u128,
    transfers: Vec<NetworkTransfer>,
    /// The time to which the remaining work (`left`) of all transfers refers.
    at: Nanos,
    bytes: u64,
}

impl NetworkLink {
    pub fn new(bits_per_s: u64) -> Self {
        Self { rate: u128::from(bits_per_s.max(1)), transfers: Vec::new(), at: Nanos::ZERO, bytes: 0 }
    }

    /// Total number of bytes of all transfers so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Begins a transfer at the time of the last [`NetworkLink::advance`].
    pub fn begin(&mut self, thread: u32, bytes: u64) {
        self.bytes += bytes;
        self.transfers.push(NetworkTransfer { thread, remaining_bits: u128::from(bytes) * 8 * PER_BIT });
    }

    /// The time at which the next transfer ends.
    pub fn next_event(&self) -> Option<Nanos> {
        let left = self.transfers.iter().map(|transfer| transfer.remaining_bits).min()?;
        // The time is rounded up, so that the transfer has no bits left when it ends.
        let ns = (left * self.transfers.len() as u128).div_ceil(self.rate);
        Some(self.at.saturating_add(Nanos(ns.min(i64::MAX as u128) as i64)))
    }

    /// Advances to `now`; appends the threads whose transfers ended, in the order in which they began.
    pub fn advance(&mut self, now: Nanos, ended: &mut Vec<u32>) {
        let passed = (now - self.at).0 as u128;
        self.at = now;
        if self.transfers.is_empty() {
            return;
        }
        let each = passed * self.rate / self.transfers.len() as u128;
        self.transfers.retain_mut(|transfer| {
            transfer.remaining_bits = transfer.remaining_bits.saturating_sub(each);
            if transfer.remaining_bits == 0 {
                ended.push(transfer.thread);
            }
            transfer.remaining_bits > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_out(link: &mut NetworkLink) -> Vec<(i64, u32)> {
        let (mut all, mut ended) = (Vec::new(), Vec::new());
        while let Some(at) = link.next_event() {
            link.advance(at, &mut ended);
            all.extend(ended.drain(..).map(|thread| (at.0, thread)));
        }
        all
    }

    #[test]
    fn transfers_share_the_rate_and_the_last_has_it_alone() {
        // At 8 Mbit/s, a byte takes 1 us.
        let mut link = NetworkLink::new(8_000_000);
        link.begin(1, 1000);
        link.begin(2, 3000);
        assert_eq!(run_out(&mut link), [(2_000_000, 1), (4_000_000, 2)]);
        assert_eq!(link.bytes(), 4000);
    }

    #[test]
    fn a_transfer_that_comes_later_slows_the_first_from_then_on() {
        let mut link = NetworkLink::new(8_000_000);
        link.begin(1, 2000);
        link.advance(Nanos(1_000_000), &mut Vec::new());
        link.begin(2, 2000);
        assert_eq!(run_out(&mut link), [(3_000_000, 1), (4_000_000, 2)]);
    }
}
