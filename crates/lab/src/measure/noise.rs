//! How quiet the machine is, measured while the lab itself does nothing.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::{
    machine::{self, Calibration, CoreUse, CpuTimes},
    result::Calibrations,
    session::Session,
};

/// How long the machine is watched before the first measurement.
const WATCHED: Duration = Duration::from_millis(500);

/// How busy each processor is with the work of others.
pub fn others() -> Vec<CoreUse> {
    let begin = CpuTimes::now();
    std::thread::sleep(WATCHED);
    CpuTimes::now().since(&begin)
}

/// How steady a processor of each side runs.
///
/// # Errors
/// A thread cannot be made or pinned.
pub fn calibrate(session: &Session) -> Result<Calibrations> {
    let cores = &session.cores;
    let on = |cpus: &[usize]| Calibration::measure(*cpus.first().context("no processor")?);
    Ok(Calibrations { at: machine::now(), server: on(&cores.server)?, load: on(&cores.load)? })
}
