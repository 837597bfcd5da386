//! TLS on sockets, from the client's side: a client of rustls', one that says nothing of TLS, and one that says too much.

mod support;

use std::{
    io::{Read, Write},
    net::TcpStream as Client,
    rc::Rc,
    sync::Arc,
    thread,
};

use hayate_http::{
    Clock, Io, Limits, h1,
    tls::{self, HandshakeError, alpn},
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, Stream,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use support::{Site, run};
use tokio::net::TcpListener;

fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate: CertificateDer<'static> = params.self_signed(&key).unwrap().der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let server = ServerConfig::builder().with_no_client_auth();
    let mut server = server.with_single_cert(vec![certificate], key).unwrap();
    server.alpn_protocols = vec![alpn::HTTP2.to_vec(), alpn::HTTP1.to_vec()];
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

/// Accepts one connection and serves it, while `play` is the client in a thread of its own; gives what that came to, and the handshake.
fn with_client<T: Send + 'static>(
    server: Arc<ServerConfig>,
    play: impl FnOnce(Client) -> T + Send + 'static,
) -> (T, Result<tls::Agreed, HandshakeError>) {
    let mut outcome = None;
    run(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let client = thread::spawn(move || play(Client::connect(addr).unwrap()));
        let (tcp, _) = listener.accept().await.unwrap();
        let agreed = match tls::accept(tcp, server, &Limits::default(), &Clock::default()).await {
            Ok(stream) => {
                let agreed = stream.agreed();
                let site = Site::default();
                let (limits, clock) = (Rc::new(Limits::default()), Rc::new(Clock::default()));
                h1::serve(Io::Tls(Box::new(stream)), &site, limits, clock).await;
                Ok(agreed)
            }
            Err(error) => Err(error),
        };
        let played = tokio::task::spawn_blocking(move || client.join().unwrap()).await.unwrap();
        outcome = Some((played, agreed));
    });
    outcome.unwrap()
}

#[test]
fn requests_over_tls_and_an_end_in_order() {
    let (server, client) = configs();
    let (answer, agreed) = with_client(server, move |mut tcp| {
        let mut session = ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
        let mut stream = Stream::new(&mut session, &mut tcp);
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream.write_all(b"GET /end HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        // Without close_notify this is an error.
        stream.read_to_end(&mut answer).map(|_| answer.len())
    });
    assert!(answer.unwrap() > 3_000_000);
    let agreed = agreed.unwrap();
    assert_eq!((agreed.protocol, agreed.server_name.as_deref()), ("TLSv1.3", Some("localhost")));
    assert!(
        agreed.cipher.is_some_and(|cipher| cipher.starts_with("TLS_"))
            && agreed.alpn.is_none()
            && agreed.resumed == Some(false)
    );
}

#[test]
fn an_answer_that_is_cut_off_has_no_close_notify() {
    let (server, client) = configs();
    let (answer, _) = with_client(server, move |mut tcp| {
        let mut session = ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
        let mut stream = Stream::new(&mut session, &mut tcp);
        stream.write_all(b"GET /short HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
        stream.read_to_end(&mut Vec::new())
    });
    assert_eq!(answer.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_client_without_tls_keeps_its_connection() {
    let (server, _) = configs();
    let ((), agreed) = with_client(server, |mut tcp| tcp.write_all(b"GET / HTTP/1.1\r\n").unwrap());
    assert!(matches!(agreed, Err(HandshakeError::PlainHttp(_))));
}

#[test]
fn nonsense_and_endless_hellos_are_refused() {
    let (server, _) = configs();
    let (_, agreed) = with_client(Arc::clone(&server), |mut tcp| {
        let _ = tcp.write_all(&[0x16, 3, 1, 0, 5, 9, 9, 9, 9, 9]);
        let _ = tcp.read_to_end(&mut Vec::new());
    });
    assert!(matches!(agreed, Err(HandshakeError::Refused(_))), "{agreed:?}");
    // A hello that claims to be long, in many records.
    let (_, agreed) = with_client(server, |mut tcp| {
        let mut record = vec![0x16, 3, 1, 0x20, 0, 1, 0, 0xff, 0xff];
        record.resize(5 + 0x2000, 0);
        for _ in 0..40 {
            if tcp.write_all(&record).is_err() {
                break;
            }
            record[5..].fill(0);
        }
        let _ = tcp.read_to_end(&mut Vec::new());
    });
    assert!(matches!(agreed, Err(HandshakeError::Refused(_) | HandshakeError::TooLong)), "{agreed:?}");
}
