//! Hayate's own log: standard error, for people or as JSON.

use std::io::{self, IsTerminal};

use tracing_subscriber::{Layer, filter::LevelFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::config::{LogFormat, LogLevel};

/// Sets the log up. To be called once.
pub fn init(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let layer = fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let layer = match format {
        LogFormat::Compact => layer.compact().boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(level)).init();
}
