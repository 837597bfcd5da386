//! A server that does exactly what a test says, byte by byte: real sockets, one thread per connection.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hayate_load::{Engine, Load, Plan, Report, Requests, Second, Stop, Template, run};

pub const BOTH: [Engine; 2] = [Engine::Lean, Engine::Hyper];

/// `200 OK` with this body, on a connection that stays.
pub fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// A request as the server saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Which connection it came on, from 0.
    pub connection: usize,
    /// Which request of its connection it is, from 0.
    pub turn: usize,
    pub head: String,
    pub body: Vec<u8>,
    pub at: Instant,
}

impl Seen {
    /// Method and target.
    pub fn line(&self) -> &str {
        self.head.lines().next().and_then(|line| line.strip_suffix(" HTTP/1.1")).expect("a request line")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// What the server does about a request.
pub enum Reply {
    /// Sends these pieces, with a pause between them, and waits for the next request.
    Answer(Vec<Vec<u8>>),
    /// Sends this and closes the connection.
    AnswerAndClose(Vec<u8>),
    /// Sends this and resets the connection.
    AnswerAndReset(Vec<u8>),
    /// Says nothing until the client leaves.
    Silence,
}

impl From<Vec<u8>> for Reply {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Answer(vec![bytes])
    }
}

/// See the module. Ends when it is dropped.
pub struct Server {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    closing: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start<R: Into<Reply>>(reply: impl Fn(&Seen) -> R + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (seen, closing) = (Arc::<Mutex<Vec<Seen>>>::default(), Arc::new(AtomicBool::new(false)));
        let (reply, connections) = (Arc::new(reply), AtomicUsize::new(0));
        let (its_seen, its_closing) = (Arc::clone(&seen), Arc::clone(&closing));
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if its_closing.load(SeqCst) {
                    return;
                }
                let (reply, seen) = (Arc::clone(&reply), Arc::clone(&its_seen));
                let connection = connections.fetch_add(1, SeqCst);
                // A client that leaves in the middle is no error of the server.
                thread::spawn(move || stream.and_then(|stream| serve(stream, connection, &*reply, &seen)));
            }
        });
        Self { address, seen, closing, accepting: Some(accepting) }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// All requests so far, in the order in which they came.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("not poisoned").clone()
    }

    /// A load of `GET /` on it.
    pub fn load(&self, plan: Plan) -> Load {
        Load::new(Requests::to(&self.url("/"), &Template::default()).expect("a URL"), plan)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closing.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
        // Then nobody listens any more.
        let _ = self.accepting.take().map(JoinHandle::join);
    }
}

fn serve<R: Into<Reply>>(
    mut stream: TcpStream,
    connection: usize,
    reply: &impl Fn(&Seen) -> R,
    seen: &Mutex<Vec<Seen>>,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    for turn in 0.. {
        let Some((head, body)) = read_request(&mut stream, &mut buffer)? else {
            return Ok(());
        };
        let request = Seen { connection, turn, head, body, at: Instant::now() };
        seen.lock().expect("not poisoned").push(request.clone());
        match reply(&request).into() {
            Reply::Answer(pieces) => {
                for (i, piece) in pieces.iter().enumerate() {
                    if i > 0 {
                        thread::sleep(Duration::from_millis(5));
                    }
                    stream.write_all(piece)?;
                }
            }
            Reply::AnswerAndClose(bytes) => return stream.write_all(&bytes),
            Reply::AnswerAndReset(bytes) => {
                stream.write_all(&bytes)?;
                // Closing with a linger time of 0 sends a reset.
                return socket_option_linger_zero(&stream);
            }
            Reply::Silence => {
                stream.read_to_end(&mut buffer)?;
                return stream.shutdown(Shutdown::Both);
            }
        }
    }
    Ok(())
}

fn socket_option_linger_zero(stream: &TcpStream) -> std::io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
}

/// Head and body of the next request; `None` when the client has closed.
fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut piece = [0; 4096];
    let mut more = |buffer: &mut Vec<u8>| {
        let length = stream.read(&mut piece)?;
        buffer.extend_from_slice(&piece[..length]);
        Ok::<bool, std::io::Error>(length > 0)
    };
    let head_end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if !more(buffer)? {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let length = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, length)| length.parse().expect("a length"));
    while buffer.len() < head_end + length {
        if !more(buffer)? {
            return Ok(None);
        }
    }
    let rest = buffer.split_off(head_end + length);
    let body = std::mem::replace(buffer, rest).split_off(head_end);
    Ok(Some((head, body)))
}

/// Runs a load to its end. Checks what holds for every report: counts add up, and so do the seconds.
pub fn report(load: Load) -> Report {
    let planned = load.plan.requests();
    let mut seconds: Vec<Second> = Vec::new();
    let report = run(load, &Stop::new(), |second| seconds.push(second.clone())).expect("a load");
    check(&report, planned);
    assert_eq!(report.seconds, seconds, "the observer saw each second");
    report
}

pub fn check(report: &Report, planned: Option<u64>) {
    let (total, health) = (&report.total, &report.health);
    assert_eq!(total.requests, total.ok + total.errors.values().sum::<u64>());
    assert_eq!(total.latency_ms.count, total.requests);
    assert_eq!(total.latency_ok_ms.count, total.ok);
    if let Some(planned) = planned {
        assert_eq!(total.requests + health.unfinished + health.unsent, planned);
    }
    let sum = |part: fn(&Second) -> u64| report.seconds.iter().map(part).sum::<u64>();
    assert_eq!(sum(|second| second.requests), total.requests);
    assert_eq!(sum(|second| second.ok), total.ok);
    assert_eq!(sum(|second| second.late_generator), total.late_generator);
    assert_eq!(sum(|second| second.late_waiting), total.late_waiting);
    assert_eq!(sum(|second| second.bytes_received), total.bytes_received);
    let never_sent = total.errors.get("queued").unwrap_or(&0);
    assert_eq!(sum(|second| second.sent), total.requests + health.unfinished - never_sent);
    let length: f64 = report.seconds.iter().map(|second| second.length).sum();
    assert!((length - report.duration).abs() < 0.2, "{length} s of seconds in {} s", report.duration);
    let written = serde_json::to_string(report).expect("JSON");
    let read: Report = serde_json::from_str(&written).expect("a report");
    // Not all of it: a number read from JSON may differ in its last binary digit.
    assert_eq!((&read.total.histogram, read.total.requests), (&total.histogram, total.requests));
    assert_eq!((read.plan, read.seconds.len()), (report.plan.clone(), report.seconds.len()));
}
