//! Medians, ranges, ratios with confidence intervals.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Share of all cases in which an interval holds the true value.
const CONFIDENCE: f64 = 0.95;

/// Values of several rounds in short.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// What stands for all: the median, unless it is said otherwise.
    pub value: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of any number of values; `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let value =
            if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Self { value, min, max })
    }
}

/// An estimate and, if there were enough values, its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower and upper end.
    pub bounds: Option<(f64, f64)>,
}

/// An interval whose ends are further apart than this, the upper one over the lower one, says nothing.
const VAGUE: f64 = 4.0;

impl Interval {
    /// Whether it says nothing: a single round has no interval, and that of a few noisy ones may reach from a tenth to a hundred.
    pub fn is_vague(&self) -> bool {
        self.bounds.is_none_or(|(low, high)| high / low > VAGUE)
    }

    /// Whether it leaves "the same" out.
    pub fn is_sure(&self) -> bool {
        self.bounds.is_some_and(|(low, high)| !self.is_vague() && (low > 1.0 || high < 1.0))
    }
}

/// How many times as large the first values are as the second ones.
///
/// Values of the same round belong together, since both met the same state of the machine: the estimate is the geometric
/// mean of the rounds' ratios, the interval Student's t on their logarithms. Two rounds give a very wide interval, one none.
pub fn ratio(pairs: &[(f64, f64)]) -> Option<Interval> {
    let logarithms: Vec<f64> =
        pairs.iter().filter(|(a, b)| *a > 0.0 && *b > 0.0).map(|(a, b)| (a / b).ln()).collect();
    let interval = mean(&logarithms)?;
    Some(Interval {
        value: interval.value.exp(),
        bounds: interval.bounds.map(|(low, high)| (low.exp(), high.exp())),
    })
}

/// How many times as large the first values are as the second ones, which were measured at another time: nothing is paired,
/// and the two may vary differently (Welch's t, with Satterthwaite's degrees of freedom, on logarithms).
pub fn ratio_unpaired(a: &[f64], b: &[f64]) -> Option<Interval> {
    let logarithms = |values: &[f64]| values.iter().filter(|v| **v > 0.0).map(|v| v.ln()).collect::<Vec<_>>();
    let (a, b) = (logarithms(a), logarithms(b));
    let value = (average(&a)? - average(&b)?).exp();
    let error = |values: &[f64]| Some(variance(values)? / values.len() as f64);
    let bounds = match (error(&a), error(&b)) {
        (Some(va), Some(vb)) => {
            let (na, nb) = (a.len() as f64, b.len() as f64);
            let freedom = (va + vb).powi(2) / (va.powi(2) / (na - 1.0) + vb.powi(2) / (nb - 1.0));
            // Values that are all the same have no error, and so no number of degrees of freedom.
            let half = if freedom.is_finite() { student(freedom) * (va + vb).sqrt() } else { 0.0 };
            Some((value * (-half).exp(), value * half.exp()))
        }
        _ => None,
    };
    Some(Interval { value, bounds })
}

fn average(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Sample variance; `None` for fewer than two values.
fn variance(values: &[f64]) -> Option<f64> {
    let mean = average(values)?;
    let count = values.len();
    (count > 1).then(|| values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1) as f64)
}

fn mean(values: &[f64]) -> Option<Interval> {
    let value = average(values)?;
    let bounds = variance(values).map(|variance| {
        let half = student(values.len() as f64 - 1.0) * (variance / values.len() as f64).sqrt();
        (value - half, value + half)
    });
    Some(Interval { value, bounds })
}

/// Quantile of Student's t for a two-sided interval.
fn student(freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(0.5 + CONFIDENCE / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-3 * b.abs()
    }

    #[test]
    fn spreads() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { value: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { value: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn student_as_in_the_tables() {
        for (freedom, expected) in [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (30.0, 2.042)] {
            assert!(near(student(freedom), expected), "{freedom}: {}", student(freedom));
        }
    }

    #[test]
    fn ratios_of_pairs() {
        assert_eq!(ratio(&[]), None);
        assert_eq!(ratio(&[(3.0, 2.0)]), Some(Interval { value: 1.5, bounds: None }));
        // ln 2 and ln 8: mean ln 4, deviation 0.9803, so ± 12.706 · 0.9803 / √2.
        let interval = ratio(&[(2.0, 1.0), (8.0, 1.0)]).expect("values");
        let (low, high) = interval.bounds.expect("two pairs");
        assert!(near(interval.value, 4.0) && near((high / low).ln() / 2.0, 8.8073), "{interval:?}");
        // What varies from round to round and hits both alike is no uncertainty.
        let (low, high) =
            ratio(&[(2.0, 1.0), (20.0, 10.0), (4.0, 2.0)]).and_then(|i| i.bounds).expect("bounds");
        assert!(near(low, 2.0) && near(high, 2.0));
    }

    #[test]
    fn what_says_nothing() {
        let interval = |low: f64, high: f64| Interval { value: 2.0, bounds: Some((low, high)) };
        assert!(interval(0.08, 148.0).is_vague() && !interval(0.08, 148.0).is_sure());
        assert!(interval(1.5, 2.5).is_sure() && interval(0.5, 0.9).is_sure());
        assert!(!interval(0.9, 2.5).is_sure() && !interval(0.9, 2.5).is_vague());
        let single = Interval { value: 2.0, bounds: None };
        assert!(single.is_vague() && !single.is_sure());
    }

    #[test]
    fn ratios_of_two_runs() {
        let interval = ratio_unpaired(&[110.0, 112.0, 111.0], &[100.0, 101.0, 99.0]).expect("values");
        let (low, high) = interval.bounds.expect("bounds");
        assert!(low > 1.08 && high < 1.14 && near(interval.value, 1.11), "{interval:?}");
        assert_eq!(ratio_unpaired(&[1.0], &[2.0, 2.0]).expect("values").bounds, None);
        assert_eq!(ratio_unpaired(&[2.0, 2.0], &[1.0, 1.0]).expect("values").bounds, Some((2.0, 2.0)));
    }
}
