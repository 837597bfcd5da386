//! What a load shows of itself while it runs, on standard error.

use std::io::{IsTerminal as _, Write as _};

use clap::ValueEnum;
use hayate_load::{Plan, Second};

use super::print::{count, milliseconds};

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// One line that changes, if standard error is a terminal
    Auto,
    /// A line each second
    Lines,
    /// None
    Never,
}

enum Style {
    Rewritten,
    Lines,
    Silent,
}

/// The progress of one load.
pub(super) struct Progress {
    style: Style,
    /// Seconds, if it is known beforehand.
    duration: Option<f64>,
    /// Requests, if it is known beforehand.
    requests: Option<u64>,
    done: u64,
    ok: u64,
}

impl Progress {
    pub(super) fn new(when: When, plan: &Plan) -> Self {
        let style = match when {
            When::Auto if std::io::stderr().is_terminal() => Style::Rewritten,
            When::Lines => Style::Lines,
            When::Auto | When::Never => Style::Silent,
        };
        Self {
            style,
            duration: plan.duration().map(|d| d.as_secs_f64()),
            requests: plan.requests(),
            done: 0,
            ok: 0,
        }
    }

    /// Shows a second.
    pub(super) fn second(&mut self, second: &Second) {
        self.done += second.requests;
        self.ok += second.ok;
        // Progress that cannot be shown is no reason to lose a load.
        let _ = match self.style {
            Style::Silent => Ok(()),
            Style::Lines => writeln!(std::io::stderr(), "{}", self.line(second)),
            Style::Rewritten => {
                let mut stderr = std::io::stderr().lock();
                // Back to the first column, and clear to the end of the line.
                write!(stderr, "\r\x1b[K{}", self.line(second)).and_then(|()| stderr.flush())
            }
        };
    }

    /// Removes the line that changes.
    pub(super) fn clear(&self) {
        if matches!(self.style, Style::Rewritten) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn line(&self, second: &Second) -> String {
        let at = (second.second + 1) as f64;
        let mut parts = vec![match (self.duration, self.requests) {
            (Some(all), _) => format!("{at:.0}/{all:.0} s"),
            (None, Some(all)) => format!("{at:.0} s  {}/{}", count(self.done), count(all)),
            (None, None) => format!("{at:.0} s"),
        }];
        parts.push(match second.intended_rate {
            Some(planned) => format!("{}/s of {planned:.0} planned", count(second.requests)),
            None => format!("{}/s", count(second.requests)),
        });
        parts.push(format!(
            "p50 {} p99 {} ms",
            milliseconds(second.latency_ms.p50),
            milliseconds(second.latency_ms.p99)
        ));
        parts.push(format!("{} connections", count(second.connections)));
        let failed = self.done - self.ok;
        if failed > 0 {
            parts.push(format!(
                "{} failed ({:.2} %)",
                count(failed),
                100.0 * failed as f64 / self.done as f64
            ));
        }
        if second.backlog > 0 {
            parts.push(format!("{} waiting", count(second.backlog)));
        }
        if second.late_generator > 0 {
            parts.push(format!("{} late", count(second.late_generator)));
        }
        parts.join("  ")
    }
}
