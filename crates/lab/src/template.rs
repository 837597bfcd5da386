//! Texts with `{{ names }}` in engines' and workloads' files: minijinja, and every name has to exist.

use anyhow::{Context as _, Result, anyhow};
use minijinja::{Environment, UndefinedBehavior};
use serde_json::{Map, Value};

/// What templates find.
#[derive(Clone, Debug, Default)]
pub struct Names(Map<String, Value>);

impl Names {
    /// Sets a name.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Sets `group.name`.
    pub fn set_in(&mut self, group: &str, name: &str, value: impl Into<Value>) {
        let group = self.0.entry(group).or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(group) = group {
            group.insert(name.to_owned(), value.into());
        }
    }

    /// A text, its templates replaced. `place` is what errors call it.
    ///
    /// # Errors
    /// `PLACE, line N: what is wrong`, with the names there are if one is unknown.
    pub fn render(&self, place: &str, text: &str) -> Result<String> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        environment.set_keep_trailing_newline(true);
        environment.set_trim_blocks(true);
        environment.render_str(text, &self.0).map_err(|error| {
            let line = error.line().map_or_else(String::new, |line| format!(", line {line}"));
            let known = match error.kind() {
                minijinja::ErrorKind::UndefinedError => {
                    format!(" (a name that does not exist; there are: {})", self.list())
                }
                _ => String::new(),
            };
            let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
            anyhow!("{place}{line}: {detail}{known}")
        })
    }

    /// All parts of a command.
    ///
    /// # Errors
    /// As [`Names::render`].
    pub fn command(&self, place: &str, command: &[String]) -> Result<Vec<String>> {
        command
            .iter()
            .map(|part| self.render(place, part).with_context(|| format!("command {command:?}")))
            .collect()
    }

    fn list(&self) -> String {
        let mut names = Vec::new();
        for (name, value) in &self.0 {
            match value {
                Value::Object(group) => names.extend(group.keys().map(|key| format!("{name}.{key}"))),
                _ => names.push(name.clone()),
            }
        }
        names.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_unknown_ones_are_errors() {
        let mut names = Names::default();
        names.set("port", 8080);
        names.set_in("entry", "docroot", "/srv");
        let text = "listen {{ port }};\n{% for i in range(2) %}\n{{ entry.docroot }}/{{ i }}\n{% endfor %}\n";
        assert_eq!(names.render("x", text).expect("valid"), "listen 8080;\n/srv/0\n/srv/1\n");
        let error =
            names.render("a.toml: files.\"x\"", "one\n{{ entry.script }}").expect_err("unknown").to_string();
        assert!(error.starts_with("a.toml: files.\"x\", line 2: ") && error.contains("port"), "{error}");
        assert!(names.render("x", "{{ nothing }}").is_err());
    }
}
