//! TLS on sockets, from the client's side: a client of rustls', one that says nothing of TLS, and one that says too much.

mod support;

use std::{
    future::poll_fn,
    io::{Read, Write},
    net::TcpStream as Client,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use hayate_http::{
    Answer, Carrier, Clock, Exchange, Handler, Io, Length, Limits, Protocol, Refusal, h1, seconds,
    tls::{self, HandshakeError, Handshakes, TlsStream, alpn},
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, Stream,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use support::{Site, run};
use tokio::net::{TcpListener, TcpStream};

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

async fn accept(
    tcp: TcpStream,
    server: Arc<ServerConfig>,
    handshakes: &Handshakes,
    site: &Site,
) -> Result<TlsStream, HandshakeError> {
    tls::accept(tcp, &server.into(), &Limits::default(), &Clock::default(), (handshakes, None), site).await
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
        let site = Site::default();
        let agreed = match accept(tcp, server, &Handshakes::default(), &site).await {
            Ok(stream) => {
                let agreed = stream.agreed();
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

/// Waits until this holds of what the site knows to be held.
async fn holds(site: &Site, what: impl Fn(usize) -> bool) {
    while !what(site.held.get()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn what_is_begun_and_not_whole_is_told_of() {
    let (server, client) = configs();
    run(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (site, clock) = (Rc::new(Site::default()), Rc::new(Clock::default()));
        let serve = |tcp, server| {
            let (site, clock) = (Rc::clone(&site), Rc::clone(&clock));
            tokio::task::spawn_local(async move {
                let Ok(stream) = accept(tcp, server, &Handshakes::default(), &site).await else { return };
                let limits = Rc::new(Limits::default());
                let carrier = Carrier::Stream(Io::Tls(Box::new(stream)), Protocol::Http1);
                hayate_http::serve(carrier, site, limits, clock).await;
            })
        };
        // A hello of which the rest never comes.
        let mut hello = vec![0x16, 3, 1, 0x3f, 0, 1, 0, 0x3e, 0xfc];
        hello.resize(9000, 0);
        let mut silent = Client::connect(addr).unwrap();
        silent.write_all(&hello).unwrap();
        let served = serve(listener.accept().await.unwrap().0, Arc::clone(&server));
        holds(&site, |held| held >= 8000).await;
        served.abort();
        let _ = served.await;
        site.held.set(0);
        // A record of which the rest never comes, of somebody who waits for nothing: the connection holds it, whichever HTTP is spoken.
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let player = thread::spawn(move || {
            let mut tcp = Client::connect(addr).unwrap();
            let mut session = ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
            let mut stream = Stream::new(&mut session, &mut tcp);
            stream.write_all(b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            stream.read_exact(&mut [0; 20]).unwrap();
            let mut record = vec![0x17, 3, 3, 0x40, 0];
            record.resize(12_000, 0);
            tcp.write_all(&record).unwrap();
            let _ = gate.recv();
        });
        let served = serve(listener.accept().await.unwrap().0, server);
        while clock.holding().bytes() < 11_000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(release);
        served.await.unwrap();
        assert_eq!((site.held.get(), clock.holding().bytes()), (0, 0));
        player.join().unwrap();
    });
}

/// Counts those who have begun to agree.
#[derive(Debug)]
struct Counting(Arc<dyn ResolvesServerCert>, AtomicUsize);

impl ResolvesServerCert for Counting {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.1.fetch_add(1, Relaxed);
        self.0.resolve(hello)
    }
}

#[test]
fn many_who_come_at_one_time_leave_others_their_turns() {
    const MANY: usize = 40;
    let (server, client) = configs();
    let counting = Arc::new(Counting(Arc::clone(&server.cert_resolver), AtomicUsize::new(0)));
    let mut config = ServerConfig::clone(&server);
    config.cert_resolver = Arc::clone(&counting) as _;
    let config = Arc::new(config);
    run(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (handshakes, site) = (Rc::new(Handshakes::default()), Rc::new(Site::default()));
        let mut clients = Vec::new();
        let mut accepted = Vec::new();
        for _ in 0..MANY {
            let mut tcp = Client::connect(addr).unwrap();
            let mut session =
                ClientConnection::new(Arc::clone(&client), "localhost".try_into().unwrap()).unwrap();
            session.write_tls(&mut tcp).unwrap();
            clients.push(tcp);
            accepted.push(listener.accept().await.unwrap().0);
            accepted.last().unwrap().readable().await.unwrap();
        }
        for tcp in accepted {
            let (config, handshakes, site) = (Arc::clone(&config), Rc::clone(&handshakes), Rc::clone(&site));
            tokio::task::spawn_local(async move { accept(tcp, config, &handshakes, &site).await.is_ok() });
        }
        let (mut seen, mut most) = (0, 0);
        while seen < MANY {
            tokio::task::yield_now().await;
            let now = counting.1.load(Relaxed);
            most = most.max(now - seen);
            seen = now;
        }
        // Those of one turn, and of the next, if this one's comes in the middle of it.
        assert!(most <= 8, "{most} in one turn");
    });
}

/// Answers, and leaves no room in the socket for anything more.
struct Full(std::net::TcpStream);

impl Full {
    fn fill(&self) {
        for size in [1 << 16, 1] {
            while (&self.0).write(&vec![0; size]).is_ok() {}
        }
    }
}

impl Handler for Full {
    async fn handle(&self, exchange: &mut Exchange<'_>) {
        exchange.begin(&Answer::new(200), Length::Exact(2));
        exchange.send("ok".into());
        exchange.finish();
        poll_fn(|cx| exchange.poll_flush(cx)).await.unwrap();
        self.fill();
        // The other end may still be making room.
        tokio::time::sleep(Duration::from_millis(100)).await;
        self.fill();
    }

    async fn refused(&self, _: &mut Exchange<'_>, _: Refusal, _: &[u8]) {}

    fn unfinished(&self, _: &[u8], _: bool) {}
}

#[test]
fn a_client_that_leaves_no_room_for_the_end_is_not_waited_for_without_end() {
    let (server, client) = configs();
    run(|| async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (over, is_over) = mpsc::channel::<()>();
        let client = thread::spawn(move || {
            let mut tcp = Client::connect(addr).unwrap();
            let mut session = ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
            let mut stream = Stream::new(&mut session, &mut tcp);
            stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
            // It reads nothing.
            let _ = is_over.recv();
        });
        let (tcp, _) = listener.accept().await.unwrap();
        let tcp = tcp.into_std().unwrap();
        let full = Rc::new(Full(tcp.try_clone().unwrap()));
        let tcp = TcpStream::from_std(tcp).unwrap();
        let stream = accept(tcp, server, &Handshakes::default(), &Site::default()).await.unwrap();
        let (limits, clock) = (Rc::new(Limits::default()), Rc::new(Clock::default()));
        let carrier = Carrier::Stream(Io::Tls(Box::new(stream)), Protocol::Http1);
        let served = hayate_http::serve(carrier, full, limits, Rc::clone(&clock));
        let waits = tokio::time::timeout(Duration::from_secs(1), served).await;
        assert!(waits.is_err(), "it has nothing to wait for");
        assert!(!clock.becomes_late(seconds()), "the client has its time");
        assert!(clock.becomes_late(seconds() + 100), "the client has all the time there is");
        drop(over);
        client.join().unwrap();
    });
}
