//! A certificate and its key as two files hold them, with where they are from.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Certificate, Fault, Pem};

/// See the module. Both files may be one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The chain's file.
    pub certificate: PathBuf,
    /// The key's file.
    pub private: PathBuf,
    /// What the first held.
    pub chain: Pem,
    /// What the second held.
    pub key: Pem,
}

impl Pair {
    /// Looks at them. The error names the file that is wrong.
    pub fn parse(&self) -> Result<Certificate, String> {
        Certificate::from_pem(self.chain.0.as_bytes(), self.key.0.as_bytes()).map_err(|fault| {
            let file = match fault {
                Fault::NoKey(_) | Fault::WrongKey(_) | Fault::Encrypted => self.private.display().to_string(),
                Fault::NoPair | Fault::Swapped => {
                    format!("{} and {}", self.certificate.display(), self.private.display())
                }
                _ => self.certificate.display().to_string(),
            };
            format!("{file}: {fault}")
        })
    }
}
