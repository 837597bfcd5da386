//! What an experiment found out, as data: the JSON that `run`, `saturate`, `ladder` and `reproduce` write, and that
//! `report` and `compare` read.
//!
//! Promises: everything that a page or a table shows is in it, so that both can be made again later. Times are seconds
//! unless a name ends otherwise, memory is bytes.

mod doubt;
mod figure;
mod statistics;
mod summary;

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use hayate_load::Report;
use serde::{Deserialize, Serialize};

pub use figure::{intended_rate, value};
pub use statistics::{Interval, Spread, ratio, ratio_unpaired};
pub use summary::{PhaseRow, Row, phases, rows};

use crate::{
    data::{Change, Kind, Load, Metric, Reference},
    engine::Failure,
    instructions::Instructions,
    machine::{Calibration, CoreUse, Cores, Machine},
};

/// Version of the format.
pub const FORMAT: u32 = 1;

/// One call of an experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// See [`FORMAT`].
    pub format: u32,
    /// `hayate-lab` and its version.
    pub lab: String,
    /// As reports show it.
    pub title: String,
    /// What it is about.
    #[serde(default)]
    pub about: String,
    /// Who published the reference figures; empty if there are none.
    #[serde(default)]
    pub source: String,
    /// The command line that made it.
    pub command: Vec<String>,
    /// When it began, seconds since 1970.
    pub started: f64,
    /// How long it took.
    pub duration: f64,
    /// It was interrupted: these are partial results.
    pub interrupted: bool,
    /// Where it ran.
    pub machine: Machine,
    /// Which processors did what.
    pub cores: Cores,
    /// Debian's PHP, such as `8.2`.
    pub php: String,
    /// PHP processes of an engine that does not say otherwise.
    pub workers: u32,
    /// How quiet the machine was.
    pub noise: Noise,
    /// The experiments, in order.
    pub parts: Vec<Part>,
}

/// How quiet the machine was.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Noise {
    /// How busy each processor was in the half second before the lab began anything.
    pub before: Vec<CoreUse>,
    /// Measured again and again in the course of the experiment.
    pub calibrations: Vec<Calibrations>,
}

/// How steady both sides' processors ran at a moment at which the lab itself did nothing else.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Calibrations {
    /// When, seconds since 1970.
    pub at: f64,
    /// The first of the servers' processors.
    pub server: Calibration,
    /// The first of the generator's.
    pub load: Calibration,
}

/// One experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// As reports show it.
    pub title: String,
    /// What was done.
    pub kind: Kind,
    /// What it was about.
    #[serde(default)]
    pub about: String,
    /// What a ladder compares.
    pub metric: Metric,
    /// Rounds that were planned.
    pub rounds: u32,
    /// Seconds of warm-up before each measurement.
    pub warm_up: f64,
    /// Name of the subject that ratios are taken against.
    pub baseline: Option<String>,
    /// Versions of the services.
    pub services: BTreeMap<String, String>,
    /// What was measured.
    pub subjects: Vec<Subject>,
    /// What others published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<Reference>,
}

/// What was measured: an engine with a workload and settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Subject {
    /// Unique in its part: the engine's name, or a step's title.
    pub name: String,
    /// As reports show it.
    pub title: String,
    /// Name of the engine.
    pub engine: String,
    /// What the engine is.
    pub about: String,
    /// Versions of its parts.
    pub version: String,
    /// Name of the workload.
    pub workload: String,
    /// Its title.
    pub workload_title: String,
    /// PHP processes it was asked to have.
    pub workers: u32,
    /// What differed from the engine's files.
    pub change: Change,
    /// How much was asked for.
    pub load: Load,
    /// It runs no application, but answers with a constant or a file: a measure of what is possible, not one of those compared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub yardstick: bool,
    /// For a ladder: which subject it stands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<usize>,
    /// What others measured, in the part's metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<f64>,
    /// Its files and commands, as they were.
    pub configuration: BTreeMap<String, String>,
    /// Why it was not, or no longer, measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// The measurements, one for each round (or for each load of a saturation).
    pub measurements: Vec<Measurement>,
    /// What `saturate` concluded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saturation: Option<Saturation>,
}

/// One load on one engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    /// From 1.
    pub round: u32,
    /// Seconds from the engine's first process until it answered.
    pub start_up: f64,
    /// What the generator saw.
    pub load: Report,
    /// The engine's processes.
    pub server: Usage,
    /// What the engine's processes executed; with `--instructions` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Instructions>,
    /// The services' processes, by service.
    pub services: BTreeMap<String, Usage>,
    /// How the processors were used while the load ran.
    pub cores: Vec<CoreUse>,
    /// Share of the servers' processors, 0 to 1, that neither the engine nor a service used, and that was not idle: work of
    /// others, and of the kernel on the behalf of nobody.
    pub foreign: f64,
    /// The course of it.
    pub samples: Vec<Sample>,
    /// What a reader has to know before believing the figures.
    pub warnings: Vec<String>,
}

/// What a family of processes used while the load ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time in user mode, seconds.
    pub cpu_user: f64,
    /// CPU time in the kernel, seconds.
    pub cpu_system: f64,
    /// CPU in use, in processors, median of the samples.
    pub cpu_median: f64,
    /// The highest sample.
    pub cpu_max: f64,
    /// Proportional set size, bytes, median of the samples.
    pub memory_median: u64,
    /// The highest sample.
    pub memory_max: u64,
    /// Context switches since a thread waited.
    pub voluntary: u64,
    /// Context switches since a thread's time was up.
    pub involuntary: u64,
    /// Processes at the end.
    pub processes: usize,
}

/// A moment of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the load began; the end of the time that the CPU figures are about.
    pub at: f64,
    /// CPU in use by the engine since the last sample, in processors.
    pub server: f64,
    /// The same of all services.
    pub services: f64,
    /// The same of the generator.
    pub generator: f64,
    /// The engine's memory, if this sample looked at it, bytes.
    pub memory: Option<u64>,
}

/// Where an engine's limits are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Saturation {
    /// The rate at which throughput divided by latency is highest: beyond it one pays with waiting. Requests per second.
    pub knee: Option<f64>,
    /// The highest rate of right answers that was seen, requests per second.
    pub limit: f64,
    /// The lowest intended rate that was not served; none if the search ended before.
    pub failed_at: Option<f64>,
    /// What was used up at the limit.
    pub exhausted: Vec<Exhausted>,
    /// In a sentence.
    pub conclusion: String,
}

/// What can be used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exhausted {
    /// The servers' processors.
    ServerCpu,
    /// The databases' processors.
    ServiceCpu,
    /// The engine's processes all wait, while processors are free.
    Workers,
    /// The generator: the server's limit is not known.
    Generator,
    /// Nothing that the lab can see.
    Unknown,
}

impl Results {
    /// Reads what [`Results::write`] wrote.
    ///
    /// # Errors
    /// The file cannot be read, is none of the lab's, or of another version.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| name.to_string())?;
        // Of `load`; its format is another one.
        #[derive(Deserialize)]
        struct OfLoad {
            #[allow(dead_code, reason = "it is there, or not")]
            generator: String,
        }
        if serde_json::from_str::<OfLoad>(&text).is_ok() {
            bail!(
                "{name}: the report of a single `hayate-lab load`; what `run`, `saturate`, `ladder` or `reproduce` wrote with \
                 --json FILE is wanted"
            );
        }
        #[derive(Deserialize)]
        struct Version {
            format: u32,
            lab: String,
        }
        let version: Version = serde_json::from_str(&text)
            .with_context(|| format!("{name}: no results of `hayate-lab run`, `saturate`, `ladder` or `reproduce` (made with --json FILE)"))?;
        if version.format != FORMAT {
            let Version { format, lab } = version;
            bail!("{name}: made by {lab} in format {format}; this program reads format {FORMAT}");
        }
        serde_json::from_str(&text).with_context(|| name.to_string())
    }

    /// Writes JSON; whoever reads meanwhile sees either the old file or the new one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_file(path, serde_json::to_string(self)?.as_bytes())
    }

    /// What a reader has to know of the whole before believing the figures.
    pub fn warnings(&self) -> Vec<String> {
        doubt::warnings(self)
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where a file is written before it takes its place.
fn beside(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().with_context(|| format!("{}: no name of a file", path.display()))?;
    Ok(folder(path).join(format!(".{}.{}", name.to_string_lossy(), std::process::id())))
}

/// Makes that file: a new one, whatever somebody has put there.
fn make(beside: &Path) -> std::io::Result<fs::File> {
    let _ = fs::remove_file(beside);
    fs::File::create_new(beside)
}

/// Writes a file in one step. What is there and is no regular file (a device, a pipe, a link) is written to, and stays what it is.
///
/// # Errors
/// It cannot be written.
pub fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        return fs::write(path, content).with_context(|| path.display().to_string());
    }
    let beside = beside(path)?;
    let written =
        make(&beside).and_then(|mut file| file.write_all(content)).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // What is there may be half a file.
        let _ = fs::remove_file(&beside);
    }
    written.with_context(|| path.display().to_string())
}

/// Finds out whether [`write_file`] will be able to write there, before hours are spent on what is to be written. Changes nothing that is there.
///
/// # Errors
/// It will not.
pub fn try_file(path: &Path) -> Result<()> {
    let name = path.display();
    let what = || format!("{name}: cannot be written, name another file");
    if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
        // Who opens a pipe waits for its reader.
        if fs::metadata(path).is_ok_and(|there| there.file_type().is_fifo()) {
            return Ok(());
        }
        return fs::OpenOptions::new().append(true).create(true).open(path).map(drop).with_context(what);
    }
    let beside = beside(path)?;
    let folder = folder(path);
    if !folder.is_dir() {
        bail!("{name}: there is no folder {}", folder.display());
    }
    make(&beside).and_then(|_| fs::remove_file(&beside)).with_context(what)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::{try_file, write_file};

    #[test]
    fn it_is_known_beforehand_what_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("there"), "before").unwrap();
        symlink(at("nowhere/x"), at("astray")).unwrap();
        let fifo = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(fifo.success());
        for good in [at("there"), at("new"), at("pipe"), "/dev/null".into()] {
            try_file(&good).unwrap();
        }
        assert_eq!(fs::read_to_string(at("there")).unwrap(), "before");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
        for (bad, why) in [
            (at("nowhere/x"), "there is no folder"),
            (at("there/x"), "there is no folder"),
            (at("astray"), "cannot be written"),
            (directory.path().to_owned(), "cannot be written"),
            ("".into(), "no name of a file"),
        ] {
            let said = try_file(&bad).unwrap_err().to_string();
            assert!(said.starts_with(&bad.display().to_string()) && said.contains(why), "{said}");
        }
    }

    /// `--json /dev/null` as root: the device became a file of root's, and nobody else could write there any more.
    #[test]
    fn what_is_no_file_is_written_to_and_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "before, and longer").unwrap();
        symlink(&file, &link).unwrap();
        write_file(&link, b"by a link").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "by a link");
        write_file(&file, b"itself").unwrap();
        assert_eq!(fs::read_to_string(&link).unwrap(), "itself");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
