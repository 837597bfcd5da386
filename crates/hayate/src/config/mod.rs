//! hayate.toml: its keys, what their values look like, and errors that say where in the file they are.
//!
//! The doc comments on the keys are the reference: `docs/configuration.md` is made from them (`hayate generate configuration`).

mod error;
mod keys;
mod known;
mod source;
mod values;
mod words;

pub use error::{ConfigError, MOST_ERRORS, Place};
pub use keys::{App, Compression, File, Limits, Rate, Rule, Tls};
pub use known::{nearest, place_of, schema};
pub use source::{Source, Step};
pub use values::{
    AccessLogFormat, AccessLogTo, ChallengeChoice, CodingChoice, ConnectionsChoice, Listen, Listens,
    LogFormat, LogLevel, ModeChoice, OneOrMany, Refusal, RetryChoice, RewindChoice, Scalar, Setting, Size,
    Time, TlsVersion, VerifyChoice, Workers,
};
