//! Rules as they are configured: plain values that travel with the plan. [`super::Rules::new`] says what is wrong with them.

use std::{net::IpAddr, path::PathBuf, time::Duration};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// One rule: which requests it is for, and what becomes of them. Of several conditions all have to hold, of a list one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleSpec {
    /// Path prefixes of whole components.
    pub path: Vec<String>,
    /// Patterns for the whole path.
    pub glob: Vec<String>,
    /// Regular expressions that are looked for in the path.
    pub regex: Vec<String>,
    /// Methods.
    pub method: Vec<String>,
    /// Names of headers, and regular expressions for their values.
    pub header: Vec<(String, String)>,
    /// Networks of who asks.
    pub address: Vec<IpNet>,
    /// The only networks that get through.
    pub allow: Option<Vec<IpNet>>,
    /// How often.
    pub rate: Option<RateSpec>,
    /// By which password.
    pub basic_auth: Option<AuthSpec>,
    /// The greatest body, in bytes; 0: any.
    pub max_body: Option<u64>,
    /// How long PHP may run.
    pub timeout: Option<Duration>,
    /// What is done to the answer's headers.
    pub headers: HeadersSpec,
    /// In place of what the answer says.
    pub cache_control: Option<String>,
    /// Another path to answer with.
    pub rewrite: Option<String>,
    /// Where the visitor is sent.
    pub redirect: Option<String>,
    /// The body of an answer of its own.
    pub respond: Option<String>,
    /// Status of a redirect, or of such an answer.
    pub status: Option<u16>,
    /// Status of a refusal.
    pub deny: Option<u16>,
    /// A directory to answer from.
    pub alias: Option<PathBuf>,
    /// No rule after this one is looked at.
    pub stop: bool,
}

impl RuleSpec {
    /// Whether no request is left out.
    pub fn is_for_all(&self) -> bool {
        let paths = self.path.is_empty() && self.glob.is_empty() && self.regex.is_empty();
        paths && self.method.is_empty() && self.header.is_empty() && self.address.is_empty()
    }
}

/// So many requests in a time, and so many more at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateSpec {
    /// Requests, 1 to 1,000,000.
    pub requests: u32,
    /// In this time, 1 ms to a day.
    pub per: Duration,
    /// Beyond that at once.
    pub burst: u32,
    /// Who is counted as one.
    pub by: RateBy,
}

/// What requests are counted by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RateBy {
    /// The visitor's address; 64 bits of one of IPv6.
    #[default]
    Address,
    /// The value of a header, in lower case.
    Header(String),
    /// The path.
    Path,
    /// All together.
    All,
}

/// Who may get through by a password.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthSpec {
    /// What browsers show.
    pub realm: String,
    /// Lines of an htpasswd file.
    pub users: String,
}

/// What is done to the answer's headers, in this order: `remove`, `set`, `add`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeadersSpec {
    /// In place of those of the same name.
    pub set: Vec<(String, String)>,
    /// Beside those of the same name.
    pub add: Vec<(String, String)>,
    /// Names.
    pub remove: Vec<String>,
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its place among the rules, from 0.
    pub rule: usize,
    /// The key.
    pub key: &'static str,
    /// What is wrong, and what to write.
    pub message: String,
}

/// An address as it is counted: whoever has one address of IPv6 has the 2^64 beside it.
pub(crate) fn client_of(addr: IpAddr) -> IpAddr {
    within(addr, 32, 64)
}

/// The network of an address, as large as one holder mostly has: a /24 of IPv4, a /48 of IPv6.
pub(crate) fn network_of(addr: IpAddr) -> IpAddr {
    within(addr, 24, 48)
}

/// The first address of those that have so many first bits of this one.
fn within(addr: IpAddr, v4: u8, v6: u8) -> IpAddr {
    let addr = match addr.to_canonical() {
        // A translator's word for an address of IPv4 (RFC 6052, 2.1): all of IPv4 would be one client.
        IpAddr::V6(addr) => match addr.octets() {
            [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d] => IpAddr::from([a, b, c, d]),
            _ => IpAddr::V6(addr),
        },
        addr => addr,
    };
    let bits = if addr.is_ipv4() { v4 } else { v6 };
    IpNet::new(addr, bits).map_or(addr, |net| net.network())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv4_is_one_client_however_it_comes() {
        let client = |text: &str| client_of(text.parse().unwrap()).to_string();
        for (text, want) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("64:ff9b::192.0.2.1", "192.0.2.1"),
            ("64:ff9b::198.51.100.7", "198.51.100.7"),
            // A network's own prefix (RFC 8215) says nothing of where the address stands.
            ("64:ff9b:1::192.0.2.1", "64:ff9b:1::"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(client(text), want, "{text}");
        }
        assert_eq!(network_of("64:ff9b::192.0.2.1".parse().unwrap()).to_string(), "192.0.2.0");
    }
}
