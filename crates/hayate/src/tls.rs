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

/// How long a change of certificates may take to be in force before the server goes on without it.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Default)]
pub struct Certificates {
    running: Option<Running>,
    wanted: Wanted,
}

struct Running {
    resolver: Arc<Resolver>,
    keeper: Keeper,
    made: Option<(MinVersion, Verify, Config)>,
    made_http3: Option<(Verify, Config)>,
}

impl Certificates {
    /// What the front needs for a plan's TLS. Returns when the certificates that are there are in force.
    pub async fn install(
        &mut self,
        tls: Option<&Tls>,
        secret: &Secret,
    ) -> Result<Option<hayate_front::Tls>, String> {
        let Some(tls) = tls else {
            self.want(Wanted::default()).await;
            return Ok(None);
        };
        if self.running.is_none() {
            self.running = Some(
                Running::start()
                    .map_err(|error| format!("cannot start the thread for certificates: {error}"))?,
            );
        }
        self.want(Wanted {
            pairs: tls.pairs.clone(),
            self_signed: tls.self_signed.clone(),
            authority: tls.authority.clone(),
            hosts: tls.hosts.clone(),
        })
        .await;
        let Some(running) = &mut self.running else { return Ok(None) };
        Ok(Some(hayate_front::Tls {
            config: running.config(tls)?,
            http3: running.http3(tls, secret)?,
            keeper: running.keeper.clone(),
            redirect: tls.redirect,
            hsts: tls.hsts,
        }))
    }

    /// Takes what the files of certificates hold now, if they are those of the plan that is served.
    pub async fn replace(&mut self, pairs: Vec<Pair>) {
        let same = |(one, other): (&Pair, &Pair)| {
            one.certificate == other.certificate && one.private == other.private
        };
        if pairs.len() == self.wanted.pairs.len() && pairs.iter().zip(&self.wanted.pairs).all(same) {
            let wanted = Wanted { pairs, ..self.wanted.clone() };
            self.want(wanted).await;
        }
    }

    async fn want(&mut self, wanted: Wanted) {
        self.wanted = wanted.clone();
        let Some(running) = &self.running else { return };
        match timeout(PATIENCE, running.keeper.want(wanted)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => {
                tracing::error!("certificates could not be taken in; those from before are served on")
            }
            Err(_) => {
                tracing::error!("certificates take long to be read; those from before are served until then");
            }
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
        let protocols = [alpn::HTTP2, alpn::HTTP1];
        let config = server(Arc::clone(&self.resolver), tls.min_version, &tls.verify, &protocols);
        let config = Config::from(Arc::new(config.map_err(|fault| fault.to_string())?));
        self.made = Some((tls.min_version, tls.verify.clone(), config.clone()));
        Ok(config)
    }
}
