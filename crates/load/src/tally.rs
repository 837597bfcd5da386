//! Counting, as cheap as it can be: each generator thread counts for itself, and the sums are made at the end.
//!
//! Promises that adding tallies gives what counting everything in one would have given.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hdrhistogram::{
    Histogram,
    serialization::{Serializer as _, V2DeflateSerializer},
};

use crate::{
    failure::Failure,
    report::{Figures, Latency},
};

/// Highest status that is counted.
const STATUSES: usize = 1000;

/// Times in nanoseconds, to 3 significant digits, from 1 ns up to whatever comes.
#[derive(Clone, Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Times {
    pub(crate) fn new() -> Self {
        // 3 is within the 0 to 5 digits that the library takes.
        Self(Histogram::new(3).unwrap_or_else(|error| unreachable!("{error}")))
    }

    /// Counts one.
    pub(crate) fn record(&mut self, time: Duration) {
        // Resizes as needed; it could only fail for a size that no machine has.
        let _ = self.0.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let _ = self.0.add(&other.0);
    }

    pub(crate) fn latency(&self) -> Latency {
        let milliseconds = |nanoseconds: f64| Some(nanoseconds / 1e6);
        let quantile = |q: f64| milliseconds(self.0.value_at_quantile(q) as f64);
        if self.0.is_empty() {
            return Latency::default();
        }
        Latency {
            count: self.0.len(),
            min: milliseconds(self.0.min() as f64),
            mean: milliseconds(self.0.mean()),
            stdev: milliseconds(self.0.stdev()),
            p50: quantile(0.5),
            p80: quantile(0.8),
            p90: quantile(0.9),
            p95: quantile(0.95),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: milliseconds(self.0.max() as f64),
        }
    }

    /// HdrHistogram's interchange form: V2, compressed, base64.
    pub(crate) fn encoded(&self) -> String {
        let mut bytes = Vec::new();
        match V2DeflateSerializer::new().serialize(&self.0, &mut bytes) {
            Ok(_) => BASE64.encode(bytes),
            // It writes to memory.
            Err(error) => unreachable!("{error}"),
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    /// From the intended start (schedule) or the actual one.
    pub(crate) latency: Duration,
    /// From the actual start.
    pub(crate) service: Duration,
    /// Status of a complete answer.
    pub(crate) status: Option<u16>,
    pub(crate) failure: Option<Failure>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// Counts by kind of failure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Failures([u64; Failure::ALL.len()]);

impl Failures {
    pub(crate) fn count(&mut self, failure: Failure) {
        self.0[failure as usize] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn by_name(&self) -> BTreeMap<String, u64> {
        let counts = Failure::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0);
        counts.map(|(failure, count)| (failure.name().to_owned(), count)).collect()
    }
}

/// Everything that is counted about a load, or a phase of it.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    ok: Times,
    failed: Times,
    /// Only in an open loop, where it differs from latency.
    service: Option<Times>,
    failures: Failures,
    statuses: Vec<u64>,
    received: u64,
    sent: u64,
    pub(crate) late_waiting: u64,
    pub(crate) late_generator: u64,
}

impl Tally {
    pub(crate) fn new(open_loop: bool) -> Self {
        Self {
            ok: Times::new(),
            failed: Times::new(),
            service: open_loop.then(Times::new),
            failures: Failures::default(),
            statuses: vec![0; STATUSES],
            received: 0,
            sent: 0,
            late_waiting: 0,
            late_generator: 0,
        }
    }

    pub(crate) fn record(&mut self, ending: &Ending) {
        match ending.failure {
            None => self.ok.record(ending.latency),
            Some(failure) => {
                self.failed.record(ending.latency);
                self.failures.count(failure);
            }
        }
        // A shot that was never sent had no service.
        if ending.failure != Some(Failure::Queued)
            && let Some(service) = &mut self.service
        {
            service.record(ending.service);
        }
        if let Some(count) = ending.status.and_then(|status| self.statuses.get_mut(usize::from(status))) {
            *count += 1;
        }
        self.received += ending.received;
        self.sent += ending.sent;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.ok.add(&other.ok);
        self.failed.add(&other.failed);
        if let (Some(mine), Some(theirs)) = (&mut self.service, &other.service) {
            mine.add(theirs);
        }
        self.failures.add(&other.failures);
        self.statuses.iter_mut().zip(&other.statuses).for_each(|(mine, theirs)| *mine += theirs);
        self.received += other.received;
        self.sent += other.sent;
        self.late_waiting += other.late_waiting;
        self.late_generator += other.late_generator;
    }

    /// `duration`: of the load or phase, for the rates.
    pub(crate) fn figures(&self, duration: Duration) -> Figures {
        let mut all = self.ok.clone();
        all.add(&self.failed);
        let latency_ok_ms = self.ok.latency();
        let (ok, requests) = (latency_ok_ms.count, latency_ok_ms.count + self.failures.sum());
        let per_second =
            |count: u64| if duration.is_zero() { 0.0 } else { count as f64 / duration.as_secs_f64() };
        let statuses = self.statuses.iter().enumerate().filter(|(_, count)| **count > 0);
        Figures {
            requests,
            ok,
            ok_percent: (requests > 0).then(|| 100.0 * ok as f64 / requests as f64),
            rate: per_second(requests),
            ok_rate: per_second(ok),
            errors: self.failures.by_name(),
            statuses: statuses.map(|(status, count)| (status as u16, *count)).collect(),
            bytes_received: self.received,
            bytes_sent: self.sent,
            latency_ms: all.latency(),
            latency_ok_ms,
            service_ms: self.service.as_ref().map(Times::latency),
            late_waiting: self.late_waiting,
            late_generator: self.late_generator,
            histogram: all.encoded(),
        }
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;
    use proptest::prelude::*;

    use super::*;

    /// The smallest value that at least this share of all values does not exceed.
    fn exact(sorted: &[u64], quantile: f64) -> u64 {
        let rank = (quantile * sorted.len() as f64).ceil() as usize;
        sorted[rank.clamp(1, sorted.len()) - 1]
    }

    /// Times as loads have them: from microseconds to a minute, evenly spread over the orders of magnitude.
    fn times() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((0.0..11.0_f64).prop_map(|exponent| 10f64.powf(exponent) as u64), 1..2000)
    }

    proptest! {
        // Each case counts up to 2000 values; more cases only take time.
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn quantiles_agree_with_an_exact_sort(values in times(), threads in 1..5usize) {
            let mut parts = vec![Times::new(); threads];
            for (i, value) in values.iter().enumerate() {
                parts[i % threads].record(Duration::from_nanos(*value));
            }
            let mut all = Times::new();
            parts.iter().for_each(|part| all.add(part));
            let latency = all.latency();
            let mut sorted = values.clone();
            sorted.sort_unstable();
            prop_assert_eq!(latency.count, values.len() as u64);
            for (quantile, found) in [(0.5, latency.p50), (0.8, latency.p80), (0.9, latency.p90), (0.95, latency.p95), (0.99, latency.p99), (0.999, latency.p999), (1.0, latency.max)] {
                let (exact, found) = (exact(&sorted, quantile) as f64 / 1e6, found.expect("values"));
                prop_assert!((found - exact).abs() <= exact / 1000.0 + 1e-6, "p{}: {} is not {}", quantile, found, exact);
            }
            let mean = values.iter().map(|v| *v as f64).sum::<f64>() / values.len() as f64 / 1e6;
            prop_assert!((latency.mean.expect("values") - mean).abs() <= mean / 1000.0 + 1e-6);
        }

        #[test]
        fn histograms_travel(values in times()) {
            let mut times = Times::new();
            values.iter().for_each(|value| times.record(Duration::from_nanos(*value)));
            let bytes = BASE64.decode(times.encoded()).expect("base64");
            let read: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).expect("a histogram");
            prop_assert_eq!(read.len(), times.0.len());
            for quantile in [0.1, 0.5, 0.9, 0.99, 1.0] {
                prop_assert_eq!(read.value_at_quantile(quantile), times.0.value_at_quantile(quantile));
            }
        }
    }

    #[test]
    fn counts_add_up() {
        let ending = |failure, status| Ending {
            latency: Duration::from_millis(5),
            service: Duration::from_millis(4),
            status,
            failure,
            sent: 10,
            received: 20,
        };
        let (mut one, mut two) = (Tally::new(true), Tally::new(true));
        one.record(&ending(None, Some(200)));
        one.record(&ending(Some(Failure::Status), Some(500)));
        two.record(&ending(Some(Failure::Queued), None));
        two.record(&ending(Some(Failure::Timeout), None));
        one.add(&two);
        let figures = one.figures(Duration::from_secs(2));
        assert_eq!((figures.requests, figures.ok, figures.ok_percent), (4, 1, Some(25.0)));
        assert_eq!((figures.rate, figures.ok_rate), (2.0, 0.5));
        assert_eq!(figures.errors.values().sum::<u64>(), 3);
        assert_eq!(figures.statuses.into_iter().collect::<Vec<_>>(), [(200, 1), (500, 1)]);
        assert_eq!((figures.bytes_sent, figures.bytes_received), (40, 80));
        assert_eq!((figures.latency_ms.count, figures.service_ms.map(|s| s.count)), (4, Some(3)));
        assert_eq!(Tally::new(false).figures(Duration::ZERO).latency_ms, Latency::default());
    }
}
