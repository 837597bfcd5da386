//! Certificates: read from files, chosen by the name that a client asks for, had from a certificate authority by ACME.
//!
//! It promises: a certificate is looked at before it is used (it has names, it fits its key), one that is broken never takes the place of one
//! that works; choosing one waits for nothing; all that waits for the network or a disk happens on a thread of its own, bounded in time.
//! It knows nothing of sites, of HTTP, or of PHP.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::todo
    )
)]

pub mod acme;
mod authority;
mod certificate;
mod client;
mod distinguished_name;
mod names;
mod pair;
mod resolver;
mod self_signed;
mod server;
mod verifier;

pub use authority::doubts as doubts_about_authorities;
pub use certificate::{Certificate, Fault, Pem};
pub use client::ClientCertificate;
pub use names::{is_name, matches};
pub use pair::Pair;
pub use resolver::Resolver;
pub use self_signed::self_signed;
pub use server::{MinVersion, ServerFault, Verify, server};
