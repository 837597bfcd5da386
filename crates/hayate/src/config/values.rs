//! What values look like: sizes, times, numbers of workers, and the words some keys take. Each reads from the same text on the command
//! line and in the file.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes: `128M`, `64K`, `2G`, or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Size, String> {
        let bad = || format!("'{text}' is no size; write 128M, 64K, 2G or a number of bytes");
        let upper = text.trim().to_ascii_uppercase();
        let digits = upper.trim_end_matches("IB").trim_end_matches('B');
        let (digits, shift) = match digits.as_bytes().last() {
            Some(b'K') => (&digits[..digits.len() - 1], 10),
            Some(b'M') => (&digits[..digits.len() - 1], 20),
            Some(b'G') => (&digits[..digits.len() - 1], 30),
            _ => (digits, 0),
        };
        let n: u64 = digits.trim().parse().map_err(|_| bad())?;
        n.checked_mul(1 << shift).map(Size).ok_or_else(bad)
    }
}

/// A length of time: `30s`, `500ms`, `1m 30s`, or a plain number of seconds; `off` where there need be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Option<Duration>);

/// The longest time; what is to have no end is `off`.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl FromStr for Time {
    type Err = String;
    fn from_str(text: &str) -> Result<Time, String> {
        if matches!(text, "off" | "0") {
            return Ok(Time(None));
        }
        let time = match text.parse() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => humantime::parse_duration(text)
                .map_err(|_| format!("'{text}' is no length of time; write 30s, 500ms, 1m or off"))?,
        };
        match time {
            Duration::ZERO => Ok(Time(None)),
            _ if time < Duration::from_millis(1) || time > LONGEST => {
                Err(format!("'{text}' is out of range; write 1ms to 365d, or off"))
            }
            _ => Ok(Time(Some(time))),
        }
    }
}

/// MIN and MAX: `4` or `2-8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workers {
    /// Always running.
    pub min: u32,
    /// Never more.
    pub max: u32,
}

impl FromStr for Workers {
    type Err = String;
    fn from_str(text: &str) -> Result<Workers, String> {
        let number = |part: &str| {
            let n: u32 = part
                .trim()
                .parse()
                .map_err(|_| format!("'{text}' is no number of workers; write 4 or 2-8"))?;
            match n {
                1..=1024 => Ok(n),
                _ => Err(format!("'{text}': the number of workers is between 1 and 1024")),
            }
        };
        let (min, max) = match text.split_once('-') {
            Some((min, max)) => (number(min)?, number(max)?),
            None => (number(text)?, number(text)?),
        };
        if max < min {
            return Err(format!(
                "'{text}': the most workers ({max}) are fewer than the least ({min}); write {max}-{min}"
            ));
        }
        Ok(Workers { min, max })
    }
}

impl fmt::Display for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{}-{}", self.min, self.max) }
    }
}

/// Where the access log goes: `off`, `-` for standard output, or a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AccessLogTo {
    /// Nowhere.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// Appended to a file.
    File(PathBuf),
}

impl FromStr for AccessLogTo {
    type Err = String;
    fn from_str(text: &str) -> Result<AccessLogTo, String> {
        Ok(match text {
            "" => return Err("write off, - or the path of a file".into()),
            "off" => AccessLogTo::Off,
            "-" => AccessLogTo::Stdout,
            file => AccessLogTo::File(file.into()),
        })
    }
}

impl Serialize for AccessLogTo {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            AccessLogTo::Off => serializer.serialize_str("off"),
            AccessLogTo::Stdout => serializer.serialize_str("-"),
            AccessLogTo::File(path) => path.serialize(serializer),
        }
    }
}

/// Reads a value from a string or a whole number in the file, by its `FromStr`.
macro_rules! from_text {
    ($($type:ty, $expecting:literal;)*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                #[serde(untagged, expecting = $expecting)]
                enum Text {
                    String(String),
                    Number(u64),
                }
                let text = match Text::deserialize(deserializer)? {
                    Text::String(text) => text,
                    Text::Number(n) => n.to_string(),
                };
                text.parse().map_err(de::Error::custom)
            }
        }
    )*};
}
from_text!(
    Size, "expected a size: \"128M\", or a whole number of bytes from 0 on";
    Time, "expected a length of time: \"30s\", or a whole number of seconds from 0 on";
    Workers, "expected a number of workers: 4 or \"2-8\"";
    AccessLogTo, "expected \"off\", \"-\" or the path of a file";
);

/// The status with which a rule refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal(pub u16);

impl<'de> Deserialize<'de> for Refusal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "expected a status such as 403; networks that are kept out are the rule's address, those that get through its allow"
        )]
        enum Status {
            Number(u16),
        }
        let Status::Number(status) = Status::deserialize(deserializer)?;
        Ok(Refusal(status))
    }
}

/// How PHP runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ModeChoice {
    /// Each request starts afresh, as in php-fpm.
    Classic,
    /// The application boots once, then handles requests.
    Worker,
}

/// What happens between two requests of worker mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum RewindChoice {
    /// The process is rewound to the booted application.
    On,
    /// Its state is kept.
    Off,
    /// Each request runs in a fork of the booted application.
    Fork,
}

/// What becomes of connections to databases that are open when a worker is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ConnectionsChoice {
    /// Nothing: a request opens what it needs.
    Request,
    /// They stay open over rewinds.
    Warm,
}

impl From<ConnectionsChoice> for hayate_pool::Connections {
    fn from(choice: ConnectionsChoice) -> Self {
        match choice {
            ConnectionsChoice::Request => Self::Request,
            ConnectionsChoice::Warm => Self::Warm,
        }
    }
}

impl From<RewindChoice> for hayate_pool::Rewind {
    fn from(choice: RewindChoice) -> Self {
        match choice {
            RewindChoice::On => Self::On,
            RewindChoice::Off => Self::Off,
            RewindChoice::Fork => Self::Fork,
        }
    }
}

/// Which requests run once more when the worker dies that had taken them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RetryChoice {
    /// None.
    Off,
    /// Those with an idempotent method.
    Idempotent,
}

/// How a line of the access log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// As Apache and nginx call it.
    #[default]
    Combined,
    /// One JSON object a line.
    Json,
}

/// How a line of Hayate's own log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Compact,
    /// One JSON object a line.
    Json,
}

/// How much Hayate's own log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Only what is broken.
    Error,
    /// And what may break.
    Warn,
    /// And what happens: starts, reloads, PHP's own messages.
    #[default]
    Info,
    /// And what the pools do.
    Debug,
    /// And more.
    Trace,
}

/// One value, or several in an array.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string or an array of strings")]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl OneOrMany {
    /// As a list.
    pub fn into_vec(self) -> Vec<String> {
        match self {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

/// An address to listen on: `":80"`, or `{ address = ":443", tls = true, proxy_protocol = false }`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected an address, or { address = \":443\", tls = true, proxy_protocol = false }"
)]
pub enum Listen {
    /// As text.
    Address(String),
    /// With how its connections begin.
    Table(ListenTable),
}

/// See [`Listen`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenTable {
    /// The address.
    pub address: String,
    /// With TLS; by itself on ports 443 and 8443, once there are certificates.
    pub tls: Option<bool>,
    /// With the PROXY protocol, believed from `trusted_proxies` only.
    #[serde(default)]
    pub proxy_protocol: bool,
}

/// One address or several.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected an address, { address = \":443\", tls = true, proxy_protocol = false }, or an array of them"
)]
pub enum Listens {
    /// One.
    One(Listen),
    /// Several.
    Many(Vec<Listen>),
}

impl Listens {
    /// As a list.
    pub fn into_vec(self) -> Vec<Listen> {
        match self {
            Listens::One(one) => vec![one],
            Listens::Many(many) => many,
        }
    }
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table: write [{ certificate = \"shop.pem\", key = \"shop.key\" }]"
)]
pub struct CertificateFiles {
    /// The certificate, followed by those that lead to its authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// How a certificate authority sees that a host is served here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub enum ChallengeChoice {
    /// By HTTP, on port 80.
    #[default]
    #[serde(rename = "http-01")]
    Http01,
    /// By TLS, on port 443.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodingChoice {
    /// Zstandard.
    Zstd,
    /// Brotli.
    Br,
    /// gzip.
    Gzip,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub enum TlsVersion {
    /// 1.2
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// 1.3
    #[serde(rename = "1.3")]
    Tls13,
}

/// Whether clients have to show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VerifyChoice {
    /// They are not asked.
    #[default]
    Off,
    /// They are asked.
    Optional,
    /// Without one they are turned away.
    Required,
}

/// A php.ini setting or an environment variable: text, a number, or true and false, which PHP reads as 1 and 0.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string, a number, true or false")]
pub enum Scalar {
    /// true, false
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// Text.
    String(String),
}

/// What a setting of php.ini is: one value, or several of a setting that php.ini may hold several times (`extension`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a string, a number, true or false, or an array of those")]
pub enum Setting {
    /// One.
    One(Scalar),
    /// Each in a line of its own, in this order.
    Many(Vec<Scalar>),
}

impl Setting {
    /// The values, in order.
    pub fn into_values(self) -> Vec<String> {
        match self {
            Setting::One(value) => vec![value.to_string()],
            Setting::Many(values) => values.iter().map(Scalar::to_string).collect(),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(b) => write!(f, "{}", u8::from(*b)),
            Scalar::Integer(n) => write!(f, "{n}"),
            Scalar::Float(n) => write!(f, "{n}"),
            Scalar::String(text) => write!(f, "{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let size = |text: &str| text.parse::<Size>().map(|size| size.0);
        assert_eq!(size("128M"), Ok(128 << 20));
        assert_eq!(size("64k"), Ok(64 << 10));
        assert_eq!(size("2 GiB"), Ok(2 << 30));
        assert_eq!(size("4096"), Ok(4096));
        for bad in ["", "M", "-1", "1.5M", "12T", "99999999999G"] {
            assert!(size(bad).unwrap_err().contains("write 128M"), "{bad}");
        }
    }

    #[test]
    fn times() {
        let time = |text: &str| text.parse::<Time>().map(|time| time.0);
        assert_eq!(time("30s"), Ok(Some(Duration::from_secs(30))));
        assert_eq!(time("1m 30s"), Ok(Some(Duration::from_secs(90))));
        assert_eq!(time("500ms"), Ok(Some(Duration::from_millis(500))));
        assert_eq!(time("45"), Ok(Some(Duration::from_secs(45))));
        assert_eq!(time("off"), Ok(None));
        assert_eq!(time("0s"), Ok(None));
        assert!(time("soon").unwrap_err().contains("write 30s"));
        assert_eq!(time("365d"), Ok(Some(LONGEST)));
        for bad in ["366d", "1us", "99999999999999"] {
            assert!(time(bad).unwrap_err().ends_with("write 1ms to 365d, or off"), "{bad}");
        }
    }

    #[test]
    fn workers() {
        let workers = |text: &str| text.parse::<Workers>();
        assert_eq!(workers("4"), Ok(Workers { min: 4, max: 4 }));
        assert_eq!(workers("2-8"), Ok(Workers { min: 2, max: 8 }));
        assert!(workers("8-2").unwrap_err().contains("write 2-8"));
        assert!(workers("0").unwrap_err().contains("between 1 and 1024"));
        assert!(workers("2000").is_err() && workers("many").is_err() && workers("-3").is_err());
    }
}
