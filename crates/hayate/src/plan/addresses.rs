//! Addresses to listen on, beside each other.

use std::collections::HashMap;

use hayate_front::ListenAddr;

use super::Port;

/// Why not all of them can be listened on, as they are written.
pub(super) fn conflict(listen: &[(ListenAddr, Port)]) -> Option<String> {
    let twice = twice(listen).map(|(one, other)| match one == other {
        true => format!("listen: {one} stands there twice; leave one out"),
        false => format!(
            "listen: {one} and {other} are one address, where all connections begin alike; leave one out"
        ),
    });
    twice.or_else(|| {
        let (one, other) = overlapping(listen)?;
        Some(format!(
            "listen: {one} and {other} have one port, and the kernel gives it to one of them only; leave one out"
        ))
    })
}

/// An address that is there twice, as people write it each time.
fn twice(listen: &[(ListenAddr, Port)]) -> Option<(String, String)> {
    let mut seen = HashMap::new();
    listen.iter().find_map(|(addr, port)| {
        let before = seen.insert(addr, port)?;
        Some((in_words(addr, *before, true), in_words(addr, *port, true)))
    })
}

/// An address as people write it; `whole`: with all that its connections begin with.
pub(super) fn in_words(addr: &ListenAddr, port: Port, whole: bool) -> String {
    let by_proxy = if whole && port.proxy_protocol { " (proxy_protocol)" } else { "" };
    match (addr, port.tls) {
        (ListenAddr::Tcp(addr), true) => format!("https://{addr}{by_proxy}"),
        _ => format!("{addr}{by_proxy}"),
    }
}

/// Two addresses of which only one can be listened on.
fn overlapping(listen: &[(ListenAddr, Port)]) -> Option<(&ListenAddr, &ListenAddr)> {
    let any = |addr: &ListenAddr| match addr {
        ListenAddr::Tcp(addr) | ListenAddr::Quic(addr) => addr.ip().is_unspecified() && addr.port() != 0,
        ListenAddr::Unix(_) => false,
    };
    let everywhere = listen.iter().map(|(addr, _)| addr).filter(|addr| any(addr));
    everywhere.into_iter().find_map(|one| {
        let other = listen.iter().map(|(addr, _)| addr).find(|other| one.overlaps(other))?;
        Some((one, other))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::{fixture, plan};

    #[test]
    fn an_address_is_listened_on_once() {
        let dir = fixture();
        let said = |listen: &str| {
            let text = format!("listen = [{listen}]\n[[app]]\nroot = 'site'\n");
            plan(dir.path(), &text, |_| ()).unwrap_err().to_string()
        };
        let plain = "http://127.0.0.1:81";
        assert_eq!(
            said("'127.0.0.1:81', '127.0.0.1:81'"),
            format!("hayate.toml:1: listen: {plain} stands there twice; leave one out")
        );
        assert_eq!(
            said("'127.0.0.1:81', { address = '127.0.0.1:81', proxy_protocol = true }"),
            format!(
                "hayate.toml:1: listen: {plain} and {plain} (proxy_protocol) are one address, where all connections begin alike; leave one out"
            )
        );
        assert!(said("'unix:run/x.sock', 'unix:run/./x.sock'").contains("stands there twice"));
        // Nor by flags.
        let twice: ListenAddr = "127.0.0.1:81".parse().unwrap();
        let text = "[[app]]\nroot = 'site'\n";
        let by_flags = plan(dir.path(), text, |args| args.listen = vec![twice.clone(), twice.clone()]);
        assert_eq!(
            by_flags.unwrap_err().to_string(),
            format!("--listen: {plain} stands there twice; leave one out")
        );
    }
}
