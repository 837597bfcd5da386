//! The report of `hayate explain`: what is in it, how it looks, and the rules by which it gives advice.

use std::{fmt, time::Duration};

use hayate_pool::{DOUBTS, Doubt, Mode, Rewind, Status};
use serde::Serialize;

use super::{Cause, Event, Region, memory::Kind};
use crate::{php_probe, plan::App};

/// Pages above which a sample is worth a word: to put one back costs a tenth of a µs and more, and a µs or two if it was not expected.
const MANY_PAGES: u64 = 500;
/// What the paths of code have in them that is not the application's own.
const LIBRARIES: [&str; 2] = ["/vendor/", "/usr/share/php/"];
/// So many of the largest causes are printed.
const CAUSES: usize = 6;

/// One application.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    name: String,
    php: String,
    /// `classic` or `worker`.
    mode: &'static str,
    /// The worker script.
    script: Option<String>,
    /// `off`, `on` or `fork`.
    rewind: Rewind,
    /// What the worker uses.
    tracking: Option<String>,
    /// What stands in the way of better tracking.
    tracking_why: String,
    /// `shared` or `private`.
    boot: &'static str,
    /// From the start of the process to the first worker that could serve, warm-up and snapshot included, in µs.
    boot_us: u64,
    /// Of that, the worker script as far as its first `hayate_handle_request()`.
    script_us: Option<u64>,
    /// PHP files that it included.
    files: Option<u64>,
    /// Why it is private, or why a framework's boot script is not used.
    remarks: Vec<String>,
    /// Of the process that was booted.
    memory: Vec<Kind>,
    /// Below which path of its host the application is: empty, or `/shop`. Paths of samples begin with it, those of keys do not.
    #[serde(skip)]
    mount: String,
    /// Paths, as the key says them.
    warmup: Vec<String>,
    /// Where it was taken, and of what it consists.
    snapshot: Option<Snapshot>,
    /// What boot-time code did and all requests see.
    frozen: Vec<Event>,
    /// Whose destructors run at the end of each request, although the boot made them.
    destructors: Vec<Event>,
    /// Connections that are open when a worker is ready, and whether they are kept.
    connections: Vec<Event>,
    /// How the warm-up went.
    warmed: Vec<Event>,
    samples: Vec<Sample>,
    /// What of them was not compared with classic mode, and why.
    pub not_compared: Vec<String>,
    advice: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
struct Snapshot {
    at: String,
    us: u64,
    regions: Vec<Region>,
}

/// A sample request: medians of several.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    pub path: String,
    /// Of the last answer.
    pub status: u16,
    /// Where a redirect leads.
    pub location: Option<String>,
    /// Its body.
    pub bytes: u64,
    /// As the client sees it, the rewind not included.
    pub us: u64,
    pub clean_ns: u64,
    pub scan_ns: u64,
    pub copy_ns: u64,
    /// Pages put back because they were found to be written.
    pub cold_pages: u64,
    /// Pages put back without looking, at the end; the most that were seen.
    pub hot_pages: u32,
    /// The handler's time.
    pub php_us: Option<u64>,
    /// CPU time of the worker, all that it does for a request.
    pub cpu_us: Option<u64>,
    /// The same in classic mode, where it was measured.
    pub classic_cpu_us: Option<u64>,
    /// Destructors at the end of the request: of its own objects and of the boot's.
    pub destructors_ns: u64,
    /// PHP files that each request includes, as no warm-up request has.
    pub loaded: u64,
    /// Where the first of them wrote, largest first.
    pub causes: Vec<Cause>,
    /// Why the worker retired rather than be rewound, as in [`Doubt::label`].
    pub retired: Option<&'static str>,
}

impl Event {
    /// The variable of the environment that was read; "all" when no name was asked for.
    fn variable(&self) -> Option<&str> {
        match self {
            Event::Frozen { kind, what, .. } if kind == "environment" => {
                let name = what.strip_prefix("getenv(")?.strip_suffix(')')?;
                Some(if name.is_empty() { "all" } else { name })
            }
            _ => None,
        }
    }
}

impl Sample {
    /// Pages that one request writes.
    fn pages(&self) -> u64 {
        let found: u64 = self.causes.iter().map(|cause| cause.pages).sum();
        if found > 0 { found } else { self.cold_pages + u64::from(self.hot_pages) }
    }
}

impl Report {
    /// `told` is what the host wrote.
    pub fn new(
        app: &App,
        status: &Status,
        boot: Duration,
        memory: Vec<Kind>,
        mut samples: Vec<Sample>,
        told: Vec<Event>,
    ) -> Report {
        let (mut snapshot, mut frozen, mut warmed, mut requests) = (None, Vec::new(), Vec::new(), Vec::new());
        let (mut tracking_why, mut booted, mut destructors) = (String::new(), None, Vec::new());
        let (mut connections, mut primed) = (Vec::new(), Vec::new());
        for event in told {
            match event {
                Event::Snapshot { at, us, tracking_why: why, regions } => {
                    let mut regions = regions;
                    regions.sort_by_key(|region| std::cmp::Reverse(region.pages));
                    snapshot = Some(Snapshot { at, us, regions });
                    tracking_why = why;
                }
                Event::Frozen { .. } => frozen.push(event),
                Event::Warmup { .. } => warmed.push(event),
                // As often as it is named, and by each worker that boots by itself.
                Event::Primed { path, us, status } => {
                    let known =
                        |one: &Event| matches!(one, Event::Warmup { path: known, .. } if *known == path);
                    if !primed.iter().any(known) {
                        primed.push(Event::Warmup { path, us, status });
                    }
                }
                Event::Destructor { .. } => destructors.push(event),
                // Each worker says it.
                Event::Connection { .. } if connections.contains(&event) => {}
                Event::Connection { .. } => connections.push(event),
                Event::Request { us, destructors_ns, loaded, retired, causes } => {
                    requests.push((us, loaded, retired, causes, destructors_ns))
                }
                Event::Retired { why } => {
                    if let Some((_, _, retired, ..)) = requests.last_mut() {
                        *retired = retired.or(Some(why));
                    }
                }
                Event::Boot { us, files } => {
                    // Each worker that boots by itself says all this; it is said once.
                    (snapshot, booted) = (None, Some((us, files)));
                    frozen.clear();
                    destructors.clear();
                    warmed.clear();
                }
                Event::Unknown => {}
            }
        }
        // An application that fell back to classic mode has had them in vain.
        if warmed.is_empty() && app.spec.rewind != Rewind::Off {
            warmed = primed;
        }
        // They come in the order of the requests, which were made one after the other.
        let repetitions = super::REPETITIONS;
        for (sample, requests) in samples.iter_mut().zip(requests.chunks(repetitions)) {
            sample.retired = requests
                .iter()
                .find_map(|(_, _, retired, ..)| Doubt::of((*retired)?))
                .map(|doubt| doubt.label);
            sample.causes = requests.first().map(|(_, _, _, causes, _)| causes.clone()).unwrap_or_default();
            sample.loaded = requests.last().map_or(0, |(_, loaded, ..)| *loaded);
            let mut times: Vec<u64> = requests.iter().map(|(us, ..)| *us).collect();
            times.sort_unstable();
            sample.php_us = times.get(times.len() / 2).copied();
            let mut ends: Vec<u64> = requests.iter().map(|(.., ns)| *ns).collect();
            ends.sort_unstable();
            sample.destructors_ns = ends.get(ends.len() / 2).copied().unwrap_or_default();
        }
        let spec = &app.spec;
        let rewind = status.rewind.as_ref();
        let mut report = Report {
            name: spec.name.clone(),
            php: status.php.clone().unwrap_or_default(),
            mode: status.mode,
            script: match &spec.mode {
                Mode::Worker { script } => Some(script.display().to_string()),
                Mode::Classic => None,
            },
            rewind: spec.rewind,
            tracking: rewind.and_then(|rewind| rewind.tracking).map(str::to_owned),
            tracking_why,
            boot: status.boot,
            boot_us: boot.as_micros() as u64,
            script_us: booted.map(|(us, _)| us),
            files: booted.map(|(_, files)| files),
            remarks: app
                .remark
                .iter()
                .chain(&status.private_boot)
                .chain(&status.cold_boot)
                .chain(&status.boot_remark)
                .cloned()
                .collect(),
            memory,
            mount: app.path.trim_end_matches('/').to_owned(),
            warmup: app.warmup.clone(),
            snapshot,
            frozen,
            destructors,
            connections,
            warmed,
            samples,
            not_compared: Vec::new(),
            advice: Vec::new(),
        };
        if report.tracking_why.is_empty()
            && report.rewind == Rewind::On
            && let Ok(probe) = php_probe::probe(app)
        {
            report.tracking_why = probe.why;
        }
        report.advice = report.advise(status);
        report
    }

    fn advise(&self, status: &Status) -> Vec<String> {
        let mut advice = Vec::new();
        if self.mode == "classic" {
            advice.push(
                "Each request starts afresh, as under php-fpm: nothing is kept, so nothing leaks, and there is nothing to rewind or to warm up. An \
                 application that does much before it looks at its request costs less in worker mode (docs/applications.md)"
                    .into(),
            );
        }
        if self.mode == "worker" && self.rewind == Rewind::Off {
            advice.push(
                "State is kept from one visitor to the next. rewind = \"on\" (--rewind on) gives each a freshly booted application"
                    .into(),
            );
        }
        if self.rewind == Rewind::On && self.tracking.as_deref() == Some("fork") {
            advice.push(format!(
                "Each request runs in a fork, which is many times slower than rewinding: {}",
                self.tracking_why
            ));
        }
        if self.boot == "private" {
            advice.push(
                "Each worker boots by itself, so it starts later and shares less memory. Open connections in the request that needs them"
                    .into(),
            );
        }
        if self.rewind != Rewind::Off && self.warmup.is_empty() {
            advice.push(
                "Without warm-up requests each request loads its classes anew. That is as it should be for a worker script that runs other \
                 scripts in its loop; otherwise name a path that does the usual work: warmup"
                    .into(),
            );
        }
        let mut in_vain: Vec<String> =
            self.in_vain().map(|(path, status)| format!("{path} ({status})")).collect();
        in_vain.dedup();
        if !in_vain.is_empty() {
            advice.push(format!(
                "Warm-up requests that hardly do the usual work, by the status of their answers: {}. Name others: warmup",
                in_vain.join(", ")
            ));
        }
        for (kind, remedy) in [
            (
                "time",
                "The boot read the clock; what it made of it is as old as the boot. Read it in the request",
            ),
            (
                "random",
                "The boot drew random numbers, or seeded a generator; all workers and requests share what it drew and draw the same from \
                 that seed. Draw in the request what must differ",
            ),
            (
                "connection",
                "The boot opened connections. Open them in the request that needs them; a pooled one is opened by a proxy",
            ),
        ] {
            // In a library nobody can avoid it.
            let own = |at: &Option<String>| {
                at.as_ref().is_none_or(|at| !LIBRARIES.iter().any(|part| at.contains(part)))
            };
            if self
                .frozen
                .iter()
                .any(|event| matches!(event, Event::Frozen { kind: k, at, .. } if k == kind && own(at)))
            {
                advice.push(remedy.into());
            }
        }
        for sample in &self.samples {
            if sample.pages() > MANY_PAGES {
                advice.push(format!(
                    "{} writes {} pages, each of which is put back after it. Many objects and large arrays made at boot are written by \
                     merely walking over them (reference counts); make them in the request, or keep them in OPcache as constant arrays",
                    sample.path,
                    sample.pages()
                ));
            }
            if sample.status >= 500 {
                advice.push(format!("{} was answered with {}; see the log", sample.path, sample.status));
            }
        }
        advice.extend(self.advise_warmup());
        advice.extend(self.advise_classic_mode());
        for doubt in DOUBTS.iter().filter(|doubt| status.restarts.contains_key(doubt.label)) {
            advice.push(format!(
                "A worker could not be rewound: {}. To avoid it: {}",
                doubt.what, doubt.remedy
            ));
        }
        advice
    }
}

impl Report {
    /// Which samples cost less in classic mode.
    fn advise_classic_mode(&self) -> Option<String> {
        let dearer: Vec<String> = (self.samples.iter())
            .filter_map(|sample| Some((sample, sample.cpu_us?, sample.classic_cpu_us?)))
            .filter(|(_, worker, classic)| classic < worker)
            .map(|(sample, worker, classic)| format!("{} ({worker} µs of CPU, {classic} µs)", sample.path))
            .collect();
        (!dearer.is_empty()).then(|| {
            format!(
                "With the worker script these cost more than in classic mode: {}. It does too little before its first \
                 hayate_handle_request() to be worth it: mode = \"classic\", or let it load there what each request needs",
                dearer.join(", ")
            )
        })
    }

    /// A path of a URL as keys say it, from the application's front page.
    fn own<'a>(&self, path: &'a str) -> &'a str {
        path.strip_prefix(&*self.mount).filter(|own| own.starts_with('/')).unwrap_or(path)
    }

    /// Warm-up requests that a redirect or an error answered, and its status.
    fn in_vain(&self) -> impl Iterator<Item = (&str, u16)> {
        self.warmed.iter().filter_map(|event| match event {
            Event::Warmup { path, status, .. } if *status >= 300 => Some((self.own(path), *status)),
            _ => None,
        })
    }

    /// Which samples should be warmed up as well, as the line of the configuration that does it.
    fn advise_warmup(&self) -> Option<String> {
        // What was warmed up and loads files all the same keeps its first request; a remark says so.
        let cold: Vec<&Sample> = (self.samples.iter())
            .filter(|sample| sample.loaded > 0 && sample.status < 300)
            .filter(|sample| !self.warmup.iter().any(|path| path == self.own(&sample.path)))
            .collect();
        if self.rewind == Rewind::Off || self.warmup.is_empty() || cold.is_empty() {
            return None;
        }
        let mut paths: Vec<&str> = self.warmup.iter().map(String::as_str).collect();
        paths.dedup();
        paths.retain(|path| !self.in_vain().any(|(in_vain, _)| in_vain == *path));
        paths.extend(cold.iter().map(|sample| self.own(&sample.path)));
        let cold: Vec<String> =
            cold.iter().map(|sample| format!("{} ({} files)", sample.path, sample.loaded)).collect();
        Some(format!(
            "These load PHP files each time, since no warm-up request has loaded them: {}. Warm them up: warmup = {paths:?}",
            cold.join(", ")
        ))
    }
}

fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let script = self.script.as_deref().map(|script| format!(", {script}")).unwrap_or_default();
        writeln!(f, "\n{}: {} mode{script}, PHP {}", self.name, self.mode, self.php)?;
        for remark in &self.remarks {
            writeln!(f, "  {remark}")?;
        }
        write!(f, "  boot        {:.1} ms, {}", self.boot_us as f64 / 1e3, self.boot)?;
        if let (Some(us), Some(files)) = (self.script_us, self.files) {
            write!(f, "; the worker script {:.1} ms of it, {files} PHP files", us as f64 / 1e3)?;
        }
        writeln!(f)?;
        if let Some(snapshot) = &self.snapshot {
            let pages: u64 = snapshot.regions.iter().map(|region| region.pages).sum();
            writeln!(
                f,
                "  snapshot    at {}, {}, in {:.1} ms",
                snapshot.at,
                mb(pages * 4096),
                snapshot.us as f64 / 1e3
            )?;
            for region in &snapshot.regions {
                writeln!(f, "              {:>10}  {}", mb(region.pages * 4096), region.kind)?;
            }
        }
        let (own, all) =
            self.memory.iter().fold((0, 0), |(own, all), kind| (own + kind.own, all + kind.resident));
        writeln!(f, "  memory      {} of its own, {} resident", mb(own), mb(all))?;
        for kind in &self.memory {
            writeln!(f, "              {:>10} {:>10}  {}", mb(kind.own), mb(kind.resident), kind.kind)?;
        }
        if self.mode == "worker" {
            write!(f, "  rewind      {}", self.rewind.name())?;
            if let Some(tracking) = &self.tracking {
                write!(f, ", tracking {tracking}")?;
            }
            if !self.tracking_why.is_empty() {
                write!(f, " ({})", self.tracking_why)?;
            }
            writeln!(f)?;
        }
        if self.rewind != Rewind::Off {
            let paths = if self.warmup.is_empty() { "none".into() } else { self.warmup.join(" ") };
            writeln!(f, "  warm-up     {paths}")?;
            for event in &self.warmed {
                if let Event::Warmup { path, us, status } = event {
                    writeln!(f, "              {path}  {status}  {us} µs")?;
                }
            }
        }
        for event in &self.connections {
            if let Event::Connection { peer, kind, why } = event {
                let kept = if why.is_empty() { "warm" } else { "not kept: " };
                writeln!(f, "  connection  {kind}, {peer}: {kept}{why}")?;
            }
        }
        if !self.frozen.is_empty() {
            writeln!(f, "  frozen      what the boot did, and every request sees:")?;
        }
        for event in &self.frozen {
            if let Event::Frozen { kind, what, at, count } = event
                && kind != "environment"
            {
                let at = at.as_deref().map(|at| format!(" at {at}")).unwrap_or_default();
                let times = if *count == 1 { String::new() } else { format!(", {count} times") };
                writeln!(f, "              {kind}: {what}{at}{times}")?;
            }
        }
        let variables: Vec<&str> = self.frozen.iter().filter_map(Event::variable).collect();
        if !variables.is_empty() {
            writeln!(f, "              environment: {}", variables.join(", "))?;
        }
        let ends: Vec<String> = (self.destructors.iter())
            .filter_map(|event| match event {
                Event::Destructor { what, count: 1 } => Some(what.clone()),
                Event::Destructor { what, count } => Some(format!("{what} × {count}")),
                _ => None,
            })
            .collect();
        if !ends.is_empty() {
            writeln!(f, "  destructors of the boot, at the end of each request: {}", ends.join(", "))?;
        }
        writeln!(f, "  samples     medians of {}, each path with a new worker", super::REPETITIONS)?;
        // In classic mode PHP itself clears up, and nothing is put back.
        let rewinds = self.mode == "worker";
        write!(f, "              {:>6} {:>8} {:>8}", "status", "bytes", "µs")?;
        match rewinds {
            true => writeln!(
                f,
                " {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}  path",
                "PHP µs", "ends µs", "clean µs", "scan µs", "copy µs", "pages"
            )?,
            false => writeln!(f, " {:>8}  path", "CPU µs")?,
        }
        for sample in &self.samples {
            let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
            let known = |us: Option<u64>| us.map(|us| us.to_string()).unwrap_or_default();
            write!(f, "              {:>6} {:>8} {:>8}", sample.status, sample.bytes, sample.us)?;
            match rewinds {
                true => write!(
                    f,
                    " {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}",
                    known(sample.php_us),
                    us(sample.destructors_ns),
                    us(sample.clean_ns),
                    us(sample.scan_ns),
                    us(sample.copy_ns),
                    sample.pages()
                )?,
                false => write!(f, " {:>8}", known(sample.cpu_us))?,
            }
            let leads = sample.location.as_ref().map(|to| format!(" → {to}")).unwrap_or_default();
            writeln!(f, "  {}{leads}", sample.path)?;
            if let Some(doubt) = DOUBTS.iter().find(|doubt| Some(doubt.label) == sample.retired) {
                writeln!(f, "                     the worker was replaced: {}", doubt.what)?;
            }
            for cause in sample.causes.iter().take(CAUSES) {
                writeln!(f, "              {:>6} pages  {}", cause.pages, cause.what)?;
            }
            if let Some(rest) = sample.causes.get(CAUSES..).filter(|rest| !rest.is_empty()) {
                let pages: u64 = rest.iter().map(|cause| cause.pages).sum();
                writeln!(f, "              {pages:>6} pages  elsewhere")?;
            }
        }
        let compared = |sample: &&Sample| sample.cpu_us.is_some() && sample.classic_cpu_us.is_some();
        for (i, sample) in self.samples.iter().filter(compared).enumerate() {
            if i == 0 {
                writeln!(
                    f,
                    "  classic     CPU µs of the worker for a request, with the worker script and in classic mode"
                )?;
            }
            writeln!(
                f,
                "              {:>8} {:>8}  {}",
                sample.cpu_us.unwrap_or_default(),
                sample.classic_cpu_us.unwrap_or_default(),
                sample.path
            )?;
        }
        let mut head = if self.samples.iter().any(|sample| compared(&sample)) { "" } else { "classic" };
        for why in &self.not_compared {
            writeln!(f, "  {head:<11} not compared: {why}")?;
            head = "";
        }
        if !self.advice.is_empty() {
            writeln!(f, "  advice")?;
        }
        for advice in &self.advice {
            writeln!(f, "    - {advice}.")?;
        }
        Ok(())
    }
}
