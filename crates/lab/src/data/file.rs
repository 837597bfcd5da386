//! Reading a TOML file, with errors that point at the place.

use std::{collections::BTreeMap, fmt, fs, ops::Range, path::Path};

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// PHP settings, variables: names and scalar values.
pub type Settings = BTreeMap<String, Scalar>;

/// A text, a number or a boolean, as the text that a configuration file would have; booleans become 1 and 0, as in php.ini.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Scalar(pub String);

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Scalar;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, a number or true or false")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Scalar, E> {
                Ok(Scalar(u8::from(value).to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Scalar, E> {
                Ok(Scalar(value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Scalar, E> {
                Ok(Scalar(value.to_owned()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A file's text and name, for errors that point into it.
pub struct Source {
    name: String,
    text: String,
}

impl Source {
    /// Reads a file. Errors name it as one would type it from here, if that is shorter.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let here = std::env::current_dir().unwrap_or_default();
        let name = path.strip_prefix(&here).unwrap_or(path).display().to_string();
        let text = fs::read_to_string(path).with_context(|| name.clone())?;
        Ok(Self { name, text })
    }

    /// The file as a value.
    ///
    /// # Errors
    /// `FILE:LINE: what is wrong`.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        toml::from_str(&self.text).map_err(|error| self.wrong(error.span(), error.message()))
    }

    /// An error that points at a place of the file; the file alone if the place is not known.
    pub fn wrong(&self, place: Option<Range<usize>>, message: impl fmt::Display) -> anyhow::Error {
        match place {
            Some(place) => {
                let line = 1 + self.text[..place.start.min(self.text.len())].matches('\n').count();
                anyhow!("{}:{line}: {message}", self.name)
            }
            None => anyhow!("{}: {message}", self.name),
        }
    }
}
