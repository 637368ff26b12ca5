//! Sleep and wake-up: after an idle time the device sleeps, and the next command waits until it is awake.

use emmclab_base::Nanos;
use emmclab_settings::DeviceSettings;

use super::commands::TimeSampler;
use crate::geometry::nanos;

/// Settings of sleep, and random wake-up times.
#[derive(Clone, Debug)]
pub(crate) struct SleepTiming {
    sleep_after: Nanos,
    wake: Nanos,
    /// Distribution of wake-up times; if it is empty, the wake-up time is always `wake`.
    pub wakes: TimeSampler,
}

impl SleepTiming {
    pub fn new(settings: &DeviceSettings) -> Self {
        let power = &settings.power;
        Self {
            sleep_after: nanos(power.sleep_after_us),
            wake: nanos(power.wake_us),
            wakes: TimeSampler::new(&power.wake_quantiles, power.seed),
        }
    }

    /// Replaces the sleep times. The sequence of random wake-up times continues.
    pub fn reconfigure(&mut self, settings: &DeviceSettings) {
        let mut new = Self::new(settings);
        new.wakes.drawn = self.wakes.drawn;
        *self = new;
    }

    /// Whether the device can sleep.
    #[inline]
    pub fn sleeps(&self) -> bool {
        self.sleep_after > Nanos::ZERO
    }

    /// Returns the time asleep and the wake-up time for a request at `at`, if previous work ended at `idle_from`; `None` if the device was
    /// awake.
    #[inline]
    pub fn wake(&mut self, idle_from: Nanos, at: Nanos) -> Option<(Nanos, Nanos)> {
        if !self.sleeps() || idle_from == Nanos::MIN {
            return None;
        }
        let asleep = at - idle_from - self.sleep_after;
        (asleep > Nanos::ZERO).then(|| (asleep, self.draw()))
    }

    /// Draws the duration of the next wake-up.
    fn draw(&mut self) -> Nanos {
        if self.wakes.is_empty() { self.wake } else { self.wakes.draw() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceConfig;

    fn power(seed: u64) -> SleepTiming {
        let mut config = DeviceConfig::preset("small-1gb").unwrap();
        let points = "[{up_to_pct=50, us=1000}, {up_to_pct=99, us=3000}, {up_to_pct=100, us=70000}]";
        let seed = seed.to_string();
        config.set_all(&[("power.sleep_after_us", "1000"), ("power.wake_quantiles", points), ("power.seed", &seed)]).unwrap();
        SleepTiming::new(config.settings())
    }

    fn draws(mut power: SleepTiming, count: usize) -> Vec<i64> {
        (0..count).map(|_| power.wake(Nanos::ZERO, Nanos(2_000_000)).unwrap().1.0).collect()
    }

    #[test]
    fn wake_ups_follow_the_distribution_and_the_seed() {
        let mut times = draws(power(1), 20_000);
        assert_eq!(times[..100], draws(power(1), 100));
        assert_ne!(times[..100], draws(power(2), 100));
        times.sort_unstable();
        let at = |share: f64| times[(share * times.len() as f64) as usize] as f64 / 1e6;
        // Below the first quantile of the distribution, every wake-up takes the time of that quantile.
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
