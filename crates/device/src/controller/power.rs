//! Sleep and waking: after a time without work the device sleeps, and the next command waits for it to wake.

use emmclab_base::Nanos;

use crate::geometry::nanos;
use emmclab_settings::Settings;

/// Equal steps that a distribution of wake-up times is cut into; a wake-up draws one of them.
const STEPS: u32 = 1 << 16;

/// The power state.
#[derive(Clone, Debug)]
pub(crate) struct Power {
    sleep_after: Nanos,
    wake: Nanos,
    /// Share of wake-ups up to each time, in [`STEPS`], and the time; empty = always `wake`.
    quantiles: Vec<(u32, Nanos)>,
    seed: u64,
    /// Wake-ups so far.
    drawn: u64,
}

impl Power {
    pub fn new(settings: &Settings) -> Self {
        let power = &settings.power;
        let step = |pct: f64| (pct / 100.0 * f64::from(STEPS)).round() as u32;
        Self {
            sleep_after: nanos(power.sleep_after_us),
            wake: nanos(power.wake_us),
            quantiles: power
                .wake_quantiles
                .iter()
                .map(|point| (step(point.up_to_pct), nanos(point.us)))
                .collect(),
            seed: power.seed,
            drawn: 0,
        }
    }

    /// Other times from now on; the draws of wake-up times go on.
    pub fn reconfigure(&mut self, settings: &Settings) {
        *self = Self { drawn: self.drawn, ..Self::new(settings) };
    }

    pub fn rewind(&mut self) {
        self.drawn = 0;
    }

    /// Whether the device ever sleeps.
    #[inline]
    pub fn sleeps(&self) -> bool {
        self.sleep_after > Nanos::ZERO
    }

    /// For a request at `at` after work that ended at `idle_from`: time asleep and time to wake up, where it slept.
    #[inline]
    pub fn wake(&mut self, idle_from: Nanos, at: Nanos) -> Option<(Nanos, Nanos)> {
        if !self.sleeps() || idle_from == Nanos::MIN {
            return None;
        }
        let asleep = at - idle_from - self.sleep_after;
        (asleep > Nanos::ZERO).then(|| (asleep, self.draw()))
    }

    /// The next time to wake up: the inverse of the distribution at a number drawn from the seed and the count so far.
    fn draw(&mut self) -> Nanos {
        if self.quantiles.is_empty() {
            return self.wake;
        }
        let drawn = (mix(self.seed ^ mix(self.drawn)) >> 48) as u32;
        self.drawn += 1;
        let at = self.quantiles.partition_point(|(up_to, _)| *up_to <= drawn).min(self.quantiles.len() - 1);
        let (to, most) = self.quantiles[at];
        let (from, least) = if at == 0 { (0, most) } else { self.quantiles[at - 1] };
        least
            + Nanos((most - least).0 * i64::from(drawn.saturating_sub(from)) / i64::from((to - from).max(1)))
    }
}

/// A bijection that spreads neighbouring numbers over all 64 bits (the finaliser of `SplitMix64`).
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceConfig;

    fn power(seed: u64) -> Power {
        let mut config = DeviceConfig::preset("small-1gb").unwrap();
        let points = "[{up_to_pct=50, us=1000}, {up_to_pct=99, us=3000}, {up_to_pct=100, us=70000}]";
        config
            .set_all(&[
                ("power.sleep_after_us", "1000"),
                ("power.wake_quantiles", points),
                ("power.seed", &seed.to_string()),
            ])
            .unwrap();
        Power::new(config.settings())
    }

    fn draws(mut power: Power, count: usize) -> Vec<i64> {
        (0..count).map(|_| power.wake(Nanos::ZERO, Nanos(2_000_000)).unwrap().1.0).collect()
    }

    #[test]
    fn wake_ups_follow_the_distribution_and_the_seed() {
        let mut times = draws(power(1), 20_000);
        assert_eq!(times[..100], draws(power(1), 100));
        assert_ne!(times[..100], draws(power(2), 100));
        times.sort_unstable();
        let at = |share: f64| times[(share * times.len() as f64) as usize] as f64 / 1e6;
        // Up to the first point every wake-up takes its time.
        assert_eq!(times[times.len() / 10], 1_000_000);
        assert!((at(0.5) - 1.0).abs() < 0.05, "{}", at(0.5));
        assert!((at(0.745) - 2.0).abs() < 0.1, "{}", at(0.745));
        assert!((at(0.98) - 2.96).abs() < 0.1, "{}", at(0.98));
        assert!(at(0.998) > 30.0 && at(0.9999) <= 70.0);
    }

    #[test]
    fn the_device_stays_awake_up_to_the_threshold() {
        assert_eq!(power(1).wake(Nanos::ZERO, Nanos(1_000_000)), None);
        assert_eq!(power(1).wake(Nanos::MIN, Nanos(5_000_000)), None);
        assert_eq!(power(1).wake(Nanos::ZERO, Nanos(1_000_001)).unwrap().0, Nanos(1));
    }
}
