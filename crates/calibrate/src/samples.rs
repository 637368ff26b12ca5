//! Measured service times by operation and size, and their statistics.

use std::collections::BTreeMap;

use emmclab_trace::{Error, ErrorClass, Nanos, Op, Request, RequestFlags, Result, TraceCombiner};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::durability::DurabilitySamples;
use crate::fit::{ENOUGH, FEW};
use crate::power::{self, IdleGapDelay, StageFit};
use crate::queue::{self, QueueDepthEstimate};

/// Seed of the random split of the requests into two halves.
const HALVES: u128 = 1;

/// Service times of one operation and size.
#[derive(Clone, Debug)]
pub(crate) struct SampleGroup {
    pub op: Op,
    pub sectors: u32,
    pub count: usize,
    pub median_us: f64,
    times_us: Vec<f64>,
}

impl SampleGroup {
    fn new(op: Op, sectors: u32, mut times_us: Vec<f64>, count: usize) -> Self {
        Self { op, sectors, count, median_us: median(&mut times_us), times_us }
    }

    pub fn kb(&self) -> f64 {
        f64::from(self.sectors) / 2.0
    }

    /// Absolute errors of a prediction for each request of the group, in percent.
    pub fn errors_pct(&self, predicted_us: f64) -> impl Iterator<Item = f64> {
        self.times_us.iter().map(move |time| 100.0 * (predicted_us / time - 1.0).abs())
    }

    pub fn times_us(&self) -> &[f64] {
        &self.times_us
    }

    /// Draws a bootstrap sample with replacement, with the same number of requests.
    pub fn resampled(&self, random: &mut Pcg64) -> Self {
        Self::new(self.op, self.sectors, resampled(&self.times_us, random), self.count)
    }
}

#[derive(Clone, Copy, Debug)]
struct ServiceSample {
    op: Op,
    sectors: u32,
    /// Time from the start (or issue) of the request, or from the previous completion if that is later, to the completion of the request,
    /// in us.
    service_us: f64,
    /// Time from the end of all earlier requests to the arrival of this request, in us; `None` if an earlier one was unfinished.
    gap_us: Option<f64>,
    wait: Option<IdleGapDelay>,
    /// Time from arrival to start of the request, in us, if the device was idle on arrival.
    fetch_us: Option<f64>,
    /// Whether the device slept when the request arrived, so that the request waited for the wake-up.
    woken: bool,
    /// Whether the request was sent in a packed command.
    packed: bool,
    /// Whether the request belongs to the held-out half.
    held_out: bool,
    /// Number of requests that this sample represents.
    count: usize,
}

impl ServiceSample {
    /// Whether the measured time is that of a single command on an awake device.
    fn plain(&self, skip_packed: bool) -> bool {
        !(self.woken || skip_packed && self.packed)
    }
}

/// A request of a trace that has a completion.
#[derive(Clone, Copy, Debug)]
struct TimedRequest {
    request: Request,
    /// Start or issue; if the recording has neither, the arrival.
    begin: Nanos,
    complete: Nanos,
}

/// Time after which Linux' block layer gives up a request (`SD_TIMEOUT`, `BLK_MQ` default), so that a later completion is no measured time.
const TIME_OUT: Nanos = Nanos(30_000_000_000);

/// Service times that were measured on a device.
#[derive(Clone, Debug, Default)]
pub struct ServiceSamples {
    measured: Vec<ServiceSample>,
    /// Requests of a trace, collected until the whole trace is read.
    requests: Vec<TimedRequest>,
    durability: DurabilitySamples,
    queue: QueueDepthEstimate,
    stages: Vec<StageFit>,
    /// Whether packed commands are excluded, because a device may program their entries one by one instead of in parallel.
    skip_packed: bool,
    /// Whether a request of the trace has a start or issue time.
    has_begins: bool,
    requests_seen: u64,
    /// Sentences that state what the source of the samples does not determine.
    warnings: Vec<String>,
}

impl ServiceSamples {
    pub(crate) fn new(skip_packed: bool) -> Self {
        Self { skip_packed, ..Self::default() }
    }

    /// Adds a request of a trace, in order of arrival; a request without completion is ignored. So is a request without start (or issue) if
    /// others have one.
    pub fn add(&mut self, request: &Request) {
        self.requests_seen += 1;
        let (begin, Some(complete)) = (request.start.or(request.issue), request.complete) else { return };
        if begin.is_some() && !self.has_begins {
            self.has_begins = true;
            self.requests.clear();
        }
        if begin.is_some() || !self.has_begins {
            self.requests.push(TimedRequest { request: *request, begin: begin.unwrap_or(request.arrival), complete });
        }
    }

    /// Removes requests whose completion is no measured time.
    fn remove_impossible(&mut self) {
        let (before, has_begins) = (self.requests.len(), self.has_begins);
        self.requests.retain(|TimedRequest { request, complete, .. }| {
            let early = !has_begins && *complete <= request.arrival;
            !(early || request.op.has_data() && complete.saturating_sub(request.arrival) > TIME_OUT)
        });
        let left_out = before - self.requests.len();
        if left_out > 0 {
            let what = if left_out == 1 { "request completes" } else { "requests complete" };
            let when = if has_begins { "after" } else { "before their arrival, or after" };
            self.warnings.push(format!(
                "{left_out} {what} {when} the 30 s in which Linux gives up a request; they are left out, because these are no measured times"
            ));
        }
    }

    /// Converts the requests into samples of service times. Without a command queue, the driver fetches the next request while a command
    /// runs. Service of a request then begins at its start or at the previous completion, whichever is later. With a command queue,
    /// services overlap and delay each other. In this case, only requests that were served alone become samples, if there are enough of
    /// them. If the trace has no start (or issue) times, the samples are the requests that found nothing unfinished: their service begins at
    /// their arrival.
    fn measure(&mut self) {
        self.remove_impossible();
        let requests = std::mem::take(&mut self.requests);
        self.queue = queue::of(requests.iter().map(|timed| (&timed.request, timed.begin, timed.complete)));
        let alone = queue::not_overlapping(requests.iter().map(|timed| (timed.begin, timed.complete)));
        let count_alone = alone.iter().filter(|alone| **alone).count();
        let only_alone = !self.has_begins || self.queue.depth > 1 && count_alone >= FEW;
        if !self.has_begins && count_alone > 0 {
            self.warnings.push(format!(
                "the recording has no start or issue times: {count_alone} of {} requests found nothing unfinished; only they are used, \
                 because their response is their service",
                requests.len()
            ));
        }
        let mut completions: Vec<Nanos> = requests.iter().map(|timed| timed.complete).collect();
        completions.sort_unstable();
        let mut busy_until: Option<Nanos> = None;
        for (TimedRequest { request, begin, complete }, alone) in requests.into_iter().zip(alone) {
            let gap_ns = busy_until.map(|until| request.arrival.saturating_sub(until).0);
            busy_until = busy_until.max(Some(complete));
            let earlier = completions.partition_point(|end| *end < complete);
            let free = if earlier > 0 && self.queue.depth == 1 { completions[earlier - 1] } else { begin };
            let service_us = (complete - begin.max(free)).0 as f64 / 1e3;
            if request.flags.contains(RequestFlags::FAILED) || only_alone && !alone {
                continue;
            }
            if service_us <= 0.0 || self.durability.add(&request, service_us) || !request.op.has_data() {
                continue;
            }
            let us = |ns: i64| ns as f64 / 1e3;
            let delay = request.start.zip(request.issue).map(|(start, issue)| (issue - start).0);
            let idle = gap_ns.is_none_or(|gap| gap >= 0);
            self.measured.push(ServiceSample {
                op: request.op,
                sectors: request.sectors,
                service_us,
                gap_us: gap_ns.filter(|gap| *gap > 0).map(us),
                // A device sleeps only while it is idle, so only requests after an idle gap have a wake-up delay.
                wait: gap_ns.zip(delay).filter(|(gap, _)| *gap > 0).map(|(gap, delay)| IdleGapDelay {
                    gap_us: us(gap),
                    delay_us: us(delay),
                    woken: false,
                }),
                fetch_us: request.start.filter(|_| idle).map(|start| us((start - request.arrival).0)),
                woken: false,
                packed: request.flags.contains(RequestFlags::PACKED),
                held_out: false,
                count: 1,
            });
        }
    }

    /// Adds a service time in us that was measured for `count` requests.
    pub(crate) fn add_measured(&mut self, op: Op, sectors: u32, service_us: f64, count: usize, held_out: bool) {
        self.measured.push(ServiceSample {
            op,
            sectors,
            service_us,
            gap_us: None,
            wait: None,
            fetch_us: None,
            woken: false,
            packed: false,
            held_out,
            count,
        });
    }

    /// Adds a sentence on what the source of the samples does not determine.
    pub(crate) fn warn(&mut self, sentence: &str) {
        self.warnings.push(sentence.to_owned());
    }

    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Completes the samples after the last request of a trace: assigns a random half of the requests to the held-out half and
    /// marks requests that waited for a wake-up.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.measure();
        if self.measured.is_empty() {
            return Err(Error::new(
                ErrorClass::Value,
                format!("none of {} requests has a completion time from which its service follows", self.requests_seen),
            )
            .hint("record service times with `emmclab record`, or use the JSON of fio"));
        }
        self.fit_stages(|delays| delays.into_iter().map(|(_, delay)| delay).collect());
        if self.stages.is_empty() {
            // Without the delays of the driver, a wake-up shows in the time of the request.
            self.wait_beyond_usual();
            self.fit_stages(after_shorter_gaps);
        }
        let sleep_after_us = self.stages.first().map_or(f64::INFINITY, |stage| stage.after_us);
        for sample in &mut self.measured {
            sample.woken = sample.wait.is_some_and(|wait| wait.woken && wait.gap_us > sleep_after_us);
        }
        // Half of the samples are held out at random. If data and metadata writes alternate, every second sample would be of the same kind.
        let mut lot = Pcg64::new(HALVES, 0);
        self.measured.iter_mut().for_each(|sample| sample.held_out = below(&mut lot, 2) == 1);
        Ok(())
    }

    /// Fits the stages of sleep to the delays of the samples. `usual` selects from pairs of gap and delay the delays of an awake device.
    fn fit_stages(&mut self, usual: impl Fn(Vec<(f64, f64)>) -> Vec<f64>) {
        for op in [Op::Read, Op::Write] {
            let delays = self.waits(op).map(|wait| (wait.gap_us, wait.delay_us.abs())).collect();
            let limit = power::woken_above(usual(delays));
            self.waits(op).for_each(|wait| wait.woken = wait.delay_us > limit);
        }
        self.stages = power::fit(&self.all_waits());
    }

    /// Makes the delay of each request after an idle gap the time beyond the usual time of its operation and size: the median of those after
    /// the shorter gaps. A size of fewer than [`ENOUGH`] requests has no usual time.
    fn wait_beyond_usual(&mut self) {
        let mut times: BTreeMap<(Op, u32), Vec<(f64, f64)>> = BTreeMap::new();
        for sample in &self.measured {
            if let Some(gap_us) = sample.gap_us {
                times.entry((sample.op, sample.sectors)).or_default().push((gap_us, sample.service_us));
            }
        }
        times.retain(|_, times| times.len() >= ENOUGH);
        let usual: BTreeMap<_, _> =
            times.into_iter().map(|(kind, times)| (kind, median(&mut after_shorter_gaps(times)))).collect();
        for sample in &mut self.measured {
            let usual_us = usual.get(&(sample.op, sample.sectors));
            sample.wait = sample.gap_us.zip(usual_us).map(|(gap_us, usual_us)| IdleGapDelay {
                gap_us,
                delay_us: sample.service_us - usual_us,
                woken: false,
            });
        }
    }

    fn waits(&mut self, op: Op) -> impl Iterator<Item = &mut IdleGapDelay> {
        self.measured.iter_mut().filter(move |sample| sample.op == op).filter_map(|sample| sample.wait.as_mut())
    }

    fn grouped(&self, keep: impl Fn(&ServiceSample) -> bool) -> Vec<SampleGroup> {
        let mut by_size: BTreeMap<(Op, u32), (Vec<f64>, usize)> = BTreeMap::new();
        for sample in self.measured.iter().filter(|sample| sample.plain(self.skip_packed) && keep(sample)) {
            let entry = by_size.entry((sample.op, sample.sectors)).or_default();
            entry.0.push(sample.service_us);
            entry.1 += sample.count;
        }
        by_size.into_iter().map(|((op, sectors), (times, count))| SampleGroup::new(op, sectors, times, count)).collect()
    }

    pub(crate) fn groups(&self) -> Vec<SampleGroup> {
        self.grouped(|_| true)
    }

    pub(crate) fn fitted_half(&self) -> Vec<SampleGroup> {
        self.grouped(|sample| !sample.held_out)
    }

    pub(crate) fn held_out(&self) -> Vec<SampleGroup> {
        self.grouped(|sample| sample.held_out)
    }

    pub(crate) fn woken(&self) -> usize {
        self.measured.iter().filter(|sample| sample.woken).count()
    }

    /// Number of packed commands that were excluded, without those that waited for a wake-up.
    pub(crate) fn skipped_packed(&self) -> usize {
        self.measured.iter().filter(|sample| sample.plain(false) && !sample.plain(self.skip_packed)).count()
    }

    fn all_waits(&self) -> Vec<IdleGapDelay> {
        self.measured.iter().filter_map(|sample| sample.wait).collect()
    }

    pub(crate) fn stages(&self) -> &[StageFit] {
        &self.stages
    }

    pub(crate) fn resampled_stages(&self, random: &mut Pcg64) -> Vec<StageFit> {
        power::fit(&resampled(&self.all_waits(), random))
    }

    /// Mean time from arrival to start of the requests that arrived at an idle device, in us.
    pub(crate) fn fetch_us(&self) -> Option<f64> {
        mean(&self.fetches())
    }

    pub(crate) fn resampled_fetch_us(&self, random: &mut Pcg64) -> Option<f64> {
        mean(&resampled(&self.fetches(), random))
    }

    fn fetches(&self) -> Vec<f64> {
        self.measured.iter().filter_map(|sample| sample.fetch_us).collect()
    }

    /// The estimated number of requests that the device serves at a time.
    pub(crate) fn queue(&self) -> QueueDepthEstimate {
        self.queue
    }

    pub(crate) fn durability(&self) -> &DurabilitySamples {
        &self.durability
    }
}

/// Collects service times from traces. With `skip_packed`, packed commands are excluded from the fit: a device may program their entries
/// one by one, which takes longer than a single command of equal size.
/// Errors: if a trace cannot be read or has no service times.
pub fn samples_of_traces(traces: &mut TraceCombiner, skip_packed: bool) -> Result<ServiceSamples> {
    let mut samples = ServiceSamples::new(skip_packed);
    while let Some(batch) = traces.next_batch()? {
        batch.iter().for_each(|request| samples.add(&request));
    }
    samples.settle()?;
    Ok(samples)
}

/// Returns the second values of the half with the smaller first values, which are idle gaps, but of at least [`ENOUGH`].
fn after_shorter_gaps(mut by_gap: Vec<(f64, f64)>) -> Vec<f64> {
    by_gap.sort_by(|a, b| a.0.total_cmp(&b.0));
    by_gap.truncate((by_gap.len() / 2).max(ENOUGH));
    by_gap.into_iter().map(|(_, value)| value).collect()
}

/// A uniformly distributed random number below `bound`.
pub(crate) fn below(random: &mut Pcg64, bound: usize) -> usize {
    (((random.next_u64() >> 32) * bound as u64) >> 32) as usize
}

/// The arithmetic mean of the values; `None` if there are none.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The median of the values; 0 if there are none.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// Draws a bootstrap sample with replacement, with the same number of values.
pub(crate) fn resampled<T: Copy>(values: &[T], random: &mut Pcg64) -> Vec<T> {
    (0..values.len()).map(|_| values[below(random, values.len())]).collect()
}
