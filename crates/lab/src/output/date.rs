//! Moments as people read them.

/// `2026-11-21 08:15 UTC`, from seconds since 1970 (the algorithm: Howard Hinnant, "chrono-compatible low-level date
/// algorithms", civil_from_days).
pub fn date(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as i64;
    let days = seconds / 86_400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (seconds % 86_400 / 3600, seconds % 3600 / 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0.0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_827_696.0), "2000-02-29 12:34 UTC");
        assert_eq!(date(1_798_761_599.0), "2026-12-31 23:59 UTC");
    }
}
