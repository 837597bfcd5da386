//! Figures as people read them.

use crate::result::{Interval, Spread};

/// Four digits or so: `118,788`, `1,234`, `45.67`, `0.123`.
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 999.5 => 0,
        v if v >= 99.95 => 1,
        v if v >= 0.995 || v == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    grouped(&text)
}

/// A whole number, `1,234,567`.
pub fn count(value: u64) -> String {
    grouped(&value.to_string())
}

fn grouped(text: &str) -> String {
    let (sign, rest) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, fraction) =
        rest.split_once('.').map_or((rest, None), |(whole, fraction)| (whole, Some(fraction)));
    let mut out = String::from(sign);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if let Some(fraction) = fraction {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A figure, or a dash.
pub fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), number)
}

/// The median.
pub fn median(spread: Option<Spread>) -> String {
    or_dash(spread.map(|spread| spread.value))
}

/// `min–max`; empty for a single round.
pub fn range(spread: Option<Spread>) -> String {
    match spread {
        Some(spread) if spread.min < spread.max => format!("{}–{}", number(spread.min), number(spread.max)),
        _ => String::new(),
    }
}

/// `2.63 (2.51–2.76)`; of an interval that says nothing, that it does.
pub fn interval(interval: Option<Interval>) -> String {
    match interval {
        None => String::new(),
        Some(Interval { value, bounds: None }) => number(value),
        Some(interval @ Interval { value, bounds: Some((low, high)) }) => {
            let vague = if interval.is_vague() { ", too few rounds" } else { "" };
            format!("{} ({}–{}{vague})", number(value), number(low), number(high))
        }
    }
}

/// `45 s`, `12 min 5 s`.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    if seconds < 60 { format!("{seconds} s") } else { format!("{} min {} s", seconds / 60, seconds % 60) }
}

/// `99.98`, `100`; never 100 when a single request failed.
pub fn percent(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(100.0) => "100".to_owned(),
        Some(value) => {
            let decimals = if value > 99.9 { 4 } else { 2 };
            let factor = 10_f64.powi(decimals);
            let shown = if value > 99.0 { (value * factor).floor() / factor } else { value };
            format!("{shown:.*}", decimals as usize)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        let shown: Vec<_> =
            [118_788.4, 1234.0, 999.7, 456.78, 45.678, 0.123, 0.0, -1234.5].map(number).into();
        assert_eq!(shown, ["118,788", "1,234", "1,000", "456.8", "45.68", "0.123", "0.00", "-1,234"]);
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(percent(Some(100.0)), "100");
        assert_eq!(percent(Some(99.999_999)), "99.9999");
        assert_eq!(percent(Some(70.466)), "70.47");
        assert_eq!(interval(Some(Interval { value: 2.0, bounds: Some((1.5, 2.5)) })), "2.00 (1.50–2.50)");
        let vague = Interval { value: 3.44, bounds: Some((0.08, 148.0)) };
        assert_eq!(interval(Some(vague)), "3.44 (0.080–148.0, too few rounds)");
    }
}
