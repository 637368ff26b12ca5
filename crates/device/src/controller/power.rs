//! Sleep and wake-up: after an idle time the device sleeps, in stages that take longer and longer to leave, and the next command waits
//! until it is awake.

use emmclab_base::Nanos;
use emmclab_settings::{DeviceSettings, IdleStage};

use super::commands::TimeSampler;
use crate::geometry::nanos;
use crate::nand::mix;

/// A stage of sleep, with its random exit times.
#[derive(Clone, Debug)]
struct SleepStage {
    /// Idle time after which the stage begins.
    after: Nanos,
    wake: Nanos,
    /// Distribution of exit times; if it is empty, the exit time is always `wake`.
    wakes: TimeSampler,
}

impl SleepStage {
    fn new((number, stage): (usize, &IdleStage), seed: u64) -> Self {
        // The stages draw from different sequences, so that a wake-up from one leaves the exit times of the others as they are.
        let seed = if number == 0 { seed } else { mix(seed ^ (number as u64) << 8) };
        Self { after: nanos(stage.after_us), wake: nanos(stage.wake_us), wakes: TimeSampler::new(&stage.wake_quantiles, seed) }
    }
}

/// The end of an idle time in which the device slept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SleepEnd {
    /// Time since the first stage began.
    pub asleep: Nanos,
    /// Exit time.
    pub took: Nanos,
    /// The last stage that had begun, counted from 0.
    pub stage: usize,
}

/// The stages of sleep in ascending order of their idle times; empty if the device never sleeps.
#[derive(Clone, Debug)]
pub(crate) struct SleepTiming(Vec<SleepStage>);

impl SleepTiming {
    pub fn new(settings: &DeviceSettings) -> Self {
        let stages = settings.power.idle_stages();
        Self(stages.iter().enumerate().map(|stage| SleepStage::new(stage, settings.power.seed)).collect())
    }

    /// Replaces the sleep times. The sequences of random exit times continue.
    pub fn reconfigure(&mut self, settings: &DeviceSettings) {
        let mut new = Self::new(settings);
        new.0.iter_mut().zip(&self.0).for_each(|(new, old)| new.wakes.drawn = old.wakes.drawn);
        *self = new;
    }

    /// Begins the sequences of random exit times anew.
    pub fn rewind(&mut self) {
        self.0.iter_mut().for_each(|stage| stage.wakes.drawn = 0);
    }

    /// Whether the device can sleep.
    #[inline]
    pub fn sleeps(&self) -> bool {
        !self.0.is_empty()
    }

    /// Ends the sleep for a request at `at`, if previous work ended at `idle_from`; `None` if the device was awake.
    #[inline]
    pub fn wake(&mut self, idle_from: Nanos, at: Nanos) -> Option<SleepEnd> {
        let first = self.0.first()?.after;
        if idle_from == Nanos::MIN {
            return None;
        }
        let idle = at - idle_from;
        (idle > first).then(|| self.leave(idle, idle - first))
    }

    /// Leaves the last stage that begins within `idle`.
    fn leave(&mut self, idle: Nanos, asleep: Nanos) -> SleepEnd {
        let stage = self.0.iter().rposition(|stage| idle > stage.after).unwrap_or(0);
        let SleepStage { wake, wakes, .. } = &mut self.0[stage];
        let took = if wakes.is_empty() { *wake } else { wakes.draw() };
        SleepEnd { asleep, took, stage }
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
        (0..count).map(|_| power.wake(Nanos::ZERO, Nanos(2_000_000)).unwrap().took.0).collect()
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
        assert_eq!(power(1).wake(Nanos::ZERO, Nanos(1_000_001)).unwrap().asleep, Nanos(1));
    }

    #[test]
    fn stages_draw_from_sequences_of_their_own() {
        let mut config = DeviceConfig::preset("small-1gb").unwrap();
        let points = "wake_quantiles=[{up_to_pct=1, us=0}, {up_to_pct=100, us=1000}]";
        let stages = format!("[{{after_us=1000, {points}}}, {{after_us=5000, {points}}}]");
        config.set_all(&[("power.stages", &stages)]).unwrap();
        let timing = SleepTiming::new(config.settings());
        let draws = |idle_us: &[i64]| -> Vec<(usize, i64)> {
            let mut timing = timing.clone();
            let ends = idle_us.iter().map(|us| timing.wake(Nanos::ZERO, Nanos::from_micros(*us)).unwrap());
            ends.map(|end| (end.stage, end.took.0)).collect()
        };
        let (first, second) = (draws(&[5000; 3]), draws(&[5001; 3]));
        assert!(first.iter().all(|end| end.0 == 0) && second.iter().all(|end| end.0 == 1) && first[0].1 != second[0].1);
        let mixed = draws(&[5000, 5001, 5000, 5001, 5000, 5001]);
        assert_eq!(mixed, [first[0], second[0], first[1], second[1], first[2], second[2]]);
    }
}
