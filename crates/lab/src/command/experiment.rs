//! What all experiments have in common: their flags, their results, where those go.

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};

use super::report::print;
use crate::{
    data::{Kind, Lab, Load, LoadText, Metric},
    engine::{Failure, Stage},
    instructions::Counters,
    machine::{self, Machine},
    measure::{Generator, Planned, Pool, Progress, Rounds, Trial, TrialEnd, about, expected, noise},
    output::{csv, html, markdown, status, text},
    result::{FORMAT, Noise, Part, Results, try_file, write_file},
    session::{Session, SessionArgs},
};

/// Where results go.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OutputArgs {
    /// Write everything as JSON, for `report` and `compare`
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write a line for each measurement
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// Write a page with tables and graphs that needs nothing else
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Write the verdicts and a table of each part, for a README
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub markdown: Option<PathBuf>,
}

impl OutputArgs {
    /// Finds out whether all of them can be written.
    ///
    /// # Errors
    /// One cannot.
    fn try_out(&self) -> Result<()> {
        let files = [&self.json, &self.csv, &self.html, &self.markdown];
        files.into_iter().flatten().try_for_each(|file| try_file(file))
    }
}

/// Flags of all experiments.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ExperimentArgs {
    /// How often each engine is measured, in turn [default: 3; what a preset says]
    #[arg(long, short, value_name = "N", help_heading = "Measurement",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// How long each engine is loaded before it is measured
    #[arg(long, value_name = "TIME", help_heading = "Measurement", default_value = "2s",
        value_parser = crate::data::parse_duration)]
    pub warm_up: std::time::Duration,
    /// Count the instructions that engines execute for each request, which a busy machine does not disturb
    #[arg(long, help_heading = "Measurement")]
    pub instructions: bool,
    /// One short round, to see whether it works: no figures to show around. A duration, schedule or number that is given itself holds
    #[arg(long, help_heading = "Measurement")]
    pub quick: bool,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub session: SessionArgs,
}

/// Rounds unless something else is said.
const ROUNDS: u32 = 3;
/// Of a quick load, seconds.
const QUICK: f64 = 2.0;
/// Of a quick warm-up, seconds.
const QUICK_WARM_UP: f64 = 0.5;

impl ExperimentArgs {
    /// Rounds, given what the data says, if it says anything.
    pub fn rounds(&self, of_data: Option<u32>) -> u32 {
        self.rounds.unwrap_or(if self.quick { 1 } else { of_data.unwrap_or(ROUNDS) })
    }

    /// What the machine's flags say, see [`Session::new`].
    ///
    /// # Errors
    /// Flags that make no sense here, or instructions are to be counted and cannot be.
    pub fn session(&self, lab: Lab) -> Result<Session> {
        if self.instructions {
            Counters::try_out()?;
        }
        let mut session = Session::new(lab, &self.session)?;
        session.instructions = self.instructions;
        Ok(session)
    }

    /// Seconds of warm-up.
    pub fn warm_up(&self) -> f64 {
        let seconds = self.warm_up.as_secs_f64();
        if self.quick { seconds.min(QUICK_WARM_UP) } else { seconds }
    }

    /// The load: what the flags say on top of the data's, and shorter if it is to be quick and they do not say how long it is.
    ///
    /// # Errors
    /// The flags contradict each other.
    pub fn load(&self, flags: &LoadText, base: &Load) -> Result<Load> {
        let load = flags.over(base).map_err(anyhow::Error::msg)?;
        Ok(if flags.say_how_long() { load } else { self.shorten(&load) })
    }

    /// A load as it is, or shorter if it is to be quick.
    pub fn shorten(&self, load: &Load) -> Load {
        if self.quick { load.at_most(QUICK) } else { load.clone() }
    }
}

/// An experiment in its course.
pub struct Experiment {
    /// The session.
    pub session: Session,
    /// What was found out so far.
    pub results: Results,
    generator: Generator,
    pool: Pool,
    progress: Progress,
    output: OutputArgs,
}

/// A part before it is measured.
pub struct PartPlan {
    /// As reports show it.
    pub title: String,
    /// What it is about.
    pub about: String,
    /// What is done.
    pub kind: Kind,
    /// What a ladder compares.
    pub metric: Metric,
    /// How often.
    pub rounds: u32,
    /// Seconds.
    pub warm_up: f64,
    /// What ratios are taken against, if the part has it; else php-fpm if it has that; else its first subject.
    pub baseline: Option<String>,
    /// What others published.
    pub references: Vec<crate::data::Reference>,
}

impl Experiment {
    /// Looks at the machine and prepares the generator.
    ///
    /// # Errors
    /// Flags that make no sense here; the generator cannot be prepared.
    pub fn new(session: Session, output: &OutputArgs, title: &str, about: &str) -> Result<Self> {
        output.try_out()?;
        let machine = Machine::look(&session.lab.repository());
        let before = noise::others();
        session.pin()?;
        let results = Results {
            format: FORMAT,
            lab: concat!("hayate-lab ", env!("CARGO_PKG_VERSION")).to_owned(),
            title: title.to_owned(),
            about: about.to_owned(),
            source: String::new(),
            command: std::env::args().collect(),
            started: machine::now(),
            duration: 0.0,
            interrupted: false,
            machine,
            cores: session.cores.clone(),
            php: session.php.clone(),
            workers: session.workers,
            noise: Noise { before, calibrations: Vec::new() },
            parts: Vec::new(),
        };
        let generator = Generator::new(&session)?;
        let (pool, progress) = (Pool::default(), Progress::default());
        Ok(Self { session, results, generator, pool, progress, output: output.clone() })
    }

    /// Says what will be done in all, if that is more than one part.
    pub fn announce<'a>(&mut self, parts: impl IntoIterator<Item = (&'a PartPlan, &'a [Planned])>) {
        let mut count = 0;
        for (plan, planned) in parts {
            self.progress.add(plan.kind, plan.rounds, plan.warm_up, planned);
            count += 1;
        }
        if count > 1 {
            let (measurements, left) = (self.progress.all(), self.progress.left());
            status::say(&format!("{count} parts, {measurements} measurements, {}", about(left)));
        }
    }

    /// Measures a part.
    ///
    /// # Errors
    /// The lab itself failed.
    pub fn part(
        &mut self,
        plan: PartPlan,
        planned: &[Planned],
        measure: impl FnMut(Trial<'_>, &Session, &mut Generator) -> TrialEnd,
    ) -> Result<()> {
        let has = |name: &str| planned.iter().any(|planned| planned.name == name);
        let baseline = plan.baseline.filter(|name| has(name)).or_else(|| {
            if has("php-fpm") {
                Some("php-fpm".to_owned())
            } else {
                planned.first().map(|planned| planned.name.clone())
            }
        });
        self.results.parts.push(Part {
            title: plan.title,
            kind: plan.kind,
            about: plan.about,
            metric: plan.metric,
            rounds: plan.rounds,
            warm_up: plan.warm_up,
            baseline: baseline.filter(|_| planned.len() > 1),
            services: std::collections::BTreeMap::new(),
            subjects: planned.iter().map(|planned| planned.subject(&self.session)).collect(),
            references: plan.references,
        });
        if self.progress.is_over() {
            self.progress.add(plan.kind, plan.rounds, plan.warm_up, planned);
        }
        if let Some(part) = self.results.parts.last() {
            status::say(&format!("{}: {}", part.title, will_be_done(part)));
        }
        let json = self.output.json.clone();
        let mut said = false;
        let mut keep = move |results: &Results| {
            // It may be written in the end, and if not, the results are still printed.
            if let Some(Err(error)) = json.as_ref().map(|file| results.write(file))
                && !std::mem::replace(&mut said, true)
            {
                status::say(&format!("results so far are not kept: {error:#}"));
            }
        };
        Rounds {
            session: &self.session,
            generator: &mut self.generator,
            pool: &mut self.pool,
            progress: &mut self.progress,
            watch: &mut keep,
        }
        .run(&mut self.results, planned, measure)
    }

    /// Prints and writes the results. Exit status 1: an engine failed, or nothing could be measured; 130: the user ended it.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(mut self) -> Result<ExitCode> {
        if !self.results.interrupted {
            self.results.noise.calibrations.push(noise::calibrate(&self.session)?);
        }
        self.pool.stop();
        drop(self.generator);
        let mut results = self.results;
        results.duration = machine::now() - results.started;
        let printed = print(&text::render(&results));
        write_outputs(&results, &self.output).and(printed)?;
        let subjects = || results.parts.iter().flat_map(|part| &part.subjects);
        // An engine that is not installed is no failure of a preset, which names all that somebody may have.
        let failed = |failure: &Failure| failure.stage != Stage::Missing;
        let failed = subjects().any(|subject| subject.failure.as_ref().is_some_and(failed));
        let measured = subjects().any(|subject| !subject.measurements.is_empty());
        Ok(if results.interrupted {
            ExitCode::from(130)
        } else if failed || !measured {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

/// What will be done and how long that may take: `3 engines, 5 rounds, about 2 min`.
fn will_be_done(part: &Part) -> String {
    let here = part.subjects.iter().filter(|subject| subject.failure.is_none());
    let whole: f64 = here.map(|subject| expected(part.kind, &subject.load, part.warm_up)).sum();
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    let (subjects, rounds) = (part.subjects.len(), part.rounds as usize);
    let what = if part.kind == Kind::Ladder { "step" } else { "engine" };
    let time = about(whole * f64::from(part.rounds));
    format!("{subjects} {what}{}, {rounds} round{}, {time}", plural(subjects), plural(rounds))
}

/// Writes all files that were asked for, whether another one can be written or not.
///
/// # Errors
/// One cannot be written.
pub fn write_outputs(results: &Results, output: &OutputArgs) -> Result<()> {
    let write = |file: &Option<PathBuf>, render: &dyn Fn() -> Result<Vec<u8>>| match file {
        Some(file) => write_file(file, &render()?),
        None => Ok(()),
    };
    let json = output.json.as_ref().map_or(Ok(()), |file| results.write(file));
    let csv = write(&output.csv, &|| csv::render(results).context("CSV"));
    let html = write(&output.html, &|| Ok(html::render(results).into_bytes()));
    let markdown = write(&output.markdown, &|| Ok(markdown::render(results).into_bytes()));
    json.and(csv).and(html).and(markdown)
}
