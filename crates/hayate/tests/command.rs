//! The command from outside, with the real PHP host (`make -C host` first): exit statuses, the control socket, signals, systemd.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::PermissionsExt,
            net::{SocketAddr, UnixDatagram, UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

fn host() -> PathBuf {
    let php = std::env::var("HAYATE_PHP").unwrap_or_else(|_| "8.2".into());
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../host/build/hayate-php{php}"));
    let host = std::env::var_os("HAYATE_HOST").map_or(built, PathBuf::from);
    assert!(host.exists(), "{} is missing: run `make -C host`", host.display());
    host.canonicalize().unwrap()
}

fn hayate(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hayate"));
    command.current_dir(dir).env_remove("NOTIFY_SOCKET");
    command
}

/// Runs a command to its end: `(exit status, standard output, standard error)`.
fn done(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// A TCP port that is free and stays so until this process ends: below those that the kernel gives to connections, and kept from other
/// tests by a name among the unix sockets. As `free_port()` of `tests/lib/process.py`, with the same names.
fn free_port() -> u16 {
    static OURS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    // Below those that the kernel gives to who asks for any, as `free_port()` of tests/lib/process.py.
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let first: u32 = range.split_whitespace().next().unwrap().parse().unwrap();
    let ports = first.max(16_384) - 10_240;
    let begin = std::process::id().wrapping_mul(2_654_435_761) % ports;
    for step in 0..ports {
        let port = 10_240 + ((begin + step) % ports) as u16;
        let name = SocketAddr::from_abstract_name(format!("hayate-port-{port}")).unwrap();
        let Ok(name) = UnixListener::bind_addr(&name) else { continue };
        let is_free = |address: &str| TcpListener::bind((address, port)).is_ok();
        // With IPv6 `::` stands for both.
        let no_ipv6 = TcpListener::bind(("::1", 0)).is_err();
        if is_free("0.0.0.0") && is_free("127.0.0.1") && (no_ipv6 || is_free("::")) {
            OURS.lock().unwrap().push(name);
            return port;
        }
    }
    panic!("no port is free");
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn exchange(mut stream: impl Read + Write, method: &str, path: &str) -> (u16, String) {
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    (head[9..12].parse().unwrap(), body.to_owned())
}

/// A server in a directory with `public/index.php` and `hayate.toml`.
struct Server {
    dir: tempfile::TempDir,
    port: u16,
    child: Child,
}

impl Server {
    /// `top` and `app` are lines of the configuration, `PORT` and `METRICS` in them are ports.
    fn start(top: &str, app: &str, prepare: impl FnOnce(&mut Command, &Path)) -> Server {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("public")).unwrap();
        fs::write(
            dir.path().join("public/index.php"),
            "<?php echo 'process ', getmypid(), ' of ', posix_geteuid();",
        )
        .unwrap();
        let port = free_port();
        let config = format!(
            "listen = '127.0.0.1:{port}'\ncontrol = 'c.sock'\n{top}\n[[app]]\nname = 'site'\nroot = '.'\nphp = '{}'\nworkers = 1\n{app}\n",
            host().display()
        );
        fs::write(dir.path().join("hayate.toml"), config).unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        let mut command = hayate(dir.path());
        command.args(["serve", "--config", "hayate.toml", "--ini", "xdebug.mode=off"]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        prepare(&mut command, dir.path());
        let child = command.spawn().unwrap();
        let server = Server { dir, port, child };
        until("readiness", || server.run(&["status"]).0 == 0);
        server
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        done(hayate(self.dir.path()).args(arguments).args(["--control", "c.sock"]))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// A thread of its own writes the log.
    fn says(&self, what: &str) {
        until(what, || self.log().contains(what));
    }

    fn get(&self, path: &str) -> (u16, String) {
        exchange(TcpStream::connect(("127.0.0.1", self.port)).unwrap(), "GET", path)
    }

    fn control(&self, method: &str, path: &str) -> (u16, String) {
        exchange(UnixStream::connect(self.dir.path().join("c.sock")).unwrap(), method, path)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn edit(&self, from: &str, to: &str) {
        let path = self.dir.path().join("hayate.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from));
        fs::write(path, text.replace(from, to)).unwrap();
    }

    fn ended(&mut self) -> i32 {
        until("the end", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

#[test]
fn a_wrong_configuration_names_the_line_and_ends_with_2() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("hayate.toml"), "listen = ':0'\n\n[limits]\nhead_siez = '1K'\n").unwrap();
    for command in ["serve", "check"] {
        let (status, _, said) = done(hayate(dir.path()).args([command, "--config", "hayate.toml"]));
        assert_eq!(status, 2);
        assert!(
            said.contains("hayate.toml:4: unknown key 'head_siez' in [limits]; did you mean 'head_size'?"),
            "{said}"
        );
    }
    let (status, _, said) = done(hayate(dir.path()).args(["serve", "--workers", "8-2"]));
    assert!(status == 2 && said.contains("write 2-8"), "{said}");
    let (status, _, said) = done(hayate(dir.path()).args(["serve", "nowhere"]));
    assert!(status == 2 && said.contains("root: cannot use the directory nowhere"), "{said}");
    let (status, _, said) = done(hayate(dir.path()).args(["serve", "--php", "9.9"]));
    assert!(status == 2 && said.contains("Hayate knows PHP 8.2"), "{said}");
    // The kernel would refuse the second.
    fs::create_dir(dir.path().join("site")).unwrap();
    fs::write(
        dir.path().join("hayate.toml"),
        "\nlisten = ['127.0.0.1:8099', ':8099']\n[[app]]\nroot = 'site'\n",
    )
    .unwrap();
    let (status, _, said) = done(hayate(dir.path()).args(["check", "--config", "hayate.toml"]));
    assert!(
        status == 2 && said.contains("hayate.toml:2: listen: http://0.0.0.0:8099 and http://127.0.0.1:8099"),
        "{said}"
    );
    let (status, _, said) =
        done(hayate(dir.path()).args(["check", "site", "--listen", "[::]:8099", "--listen", "[::1]:8099"]));
    assert!(
        status == 2 && said.contains("--listen: http://[::]:8099 and http://[::1]:8099 have one port"),
        "{said}"
    );
    fs::write(dir.path().join("file"), "").unwrap();
    for (place, why) in
        [("nowhere/more/c.sock", "there is no directory nowhere"), ("file", "something that is no socket")]
    {
        let (status, _, said) = done(hayate(dir.path()).args(["check", "site", "--control", place]));
        assert!(status == 2 && said.contains("--control: ") && said.contains(why), "{said}");
    }
    for (path, why) in [
        ("nope", "begins with /"),
        ("", "begins with /"),
        ("/a b", "write %20 for ' '"),
        ("/ü", "write %C3%BC for 'ü'"),
    ] {
        let (status, _, said) = done(hayate(dir.path()).args(["explain", "site", "--url", path]));
        assert!(status == 2 && said.contains(why), "{said}");
    }
}

#[test]
fn who_reads_what_is_said_may_have_seen_enough() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = hayate(dir.path());
    command.args(["check", "--php"]).arg(host()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let said = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stderr), "");
}

#[test]
fn check_says_what_would_run() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("public")).unwrap();
    fs::write(dir.path().join("public/index.php"), "").unwrap();
    let (status, said, error) = done(hayate(dir.path()).args(["check", "--php"]).arg(host()));
    assert_eq!(status, 0, "{error}");
    for part in
        ["/public\n", "mode        classic", "PHP 8.", "http://127.0.0.1:8080", "otherwise   index.php"]
    {
        assert!(said.contains(part), "{part} in {said}");
    }
}

#[test]
fn nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["status", "reload", "stop"] {
        let (status, _, said) = done(hayate(dir.path()).args([command, "--control", "none.sock"]));
        assert!(status == 1 && said.contains("no server answers at none.sock"), "{said}");
    }
}

#[test]
fn serves_reloads_and_stops() {
    let mut server = Server::start("pid_file = 'pid'", "", |_, _| {});
    let path = server.dir.path().to_owned();
    assert_eq!(fs::read_to_string(path.join("pid")).unwrap().trim(), server.child.id().to_string());
    assert_eq!(fs::metadata(path.join("c.sock")).unwrap().permissions().mode() & 0o777, 0o600);
    let (code, first) = server.get("/");
    assert_eq!(code, 200);
    assert_eq!(server.get("/").1, first, "one worker");

    let (status, said, _) = server.run(&["status"]);
    assert!(status == 0 && said.contains("site: serving, classic mode, PHP 8."), "{said}");
    let (_, json, _) = server.run(&["status", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["apps"][0]["workers"][0]["requests"], 2);

    assert_eq!(server.run(&["reload"]).0, 0);
    let second = server.get("/").1;
    assert_ne!(second, first);

    server.edit("workers = 1", "wokers = 1");
    let (status, _, said) = server.run(&["reload"]);
    assert!(status == 1 && said.contains("did you mean 'workers'?"), "{said}");
    assert_eq!(server.get("/").1, second);
    server.says("the reload was refused");
    assert!(server.run(&["status"]).1.contains("The last reload was refused: "));

    let other = free_port();
    server.edit("wokers = 1", "workers = 2");
    server.edit("pid_file = 'pid'", "pid_file = 'other'");
    server.edit(&server.port.to_string(), &other.to_string());
    assert_eq!(server.run(&["reload"]).0, 0);
    server.says("pid_file has changed; that takes effect with a restart only");
    // The master lets go of its copy of the socket when the front has told it.
    until("the old address is closed", || TcpStream::connect(("127.0.0.1", server.port)).is_err());
    server.port = other;
    assert_eq!(server.get("/").0, 200);

    let (status, said, _) = server.run(&["stop"]);
    assert_eq!((status, said.trim()), (0, "stopped"));
    assert_eq!(server.ended(), 0);
    assert!(!path.join("pid").exists() && !path.join("c.sock").exists());
}

#[test]
fn a_second_server_does_not_take_the_control_socket() {
    let server = Server::start("", "", |_, _| {});
    let listen = format!("127.0.0.1:{}", free_port());
    let (status, _, said) = done(
        hayate(server.dir.path())
            .args(["serve", "--control", "c.sock", "--listen", &listen, "--php"])
            .arg(host()),
    );
    assert!(status == 1 && said.contains("another hayate listens there"), "{said}");
    let listen = format!("127.0.0.1:{}", server.port);
    let (status, _, said) = done(
        hayate(server.dir.path())
            .args(["serve", "--control", "d.sock", "--listen", &listen, "--php"])
            .arg(host()),
    );
    assert!(
        status == 1 && said.contains(&listen) && said.contains("another program listens there"),
        "{said}"
    );
    assert_eq!(server.get("/").0, 200);
}

#[test]
fn the_control_listener() {
    let metrics = free_port();
    let server = Server::start(&format!("metrics = '127.0.0.1:{metrics}'"), "", |_, _| {});
    server.get("/");
    // The worker is idle a moment after its answer has arrived.
    until("idleness", || server.control("GET", "/metrics").1.contains("state=\"idle\"} 1"));
    let tcp = |method, path| exchange(TcpStream::connect(("127.0.0.1", metrics)).unwrap(), method, path);
    for (code, text) in [server.control("GET", "/metrics"), tcp("GET", "/metrics")] {
        assert_eq!(code, 200);
        for line in [
            "hayate_requests_total{app=\"site\",status=\"200\"} 1",
            "hayate_workers{app=\"site\",state=\"idle\"} 1",
            "hayate_worker_restarts_total{app=\"site\",cause=\"request_timeout\"} 0",
            "hayate_ready{app=\"site\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
    assert_eq!(tcp("GET", "/healthz"), (200, "alive\n".into()));
    assert_eq!(tcp("GET", "/readyz"), (200, "ready\n".into()));
    // By TCP nobody commands or learns more.
    assert_eq!(tcp("GET", "/status").0, 404);
    assert_eq!(tcp("POST", "/stop").0, 404);
    assert_eq!(server.control("GET", "/stop").0, 405);
    assert_eq!(server.control("POST", "/metrics").0, 405);
    assert_eq!(server.get("/").0, 200);
}

#[test]
fn in_development_a_failed_boot_is_shown_and_tried_again() {
    let server = Server::start("development = true", "worker = 'worker.php'", |_, dir| {
        fs::write(dir.join("worker.php"), "<?php throw new Exception('no database');").unwrap();
    });
    let (code, page) = server.get("/");
    assert!(code == 503 && page.contains("no database"), "{page}");
    let (code, why) = server.control("GET", "/readyz");
    assert!(code == 503 && why.contains("no database"), "{why}");
    let worker = "<?php while (hayate_handle_request(function () { echo 'up'; })) {}";
    fs::write(server.dir.path().join("worker.php"), worker).unwrap();
    until("the boot", || server.get("/") == (200, "up".into()));
    assert_eq!(server.control("GET", "/readyz").0, 200);
}

#[test]
fn without_development_a_failed_boot_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("worker.php"), "<?php throw new Exception('no database');").unwrap();
    let listen = format!("127.0.0.1:{}", free_port());
    let (status, _, said) = done(
        hayate(dir.path())
            .args(["serve", "--worker", "worker.php", "--control", "c", "--listen", &listen, "--php"])
            .arg(host()),
    );
    assert!(status == 1 && said.contains("did not boot: ") && said.contains("no database"), "{said}");
}

#[test]
fn signals() {
    let mut server = Server::start("access_log = 'access.log'", "", |_, _| {});
    let path = server.dir.path().to_owned();
    server.get("/one");
    until("the line", || fs::read_to_string(path.join("access.log")).unwrap().contains("/one"));
    fs::rename(path.join("access.log"), path.join("rotated.log")).unwrap();
    server.signal(Signal::USR1);
    until("the new log", || path.join("access.log").exists());
    server.get("/two");
    until("the line", || fs::read_to_string(path.join("access.log")).unwrap().contains("/two"));
    let before = server.get("/").1;
    server.signal(Signal::HUP);
    until("the reload", || server.get("/").1 != before);
    server.signal(Signal::INT);
    assert_eq!(server.ended(), 0);
    server.says("stopped");
}

#[test]
fn a_later_reload_takes_the_place_of_one_whose_boot_hangs() {
    let worker = |answer: &str| {
        format!("<?php while (hayate_handle_request(function () {{ echo '{answer}'; }})) {{}}")
    };
    let server = Server::start("", "worker = 'worker.php'", |_, dir| {
        fs::write(dir.join("worker.php"), worker("one")).unwrap();
    });
    let script = server.dir.path().join("worker.php");
    fs::write(&script, "<?php sleep(60);").unwrap();
    let mut hanging = hayate(server.dir.path())
        .args(["reload", "--control", "c.sock"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    server.says("reloading");
    std::thread::sleep(Duration::from_millis(200));
    assert!(hanging.try_wait().unwrap().is_none(), "it waits for the boot");
    assert_eq!(server.get("/"), (200, "one".into()));
    fs::write(&script, worker("two")).unwrap();
    assert_eq!(server.run(&["reload"]).0, 0);
    assert!(hanging.wait().unwrap().success(), "it learns how the later one went");
    assert_eq!(server.get("/"), (200, "two".into()));
}

#[test]
fn systemd_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let heard = || {
        let mut text = [0; 200];
        let n = socket.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..n]).into_owned()
    };
    let mut server = Server::start("", "", |command, _| {
        command.env("NOTIFY_SOCKET", dir.path().join("notify"));
    });
    assert_eq!(heard(), "READY=1\n");
    assert_eq!(server.run(&["reload"]).0, 0);
    let reloading = heard();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(heard(), "READY=1\n");
    server.signal(Signal::TERM);
    assert_eq!(heard(), "STOPPING=1\n");
    assert_eq!(server.ended(), 0);
}

#[test]
fn from_root_to_a_user() {
    if !rustix::process::geteuid().is_root() {
        let dir = tempfile::tempdir().unwrap();
        let (status, _, said) = done(
            hayate(dir.path())
                .args(["serve", "--user", "root", "--control", "c", "--listen", "127.0.0.1:0", "--php"])
                .arg(host()),
        );
        assert!(status == 1 && said.contains("only root can change to user 'root'"), "{said}");
        return;
    }
    let server = Server::start("user = 'nobody'\npid_file = 'pid'", "", |_, _| {});
    let nobody = fs::read_to_string("/etc/passwd").unwrap();
    let uid = nobody
        .lines()
        .find(|line| line.starts_with("nobody:"))
        .unwrap()
        .split(':')
        .nth(2)
        .unwrap()
        .to_owned();
    assert!(server.get("/").1.ends_with(&format!(" of {uid}")));
    let (_, said, _) = server.run(&["status", "--json"]);
    let front = &serde_json::from_str::<serde_json::Value>(&said).unwrap()["front"];
    let status = fs::read_to_string(format!("/proc/{front}/status")).unwrap();
    let line = |key: &str| {
        status
            .lines()
            .find(|line| line.starts_with(key))
            .unwrap()
            .split_whitespace()
            .skip(1)
            .collect::<Vec<_>>()
    };
    assert_eq!(line("Uid:"), [&*uid; 4]);
    assert_eq!(line("CapEff:"), ["0000000000000000"]);
    // A reload starts as that user, too.
    assert_eq!(server.run(&["reload"]).0, 0);
    assert!(server.get("/").1.ends_with(&format!(" of {uid}")));
}

#[test]
fn the_reference_of_the_configuration_is_up_to_date() {
    let (status, made, _) = done(hayate(Path::new("/")).args(["generate", "configuration"]));
    assert_eq!(status, 0);
    let kept = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md"))
        .unwrap_or_default();
    assert!(made == kept, "run `hayate generate configuration > docs/configuration.md`");
    for (what, part) in
        [("man", ".TH hayate"), ("completions bash", "_hayate()"), ("completions zsh", "#compdef hayate")]
    {
        let (status, text, _) = done(hayate(Path::new("/")).arg("generate").args(what.split(' ')));
        assert!(status == 0 && text.contains(part), "{what}");
        assert!(
            !text.contains("load-plan") && !text.contains("load-first-plan"),
            "{what}: commands of its own"
        );
    }
}
