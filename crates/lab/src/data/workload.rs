//! A workload: an application, what is asked of it, and what has to come back.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::Deserialize;

use super::{
    engine::Command,
    file::{Settings, Source},
    load::{Load, LoadText},
};

/// A workload. See lab/README.md for what the fields mean.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// The folder's name.
    pub name: String,
    /// As tables show it.
    pub title: String,
    /// What it does.
    pub about: String,
    /// Its folder, of which each engine gets a copy; for an overlay that of its base first, and what it adds to it.
    pub folders: Vec<PathBuf>,
    /// Commands run once, before any engine; templates.
    pub prepare: Vec<Command>,
    /// Names of the services it needs.
    pub services: Vec<String>,
    /// Entries by name; their values are templates.
    pub entries: BTreeMap<String, Settings>,
    /// PHP settings of the application.
    pub ini: Settings,
    /// Environment of the application; templates.
    pub env: BTreeMap<String, String>,
    /// Path and query, with `{n}` for a number.
    pub path: String,
    /// Which numbers.
    pub numbers: Option<Numbers>,
    /// Else GET, or POST if there is a body.
    pub method: Option<String>,
    /// Headers of each request.
    pub headers: BTreeMap<String, String>,
    /// Each connection is a visitor who keeps the cookies it is given.
    pub cookies: bool,
    /// Body of each request.
    pub body: Option<String>,
    /// What has to hold before any load; at least one.
    pub checks: Vec<Check>,
    load: Option<Load>,
    /// Statuses that count as OK under load.
    pub expect_status: Option<String>,
    /// Regular expression that an OK answer's body matches under load.
    pub expect_body: Option<String>,
}

/// Numbers at random, the same in each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// The least.
    pub from: u64,
    /// The most.
    pub to: u64,
    /// How many different requests are prepared.
    pub count: u32,
}

/// What an answer has to be like.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// Else the request's path, with the least number.
    pub path: Option<String>,
    /// Else 200.
    pub status: Option<u16>,
    /// Values begin with these.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The whole body.
    pub body: Option<String>,
    /// Parts of the body.
    #[serde(default)]
    pub contains: Vec<String>,
    /// Members of the JSON object that the body is.
    pub json: Option<toml::Table>,
}

/// A file as it is written: everything may be missing, since an overlay says only what differs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadFile {
    base: Option<toml::Spanned<String>>,
    title: Option<String>,
    about: Option<String>,
    prepare: Option<Vec<Command>>,
    service: Option<Vec<Service>>,
    /// Entries of the base that are not served.
    #[serde(default)]
    without: Vec<toml::Spanned<String>>,
    #[serde(default)]
    entry: BTreeMap<String, Settings>,
    #[serde(default)]
    ini: Settings,
    #[serde(default)]
    env: BTreeMap<String, String>,
    request: Option<toml::Spanned<Request>>,
    check: Option<toml::Spanned<Vec<Check>>>,
    load: Option<toml::Spanned<LoadText>>,
    expect: Option<Expect>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    name: String,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    path: String,
    n: Option<Numbers>,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    cookies: bool,
    body: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    status: Option<String>,
    body: Option<String>,
}

impl Workload {
    /// Reads `root/NAME/workload.toml` and the files it is based on.
    pub(super) fn read(root: &Path, name: &str) -> Result<Self> {
        Self::read_above(root, name, &mut Vec::new())
    }

    /// `above`: the overlays that stand on this one.
    fn read_above(root: &Path, name: &str, above: &mut Vec<String>) -> Result<Self> {
        let folder = root.join(name);
        let source = Source::read(&folder.join("workload.toml"))?;
        let file: WorkloadFile = source.parse()?;
        above.push(name.to_owned());
        let mut workload = match &file.base {
            None => Self::default(),
            Some(base) => {
                let (base, place) = (base.get_ref(), Some(base.span()));
                if above.contains(base) {
                    return Err(source.wrong(place, format!("'{base}' is based on itself")));
                }
                if !root.join(base).join("workload.toml").is_file() {
                    return Err(source.wrong(place, format!("there is no '{base}' to be based on")));
                }
                Self::read_above(root, base, above)?
            }
        };
        workload.name = name.to_owned();
        workload.folders.push(folder);
        workload.apply(file, &source)?;
        Ok(workload)
    }

    /// What a file says, on top of what there is.
    fn apply(&mut self, file: WorkloadFile, source: &Source) -> Result<()> {
        let lacks = |key: &str| source.wrong(None, format!("{key} is missing"));
        match file.title {
            Some(title) => self.title = title,
            None if self.title.is_empty() => return Err(lacks("title")),
            None => {}
        }
        if let Some(about) = file.about {
            self.about = about;
        }
        if let Some(prepare) = file.prepare {
            self.prepare = prepare;
        }
        if let Some(services) = file.service {
            self.services = services.into_iter().map(|service| service.name).collect();
        }
        for name in file.without {
            if self.entries.remove(name.get_ref()).is_none() {
                let message = format!("the base has no entry '{}' to be without", name.get_ref());
                return Err(source.wrong(Some(name.span()), message));
            }
        }
        for (name, settings) in file.entry {
            self.entries.entry(name).or_default().extend(settings);
        }
        if self.entries.is_empty() {
            return Err(lacks("[entry.…]"));
        }
        self.ini.extend(file.ini);
        self.env.extend(file.env);
        match file.request {
            Some(request) => self.ask(&request, source)?,
            None if self.path.is_empty() => return Err(lacks("[request]")),
            None => {}
        }
        match file.check {
            Some(checks) if checks.get_ref().is_empty() => {
                return Err(source.wrong(Some(checks.span()), "at least one [[check]] is needed"));
            }
            Some(checks) => self.checks = checks.into_inner(),
            None if self.checks.is_empty() => return Err(lacks("[[check]]")),
            None => {}
        }
        match (file.load, &self.load) {
            (Some(text), base) => {
                let load =
                    base.as_ref().map_or_else(|| text.get_ref().load(), |base| text.get_ref().over(base));
                self.load = Some(load.map_err(|error| source.wrong(Some(text.span()), error))?);
            }
            (None, None) => return Err(lacks("[load]")),
            (None, Some(_)) => {}
        }
        if let Some(expect) = file.expect {
            self.expect_status = expect.status;
            self.expect_body = expect.body;
        }
        Ok(())
    }

    fn ask(&mut self, request: &toml::Spanned<Request>, source: &Source) -> Result<()> {
        let wrong = |message: &str| Err(source.wrong(Some(request.span()), message));
        let request = request.get_ref().clone();
        if !request.path.starts_with('/') {
            return wrong("request.path begins with a /");
        }
        match request.n {
            Some(n) if n.from > n.to || n.count == 0 => {
                return wrong("request.n: from is above to, or count is 0");
            }
            None if request.path.contains("{n}") => {
                return wrong("request.path has {n}: say which with request.n");
            }
            _ => {}
        }
        self.path = request.path;
        self.numbers = request.n;
        self.method = request.method;
        self.headers = request.headers;
        self.cookies = request.cookies;
        self.body = request.body;
        Ok(())
    }

    /// What `run` does if nothing else is said.
    ///
    /// # Panics
    /// Never: reading a workload without a load fails.
    pub fn load(&self) -> &Load {
        self.load.as_ref().unwrap_or_else(|| unreachable!("{} was read", self.name))
    }

    /// The path with the least number, for a single request.
    pub fn first_path(&self) -> String {
        self.path.replace("{n}", &self.numbers.map_or(0, |n| n.from).to_string())
    }

    /// All paths of a load: one, or one for each number.
    pub fn paths(&self) -> Vec<String> {
        match self.numbers {
            None => vec![self.path.clone()],
            Some(numbers) => numbers.all().map(|n| self.path.replace("{n}", &n.to_string())).collect(),
        }
    }
}

impl Numbers {
    /// The numbers, evenly spread, by the SplitMix64 sequence (Steele, Lea and Flood, "Fast splittable pseudorandom number
    /// generators", 2014) from a fixed seed.
    fn all(self) -> impl Iterator<Item = u64> {
        let span = self.to - self.from + 1;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        (0..self.count).map(move |_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            // The high word of a product: no bias worth naming, and no modulo.
            self.from + ((u128::from(z) * u128::from(span)) >> 64) as u64
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn overlays_merge_tables_and_replace_the_rest() {
        let root = tempfile::tempdir().expect("a directory");
        let base = "title = 'base'\n[env]\nA = '1'\nB = '2'\n[entry.php]\ndocroot = 'x'\nscript = 'y'\n[entry.go]\n\
                    [request]\npath = '/'\n[[check]]\n[load]\nconnections = 100\nduration = '6s'\n";
        let over = "base = 'base'\nwithout = ['go']\ntitle = 'over'\nenv = { B = '3' }\nload = { connections = 7 }\n[entry.php]\nscript = 'z'\n";
        for (name, text) in [
            ("base", base),
            ("over", over),
            ("loop", "base = 'loop'"),
            ("none", "title = 'x'\nbase = 'nothing'"),
            ("less", "title = 'x'\nbase = 'base'\nwithout = ['node']"),
        ] {
            fs::create_dir(root.path().join(name)).expect("a folder");
            fs::write(root.path().join(name).join("workload.toml"), text).expect("written");
        }
        let workload = Workload::read(root.path(), "over").expect("valid");
        assert_eq!((workload.name.as_str(), workload.title.as_str()), ("over", "over"));
        assert_eq!(workload.load().to_string(), "7 connections for 6 s");
        assert_eq!(
            workload.env.into_iter().collect::<Vec<_>>(),
            [("A".into(), "1".into()), ("B".into(), "3".into())]
        );
        let entry: Vec<_> =
            workload.entries["php"].iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(entry, ["docroot=x", "script=z"]);
        assert_eq!(workload.entries.len(), 1);
        assert_eq!(workload.folders, [root.path().join("base"), root.path().join("over")]);
        for (name, message) in [
            ("loop", "toml:1: 'loop' is based on itself"),
            ("none", "toml:2: there is no 'nothing'"),
            ("less", "toml:3: the base has no entry 'node'"),
        ] {
            let error = Workload::read(root.path(), name).expect_err(name).to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn numbers_repeat_themselves_and_stay_in_range() {
        let numbers = Numbers { from: 1, to: 1000, count: 5000 };
        let all: Vec<u64> = numbers.all().collect();
        assert_eq!(all, numbers.all().collect::<Vec<_>>());
        assert!(all.iter().all(|n| (1..=1000).contains(n)));
        let mean = all.iter().sum::<u64>() as f64 / 5000.0;
        assert!((450.0..550.0).contains(&mean), "{mean}");
        assert!(all.contains(&1) && all.contains(&1000));
    }
}
