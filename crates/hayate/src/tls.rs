//! TLS of the running server: one resolver and one thread that keeps certificates, for as long as the front lives. A reload changes what
//! they have; the configuration of rustls, and with it the keys of session tickets, is made anew only if it has to be.

use std::{io, sync::Arc, time::Duration};

use hayate_certificates::{
    MinVersion, Pair, Resolver, Verify,
    acme::{Keeper, Wanted},
    server,
};
use hayate_front::Http3;
use hayate_http::{
    Secret,
    tls::{Config, alpn},
};
use tokio::time::timeout;

use crate::plan::Tls;

/// How long a change of certificates may take to be in force. Orders are not waited for: longer takes only a disk that hangs.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Default)]
pub struct Certificates {
    running: Option<Running>,
    /// What was asked for last.
    wanted: Option<Wanted>,
}

struct Running {
    resolver: Arc<Resolver>,
    keeper: Keeper,
    made: Option<(MinVersion, Verify, Config)>,
    made_http3: Option<(Verify, Config)>,
}

impl Certificates {
    /// What the front needs for a plan's TLS. Returns when the certificates that are there are in force. An error says why they are not, and
    /// changes nothing; but for the first plan it is only logged, for there is nothing to go back to.
    pub async fn install(
        &mut self,
        tls: Option<&Tls>,
        secret: &Secret,
    ) -> Result<Option<hayate_front::Tls>, String> {
        if tls.is_some() && self.running.is_none() {
            self.running = Some(
                Running::start()
                    .map_err(|error| format!("cannot start the thread for certificates: {error}"))?,
            );
        }
        let wanted = tls.map(|tls| Wanted {
            pairs: tls.pairs.clone(),
            self_signed: tls.self_signed.clone(),
            authority: tls.authority.clone(),
            hosts: tls.hosts.clone(),
        });
        let before = self.wanted.clone();
        if let Err(why) = self.want(wanted.unwrap_or_default()).await {
            let Some(before) = before else {
                tracing::error!("{why}");
                return self.served(tls, secret);
            };
            if let Some(running) = &self.running {
                // What comes of it is logged.
                drop(running.keeper.want(before.clone()));
            }
            self.wanted = Some(before);
            return Err(why);
        }
        self.served(tls, secret)
    }

    fn served(&mut self, tls: Option<&Tls>, secret: &Secret) -> Result<Option<hayate_front::Tls>, String> {
        let (Some(tls), Some(running)) = (tls, &mut self.running) else { return Ok(None) };
        Ok(Some(hayate_front::Tls {
            config: running.config(tls)?,
            http3: running.http3(tls, secret)?,
            keeper: running.keeper.clone(),
            redirect: tls.redirect,
            public_port: tls.public_port,
            hsts: tls.hsts,
        }))
    }

    /// Takes what the files of certificates hold now, if they are those of the plan that is served.
    pub async fn replace(&mut self, pairs: Vec<Pair>) {
        let same = |(one, other): (&Pair, &Pair)| {
            one.certificate == other.certificate && one.private == other.private
        };
        let Some(wanted) = &self.wanted else { return };
        if pairs.len() == wanted.pairs.len() && pairs.iter().zip(&wanted.pairs).all(same) {
            let wanted = Wanted { pairs, ..wanted.clone() };
            if let Err(why) = self.want(wanted).await {
                tracing::error!("{why}");
            }
        }
    }

    async fn want(&mut self, wanted: Wanted) -> Result<(), String> {
        self.wanted = Some(wanted.clone());
        let Some(running) = &self.running else { return Ok(()) };
        match timeout(PATIENCE, running.keeper.want(wanted)).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => {
                Err("certificates could not be taken in, the log says why; those from before are served on"
                    .into())
            }
            Err(_) => Err(format!(
                "certificates were not taken in within {} s, those from before are served until then; does the disk of acme_storage hang?",
                PATIENCE.as_secs()
            )),
        }
    }
}

impl Running {
    fn start() -> io::Result<Running> {
        // For clients of this process as well, which ask certificate authorities.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (resolver, demanded) = Resolver::new();
        let keeper = Keeper::start(Arc::clone(&resolver), demanded)?;
        Ok(Running { resolver, keeper, made: None, made_http3: None })
    }

    /// QUIC has a configuration of its own: a ticket of TLS on TCP is not to be shown there, nor the other way round.
    fn http3(&mut self, tls: &Tls, secret: &Secret) -> Result<Option<Http3>, String> {
        if tls.http3.is_empty() {
            return Ok(None);
        }
        let config = match &self.made_http3 {
            Some((verify, config)) if *verify == tls.verify => config.clone(),
            _ => {
                let config =
                    server(Arc::clone(&self.resolver), MinVersion::Tls13, &tls.verify, &[alpn::HTTP3]);
                Config::from(Arc::new(config.map_err(|fault| fault.to_string())?))
            }
        };
        self.made_http3 = Some((tls.verify.clone(), config.clone()));
        Ok(Some(Http3 { config, secret: secret.clone(), ports: tls.http3.clone() }))
    }

    fn config(&mut self, tls: &Tls) -> Result<Config, String> {
        if let Some((min, verify, config)) = &self.made
            && *min == tls.min_version
            && *verify == tls.verify
        {
            return Ok(config.clone());
        }
        let protocols = [alpn::HTTP2, alpn::HTTP1, alpn::HTTP10];
        let config = server(Arc::clone(&self.resolver), tls.min_version, &tls.verify, &protocols);
        let config = Config::from(Arc::new(config.map_err(|fault| fault.to_string())?));
        self.made = Some((tls.min_version, tls.verify.clone(), config.clone()));
        Ok(config)
    }
}
