//! A front on a thread of its own, and the client's side of a connection to it.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use hayate_front::{
    AccessLog, Backend, Disk, Format, Front, Limits, ListenAddr, Listener, Metrics, Routes, Settings, Site,
    Thread, runtime,
};
use hayate_ring::{Config, Hub, Ring};
use prometheus_client::registry::Registry;
use tempfile::TempDir;
use tokio::sync::watch;

/// How long a client waits for what has to come, before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A running front with one site.
pub struct Server {
    pub root: TempDir,
    pub ring: Arc<Ring>,
    pub front: Arc<Front>,
    logs: TempDir,
    registry: Registry,
    addr: SocketAddr,
    stop: Option<watch::Sender<bool>>,
    thread: Option<JoinHandle<bool>>,
}

impl Server {
    pub fn start(limits: Limits) -> Server {
        Server::start_with_log(limits, TempDir::new().unwrap())
    }

    /// Its log is access.log in `logs`, which may be there already.
    pub fn start_with_log(limits: Limits, logs: TempDir) -> Server {
        Server::start_with(limits, logs, Arc::new(|| None))
    }

    fn start_with(
        limits: Limits,
        logs: TempDir,
        unavailable: Arc<dyn Fn() -> Option<String> + Send + Sync>,
    ) -> Server {
        let root = TempDir::new().unwrap();
        let hub = Hub::new(1).unwrap();
        let config = Config { slots: 4, workers: 1, request_head: 65536, response_head: 4096, body: 4096 };
        let ring = Ring::create(&config, &hub).unwrap();
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let disk = Disk::start(Disk::THREADS).unwrap();
        let site = Site {
            compression: None,
            name: "app".into(),
            hosts: Vec::new(),
            path: "/".into(),
            place: disk.place(&root.path().canonicalize().unwrap()),
            index: vec!["index.php".into(), "index.html".into()],
            front_controller: None,
            sendfile_roots: None,
            files: Default::default(),
            backend: Backend::Ring {
                ring: Arc::clone(&ring),
                queue_limit: 100,
                queue_timeout: Duration::from_secs(3600),
                retry: false,
                streams_bodies: true,
                unavailable,
                lacking: Arc::new(|| None),
            },
            beside: None,
            metrics: metrics.site("app"),
            found: Default::default(),
            rules: None,
            error_pages: Default::default(),
            access_log: None,
        };
        let opens = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let log = logs.path().join("access.log");
        let access_log = opens.block_on(AccessLog::file(&log, Format::Json)).unwrap();
        let settings = Settings {
            limits,
            access_log,
            trusted_proxies: Vec::new(),
            trust_unix: false,
            trusted_headers: Default::default(),
            development: false,
            http2_prior_knowledge: true,
            early_hints_http1: false,
            ports: Default::default(),
            tls: None,
        };
        let front =
            Front::new(settings, Routes { sites: vec![Arc::new(site)], ..Routes::default() }, metrics, disk);
        let (started, bound) = mpsc::channel();
        let (stop, stopped) = watch::channel(false);
        let served = Arc::clone(&front);
        let thread = std::thread::spawn(move || {
            let (runtime, _watch) = runtime::build(&hub, 0).unwrap();
            runtime.block_on(async {
                let listener = Listener::bind(&"127.0.0.1:0".parse::<ListenAddr>().unwrap()).unwrap();
                let Listener::Tcp(tcp) = &listener else { unreachable!("the address is one of TCP") };
                started.send(tcp.local_addr().unwrap()).unwrap();
                tokio::spawn(Arc::clone(&served).watch());
                let thread = Thread::new(&served);
                tokio::task::spawn_local(std::rc::Rc::clone(&thread).watch());
                thread.serve(listener, stopped).await;
                let whole = served.drain(Duration::from_secs(5)).await == 0;
                served.close().await;
                whole
            })
        });
        let addr = bound.recv_timeout(PATIENCE).expect("the front listens");
        Server { root, ring, front, logs, registry, addr, stop: Some(stop), thread: Some(thread) }
    }

    /// Like [`Server::plain`], with what is asked before each request for a script.
    pub fn with_unavailable(unavailable: impl Fn() -> Option<String> + Send + Sync + 'static) -> Server {
        Server::start_with(Limits::default(), TempDir::new().unwrap(), Arc::new(unavailable))
    }

    pub fn plain() -> Server {
        Server::start(Limits::default())
    }

    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let file = self.root.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, content).unwrap();
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream, unread: Vec::new() }
    }

    /// One exchange on a connection of its own. `request` is the request line's method and target, or more.
    pub fn ask(&self, request: &str, headers: &str) -> Answer {
        let mut client = self.connect();
        client.send(format!("{request} HTTP/1.1\r\nHost: a.test\r\n{headers}\r\n"));
        if request.starts_with("HEAD") { client.head() } else { client.answer() }
    }

    /// The value of a counter or gauge.
    pub fn metric(&self, name: &str) -> f64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    pub fn log(&self) -> Vec<serde_json::Value> {
        read_log(self.logs.path())
    }

    /// Stops, and returns what is in the log then, with no time to write it afterwards.
    pub fn log_at_the_end(mut self) -> Vec<serde_json::Value> {
        self.begin_stop();
        self.thread.take().unwrap().join().unwrap();
        read_log(self.logs.path())
    }

    /// Stops accepting and drains; whether every connection ended by itself.
    pub fn stop(mut self) -> bool {
        self.begin_stop();
        self.thread.take().unwrap().join().unwrap()
    }

    pub fn begin_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(true);
        }
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }
}

fn read_log(logs: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(logs.join("access.log")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl Drop for Server {
    fn drop(&mut self) {
        self.begin_stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until `condition` holds, and fails loudly when it never does.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header that stands there at most once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.head.lines().skip(1).filter_map(|line| {
            let (n, value) = line.split_once(": ")?;
            n.eq_ignore_ascii_case(name).then_some(value)
        });
        let value = found.next();
        assert!(found.next().is_none(), "{name} twice in {}", self.head);
        value
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

pub struct Client {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    fn more(&mut self) -> bool {
        let mut block = [0; 65536];
        match self.stream.read(&mut block) {
            Ok(n) => {
                self.unread.extend_from_slice(&block[..n]);
                n > 0
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("reading: {error}; so far {:?}", String::from_utf8_lossy(&self.unread)),
        }
    }

    /// A head, without the body that may follow.
    pub fn head(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.more(), "closed before an answer: {:?}", String::from_utf8_lossy(&self.unread));
        };
        let head: Vec<u8> = self.unread.drain(..end).collect();
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: Vec::new() }
    }

    /// An answer with a Content-Length, or without a body.
    pub fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        let length = answer.header("content-length").map_or(0, |v| v.parse().unwrap());
        while self.unread.len() < length {
            assert!(self.more(), "closed inside a body");
        }
        answer.body = self.unread.drain(..length).collect();
        answer
    }

    /// Whether the server closes, without another byte.
    pub fn is_closed(&mut self) -> bool {
        let more = self.more();
        assert!(!more, "more came: {:?}", String::from_utf8_lossy(&self.unread));
        true
    }

    /// Whether nothing happens for a while: no byte, no end.
    pub fn is_quiet_for(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let quiet = matches!(self.stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        quiet
    }
}
