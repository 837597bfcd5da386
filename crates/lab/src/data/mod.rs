//! The lab's data: engines, workloads, services, ladders, presets, as files below one folder.
//!
//! Promises: an error names the file and the line; an unknown name comes with those that are like it. Must never start
//! anything.

mod engine;
mod file;
mod ladder;
mod load;
mod preset;
mod workload;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

pub use engine::{Command, Engine, Extensions, FileSource, Proof, ReadyWhen, TLS_PORT};
pub use file::{Scalar, Settings};
pub use ladder::{Change, Ladder, Metric};
pub use load::{Load, LoadText, Protocol, parse_duration};
pub use preset::{Kind, Part, Preset, Reference};
pub use workload::{Check, Workload};

/// The folder with the data.
#[derive(Clone, Debug)]
pub struct Lab {
    /// Absolute.
    pub root: PathBuf,
}

impl Lab {
    /// The folder that was named; else `lab/` above the working directory, or above this program; else where
    /// `make install` puts it, `share/hayate/lab` beside the program's `bin/`.
    ///
    /// # Errors
    /// There is none.
    pub fn find(named: Option<&Path>) -> Result<Self> {
        let is_lab = |folder: &Path| folder.join("engines").is_dir() && folder.join("workloads").is_dir();
        if let Some(folder) = named {
            let root = fs::canonicalize(folder).with_context(|| folder.display().to_string())?;
            if !is_lab(&root) {
                bail!("{}: no folder of the lab, it has no engines/ and workloads/", root.display());
            }
            return Ok(Self { root });
        }
        let program = std::env::current_exe().context("the path of this program")?;
        let here = std::env::current_dir().context("the working directory")?;
        let above = |path: &Path| path.ancestors().map(|folder| folder.join("lab")).collect::<Vec<_>>();
        let mut candidates = above(&here);
        candidates.extend(above(&program));
        candidates.extend(program.ancestors().nth(2).map(|prefix| prefix.join("share/hayate/lab")));
        match candidates.into_iter().find(|folder| is_lab(folder)) {
            Some(root) => Ok(Self { root }),
            None => {
                bail!(
                    "the lab's data is neither in lab/ above {} nor where `make install` puts it: say where it is with \
                     --lab FOLDER",
                    here.display()
                )
            }
        }
    }

    /// What lies above the folder: the repository, if it is one.
    pub fn repository(&self) -> PathBuf {
        self.root.parent().unwrap_or(&self.root).to_owned()
    }

    /// Names of engines, sorted.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn engine_names(&self) -> Result<Vec<String>> {
        self.names("engines")
    }

    /// Names of ladders, sorted.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn ladder_names(&self) -> Result<Vec<String>> {
        self.names("ladders")
    }

    /// Names of presets, sorted.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn preset_names(&self) -> Result<Vec<String>> {
        self.names("presets")
    }

    /// Names of workloads, sorted.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn workload_names(&self) -> Result<Vec<String>> {
        let folder = self.root.join("workloads");
        let mut names = BTreeSet::new();
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry.with_context(|| folder.display().to_string())?.path();
            if path.join("workload.toml").is_file()
                && let Some(name) = path.file_name()
            {
                names.insert(name.to_string_lossy().into_owned());
            }
        }
        Ok(names.into_iter().collect())
    }

    fn names(&self, kind: &str) -> Result<Vec<String>> {
        let folder = self.root.join(kind);
        let mut names = BTreeSet::new();
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry.with_context(|| folder.display().to_string())?.path();
            if path.extension().is_some_and(|extension| extension == "toml")
                && let Some(name) = path.file_stem()
            {
                names.insert(name.to_string_lossy().into_owned());
            }
        }
        Ok(names.into_iter().collect())
    }

    /// The engine with this name, its overlays applied.
    ///
    /// # Errors
    /// There is none, or its file is wrong.
    pub fn engine(&self, name: &str) -> Result<Engine> {
        self.known("engine", name, &self.engine_names()?)?;
        Engine::read(&self.root.join("engines"), name)
    }

    /// The service with this name.
    ///
    /// # Errors
    /// There is none, or its file is wrong.
    pub fn service(&self, name: &str) -> Result<Engine> {
        self.known("service", name, &self.names("services")?)?;
        Engine::read(&self.root.join("services"), name)
    }

    /// The workload with this name; or, if it has a slash in it, the one in this folder.
    ///
    /// # Errors
    /// There is none, or its file is wrong.
    pub fn workload(&self, name: &str) -> Result<Workload> {
        if name.contains('/') {
            let folder = fs::canonicalize(name).with_context(|| name.to_owned())?;
            let (root, name) = (folder.parent().unwrap_or(&folder), folder.file_name().unwrap_or_default());
            return Workload::read(root, &name.to_string_lossy());
        }
        self.known("workload", name, &self.workload_names()?)?;
        Workload::read(&self.root.join("workloads"), name)
    }

    /// The ladder with this name.
    ///
    /// # Errors
    /// There is none, or its file is wrong, or it names what does not exist.
    pub fn ladder(&self, name: &str) -> Result<Ladder> {
        self.known("ladder", name, &self.ladder_names()?)?;
        Ladder::read(self, &self.root.join("ladders").join(format!("{name}.toml")), name)
    }

    /// The preset with this name.
    ///
    /// # Errors
    /// There is none, or its file is wrong, or it names what does not exist.
    pub fn preset(&self, name: &str) -> Result<Preset> {
        self.known("preset", name, &self.preset_names()?)?;
        Preset::read(self, &self.root.join("presets").join(format!("{name}.toml")))
    }

    fn known(&self, kind: &str, name: &str, names: &[String]) -> Result<()> {
        if names.iter().any(|known| known == name) {
            return Ok(());
        }
        bail!("there is no {kind} '{name}'{}", suggestions(name, names))
    }
}

/// `; did you mean …?` with the names that are like the given one, or all of them.
pub fn suggestions(name: &str, names: &[String]) -> String {
    let mut near: Vec<(f64, &String)> = names
        .iter()
        .map(|known| (strsim::jaro_winkler(&name.to_lowercase(), known), known))
        .filter(|(likeness, known)| *likeness > 0.8 || known.contains(name) || name.contains(known.as_str()))
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    if near.is_empty() {
        return match names {
            [] => "; there are none at all".to_owned(),
            names => format!("; there are {}", names.join(", ")),
        };
    }
    let near: Vec<_> = near.iter().take(3).map(|(_, known)| format!("'{known}'")).collect();
    format!("; did you mean {}?", near.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lab() -> Lab {
        Lab { root: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab") }
    }

    #[test]
    fn everything_in_the_repository_is_valid() {
        let lab = lab();
        for name in lab.engine_names().expect("engines") {
            lab.engine(&name).unwrap_or_else(|error| panic!("{error:#}"));
        }
        for name in lab.workload_names().expect("workloads") {
            lab.workload(&name).unwrap_or_else(|error| panic!("{error:#}"));
        }
        for name in lab.names("services").expect("services") {
            lab.service(&name).unwrap_or_else(|error| panic!("{error:#}"));
        }
        for name in lab.ladder_names().expect("ladders") {
            lab.ladder(&name).unwrap_or_else(|error| panic!("{error:#}"));
        }
        for name in lab.preset_names().expect("presets") {
            lab.preset(&name).unwrap_or_else(|error| panic!("{error:#}"));
        }
    }

    #[test]
    fn unknown_names_come_with_suggestions() {
        let error = lab().engine("phpfpm").expect_err("unknown").to_string();
        assert!(error.starts_with("there is no engine 'phpfpm'; did you mean 'php-fpm'"), "{error}");
        let error = lab().workload("zzzz").expect_err("unknown").to_string();
        assert!(error.contains("there are ") && error.contains("status"), "{error}");
    }
}
