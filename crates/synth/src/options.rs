//! The extent of a synthetic workload: its duration, size and seed.

use emmclab_trace::{Error, ErrorClass, Nanos, Op, Result};

use crate::distribute::{fraction, percent_of};
use crate::model::WorkloadModel;

/// Length, rate and random seed of a synthesis. The default is the workload at its own length and rate, with seed 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynthOptions {
    /// The same seed gives the same trace.
    pub seed: u64,
    /// Reads and writes to make. Without `duration`, the duration follows from the workload's rate.
    pub requests: Option<u64>,
    /// First arrival to last completion. Without `requests`, their number follows from the workload's rate. The
    /// duration is exact if the trace has an idle gap that can be adjusted.
    pub duration: Option<Nanos>,
    /// Arrival rate, percent of the workload's own. Idle gaps shrink or grow; think and service times stay.
    pub rate_pct: u64,
    /// Size of the device, GB of 2^30 bytes; `None` for that of the model.
    pub address_space_gb: Option<u64>,
}

impl Default for SynthOptions {
    fn default() -> Self {
        Self { seed: 0, requests: None, duration: None, rate_pct: 100, address_space_gb: None }
    }
}

/// Totals of a synthesis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SynthesisTotals {
    pub reads: u64,
    pub writes: u64,
    /// Requests that find the device idle.
    pub rounds: u64,
    pub bursts: u64,
    /// First arrival to last completion, ns.
    pub duration: u64,
    /// Sum of service times, ns.
    pub service: u64,
    /// Sum of response less service times, ns.
    pub waiting: u64,
}

/// Limits of the length of a trace and of the number of requests, so that sums fit into 64 bits.
const LONGEST_NS: u64 = 1 << 60;
const MOST_REQUESTS: u64 = 1 << 40;

impl SynthesisTotals {
    pub(crate) fn new(model: &WorkloadModel, options: &SynthOptions) -> Result<Self> {
        let own_requests = model.requests();
        let own_ns = nanos(model.duration_s, 1e9);
        let config = |problem: String, hint: &str| Error::new(ErrorClass::Config, problem).hint(hint);
        if !(1..=1_000_000).contains(&options.rate_pct) {
            let problem = format!("a rate of {} % of the workload's own", options.rate_pct);
            return Err(config(problem, "give 1 to 1000000 percent"));
        }
        if options.requests.is_some() && options.duration.is_some() && options.rate_pct != 100 {
            let problem = "requests and duration together already give the rate".to_owned();
            return Err(config(problem, "leave out one of requests, duration and rate"));
        }
        let given_ns = options.duration.map(|duration| u64::try_from(duration.0).unwrap_or(0));
        let requests = options.requests.unwrap_or_else(|| match given_ns {
            None => own_requests,
            Some(ns) => fraction(fraction(own_requests, ns, own_ns), options.rate_pct, 100),
        });
        if !(1..=MOST_REQUESTS).contains(&requests) {
            let problem = format!("that would be {requests} requests");
            return Err(config(problem, "choose requests, duration and rate so that there are 1 to 2^40"));
        }
        let duration =
            given_ns.unwrap_or_else(|| fraction(fraction(own_ns, requests, own_requests), 100, options.rate_pct));
        if !(1..=LONGEST_NS).contains(&duration) {
            let problem = format!("that would last {} s", duration / 1_000_000_000);
            return Err(config(problem, "choose requests, duration and rate so that it lasts 1 ns to 36 years"));
        }
        let reads = fraction(model.reads.requests(), requests, own_requests);
        let (rounds, service, waiting) = match &model.service {
            None => (requests, 0, 0),
            Some(service) => {
                let mean = nanos(service.mean_service_ms, 1e6);
                let wait = nanos(service.mean_response_ms, 1e6) - mean;
                let rounds = percent_of(requests, service.no_wait_pct).max(1);
                (rounds, requests.saturating_mul(mean), requests.saturating_mul(wait))
            }
        };
        if service > duration {
            let most = fraction(options.rate_pct, duration, service);
            let problem = format!(
                "the device would be busy for {}, longer than the trace of {}",
                Nanos(i64::try_from(service).unwrap_or(i64::MAX)),
                Nanos(i64::try_from(duration).unwrap_or(i64::MAX))
            );
            return Err(config(problem, &format!("give a rate of at most {most} %, by the service times")));
        }
        let bursts = percent_of(requests, model.bursts.opens_pct).clamp(1, rounds);
        Ok(Self { reads, writes: requests - reads, rounds, bursts, duration, service, waiting })
    }

    pub(crate) fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    pub(crate) fn of(&self, op: Op) -> u64 {
        if op == Op::Read { self.reads } else { self.writes }
    }
}

/// A checked value of a model in nanoseconds; `unit` is the length of its unit in ns.
pub(crate) fn nanos(value: f64, unit: f64) -> u64 {
    (value * unit).round() as u64
}
