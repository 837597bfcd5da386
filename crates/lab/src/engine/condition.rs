//! When a process of an engine is ready.

use std::{net::TcpStream, os::unix::net::UnixStream, path::PathBuf};

use anyhow::{Context, Result};

use crate::{data::ReadyWhen, template::Names};

/// A condition of readiness, its template rendered.
pub(super) enum Condition {
    Socket(PathBuf),
    Port(u16),
    File(PathBuf),
}

impl Condition {
    /// The condition, as a file of the engine says it.
    pub(super) fn render(when: &ReadyWhen, names: &Names, place: &str) -> Result<Self> {
        Ok(match when {
            ReadyWhen::Socket(path) => Self::Socket(names.render(place, path)?.into()),
            ReadyWhen::File(path) => Self::File(names.render(place, path)?.into()),
            ReadyWhen::Port(port) => {
                let port = names.render(place, port)?;
                Self::Port(port.trim().parse().with_context(|| format!("{place}: '{port}' is no port"))?)
            }
        })
    }

    /// Whether it holds now.
    pub(super) fn holds(&self) -> bool {
        match self {
            Self::Socket(path) => UnixStream::connect(path).is_ok(),
            Self::Port(port) => TcpStream::connect(("127.0.0.1", *port)).is_ok(),
            Self::File(path) => path.exists(),
        }
    }
}
