//! Certificates from a certificate authority, by ACME (RFC 8555), and their renewal when the authority suggests it (ARI, RFC 9773).
//!
//! [`Keeper`] is the thread that does it. What it has is in the [`Store`], a directory that several servers may share: whoever holds a name's
//! lock orders its certificate, the others find it there.
//!
//! ```text
//!  Missing ──► Ordering ──► Valid ──► (its time has come) ──► Ordering
//!                 │ fails       ▲                                 │ fails
//!                 ▼             └─── the old one is served on ◄───┤
//!              Waiting (a pause that doubles, kept in the store) ◄┘
//! ```

mod demand;
mod keeper;
mod order;
mod store;
mod vouching;

pub use demand::Ask;
pub use keeper::{Keeper, Wanted};
pub use store::Store;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::Pem;

/// How the authority sees that a name is served here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Challenge {
    /// It asks for a file by HTTP, on port 80.
    #[default]
    Http01,
    /// It connects by TLS, on port 443.
    TlsAlpn01,
}

/// Whom to ask, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// Its directory.
    pub directory: String,
    /// Where it writes to, if anywhere.
    pub contact: Option<String>,
    /// Who vouches for the authority's own server; `None`: the system's list.
    pub root: Option<Pem>,
    /// The challenge.
    pub challenge: Challenge,
    /// Its name for a kind of certificate.
    pub profile: Option<String>,
    /// An account that its users have elsewhere: its identifier, and the key, decoded.
    pub external: Option<(String, Secret)>,
    /// Where accounts and certificates are kept.
    pub storage: PathBuf,
    /// What may be had when somebody connects to it.
    pub on_demand: OnDemand,
}

/// Names that get a certificate when somebody first asks for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDemand {
    /// Host names, or wildcards.
    pub patterns: Vec<String>,
    /// Who knows which of them there are.
    pub ask: Option<Ask>,
}

/// Bytes that are not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}
